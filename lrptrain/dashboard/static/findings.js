// What was found, with its evidence: most severe first; what the model has ceased to rely on stays listed.

const MOST_FINDINGS = 200;
const MOST_CLASSES = 6; // whose effects are drawn, the largest ones
const FINDING_FIELDS = ["verdict", "role"]; // of the address, and of a finding

async function findingsView(run) {
  const last = lastOf(run);
  if (last === undefined) return h("p", { className: "empty" }, "No evaluation was written yet.");
  const list = h("div", { id: "findings" });
  const options = (field) => [["", "all"], ...[...new Set(last.findings.map((finding) => finding[field]))].map((own) => [own, own])];
  const controls = h("div", { className: "controls" }, FINDING_FIELDS.map((field) => labelled(field === "role" ? "Role" : "Verdict", fieldChoice(field, `finding-${field}`, options(field)))),
    h("span", { className: "muted" }, `epoch ${last.epoch}, ${plural(last.findings.length, "finding")}`), colourBar());
  listed.draw = () => fillIn(list, () => findingList(run, last));
  await listed.draw();
  // The first of the findings says the verdict: here stands what else there is to know.
  const { finding, power } = verdictOf(run);
  const said = finding ? [last.power?.headline, power].filter(Boolean).join(" ") : "";
  return h("div", {}, controls, said ? h("p", { className: "told" }, said) : "", noteList(notesOf(runs.get(run))) || "", list);
}

const listed = { draw: null }; // draws the open list of findings anew
watch(FINDING_FIELDS, () => document.getElementById("findings") && listed.draw());

async function findingList(run, { findings, epoch }) {
  const kept = rankedFindings(run).filter((finding) => FINDING_FIELDS.every((field) => !address[field] || finding[field] === address[field]));
  const place = h("div", {}, kept.length ? kept.slice(0, MOST_FINDINGS).map((finding) => findingCard(run, finding)) : noFinding(run, findings.length, epoch));
  if (kept.length > MOST_FINDINGS) place.append(h("p", { className: "muted" }, `and ${kept.length - MOST_FINDINGS} more`));
  await showWorst(run, place);
  return place;
}

function noFinding(run, all, epoch) {
  if (all) return h("p", { className: "empty" }, "No finding is left by these filters. ", h("a", { href: addressOf({ verdict: "", role: "" }) }, "Clear the filters"));
  if (verdictOf(run).state === "collapsed") return h("p", { className: "empty" }, "The maps of such a model show nothing that it has learned.");
  return h("p", { className: "empty" }, `Nothing is reported of epoch ${epoch}. The `, h("a", { href: addressOf({ view: "samples", sort: "label_energy_pointing_game" }) }, "samples"),
    " show where the model looks; more of them (max_samples) and annotations make the test sharper.");
}

function findingCard(run, finding) {
  const standing = standingOf(finding);
  const style = BADGES[standing] ?? "";
  const { share, also_relies_on: alsoReliesOn, remedy } = finding.sentences || {};
  const head = h("header", {}, weighed(h("span", { className: `badge ${style}` }, term({ unreviewed: "needs review" }[standing] ?? standing)), finding), h("strong", {}, verdictText(finding).replace(/^(?:SHORTCUT|NEEDS REVIEW): (.)/, (_, first) => first.toUpperCase())));
  const ids = (finding.worst_samples || []).map(String);
  // The slots are filled when the samples have arrived; see showWorst.
  const slots = ids.map((id) => h("div", { className: "slot", "data-sample": id }, `#${id}`));
  const worst = ids.length ? h("section", { className: "where" }, h("h2", { className: "small" }, "Samples with the largest effects, and where the relevance lies"), h("div", { className: "worst" }, slots)) : "";
  const key = findingKey(finding);
  return h("article", { key, className: `finding ${style}${key === address.finding ? " chosen" : ""}` }, head,
    h("div", { className: "evidence" }, effectFact(finding), relevanceFact(finding), classFact(finding), historyFact(finding)),
    [share, alsoReliesOn, finding.note].filter(Boolean).map((line) => h("p", { className: "told" }, line)),
    remedy ? fixing(finding, remedy) : "",
    h("div", { className: "shown" }, proofBlock(run, finding), worst));
}

// What to do, and how: code that needs the model and its data, and neither this run's program nor the documentation.
function fixing({ fix }, remedy) {
  const [, chosen] = fix?.match(/swap=(.+?)(?:, (?:optimizer|task)=.*)?\)$/) ?? [];
  const found = chosen ? "report = lrptrain.inspect(model, validation_loader)\n" : "";
  const swap = chosen ? `, swap=${chosen.replaceAll("monitor[", "report[")}` : "";
  const code = `import lrptrain
from lrptrain.callbacks import RelevanceGuidance

${found}guidance = RelevanceGuidance("swap"${swap})  # Lightning: Trainer(callbacks=[guidance])
guidance = lrptrain.guide(trainer, "swap"${swap})  # Trainer of transformers
guidance = lrptrain.Guidance("swap"${swap}, optimizer=optimizer)  # a loop of your own:
with guidance.step(model, batch) as step:
    step.guided(loss_of(model, batch)).backward()`;
  return h("details", { key: "fix", className: "next" }, h("summary", {}, remedy), h("pre", { tabIndex: 0 }, code));
}

function effectFact({ effect, interval, samples, medium }) {
  if (!isNumber(effect)) return h("div", { className: "fact" }, h("span", { className: "muted" }, "effect not known"));
  const [low, high] = interval;
  return h("div", { className: "fact" }, h("div", {}, h("b", {}, points(effect)), " ", term("points", points(effect) === "1" ? "point" : "points"), " of ", term("effect")),
    effectBar(effect, low, high), h("div", { className: "muted" }, isNumber(low) ? term("interval", `${points(low)} to ${points(high)} points`) : "no interval", `; ${plural(samples, medium || "sample")}`));
}

// From 0, or from below where the interval reaches there.
function effectBar(effect, low, high) {
  return bar(effect, low, high, 0, Math.min(0, effect, low ?? 0), 1);
}

function relevanceFact({ relevance, area }) {
  if (!isNumber(relevance)) return "";
  return h("div", { className: "fact" }, h("div", {}, h("b", {}, percent(relevance)), " of the ", term("relevance"), " is there"), bar(relevance, null, null, area, 0, 1),
    h("div", { className: "muted" }, "its ", term("area"), ` is ${percent(area)}`));
}

// How far each answer relies on it; an answer leads to the samples that the model gives it to.
function classFact(finding) {
  const effects = Object.entries(finding.by_class || {}).filter(([, effect]) => isNumber(effect)).sort(([, one], [, other]) => other - one);
  if (!effects.length) return "";
  const rows = effects.slice(0, MOST_CLASSES).flatMap(([name, effect]) => [h("a", { href: addressOf({ ...NO_FILTER, view: "samples", predicted: name, target: "predicted" }) }, h("bdi", {}, name)),
    effectBar(effect), h("span", {}, points(effect))]);
  return h("div", { className: "fact by-class" }, h("div", {}, "by answer", effects.length > MOST_CLASSES ? `, the largest of ${effects.length}` : ""), h("div", { className: "bars" }, rows));
}

// Since when, the effect of each evaluation, and, where it changed, what the verdict was from when on.
function historyFact({ history = [], verdicts = [], epochs = [], sentences: said, first_epoch: first }) {
  const changes = verdicts.flatMap((own, i) => (own === verdicts[i - 1] ? [] : [`${own} from epoch ${epochs[i]}`]));
  return h("div", { className: "since" }, said?.history || `since epoch ${first ?? "?"}`, curve(history) || "", changes.length > 1 ? h("span", {}, changes.join(", ")) : "");
}

// The samples that show it best, where their inputs were kept.
async function showWorst(run, place) {
  const slots = [...place.querySelectorAll("[data-sample]")];
  if (!slots.length) return;
  const table = await tableOf(run);
  const rows = new Map((table.columns.sample_id || []).map((id, i) => [id, i]));
  const ids = [...new Set(slots.map((slot) => slot.dataset.sample))];
  const cards = {};
  for (let i = 0; i < ids.length; i += 100) { // as many as the server gives in one answer
    Object.assign(cards, (await askOnce(run, "cards", { evaluation: table.evaluation, id: ids.slice(i, i + 100) })).cards);
  }
  for (const slot of slots) {
    const id = slot.dataset.sample;
    const known = cards[id];
    if (known === undefined) continue;
    const row = rowOf(table.columns, rows.get(id));
    // Effects are on the model's answers.
    const map = known.maps.predicted || Object.values(known.maps)[0] || null;
    const read = row.label === row.predicted ? "" : ` predicted as ${row.predicted}`;
    const view = sampleView(run, id, known, () => map, `#${id} ${row.label ?? ""}${read}`);
    slot.replaceChildren(openable(id, view));
  }
}
