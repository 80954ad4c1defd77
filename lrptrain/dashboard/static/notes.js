// What people write: notes on samples, whose words with a # are tags, and views of samples by a name. They lie in the
// folder of the run; a report shows them.

async function keepNote(run, kind, name, text) {
  const answer = await fetch(`/api/note?${new URLSearchParams({ run })}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ kind, name, text }) })
    .catch((error) => ({ ok: false, text: () => error.message }));
  if (!answer.ok) return say(await answer.text(), true);
  for (const key of runs.get(run).asked.keys()) if (key.startsWith('["notes"')) runs.get(run).asked.delete(key);
  return render();
}

function tagsOf(notes) {
  return [...new Set(Object.values(notes).flatMap((text) => text.match(/#[\p{L}\p{N}_-]+/gu) ?? []))].sort(COLLATOR.compare);
}

// The note on a sample, to be written or, in a report, read.
function noteField(run, id, text) {
  if (DATA !== null) return text ? h("p", { className: "note" }, text) : "";
  return h("p", {}, labelled("Note", h("input", { id: "note", type: "text", value: text, placeholder: "words, and #tags to filter by", maxLength: 2000,
    onchange: (event) => keepNote(run, "samples", id, event.target.value.trim()) })));
}

// Views that were kept: all of the address but for the run, so that they hold wherever the run lies.
function viewLinks(run, views) {
  const names = Object.keys(views).sort(COLLATOR.compare);
  const drop = (name) => h("button", { type: "button", className: "link drop", ariaLabel: `Remove the view ${name}`, onclick: () => keepNote(run, "views", name, "") }, "×");
  return names.length ? h("div", { className: "controls", id: "saved-views" }, h("span", { className: "control" }, "Views"), names.map((name) => h("span", {},
    h("a", { href: addressOf({ ...FIELDS, ...parseAddress(views[name]), view: "samples", run: [run] }) }, name), DATA === null ? drop(name) : ""))) : "";
}

function viewKeeper(run) {
  if (DATA !== null) return "";
  const name = h("input", { id: "view-name", type: "text", placeholder: "a name for this view", ariaLabel: "name of this view", maxLength: 100 });
  const keep = () => name.value.trim() && keepNote(run, "views", name.value.trim(), addressOf({ run: [], sample: "", page: "" }));
  return h("div", { className: "controls" }, name, h("button", { type: "button", id: "save-view", onclick: keep }, "Save view"));
}
