// Images: pixels of the model's size, cut into patches, and their labels or vectors.
// The text of an image is NAME:BYTES, its pixels channel by channel in base64.

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const textOfBytes = (pixels) => btoa(Array.from(pixels, (v) => String.fromCharCode(v)).join(""));
// No pixels for a text that is not base64, as of a link that was cut off.
function pixelsOf(text) {
  try {
    return bytesOf(text);
  } catch {
    return [];
  }
}
function imageOf(text, { size, channels }) {
  const at = text.lastIndexOf(":"),
    pixels = pixelsOf(text.slice(at + 1)),
    sizes = [pixels.length, channels * size * size];
  if (sizes[0] !== sizes[1])
    throw Object.assign(new RangeError(`${sizes[0]} bytes of pixels, in place of ${sizes[1]}`), { word: "wrongPixels", sizes });
  return { name: text.slice(0, at), pixels };
}
// Weights of a smoothed, linear interpolation of `from` numbers to `to`, as PyTorch has them with antialias.
function interpolation(from, to) {
  const scale = from / to,
    reach = Math.max(scale, 1);
  return Array.from({ length: to }, (_, i) => {
    const center = scale * (i + 0.5),
      first = Math.max(Math.trunc(center - reach + 0.5), 0),
      last = Math.min(Math.trunc(center + reach + 0.5), from),
      weights = Array.from({ length: last - first }, (_, j) => Math.max(0, 1 - Math.abs((j + first - center + 0.5) / reach))),
      sum = weights.reduce((a, b) => a + b, 0);
    return { first, weights: weights.map((weight) => weight / sum) };
  });
}
const halfToEven = (v) => (v % 2 === 0.5 ? v - 0.5 : Math.round(v));
// Bytes (c, size, size) of red, green, blue and opacity (h, w, 4).
function fitted(rgba, w, h, { size, channels, fit }) {
  const side = fit === "crop" ? Math.min(w, h) : 0,
    [wide, high] = [side || w, side || h],
    [left, top] = [(w - wide) >> 1, (h - high) >> 1],
    grey = (at) => (rgba[at] * 19595 + rgba[at + 1] * 38470 + rgba[at + 2] * 7471 + 0x8000) >> 16,
    [columns, rows] = [interpolation(wide, size), interpolation(high, size)],
    pixels = new Uint8Array(channels * size * size);
  const mix = ({ first, weights }, value) => weights.reduce((sum, weight, j) => sum + weight * value(first + j), 0);
  for (let c = 0; c < channels; c++) {
    const value = (x, y) => {
      const at = 4 * ((y + top) * w + x + left);
      return channels === 1 ? grey(at) : rgba[at + c];
    };
    const lines = Array.from({ length: high }, (_, y) => columns.map((column) => mix(column, (x) => value(x, y))));
    rows.forEach((row, i) => columns.forEach((_, j) => (pixels[(c * size + i) * size + j] = halfToEven(mix(row, (y) => lines[y][j])))));
  }
  return pixels;
}

// Convolutions of 3 × 3 places, each behind GELU and the greatest of 2 × 2.
function stemmed(network, planes, side) {
  network.shape("front_end.stem", 1, planes.length, side, side);
  for (let l = 0; network.arrays[`front_end.stem.${l}.weight`]; l += 3) {
    const { shape, numbers } = network.arrays[`front_end.stem.${l}.weight`],
      bias = network.arrays[`front_end.stem.${l}.bias`].numbers,
      half = side >> 1;
    const at = (f, y, x) => {
      let sum = bias[f];
      for (let c = 0; c < shape[1]; c++)
        for (let k = 0; k < 9; k++) {
          const [i, j] = [y + Math.floor(k / 3) - 1, x + (k % 3) - 1];
          if (i >= 0 && j >= 0 && i < side && j < side) sum += numbers[(f * shape[1] + c) * 9 + k] * planes[c][i * side + j];
        }
      return ACTIVATIONS.gelu(sum);
    };
    const pooled = Array.from({ length: shape[0] }, (_, f) =>
      float32(half * half).map((_, n) => {
        const [y, x] = [2 * Math.floor(n / half), 2 * (n % half)];
        return Math.max(at(f, y, x), at(f, y, x + 1), at(f, y + 1, x), at(f, y + 1, x + 1));
      }),
    );
    for (const k of [0, 1]) network.shape(`front_end.stem.${l + k}`, 1, shape[0], side, side);
    network.shape(`front_end.stem.${l + 2}`, 1, shape[0], half, half);
    [planes, side] = [pooled, half];
  }
  if (network.recording) network.recording.shapes["front_end.stem"] = [1, planes.length, side, side];
  return [planes, side];
}
// A vector for each patch, row by row, behind one for the class where there is a token for it.
function patchVectors(network, pixels, { size, channels, mean, std }, patch) {
  const normal = Array.from({ length: channels }, (_, c) =>
      Float32Array.from(pixels.subarray(c * size * size, (c + 1) * size * size), (v) => (v / 255 - mean[c]) / std[c]),
    ),
    [planes, side] = stemmed(network, normal, size),
    n = side / patch;
  const cut = Array.from({ length: n * n }, (_, k) => {
    const start = Math.floor(k / n) * patch * side + (k % n) * patch,
      index = (_, j) => start + Math.floor(j / patch) * side + (j % patch);
    return Float32Array.from(planes.flatMap((plane) => Array.from({ length: patch * patch }, (_, j) => plane[index(_, j)])));
  });
  const vectors = network.linear(cut, "front_end.projection"),
    token = network.arrays["front_end.class_token"]?.numbers;
  return [network.note("front_end", token ? [token, ...vectors] : vectors), n];
}

// The result of a pass over an image, its recording, and what every explanation has of it.
function imagePass(model, text, run) {
  const { network, facts } = model,
    { name, pixels } = imageOf(text, facts.image);
  let n;
  const pass = () => {
    const [vectors, side] = patchVectors(network, pixels, facts.image, facts.patch_size);
    n = side;
    return run(network.encoded(vectors));
  };
  const [result, recording] = network.record(pass),
    first = recording.outputs.front_end.length - n * n,
    cells = Array.from({ length: n * n }, (_, k) => `r${Math.floor(k / n) + 1}c${(k % n) + 1}`),
    shown = { image: [...(first ? ["[class]"] : []), ...cells] },
    picture = { png: "", grid: [n, n], first, sequence: "image" },
    parts = model.pass(recording, { encoder: ["image", "image"] }, shown, { encoder: "image" }, pass);
  return [result, recording, { ...parts, picture, inputs: { image: name } }];
}
function classifiedImage(model, bare, [text]) {
  const { facts } = model,
    names = (ids) => ids.map((id) => facts.labels[id]),
    best = (scores) => likeliest(softmax(scores), names, MOST_LABELS),
    [scores, recording, parts] = imagePass(model, text, (x) => labelScores(model, x)),
    choices = facts.labels.length > 1 ? [[0, topOf(scores, 1)[0]]] : [];
  return {
    ...bare,
    answer: best(scores)[0][0],
    labels: best(scores),
    layers: model.lens(recording, "encoder", 0, (x) => [best(labelScores(model, x))]),
    ...creditsOf(model, recording, names, choices),
    ...parts,
  };
}
function embeddedImage(model, bare, [text]) {
  const [embedding, , parts] = imagePass(model, text, (x) => scaledVector(model, x));
  return { ...bare, answer: writtenVector(embedding), vectors: { embedding }, ...parts };
}
