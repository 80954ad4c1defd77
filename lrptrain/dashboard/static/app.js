// Which view is shown of which run, and when it is drawn anew.

const VIEWS = { runs: "Runs", findings: "Findings", samples: "Samples", masks: "Masks", audit: "Audit" };
const EVERY = 3000; // milliseconds between looks at what was written
const current = { view: "runs", run: null };

// Where nothing but masks was written, these come first.
function firstView() {
  const onlyMasks = (run) => run.about.masks !== null && run.evaluations.size === 0;
  return runs.size && [...runs.values()].every(onlyMasks) ? "masks" : "runs";
}

function readAddress() {
  const [view, run] = location.hash.slice(1).split("/").map(decodeURIComponent);
  current.view = view in VIEWS ? view : firstView();
  if (runs.has(run)) current.run = run;
}

function choose(run, view = current.view) {
  location.hash = `${view}/${encodeURIComponent(run ?? "")}`;
}

function render() {
  if (!runs.has(current.run)) current.run = gravestRun();
  const tabs = Object.entries(VIEWS).map(([view, text]) => h("a", { href: `#${view}/${encodeURIComponent(current.run ?? "")}`,
    ariaCurrent: view === current.view ? "page" : null }, text));
  document.getElementById("views").replaceChildren(...tabs);
  const select = choice("run", [...runs.keys()].map((name) => [name, shortName(name)]), current.run, (name) => choose(name));
  document.getElementById("run").replaceWith(select);
  document.getElementById("chosen-run").hidden = current.view === "runs" || runs.size < 2;
  const views = { runs: runsView, findings: findingsView, samples: samplesView, masks: masksView, audit: auditView };
  // The view is built anew: the place on the page and the focused control are restored afterwards.
  const { scrollX, scrollY } = window;
  const focused = document.activeElement?.id;
  const shown = current.run === null ? h("p", { className: "empty" }, "There is no run here yet: the page looks again every few seconds.")
    : views[current.view](current.run);
  document.getElementById("view").replaceChildren(shown);
  window.scrollTo(scrollX, scrollY);
  if (focused) document.getElementById(focused)?.focus();
}

function gravestRun() {
  const severity = (run) => scalarOf(lastOf(run), "severity") ?? -1;
  return [...runs.keys()].sort((one, other) => severity(other) - severity(one))[0] ?? null;
}

function say(text, wrong = false) {
  const status = document.getElementById("status");
  status.textContent = text;
  status.classList.toggle("wrong", wrong);
}

async function update() {
  try {
    const changed = await refresh();
    if (changed && document.querySelector("dialog[open]") === null) render();
    say(DATA === null ? `${plural(runs.size, "run")}, as written ${new Date().toLocaleTimeString()}` : plural(runs.size, "run"));
  } catch (error) {
    say(`the server does not answer: ${error.message}`, true);
  }
}

async function start() {
  document.documentElement.style.setProperty("--sample", `${gallery.size}px`);
  await update();
  readAddress();
  render();
  window.addEventListener("hashchange", () => { gallery.page = 0; readAddress(); render(); window.scrollTo(0, 0); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  if (DATA === null) setInterval(update, EVERY);
}

start();
