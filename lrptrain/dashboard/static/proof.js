// The proof of a finding: samples as they are, swapped, and under the control, with the model's answers.

const SHOWN_WORDS = ["words", "changed_words", "control_words"]; // of the original, the swapped text and the control

function proofUrl(run, path) {
  return DATA !== null ? DATA[run].proofs[path] : `/proof.png?${new URLSearchParams({ run, path })}`;
}

function proofBlock(run, finding) {
  const proof = finding.proof;
  if (!proof || !Array.isArray(proof.samples) || !proof.samples.length) return "";
  const isDrawn = String(proof.path || "").endsWith(".png");
  const shown = isDrawn
    ? h("img", { className: "proofpicture", loading: "lazy", src: proofUrl(run, proof.path), alt: proof.samples.flatMap(({ titles }) => titles).join(". ") })
    : proof.samples.map((sample) => h("div", { className: "prooftext" }, (sample.titles ?? []).map((title, i) => proofWords(title, sample[SHOWN_WORDS[i]]))));
  return h("details", { key: "proof", className: "proof", open: true }, h("summary", {}, "Samples: original, swapped, control"), shown);
}

function proofWords(title, marked) {
  const tags = { gone: "del", new: "ins" };
  return h("div", {}, h("b", {}, title), h("div", {}, (marked || []).flatMap(([text, mark]) => [tags[mark] ? h(tags[mark], {}, text) : text, " "])));
}
