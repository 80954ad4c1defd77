// What is shown, as the address says it: whoever opens the same address sees the same, and Back goes back. All parts of
// the page read `address`, change it with `go`, and hear of changes through `watch`.

// Every field with its default, which is left out of the address. A list is repeated: #run=first&run=second.
const FIELDS = {
  view: "", // runs, findings or samples; see app.js
  run: [], // the first is the one shown; further ones stand beside it
  epoch: "", // "3", or "3-120" for step 120 of it; empty for the latest evaluation
  target: "label", // whose map: label, predicted or "class cat"
  sample: "", // id of the sample that is opened
  // Which samples are in the gallery, and in which order; see filters.js.
  class: "", predicted: "", reading: "", group: "", id: "", note: "", score: "", from: "", to: "", sort: "", page: "",
  // Which plots stand above the gallery; see plots.js.
  plots: "",
  // The table of runs: which are not drawn, sorted by which column, and searched for what; see runtable.js.
  without: [], order: "", find: "",
  // Which findings are listed; see findings.js.
  verdict: "", role: "", finding: "",
};
const FILTERS = ["class", "predicted", "reading", "group", "id", "note", "score", "from", "to"];
const NO_FILTER = Object.fromEntries(FILTERS.map((name) => [name, FIELDS[name]]));
const address = { ...FIELDS };
const watching = []; // [names of fields, listener]

function parseAddress(text) {
  // URLSearchParams takes any text: "%" and "%zz" stand for themselves.
  const pairs = new URLSearchParams(text.replace(/^#/, ""));
  return Object.fromEntries(Object.entries(FIELDS).map(([name, empty]) =>
    [name, Array.isArray(empty) ? [...new Set(pairs.getAll(name))] : pairs.get(name) ?? empty]));
}

// The address of what is shown now, but for some changes: for links.
function addressOf(changes = {}) {
  const next = { ...address, ...consequences(changes), ...changes };
  const pairs = Object.entries(next).flatMap(([name, value]) => [value].flat().filter((one) => one !== FIELDS[name]).map((one) => [name, one]));
  return `#${new URLSearchParams(pairs)}`;
}

// What a change takes with it: another view has no opened sample, other filters begin at their first page.
function consequences(changes) {
  const names = Object.keys(changes);
  return {
    ...(names.some((name) => ["view", "run"].includes(name)) ? { sample: "" } : {}),
    ...(names.some((name) => ["view", "run", "epoch", "sort", ...FILTERS].includes(name)) ? { page: "" } : {}),
  };
}

// Shows something else. `replace`: without an entry for Back, as for every letter that is typed.
function go(changes, replace = false) {
  const next = addressOf(changes);
  if (next === addressOf()) return;
  const opens = !address.sample && Boolean(changes.sample);
  if (replace) history.replaceState(history.state, "", next);
  else history.pushState({ opens }, "", next);
  takeAddress();
}

// Closes the opened sample: where opening it made the last entry, by going back, so that Back does not open it again.
function closeSample() {
  if (history.state?.opens) history.back();
  else go({ sample: "", view: current.view }, true);
}

// Lets the listener hear of changes of any of the fields, by their names.
function watch(names, listener) {
  watching.push([names, listener]);
}

function takeAddress() {
  const next = parseAddress(location.hash);
  const changed = Object.keys(FIELDS).filter((name) => String(next[name]) !== String(address[name]));
  Object.assign(address, next);
  for (const [names, listener] of watching) {
    const own = changed.filter((name) => names.includes(name));
    if (own.length) listener(own);
  }
}

Object.assign(address, parseAddress(location.hash));
window.addEventListener("hashchange", takeAddress);
