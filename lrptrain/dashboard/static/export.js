// What the filters leave, to take along: all of its rows as CSV.

function exportControls(run, table, rows) {
  const name = `${shortName(run)}_${table.evaluation}`.replace(/[^\w.-]+/g, "_");
  return h("button", { type: "button", id: "export-csv", title: `The scores and notes of ${plural(rows.length, "sample")}, as a table`,
    onclick: () => download(new Blob([samplesAsCsv(run, table, rows)], { type: "text/csv" }), `${name}.csv`) }, "Save as CSV");
}

function download(content, name) {
  const url = URL.createObjectURL(content);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// As RFC 4180 has it: what holds a comma, a quote or an end of line stands in quotes, and quotes are doubled.
function samplesAsCsv(run, { columns, evaluation }, rows) {
  const names = Object.keys(columns);
  // A spreadsheet would compute a name that begins like a formula: an apostrophe says that it is text.
  const text = (value) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value));
  const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const field = (value) => (value === null || value === undefined ? "" : quoted(text(value)));
  const line = (values) => `${values.map(field).join(",")}\r\n`;
  const noted = Object.keys(gallery.notes).length > 0;
  return line(["run", "evaluation", ...names, ...(noted ? ["note"] : [])]) +
    rows.map((i) => line([run, evaluation, ...names.map((name) => columns[name][i]), ...(noted ? [gallery.notes[columns.sample_id[i]]] : [])])).join("");
}
