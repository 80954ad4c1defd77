// Which view is shown of which run, and when it is drawn anew.

const VIEWS = {
  runs: { text: "Runs", draw: runsView },
  findings: { text: "Findings", draw: findingsView },
  samples: { text: "Samples", draw: samplesView },
};
const EVERY = 3000; // milliseconds between looks at what was written
const current = { view: "runs", run: null }; // what the address stands for, now that the runs are known
const news = new Set(); // runs with something new that is not drawn yet
let pressed = false; // while something is dragged, nothing may be replaced

// What was found in a run that is alone comes first.
function firstView() {
  firstView.chosen ??= runs.size === 1 ? "findings" : runs.size ? "runs" : undefined;
  return firstView.chosen ?? "runs"; // and stays, when more runs are written meanwhile
}

function shownView() {
  if (Object.hasOwn(VIEWS, address.view)) return address.view;
  if (address.sample) return "samples";
  return address.run.length ? "findings" : firstView();
}

// A terminal may know a run by another folder than the one that is served: then its last part is enough.
function runNamed(name) {
  if (runs.has(name)) return name;
  const alike = [...runs.keys()].filter((own) => shortName(own) === name || own.endsWith(`/${name}`) || name.endsWith(`/${own}`));
  return alike.length === 1 ? alike[0] : null;
}

function gravestRun() {
  return [...runs.keys()].sort((one, other) => gravityOf(one) - gravityOf(other))[0] ?? null;
}

function readCurrent() {
  current.view = shownView();
  current.run = address.run.length ? runNamed(address.run[0]) : gravestRun();
}

function drawHeader() {
  const { view, run } = current;
  const tabs = Object.entries(VIEWS).map(([name, { text }]) => h("a", { href: addressOf({ view: name, run: run === null ? [] : [run, ...address.run.slice(1)] }),
    id: `view-${name}`, ariaCurrent: name === view ? "page" : null }, text));
  redraw(document.getElementById("views"), ...tabs);
  const options = [...runs.keys()].map((name) => [name, shortName(name)]);
  redraw(document.getElementById("chosen-run"), "Run ", choice("run", options, run, (name) => go({ run: [name] })));
  document.getElementById("chosen-run").hidden = view === "runs" || runs.size < 2;
  document.title = [view === "runs" || run === null ? null : shortName(run), VIEWS[view].text, "lrptrain"].filter(Boolean).join(" - ");
}

// The view is made aside and put in place when it is whole: until then, what was there stays.
async function render() {
  const drawing = ++render.last;
  readCurrent();
  news.clear();
  drawHeader();
  const place = document.getElementById("view");
  const { view, run } = current;
  const key = `${view}/${run}`;
  const elsewhere = place.dataset.shown !== key;
  if (elsewhere) document.getElementById("verdict")?.remove(); // a verdict never stands under the name of another run
  if (elsewhere) setTimeout(() => drawing === render.last && place.dataset.shown !== key && redraw(place, h("p", { className: "empty" }, "Loading ...")), 150);
  let shown;
  try {
    if (view !== "runs") for (const name of [run, ...address.run.map(runNamed)]) await open(name);
    shown = run === null ? noRun() : await VIEWS[view].draw(run);
    // Where the findings are listed, the first of them says it.
    const isSaid = view === "findings" && verdictOf(run).finding !== undefined;
    if (run !== null && view !== "runs" && !isSaid) shown = h("div", {}, verdictBanner(run), shown);
    render.failed = false;
  } catch (error) {
    shown = problem(error);
    render.failed = true;
  }
  if (drawing !== render.last) return; // something else was asked for meanwhile
  place.dataset.shown = key;
  redraw(place, shown);
  followAddress(Object.keys(FIELDS)); // which may have changed while the view was made
  if (elsewhere) window.scrollTo(0, 0);
  showChosen();
  drawSample();
}

// Scrolls to the finding of the address, once.
function showChosen() {
  const chosen = document.querySelector(".finding.chosen");
  if (address.finding === showChosen.last || chosen === null) return;
  showChosen.last = address.finding;
  chosen.scrollIntoView({ block: "nearest" });
}
showChosen.last = "";
render.last = 0;
render.failed = false;

function noRun() {
  if (!runs.size) {
    return h("div", { className: "empty" }, h("p", {}, "There is no run here yet: the page looks again every few seconds."),
      h("p", {}, "A run is written by RelevanceMonitor() among a trainer's callbacks, to relevance/ in the trainer's folder (default_root_dir); ",
        h("code", {}, "lrptrain demo"), " makes two to look at."));
  }
  return h("p", { className: "empty" }, `There is no run "${address.run[0]}" here. `, h("a", { href: addressOf({ view: "runs", run: [] }) }, "See all runs"));
}

function say(text, wrong = false) {
  const status = document.getElementById("status");
  if (status.textContent !== text) status.textContent = text; // what is the same is not read out again
  status.classList.toggle("wrong", wrong);
}

async function update() {
  try {
    for (const name of await refresh()) news.add(name);
    say(`${plural(runs.size, "run")}${DATA === null ? ", live" : ""}`);
  } catch (error) {
    say(`The server does not answer (${error.message}): the page tries again`, true);
    return;
  }
  const concerned = current.view === "runs" || current.run === null || news.has(current.run) || render.failed;
  if (!pressed && (concerned || news.size)) concerned ? await render() : drawHeader();
}

async function follow() {
  await update();
  setTimeout(follow, EVERY);
}

async function start() {
  document.documentElement.style.setProperty("--sample", `${gallery.size}px`);
  window.addEventListener("pointerdown", () => { pressed = true; });
  for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => { pressed = false; });
  watch(["view", "run", "epoch", "finding"], render);
  watch(["sample"], drawSample);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  redraw(document.getElementById("view"), h("p", { className: "empty" }, "Loading the runs ..."));
  await update();
  await render();
  if (DATA === null) setTimeout(follow, EVERY);
}

start();
