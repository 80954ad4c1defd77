// The gallery: the samples of one evaluation, filtered, sorted, page by page.

const gallery = { size: "160", run: null, table: null, place: null, notes: {} };
const PER_PAGE = 24;

function rowOf(columns, i) {
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column[i]]));
}

// The name that the server has for the evaluation of the address; null for the latest one.
function evaluationName(run) {
  const [, epoch, step] = address.epoch.match(/^(\d+)(?:-(\d+))?$/) ?? [];
  if (epoch === undefined) return null;
  const event = eventsOf(run).findLast((own) => own.epoch === Number(epoch) && (step === undefined || own.step === Number(step)));
  return `epoch_${epoch.padStart(4, "0")}_step_${String(event?.step ?? step ?? 0).padStart(6, "0")}`;
}

// What the address says of an evaluation: its epoch, and the step where an epoch has several.
function epochText(name, names) {
  const parts = (own) => own.match(/^epoch_0*(\d+)_step_0*(\d+)$/).slice(1);
  const [epoch, step] = parts(name);
  return names.filter((own) => parts(own)[0] === epoch).length > 1 ? `${epoch}-${step}` : epoch;
}

// The table of the samples that the address asks for.
async function tableOf(run) {
  const wanted = evaluationName(run);
  const table = await askOnce(run, "table", { evaluation: wanted });
  if (wanted === null || table.evaluation === wanted) return table;
  const latest = DATA === null ? await askOnce(run, "table", { evaluation: null }) : table;
  const note = DATA === null ? `There is no table of epoch ${address.epoch}: this is the latest one.` : `This report holds the samples of its last evaluation, not of epoch ${address.epoch}.`;
  return { ...latest, notes: [note, ...table.notes, ...latest.notes] };
}

async function samplesView(run) {
  const table = await tableOf(run);
  if (table.evaluation === null) {
    return h("div", {}, noteList(table.notes) || "", h("p", { className: "empty" }, "No table of samples was written yet: the first one is there after the first evaluation."));
  }
  const place = h("div", { id: "found" }); // its own: the view may be asked for again meanwhile, with another
  Object.assign(gallery, { run, table, place });
  const { samples, views, notes } = await askOnce(run, "notes");
  gallery.notes = samples;
  await drawGallery();
  return h("div", {}, noteList([...table.notes, ...notes]) || "", viewLinks(run, views), filters(run, table), h("div", { className: "explored" }, plotsOf(run, table), place));
}

watch([...FILTERS, "sort", "page", "target"], (changed) => gallery.place !== null &&
  drawGallery(changed.some((name) => FILTERS.includes(name))).catch((error) => redraw(gallery.place, problem(error))));

// filtered: whether other samples are left than before, which the plots show, too.
async function drawGallery(filtered = true) {
  const { run, table, place } = gallery;
  if (filtered) plotsOf.draw();
  const rows = chosenRows(table);
  const pages = Math.max(1, Math.ceil(rows.length / PER_PAGE));
  // The address counts pages from 1.
  const page = Math.min(Math.max(Math.floor(Number(address.page) || 1), 1), pages);
  const shown = rows.slice((page - 1) * PER_PAGE, page * PER_PAGE);
  const turn = (id, by, text) => h("button", { type: "button", id, disabled: page + by < 1 || page + by > pages,
    onclick: () => go({ page: String(page + by) }) }, text);
  const asked = ++drawGallery.last; // answers may arrive in another order than they were asked for
  const ids = shown.map((i) => table.columns.sample_id[i]);
  await fillIn(place, async () => {
    const { cards, notes } = ids.length ? await askOnce(run, "cards", { evaluation: table.evaluation, id: ids }) : { cards: {}, notes: [] };
    const others = await besideCards(run, table, ids);
    if (asked !== drawGallery.last) return undefined; // something else was asked for meanwhile
    const card = (i) => galleryCard(run, table, i, cards[table.columns.sample_id[i]]);
    const views = shown.map((i) => (others.size ? besideRow(card(i), run, table, table.columns.sample_id[i], others) : card(i)));
    const isText = views.some((view) => view.querySelector(".text"));
    const isAlone = views.length > 0 && !Object.values(cards).some((known) => known.image); // maps without their images
    const kind = `gallery${isAlone ? " alone" : ""}${isText ? " texts" : ""}${others.size ? " compared" : ""}`;
    const shownGallery = h("div", { className: kind }, views.length ? views : noSample());
    shownGallery.style.setProperty("--runs", 1 + others.size);
    return h("div", {}, h("div", { className: "pager" }, turn("page-back", -1, "‹ previous"), h("span", { id: "count" },
      `${plural(rows.length, "sample")} of ${table.columns.sample_id.length}, page ${page} of ${pages}`), turn("page-on", 1, "next ›"),
      rows.length ? exportControls(run, table, rows) : "", colourBar()),
    noteList([...notes, ...[...others].flatMap(([name, other]) => other.table.notes.map((note) => `${shortName(name)}: ${note}`))]) || "", shownGallery);
  });
}
drawGallery.last = 0;

function noSample() {
  return h("p", { className: "empty" }, "No sample is left by these filters. ",
    h("a", { href: addressOf(NO_FILTER) }, "Clear the filters"));
}

// Whose share on the annotation belongs to the maps that are shown: those of single classes have none.
function scoredTarget({ columns }) {
  if (address.target !== "label" || columns.label_energy_pointing_game !== undefined) return address.target;
  return "predicted"; // whose maps stand in; see `chosenMap`
}

function galleryCard(run, table, i, known) {
  const row = rowOf(table.columns, i);
  const id = row.sample_id;
  const label = isLabelled(table.columns, i) ? `${row.label} ` : "";
  const own = (name) => h("bdi", {}, String(name)); // a name from right to left leaves the rest in its order
  const read = isWrong(table.columns, i) || !label ? [label ? own(row.label) : "", `${label ? " " : ""}predicted as `, own(row.predicted ?? "?")] : own(row.label);
  const focus = row[`${scoredTarget(table)}_energy_pointing_game`];
  const caption = h("span", {}, h("b", { className: isWrong(table.columns, i) ? "wrong" : "" }, read),
    h("span", { className: "muted" }, ` ${percent(row.probability)}${isNumber(focus) ? ` · ${percent(focus)} on annotation` : ""} · #${id}`));
  const view = known === undefined
    ? h("figure", { className: "sample bare" }, h("div", { className: "body" }, h("p", { className: "empty" }, "no map here")), h("figcaption", {}, caption))
    : sampleView(run, id, known, () => chosenMap(known.maps), caption);
  view.redraw ||= () => {};
  if (gallery.run === run && gallery.notes[id]) caption.append(h("div", { className: "note" }, gallery.notes[id]));
  return openable(id, view);
}

// A sample's picture that opens it.
function openable(id, view) {
  return h("button", { type: "button", key: `sample-${id}`, className: "open", title: "Open", onclick: () => go({ sample: id }) }, view);
}
