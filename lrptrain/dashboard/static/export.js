// What the filters leave, to take along: all of its rows as CSV, the page that is shown as PNG.

const EXPORTED = { text: 900, image: 360, gap: 16, font: 13, line: 18, most: 6 }; // pixels, and images in a row

function exportControls(run, table, rows) {
  const name = `${shortName(run)}_${table.evaluation}`.replace(/[^\w.-]+/g, "_");
  const csv = h("button", { type: "button", id: "export-csv", title: `The scores of ${plural(rows.length, "sample")}, as a table`,
    onclick: () => download(new Blob([samplesAsCsv(run, table, rows)], { type: "text/csv" }), `${name}.csv`) }, "CSV");
  const png = h("button", { type: "button", id: "export-png", title: "The samples of this page, as a picture",
    onclick: () => galleryPicture(run, table).toBlob((blob) => download(blob, `${name}.png`)) }, "PNG");
  return h("span", { className: "export" }, "Save as ", csv, " ", png);
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
  return line(["run", "evaluation", ...names]) + rows.map((i) => line([run, evaluation, ...names.map((name) => columns[name][i])])).join("");
}

// Black on white, whatever the page's colours are: for a document.
function galleryPicture(run, table) {
  const figures = [...gallery.place.querySelectorAll("figure.sample")];
  const isText = figures.some((figure) => figure.classList.contains("text"));
  const { gap, line } = EXPORTED;
  const width = isText ? EXPORTED.text : EXPORTED.image;
  const columns = isText ? 1 : Math.max(1, Math.min(EXPORTED.most, figures.length));
  const canvas = h("canvas", { width: columns * (width + gap) + gap, height: 1 });
  const draw = (context) => {
    context.font = `${EXPORTED.font}px sans-serif`;
    context.textBaseline = "top";
    let top = gap + drawWords(context, [{ text: `${shortName(run)}, ${words(table.evaluation)}` }], gap, gap, canvas.width - 2 * gap);
    for (let first = 0; first < figures.length; first += columns) {
      const heights = figures.slice(first, first + columns).map((figure, i) => drawFigure(context, figure, gap + i * (width + gap), top, width));
      top += Math.max(...heights) + gap;
    }
    return top;
  };
  // Once to know how high it becomes, and once to keep.
  canvas.height = Math.min(16_000, Math.ceil(draw(canvas.getContext("2d")) + line));
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  draw(context);
  return canvas;
}

// Returns the height.
function drawFigure(context, figure, left, top, width) {
  const picture = figure.querySelector("canvas");
  const tokens = figure.querySelector(".tokens");
  let height = 0;
  if (picture !== null) {
    height = Math.round((width * picture.height) / picture.width);
    context.drawImage(picture, left, top, width, height);
  } else if (tokens !== null) {
    const pieces = [...tokens.childNodes].map((node) => ({ text: node.textContent, ground: node.style?.backgroundColor }));
    height = drawWords(context, pieces, left, top, width);
  }
  const caption = [{ text: figure.querySelector("figcaption").textContent.trim() }];
  return height + 4 + drawWords(context, caption, left, top + height + 4, width);
}

// Words from left to right, on their grounds, in as many lines as they need; returns the height.
function drawWords(context, pieces, left, top, width) {
  const { line } = EXPORTED;
  let [x, y] = [left, top];
  for (const { text, ground } of pieces) {
    for (const word of text.split(/(?<=\s)/)) {
      const size = context.measureText(word).width;
      if (x > left && x + size > left + width) [x, y] = [left, y + line];
      if (ground) {
        context.fillStyle = ground;
        context.fillRect(x, y - 2, size, line - 1);
      }
      context.fillStyle = "#000";
      context.fillText(word, x, y);
      x += size;
    }
  }
  return y + line - top;
}
