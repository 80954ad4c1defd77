// The proof of a finding: samples as they are, changed, and under the control, with the model's answers.

function proofUrl(run, path) {
  return DATA !== null ? DATA[run].proofs[path] : `/proof.png?${new URLSearchParams({ run, path })}`;
}

function proofBlock(run, finding) {
  const proof = finding.proof;
  if (!proof || !Array.isArray(proof.samples) || !proof.samples.length) return "";
  const drawn = String(proof.path || "").endsWith(".png");
  const said = `As it is, ${String(proof.change || "changed").toLowerCase()}, and the control (${proof.control})`;
  const answers = proof.samples.map((sample) => `#${sample.sample_id}, class ${sample.answer}: ${percent(sample.before)} as it is, `
    + `${percent(sample.changed)} changed${sample.instead ? `, then class ${sample.instead}` : ""}, ${percent(sample.control)} under the control`);
  const shown = drawn
    ? h("img", { className: "proofpicture", loading: "lazy", src: proofUrl(run, proof.path), alt: `${said}. ${answers.join(". ")}` })
    : proof.samples.map((sample, i) => h("div", { className: "prooftext" }, h("div", {}, answers[i]),
      proofWords(proof.change, sample.changed_words), proofWords(`Control, ${proof.control}`, sample.control_words)));
  return h("details", { key: "proof", className: "proof", open: true }, h("summary", {}, `The proof: ${said.charAt(0).toLowerCase()}${said.slice(1)}`), shown,
    proof.note ? h("div", { className: "muted" }, proof.note) : null);
}

function proofWords(name, marked) {
  if (!Array.isArray(marked) || !marked.length) return null;
  const tags = { gone: "del", new: "ins" };
  return h("div", {}, h("span", { className: "muted" }, `${name}: `),
    marked.flatMap(([text, mark]) => [tags[mark] ? h(tags[mark], {}, text) : text, " "]));
}
