// A sample by itself, in a dialog.

// A sample by itself: large, with its scores, and how its maps changed in every run shown.
async function openSample(run, id, evaluation, row) {
  const dialog = h("dialog", { className: "detail", onclose: () => dialog.remove() });
  const large = h("div", { className: "large" });
  const scores = h("dl", { className: "scores" }, Object.entries(row || {}).filter(([name]) => name !== "sample_id")
    .flatMap(([name, value]) => [h("dt", {}, words(name)), h("dd", {}, isNumber(value) ? number(value) : String(value ?? "–"))]));
  const histories = h("div", { className: "histories" });
  const close = h("button", { type: "button", className: "close", title: "Close (Esc)", onclick: () => dialog.close() }, "×");
  const targets = h("div");
  dialog.append(close, h("h2", {}, `Sample ${id}`), targets, h("div", { className: "beside" }, large, scores), histories);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  const found = await ask("cards", { run, evaluation, id: [id] });
  const known = found.cards[id];
  if (known === undefined) {
    large.append(h("p", { className: "empty" }, DATA === null ? "there is no map" : "the report does not hold its map"));
    return;
  }
  targets.append(lookControls(Object.keys(known.maps), redrawAll));
  large.append(sampleView(run, id, known, () => chosenMap(known.maps), ""));
  await addHistory(histories, run, id, known);
  for (const other of shownRuns().filter((name) => name !== run)) {
    const same = await sameSample(other, id, row, known);
    if (same !== null) await addHistory(histories, other, id, same);
  }
}

// The sample of that id in another run, if it seems to be the same: of the same label and kind.
async function sameSample(run, id, row, known) {
  const { evaluation, columns } = await askOnce(run, "table", { evaluation: null });
  const place = (columns.sample_id || []).indexOf(id);
  if (place < 0 || columns.label?.[place] !== row?.label) return null;
  const other = (await ask("cards", { run, evaluation, id: [id] })).cards[id];
  return other === undefined || (other.tokens === null) !== (known.tokens === null) ? null : other;
}

async function addHistory(place, run, id, known) {
  const { history, notes } = await ask("history", { run, id });
  if (!history.length) return;
  const strip = h("div", { className: known.tokens ? "strip text" : "strip" },
    history.map((one) => sampleView(run, id, known, () => chosenMap(one.maps), `epoch ${one.epoch}`)));
  place.append(h("h3", {}, history.length > 1 ? `How its map changed: ${shortName(run)}` : `Its map: ${shortName(run)}`), noteList(notes) || "", strip);
}
