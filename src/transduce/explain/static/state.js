// The data, the state of the page, and helpers for text and numbers.
// All text of the data goes into the page through textContent or attributes, never as HTML.
const DOCS = JSON.parse(document.getElementById("data").textContent);
const S = {
  doc: 0,
  tab: "",
  lang: (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en",
  step: 0,
  att: -1,
  head: 0,
  row: -1,
  pattern: "",
  cut: true,
  layer: -1,
  place: 0,
  pair: "",
  hand: -1,
  asks: -1,
  looked: -1,
  temperature: 1,
  hidden: -1,
  patch: -1,
  film: -1,
  at: -1,
  example: 0,
  text: "",
  second: "",
  outHeads: "",
  outLayers: "",
  outTokens: "",
  parts: "",
  forced: "",
  beam: 0,
  most: -1,
  draw: 0,
  box: "",
  boxLayer: 0,
  boxToken: 0,
  column: -1,
  seed: 0,
  whole: false,
  against: "",
  patches: "",
  donor: "",
  module: "",
  way: "other",
  rows: "layers",
  token: -1,
  point: "",
  embed: false,
};
// The state stands in the address, so that a link opens the same view.
const USUAL = { ...S },
  PLACE = { at: "", restoring: false };
function readAddress() {
  for (const [k, v] of new URLSearchParams(location.hash.slice(1)))
    if (k in S) S[k] = typeof S[k] === "number" ? Number(v) || 0 : typeof S[k] === "boolean" ? v === "true" : v;
}
readAddress();
// Another screen or text is another place of the history; what else changes, changes this one.
function putAddress() {
  const chosen = Object.entries(S).filter(([k, v]) => v !== USUAL[k] || k === "tab" || k === "lang"),
    at = [S.tab, S.doc, S.example].join(" "),
    moved = PLACE.at && PLACE.at !== at && !PLACE.restoring && !S.embed;
  PLACE.at = at;
  // The frame of a notebook has no address of its own.
  if (location.protocol === "about:") return;
  history[moved ? "pushState" : "replaceState"](null, "", "#" + new URLSearchParams(chosen));
}
let D = DOCS[S.doc] || DOCS[0],
  live = null,
  timer = 0,
  edits = {};
if (!WORDS[S.lang]) S.lang = "en";

const t = (key, ...args) => (WORDS[S.lang][key] ?? key).replace(/\{(\d)\}/g, (_, i) => args[i]);
const SPACES = [
  [["svg", "g", "path", "line", "rect", "text", "tspan", "title"], "http://www.w3.org/2000/svg"],
];
function el(tag, attrs, ...children) {
  const space = SPACES.find(([tags]) => tags.includes(tag))?.[1],
    e = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "style") for (const [p, x] of Object.entries(v)) e.style.setProperty(p, x);
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...there(children));
  return e;
}
const there = (children) => children.flat(9).filter((c) => c !== null && c !== undefined && c !== false);
const fill = (node, children) => node.replaceChildren(...there(children));
const token = (text, cls) => el("bdi", { class: "token " + (cls || "") }, visible(text));
// Control characters as their pictures; the others, C1, as the replacement character.
const picture = (code) => (code < 32 ? 0x2400 + code : code === 127 ? 0x2421 : 0xfffd);
const visible = (s) =>
  s === ""
    ? "∅"
    : String(s).replace(/[\u0000-\u001f\u007f-\u009f]/g, (c) => String.fromCharCode(picture(c.charCodeAt(0))));
const fixed = (x, n = 3) => (Number.isFinite(x) ? x.toFixed(n) : "−∞").replace("-", "−");
const say = (text) => {
  document.getElementById("said").textContent = text;
};
const isolated = (s) => "\u2068" + visible(s) + "\u2069";
const set = (changes) => {
  if ((changes.tab ?? S.tab) !== S.tab) say("");
  Object.assign(S, changes);
  render();
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// A background by weight, at which text keeps its contrast.
const shade = (a) => ({ "--a": 0.55 * a });
const clamp = (x, lo, hi) => Math.max(lo, Math.min(hi, x));

// Bytes of base64, in blocks: a model of 130 million bytes has no room for a list of its characters.
function bytes(text) {
  const decoded = new Uint8Array((text.length / 4) * 3 - (text.endsWith("==") ? 2 : Number(text.endsWith("=")))),
    block = 1 << 20;
  for (let from = 0, to = 0; from < text.length; from += block) {
    const part = atob(text.slice(from, from + block));
    for (let k = 0; k < part.length; k++) decoded[to++] = part.charCodeAt(k);
  }
  return decoded;
}
function halves(packed) {
  const raw = packed.numbers ? null : new DataView(bytes(packed.half).buffer),
    out = packed.numbers ?? new Float32Array(raw.byteLength / 2);
  for (let i = 0; raw && i < out.length; i++) {
    const x = raw.getUint16(2 * i, true),
      sign = x >> 15 ? -1 : 1,
      exponent = (x >> 10) & 31,
      part = x & 1023;
    out[i] =
      sign *
      (exponent === 0
        ? part * 2 ** -24
        : exponent === 31
          ? Infinity
          : (1 + part / 1024) * 2 ** (exponent - 15));
  }
  return {
    n: packed.shape[0],
    d: packed.shape[1] ?? 1,
    at: (i, j) => out[i * (packed.shape[1] ?? 1) + j],
    row(i) {
      return Array.from(out.slice(i * this.d, (i + 1) * this.d));
    },
  };
}
function weightsOf(a) {
  if (!a.decoded) a.decoded = bytes(a.weights);
  const [, rows, columns] = a.shape;
  if (a.causal && rows === columns)
    return (h, i, j) => (j > i ? 0 : a.decoded[(h * rows * (rows + 1)) / 2 + (i * (i + 1)) / 2 + j] / 255);
  return (h, i, j) => a.decoded[(h * rows + i) * columns + j] / 255;
}
function kindOf(a) {
  const parts = a.name.split("."),
    at = parts.indexOf("layers");
  const kind = a.name.endsWith("cross_attention")
    ? "cross"
    : parts[0] === "decoder"
      ? "decoderSelf"
      : "encoderSelf";
  return { kind, layer: at < 0 ? -1 : Number(parts[at + 1]) };
}
function headName(a, h, short) {
  const { kind, layer } = kindOf(a),
    place = (layer < 0 ? "" : `${t("layer")} ${layer + 1} · `) + `${t("head")} ${h + 1}`;
  return short ? place : `${t(kind)} · ${place}`;
}
const seq = (name, d = D) => d.sequences[name] || [];
const crosses = (d = D) => d.attention.filter((a) => kindOf(a).kind === "cross");
// Mean of the heads of an attention, as a function of row and column.
function meanOf(a) {
  const w = weightsOf(a),
    n = a.shape[0];
  return (i, j) => {
    let sum = 0;
    for (let h = 0; h < n; h++) sum += w(h, i, j);
    return sum / n;
  };
}
// The film of a run, beside the first of its explanations.
const filmOf = (d = D) => DOCS.find((one) => one.run === d.run && one.film)?.film;
// Explanations of one text, one for each run, and the texts of the page, each by its first.
const textOf = (i) => DOCS[i].text ?? i;
const besides = () => DOCS.map((_, i) => i).filter((i) => textOf(i) === textOf(S.doc));
const texts = () => DOCS.map((_, i) => i).filter((i) => !i || textOf(i) !== textOf(i - 1));
const titleOf = (d) => Object.values(d.inputs).map(visible).join(" · ");
// Another explanation: what was chosen in the one before has no meaning there.
function turnTo(doc, changes) {
  S.doc = doc;
  D = DOCS[doc];
  edits = {};
  set({ row: 0, hidden: -1, patch: -1, asks: -1, looked: -1, layer: -1, place: 0, att: -1, head: 0, column: -1, ...changes });
}
