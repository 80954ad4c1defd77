// The same samples in several runs, beside each other.

// Further runs of the address that stand beside the first one.
function besideRuns(run) {
  return address.run.slice(1).map(runNamed).filter((name, i, all) => name !== null && name !== run && all.indexOf(name) === i);
}

function besideControls(run) {
  const beside = besideRuns(run);
  const others = [...runs.keys()].filter((name) => name !== run && !beside.includes(name));
  if (!others.length && !beside.length) return null;
  const set = (names) => go({ run: [run, ...names] }, true);
  const chips = beside.map((name) => h("button", { type: "button", className: "chip", ariaLabel: `Take ${shortName(name)} away`,
    onclick: () => set(beside.filter((own) => own !== name)) }, swatchOf(colorOf(name)), `${shortName(name)} ×`));
  return h("span", { className: "beside-runs" }, others.length ? labelled("Compare with", searchable("beside", [["", "no other run"], ...others.map((name) => [name, shortName(name)])], "", (name) => name && set([...beside, name]))) : null, chips);
}

// What is needed to show samples of the ids in other runs: by run, the rows of its table and its cards.
async function besideCards(run, table, ids) {
  const found = await Promise.all(besideRuns(run).map(async (name) => {
    const other = await tableOf(name);
    const places = new Map((other.columns.sample_id || []).map((id, i) => [id, i]));
    // Of the same label: samples of other data may have the same ids.
    const same = ids.filter((id) => places.has(id) && other.columns.label?.[places.get(id)] === table.columns.label?.[table.columns.sample_id.indexOf(id)]);
    const { cards } = same.length ? await askOnce(name, "cards", { evaluation: other.evaluation, id: same }) : { cards: {} };
    return [name, { table: other, places, cards, same: new Set(same) }];
  }));
  return new Map(found);
}

// A sample's card, with its cards in other runs.
function besideRow(card, run, table, id, others) {
  // Which epoch: the runs may have stopped at different ones.
  const column = (name, { evaluation, names }, view) => h("div", { className: "in-run" }, h("p", { className: "run-name" }, swatchOf(colorOf(name)),
    evaluation === null ? shortName(name) : `${shortName(name)}, epoch ${epochText(evaluation, names)}`), view);
  return h("div", { className: "beside-row" }, column(run, table, card), [...others].map(([name, { table: other, places, cards, same }]) => column(name, other,
    !same.has(id) ? h("p", { className: "empty" }, "not in this run") : galleryCard(name, other, places.get(id), cards[id]))));
}
