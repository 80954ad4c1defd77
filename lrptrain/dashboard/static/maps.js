// Relevance over an image, as lrptrain.render.overlay draws it, and over a text, as lrptrain.render.token_html does.

const GAP = 8; // pixels between an image and its map

function unpack(packed) {
  const bytes = atob(packed.values);
  const levels = new Float32Array(bytes.length);
  // The shifts give a byte its sign: 255 becomes -1, of 127ths.
  for (let i = 0; i < bytes.length; i++) levels[i] = ((bytes.charCodeAt(i) << 24) >> 24) / 127;
  return levels;
}

// The largest relevance of a map: of a text, that of a word, which is the sum over its pieces.
function peakOf(known, map) {
  if (map === null) return 0;
  return known.tokens ? Math.max(0, ...wordSums(known.words, map).map(Math.abs)) : map.peak;
}

function wordSums(all, map) {
  const levels = unpack(map);
  return all.map((word) => (word.scored ? map.peak * word.places.reduce((sum, place) => sum + levels[place], 0) : 0));
}

// Relevance at the picture's size in -1..1, 1 that of the full colour: the map's own largest, or a larger one of others.
function heatOf(map, grid, { width, height }, peak) {
  const { heat, largest } = upsampled(unpack(map), grid, width, height);
  // Between the centres of patches lies a little less than the largest of them.
  const full = peak > map.peak ? peak / map.peak : largest;
  if (full > 0) for (let i = 0; i < heat.length; i++) heat[i] /= full;
  return heat;
}

// Relevance at the picture's size, bilinear between patches' centres, and its largest magnitude.
function upsampled(levels, [rows, columns], width, height) {
  const heat = new Float32Array(width * height);
  let largest = 0;
  // For each pixel of an axis the two patches whose centres it lies between, and how far it is from the first to the
  // second, in 0..1: with 2 patches over 8 pixels, pixel 3 lies at 0.375 between patches 0 and 1.
  const places = (size, count) => Array.from({ length: size }, (_, i) => {
    const place = Math.min(Math.max(((i + 0.5) * count) / size - 0.5, 0), count - 1);
    const first = Math.min(Math.floor(place), Math.max(count - 2, 0));
    return [first, Math.min(first + 1, count - 1), place - first];
  });
  const [across, down] = [places(width, columns), places(height, rows)];
  for (let y = 0; y < height; y++) {
    const [top, bottom, v] = down[y];
    for (let x = 0; x < width; x++) {
      const [left, right, u] = across[x];
      const at = (row, column) => levels[row * columns + column];
      const value = (1 - v) * ((1 - u) * at(top, left) + u * at(top, right)) + v * ((1 - u) * at(bottom, left) + u * at(bottom, right));
      heat[y * width + x] = value;
      if (Math.abs(value) > largest) largest = Math.abs(value);
    }
  }
  return { heat, largest };
}

// Paint a picture from the column `left` on: as it is without `heat`, else in light greys below its colours.
// picture: its RGBA data, or null; mask: RGBA data or null; heat: see `heatOf`, or null
function paint(canvas, left, { width, height, data }, mask, heat, { opacity, threshold }) {
  const context = canvas.getContext("2d");
  const out = context.createImageData(width, height);
  const [darkest, lightest] = COLORS.greys;
  const lift = (lightest - darkest) / (3 * 255);
  for (let i = 0; i < width * height; i++) {
    const p = 4 * i;
    const strength = heat === null ? 0 : Math.abs(heat[i]);
    const color = heat !== null && heat[i] < 0 ? COLORS.negative : COLORS.positive;
    const alpha = strength >= threshold ? opacity * strength : 0;
    const grey = data === null ? lightest : darkest + lift * (data[p] + data[p + 1] + data[p + 2]);
    for (let c = 0; c < 3; c++) out.data[p + c] = heat === null ? data[p + c] : Math.round((1 - alpha) * grey + alpha * color[c]);
    out.data[p + 3] = 255;
  }
  if (mask !== null) outline(out.data, mask, width, height);
  context.putImageData(out, left, 0);
}

// A cyan line along the inner border of the evidence, black beside it: it shows on any ground.
function outline(data, mask, width, height) {
  const inside = (x, y) => x >= 0 && y >= 0 && x < width && y < height && mask[4 * (y * width + x)] > 191;
  const set = (x, y, color) => {
    if (x < 0 || y < 0 || x >= width || y >= height) return;
    const p = 4 * (y * width + x);
    [data[p], data[p + 1], data[p + 2]] = color;
  };
  const line = [];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (inside(x, y) && !(inside(x - 1, y) && inside(x + 1, y) && inside(x, y - 1) && inside(x, y + 1))) line.push([x, y]);
    }
  }
  // All black first: a cyan point must not be painted over by its neighbour's border.
  for (const [x, y] of line) for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) set(x + dx, y + dy, [0, 0, 0]);
  for (const [x, y] of line) set(x, y, [0, 255, 255]);
}

const pixelCache = new Map(); // the pixels of images by address, the latest 400

async function pixelsOf(url) {
  if (url === undefined) return null;
  if (!pixelCache.has(url)) {
    if (pixelCache.size >= 400) pixelCache.delete(pixelCache.keys().next().value);
    pixelCache.set(url, readPixels(url));
  }
  return pixelCache.get(url);
}

async function readPixels(url) {
  const image = new Image();
  image.src = url;
  try {
    await image.decode();
  } catch {
    return null;
  }
  // Small images are enlarged by whole pixels, as by lrptrain.render.enlarge.
  const factor = Math.max(1, Math.ceil(160 / Math.max(image.naturalWidth, image.naturalHeight)));
  const canvas = h("canvas", { width: factor * image.naturalWidth, height: factor * image.naturalHeight });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return { width: canvas.width, height: canvas.height, data: context.getImageData(0, 0, canvas.width, canvas.height).data };
}

// The text with its words coloured: red for relevance, blue for negative relevance; the rationale is underlined, and
// words that are not scored, such as [CLS], are grey. sums: relevance by word, or null; peak: that of the full colour
function highlighted(all, sums, peak, { mask, opacity, threshold }) {
  const place = h("p", { className: "tokens", dir: "auto" });
  all.forEach((word, i) => {
    if (word.space) place.append(" ");
    const level = sums === null || !(peak > 0) ? 0 : sums[i] / peak;
    const pieces = word.places.length > 1 ? `, ${word.places.length} pieces` : "";
    const piece = h("span", { title: word.scored ? `${level.toFixed(2)}${pieces}` : "not scored" }, word.text);
    const alpha = Math.abs(level) >= threshold ? Math.abs(level) * opacity : 0;
    if (word.scored) piece.style.backgroundColor = `rgba(${level > 0 ? COLORS.positive : COLORS.negative},${alpha.toFixed(3)})`;
    else Object.assign(piece, { className: "special", dir: "auto" }); // not the first letter of [CLS] says which way a text runs
    if (mask && word.evidence) piece.classList.add("rationale");
    place.append(piece);
  });
  return place;
}
