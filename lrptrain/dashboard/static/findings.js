// What was found, with its evidence: gravest first; what was refuted stays listed.

const STATES = ["confirmed", "suspected", "refuted"];
const FINDING_FIELDS = { state: "state", of: "target", scope: "scope" }; // of the address, and of a finding

async function findingsView(run) {
  const last = lastOf(run);
  if (last === undefined) return h("p", { className: "empty" }, "No evaluation was written yet.");
  const list = h("div", { id: "findings" });
  const options = (key) => [["", "all"], ...[...new Set(last.findings.map((one) => filterValue(one, key)))].map((own) => [own, String(own)])];
  const titles = { state: "State", of: "Maps of", scope: "Scope" };
  const controls = h("div", { className: "controls" }, Object.entries(FINDING_FIELDS).map(([field, key]) => labelled(titles[field], fieldChoice(field, `finding-${key}`, options(key)))),
    h("span", { className: "muted" }, `epoch ${last.epoch}, ${plural(last.findings.length, "finding")}`), colourBar());
  listed.draw = () => fillIn(list, () => findingList(run, last));
  await listed.draw();
  return h("div", {}, controls, noteList(notesOf(runs.get(run))) || "", list);
}

const listed = { draw: null }; // draws the open list of findings anew
watch(Object.keys(FINDING_FIELDS), () => document.getElementById("findings") && listed.draw());

async function findingList(run, { findings, epoch }) {
  const kept = findings.filter((one) => Object.entries(FINDING_FIELDS).every(([field, key]) => !address[field] || String(filterValue(one, key)) === address[field]));
  // By state in the order of STATES, within one by severity.
  kept.sort((one, other) => STATES.indexOf(one.state) - STATES.indexOf(other.state) || (other.severity || 0) - (one.severity || 0));
  const place = h("div", {}, kept.length ? kept.slice(0, 200).map((finding) => findingCard(run, finding))
    : h("p", { className: "empty" }, findings.length ? "No finding is left by these filters." : `Nothing was found up to epoch ${epoch}.`));
  if (kept.length > 200) place.append(h("p", { className: "muted" }, `and ${kept.length - 200} more`));
  await showWorst(run, place);
  return place;
}

function scopeText(finding) {
  return finding.scope_kind === "class" ? `class ${finding.scope}` : finding.scope;
}

function filterValue(finding, key) {
  return key === "scope" ? scopeText(finding) : finding[key];
}

function findingCard(run, finding) {
  const where = finding.where && finding.where !== "outside the annotation" ? `: ${finding.where}` : "";
  const head = h("header", {}, h("span", { className: `badge ${finding.state}` }, finding.state), h("strong", {}, scopeText(finding)),
    h("span", {}, `${finding.title || words(finding.kind)}${where}`),
    h("span", { className: "muted" }, `maps of ${TARGET_TEXTS[finding.target] || finding.target}`));
  const history = Array.isArray(finding.history) ? finding.history : [];
  const since = h("div", { className: "since" }, `since epoch ${finding.first_epoch ?? "?"}`, curve(history) || "");
  const ids = (finding.worst_samples || []).slice(0, 5).map(String);
  const worst = ids.length ? h("div", { className: "worst" }, ids.map((id) => h("div", { className: "slot" }, `#${id}`))) : "";
  // The slots are filled when the samples have arrived; see showWorst.
  if (worst) ids.forEach((id, i) => Object.assign(worst.children[i].dataset, { sample: id, target: finding.target ?? "" }));
  const card = h("article", { className: `finding ${finding.state}` }, head,
    h("div", { className: "evidence" }, relevanceRow(finding), interventionRow(finding), since), saidOf(finding), proofBlock(run, finding),
    h("details", { className: "told" }, h("summary", {}, "in words"), String(finding.text || "").replace(/^\S\s/, "")), alsoOf(finding), worst);
  card.dataset.key = [finding.kind, finding.scope_kind, finding.scope, finding.target, finding.where].join("/");
  return card;
}

// What is wrong and what to do, in the words of the terminal; runs of earlier versions have none.
function saidOf(finding) {
  const said = finding.sentences;
  if (!said) return "";
  const parts = [said.verdict, said.likewise, said.remedy ? `Mend: ${said.remedy}.` : ""];
  return h("p", { className: "said" }, parts.filter(Boolean).join(" "));
}

// The findings of the same fact, in classes and by other maps, that are folded into this one.
function alsoOf(finding) {
  const also = Array.isArray(finding.also) ? finding.also : [];
  return also.length ? h("details", { className: "told" }, h("summary", {}, `${plural(also.length, "more finding")} of the same fact`),
    h("ul", {}, also.map((one) => h("li", {}, String(one.text || "").replace(/^\S\s/, ""))))) : "";
}

function relevanceRow(finding) {
  const found = finding.relevance;
  if (!found || !isNumber(found.effect)) return h("div", { className: "fact" }, h("span", { className: "muted" }, "no map shows it"));
  const on = /annotation$/.test(finding.kind) ? "of the relevance on the annotation" : "of the relevance there";
  return fact(percent(found.effect), on, found, `its area is ${percent(found.reference)}`, 0, 1);
}

function interventionRow(finding) {
  const found = finding.intervention;
  if (!found || !isNumber(found.effect)) {
    return h("div", { className: "fact" }, h("span", { className: "muted" }, finding.note || "not tested by an intervention"));
  }
  const [low, high] = found.interval || [];
  return fact(`${points(found.effect)} ${points(found.effect) === "1" ? "point" : "points"}`, "change of the prediction beyond the control", { ...found, reference: 0 },
    `the control moves it by ${points(found.reference)}`, Math.min(-0.2, low || 0), Math.max(1, high || 1));
}

function fact(value, text, found, reference, from, to) {
  const [low, high] = found.interval || [];
  const p = isNumber(found.p_value) ? `p = ${number(found.p_value)}, ` : "";
  return h("div", { className: "fact" }, h("div", {}, h("b", {}, value), ` ${text}`), bar(found.effect, low, high, found.reference, from, to),
    h("div", { className: "muted" }, `${isNumber(low) ? `${points(low)} to ${percent(high)}` : "no interval"}; ${reference}; ${p}n = ${found.samples}`));
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
    slot.replaceChildren(h("button", { type: "button", className: "open", title: "Open", onclick: () => go({ sample: id }) }, view));
  }
}
