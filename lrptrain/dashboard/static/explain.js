// Words of the field, explained where they stand: a click, a tap or Enter shows what is meant. What a score means is said
// by its metric; see `explanationOf`.

const MEANINGS = {
  relevance: "How much a patch or a word speaks for a class, by the map of the method. Shares count what speaks for it.",
  area: "The share of the image (or of the words) that the annotation or the place takes: as much of the relevance would lie there if it were spread evenly.",
  effect: "A sample takes the cue from a sample of another answer, and from one of the same answer. The effect is how much lower the answer's probability is with the first.",
  points: "Percentage points of the answer's probability: from 90 % to 30 % are 60 points.",
  shortcut: "The model relies on this, and should not: it lies outside the annotation, or somebody declared it a shortcut.",
  "needs review": "The model relies on this, and nobody has said whether it should: you decide.",
  annotation: "The model relies on this, and somebody declared that it should.",
  "inconclusive": "The effect may or may not be large enough to matter. More samples decide (max_samples).",
  "does not rely": "The effect is too small to matter. Another cue may still tell the same.",
  interval: "With this confidence, the mean over all samples like these lies within.",
};

// A word that explains itself.
function term(word, text = word) {
  const button = h("button", { type: "button", className: "term", onclick: () => explain(button, word) }, text);
  button.setAttribute("aria-describedby", "explanation");
  return button;
}

function explain(button, word) {
  const place = document.getElementById("explanation");
  place.replaceChildren(h("b", {}, word), ` – ${MEANINGS[word]}`);
  place.showPopover();
  // Below the word, within the window.
  const { left, bottom, top } = button.getBoundingClientRect();
  const { width, height } = place.getBoundingClientRect();
  const below = bottom + 6 + height <= window.innerHeight;
  place.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
  place.style.top = `${Math.max(8, below ? bottom + 6 : top - 6 - height)}px`;
}
