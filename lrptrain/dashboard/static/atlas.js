// The map of maps: a point for each sample, near those whose relevance lies alike; see lrptrain.dashboard.embedding.

const ATLAS = 400; // units of the picture's sides
const COLOURINGS = { cluster: "cluster", outcome: "right or wrong", class: "class", predicted: "read as" };
const MOST_CORNERS = 30; // of a lasso, in the address

// Whose maps are placed: single classes' maps are not there for all samples.
function placedTarget(table) {
  return table.targets.includes(address.target) && !address.target.startsWith("class ") ? address.target : table.targets[0];
}

function embeddingOf(run, table) {
  if (!table.targets.length) return Promise.resolve({ ids: [], empty: "No maps were recorded." });
  return askOnce(run, "embedding", { evaluation: table.evaluation, target: placedTarget(table) });
}

// What filters by place need: by id, where a sample lies and in which cluster. Null while nothing filters by place.
async function placesFor(run, table) {
  if (!address.area && !address.cluster) return null;
  const { ids, x, y, cluster } = await embeddingOf(run, table);
  return new Map(ids.map((id, i) => [id, { x: x[i], y: y[i], cluster: cluster[i] }]));
}

// The corners of a lasso as the address has them: "120,300 400,310 250,600" are thousandths of the sides.
function cornersOf(area) {
  const corners = area.split(" ").map((pair) => pair.split(",").map((part) => Number(part) / 1000));
  return corners.length > 2 && corners.every((corner) => corner.length === 2 && corner.every(isNumber)) ? corners : null;
}

// Whether a ray to the right crosses the border an odd number of times.
function isInside([x, y], corners) {
  let inside = false;
  corners.forEach(([ax, ay], i) => {
    const [bx, by] = corners[(i + corners.length - 1) % corners.length];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  });
  return inside;
}

// Whether a sample lies where the address says; of samples that were not placed, none does.
function isPlaced(id, places) {
  if (places === null) return true;
  const place = places.get(id);
  const corners = cornersOf(address.area);
  return place !== undefined && (!address.cluster || String(place.cluster + 1) === address.cluster) &&
    (corners === null || isInside([place.x, place.y], corners));
}

function atlasPlot(run, table) {
  const place = h("div", {}, h("p", { className: "empty" }, "Placing the maps ..."));
  embeddingOf(run, table).then((found) => place.replaceChildren(...(found.ids.length ? atlas(run, table, found) : [h("p", { className: "empty" }, found.empty)])))
    .catch((error) => place.replaceChildren(problem(error)));
  return [place];
}

function atlas(run, table, found) {
  const rows = new Map(table.columns.sample_id.map((id, i) => [id, i]));
  const kept = new Set(keptRows(table, ["area", "cluster"]).map((i) => table.columns.sample_id[i]));
  const { colour, names } = colouring(run, table, found, rows);
  const select = choice("atlas-colour", Object.entries(COLOURINGS), address.colour, (value) => go({ colour: value }, true));
  const filtered = address.area !== "" || address.cluster !== "";
  const drawn = found.maps > found.ids.length ? ` ${found.ids.length} of ${found.maps} maps are placed.` : "";
  const said = `Near each other: ${found.clusters[0].words ? "texts read by the same words" : "maps that lie alike"}. Drag around points to choose them.${drawn}`;
  return [h("div", { className: "controls" }, labelled("Colour", select),
    filtered ? h("button", { type: "button", id: "atlas-clear", onclick: () => go({ area: "", cluster: "" }) }, "Clear") : null,
    h("span", { className: "muted" }, said)),
  h("div", { className: "atlas" }, atlasPicture(run, table, found, rows, kept, colour),
    h("div", { className: "atlas-key" }, address.colour === "cluster" ? clusterList(table, found, rows) : names.map(([name, own]) => h("span", { className: "named" }, swatchOf(own), name))))];
}

function colouring(run, table, found, rows) {
  const { columns } = table;
  if (address.colour === "outcome") {
    const colours = { right: css("--accent"), wrong: css("--bad"), "without a label": css("--muted") };
    const outcome = (i) => (isWrong(columns, i) ? "wrong" : isLabelled(columns, i) ? "right" : "without a label");
    const there = new Set(found.ids.map((id) => outcome(rows.get(id))));
    return { colour: (id) => colours[outcome(rows.get(id))], names: Object.entries(colours).filter(([name]) => there.has(name)) };
  }
  if (address.colour === "class" || address.colour === "predicted") {
    const column = columns[address.colour === "class" ? "label" : "predicted"] || [];
    const names = [...new Set(found.ids.map((id) => String(column[rows.get(id)])))].sort(COLLATOR.compare);
    const rank = new Map(names.map((name, i) => [name, i]));
    return { colour: (id) => paletteColor(rank.get(String(column[rows.get(id)]))), names: names.slice(0, 40).map((name, i) => [name, paletteColor(i)]) };
  }
  const cluster = new Map(found.ids.map((id, i) => [id, found.cluster[i]]));
  return { colour: (id) => paletteColor(cluster.get(id)), names: [] };
}

function clusterList(table, found, rows) {
  const { columns } = table;
  return found.clusters.map((own, number) => {
    const members = found.ids.filter((_, i) => found.cluster[i] === number).map((id) => rows.get(id)).filter((i) => i !== undefined);
    const labelled = members.filter((i) => isLabelled(columns, i));
    const wrong = labelled.filter((i) => isWrong(columns, i)).length;
    const name = String(number + 1);
    const pressed = address.cluster === name;
    return h("button", { type: "button", id: `cluster-${name}`, className: "cluster", ariaPressed: String(pressed), onclick: () => go({ cluster: pressed ? "" : name, area: "" }) },
      own.map ? meanMap(own) : "", h("span", {}, h("b", {}, swatchOf(paletteColor(number)), `Cluster ${name}`), h("br"), `${plural(own.size, "sample")}${labelled.length ? `, ${percent(wrong / labelled.length)} wrong` : ""}`,
        own.words ? [h("br"), own.words.join(", ")] : null));
  });
}

function meanMap({ map, grid }) {
  const canvas = h("canvas", { width: 56, height: 56, title: "the mean of its maps" });
  const size = { width: 56, height: 56, data: null };
  paint(canvas, 0, size, null, heatOf(map, grid, size, map.peak), { opacity: 1, threshold: 0 });
  return canvas;
}

function atlasPicture(run, table, found, rows, kept, colour) {
  const at = (value) => 8 + value * (ATLAS - 16);
  const inside = new Map(found.ids.map((id, i) => [id, { x: found.x[i], y: found.y[i], cluster: found.cluster[i] }]));
  const chosen = (id) => kept.has(id) && (!(address.area || address.cluster) || isPlaced(id, inside));
  // Chosen points last: what is chosen lies above the rest.
  const order = found.ids.map((id, i) => [id, i]).sort(([one], [other]) => chosen(one) - chosen(other));
  const points = order.map(([id, i]) => {
    const point = drawn("circle", { cx: at(found.x[i]), cy: at(found.y[i]), r: found.ids.length > 400 ? 3 : 4, class: chosen(id) ? "point" : "point outside", "data-id": id });
    point.style.fill = colour(id);
    return point;
  });
  const lasso = drawn("polygon", { class: "lasso", points: "" });
  const corners = cornersOf(address.area);
  if (corners !== null) lasso.setAttribute("points", corners.map((corner) => corner.map(at).join(",")).join(" "));
  const svg = drawn("svg", { viewBox: `0 0 ${ATLAS} ${ATLAS}`, class: "atlas-picture", role: "img",
    "aria-label": `${found.ids.length} maps in ${plural(found.clusters.length, "cluster")}; the buttons of the clusters choose their samples by keyboard` }, ...points, lasso);
  const preview = h("div", { className: "preview", hidden: true });
  lassoing(svg, lasso, (area) => go({ area, cluster: "" }), (id) => id !== undefined && go({ sample: id }));
  hovering(svg, preview, run, table, rows);
  return h("div", { className: "atlas-place" }, svg, preview);
}

// Lets points be circled; a press that does not move is one of the point.
function lassoing(svg, lasso, chosen, pressedPoint) {
  let path = null;
  const place = (event) => {
    const { left, top, width, height } = svg.getBoundingClientRect();
    return [((event.clientX - left) / width) * ATLAS, ((event.clientY - top) / height) * ATLAS];
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    path = { corners: [place(event)], id: event.target.dataset.id };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (path === null) return;
    path.corners.push(place(event));
    lasso.setAttribute("points", path.corners.map((corner) => corner.join(",")).join(" "));
  });
  svg.addEventListener("pointerup", () => {
    if (path === null) return;
    const { corners, id } = path;
    path = null;
    const size = (axis) => Math.max(...corners.map((corner) => corner[axis])) - Math.min(...corners.map((corner) => corner[axis]));
    if (Math.max(size(0), size(1)) < 6) return pressedPoint(id);
    return chosen(areaOf(corners));
  });
  svg.addEventListener("pointercancel", () => { path = null; });
}

// A lasso in thousandths of the plane's sides, with few corners.
function areaOf(corners) {
  const every = Math.max(1, corners.length / MOST_CORNERS);
  const few = Array.from({ length: Math.ceil(corners.length / every) }, (_, i) => corners[Math.floor(i * every)]);
  return few.map((corner) => corner.map((value) => Math.round((1000 * (value - 8)) / (ATLAS - 16))).join(",")).join(" ");
}

// Shows the sample of the point under the pointer.
function hovering(svg, preview, run, table, rows) {
  let shown;
  svg.addEventListener("pointerover", async (event) => {
    const { id } = event.target.dataset;
    shown = id;
    if (id === undefined || event.buttons) {
      preview.hidden = true;
      return;
    }
    await new Promise((resolve) => { setTimeout(resolve, 40); }); // whoever passes over many points asks for none
    if (shown !== id) return;
    const known = await askOnce(run, "cards", { evaluation: table.evaluation, id: [id] }).then(({ cards }) => cards[id], () => undefined);
    if (shown !== id) return;
    const row = rowOf(table.columns, rows.get(id));
    const read = row.label === row.predicted ? "" : ` read as ${row.predicted}`;
    preview.replaceChildren(known === undefined ? `#${id} ${row.label ?? ""}${read}` : sampleView(run, id, known, () => chosenMap(known.maps), `#${id} ${row.label ?? ""}${read}`));
    const place = svg.parentElement.getBoundingClientRect();
    const point = event.target.getBoundingClientRect();
    preview.style.left = `${Math.min(point.right - place.left + 8, Math.max(0, place.width - 150))}px`;
    preview.style.top = `${Math.max(0, point.top - place.top - 60)}px`;
    preview.hidden = false;
  });
  svg.addEventListener("pointerleave", () => {
    shown = undefined;
    preview.hidden = true;
  });
}
