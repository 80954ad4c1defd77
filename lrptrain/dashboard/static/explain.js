// Words of the field, explained where they stand: a click, a tap or Enter shows what is meant. What a score means is said
// by its metric; see `explanationOf`.

const MEANINGS = {
  relevance: "How much a patch or a word speaks for a class, by the map of the method. Shares count what speaks for it.",
  annotation: "What people marked as the evidence: a mask, boxes, or the words that are the reason.",
  area: "The share of the image (or of the words) that the annotation or the place takes: as much of the relevance would lie there if it were spread evenly.",
  control: "The same change somewhere else (random places or words), or by something of the same class: what any change does. Only what goes beyond it counts.",
  points: "Percentage points of the answer's probability: from 90 % to 30 % are 60 points.",
  confirmed: "Changing that place moves the answer further than the control does, beyond chance (by a test that is corrected for all that were made).",
  suspected: "The maps point there. No intervention has confirmed it, so the model may do without it.",
  unconfirmed: "The maps point there, but taking it away does not move the answer: the model does not read it, or another cue says the same.",
  refuted: "The maps point there, but another class's in its place does not move the answer.",
  interval: "With this confidence the mean over all samples like these lies within: bootstrap over the samples, Wilson's for accuracies.",
  "p-value": "How often an effect as large would come by chance if there were none, corrected (Holm) for everything tested with it.",
  "on it": "The share of the relevance that lies on the annotation.",
  iou: "Intersection over union of a mask with the true one, averaged over the classes that either has: 100 % if they are the same, 0 if they do not touch.",
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
