// The gallery: the samples of one evaluation, filtered, sorted, page by page.

const gallery = { evaluation: "", label: "", predicted: "", group: "", right: "", search: "", score: "", from: "", to: "",
  sort: "", size: "160", page: 0 };
const PER_PAGE = 24;

function rowOf(columns, i) {
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column[i]]));
}

function samplesView(run) {
  const place = h("div", {}, h("p", { className: "empty" }, "reading ..."));
  const fill = async () => {
    const table = await askOnce(run, "table", { evaluation: DATA === null ? gallery.evaluation || null : null });
    if (table.evaluation === null && gallery.evaluation) {
      gallery.evaluation = "";
      return fill();
    }
    if (table.evaluation === null) {
      place.replaceChildren(noteList(table.notes) || "", h("p", { className: "empty" }, "No table of samples was written yet."));
      return undefined;
    }
    const found = h("div");
    place.replaceChildren(noteList(table.notes) || "", filters(run, table, () => { gallery.page = 0; drawPage(run, table, found); }, fill), found);
    return drawPage(run, table, found);
  };
  fill().catch((error) => place.replaceChildren(h("p", { className: "empty" }, String(error.message))));
  return place;
}

function filters(run, table, changed, otherEvaluation) {
  const { columns } = table;
  const set = (key, done = changed) => (value) => { gallery[key] = value; done(); };
  const distinct = (name) => [...new Set((columns[name] || []).filter((value) => value !== null))].sort((a, b) => String(a).localeCompare(String(b), undefined, { numeric: true }));
  const counted = (name, extra = []) => [["", "all"], ...[...new Set([...distinct(name), ...extra].map(String))].map((value) =>
    [value, `${value} (${(columns[name] || []).filter((own) => String(own) === value).length})`])];
  const classes = (runs.get(run).about.settings.class_names || []).map(String).slice(0, 200);
  const scores = Object.keys(columns).filter((name) => columns[name].some(isNumber) && !["label", "predicted", "group"].includes(name));
  for (const key of ["label", "predicted", "group"]) if (gallery[key] && !distinct(key).map(String).includes(gallery[key]) && !classes.includes(gallery[key])) gallery[key] = "";
  for (const key of ["score", "sort"]) if (!scores.includes(gallery[key].replace(/^-/, ""))) gallery[key] = "";
  const epochs = [["", "latest"], ...table.names.slice().reverse().map((name) => [name, name.replace(/^epoch_0*(\d+)_step_0*(\d+)$/, "epoch $1, step $2")])];
  const bound = (key, text) => h("input", { id: `gallery-${key}`, type: "number", step: "any", placeholder: text, value: gallery[key], ariaLabel: text,
    oninput: (event) => set(key)(event.target.value) });
  const sorts = [["", "as drawn"], ...scores.flatMap((name) => [[name, `${words(name)}, least first`], [`-${name}`, `${words(name)}, most first`]])];
  const size = h("input", { id: "size", type: "range", min: 80, max: 320, step: 20, value: gallery.size, oninput: (event) => {
    gallery.size = event.target.value;
    document.documentElement.style.setProperty("--sample", `${gallery.size}px`);
  } });
  return h("div", { className: "filters" }, h("div", { className: "controls" },
    labelled("Evaluation", DATA === null ? choice("evaluation", epochs, gallery.evaluation, set("evaluation", otherEvaluation)) : table.evaluation),
    labelled("Class", choice("gallery-label", counted("label", classes), gallery.label, set("label"))),
    labelled("Read as", choice("gallery-predicted", counted("predicted"), gallery.predicted, set("predicted"))),
    labelled("Reading", choice("right", [["", "all"], ["right", "right"], ["wrong", "wrong"]], gallery.right, set("right"))),
    distinct("group").length ? labelled("Group", choice("gallery-group", counted("group"), gallery.group, set("group"))) : null,
    labelled("Id", h("input", { id: "search", type: "search", value: gallery.search, oninput: (event) => set("search")(event.target.value) })),
    labelled("Score", choice("score-filter", [["", "any"], ...scores.map((name) => [name, words(name)])], gallery.score, set("score"))),
    bound("from", "from"), bound("to", "to"), labelled("Sort", choice("sort", sorts, gallery.sort, set("sort"))), labelled("Size", size)),
  lookControls(table.targets, redrawAll));
}

function chosenRows({ columns }) {
  const text = (name, i) => String(columns[name]?.[i]);
  const { score, from, to, sort } = gallery;
  const inside = (value) => (from === "" || value >= Number(from)) && (to === "" || value <= Number(to));
  const kept = columns.sample_id.map((_, i) => i).filter((i) =>
    (!gallery.label || text("label", i) === gallery.label) && (!gallery.predicted || text("predicted", i) === gallery.predicted) &&
    (!gallery.group || text("group", i) === gallery.group) && (!gallery.search || columns.sample_id[i].includes(gallery.search)) &&
    (!gallery.right || (text("label", i) === text("predicted", i)) === (gallery.right === "right")) &&
    (!score || (from === "" && to === "") || (isNumber(columns[score][i]) && inside(columns[score][i]))));
  if (!sort) return kept;
  const name = sort.replace(/^-/, "");
  const sign = sort.startsWith("-") ? -1 : 1;
  // Samples without the score come last in either direction.
  const value = (i) => (isNumber(columns[name][i]) ? sign * columns[name][i] : Infinity);
  return kept.sort((one, other) => value(one) - value(other) || one - other);
}

async function drawPage(run, table, place) {
  const rows = chosenRows(table);
  const pages = Math.max(1, Math.ceil(rows.length / PER_PAGE));
  gallery.page = Math.min(gallery.page, pages - 1);
  const shown = rows.slice(gallery.page * PER_PAGE, (gallery.page + 1) * PER_PAGE);
  const turn = (by) => h("button", { type: "button", disabled: by < 0 ? gallery.page === 0 : gallery.page === pages - 1,
    onclick: () => { gallery.page += by; drawPage(run, table, place); } }, by < 0 ? "‹ previous" : "next ›");
  const asked = ++drawPage.last; // answers may arrive in another order than they were asked for
  const ids = shown.map((i) => table.columns.sample_id[i]);
  const { cards, notes } = ids.length ? await askOnce(run, "cards", { evaluation: table.evaluation, id: ids }) : { cards: {}, notes: [] };
  if (asked !== drawPage.last) return; // something else was asked for meanwhile
  const views = shown.map((i) => galleryCard(run, table, i, cards[table.columns.sample_id[i]]));
  const kind = views.some((view) => view.querySelector(".text")) ? "gallery texts" : "gallery";
  place.replaceChildren(h("div", { className: "pager" }, turn(-1), h("span", { id: "count" },
    `${plural(rows.length, "sample")} of ${table.columns.sample_id.length}, page ${gallery.page + 1} of ${pages}`), turn(1)),
  noteList(notes) || "", h("div", { className: kind }, views.length ? views : h("p", { className: "empty" }, "No sample is left by these filters.")));
}
drawPage.last = 0;

function galleryCard(run, table, i, known) {
  const row = rowOf(table.columns, i);
  const id = row.sample_id;
  const read = row.label === row.predicted ? `${row.label ?? "?"}` : `${row.label ?? "?"} read as ${row.predicted}`;
  const focus = row.label_energy_pointing_game ?? row.predicted_energy_pointing_game;
  const caption = h("span", {}, h("b", { className: row.label === row.predicted || row.label === "?" ? "" : "wrong" }, read),
    h("span", { className: "muted" }, ` ${percent(row.probability)}${isNumber(focus) ? ` · ${percent(focus)} on it` : ""} · #${id}`));
  const view = known === undefined
    ? h("figure", { className: "sample bare" }, h("div", { className: "body" }, h("p", { className: "empty" }, "no map here")), h("figcaption", {}, caption))
    : sampleView(run, id, known, () => chosenMap(known.maps), caption);
  view.redraw ||= () => {};
  return h("button", { type: "button", className: "open", title: "Open", onclick: () => openSample(run, id, table.evaluation, row) }, view);
}
