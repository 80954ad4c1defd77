// What was found, with its evidence: gravest first; what was refuted stays listed.

const MOST_FINDINGS = 200;
const MOST_LINKS = 12;
const FINDING_FIELDS = { state: "state", of: "target", scope: "scope" }; // of the address, and of a finding

async function findingsView(run) {
  const last = lastOf(run);
  if (last === undefined) return h("p", { className: "empty" }, "No evaluation was written yet.");
  const list = h("div", { id: "findings" });
  const options = (key) => [["", "all"], ...[...new Set(last.findings.flatMap(withAlso).map((one) => filterValue(one, key)))].map((own) => [own, String(own)])];
  const titles = { state: "State", of: "Maps of", scope: "Scope" };
  const controls = h("div", { className: "controls" }, Object.entries(FINDING_FIELDS).map(([field, key]) => labelled(titles[field], fieldChoice(field, `finding-${key}`, options(key)))),
    h("span", { className: "muted" }, `epoch ${last.epoch}, ${plural(last.findings.length, "finding")}`), colourBar());
  listed.draw = () => fillIn(list, () => findingList(run, last));
  await listed.draw();
  return h("div", {}, controls, noteList(notesOf(runs.get(run))) || "", list);
}

const listed = { draw: null }; // draws the open list of findings anew
watch(Object.keys(FINDING_FIELDS), () => document.getElementById("findings") && listed.draw());

// A finding and those of the same fact, in single classes and of other maps, that are folded into it.
function withAlso(finding) {
  return [finding, ...(finding.also || [])];
}

async function findingList(run, { findings, epoch }) {
  const fits = (one) => Object.entries(FINDING_FIELDS).every(([field, key]) => !address[field] || String(filterValue(one, key)) === address[field]);
  const kept = rankedFindings(run).filter((finding) => withAlso(finding).some(fits));
  const place = h("div", {}, kept.length ? kept.slice(0, MOST_FINDINGS).map((finding) => findingCard(run, finding)) : noFinding(run, findings.length, epoch));
  if (kept.length > MOST_FINDINGS) place.append(h("p", { className: "muted" }, `and ${kept.length - MOST_FINDINGS} more`));
  await showWorst(run, place);
  return place;
}

function noFinding(run, all, epoch) {
  if (all) return h("p", { className: "empty" }, "No finding is left by these filters. ", h("a", { href: addressOf({ state: "", of: "", scope: "" }) }, "Clear the filters"));
  if (verdictOf(run).state === "collapsed") return h("p", { className: "empty" }, "The maps of such a model show nothing that it has learned.");
  return h("div", { className: "empty" }, h("p", {}, `Nothing was found up to epoch ${epoch}: no wrong focus stood out in the maps of the sample.`),
    h("p", {}, "That is no proof that there is none. The ", h("a", { href: addressOf({ view: "samples", sort: "label_energy_pointing_game" }) }, "samples"),
      " show where the model looks; more of them (max_samples) and annotations make the search sharper."));
}

function scopeText(finding) {
  return finding.scope_kind === "class" ? `class ${finding.scope}` : finding.scope;
}

function filterValue(finding, key) {
  return key === "scope" ? scopeText(finding) : finding[key];
}

function findingCard(run, finding) {
  const head = h("header", {}, h("span", { className: `badge ${shownState(finding)}` }, term(finding.state)), h("strong", {}, verdictText(finding)),
    h("span", { className: "muted" }, `maps of ${TARGET_TEXTS[finding.target] || finding.target}`));
  const history = Array.isArray(finding.history) ? finding.history : [];
  const since = h("div", { className: "since" }, `since epoch ${finding.first_epoch ?? "?"}`, curve(history) || "");
  const ids = (finding.worst_samples || []).slice(0, 5).map(String);
  // The slots are filled when the samples have arrived; see showWorst.
  const slots = ids.map((id) => h("div", { className: "slot" }, `#${id}`));
  ids.forEach((id, i) => Object.assign(slots[i].dataset, { sample: id, target: finding.target ?? "" }));
  const worst = ids.length ? h("section", { className: "where" }, h("h2", { className: "small" }, "Where the relevance lies"), h("div", { className: "worst" }, slots)) : "";
  const { likewise, remedy } = finding.sentences || {};
  const card = h("article", { className: `finding ${finding.state}` }, head,
    h("div", { className: "evidence" }, relevanceRow(finding), interventionRow(finding), since),
    h("p", { className: "next" }, h("b", {}, "Next: "), "see ", galleryLinks(finding), remedy ? [" ", h("b", {}, "Mend: "), `${remedy}.`] : ""),
    h("div", { className: "shown" }, proofBlock(run, finding), worst),
    likewise ? h("p", { className: "told" }, likewise) : "",
    h("details", { key: "detail", className: "told" }, h("summary", {}, "in detail"),
      h("ul", { className: "told" }, withAlso(finding).map((one) => h("li", {}, String(one.text || "").replace(/^\S\s/, ""))))));
  card.dataset.key = findingKey(run, finding);
  card.classList.toggle("chosen", card.dataset.key === address.finding);
  return card;
}

// Links to the samples of a finding, and to those of the classes and groups in which the same was found.
function galleryLinks(finding) {
  const scopes = new Map(withAlso(finding).filter((one) => one.state === finding.state).map((one) => [scopeText(one), one]));
  const links = [...scopes.values()].slice(0, MOST_LINKS).map((one) => h("a", { href: galleryAddress(one) },
    ["class", "group"].includes(one.scope_kind) ? scopeText(one) : "all samples"));
  return links.flatMap((link, i) => (i === 0 ? [link] : [", ", link])).concat(scopes.size > MOST_LINKS ? ` and ${scopes.size - MOST_LINKS} more` : "", ".");
}

// The gallery of the samples that a finding is about: those first that have the least of the relevance on the annotation.
function galleryAddress(finding) {
  const scope = { class: { class: finding.scope }, group: { group: finding.scope } }[finding.scope_kind] || {};
  const target = finding.target === "predicted" ? "predicted" : FIELDS.target;
  return addressOf({ ...NO_FILTER, view: "samples", ...scope, target, sort: `${target}_energy_pointing_game` });
}

function relevanceRow(finding) {
  const found = finding.relevance;
  if (!found || !isNumber(found.effect)) return h("div", { className: "fact" }, h("span", { className: "muted" }, "no map shows it"));
  const on = /annotation$/.test(finding.kind) ? [term("annotation", "on the annotation")] : ["there"];
  return fact(percent(found.effect), ["of the ", term("relevance"), " is ", ...on], found, ["its ", term("area"), ` is ${percent(found.reference)}`], "%", 0, 1);
}

function interventionRow(finding) {
  const found = finding.intervention;
  if (!found || !isNumber(found.effect)) {
    return h("div", { className: "fact" }, h("span", { className: "muted" }, finding.note || "not tested by an intervention"));
  }
  const [low, high] = found.interval || [];
  const unit = term("points", points(found.effect) === "1" ? "point" : "points");
  return fact(points(found.effect), [h("b", {}, unit), " change of the prediction beyond the ", term("control")], { ...found, reference: 0 },
    [`the control moves it by ${points(found.reference)}`], "points", Math.min(-0.2, low || 0), Math.max(1, high || 1));
}

function fact(value, text, found, reference, unit, from, to) {
  const [low, high] = found.interval || [];
  const p = isNumber(found.p_value) ? [term("p-value", "p"), ` = ${number(found.p_value)}, `] : [];
  const interval = isNumber(low) ? [term("interval", `${points(low)} to ${points(high)} ${unit}`)] : ["no interval"];
  return h("div", { className: "fact" }, h("div", {}, h("b", {}, value), " ", text), bar(found.effect, low, high, found.reference, from, to),
    h("div", { className: "muted" }, interval, "; ", reference, "; ", p, `n = ${found.samples}`));
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
    const map = known.maps[slot.dataset.target] || Object.values(known.maps)[0] || null;
    const read = row.label === row.predicted ? "" : ` read as ${row.predicted}`;
    const view = sampleView(run, id, known, () => map, `#${id} ${row.label ?? ""}${read}`);
    const open = h("button", { type: "button", className: "open", title: "Open", onclick: () => go({ sample: id }) }, view);
    open.dataset.key = `sample-${id}`;
    slot.replaceChildren(open);
  }
}
