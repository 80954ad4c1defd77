// Lines over epochs with their intervals, by Vega-Lite; small curves and bars by hand.

const PALETTE = ["#3b6fb6", "#d1762b", "#3a8f5c", "#b5493f", "#7d5ba6", "#8a6a4f", "#c2619b", "#6f7378"];

// Beyond the palette, hues that are as far from each other as any: turned by the golden angle, light and dark in turn.
function paletteColor(i) {
  return PALETTE[i] ?? `oklch(${i % 2 ? 0.66 : 0.5} 0.15 ${Math.round(i * 137.508) % 360})`;
}

function colorOf(run) {
  return paletteColor([...runs.keys()].indexOf(run));
}

const MOST_BANDS = 4; // runs; of more, only the emphasised one has its interval
const drawnCharts = new Map(); // Vega's view of each chart by its place

// Lets a run stand out in all charts, the legend and the table; null for none.
function emphasise(run) {
  for (const view of drawnCharts.values()) view.signal("emphasised", run).runAsync();
  for (const element of document.querySelectorAll("[data-run]")) {
    element.classList.toggle("emphasised", element.dataset.run === run);
    element.classList.toggle("behind", run !== null && element.dataset.run !== run);
  }
}

// What stands for a run lets it stand out while it is pointed at or has the focus.
function emphasising(element, run) {
  element.dataset.run = run;
  for (const event of ["pointerenter", "focusin"]) element.addEventListener(event, () => emphasise(run));
  for (const event of ["pointerleave", "focusout"]) element.addEventListener(event, () => emphasise(null));
  return element;
}

// Vega-Lite is a megabyte that the server makes at its start: charts wait for it, the rest of the page does not.
const chartsReady = new Promise((resolve) => {
  const look = () => (window.vegaEmbed ? resolve(true) : setTimeout(look, 25));
  look();
});

// Resolves when what is on the page was painted. A hidden page is not painted: then after a moment.
function painted() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, 300);
  });
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// rows: [{run, x, mean, low, high, reference}]; domain: [low, high] or null
async function lineChart(place, rows, { x, domain, share }) {
  if (!rows.some((row) => isNumber(row.mean))) {
    place.replaceChildren(h("p", { className: "empty" }, "not measured"));
    return;
  }
  await chartsReady;
  await painted(); // the table of the runs, and the charts before this one: no reader waits for all of them
  if (!place.isConnected) return; // another view was opened meanwhile
  const above = { condition: { test: "emphasised === null || datum.run === emphasised", value: 1 }, value: 0.12 };
  const many = new Set(rows.map((row) => row.run)).size > MOST_BANDS;
  const band = { condition: { test: `datum.run === emphasised${many ? "" : " || emphasised === null"}`, value: 0.16 }, value: 0 };
  const has = (field) => rows.some((row) => isNumber(row[field]));
  const names = [...new Set(rows.map((row) => row.run))];
  const color = { field: "run", type: "nominal", legend: null, scale: { domain: names, range: names.map(colorOf) } };
  // "~g" would write 10 as 1e+1 where the ticks are that far apart.
  const format = share ? ".0%" : ",~r";
  const y = { type: "quantitative", axis: { format, title: null, tickCount: 4 }, scale: domain ? { domain } : { zero: false } };
  const places = [...new Set(rows.map((row) => row.x))];
  const across = { field: "x", type: "quantitative", title: x, scale: { zero: false, nice: false, padding: 8 }, axis: { ...(places.length <= 8 ? { values: places } : { tickMinStep: 1, tickCount: 7 }), format: "d" } };
  const shown = share ? ".1%" : ",.4~r";
  const tooltip = [{ field: "run" }, { field: "x", title: x }, { field: "mean", format: shown },
    ...(has("low") ? ["low", "high"].map((field) => ({ field, format: shown })) : [])];
  const spec = {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    data: { values: rows },
    params: [{ name: "emphasised", value: null }],
    width: "container", height: 130, background: null, autosize: { type: "fit", contains: "padding" },
    encoding: { x: across, color },
    layer: [
      has("low") && { mark: { type: "area", clip: true }, encoding: { y: { ...y, field: "low" }, y2: { field: "high" }, opacity: band } },
      has("reference") && { mark: { type: "line", strokeDash: [3, 3], clip: true }, encoding: { y: { ...y, field: "reference" }, opacity: { ...above, condition: { ...above.condition, value: 0.7 } } } },
      { mark: { type: "line", strokeWidth: 1.8, clip: true }, encoding: { y: { ...y, field: "mean" }, opacity: above } },
      { mark: { type: "point", filled: true, size: rows.length > 60 ? 12 : 28, clip: true },
        encoding: { y: { ...y, field: "mean" }, opacity: above, tooltip } },
    ].filter(Boolean),
    config: {
      font: css("--font"), view: { stroke: null },
      axis: { labelColor: css("--muted"), titleColor: css("--muted"), gridColor: css("--line"), domain: false, ticks: false,
        titleFontWeight: "normal", labelFontSize: 11, titleFontSize: 11 },
    },
  };
  // ast: expressions are interpreted, since the page's security policy forbids eval.
  const options = { actions: false, ast: true, renderer: "svg", defaultStyle: false,
    tooltip: { theme: "custom", disableDefaultStyle: true } };
  const { view } = await window.vegaEmbed(place, spec, options);
  view.addEventListener("pointerover", (_, item) => item?.datum?.run !== undefined && emphasise(item.datum.run));
  view.addEventListener("pointerout", () => emphasise(null));
  for (const [gone, own] of drawnCharts) {
    if (gone.isConnected) continue;
    own.finalize();
    drawnCharts.delete(gone);
  }
  drawnCharts.set(place, view);
}

// One effect per evaluation, as a small curve from 0, or what lies below, to 1.
function curve(values, width = 120, height = 26) {
  const known = values.filter(isNumber);
  if (known.length < 2) return null;
  const [low, high] = [Math.min(0, ...known), 1];
  const at = (value, i) => [2 + (i * (width - 4)) / (values.length - 1), height - 3 - ((value - low) / (high - low)) * (height - 6)];
  const points = values.map((value, i) => (isNumber(value) ? at(value, i) : null)).filter(Boolean);
  const title = drawn("title", {}, `from ${number(values[0])} to ${number(values.at(-1))} in ${values.length} evaluations`);
  return drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img" }, title,
    drawn("polyline", { points: points.map((point) => point.join(",")).join(" ") }),
    drawn("circle", { cx: points.at(-1)[0], cy: points.at(-1)[1], r: 2 }));
}

// A value with its interval on a scale, and what it is compared with.
function bar(value, low, high, reference, from = 0, to = 1) {
  const width = 220, height = 18, middle = height / 2;
  const at = (number) => 4 + ((Math.min(Math.max(number, from), to) - from) / (to - from)) * (width - 8);
  const title = drawn("title", {}, `${number(value)}${isNumber(low) && isNumber(high) ? `, from ${number(low)} to ${number(high)}` : ""}, on a scale from ${number(from)} to ${number(to)}`);
  const parts = [title, drawn("line", { x1: at(from), x2: at(to), y1: middle, y2: middle, class: "scale" })];
  if (isNumber(low) && isNumber(high)) {
    parts.push(drawn("line", { x1: at(low), x2: at(high), y1: middle, y2: middle, class: "interval" }));
  }
  if (isNumber(reference)) parts.push(drawn("line", { x1: at(reference), x2: at(reference), y1: 2, y2: height - 2, class: "reference" }));
  parts.push(drawn("circle", { cx: at(value), cy: middle, r: 4, class: "value" }));
  return drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "bar", role: "img" }, ...parts);
}
