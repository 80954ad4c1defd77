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

function fromReport(name, { run, label, id, evaluation }) {
  if (name === "runs") return { runs: Object.fromEntries(Object.entries(DATA).map(([key, own]) => [key, own.about])) };
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

// Brings the runs and their evaluations up to date; returns the names of the runs that have anything new, or are gone.
async function refresh() {
  // The sizes and stamps in the answer tell which runs have something new; only their new lines are asked for.
  const answer = await ask("runs", {});
  const changed = new Set([...runs.keys()].filter((name) => !(name in answer.runs)));
  for (const name of changed) runs.delete(name);
  for (const [name, about] of Object.entries(answer.runs)) {
    const own = runs.get(name) || { name, about: {}, evaluations: new Map(), offset: 0, notes: [], asked: new Map() };
    if (!runs.has(name)) changed.add(name);
    own.about = about;
    runs.set(name, own);
    if (about.size !== own.size && (await readEvents(own, about.size))) changed.add(name);
    if (changed.has(name)) own.asked.clear();
  }
  return changed;
}

// Adds the new evaluations of a run; true if there are any.
async function readEvents(run, size) {
  const found = await ask("events", { run: run.name, since: run.offset });
  if (found.anew) Object.assign(run, { evaluations: new Map(), notes: [] });
  for (const event of found.events) run.evaluations.set(`${event.epoch}/${event.step}`, event);
  Object.assign(run, { offset: found.offset, size });
  run.notes.push(...found.notes);
  return found.anew || found.events.length > 0;
}

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
  return eventsOf(run).at(-1);
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
  const fitting = [...runs.values()].flatMap((run) => {
    const metrics = Array.isArray(run.about.settings.metrics) ? run.about.settings.metrics : [];
    const metric = metrics.find((own) => Array.isArray(own?.keys) && own.keys.some((pattern) => typeof pattern === "string" && fits(pattern)));
    return typeof metric?.title === "string" ? [metric] : [];
  });
  return fitting[0] ?? null;
}

const DIRECTIONS = { true: "Higher is better.", false: "Lower is better." };

// What a score means, in a sentence, and which direction is better; "" where no run says.
function explanationOf(name) {
  const metric = metricOf(name);
  const explanation = typeof metric?.explanation === "string" ? metric.explanation : "";
  return [explanation, DIRECTIONS[metric?.higher_is_better]].filter(Boolean).join(" ");
}

// How a score is called: the title of its metric beside its own name.
function scoreTitle(name) {
  const own = name.startsWith("=") ? name.slice(1) : words(name);
  const metric = metricOf(name);
  return metric === null ? own : `${metric.title} (${own})`;
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
