// The table of runs: searched, sorted by any column, with the hyperparameters in which they differ.

const MOST_DIFFERING = 4; // columns of hyperparameters
const COLUMNS = [
  { key: "run", title: "run", value: (run) => shortName(run.name) },
  { key: "verdict", title: "verdict", value: (run) => SHORT_VERDICTS[verdictOf(run.name).state] },
  { key: "epoch", title: "epoch", value: (run) => lastOf(run.name)?.epoch },
  { key: "accuracy", title: "accuracy", value: scalarValue("accuracy"), text: percent },
  { key: "focus", title: "on annotation", value: (run) => scalarValue("label/energy_pointing_game")(run) ?? scalarValue("predicted/energy_pointing_game")(run), text: percent },
  { key: "chance", title: "its area", value: scalarValue("chance"), text: percent },
  { key: "reliance", title: "reliance", value: scalarValue("reliance"), text: percent },
  { key: "any_reliance", title: "any reliance", value: scalarValue("any_reliance"), text: percent },
  { key: "shortcuts", title: "shortcuts", value: findingsThat((finding) => standingOf(finding) === "shortcut") },
  { key: "doubts", title: "inconclusive", value: findingsThat((finding) => standingOf(finding) === "inconclusive" && finding.role === "shortcut") },
  { key: "method", title: "explained by", value: (run) => words(String(run.about.settings.method ?? "")) },
  { key: "written", title: "written", value: (run) => run.about.written ?? undefined, text: writtenText },
];

const RESULTS = COLUMNS.findIndex(({ key }) => key === "method"); // so many columns say what came out

function scalarValue(key) {
  return (run) => scalarOf(lastOf(run.name), key);
}

function findingsThat(are) {
  return (run) => lastOf(run.name)?.findings.filter(are).length;
}

function writtenText(seconds) {
  return DATA === null ? ago(Date.now() / 1000 - seconds) : new Date(1000 * seconds).toISOString().slice(0, 16).replace("T", " ");
}

function hyperparametersOf(run) {
  const own = run.about.settings.hyperparameters;
  return own !== null && typeof own === "object" && !Array.isArray(own) ? own : {};
}

// A hyperparameter, such as 0.00002929101663184908, in three digits.
function setting(value) {
  return isNumber(value) && !Number.isInteger(value) ? String(Number(value.toPrecision(3))) : String(value);
}

// Columns of the hyperparameters that tell the runs apart, those of the fewest values first: a path is another in each.
function differing() {
  const all = [...runs.values()].map(hyperparametersOf).filter((own) => Object.keys(own).length); // others say nothing of theirs
  const names = [...new Set(all.flatMap(Object.keys))];
  const values = (name) => new Set(all.map((own) => JSON.stringify(own[name]))).size;
  const isCommon = (name) => 2 * all.filter((own) => own[name] !== undefined).length > all.length;
  return names.filter((name) => isCommon(name) && values(name) > 1).sort((one, other) => values(one) - values(other)).slice(0, MOST_DIFFERING)
    .map((name) => ({ key: `h.${name}`, title: name, setting: true, value: (run) => hyperparametersOf(run)[name], text: setting }));
}

// Of what no run has, there is no column.
function runColumns() {
  // What came out stands before what went in: the table may be wider than the window.
  const all = [...COLUMNS.slice(0, RESULTS), ...differing(), ...COLUMNS.slice(RESULTS)];
  return all.map((column) => ({ ...column, values: [...runs.values()].map(column.value).filter((own) => own !== undefined && own !== null) }))
    .filter(({ key, values }) => values.length && (key !== "method" || new Set(values).size > 1)).map((column) => ({ ...column, isNumeric: column.values.every(isNumber) }));
}

// Runs that the search leaves: each word of it must be in the name or in a hyperparameter, such as "lr=0.001".
function listedRuns() {
  const wanted = address.find.toLowerCase().split(/\s+/).filter(Boolean);
  const said = (run) => [run.name, run.about.settings.method, ...Object.entries(hyperparametersOf(run)).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase();
  const found = [...runs.values()].filter((run) => wanted.every((word) => said(run).includes(word)));
  const column = runColumns().find(({ key }) => key === address.order.replace(/^-/, ""));
  if (column === undefined) return found.sort((one, other) => gravityOf(one.name) - gravityOf(other.name));
  const sign = address.order.startsWith("-") ? -1 : 1;
  const compare = (one, other) => (isNumber(one) && isNumber(other) ? one - other : COLLATOR.compare(String(one), String(other)));
  // Runs without the value come last in either direction.
  return found.sort((one, other) => {
    const [a, b] = [column.value(one), column.value(other)];
    return (a === undefined) - (b === undefined) || (a === undefined ? 0 : sign * compare(a, b));
  });
}

function runTable() {
  const columns = runColumns();
  const listed = listedRuns();
  const heads = columns.map(({ key, title, setting, isNumeric }) => {
    const down = address.order === `-${key}`;
    const up = address.order === key;
    const next = down ? key : up ? "" : `-${key}`;
    const sort = h("button", { type: "button", id: `sort-${key}`, className: "sort", title: `Sort by ${title}`, onclick: () => go({ order: next }, true) }, title, h("span", { ariaHidden: "true" }, up ? " ↑" : down ? " ↓" : ""));
    return h("th", { scope: "col", className: [setting ? "setting" : "", isNumeric ? "number" : ""].join(" ").trim(), ariaSort: down ? "descending" : up ? "ascending" : "none" }, sort);
  });
  return h("table", { id: "runs" }, h("thead", {}, h("tr", {}, h("th", {}, h("span", { className: "unseen" }, "drawn")), heads)),
    h("tbody", {}, listed.map((run) => runRow(run, columns))));
}

function runRow(run, columns) {
  const shown = h("input", { type: "checkbox", id: `draw-${run.name}`, checked: !address.without.includes(run.name), ariaLabel: `draw ${run.name}`,
    onchange: (event) => drawOnly(event.target.checked ? [...shownRuns(), run.name] : shownRuns().filter((name) => name !== run.name)) });
  const cells = columns.map(({ key, title, value, text, isNumeric }) => {
    const own = value(run);
    const said = own === undefined || own === null || own === "" ? "–" : (text ?? String)(own);
    const inside = key === "verdict" ? [verdictLink(run.name), verdictPlace(run.name)] : key === "run" ? h("button", { type: "button", className: "link", title: run.name, onclick: () => go({ view: "findings", run: [run.name] }) }, said) : said;
    return h("td", { className: [isNumeric ? "number" : "", said === "–" ? "none" : ""].join(" ").trim(), title: said.length > 30 ? said : "", "data-title": title }, inside); // for a phone, where a row is a card
  });
  return emphasising(h("tr", {}, h("td", {}, shown, swatchOf(colorOf(run.name))), cells), run.name);
}

// Draws these runs and no others.
function drawOnly(names) {
  go({ without: [...runs.keys()].filter((name) => !names.includes(name)) }, true);
}

function runControls() {
  const listed = () => listedRuns().map((run) => run.name);
  const button = (id, text, title, names) => h("button", { type: "button", id, title, onclick: () => drawOnly(names()) }, text);
  return h("div", { className: "controls" },
    labelled("Search", fieldInput("find", "run-search", { type: "search", placeholder: "name or lr=0.001" })),
    h("span", { className: "control" }, "Draw"), button("draw-all", "all", "Draw all runs of this list", () => [...shownRuns(), ...listed()]),
    button("draw-none", "none", "Draw no run of this list", () => shownRuns().filter((name) => !listed().includes(name))),
    button("draw-these", "only these", "Draw the runs of this list and no others", listed),
    h("button", { type: "button", id: "compare-maps", title: "Show the samples of the first four drawn runs beside each other",
      onclick: () => go({ view: "samples", run: shownRuns().slice(0, 4) }) }, "Compare maps"));
}

// The colours of the drawn runs, where the table, which has them too, does not show all at once.
function runLegend() {
  const names = drawnRuns();
  return names.length < 9 ? "" : h("div", { className: "legend runs-legend" }, names.map((name) => emphasising(h("span", { className: "named" }, swatchOf(colorOf(name)), shortName(name)), name)));
}

function hyperparameterDetails() {
  const listed = [...runs.values()].filter((run) => Object.keys(hyperparametersOf(run)).length);
  if (!listed.length) return "";
  const lists = listed.map((run) => h("details", { id: `hyperparameters-${run.name}` }, h("summary", {}, shortName(run.name)), h("dl", { className: "scores settings" },
    Object.entries(hyperparametersOf(run)).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]))));
  return h("details", { id: "hyperparameters", className: "panel" }, h("summary", {}, "All hyperparameters"), lists);
}
