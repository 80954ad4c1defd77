// The verdict on a run in a sentence: the most severe of what was found, linked to it.

const STANDINGS = ["shortcut", "unreviewed", "inconclusive", "annotation", "does not rely"]; // as in findings/finding.py
const BADGES = { shortcut: "shortcut", unreviewed: "review", "inconclusive": "doubt", "does not rely": "quiet" }; // their styles
const MOST_NAMES = 3;

// The role of what the model relies on, else the verdict.
function standingOf({ verdict, role }) {
  return verdict === "relies" ? role : verdict;
}

// The findings of the last evaluation, the most severe first; of these, in the order in which they are named.
function rankedFindings(run) {
  const rank = (finding) => STANDINGS.indexOf(standingOf(finding));
  return [...(lastOf(run)?.findings || [])].sort((one, other) => rank(one) - rank(other));
}

// The record has the sentence; one of other programs may lack it.
function verdictText(finding) {
  return finding.sentences?.verdict ?? `${finding.verdict}: ${finding.name}`;
}

function namesOf(findings) {
  const names = findings.slice(0, MOST_NAMES).map(({ name }) => name);
  if (findings.length > MOST_NAMES) names.push(`${findings.length - MOST_NAMES} more`);
  return names.length === 1 ? names[0] : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

// What the last evaluation is of, such as "up to epoch 3, on 128 samples".
function judgedOf(event) {
  const { epoch, step } = event.weights ?? event;
  const isOwn = epoch === event.epoch && step === event.step;
  const samples = scalarOf(event, "samples");
  const which = isOwn ? `up to epoch ${epoch}` : epoch === null ? "in the kept checkpoint" : `in the kept checkpoint (epoch ${epoch})`;
  return samples ? `${which}, on ${plural(samples, "sample")}` : which;
}

// state: "shortcut", "doubt", "review", "none" where no shortcut was found, "collapsed", or "unknown"; text; finding: the
// most severe, if there is any; power: where there is no shortcut, what was tested.
function verdictOf(run) {
  const last = lastOf(run);
  if (last === undefined) return { state: "unknown", text: "Not evaluated yet" };
  const { tells, collapsed, text: power, can_fault, headline } = last.power ?? { tells: true, text: "" };
  // What a model relies on matters no more once it gives one answer to everything.
  if (collapsed === true) return { state: "collapsed", text: power };
  const standing = (name) => rankedFindings(run).filter((finding) => standingOf(finding) === name);
  const [fault] = standing("shortcut");
  if (fault !== undefined) {
    return { state: "shortcut", text: [verdictText(fault), headline].filter(Boolean).join(" "), finding: fault };
  }
  if (!tells) return { state: "unknown", text: `No verdict ${judgedOf(last)}.`, power };
  const doubts = standing("inconclusive").filter(({ role }) => role === "shortcut");
  if (doubts.length) {
    return { state: "doubt", text: `Inconclusive: the model may rely on ${namesOf(doubts)}, ${judgedOf(last)}. ${headline ?? ""}`.trim(), finding: doubts[0], power };
  }
  const none = can_fault === false ? `Nothing is annotated ${judgedOf(last)}.` : `No shortcut found ${judgedOf(last)}.`;
  const open = standing("unreviewed");
  if (!open.length) return { state: "none", text: none, power };
  return { state: "review", text: headline ?? `Needs review: ${namesOf(open)}.`, finding: open[0], power: `${none} ${power}`.trim() };
}

// What names a finding from one evaluation to the next.
function findingKey({ kind, role, name }) {
  return [kind, role, name].join("/");
}

function verdictAddress(run) {
  const { finding } = verdictOf(run);
  return addressOf({ view: "findings", run: [run], finding: finding === undefined ? "" : findingKey(finding), verdict: "", role: "" });
}

// The most severe first.
const SHORT_VERDICTS = { shortcut: "shortcut", collapsed: "collapsed", doubt: "inconclusive", review: "needs review", none: "no shortcut found", unknown: "no verdict" };

// For the order of runs, the most severe first: by the word, then by how large an effect is sure.
function gravityOf(run) {
  const { state, finding } = verdictOf(run);
  return 2 * Object.keys(SHORT_VERDICTS).indexOf(state) - (finding?.interval?.[0] ?? 0);
}

// A badge is filled as far as the effect goes: 6 points must not look like 100.
function weighed(badge, finding) {
  if (isNumber(finding?.effect)) badge.style.setProperty("--effect", `${Math.max(0, points(finding.effect))}%`);
  return badge;
}

// For the list of runs: a word in its colour, the sentence beside it where there is room.
function verdictLink(run) {
  const { state, text, power, finding } = verdictOf(run);
  const title = [text, power].filter(Boolean).join(" ");
  return weighed(h("a", { href: verdictAddress(run), className: `badge ${state}`, title }, SHORT_VERDICTS[state]), finding);
}

// Beside it, what the model relies on.
function verdictPlace(run) {
  const { finding } = verdictOf(run);
  return finding === undefined ? null : h("span", { className: "place" }, `${finding.name}${isNumber(finding.effect) ? `, ${points(finding.effect)} points` : ""}`);
}

// For the top of a run.
function verdictBanner(run) {
  if (lastOf(run) === undefined) return "";
  const { state, text, power } = verdictOf(run);
  return h("a", { href: verdictAddress(run), id: "verdict", className: `verdict ${state}` }, text, power ? h("span", { className: "power" }, ` ${power}`) : "");
}
