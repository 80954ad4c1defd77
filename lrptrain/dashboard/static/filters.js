// Which samples of a table the address asks for, and the controls that say so.

// The scores of a table: its columns of numbers, but for what they are not scores of.
function scoreColumns({ columns }) {
  return Object.keys(columns).filter((name) => columns[name].some(isNumber) && !["label", "predicted", "group"].includes(name));
}

function filters(run, table) {
  const { columns } = table;
  const distinct = (name) => [...new Set((columns[name] || []).filter((value) => value !== null))].sort((a, b) => String(a).localeCompare(String(b), undefined, { numeric: true }));
  const counts = (name) => (columns[name] || []).reduce((found, value) => found.set(String(value), (found.get(String(value)) || 0) + 1), new Map());
  const counted = (name, extra = []) => {
    const found = counts(name);
    return [["", "all"], ...[...new Set([...distinct(name), ...extra].map(String))].map((value) => [value, `${value} (${found.get(value) || 0})`])];
  };
  const classes = (runs.get(run).about.settings.class_names || []).map(String).slice(0, 200);
  const scores = scoreColumns(table);
  const epochs = [["", "latest"], ...table.names.slice().reverse().map((name) => [epochText(name, table.names), name.replace(/^epoch_0*(\d+)_step_0*(\d+)$/, "epoch $1, step $2")])];
  const bound = (field) => fieldInput(field, `gallery-${field}`, { type: "number", step: "any", placeholder: field, ariaLabel: `score ${field}` });
  const sorts = [["", "as drawn"], ...scores.flatMap((name) => [[name, `${words(name)}, least first`], [`-${name}`, `${words(name)}, most first`]])];
  const size = h("input", { id: "size", type: "range", min: 80, max: 320, step: 20, value: gallery.size, oninput: (event) => {
    gallery.size = event.target.value;
    document.documentElement.style.setProperty("--sample", `${gallery.size}px`);
  } });
  return h("div", { className: "filters" }, h("div", { className: "controls" },
    labelled("Evaluation", DATA === null ? fieldChoice("epoch", "evaluation", epochs) : table.evaluation),
    labelled("Class", fieldChoice("class", "gallery-label", counted("label", classes))),
    labelled("Read as", fieldChoice("predicted", "gallery-predicted", counted("predicted"))),
    labelled("Reading", fieldChoice("reading", "right", [["", "all"], ["right", "right"], ["wrong", "wrong"]])),
    distinct("group").length ? labelled("Group", fieldChoice("group", "gallery-group", counted("group"))) : null,
    labelled("Id", fieldInput("id", "search", { type: "search" })),
    labelled("Score", fieldChoice("score", "score-filter", [["", "any"], ...scores.map((name) => [name, words(name)])])),
    bound("from"), bound("to"), labelled("Sort", fieldChoice("sort", "sort", sorts)), labelled("Size", size)),
  lookControls("gallery", table.targets));
}

// Rows of the table, as numbers, in the order that is asked for.
function chosenRows({ columns }) {
  const text = (name, i) => String(columns[name]?.[i]);
  const { score, from, to, sort, reading } = address;
  const bounded = columns[score] !== undefined && (from !== "" || to !== "");
  const inside = (value) => isNumber(value) && (from === "" || value >= Number(from)) && (to === "" || value <= Number(to));
  const equal = [["class", "label"], ["predicted", "predicted"], ["group", "group"]].filter(([field]) => address[field]);
  const kept = columns.sample_id.map((_, i) => i).filter((i) => equal.every(([field, name]) => text(name, i) === address[field]) &&
    (!address.id || columns.sample_id[i].includes(address.id)) &&
    (!reading || (text("label", i) === text("predicted", i)) === (reading === "right")) && (!bounded || inside(columns[score][i])));
  const name = sort.replace(/^-/, "");
  if (columns[name] === undefined) return kept;
  const sign = sort.startsWith("-") ? -1 : 1;
  // Samples without the score come last in either direction.
  const value = (i) => (isNumber(columns[name][i]) ? sign * columns[name][i] : Infinity);
  return kept.sort((one, other) => value(one) - value(other) || one - other);
}
