// The verdict on a run in a sentence: the gravest of what was found, linked to it.

const STATES = ["confirmed", "suspected", "unconfirmed", "refuted"];

// What is confirmed and no fault for sure is for a person to judge: it is not shown as one.
function shownState(finding) {
  return finding.state === "confirmed" && finding.is_fault === false ? "judge" : finding.state;
}

// The findings of the last evaluation, the gravest first.
function rankedFindings(run) {
  const all = [...(lastOf(run)?.findings || [])];
  return all.sort((one, other) => STATES.indexOf(one.state) - STATES.indexOf(other.state) || (other.severity || 0) - (one.severity || 0));
}

// Records of earlier versions have no sentences.
function verdictText(finding) {
  return finding.sentences?.verdict ?? `${finding.state}, ${scopeText(finding)}: ${finding.title || words(finding.kind)}`;
}

// What speaks for a shortcut where no finding stands; "" without, and where the answers tell nothing of any shortcut yet.
function hintOf(event) {
  return event.power?.tells === true ? event.hints ?? "" : "";
}

// What the last evaluation is of, such as "up to epoch 3, on 128 samples"; earlier records do not say whose weights.
function judgedOf(event) {
  const { epoch, step } = event.weights ?? event;
  const isOwn = epoch === event.epoch && step === event.step;
  const samples = scalarOf(event, "samples");
  const which = isOwn ? `up to epoch ${epoch}` : epoch === null ? "in the kept weights" : `in the kept weights (epoch ${epoch})`;
  return samples ? `${which}, on ${plural(samples, "sample")}` : which;
}

// state: one of STATES, "judge", "collapsed", "hint" where nothing is confirmed and something speaks for a shortcut, "none"
// where nothing was found, or "unknown"; text; finding: the gravest, if there is any; power: where nothing was
// found, what could have been.
function verdictOf(run) {
  const last = lastOf(run);
  if (last === undefined) return { state: "unknown", text: "Not evaluated yet" };
  // What a model reads matters no more once it gives one answer to everything.
  if (last.power?.collapsed === true) return { state: "collapsed", text: last.power.text };
  const standing = rankedFindings(run).filter((finding) => ["confirmed", "suspected"].includes(finding.state));
  if (!standing.length) {
    const hint = hintOf(last);
    const though = hint ? `, but there is a hint: ${hint}` : ".";
    const doubtful = rankedFindings(run).filter((finding) => finding.state === "unconfirmed");
    if (doubtful.length) {
      return { state: hint ? "hint" : "unconfirmed", text: `No shortcut was confirmed ${judgedOf(last)}${though} ${verdictText(doubtful[0])}`, finding: doubtful[0], power: last.power?.text };
    }
    // Records of earlier versions do not say what that shows.
    const { tells, text } = last.power ?? { tells: true, text: "" };
    const state = tells ? "none" : "unknown";
    return { state: hint ? "hint" : state, text: `No shortcut was found ${judgedOf(last)}${though}`, power: text };
  }
  const [finding, ...others] = standing;
  const more = others.length ? ` And ${plural(others.length, "other finding")}.` : "";
  return { state: shownState(finding), text: verdictText(finding) + more, finding };
}

// What names a finding from one evaluation to the next, in which another class may speak for it: its kind, where that is
// enough.
function findingKey(run, finding) {
  const alike = lastOf(run).findings.filter(({ kind }) => kind === finding.kind);
  return alike.length === 1 ? finding.kind : [finding.kind, finding.where, scopeText(finding), finding.target].join("/");
}

function verdictAddress(run) {
  const { finding } = verdictOf(run);
  return addressOf({ view: "findings", run: [run], finding: finding === undefined ? "" : findingKey(run, finding), state: "", of: "", scope: "" });
}

const SHORT_VERDICTS = { confirmed: "shortcut", judge: "to judge", suspected: "suspected", unconfirmed: "unconfirmed", hint: "a hint", collapsed: "collapsed", none: "none found", unknown: "–" };

// For the list of runs: a word in its colour, the sentence beside it where there is room.
function verdictLink(run) {
  const { state, text, power } = verdictOf(run);
  return h("a", { href: verdictAddress(run), className: `badge ${state}`, title: [text, power].filter(Boolean).join(" ") }, SHORT_VERDICTS[state]);
}

// Beside it, what the model reads: "the model reads the image's four corners", without the scope before it.
function verdictPlace(run) {
  const { finding } = verdictOf(run);
  return finding === undefined ? null : h("span", { className: "place" }, verdictText(finding).replace(/^[^:]*: |\.$/g, ""));
}

// For the top of a run.
function verdictBanner(run) {
  if (lastOf(run) === undefined) return "";
  const { state, text, power } = verdictOf(run);
  return h("a", { href: verdictAddress(run), id: "verdict", className: `verdict ${state}` }, text, power ? h("span", { className: "power" }, ` ${power}`) : "");
}
