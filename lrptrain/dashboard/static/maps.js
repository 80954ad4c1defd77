// Relevance over an image, as lrptrain.render.overlay draws it, and over a text.

function unpack(packed) {
  const bytes = atob(packed.values);
  const levels = new Float32Array(bytes.length);
  // The shifts give a byte its sign: 255 becomes -1, of 127ths.
  for (let i = 0; i < bytes.length; i++) levels[i] = ((bytes.charCodeAt(i) << 24) >> 24) / 127;
  return levels;
}

// Relevance at the picture's size, bilinear between patches' centres, its largest magnitude 1.
function upsampled(levels, [rows, columns], width, height) {
  const heat = new Float32Array(width * height);
  let peak = 0;
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
      if (Math.abs(value) > peak) peak = Math.abs(value);
    }
  }
  if (peak > 0) for (let i = 0; i < heat.length; i++) heat[i] /= peak;
  return heat;
}

const colorTable = (digits) => Uint8Array.from(digits.match(/../g), (pair) => parseInt(pair, 16));
const HOT = colorTable(COLORS.hot); // for the class
const COLD = colorTable(COLORS.cold); // against it
const GREY = 0.6; // an orange thing must not look like relevance

// picture, mask: RGBA data or null; heat: see `upsampled`, or null
function paint(canvas, picture, mask, heat, opacity) {
  const { width, height } = canvas;
  const context = canvas.getContext("2d");
  const out = context.createImageData(width, height);
  const grey = heat === null ? 0 : GREY * Math.min(1, opacity / 0.75);
  // Stronger relevance is both brighter and more opaque; below it the picture turns grey by a fixed part.
  for (let i = 0; i < width * height; i++) {
    const strength = heat === null ? 0 : Math.abs(heat[i]);
    const table = heat !== null && heat[i] < 0 ? COLD : HOT;
    const color = 3 * Math.round(255 * strength);
    const alpha = opacity * strength;
    const p = 4 * i;
    const base = picture === null ? [90, 90, 90] : [picture[p], picture[p + 1], picture[p + 2]];
    const mean = (grey * (base[0] + base[1] + base[2])) / 3;
    for (let c = 0; c < 3; c++) out.data[p + c] = (1 - alpha) * ((1 - grey) * base[c] + mean) + alpha * table[color + c];
    out.data[p + 3] = 255;
  }
  if (mask !== null) outline(out.data, mask, width, height);
  context.putImageData(out, 0, 0);
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

const SPECIAL = /^(\[[A-Z]+\]|<[^<>\s]+>)$/;
const CLOSING = /^[.,!?;:%)\]}]+$/;

// A token without the tokenizer's marks.
function plainToken(token) {
  return token.replace(/^[Ġ▁]+/, "").replace(/^##(?=.)/, "").replaceAll("Ċ", "↵");
}

// The text with its tokens coloured: red for relevance, blue for negative relevance; the rationale is underlined, and
// tokens that are not scored, such as [CLS], are grey.
function highlighted({ tokens, scored, annotation }, levels, { mask, opacity }) {
  const marked = tokens.some((token) => token !== null && /^[Ġ▁]/.test(token));
  const place = h("p", { className: "tokens" });
  let before = null; // whether the token before was special; null at the start
  tokens.forEach((token, i) => {
    if (token === null) return;
    const special = SPECIAL.test(token);
    const starts = marked ? /^[Ġ▁]/.test(token) : !token.startsWith("##") && !CLOSING.test(token);
    if (before !== null && (special || before || starts)) place.append(" ");
    before = special;
    const level = !scored[i] || levels === null || !isNumber(levels[i]) ? 0 : levels[i];
    const piece = h("span", { title: scored[i] ? level.toFixed(2) : "not scored" }, plainToken(token));
    if (scored[i]) piece.style.backgroundColor = `rgba(${level > 0 ? "225,29,29" : "37,99,235"},${(Math.abs(level) * opacity).toFixed(3)})`;
    else piece.classList.add("special");
    if (mask && annotation !== null && annotation[i] === 1) piece.classList.add("rationale");
    place.append(piece);
  });
  return place;
}
