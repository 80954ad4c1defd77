// Can the maps be trusted? The verdicts of the audit, in words, numbers and pictures.

async function auditView(run) {
  const audit = await askOnce(run, "audit");
  if (!audit.there) {
    return h("div", {}, noteList(audit.notes) || "", h("p", { className: "empty" },
      "This run was not audited: add ExplanationAudit() to the trainer's callbacks, or run lrptrain audit."));
  }
  const { about } = audit;
  const accuracy = isNumber(about.accuracy) ? `, ${percent(about.accuracy)} of them read right` : "";
  return h("div", {}, noteList(audit.notes) || "", h("p", { className: "muted" }, `${about.samples ?? "?"} samples${accuracy}`),
    h("div", { className: "verdicts" }, audit.verdicts.map((verdict) => verdictCard(verdict, audit.tests))), listOf("Note", audit.remarks),
    h("div", { className: "plots" }, audit.pictures.map((name) => h("img", { src: auditPictureUrl(run, name), alt: words(name) }))),
    listOf("Left out", audit.left_out));
}

function verdictCard(verdict, tests) {
  const state = { yes: "yes", weakly: "weakly", no: "no" }[verdict.faithful] || "unknown";
  const facts = Object.entries(verdict.numbers).filter(([, score]) => isNumber(score.value)).map(([test, score]) => {
    // Of a record that an earlier version wrote, only the test's name is known.
    const { number: text, range: [from, to] } = tests[test] || { number: words(test), range: [-1, 1] };
    return h("div", { className: "fact" }, h("div", {}, h("b", {}, number(score.value)), ` ${text}`), bar(score.value, score.low, score.high, 0, from, to),
      h("div", { className: "muted" }, `${number(score.low)} to ${number(score.high)}`));
  });
  return h("article", { className: "finding" }, h("header", {}, h("span", { className: `badge ${state}` }, verdict.faithful), h("strong", {}, words(verdict.method)),
    h("span", { className: "muted" }, "faithful on this model?")), h("div", { className: "evidence" }, facts),
  h("ul", { className: "told" }, verdict.reasons.map((reason) => h("li", {}, reason))));
}

function listOf(title, lines) {
  return lines.length ? h("section", {}, h("h2", { className: "small" }, title), h("ul", { className: "told" }, lines.map((line) => h("li", {}, line)))) : "";
}
