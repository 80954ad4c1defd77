// Which samples of a table the address asks for, and the controls that say so.

// The scores of a table: its columns of numbers, but for what they are not scores of.
function scoreColumns({ columns }) {
  return Object.keys(columns).filter((name) => columns[name].some(isNumber) && !["label", "predicted", "group"].includes(name));
}

// Samples without a label, "?", are neither right nor wrong.
function isLabelled(columns, i) {
  return columns.predicted !== undefined && ![undefined, null, "?"].includes(columns.label?.[i]);
}

function isWrong(columns, i) {
  return isLabelled(columns, i) && String(columns.label[i]) !== String(columns.predicted[i]);
}

function filters(run, table) {
  const { columns } = table;
  const distinct = (name) => [...new Set((columns[name] || []).filter((value) => value !== null))].sort((a, b) => COLLATOR.compare(String(a), String(b)));
  const counts = (name) => (columns[name] || []).reduce((found, value) => found.set(String(value), (found.get(String(value)) || 0) + 1), new Map());
  const counted = (name, extra = []) => {
    const found = counts(name);
    return [["", "all"], ...[...new Set([...distinct(name), ...extra].map(String))].map((value) => [value, `${value} (${found.get(value) || 0})`])];
  };
  const classes = (runs.get(run).about.settings.class_names || []).map(String);
  const scores = scoreColumns(table);
  const epochs = [["", "latest"], ...table.names.slice().reverse().map((name) => [epochText(name, table.names), name.replace(/^epoch_0*(\d+)_step_0*(\d+)$/, "epoch $1, step $2")])];
  const bound = (field) => fieldInput(field, `gallery-${field}`, { type: "number", step: "any", placeholder: field, ariaLabel: `score ${field}` });
  const sorts = [["", "as drawn"], ...scores.flatMap((name) => [[name, `${words(name)}, least first`], [`-${name}`, `${words(name)}, most first`]])];
  const size = h("input", { id: "size", type: "range", min: 80, max: 320, step: 20, value: gallery.size, oninput: (event) => {
    gallery.size = event.target.value;
    document.documentElement.style.setProperty("--sample", `${gallery.size}px`);
  } });
  // The controls would fill the screen before the first sample: they are folded away where they choose nothing.
  const isOpen = filters.open || FILTERS.some((field) => address[field] !== FIELDS[field]);
  return h("details", { id: "filters", className: "filters fold", open: isOpen, ontoggle: (event) => { filters.open = event.target.open; } }, h("summary", {}, "Filters, order and look"), h("div", { className: "controls" },
    labelled("Evaluation", DATA === null ? fieldChoice("epoch", "evaluation", epochs) : table.evaluation),
    labelled("Class", fieldSearchable("class", "gallery-label", counted("label", classes))),
    labelled("Predicted as", fieldSearchable("predicted", "gallery-predicted", counted("predicted"))),
    labelled("Prediction", fieldChoice("reading", "right", [["", "all"], ["right", "right"], ["wrong", "wrong"]])),
    distinct("group").length ? labelled("Group", fieldChoice("group", "gallery-group", counted("group"))) : null,
    labelled("Id", fieldInput("id", "search", { type: "search" })),
    Object.keys(gallery.notes).length ? labelled("Note", fieldInput("note", "gallery-note", { type: "search", list: "tags" })) : null,
    h("datalist", { id: "tags" }, tagsOf(gallery.notes).map((tag) => h("option", { value: tag }))),
    labelled("Score", fieldChoice("score", "score-filter", [["", "any"], ...scores.map((name) => [name, words(name)])])),
    bound("from"), bound("to"), labelled("Sort", fieldChoice("sort", "sort", sorts)), labelled("Size", size)),
  lookControls("gallery", table.targets), besideControls(run) ?? "", viewKeeper(run));
}

// Rows of the table, as numbers, that the filters leave; `without`: filters that are left aside, by their fields.
function keptRows({ columns }, without = []) {
  const isRead = { right: (i) => isLabelled(columns, i) && !isWrong(columns, i), wrong: (i) => isWrong(columns, i) };
  const asked = (field) => (without.includes(field) ? "" : address[field]);
  const { score } = address;
  const [from, to, reading, id, note] = ["from", "to", "reading", "id", "note"].map(asked);
  const bounded = columns[score] !== undefined && (from !== "" || to !== "");
  const inside = (value) => isNumber(value) && (from === "" || value >= Number(from)) && (to === "" || value <= Number(to));
  const equal = [["class", "label"], ["predicted", "predicted"], ["group", "group"]]
    .map(([field, name]) => [asked(field), columns[name]]).filter(([wanted]) => wanted !== "");
  const kept = [];
  for (let i = 0; i < columns.sample_id.length; i++) {
    if (equal.every(([wanted, column]) => column !== undefined && String(column[i]) === wanted) && (!id || columns.sample_id[i].includes(id)) &&
      (!note || gallery.notes[columns.sample_id[i]]?.toLowerCase().includes(note.toLowerCase())) &&
      (!Object.hasOwn(isRead, reading) || isRead[reading](i)) && (!bounded || inside(columns[score][i]))) kept.push(i);
  }
  return kept;
}

// Rows of the table in the order that is asked for.
function chosenRows(table) {
  const { columns } = table;
  const kept = keptRows(table);
  const name = address.sort.replace(/^-/, "");
  if (columns[name] === undefined) return kept;
  const sign = address.sort.startsWith("-") ? -1 : 1;
  // Samples without the score come last in either direction.
  const value = (i) => (isNumber(columns[name][i]) ? sign * columns[name][i] : Infinity);
  return kept.sort((one, other) => value(one) - value(other) || one - other);
}
