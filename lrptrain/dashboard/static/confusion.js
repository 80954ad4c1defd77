// Which classes are predicted as which others: a table whose cells are filters.

const MOST_CONFUSED = 20; // classes; of more, those with most mistakes

// labels, predicted: of each sample. Returns counts by pair, and both sums: samples without a label have no place.
function confusionOf(labels, predicted) {
  const pairs = new Map(); // label -> (predicted -> count)
  const mistakes = new Map(); // by class, as the true and as the read one
  const add = (map, key, by = 1) => map.set(key, (map.get(key) || 0) + by);
  labels.forEach((own, i) => {
    const label = String(own);
    if (own === null || own === undefined || label === "?") return;
    const read = String(predicted[i]);
    if (!pairs.has(label)) pairs.set(label, new Map());
    add(pairs.get(label), read);
    for (const name of [label, read]) add(mistakes, name, label === read ? 0 : 1);
  });
  return { pairs, mistakes };
}

// In the order of the run's classes; beyond MOST_CONFUSED, the ones with most mistakes.
function confusedClasses(mistakes, order) {
  const rank = new Map(order.map((name, i) => [String(name), i]));
  const inOrder = (names) => names.sort((a, b) => (rank.get(a) ?? Infinity) - (rank.get(b) ?? Infinity) || COLLATOR.compare(a, b));
  const names = inOrder([...mistakes.keys()]);
  if (names.length <= MOST_CONFUSED) return names;
  return inOrder([...names].sort((a, b) => mistakes.get(b) - mistakes.get(a)).slice(0, MOST_CONFUSED));
}

function confusionPlot(run, table) {
  const { columns } = table;
  if (columns.label === undefined || columns.predicted === undefined) return [h("p", { className: "empty" }, "This evaluation has no labels to compare predictions with.")];
  const rows = keptRows(table, ["class", "predicted", "reading"]);
  const { pairs, mistakes } = confusionOf(rows.map((i) => columns.label[i]), rows.map((i) => columns.predicted[i]));
  const shown = confusedClasses(mistakes, runs.get(run).about.settings.class_names || []);
  if (!shown.length) return [h("p", { className: "empty" }, "No labelled sample is left by the other filters.")];
  const wrong = [...pairs].reduce((sum, [label, reads]) => sum + [...reads].reduce((own, [read, count]) => own + (read === label ? 0 : count), 0), 0);
  const total = [...pairs.values()].flatMap((reads) => [...reads.values()]).reduce((sum, count) => sum + count, 0);
  const chosen = address.class !== "" || address.predicted !== "";
  const part = shown.length < mistakes.size ? `; the ${shown.length} of ${mistakes.size} classes with most mistakes` : "";
  return [h("div", { className: "controls" }, h("span", { className: "muted" }, `${wrong} of ${total} misclassified${part}`),
    chosen ? h("button", { type: "button", id: "confusion-clear", onclick: () => go({ class: "", predicted: "" }) }, "Clear") : null),
  h("div", { className: "scroll" }, confusionTable(shown, pairs))];
}

function confusionTable(names, pairs) {
  const head = (name, field) => h("button", { type: "button", className: "link", title: name, onclick: () => go({ [field]: address[field] === name ? "" : name }) }, name);
  const numbers = names.length <= 12;
  const columnHeads = names.map((name) => h("th", { scope: "col" }, head(name, "predicted")));
  const lines = names.map((label) => {
    const reads = pairs.get(label) || new Map();
    const sum = [...reads.values()].reduce((own, count) => own + count, 0);
    return h("tr", {}, h("th", { scope: "row" }, head(label, "class")), names.map((read) => confusionCell(label, read, reads.get(read) || 0, sum, numbers)));
  });
  return h("table", { id: "confusion", className: numbers ? "" : "dense" }, h("caption", {}, "Rows: label. Columns: prediction."),
    h("thead", {}, h("tr", {}, h("td"), columnHeads)), h("tbody", {}, lines));
}

function confusionCell(label, read, count, sum, numbers) {
  const cell = h("td", { className: `cell ${label === read ? "hit" : "miss"}` });
  // The share of the row: a class of few samples is seen as well as one of many. At most
  // half of the colour: the number on it stays legible.
  cell.style.setProperty("--strength", count ? `${Math.round(14 + 34 * (count / sum))}%` : "0%");
  if (!count) return cell;
  const pressed = address.class === label && address.predicted === read;
  cell.append(h("button", { type: "button", ariaPressed: String(pressed), ariaLabel: `${label} predicted as ${read}: ${plural(count, "sample")}`,
    title: `${label} predicted as ${read}: ${count} of ${sum}`, onclick: () => go(pressed ? { class: "", predicted: "" } : { class: label, predicted: read, reading: "" }) },
  numbers ? String(count) : ""));
  return cell;
}
