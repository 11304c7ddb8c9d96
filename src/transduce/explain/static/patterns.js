// Names of heads, by measurement of their mean weights, as in explain/parts.py.

const meanOfAll = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;
const greatest = (numbers) => numbers.reduce((a, b) => Math.max(a, b), -Infinity);
const SHIFTS = { "previous token": -1, "current token": 0, "next token": 1 };

function isMark(token) {
  const text = token.replace(/^[▁Ġ ]+|[▁Ġ ]+$/gu, "");
  return SPECIAL.includes(text) ? text !== SPECIAL[UNK] : /^[\p{P}\p{S}]+$/u.test(text);
}
function headPattern(map, columns, itself, causal) {
  const s = columns.length,
    visible = map.map((_, i) => (causal ? Math.min(i + 1, s) : s)),
    rows = [...map.keys()].filter((i) => visible[i] > 1),
    places = [];
  if (!rows.length) return ["single token", 1];
  for (const [name, shift] of Object.entries(itself ? SHIFTS : {})) {
    const inside = rows.filter((i) => i + shift >= 0 && i + shift < s);
    if (inside.length && !(causal && shift > 0))
      places.push([name, meanOfAll(inside.map((i) => map[i][i + shift]))]);
  }
  places.push(["first token", meanOfAll(rows.map((i) => map[i][0]))]);
  const marks = [...columns.keys()].filter((j) => j && isMark(columns[j]));
  if (marks.length)
    places.push(["punctuation", meanOfAll(rows.map((i) => marks.reduce((sum, j) => sum + map[i][j], 0)))]);
  const best = places.reduce((a, b) => (b[1] > a[1] ? b : a));
  if (best[1] >= 0.4) return best;
  const entropy = (i) =>
      map[i].reduce((sum, w) => sum - (w > 0 ? w * Math.log(w) : 0), 0) / Math.log(visible[i]),
    spread = meanOfAll(rows.map(entropy));
  if (spread >= 0.85) return ["spread", spread];
  const peak = meanOfAll(rows.map((i) => Math.max(...map[i])));
  return [peak >= 0.6 ? "focused" : "mixed", peak];
}
const sharpness = (map) => meanOfAll(map.map((row) => Math.max(...row)));

// Vectors of the first positions: sinusoids, learned vectors, cosines of angles, biases by distance.
const WAVES = 48;
const WAVE_PAIRS = 64;
const evenRound = (v) => (v % 1 === 0.5 ? 2 * Math.round(v / 2) : Math.round(v));
function wavesOf(stack, table, m) {
  const at = Array.from({ length: WAVES }, (_, k) => k),
    d = stack.d_head,
    pairs = Math.floor(m / 2);
  const spaced = (vector) => {
    if (pairs <= WAVE_PAIRS) return [...vector];
    const chosen = Array.from({ length: WAVE_PAIRS }, (_, k) =>
      evenRound((k * (pairs - 1)) / (WAVE_PAIRS - 1)),
    );
    return chosen.flatMap((k) => [vector[2 * k], vector[2 * k + 1]]);
  };
  if (stack.positions.startsWith("sinusoidal"))
    return at.map((p) => spaced(sinusoid(p, m, stack.positions)));
  if (stack.positions === "learned")
    return at.slice(0, table.shape[0]).map((p) => spaced(table.numbers.subarray(p * m, (p + 1) * m)));
  if (stack.positions === "rotary")
    return at.map((p) => Array.from({ length: d / 2 }, (_, i) => Math.cos(p * 10000 ** ((-2 * i) / d))));
  if (stack.positions === "alibi") return at.map((p) => at.map((k) => -stack.slopes[0] * Math.abs(p - k)));
  return null;
}
