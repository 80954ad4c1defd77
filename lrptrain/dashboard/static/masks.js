// Seeds, refined seeds, pseudo-masks and true masks beside their images: filtered, page by page.

const MASK_KINDS = { image: "image", seeds: "seeds", refined: "refined seeds", mask: "pseudo-mask", truth: "ground truth" };
const IGNORED = [224, 224, 192]; // the colour of 255 in a mask
const MOST_IN_LEGEND = 30;
const masking = { behind: true, width: "560", draw: null };

async function masksView(run) {
  const place = h("div", { id: "masks" });
  masking.draw = () => drawMasks(run, place);
  await masking.draw();
  return place;
}

watch([...MASK_FILTERS, "sort", "page"], () => document.getElementById("masks") && masking.draw());

// Asks anew each time: an export grows while it is written.
async function drawMasks(run, place) {
  const asked = ++drawMasks.last;
  await fillIn(place, async () => {
    const { split, status, sort } = address;
    const found = await ask("masks", { run, export: address.export, class: address.maskclass, split, status, sort, page: Math.max(0, (Number(address.page) || 1) - 1) });
    return asked === drawMasks.last ? maskList(run, found, place) : undefined; // something else was asked for meanwhile
  });
}
drawMasks.last = 0;

function maskList(run, found, place) {
  if (found.export === null) {
    return h("div", {}, noteList(found.notes) || "", h("p", { className: "empty" },
      "This run has exported no masks. SegmentationSeeds() among the trainer's callbacks does, and lrptrain segment. Annotations are shown with the samples."));
  }
  const kinds = Object.keys(MASK_KINDS).filter((kind) => kind !== "truth" || found.rows.some((row) => row.pictures.includes(kind)));
  const cards = found.rows.map((row) => maskCard(run, found, row, kinds));
  place.style.setProperty("--masks", `${masking.width}px`);
  place.classList.toggle("plain", !masking.behind);
  return h("div", {}, maskCounts(found), noteList(found.notes) || "", maskFilters(found, place), maskLegend(found), maskPager(found),
    h("div", { className: "masks" }, cards.length ? cards : h("p", { className: "empty" }, "No image is left by these filters.")));
}

function maskCounts({ counts, scores }) {
  const { done = 0, skipped = 0 } = counts.status;
  const reasons = Object.entries(counts.reason).map(([reason, count]) => `${count} ${reason || "without a reason"}`);
  const means = Object.entries(scores).map(([split, own]) => h("div", { className: "muted" }, `Mean IoU on ${split}: `,
    Object.entries(own).map(([kind, mean]) => `${MASK_KINDS[kind]} ${percent(mean)}`).join(", "), "mask" in own ? " (without its ignored pixels)" : ""));
  return h("div", { id: "mask-counts", className: "told" }, h("div", {}, `${done} of ${plural(done + skipped, "image")} done`,
    skipped ? `, ${skipped} skipped: ${reasons.join("; ")}` : ""), means);
}

function maskFilters({ exports, classes, counts, scores }, place) {
  const scored = ["mask", "refined", "seeds"].filter((kind) => Object.values(scores).some((own) => kind in own));
  const sorts = [["", "by name"], ...scored.flatMap((kind) => [[kind, `IoU of the ${MASK_KINDS[kind]}, least first`], [`-${kind}`, `IoU of the ${MASK_KINDS[kind]}, most first`]])];
  const counted = (kind, text = (key) => key) => [["", "all"], ...Object.entries(counts[kind]).map(([key, count]) => [key, `${text(key)} (${count})`])];
  const behind = h("input", { id: "behind", type: "checkbox", checked: masking.behind, onchange: (event) => {
    masking.behind = event.target.checked;
    place.classList.toggle("plain", !masking.behind);
  } });
  const width = h("input", { id: "mask-size", type: "range", min: 420, max: 1460, step: 40, value: masking.width, oninput: (event) => {
    masking.width = event.target.value;
    place.style.setProperty("--masks", `${masking.width}px`);
  } });
  const own = DATA !== null ? [] : [ // a report has one page only
    exports.length > 1 ? labelled("Export", fieldChoice("export", "mask-export", exports.map((name, i) => [i === 0 ? "" : name, name === "." ? "end" : name]))) : null,
    labelled("Split", fieldChoice("split", "mask-split", counted("split"))),
    labelled("Class", fieldChoice("maskclass", "mask-class", counted("class", (key) => classes[key]?.name ?? `class ${key}`))),
    labelled("Status", fieldChoice("status", "mask-status", counted("status"))),
    Object.keys(scores).length ? labelled("Sort", fieldChoice("sort", "mask-sort", sorts)) : null];
  return h("div", { className: "controls" }, own, labelled("Size", width),
    h("label", { className: "control" }, behind, " ", h("span", {}, "image behind the masks")));
}

// All classes, or where they are many those of this page.
function maskLegend({ classes, rows }) {
  const here = new Set(rows.flatMap((row) => row.classes));
  const shown = classes.filter((_, number) => classes.length <= MOST_IN_LEGEND || here.has(number));
  return h("div", { className: "legend" }, h("span", {}, h("span", { className: "swatch background" }), "background"),
    shown.map((own) => h("span", {}, swatchOf(own.color), own.name)), h("span", {}, h("span", { className: "swatch ignored" }), "ignored"));
}

function maskPager(found) {
  const turn = (by) => h("button", { type: "button", id: by < 0 ? "masks-back" : "masks-on",
    disabled: DATA !== null || (by < 0 ? found.page === 0 : found.page === found.pages - 1),
    onclick: () => go({ page: String(found.page + 1 + by) }) }, by < 0 ? "‹ previous" : "next ›");
  const text = DATA !== null ? `the first ${found.rows.length} of ${plural(found.found, "image")}: lrptrain dashboard shows all`
    : `${plural(found.found, "image")}, page ${found.page + 1} of ${found.pages}`;
  return h("div", { className: "pager" }, DATA === null ? turn(-1) : null, h("span", { id: "mask-count" }, text), DATA === null ? turn(1) : null);
}

function maskCard(run, found, row, kinds) {
  const named = row.classes.map((number) => found.classes[number]).filter(Boolean);
  const about = row.status === "skipped" ? h("span", { className: "muted" }, h("span", { className: "badge" }, "skipped"), ` ${row.reason}`)
    : h("span", {}, named.map((own) => h("span", { className: "named" }, swatchOf(own.color), own.name)));
  const pictures = row.status === "skipped" && !row.pictures.length ? null
    : h("div", { className: "beside-masks" }, kinds.map((kind) => maskFigure(run, found, row, kind)));
  return h("article", { className: "finding" }, h("header", {}, h("strong", {}, row.title), about,
    h("span", { className: "muted" }, `${row.split}, ${row.size[1]} × ${row.size[0]}`)), pictures);
}

function maskFigure(run, { export: exported }, row, kind) {
  const text = MASK_KINDS[kind];
  const url = (own) => maskUrl(run, exported, own, row.name);
  const body = h("div", { className: "stack" });
  const lacking = (why) => body.replaceChildren(h("p", { className: "empty" }, why));
  if (!row.pictures.includes(kind)) lacking(kind === "truth" ? "not known" : "no file");
  else if (kind === "image") body.append(h("img", { src: url("image"), alt: `${text} of ${row.title}`, onerror: () => lacking("cannot be read") }));
  else {
    const canvas = h("canvas", { role: "img", ariaLabel: `${text} of ${row.title}` });
    const mask = h("img", { onload: () => paintMask(canvas, mask), onerror: () => lacking("cannot be read") });
    body.append(row.pictures.includes("image") ? h("img", { src: url("image"), alt: "" }) : "", canvas);
    mask.src = url(kind);
  }
  const iou = row.iou[kind];
  return h("figure", {}, body, h("figcaption", {}, text, isNumber(iou) ? h("span", { className: "iou" }, term("iou", "IoU"), ` ${percent(iou)}`) : ""));
}

// The mask in its colours: the background lets the image through, and what is ignored is hatched in grey.
function paintMask(canvas, mask) {
  const [width, height] = [mask.naturalWidth, mask.naturalHeight];
  Object.assign(canvas, { width, height });
  canvas.classList.toggle("coarse", width < 200);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(mask, 0, 0);
  const pixels = context.getImageData(0, 0, width, height);
  // The background is black in VOC's palette and becomes transparent; ignored pixels become diagonal stripes.
  const period = Math.max(4, Math.round(width / 18));
  for (let i = 0; i < width * height; i += 1) {
    const [red, green, blue] = pixels.data.subarray(4 * i, 4 * i + 3);
    if (red + green + blue === 0) pixels.data[4 * i + 3] = 0;
    else if (red === IGNORED[0] && green === IGNORED[1] && blue === IGNORED[2]) {
      const stripe = ((i % width) + Math.floor(i / width)) % period < period / 2;
      pixels.data.fill(stripe ? 190 : 115, 4 * i, 4 * i + 3);
    }
  }
  context.putImageData(pixels, 0, 0);
}
