// Stacks other than the Transformer, by kind.  Of each:
// encode: vectors of a source -> its memory.
// project: a memory -> all that the steps of a decoder need of it, made once.
// decode: vectors, each read behind all that its state holds -> outputs; the states move on.

// State of a hypothesis: `length`, and what the stack keeps.  Its parts are replaced, never changed.
class StepState {
  constructor(parts) {
    Object.assign(this, { length: 0, pasts: [] }, parts);
  }
  copy() {
    return new StepState({ ...this, pasts: [...this.pasts] });
  }
}
const joined = (a, b) => Float32Array.from([...a, ...b]);
// W x + b of a vector, by the names of both.
function affine({ arrays }, weight, bias, vector) {
  const { shape, numbers } = arrays[weight],
    added = arrays[bias]?.numbers;
  return float32(shape[0]).map((_, r) => (added?.[r] ?? 0) + rowTimes(numbers, r * shape[1], vector, shape[1]));
}
// Weights of scores, and the mean of the values by them.
function weighted(network, scores, values) {
  const weights = (network.leaves("softmax") ? (all) => Float64Array.from(all, sigmoid) : softmax)(scores),
    mean = float32(values[0].length);
  weights.forEach((weight, j) => axpy(mean, weight, values[j]));
  return [weights, mean];
}
function recordWeights({ recording }, name, rows, columns) {
  if (recording) recording.attention[name] = [rows.map((row) => padded(row, columns))];
}
// index(t, k): number of the k-th input of output t; zeros stand outside of x.
function convolved({ arrays }, name, x, count, index) {
  const { shape, numbers } = arrays[`${name}.weight`],
    [features, m, width] = shape,
    bias = arrays[`${name}.bias`].numbers;
  return Array.from({ length: count }, (_, t) => {
    const inputs = Array.from({ length: width }, (_, k) => x[index(t, k)]);
    return float32(features).map((_, f) => {
      let sum = bias[f];
      inputs.forEach((vector, k) => {
        for (let c = 0, from = f * m * width + k; vector && c < m; c++) sum += numbers[from + c * width] * vector[c];
      });
      return sum;
    });
  });
}
// Notes the outputs of a convolution, whose channels stand first.
function noteChannels(network, name, x) {
  network.shape(name, 1, x[0].length, x.length);
  return network.note(name, x);
}
const gated = (x) => x.map((both) => both.slice(0, both.length / 2).map((v, c) => v * sigmoid(both[c + both.length / 2])));
const scaleOf = (network, m) => (network.leaves("scale") ? 1 : 1 / Math.sqrt(m));

// Text CNN: ReLU features of windows of every width around each position; one of even width has one place more.
const TEXT_CNN = {
  encode(network, x, { widths }) {
    const features = widths.map((width, i) => {
      const index = (t, k) => t - Math.floor(width / 2) + k,
        name = `encoder.windows.${i}`;
      return noteChannels(network, name, convolved(network, name, x, x.length + 1 - (width % 2), index));
    });
    return x.map((_, t) => Float32Array.from(features.flatMap((of) => [...of[t].map(ACTIVATIONS.relu)])));
  },
};

// The hidden state of a layer behind an input: h of a GRU, h and c of an LSTM.
function cellStep(network, cells, suffix, x, hidden) {
  const product = (kind, vector) => affine(network, `${cells}.weight_${kind}${suffix}`, `${cells}.bias_${kind}${suffix}`, vector),
    [h, c] = hidden,
    m = h.length,
    a = product("ih", x),
    b = product("hh", h),
    gate = (k, i) => sigmoid(a[k * m + i] + b[k * m + i]);
  if (!c) {
    // r, z and n, where r takes part of h away before n sees it.
    const n = (i) => Math.tanh(a[2 * m + i] + gate(0, i) * b[2 * m + i]);
    return [h.map((v, i) => (1 - gate(1, i)) * n(i) + gate(1, i) * v)];
  }
  const cell = c.map((v, i) => gate(1, i) * v + gate(0, i) * Math.tanh(a[2 * m + i] + b[2 * m + i]));
  return [cell.map((v, i) => gate(3, i) * Math.tanh(v)), cell];
}
const zeroHidden = (cell, m) => Array.from({ length: cell === "lstm" ? 2 : 1 }, () => float32(m));
const SUMMARIES = {
  mean: (memory) => float32(memory[0].length).map((_, c) => meanOfAll(memory.map((vector) => vector[c]))),
  last: (memory) => memory.at(-1),
  "both-ends": (memory) => {
    const half = memory[0].length / 2;
    return joined(memory.at(-1).subarray(0, half), memory[0].subarray(half));
  },
};
const RECURRENT = {
  encode(network, x, { n_layers, cell, bidirectional }) {
    for (let l = 0; l < n_layers; l++) {
      const read = (vectors, suffix) => {
        const { shape } = network.arrays[`encoder.layers.cells.weight_hh${suffix}`];
        let hidden = zeroHidden(cell, shape[1]);
        return vectors.map((vector) => (hidden = cellStep(network, "encoder.layers.cells", suffix, vector, hidden))[0]);
      };
      const back = bidirectional && read([...x].reverse(), `_l${l}_reverse`).reverse(),
        forth = read(x, `_l${l}`);
      x = back ? forth.map((h, t) => joined(h, back[t])) : forth;
    }
    if (network.recording) network.recording.states.encoder = x;
    return x;
  },
  project(network, memory, { n_layers, cell, context, summary: kind }) {
    const summary = SUMMARIES[kind](memory),
      m = summary.length,
      first = affine(network, "decoder.first.weight", "decoder.first.bias", summary),
      hidden = Array.from({ length: n_layers }, (_, l) => {
        const h = first.slice(l * m, (l + 1) * m).map(Math.tanh);
        return [h, ...zeroHidden(cell, m).slice(1)];
      });
    network.shape("decoder.first", 1, first.length);
    network.note("decoder.first", [first]);
    if (context === "fixed") return { hidden, context: summary };
    const keys = context === "dot" ? memory : network.linear(memory, "decoder.cross_attention.score.key");
    return { hidden, keys, values: memory };
  },
  // Attention without input feeding follows the recurrence; with it, it is part of every step.
  decode(network, x, states, memory, stack) {
    const attends = memory?.keys,
      fed = attends && stack.input_feeding !== "none",
      rows = [],
      contexts = [],
      lines = [],
      tops = [];
    const look = (z) => {
      const [weights, mean] = weighted(network, contextScores(network, z, memory.keys, stack.context), memory.values);
      rows.push(weights);
      contexts.push(mean);
      return mean;
    };
    const outputs = x.map((vector, i) => {
      const state = states[i],
        before = state.hidden ?? memory?.hidden ?? Array(stack.n_layers).fill(zeroHidden(stack.cell, vector.length));
      let context = stack.every_step ? memory?.context : null,
        input = context ? joined(vector, context) : vector;
      if (fed && stack.input_feeding === "context") input = joined(vector, (context = look(before.at(-1)[0])));
      else if (fed) input = joined(vector, state.fed ?? float32(vector.length));
      state.hidden = [];
      for (let l = 0; l < stack.n_layers; l++) {
        state.hidden.push(cellStep(network, "decoder.layers.cells", `_l${l}`, input, before[l]));
        input = state.hidden[l][0];
      }
      tops.push(input);
      if (attends) context ??= look(input);
      if (!context) return input;
      lines.push(affine(network, "decoder.output.weight", "decoder.output.bias", joined(context, input)));
      return (state.fed = lines.at(-1).map(Math.tanh));
    });
    if (lines.length) {
      if (fed) network.shape("decoder.output", 1, lines[0].length);
      network.note("decoder.output", lines);
    }
    if (network.recording) network.recording.states.decoder = tops;
    if (attends) noteContext(network, rows, contexts, memory, stack, fed ? 1 : x.length);
    return outputs;
  },
};
function contextScores(network, z, keys, kind) {
  if (kind !== "additive") return keys.map((key) => dot(z, key));
  const query = affine(network, "decoder.cross_attention.score.query.weight", "", z),
    { numbers } = network.arrays["decoder.cross_attention.score.score.weight"];
  return keys.map((key) => key.reduce((sum, v, k) => sum + numbers[k] * Math.tanh(query[k] + v), 0));
}
// t: queries of one call, of which PyTorch has the shapes.
function noteContext(network, rows, contexts, { keys }, { context, input_feeding }, t) {
  const name = "decoder.cross_attention",
    n = keys.length;
  recordWeights(network, name, rows, n);
  network.shape(`${name}.score`, 1, 1, t, n);
  if (context === "additive") {
    network.shape(`${name}.score.query`, 1, 1, t, keys[0].length);
    network.shape(`${name}.score.score`, 1, 1, t, n, 1);
  }
  if (input_feeding === "none") network.note(name, contexts);
}

// x + Sublayer(Norm(x)) of layer l.
function preNormed(network, side, l, x, { epsilon }, sublayer) {
  const name = `${side}.residuals.${l}`,
    y = sublayer(network.norm(x, `${name}.norm`, epsilon)),
    sums = network.note(name, network.leaves("residual") ? y : y.map((vector, t) => sumOf(x[t], vector)));
  if (network.recording) (network.recording.layers[side] ??= []).push(sums);
  return sums;
}
// ConvS2S: gated convolutions; in the decoder each with attention of its own.
const CONVOLUTION = {
  encode(network, x, stack) {
    stack.dilations.forEach((dilation, l) => {
      const name = `encoder.layers.${l}`,
        index = (t, k) => t + (k - (stack.width - 1) / 2) * dilation,
        layer = (v) => network.note(name, gated(noteChannels(network, `${name}.convolution`, convolved(network, `${name}.convolution`, v, v.length, index))));
      x = preNormed(network, "encoder", l, x, stack, layer);
    });
    return network.norm(x, "encoder.norm", stack.epsilon);
  },
  project: (_, memory) => ({ keys: memory, values: memory }),
  decode(network, x, states, memory, stack) {
    const embedded = x;
    if (stack.positions === "learned") network.shape("decoder.positions.table", 1, x.length, x[0].length);
    for (let l = 0; l < stack.n_layers; l++) {
      const name = `decoder.layers.${l}`,
        convolution = `${name}.convolution.convolution`;
      const layer = (v) => {
        const channels = v.map((vector, i) => {
          const past = (states[i].pasts[l] = [...(states[i].pasts[l] ?? []), vector].slice(-stack.width));
          return convolved(network, convolution, past, 1, (_, k) => k + past.length - stack.width)[0];
        });
        const h = gated(noteChannels(network, convolution, channels));
        return memory ? lookedUp(network, name, h, embedded, memory) : h;
      };
      x = preNormed(network, "decoder", l, x, stack, layer);
    }
    return network.norm(x, "decoder.norm", stack.epsilon);
  },
};
// h + c: the context c is attended by W h + g, where g is the embedding.
function lookedUp(network, name, h, embedded, { keys, values }) {
  const scale = scaleOf(network, h[0].length),
    attended = network.linear(h, `${name}.query`).map((query, i) => {
      const sum = sumOf(query, embedded[i]);
      return weighted(network, keys.map((key) => scale * dot(sum, key)), values);
    }),
    attention = `${name}.cross_attention`;
  recordWeights(network, attention, attended.map(([weights]) => weights), keys.length);
  network.shape(`${attention}.score`, 1, 1, h.length, keys.length);
  const contexts = network.note(attention, attended.map(([, mean]) => mean));
  return h.map((vector, i) => sumOf(vector, contexts[i]));
}

// An embedding of windows, each by its vectors: Σ weight ∘ x / √width, and a matrix.
function windowEmbeddings(network, name, windows) {
  const { shape, numbers } = network.arrays[`${name}.weight`],
    [m, width] = shape;
  const sums = windows.map((inputs) =>
    float32(m).map((_, c) => inputs.reduce((sum, x, j) => sum + (x ? numbers[c * width + j] * x[c] : 0), 0) / Math.sqrt(width)),
  );
  return network.note(name, network.linear(sums, `${name}.output`));
}
// u ← norm(H u + o) for each hop, where o is the answer of the memories to the query u.
function hopped(network, side, query, { n_layers, epsilon }, answer) {
  for (let l = 0; l < n_layers; l++) {
    const name = `${side}.layers.${l}`,
      attended = query.map(answer),
      answers = network.note(name, attended.map(([, mean]) => mean));
    recordWeights(network, name, attended.map(([weights]) => weights), query.length);
    if (network.recording) (network.recording.layers[side] ??= []).push(answers);
    query = network.norm(network.linear(query, `${side}.between`).map((u, i) => sumOf(u, answers[i])), `${side}.norm`, epsilon);
  }
  return query;
}
const MEMORY_NETWORK = {
  // A memory is a window from each position on; its age the distance from the end.
  encode(network, x, stack) {
    const windows = x.map((_, t) => Array.from({ length: stack.window }, (_, j) => x[t + j])),
      [query, keys, values] = ["query", "key", "value"].map((name) => windowEmbeddings(network, `encoder.${name}`, windows)),
      scale = scaleOf(network, x[0].length);
    const [aged, agedValues] = [["key_age", keys], ["value_age", values]].map(([name, vectors]) => {
      const ages = x.map((_, t) => network.row(`encoder.${name}.weight`, Math.min(x.length - 1 - t, stack.max_age - 1)));
      return network.note(`encoder.${name}`, ages).map((age, t) => sumOf(vectors[t], age));
    });
    return hopped(network, "encoder", query, stack, (u) => weighted(network, aged.map((key) => scale * dot(u, key)), agedValues));
  },
  // The latest memories are windows up to each position; their age is the distance from the query.
  decode(network, x, states, _, stack) {
    const m = x[0].length,
      scale = scaleOf(network, m),
      windows = x.map((vector, i) => {
        const past = (states[i].pasts[0] = [...(states[i].pasts[0] ?? []), vector].slice(-stack.window));
        return Array.from({ length: stack.window }, (_, j) => past[j + past.length - stack.window]);
      }),
      [query, keys, values] = ["query", "key", "value"].map((name) => windowEmbeddings(network, `decoder.${name}`, windows));
    // PyTorch embeds the zeros before the first position as well.
    for (const kind of ["key", "value"])
      for (const name of [`decoder.${kind}`, `decoder.${kind}.output`]) network.shape(name, 1, stack.max_age - 1 + x.length, m);
    const known = x.map((_, i) => {
      const state = states[i];
      state.keys = [...(state.keys ?? []), keys[i]].slice(-stack.max_age);
      state.values = [...(state.values ?? []), values[i]].slice(-stack.max_age);
      return { keys: state.keys, values: state.values, tooOld: Math.max(i + 1 - state.keys.length, 0) };
    });
    return hopped(network, "decoder", query, stack, (u, i) => recent(network, u, known[i], scale));
  },
};
// tooOld: positions of a text that are too old for the query.
function recent(network, u, { keys, values, tooOld }, scale) {
  const age = (kind, j) => network.row(`decoder.${kind}_age.weight`, keys.length - 1 - j),
    scores = keys.map((key, j) => scale * (dot(u, key) + dot(u, age("key", j)))),
    [weights, mean] = weighted(network, scores, values.map((value, j) => sumOf(value, age("value", j))));
  return [[...Array(tooOld).fill(0), ...weights], mean];
}

const STACKS = {
  "text-cnn": TEXT_CNN,
  recurrent: RECURRENT,
  convolution: CONVOLUTION,
  "memory-network": MEMORY_NETWORK,
};
