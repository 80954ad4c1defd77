// Where data comes from: the server, or what is embedded in a report. Everything else asks here.

const embedded = document.getElementById("data");
const DATA = embedded === null ? null : JSON.parse(embedded.textContent);
const runs = new Map(); // by name: about, evaluations (by epoch and step), offset, and what was asked for already

async function ask(name, parameters) {
  if (DATA !== null) return fromReport(name, parameters);
  // {run: "a", id: [1, 2], label: null} becomes run=a&id=1&id=2.
  const pairs = Object.entries(parameters).flatMap(([key, value]) =>
    (Array.isArray(value) ? value : value === null || value === undefined ? [] : [value]).map((one) => [key, one]));
  const answer = await fetch(`/api/${name}?${new URLSearchParams(pairs)}`);
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
  return answer.json();
}

function fromReport(name, { run, label, id, evaluation, name: scalars }) {
  if (name === "runs") return { names: Object.keys(DATA), runs: Object.fromEntries(Object.entries(DATA).map(([key, own]) => [key, own.about])), stamp: "0" };
  if (name === "curves") {
    const rowsOf = (own, scalar) => own.events.events.map((event) => [event.epoch, event.step, scalarOf(event, scalar)]).filter(([, , value]) => isNumber(value));
    return Object.fromEntries(Object.entries(DATA).map(([key, own]) => [key, Object.fromEntries(scalars.map((scalar) => [scalar, rowsOf(own, scalar)]))]));
  }
  const own = DATA[run];
  if (name === "scores") return own.scores[label || ""] || { scores: {}, notes: [] };
  if (name === "history") return own.history[id] || { history: [], notes: [] };
  if (name === "cards" && evaluation !== own.table.evaluation) return { cards: {}, notes: [] };
  return own[name];
}

function imageUrl(run, id, kind) {
  if (DATA !== null) return (DATA[run].images[id] || {})[kind];
  return `/image?${new URLSearchParams({ run, id, kind })}`;
}

// Brings the runs up to date; returns the names of the runs that have anything new, or are gone.
async function refresh() {
  // Only what was written since the last answer is in this one.
  const answer = await ask("runs", { since: refresh.stamp });
  refresh.stamp = answer.stamp;
  const names = new Set(answer.names);
  const changed = new Set([...runs.keys()].filter((name) => !names.has(name)));
  for (const name of changed) runs.delete(name);
  for (const [name, about] of Object.entries(answer.runs)) {
    const own = runs.get(name) || { name, about: {}, evaluations: new Map(), offset: 0, notes: [], asked: new Map(), curves: {} };
    if (!runs.has(name) || own.about.size !== about.size || own.about.written !== about.written) {
      changed.add(name);
      own.asked.clear();
      own.curves = {};
    }
    own.about = about;
    runs.set(name, own);
    if (own.opened) await readEvents(own);
  }
  return changed;
}
refresh.stamp = "0";

// Reads all evaluations of a run that is shown by itself; of the others the last one is known.
async function open(name) {
  const own = runs.get(name);
  if (own === undefined || own.opened) return;
  own.opening ??= readEvents(own).finally(() => { own.opening = undefined; });
  await own.opening;
  own.opened = true;
}

// Adds the new evaluations of a run.
async function readEvents(run) {
  if (run.size === run.about.size) return;
  const size = run.about.size;
  const found = await ask("events", { run: run.name, since: run.offset });
  if (found.anew) Object.assign(run, { evaluations: new Map(), notes: [] });
  for (const event of found.events) run.evaluations.set(`${event.epoch}/${event.step}`, event);
  Object.assign(run, { offset: found.offset, size });
  run.notes.push(...found.notes);
}

// Values of scalars over the evaluations of runs, as rows of epoch, step and value: kept until something new is written.
async function curvesOf(names, scalars) {
  curvesOf.asked = curvesOf.asked.catch(() => {}).then(async () => {
    const lacking = names.filter((name) => scalars.some((scalar) => !(scalar in (runs.get(name)?.curves ?? { [scalar]: 0 }))));
    if (!lacking.length) return;
    const found = await ask("curves", { name: scalars, run: lacking });
    for (const [name, curves] of Object.entries(found)) Object.assign(runs.get(name)?.curves ?? {}, curves);
  });
  await curvesOf.asked;
  return new Map(names.map((name) => [name, runs.get(name)?.curves ?? {}]));
}
curvesOf.asked = Promise.resolve();

// Like `ask`, but what was answered is kept until something new is written.
function askOnce(run, name, parameters = {}) {
  const key = JSON.stringify([name, parameters]);
  const asked = runs.get(run).asked;
  if (!asked.has(key)) {
    const promise = Promise.resolve(ask(name, { run, ...parameters }));
    promise.catch(() => asked.delete(key));
    asked.set(key, promise);
  }
  return asked.get(key);
}

function eventsOf(run) {
  const found = [...(runs.get(run)?.evaluations.values() || [])];
  return found.sort((one, other) => one.epoch - other.epoch || one.step - other.step);
}

function lastOf(run) {
  return eventsOf(run).at(-1) ?? runs.get(run)?.about.last ?? undefined;
}

function scalarOf(event, ending) {
  if (event === undefined) return undefined;
  const keys = Object.keys(event.scalars);
  const key = keys.find((own) => own === ending || own === `relevance/${ending}`) ?? keys.find((own) => own.endsWith(`/${ending}`));
  return key === undefined ? undefined : event.scalars[key];
}

// What the runs say of a score: its title, unit, bounds and direction. A column of samples is a key with _ instead of /.
function metricOf(name) {
  const key = name.replace(/^=?relevance\//, "").replace(/^=/, "");
  const keys = [key, key.replace(/^[^/]+\//, "")]; // of a monitor with a name, too
  const fits = (pattern) => [pattern, pattern.replaceAll("/", "_")].some((own) =>
    keys.some((each) => new RegExp(`^${own.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".+")}$`).test(each)));
  for (const { about } of runs.values()) {
    const metrics = Array.isArray(about.settings.metrics) ? about.settings.metrics : [];
    const metric = metrics.find((own) => Array.isArray(own?.keys) && own.keys.some((pattern) => typeof pattern === "string" && fits(pattern)));
    if (typeof metric?.title === "string") return metric;
  }
  return null;
}

const DIRECTIONS = { true: "Higher is better.", false: "Lower is better." };

// What a score means, in a sentence, and which direction is better; "" where no run says.
function explanationOf(name) {
  const metric = metricOf(name);
  const explanation = typeof metric?.explanation === "string" ? metric.explanation : "";
  return [explanation, DIRECTIONS[metric?.higher_is_better]].filter(Boolean).join(" ");
}

// How a score is called.
function scoreTitle(name) {
  const own = name.startsWith("=") ? name.slice(1) : words(name);
  const metric = metricOf(name);
  if (metric === null) return own;
  // Of the keys of a metric, what its title leaves out: the class of the map, and a name in place of a *.
  const [, star] = own.replaceAll(" ", "_").match(/(?:per_class|per_group|region|mixing|input)[/_](.+)$/) ?? [];
  const further = [/(^|\/)predicted[ /_]/.test(own.replace(/^relevance\//, "")) ? "predicted class" : "", star ? words(star) : ""].filter(Boolean);
  return further.length ? `${metric.title} (${further.join(", ")})` : metric.title;
}

// How a chart of a score is drawn.
function chartOptions(name) {
  const metric = metricOf(name);
  if (metric === null) return {};
  const domain = Array.isArray(metric.bounds) && metric.bounds.every(isNumber) ? metric.bounds : null;
  return { share: metric.unit === "share", domain };
}

function confidenceOf(run) {
  const told = runs.get(run)?.about.settings.confidence;
  return isNumber(told) && told > 0 && told < 1 ? told : 0.95;
}
