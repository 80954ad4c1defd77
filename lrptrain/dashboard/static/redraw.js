// Drawing a part of the page anew without losing what its reader was doing: the focus, the caret, what was opened, and
// how far it was scrolled.

// What tells an element apart from others after it was made anew: the names (data-key) that it lies in up to an id, and
// its place among those of its kind within the nearest one.
function identityOf(element) {
  const named = element.closest("[id], [data-key]");
  if (named === null) return null;
  const path = [];
  for (let own = named; own !== null && own !== undefined; own = own.id ? null : own.parentElement?.closest("[id], [data-key]")) {
    path.unshift(own.id ? `#${CSS.escape(own.id)}` : `[data-key="${CSS.escape(own.dataset.key)}"]`);
  }
  const place = named === element ? -1 : [...named.querySelectorAll(element.tagName)].indexOf(element);
  return { selector: path.join(" "), tag: element.tagName, place };
}

function findIdentity(root, { selector, tag, place }) {
  const named = root.querySelector(selector);
  return place < 0 ? named : named?.querySelectorAll(tag)[place] ?? null;
}

// Replaces the children of `place`.
function redraw(place, ...children) {
  const { scrollX, scrollY } = window;
  const active = document.activeElement;
  const focused = place.contains(active) && active !== place ? identityOf(active) : null;
  const caret = focused !== null && active.tagName === "INPUT" && ["search", "text"].includes(active.type) ? [active.selectionStart, active.selectionEnd] : null;
  const changedDetails = [...place.querySelectorAll("details")].map((own) => [identityOf(own), own.open]).filter(([identity]) => identity !== null);
  const scrolled = [...place.querySelectorAll(".scroll, .strip")].filter((own) => own.scrollLeft || own.scrollTop)
    .map((own) => [identityOf(own), own.scrollLeft, own.scrollTop]).filter(([identity]) => identity !== null);
  place.replaceChildren(...children);
  for (const [identity, open] of changedDetails) {
    const own = findIdentity(place, identity);
    if (own) own.open = open;
  }
  for (const [identity, left, top] of scrolled) findIdentity(place, identity)?.scrollTo(left, top);
  window.scrollTo(scrollX, scrollY);
  if (focused === null) return;
  const again = findIdentity(place, focused);
  again?.focus({ preventScroll: true });
  if (again && caret !== null) again.setSelectionRange(...caret);
}

// Puts what is made, or why it could not be, into a place; where nothing is made (undefined), what is there stays.
async function fillIn(place, make) {
  let made;
  try {
    made = await make();
  } catch (error) {
    made = problem(error);
  }
  if (made !== undefined) redraw(place, made);
}

function problem(error) {
  return h("p", { className: "empty problem" }, `This cannot be shown now: ${error.message}.`);
}
