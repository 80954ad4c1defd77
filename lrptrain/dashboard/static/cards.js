// One sample with its map, wherever it is shown.

const look = { opacity: 0.75, mask: true, heat: true };
const TARGET_TEXTS = { label: "the label", predicted: "the prediction" };

// The map that was asked for. Not every sample has one of every class; of any other kind, its first stands in.
function chosenMap(maps) {
  return maps[address.target] || (address.target.startsWith("class ") ? null : Object.values(maps)[0]) || null;
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
  return map === null && look.heat ? h("p", { className: "muted lacking" }, `no map of ${address.target}`) : "";
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

// The gallery and an opened sample have these each: `prefix` keeps their names apart.
function lookControls(prefix, targets) {
  const shown = targets.map((target) => [target, TARGET_TEXTS[target] || target]);
  // Where there are no maps of the label, the first ones stand in for them; see `chosenMap`.
  if (!targets.includes("label")) shown.splice(0, 1, ["label", shown[0]?.[1] ?? TARGET_TEXTS.label]);
  const lookInput = (name, attributes, read) => {
    const control = h("input", { id: `${prefix}-${name}`, ...attributes, oninput: () => {
      look[name] = read(control);
      for (const same of document.querySelectorAll(`[data-look="${name}"]`)) Object.assign(same, same.type === "checkbox" ? { checked: look[name] } : { value: look[name] });
      redrawAll();
    } });
    control.dataset.look = name;
    return control;
  };
  const tick = (name, text) => h("label", { className: "control" }, lookInput(name, { type: "checkbox", checked: look[name] }, (own) => own.checked), " ", h("span", {}, text));
  return h("div", { className: "controls" },
    labelled("Relevance for", fieldChoice("target", `${prefix}-target`, shown)),
    labelled("Opacity", lookInput("opacity", { type: "range", min: 0, max: 1, step: 0.05, value: look.opacity }, (own) => Number(own.value))),
    tick("heat", "map"), tick("mask", "annotation"),
    // Methods such as AttnLRP have both signs; shares and findings count what speaks for the class.
    h("span", { className: "muted" }, "red (in images to yellow) speaks for the class, blue against it"));
}

function redrawAll() {
  for (const figure of document.querySelectorAll("figure.sample")) figure.redraw();
}

watch(["target"], redrawAll);
