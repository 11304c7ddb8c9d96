// The forward pass of a Transformer, in plain JavaScript: all that this page computes.
// A sequence is an array of vectors, one Float32Array for each position.  Modules have their names of PyTorch.

const float32 = (n) => new Float32Array(n);
const INTEGERS = { int16: Int16Array, int32: Int32Array };
// Numbers of a matrix of int8 stand behind one scale for each row, those of "levels" behind one divisor; arrays of one offset are tied.
function unpackedArrays(index, bytes) {
  const arrays = {},
    known = new Map(),
    floats = (at, n) => new Float32Array(bytes.slice(at, at + 4 * n).buffer);
  const unpacked = (shape, kind, at) => {
    const size = shape.reduce((a, b) => a * b, 1);
    if (INTEGERS[kind]) return new INTEGERS[kind](bytes.slice(at, at + INTEGERS[kind].BYTES_PER_ELEMENT * size).buffer);
    if (kind === "float32") return floats(at, size);
    const [rows] = shape,
      columns = size / rows,
      scales = floats(at, rows),
      levels = new Int8Array(bytes.buffer, bytes.byteOffset + at + 4 * rows, size),
      numbers = float32(size);
    if (kind === "levels") scales.forEach((divisor, r) => (scales[r] = 1 / divisor));
    for (let r = 0, k = 0; r < rows; r++) for (const scale = scales[r], end = k + columns; k < end; k++) numbers[k] = levels[k] * scale;
    return numbers;
  };
  for (const [name, shape, kind, at] of index) {
    if (!known.has(at)) known.set(at, { shape, numbers: unpacked(shape, kind, at) });
    arrays[name] = known.get(at);
  }
  return arrays;
}

function dot(a, b, from = 0, to = b.length) {
  let sum = 0;
  for (let c = 0, k = from; k < to; c++, k++) sum += a[k] * b[k];
  return sum;
}
// Two rows of a matrix times two vectors, into two numbers of each: every number that is read is used twice.
function blockTimes(numbers, at, columns, x, z, y, w, row) {
  const next = at + columns;
  let a = 0,
    b = 0,
    c = 0,
    d = 0;
  for (let k = 0; k < columns; k++) {
    const p = numbers[at + k],
      q = numbers[next + k],
      u = x[k],
      v = z[k];
    a += p * u;
    b += q * u;
    c += p * v;
    d += q * v;
  }
  y[row] += a;
  y[row + 1] += b;
  w[row] += c;
  w[row + 1] += d;
}
// A row of a matrix times a vector.  Four sums take half the time of one, which waits for itself.
function rowTimes(numbers, at, vector, columns) {
  let a = 0,
    b = 0,
    c = 0,
    d = 0,
    k = 0;
  for (; k + 3 < columns; k += 4) {
    a += numbers[at + k] * vector[k];
    b += numbers[at + k + 1] * vector[k + 1];
    c += numbers[at + k + 2] * vector[k + 2];
    d += numbers[at + k + 3] * vector[k + 3];
  }
  for (; k < columns; k++) a += numbers[at + k] * vector[k];
  return a + b + c + d;
}
const sumOf = (x, y) => x.map((v, k) => v + y[k]);
function softmax(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity),
    powers = Float64Array.from(scores, (s) => Math.exp(s - most)),
    sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / sum);
}
const sigmoid = (v) => 1 / (1 + Math.exp(-v));
// The error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
function erf(v) {
  const s = 1 / (1 + 0.3275911 * Math.abs(v)),
    series =
      s * (0.254829592 + s * (-0.284496736 + s * (1.421413741 + s * (-1.453152027 + s * 1.061405429))));
  return Math.sign(v) * (1 - series * Math.exp(-v * v));
}
const ACTIVATIONS = {
  relu: (v) => Math.max(0, v),
  gelu: (v) => 0.5 * v * (1 + erf(v / Math.SQRT2)),
  "gelu-tanh": (v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))),
  silu: (v) => v * sigmoid(v),
  tanh: Math.tanh,
};

// PE(pos, 2i) = sin(pos / 10000^(2i/m)), PE(pos, 2i+1) = cos of the same; or all sines before all cosines.
function sinusoid(position, m, layout) {
  const halves = layout !== "sinusoidal",
    steps = layout === "sinusoidal-marian" ? Math.max(m - 2, 1) : m;
  return float32(m).map((_, k) => {
    const half = Math.ceil(m / 2),
      pair = halves ? k % half : k >> 1,
      angle = position / 10000 ** ((2 * pair) / steps);
    return (halves ? k < half : k % 2 === 0) ? Math.sin(angle) : Math.cos(angle);
  });
}
// Dimensions i and i + d/2 of each head turn by position · 10000^(-2i/d): rotary positions.
function rotated(vector, position, d) {
  const turned = float32(vector.length),
    half = d / 2;
  for (let head = 0; head < vector.length; head += d)
    for (let i = 0; i < half; i++) {
      const angle = position * 10000 ** ((-2 * i) / d),
        [cos, sin] = [Math.cos(angle), Math.sin(angle)],
        [a, b] = [vector[head + i], vector[head + half + i]];
      turned[head + i] = a * cos - b * sin;
      turned[head + half + i] = b * cos + a * sin;
    }
  return turned;
}

// Keys and values that a decoder has read, by layer: its cache.  Of an SSRU a cell, which is replaced.
class DecoderState {
  constructor(layers) {
    this.length = 0;
    this.layers = layers;
  }
  static empty(count) {
    return new DecoderState(Array.from({ length: count }, () => ({ keys: [], values: [] })));
  }
  copy() {
    const copied = this.layers.map((layer) => ({ ...layer, keys: [...layer.keys], values: [...layer.values] })),
      state = new DecoderState(copied);
    state.length = this.length;
    return state;
  }
}

// What a student changes: heads (NAME:HEAD, from 1), layers and source tokens (from 1) that are left out,
// parts of the architecture: "scale", "mask", "positions", "residual", "norm", "softmax"; and patches, numbers
// put in place of computed ones: [{ name, position, numbers }], where numbers are by dimension.
const UNCHANGED = { heads: [], layers: [], tokens: [], parts: [], patches: [] };

class Transformer {
  // stacks: settings of the encoder and the decoder.  embeddings are multiplied by `scale`.
  constructor({ stacks, scale }, arrays, changes = UNCHANGED) {
    this.stacks = stacks;
    this.scale = scale;
    this.arrays = arrays;
    this.change(changes);
    this.recording = null;
  }
  change(changes) {
    this.changes = { ...UNCHANGED, ...changes };
    this.without = Object.fromEntries(Object.entries(this.changes).map(([k, v]) => [k, new Set(v)]));
    this.patches = new Map();
    for (const { name, position, numbers } of this.changes.patches) {
      if (!this.patches.has(name)) this.patches.set(name, []);
      this.patches.get(name).push([position, numbers]);
    }
    this.at = null;
  }
  // Transformers, with self-attention or an SSRU.
  isTransformer() {
    return Object.values(this.stacks).every(({ kind }) => !STACKS[kind]);
  }
  leaves(part) {
    return this.without.parts.has(part);
  }
  // What `run` computes, without patches.
  unpatched(run) {
    const { patches } = this;
    this.patches = new Map();
    const result = run();
    this.patches = patches;
    return result;
  }
  // Notes all that `run` computes: vectors of each module, weights of each attention, layers of each stack.
  record(run) {
    this.recording = { outputs: {}, attention: {}, heads: {}, layers: {}, scales: {}, embedded: {}, shapes: {}, states: {} };
    const result = run(),
      recording = this.recording;
    this.recording = null;
    return [result, recording];
  }
  // Vectors of a module with their patches.  In a decoder `this.at` has the position of each vector.
  note(name, vectors) {
    for (const [position, numbers] of this.patches.get(name) ?? [])
      vectors = vectors.map((vector, t) =>
        (this.at?.[t] ?? t) === position ? Object.assign(vector.slice(), numbers) : vector,
      );
    if (this.recording) this.recording.outputs[name] ??= vectors;
    return vectors;
  }

  // The shape of a module's output in PyTorch, where it is not that of vectors by position.
  shape(name, ...sizes) {
    if (this.recording) this.recording.shapes[name] ??= sizes;
  }
  // A row of a table.
  row(table, at) {
    const { shape, numbers } = this.arrays[table];
    return numbers.subarray(at * shape[1], (at + 1) * shape[1]);
  }

  // y = x Wᵀ + b, for all positions.
  linear(x, name) {
    const { shape, numbers } = this.arrays[`${name}.weight`],
      [rows, columns] = shape,
      bias = this.arrays[`${name}.bias`]?.numbers,
      y = x.map(() => (bias ? Float32Array.from(bias) : float32(rows)));
    for (let r = 0; r < rows; r += 2) {
      const at = r * columns;
      let t = 0;
      if (r + 1 < rows) for (; t + 1 < x.length; t += 2) blockTimes(numbers, at, columns, x[t], x[t + 1], y[t], y[t + 1], r);
      for (; t < x.length; t++) {
        y[t][r] += rowTimes(numbers, at, x[t], columns);
        if (r + 1 < rows) y[t][r + 1] += rowTimes(numbers, at + columns, x[t], columns);
      }
    }
    return this.note(name, y);
  }
  // (x - mean) / √(variance + ε) · weight + bias; the identity where the model has no such norm.
  norm(x, name, epsilon) {
    const weight = this.arrays[`${name}.weight`]?.numbers,
      bias = this.arrays[`${name}.bias`]?.numbers;
    if (!weight || this.leaves("norm")) return this.note(name, x);
    const scales = [];
    const normed = x.map((vector) => {
      const mean = vector.reduce((a, b) => a + b, 0) / vector.length,
        variance = vector.reduce((a, b) => a + (b - mean) ** 2, 0) / vector.length,
        scale = 1 / Math.sqrt(variance + epsilon);
      scales.push(scale);
      return vector.map((v, c) => (v - mean) * scale * weight[c] + bias[c]);
    });
    if (this.recording) this.recording.scales[name] ??= scales;
    return this.note(name, normed);
  }
  // Post-norm: Norm(x + Sublayer(x)).  Pre-norm: x + Sublayer(Norm(x)).
  residual(x, name, { norm_order, epsilon }, sublayer) {
    const norm = (v) => this.norm(v, `${name}_residual.norm`, epsilon),
      added = (v) => (this.leaves("residual") ? v : v.map((vector, t) => sumOf(x[t], vector))),
      y = norm_order === "pre" ? added(sublayer(norm(x))) : norm(added(sublayer(x)));
    return this.note(`${name}_residual`, y);
  }

  // Each head: softmax(q · k / √d + bias) v; query i, at position at[i], sees the first n keys of views[i].
  attend(queries, views, name, stack, at) {
    const { n_heads, d_head: d } = stack,
      mixed = queries.map((query) => float32(query.length)),
      scale = this.leaves("scale") ? 1 : 1 / Math.sqrt(d),
      weightsOf = this.leaves("softmax") ? (scores) => Float64Array.from(scores, sigmoid) : softmax,
      maps = Array.from({ length: n_heads }, () => []);
    queries.forEach((query, i) => {
      const { keys, values, n, hidden } = views[i];
      for (let head = 0; head < n_heads; head++) {
        const from = head * d,
          scores = new Float64Array(n);
        for (let j = 0; j < n; j++) {
          const bias =
            stack.slopes && at && !this.leaves("positions") ? -stack.slopes[head] * Math.abs(at[i] - j) : 0;
          scores[j] = hidden?.has(j + 1) ? -Infinity : scale * dot(query, keys[j], from, from + d) + bias;
        }
        const weights = weightsOf(scores);
        if (this.recording) maps[head].push(weights);
        if (this.without.heads.has(`${name}:${head + 1}`)) continue;
        for (let j = 0; j < n; j++)
          for (let c = from, weight = weights[j], v = values[j]; c < from + d; c++)
            mixed[i][c] += weight * v[c];
      }
    });
    if (this.recording) {
      const [keys, values] = [views[0].keys, views[0].values];
      this.recording.attention[name] = maps.map((rows) => rows.map((row) => padded(row, keys.length)));
      this.recording.heads[name] = { query: queries, key: [...keys], value: [...values] };
    }
    return this.note(name, this.linear(this.note(`${name}.heads.mixed`, mixed), `${name}.output`));
  }
  // `remember` takes the new keys and values in, and says for each query what it sees.
  selfAttention(x, name, stack, at, remember) {
    const projected = this.linear(x, `${name}.query_key_value`),
      width = stack.n_heads * stack.d_head,
      part = (k) => projected.map((vector) => vector.subarray(k * width, (k + 1) * width)),
      turns = stack.positions === "rotary" && !this.leaves("positions"),
      turned = (vectors) =>
        turns ? vectors.map((vector, i) => rotated(vector, at[i], stack.d_head)) : vectors,
      ofHeads = (kind, vectors) => this.note(`${name}.heads.${kind}`, vectors),
      queries = ofHeads("query", turned(part(0))),
      views = remember(ofHeads("key", turned(part(1))), ofHeads("value", part(2)));
    return this.attend(queries, views, name, stack, at);
  }
  // SSRU: c ← f ∘ c + (1 - f) ∘ W x; its layer adds max(0, c).  `remember` takes in a function of the cell before.
  recurrence(x, name, remember) {
    const candidates = this.linear(x, `${name}.candidate`),
      gates = this.linear(x, `${name}.forget`).map((vector) => vector.map(sigmoid)),
      step = (i) => (cell) => gates[i].map((f, c) => f * (cell?.[c] ?? 0) + (1 - f) * candidates[i][c]);
    return this.note(name, remember(x.map((_, i) => step(i)))).map((cell) => cell.map(ACTIVATIONS.relu));
  }
  feedForward(x, name, { activation, d_ff }) {
    let inner;
    if (activation === "swiglu")
      inner = this.linear(x, `${name}.gate_inner`).map((both) =>
        float32(d_ff).map((_, c) => ACTIVATIONS.silu(both[c]) * both[d_ff + c]),
      );
    else inner = this.linear(x, `${name}.inner`).map((vector) => vector.map(ACTIVATIONS[activation]));
    inner = this.note(`${name}.activation`, inner);
    return this.note(name, this.linear(inner, `${name}.outer`));
  }
  layer(x, side, l, at, remember, memory) {
    const stack = this.stacks[side],
      name = `${side}.layers.${l}`;
    if (!this.without.layers.has(name)) {
      const recurs = stack.kind === "ssru",
        self = `${name}.${recurs ? "recurrence" : "self_attention"}`,
        cross = `${name}.cross_attention`,
        forward = `${name}.feed_forward`;
      x = this.residual(x, self, stack, (v) =>
        recurs ? this.recurrence(v, self, remember) : this.selfAttention(v, self, stack, at, remember),
      );
      if (memory)
        x = this.residual(x, cross, stack, (v) =>
          this.attend(
            this.note(`${cross}.heads.query`, this.linear(v, `${cross}.query`)),
            v.map(() => memory[l]),
            cross,
            stack,
          ),
        );
      x = this.residual(x, forward, stack, (v) => this.feedForward(v, forward, stack));
    }
    x = this.note(name, x);
    if (this.recording) (this.recording.layers[side] ??= []).push(x);
    return x;
  }

  // Embeddings, times √m if scaled, plus segments and positions.
  embedded(side, ids, at, segments) {
    const front = side === "decoder" && this.stacks.encoder ? "target_front_end" : "front_end",
      blank = this.stacks[side].kind === "ssru"; // it begins with zeros, whatever the token
    const looked = this.note(
      `${front}.embedding`,
      ids.map((id, t) => {
        const row = this.row(`${front}.embedding.weight`, id);
        return blank && at[t] === 0 ? float32(row.length) : row;
      }),
    );
    let x = looked.map((vector) => vector.map((v) => v * this.scale));
    if (this.arrays[`${front}.segments.weight`]) {
      const rows = this.note(
        `${front}.segments`,
        ids.map((_, t) => this.row(`${front}.segments.weight`, segments?.[t] ?? 0)),
      );
      x = x.map((vector, t) => sumOf(vector, rows[t]));
    }
    return this.positioned(side, this.note(front, x), at);
  }
  // Vectors of a front end plus positions.
  positioned(side, x, at) {
    const stack = this.stacks[side];
    if (!this.leaves("positions")) {
      const m = x[0]?.length;
      if (stack.positions.startsWith("sinusoidal"))
        x = x.map((vector, t) => sumOf(vector, sinusoid(at[t], m, stack.positions)));
      if (stack.positions === "learned") {
        const rows = this.note(
          `${side}.positions.table`,
          at.map((position) => this.row(`${side}.positions.table.weight`, position)),
        );
        x = x.map((vector, t) => sumOf(vector, rows[t]));
      }
    }
    if (this.recording) this.recording.embedded[side] ??= x;
    return stack.kind === "transformer" ? this.norm(x, `${side}.embedding_norm`, stack.epsilon) : x;
  }
  // The memory of a source: one vector for each token.
  encode(ids, segments) {
    return this.throughEncoder(this.embedded("encoder", ids, [...ids.keys()], segments));
  }
  // The same of vectors of a front end.
  encoded(vectors) {
    return this.throughEncoder(this.positioned("encoder", vectors, [...vectors.keys()]));
  }
  throughEncoder(x) {
    const stack = this.stacks.encoder,
      at = [...x.keys()],
      hidden = this.without.tokens,
      remember = (keys, values) => keys.map(() => ({ keys, values, n: keys.length, hidden }));
    if (stack.kind !== "transformer") return this.note("encoder", STACKS[stack.kind].encode(this, x, stack));
    for (let l = 0; l < stack.n_layers; l++) x = this.layer(x, "encoder", l, at, remember);
    return this.note("encoder", this.norm(x, "encoder.norm", stack.epsilon));
  }
  // Keys and values of a memory for the cross-attention of each layer, made once.
  project(memory) {
    const stack = this.stacks.decoder;
    if (STACKS[stack.kind]) return STACKS[stack.kind].project(this, memory, stack);
    const width = stack.n_heads * stack.d_head;
    return Array.from({ length: stack.n_layers }, (_, l) => {
      const both = this.linear(memory, `decoder.layers.${l}.cross_attention.key_value`),
        ofHeads = (kind, vectors) =>
          this.note(`decoder.layers.${l}.cross_attention.heads.${kind}`, vectors),
        keys = ofHeads(
          "key",
          both.map((vector) => vector.subarray(0, width)),
        ),
        values = ofHeads(
          "value",
          both.map((vector) => vector.subarray(width)),
        );
      return { keys, values, n: keys.length, hidden: this.without.tokens };
    });
  }
  start() {
    const { kind, n_layers } = this.stacks.decoder;
    return STACKS[kind] ? new StepState() : DecoderState.empty(n_layers);
  }
  // Outputs for tokens, each read after all that its state holds; the states move on.
  // Several tokens of one state are a text, one token for each of several states a step of a search.
  decode(ids, states, memory) {
    const stack = this.stacks.decoder,
      at = states.map((state) => state.length++),
      unmasked = this.leaves("mask");
    this.at = at;
    let x = this.embedded("decoder", ids, at);
    if (STACKS[stack.kind]) {
      x = this.note("decoder", STACKS[stack.kind].decode(this, x, states, memory, stack));
      this.at = null;
      return x;
    }
    for (let l = 0; l < stack.n_layers; l++) {
      const cells = (steps) => steps.map((step, i) => (states[i].layers[l].cell = step(states[i].layers[l].cell)));
      const cache = (keys, values) => {
        keys.forEach((key, i) => {
          states[i].layers[l].keys.push(key);
          states[i].layers[l].values.push(values[i]);
        });
        return states.map((state, i) => ({ ...state.layers[l], n: unmasked ? state.length : at[i] + 1 }));
      };
      x = this.layer(x, "decoder", l, at, stack.kind === "ssru" ? cells : cache, memory);
    }
    const output = this.note("decoder", stack.kind === "ssru" ? x : this.norm(x, "decoder.norm", stack.epsilon));
    this.at = null;
    return output;
  }
}
function padded(row, n) {
  const whole = float32(n);
  whole.set(row);
  return whole;
}
