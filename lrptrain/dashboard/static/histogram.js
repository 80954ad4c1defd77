// How a score is distributed over the samples, and a brush over it that is a filter.

const HISTOGRAM = { width: 440, height: 132, left: 34, right: 8, top: 8, bottom: 20 };
const MOST_BINS = 32;

// Round edges around all values, at most `most` bins: values from 0.03 to 0.97 have the edges 0, 0.05 ... 1.
function binEdges(values, most = MOST_BINS) {
  const known = values.filter(isNumber);
  if (!known.length) return [];
  // Not Math.min(...values): a hundred thousand arguments are too many.
  const low = known.reduce((one, other) => Math.min(one, other));
  const high = known.reduce((one, other) => Math.max(one, other));
  if (low === high) return [low, low + (Math.abs(low) || 1) * 1e-6].map((edge) => Number(edge.toPrecision(12)));
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const counted = (step) => Math.ceil(high / step - 1e-9) - Math.floor(low / step + 1e-9);
  const step = [1, 2, 5, 10, 20].map((factor) => factor * power).find((own) => counted(own) <= most) ?? 50 * power;
  const first = Math.floor(low / step + 1e-9);
  // 0.1 + 0.2 is 0.30000000000000004: edges are what stands in the address.
  return Array.from({ length: Math.max(1, counted(step)) + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

// The number of values in each bin, an edge counting to the bin above it, the last one to the one below: as numpy's.
function histogramOf(values, edges) {
  const counts = new Array(Math.max(0, edges.length - 1)).fill(0);
  const last = counts.length - 1;
  const [low, high] = [edges[0], edges.at(-1)];
  for (const value of values) {
    if (!isNumber(value) || value < low || value > high) continue;
    let bin = Math.min(Math.max(Math.floor(((value - low) / (high - low)) * counts.length), 0), last);
    // The division rounds: the edges decide.
    while (bin < last && value >= edges[bin + 1]) bin++;
    while (bin > 0 && value < edges[bin]) bin--;
    counts[bin]++;
  }
  return counts;
}

// The score that is asked for, or the one that says most of those there are.
function plottedScore(table) {
  const scores = scoreColumns(table);
  const usual = ["label_energy_pointing_game", "predicted_energy_pointing_game", "probability"];
  return scores.includes(address.score) ? address.score : usual.find((name) => scores.includes(name)) ?? scores[0];
}

function histogramPlot(run, table) {
  const name = plottedScore(table);
  if (name === undefined) return [h("p", { className: "empty" }, "This evaluation has no score of single samples.")];
  const { columns } = table;
  const options = scoreColumns(table).map((own) => [own, scoreTitle(own)]);
  const select = choice("histogram-score", options, name, (value) => go({ score: value, from: "", to: "" }));
  // Its own bounds are left aside: the bars outside of them stay to be seen.
  const rows = keptRows(table, ["from", "to"]);
  const edges = binEdges(columns[name]);
  const all = histogramOf(rows.map((i) => columns[name][i]), edges);
  const wrong = histogramOf(rows.filter((i) => isWrong(columns, i)).map((i) => columns[name][i]), edges);
  const without = rows.filter((i) => !isNumber(columns[name][i])).length;
  const bounded = address.score === name && (address.from !== "" || address.to !== "");
  const said = bounded ? `${address.from || "lowest"} to ${address.to || "highest"}` : "drag over the bars to choose samples";
  return [h("div", { className: "controls" }, labelled("Score", select), h("span", { className: "muted", id: "brushed" }, said),
    bounded ? h("button", { type: "button", id: "histogram-clear", onclick: () => go({ from: "", to: "" }) }, "Clear") : null),
  meaningOf(name), histogramPicture(name, edges, all, wrong, bounded),
  h("p", { className: "muted key" }, swatchOf("var(--accent)"), `${rightText(columns, rows)} `, swatchOf("var(--bad)"), "wrong",
    without ? `; ${plural(without, "sample")} without this score` : "")];
}

// What the bars are of that are not wrong.
function rightText(columns, rows) {
  const labelled = rows.filter((i) => isLabelled(columns, i)).length;
  if (labelled === rows.length) return "right";
  return labelled ? "right, or without a label" : "without a label";
}

function histogramPicture(name, edges, all, wrong, bounded) {
  const { width, height, left, right, top, bottom } = HISTOGRAM;
  const most = Math.max(1, ...all);
  const low = edges[0];
  const high = edges.at(-1);
  const x = (value) => left + ((value - low) / (high - low)) * (width - left - right);
  const y = (count) => height - bottom - (count / most) * (height - top - bottom);
  const from = bounded && address.from !== "" ? Number(address.from) : -Infinity;
  const to = bounded && address.to !== "" ? Number(address.to) : Infinity;
  const rect = (i, base, count, className) => drawn("rect", { x: x(edges[i]) + 0.5, width: Math.max(0.5, x(edges[i + 1]) - x(edges[i]) - 1),
    y: y(base + count), height: y(base) - y(base + count), class: `${className}${edges[i + 1] <= from || edges[i] >= to ? " outside" : ""}` });
  const bars = all.flatMap((count, i) => {
    if (!count) return [];
    const title = drawn("title", {}, `${edges[i]} to ${edges[i + 1]}: ${plural(count, "sample")}, ${wrong[i]} wrong`);
    return [drawn("g", {}, title, rect(i, 0, wrong[i], "wrong-bar"), rect(i, wrong[i], count - wrong[i], "right"))];
  });
  const tick = (value, anchor) => text(x(value), height - 5, String(value), anchor);
  const text = (across, down, said, anchor) => drawn("text", { x: across, y: down, "text-anchor": anchor }, said);
  // Of values that are all the same there is one bar, whose ends would read alike.
  const ticks = all.length === 1 ? [text((left + width - right) / 2, height - 5, String(low), "middle")]
    : [tick(low, "start"), ...(all.length > 2 ? [tick(edges[edges.length >> 1], "middle")] : []), tick(high, "end")];
  const brush = drawn("rect", { class: "brush", y: top, height: height - top - bottom, x: 0, width: 0 });
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "histogram", role: "img",
    "aria-label": `${words(name)}: ${all.reduce((sum, count) => sum + count, 0)} samples from ${low} to ${high}. The fields "score from" and "score to" choose a range by keyboard.` },
  drawn("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "scale" }),
  text(left - 4, top + 8, String(most), "end"), text(left - 4, height - bottom, "0", "end"), ...bars,
  ...ticks, brush);
  if (bounded) drawBrush(brush, x(Math.max(from, low)), x(Math.min(to, high)));
  brushing(svg, brush, edges, x, (first, last) => go({ score: name, from: String(first), to: String(last) }));
  return svg;
}

function drawBrush(brush, from, to) {
  brush.setAttribute("x", from);
  brush.setAttribute("width", Math.max(0, to - from));
}

// Lets a range of bins be dragged; `chosen` gets its edges.
function brushing(svg, brush, edges, x, chosen) {
  let start = null;
  const binAt = (event) => {
    const { left, width } = svg.getBoundingClientRect();
    const place = ((event.clientX - left) / width) * HISTOGRAM.width;
    const bin = edges.findLastIndex((edge) => x(edge) <= place);
    return Math.min(Math.max(bin, 0), edges.length - 2);
  };
  const range = (event) => {
    const bin = binAt(event);
    return [edges[Math.min(start, bin)], edges[Math.max(start, bin) + 1]];
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = binAt(event);
    svg.setPointerCapture(event.pointerId);
    drawBrush(brush, ...range(event).map(x));
  });
  svg.addEventListener("pointermove", (event) => start !== null && drawBrush(brush, ...range(event).map(x)));
  svg.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const ends = range(event);
    start = null;
    chosen(...ends);
  });
  svg.addEventListener("pointercancel", () => { start = null; });
}
