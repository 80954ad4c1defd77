// One sample with its map, wherever it is shown, and what a viewer may choose of how.

// scale: "own", each map by its largest relevance, or "common", all that are shown by the largest of them all;
// threshold: the share of the scale below which no relevance is shown.
const look = { opacity: COLORS.opacity, mask: true, heat: true, scale: "common", threshold: 0 };
const TARGET_TEXTS = { label: "the label", predicted: "the prediction" };

// The map that was asked for. Not every sample has one of every class; of any other kind, its first stands in.
function chosenMap(maps) {
  const own = Object.hasOwn(maps, address.target) ? maps[address.target] : null;
  return own || (address.target.startsWith("class ") ? null : Object.values(maps)[0]) || null;
}

// known: as the server's cards have it; target: gives the map to show. Returns an element with a `redraw` function.
function sampleView(run, id, known, target, caption) {
  const figure = h("figure", { className: known.tokens ? "sample text" : "sample" });
  const body = h("div", { className: "body" });
  figure.append(body, h("figcaption", {}, caption));
  figure.peak = () => peakOf(known, target());
  figure.redraw = known.tokens ? () => drawText(known, target(), body, fullColour(figure))
    : () => drawImage(run, id, known, target(), body, fullColour(figure));
  figure.redraw();
  // The others that share its scale may be added after it.
  if (look.scale === "common") redrawSoon();
  return figure;
}

// The relevance that has the full colour: the sample's own largest, or the largest of all that are shown beside it.
function fullColour(figure) {
  if (look.scale === "own") return figure.peak();
  const place = figure.closest("dialog") || document.getElementById("view");
  const shown = [...place.querySelectorAll("figure.sample")].filter((other) => other.peak && (place.matches("dialog") || !other.closest("dialog")));
  return Math.max(figure.peak(), ...shown.map((other) => other.peak()));
}

function redrawSoon() {
  clearTimeout(redrawSoon.timer);
  redrawSoon.timer = setTimeout(redrawAll);
}

function drawText(known, map, body, peak) {
  const sums = map === null || !look.heat ? null : wordSums(known.words, map);
  body.replaceChildren(highlighted(known.words, sums, peak, look), unscoredNote(known, map), piecesNote(known), peakNote(map, peak), lacking(map));
}

// Which share of the relevance the grey words hold, by which no word is scaled.
function unscoredNote({ words: all }, map) {
  if (map === null || !look.heat || !(map.unscored > 0)) return "";
  const names = [...new Set(all.filter((word) => !word.scored).map((word) => word.text))];
  const listed = names.slice(0, 3).join(", ") + (names.length > 3 ? " ..." : "");
  return h("p", { className: "muted unscored" }, `Not scored (grey): ${listed}, with ${sharePercent(map.unscored)} of the relevance`);
}

function piecesNote({ words: all }) {
  const joined = all.some((word) => word.scored && word.places.length > 1);
  return joined ? h("p", { className: "muted pieces" }, "The colour of a word is the sum over its pieces.") : "";
}

// A map of 1e-9 has the colours of one of 1: the scale is said where there is room for it.
function peakNote(map, peak) {
  if (map === null || !look.heat) return "";
  return h("p", { className: "muted peak" }, map.peak > 0 ? `full colour: ${number(peak)}` : "no relevance: 0 everywhere");
}

function lacking(map) {
  return map === null && look.heat ? h("p", { className: "muted lacking" }, `no map of ${address.target}`) : "";
}

// The image as it is and, to its right, its map: under the colours of a map a red, a green and a blue tag look alike.
async function drawImage(run, id, known, map, body, peak) {
  const picture = known.image ? await pixelsOf(imageUrl(run, id, "image")) : null;
  const mask = known.mask && look.mask ? await pixelsOf(imageUrl(run, id, "mask")) : null;
  if (picture === null && (map === null || known.grid === null)) {
    body.replaceChildren(h("p", { className: "empty" }, known.image ? "the image cannot be read" : "no image was kept"));
    return;
  }
  const [rows, columns] = known.grid || [1, 1];
  const scale = Math.max(1, Math.ceil(160 / Math.max(rows, columns)));
  const size = picture || { width: columns * scale, height: rows * scale, data: null };
  const heat = look.heat && map !== null && known.grid !== null ? heatOf(map, known.grid, size, peak) : null;
  const isPair = picture !== null && heat !== null;
  const canvas = h("canvas", { width: isPair ? 2 * size.width + GAP : size.width, height: size.height });
  const fits = mask !== null && mask.width === size.width && mask.height === size.height ? mask.data : null;
  if (picture !== null) paint(canvas, 0, size, isPair ? null : fits, null, look);
  if (heat !== null) paint(canvas, isPair ? size.width + GAP : 0, size, fits, heat, look);
  canvas.title = [picture === null ? "no image was kept: relevance alone" : "", heat === null ? "" : `full colour: ${number(peak)}`].filter(Boolean).join("; ");
  body.classList.toggle("pair", isPair);
  body.replaceChildren(canvas, peakNote(map, peak), lacking(map));
}

// The gallery and an opened sample have these each: `prefix` keeps their names apart.
function lookControls(prefix, targets) {
  const shown = targets.map((target) => [target, TARGET_TEXTS[target] || target]);
  // Where there are no maps of the label, the first ones stand in for them; see `chosenMap`.
  if (!targets.includes("label")) shown.splice(0, 1, ["label", shown[0]?.[1] ?? TARGET_TEXTS.label]);
  const changed = (name, value) => {
    look[name] = value;
    for (const same of document.querySelectorAll(`[data-look="${name}"]`)) Object.assign(same, same.type === "checkbox" ? { checked: value } : { value });
    redrawAll();
  };
  const lookInput = (name, attributes, read) => {
    const control = h("input", { id: `${prefix}-${name}`, "data-look": name, ...attributes, oninput: () => changed(name, read(control)) });
    return control;
  };
  const slider = (name, max) => lookInput(name, { type: "range", min: 0, max, step: 0.05, value: look[name] }, (own) => Number(own.value));
  const tick = (name, text) => h("label", { className: "control" }, lookInput(name, { type: "checkbox", checked: look[name] }, (own) => own.checked), " ", h("span", {}, text));
  const scale = choice(`${prefix}-scale`, [["common", "the same for all shown"], ["own", "each map its own"]], look.scale, (value) => changed("scale", value), { "data-look": "scale" });
  return h("div", { className: "controls" },
    labelled("Relevance for", fieldChoice("target", `${prefix}-target`, shown)),
    labelled("Scale", scale), labelled("Hide below", slider("threshold", 0.95)), labelled("Opacity", slider("opacity", 1)),
    tick("heat", "map"), tick("mask", "annotation"), prefix === "sample" ? colourBar() : "");
}

// Methods such as AttnLRP have both signs; shares and findings count what speaks for the class.
function colourBar() {
  const color = (rgb) => `rgba(${rgb.join()},${COLORS.opacity})`;
  const bar = h("span", { className: "scale-bar" });
  bar.style.background = `linear-gradient(to right, ${color(COLORS.negative)}, transparent, ${color(COLORS.positive)}), rgb(${COLORS.greys[1]} ${COLORS.greys[1]} ${COLORS.greys[1]})`; // maps are light in dark mode, too
  return h("span", { className: "muted colour-bar", title: "Full colour: the largest relevance of the scale" }, "against the class", bar, "for it");
}

function redrawAll() {
  for (const figure of document.querySelectorAll("figure.sample")) figure.redraw();
}

watch(["target"], redrawAll);
