// One sample with its map, wherever it is shown.

const look = { target: "label", opacity: 0.75, mask: true, heat: true };
const TARGET_TEXTS = { label: "the label", predicted: "the prediction" };

// The map that was asked for. Not every sample has one of every class; of any other kind, its first stands in.
function chosenMap(maps) {
  return maps[look.target] || (look.target.startsWith("class ") ? null : Object.values(maps)[0]) || null;
}

// known: as the server's cards have it; target: gives the map to show. Returns an element with a `redraw` function.
function sampleView(run, id, known, target, caption) {
  const figure = h("figure", { className: known.tokens ? "sample text" : "sample" });
  const body = h("div", { className: "body" });
  figure.append(body, h("figcaption", {}, caption));
  if (known.tokens) {
    figure.redraw = () => {
      const map = target();
      const levels = map === null || !look.heat ? null : unpack(map);
      body.replaceChildren(highlighted(known, levels, look), unscoredNote(known, map), lacking(map));
    };
  } else {
    figure.redraw = () => drawImage(run, id, known, target(), body);
  }
  figure.redraw();
  return figure;
}

// Which share of the relevance the grey tokens hold, by which no word is scaled.
function unscoredNote({ tokens, scored }, map) {
  if (map === null || !look.heat || !(map.unscored > 0)) return "";
  const names = [...new Set(tokens.filter((token, i) => token !== null && !scored[i]).map(plainToken))];
  const listed = names.slice(0, 3).join(", ") + (names.length > 3 ? " ..." : "");
  return h("p", { className: "muted unscored" }, `Not scored (grey): ${listed}, with ${sharePercent(map.unscored)} of the relevance`);
}

function lacking(map) {
  return map === null && look.heat ? h("p", { className: "muted lacking" }, `no map of ${look.target}`) : "";
}

async function drawImage(run, id, known, map, body) {
  const picture = known.image ? await pixelsOf(imageUrl(run, id, "image")) : null;
  const mask = known.mask && look.mask ? await pixelsOf(imageUrl(run, id, "mask")) : null;
  if (picture === null && (map === null || known.grid === null)) {
    body.replaceChildren(h("p", { className: "empty" }, known.image ? "the image cannot be read" : "no image was kept"));
    return;
  }
  const [rows, columns] = known.grid || [1, 1];
  const scale = Math.max(1, Math.ceil(160 / Math.max(rows, columns)));
  const size = picture || { width: columns * scale, height: rows * scale, data: null };
  const canvas = h("canvas", { width: size.width, height: size.height });
  const heat = look.heat && map !== null && known.grid !== null ? upsampled(unpack(map), known.grid, size.width, size.height) : null;
  const fits = mask !== null && mask.width === size.width && mask.height === size.height;
  paint(canvas, size.data, fits ? mask.data : null, heat, look.opacity);
  canvas.title = picture === null ? "no image was kept: relevance alone" : "";
  body.replaceChildren(canvas, lacking(map));
}

function lookControls(targets, redraw) {
  const set = (name) => (value) => {
    look[name] = value;
    redraw();
  };
  const shown = targets.map((target) => [target, TARGET_TEXTS[target] || target]);
  if (!targets.includes(look.target) && targets.length) look.target = targets[0];
  return h("div", { className: "controls" },
    labelled("Relevance for", choice("target", shown, look.target, set("target"))),
    labelled("Opacity", h("input", { id: "opacity", type: "range", min: 0, max: 1, step: 0.05, value: look.opacity,
      oninput: (event) => set("opacity")(Number(event.target.value)) })),
    labelled("", h("input", { id: "heat", type: "checkbox", checked: look.heat, onchange: (event) => set("heat")(event.target.checked) })),
    h("label", { htmlFor: "heat", className: "after" }, "map"),
    labelled("", h("input", { id: "mask", type: "checkbox", checked: look.mask, onchange: (event) => set("mask")(event.target.checked) })),
    h("label", { htmlFor: "mask", className: "after" }, "annotation"),
    // Methods such as AttnLRP have both signs; shares and findings count what speaks for the class.
    h("span", { className: "muted" }, "red (in images to yellow) speaks for the class, blue against it"));
}

function redrawAll() {
  for (const figure of document.querySelectorAll("figure.sample")) figure.redraw();
}

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
