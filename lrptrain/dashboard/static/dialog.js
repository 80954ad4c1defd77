// A sample by itself: large, with its scores, and how its maps changed in every run shown. It is open while the address
// names one.

// Opens, fills or closes the dialog as the address says.
async function drawSample() {
  const { run } = current;
  const id = address.sample;
  const drawing = ++drawSample.last;
  let dialog = document.getElementById("sample");
  if (id === "" || run === null) {
    if (dialog !== null) removeSample(dialog);
    return;
  }
  const head = () => [h("button", { type: "button", id: "close-sample", className: "close", title: "Close (Esc)", ariaLabel: "Close", onclick: closeSample }, "×"), stepButtons(),
    h("h2", { id: "sample-title" }, `Sample ${id}`)];
  if (dialog === null || dialog.dataset.sample !== id) {
    dialog ??= newSample();
    dialog.dataset.sample = id;
    redraw(dialog, ...head());
    if (!dialog.open) dialog.showModal();
  }
  const detail = h("div");
  await fillIn(detail, () => sampleDetail(run, id));
  if (drawing === drawSample.last && dialog.isConnected) redraw(dialog, ...head(), detail);
}
drawSample.last = 0;

// Ids of the samples before and after the opened one, in the order of the gallery.
function besideSample() {
  const { run, table } = gallery;
  const rows = table !== null && run === current.run ? chosenRows(table) : [];
  const ids = rows.map((i) => table.columns.sample_id[i]);
  const place = ids.indexOf(address.sample);
  return { before: place < 0 ? undefined : ids[place - 1], after: place < 0 ? undefined : ids[place + 1], place, count: ids.length };
}

function stepButtons() {
  const { before, after, place, count } = besideSample();
  const step = (id, to, text, title) => h("button", { type: "button", id, title, ariaLabel: title, disabled: to === undefined, onclick: () => go({ sample: to }, true) }, text);
  return place < 0 ? "" : h("span", { className: "steps" }, step("sample-before", before, "‹", "Sample before (←)"),
    h("span", { className: "muted" }, ` ${place + 1} of ${count} `), step("sample-after", after, "›", "Next sample (→)"));
}

// The arrow keys, where they do nothing else: a slider, a text and a strip that scrolls have them for themselves.
function stepByKey(event) {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key) || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input:not([type=checkbox]), select, .strip")) return;
  const { before, after } = besideSample();
  const to = event.key === "ArrowLeft" ? before : after;
  event.preventDefault();
  if (to !== undefined) go({ sample: to }, true);
}

function newSample() {
  const dialog = h("dialog", { id: "sample", className: "detail", onkeydown: stepByKey, onclick: (event) => event.target === dialog && closeSample(),
    oncancel: (event) => { event.preventDefault(); closeSample(); },
    // A browser may close it without asking.
    onclose: () => dialog.isConnected && address.sample && closeSample() });
  dialog.setAttribute("aria-labelledby", "sample-title");
  document.body.append(dialog);
  return dialog;
}

function removeSample(dialog) {
  const { sample } = dialog.dataset;
  dialog.close();
  dialog.remove();
  // Where the gallery was drawn anew meanwhile, what opened the sample is another element now.
  if (document.activeElement === document.body) document.querySelector(`#view [data-key="${CSS.escape(`sample-${sample}`)}"]`)?.focus({ preventScroll: true });
}

async function sampleDetail(run, id) {
  const table = await tableOf(run);
  const place = (table.columns.sample_id || []).indexOf(id);
  if (place < 0) return h("p", { className: "empty" }, `There is no sample ${id} in ${table.evaluation === null ? "this run" : words(table.evaluation)}.`);
  const row = rowOf(table.columns, place);
  const isSame = row.label === row.predicted; // then both maps, and their scores, are the same
  const scores = h("dl", { className: "scores" }, Object.entries(row).filter(([name]) => name !== "sample_id" && !(isSame && name.startsWith("predicted_")))
    .flatMap(([name, value]) => [h("dt", { title: explanationOf(name) }, scoreTitle(name)), h("dd", {}, isNumber(value) ? number(value) : String(value ?? "–"))]));
  const known = (await askOnce(run, "cards", { evaluation: table.evaluation, id: [id] })).cards[id];
  const note = noteField(run, id, (await askOnce(run, "notes")).samples[id] ?? "");
  if (known === undefined) {
    return h("div", {}, note, h("p", { className: "empty" }, DATA === null ? "There is no map of it." : "The report does not hold its map: lrptrain dashboard shows all."), scores);
  }
  const histories = h("div", { className: "histories" });
  const large = h("div", { className: "large" }, sampleView(run, id, known, () => chosenMap(known.maps), ""));
  addHistories(histories, run, id, row, known).catch((error) => histories.append(problem(error)));
  return h("div", {}, noteList(table.notes) || "", note, lookControls("sample", Object.keys(known.maps)), h("div", { className: "beside" }, large, scores), histories);
}

async function addHistories(place, run, id, row, known) {
  await addHistory(place, run, id, known);
  for (const other of shownRuns().filter((name) => name !== run)) {
    const same = await sameSample(other, id, row, known);
    if (same !== null) await addHistory(place, other, id, same);
  }
}

// The sample of that id in another run, if it seems to be the same: of the same label and kind.
async function sameSample(run, id, row, known) {
  const { evaluation, columns } = await askOnce(run, "table", { evaluation: null });
  const place = (columns.sample_id || []).indexOf(id);
  if (place < 0 || columns.label?.[place] !== row?.label) return null;
  const other = (await askOnce(run, "cards", { evaluation, id: [id] })).cards[id];
  return other === undefined || (other.tokens === null) !== (known.tokens === null) ? null : other;
}

async function addHistory(place, run, id, known) {
  const { history, notes } = await askOnce(run, "history", { id });
  if (!history.length) return;
  const strip = h("div", { key: `strip-${run}`, className: known.tokens ? "strip text" : "strip", tabIndex: 0 },
    history.map((one) => sampleView(run, id, known, () => chosenMap(one.maps), `epoch ${one.epoch}`)));
  place.append(h("h3", {}, history.length > 1 ? `How its map changed: ${shortName(run)}` : `Its map: ${shortName(run)}`), noteList(notes) || "", strip);
}
