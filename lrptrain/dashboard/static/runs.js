// The runs side by side: where they stand, and their scores over epochs.

const score = { name: "label_energy_pointing_game", label: "" };
// metric: whose explanation stands below the title, where the column has none of its own.
const PANELS = [
  { title: "Accuracy on the sample", column: "correct", metric: "accuracy", share: true, domain: [0, 1] },
  { title: "Relevance on the annotation (dashed: its area)", column: "label_energy_pointing_game", reference: "chance", share: true, domain: [0, 1] },
  { title: "Reliance on shortcuts (dashed: on any cue)", scalar: "reliance", referenceScalar: "any_reliance", share: true, domain: [0, 1] },
];

function shownRuns() {
  return [...runs.keys()].filter((name) => !address.without.includes(name));
}

const MOST_DRAWN = 20; // the lines of more runs cannot be told apart

// The runs whose curves are drawn: the first of those that are chosen.
function drawnRuns() {
  return shownRuns().slice(0, MOST_DRAWN);
}

function runsView() {
  const table = h("div", { className: "scroll runs-table" });
  const legend = h("div");
  const panels = h("div", { className: "panels" });
  const chosen = h("div");
  const notes = noteList([...runs.values()].flatMap((run) => notesOf(run))) || "";
  const drawTable = () => redraw(table, runTable());
  const drawCharts = () => {
    const more = shownRuns().length - MOST_DRAWN;
    redraw(legend, runLegend(), more > 0 ? h("p", { className: "muted" }, `The first ${MOST_DRAWN} of ${MOST_DRAWN + more} chosen runs are drawn. Choose others in the table.`) : "");
    panels.replaceChildren(...(shownRuns().length ? PANELS.map((panel) => panelOf(panel.title, panel)) : [h("p", { className: "empty" }, "No run is drawn: choose some in the table, or all of them.")]));
    chosen.replaceChildren(chosenPanel());
  };
  runsView.drawTable = () => table.isConnected && drawTable();
  runsView.drawCharts = () => table.isConnected && drawCharts();
  drawTable();
  drawCharts();
  return h("div", {}, runs.size > 1 ? runControls() : "", table, notes, legend, panels, chosen, hyperparameterDetails());
}
runsView.drawTable = () => {};
runsView.drawCharts = () => {};

watch(["order", "find", "without"], (changed) => {
  runsView.drawTable();
  if (changed.includes("without")) runsView.drawCharts();
});

function notesOf(run) {
  return [...run.about.notes, ...run.notes].map((note) => (runs.size > 1 ? `${run.name}: ${note}` : note));
}

// The explanation of a score, to stand above its chart.
function meaningOf(name) {
  const text = explanationOf(name);
  return text ? h("p", { className: "muted meaning" }, text) : "";
}

function panelOf(title, options) {
  const chart = h("div", { className: "chart" });
  const panel = h("section", { className: "panel" }, title ? h("h2", { className: "small" }, title) : "",
    meaningOf(options.metric ?? options.scalar ?? options.column), chart);
  seriesOf(options).then(({ rows, x }) => lineChart(chart, rows, { ...options, x }))
    .catch((error) => chart.replaceChildren(h("p", { className: "empty" }, String(error.message))));
  return panel;
}

// Rows for `lineChart`: of a column of the samples, with intervals, or of a scalar. Many runs have no bands: a bootstrap
// in each of their evaluations would take minutes, and they would cover each other.
async function seriesOf({ column, scalar, reference, referenceScalar, label }) {
  const found = scalar !== undefined || (isMany() && !label) ? await fromCurves(scalar ?? scalarNamed(column), referenceScalar ?? reference) : await fromScores(column, reference, label);
  // Where an epoch has several evaluations, the axis counts steps.
  const keys = found.map((row) => `${row.run}/${row.epoch}`);
  const x = new Set(keys).size === keys.length ? "epoch" : "step";
  return { x, rows: found.map((row) => ({ ...row, x: row[x] })) };
}

const MOST_BANDED = 8;
const DRAWN = ["accuracy", "label/energy_pointing_game", "predicted/energy_pointing_game", "chance", "reliance", "any_reliance"]; // asked for at once

function isMany() {
  return drawnRuns().length > MOST_BANDED;
}

// The scalar that is the mean of a column of the samples.
function scalarNamed(column) {
  return column === "correct" ? "accuracy" : column.replace(/^(label|predicted)_/, "$1/");
}

async function fromCurves(scalar, reference) {
  const standIn = scalar.replace(/^label\//, "predicted/");
  const wanted = [scalar, standIn, reference].filter((name) => name !== undefined && name !== null);
  const curves = await curvesOf(drawnRuns(), wanted.every((name) => DRAWN.includes(name)) ? DRAWN : [...new Set(wanted)]);
  return [...curves].flatMap(([run, own]) => {
    const rows = own[scalar]?.length ? own[scalar] : own[standIn] ?? [];
    const levels = new Map((own[reference] ?? []).map(([epoch, step, mean]) => [`${epoch}/${step}`, mean]));
    return rows.map(([epoch, step, mean]) => ({ run, epoch, step, mean, reference: levels.get(`${epoch}/${step}`) }));
  });
}

async function fromScores(column, reference, label) {
  return (await Promise.all(drawnRuns().slice(0, MOST_BANDED).map(async (run) => {
    // All means are in the answer: only what is drawn with a band is asked for by name, for its interval.
    const scoresOf = async (name) => (await askOnce(run, "scores", { label: label || null, confidence: confidenceOf(run), column: [name] })).scores;
    const standIn = column.replace(/^label_/, "predicted_");
    // A monitor may explain the predicted class only: then its column stands in for that of the label.
    let scores = await scoresOf(column);
    if (scores[column] === undefined && scores[standIn] !== undefined) scores = await scoresOf(standIn);
    const own = scores[column] || scores[standIn] || [];
    const levels = new Map((scores[reference] || []).map(([epoch, step, mean]) => [`${epoch}/${step}`, mean]));
    return own.map(([epoch, step, mean, low, high]) => ({ run, epoch, step, mean, low, high, reference: levels.get(`${epoch}/${step}`) }));
  }))).flat();
}

function chosenPanel() {
  const place = h("section", { className: "panel wide" });
  const fill = async () => {
    const columns = new Set(["correct"]);
    const labels = new Set();
    for (const run of isMany() ? [] : drawnRuns()) {
      const { scores } = await askOnce(run, "scores", { label: null, confidence: confidenceOf(run), column: ["correct"] });
      Object.keys(scores).forEach((name) => columns.add(name));
      (runs.get(run).about.settings.class_names || []).forEach((name) => labels.add(String(name)));
    }
    const scalars = new Set(shownRuns().flatMap((run) => Object.keys(lastOf(run)?.scalars || {})));
    // "of class" offers the same: those of many classes would bury the other scores.
    const listed = [...scalars].filter((name) => labels.size <= MOST_LISTED || !name.includes("_per_class/"));
    const options = [...columns, ...listed.map((name) => `=${name}`)].map((name) => [name, scoreTitle(name)]);
    if (!options.some(([name]) => name === score.name)) score.name = "correct";
    const draw = () => {
      const plain = score.name.startsWith("=");
      const own = plain ? { scalar: score.name.slice(1) } : { column: score.name, label: score.label };
      // Of the samples' right answers the mean is the accuracy, whose explanation it shares.
      const metric = score.name === "correct" ? "accuracy" : score.name;
      const chart = panelOf("", { ...own, ...chartOptions(score.name), metric });
      chart.classList.add("bare");
      controls.querySelector("#score-class").disabled = plain;
      place.replaceChildren(controls, chart);
    };
    const set = (key) => (value) => { score[key] = value; draw(); };
    const controls = h("div", { className: "controls" }, labelled("Any score", choice("score", options, score.name, set("name"))),
      labelled("of class", searchable("score-class", [["", "all"], ...[...labels].map((name) => [name, name])], score.label, set("label"))),
      h("span", { className: "muted" }, `bands: ${percent(confidenceOf(shownRuns()[0]))} intervals over samples`));
    draw();
  };
  if (shownRuns().length) fill().catch((error) => place.replaceChildren(h("p", { className: "empty" }, String(error.message))));
  return place;
}
