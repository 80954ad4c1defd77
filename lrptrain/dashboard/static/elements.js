// Building the page: everything that comes from data goes in as text, never as markup.

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "key") element.dataset.key = value; // its name when it is drawn anew; see redraw.js
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const NS = "http://www.w3.org/2000/svg";

function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function swatchOf(color) {
  return h("span", { className: "swatch", style: `background-color: ${color}` });
}

function choice(id, options, value, changed, attributes = {}) {
  const shown = options.map(([own, text]) => h("option", { value: own, textContent: text, selected: own === value }));
  return h("select", { id, ...attributes, onchange: (event) => changed(event.target.value) }, shown);
}

function labelled(text, control) {
  return h("label", { className: "control" }, text, " ", control);
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function number(value) {
  if (!isNumber(value)) return "–";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size < 0.001 || size >= 100000) return value.toExponential(1);
  return size >= 100 ? value.toFixed(0) : value.toFixed(size >= 10 ? 1 : size >= 0.1 ? 2 : 3);
}

function percent(value) {
  return isNumber(value) ? `${points(value)} %` : "–";
}

// A share in percentage points, with a decimal only where much would else read as nothing.
function points(share) {
  const size = Math.abs(share);
  const text = (100 * share).toFixed(size > 0.0005 && size < 0.01 ? 1 : 0);
  return Number(text) === 0 ? "0" : text;
}

// A share that is nearly nothing or nearly all must not read as nothing or all.
function sharePercent(share) {
  if (share > 0 && share < 0.0005) return "less than 0.1 %";
  if (share > 0.9995 && share < 1) return "more than 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

function ago(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

// What tells runs apart: without the folder that all of them lie in.
function shortName(run) {
  return run.replace(/(^|\/)relevance\//, "$1");
}

function words(name) {
  return name.replaceAll("_", " ");
}

function noteList(notes) {
  const unique = [...new Set(notes)];
  return unique.length ? h("ul", { className: "notes" }, unique.slice(0, 12).map((note) => h("li", {}, note)),
    unique.length > 12 ? h("li", {}, `and ${unique.length - 12} more`) : null) : null;
}

function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
