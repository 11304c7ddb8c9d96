// Credit: exact shares of a difference of logits.  Attention patterns, scales of norms and gates of activations
// are held as a recorded pass has them; all else is linear, so that the shares add up to the difference.
// A gradient is an array with a Float64Array for each position, or null where it is zero.

const axpy = (into, weight, vector, from = 0, to = vector.length) => {
  for (let c = from; c < to; c++) into[c] += weight * vector[c];
};
// act(v) / v: the gate by which an activation multiplies its input.
const gateOf = (activation, v) => (v === 0 ? 0 : ACTIVATIONS[activation](v) / v);
// Products of gradients and vectors, over positions and some dimensions.
const summed = (gradients, vectors, from, to) =>
  gradients.reduce((sum, g, t) => (g ? sum + dot(g, vectors[t], from, to) : sum), 0);

class Credit {
  // recording: of a whole pass, without patches.  facts: of the model, for the head of labels.
  constructor(network, recording, facts = {}) {
    this.network = network;
    this.recording = recording;
    this.facts = facts;
    this.last = network.stacks.decoder ? "decoder" : "encoder";
  }
  // Shares of logit(id) - logit(rival) behind position `row` of the last stack, or of labels.
  // source, read: shares of each token; those of its position (and segment) apart.  biases: of all biases.
  // writes: what embedding, positions, each sublayer and the biases behind them write straight to the
  // logits; heads: of each attention, by head, with the bias of its output last.
  of(row, id, rival) {
    const { stacks } = this.network,
      none = { tokens: [], positions: [] };
    Object.assign(this, { writes: {}, heads: {}, memory: [] });
    this.straight = this.throughHead(row, id, rival);
    this.straightBiases = this.biases;
    const read = stacks.decoder ? this.stack("decoder", this.straight) : none,
      source = stacks.encoder ? this.stack("encoder", stacks.decoder ? this.memory : this.straight) : none;
    this.writes.biases = this.straightBiases;
    return {
      source: source.tokens,
      source_positions: source.positions,
      read: read.tokens,
      read_positions: read.positions,
      biases: this.biases,
      writes: this.writes,
      heads: this.heads,
    };
  }
  // Gradients behind the last stack.
  throughHead(row, id, rival) {
    const { arrays } = this.network,
      { outputs } = this.recording,
      name = ["head", "head.vocabulary", "head.output"].find((of) => arrays[`${of}.weight`]),
      { shape, numbers } = arrays[`${name}.weight`],
      bias = arrays[`${name}.bias`]?.numbers,
      direction = new Float64Array(shape[1]);
    for (let c = 0; c < shape[1]; c++) direction[c] = numbers[id * shape[1] + c] - numbers[rival * shape[1] + c];
    this.biases = bias ? bias[id] - bias[rival] : 0;
    if (name === "head.output") return this.throughPooling(direction);
    const gradient = outputs[this.last].map((_, t) => (t === row ? direction : null));
    if (name === "head") return gradient;
    const dense = this.norm(gradient, "head.norm").map((g, t) => this.gated(g, outputs["head.dense"][t], "gelu"));
    return this.linear(dense, "head.dense");
  }
  gated(gradient, inner, activation) {
    return gradient && gradient.map((v, c) => v * gateOf(activation, inner[c]));
  }
  throughPooling(pooled) {
    const { pooling, pooler_activation } = this.facts,
      { outputs } = this.recording,
      vectors = outputs[this.last];
    if (outputs["head.hidden"])
      [pooled] = this.linear([this.gated(pooled, outputs["head.hidden"][0], pooler_activation)], "head.hidden");
    if (pooling === "first") return vectors.map((_, t) => (t ? null : pooled));
    if (pooling === "mean") return vectors.map(() => pooled.map((v) => v / vectors.length));
    const first = pooled.map((_, c) => topOf(vectors.map((vector) => vector[c]), 1)[0]);
    return vectors.map((_, t) => pooled.map((v, c) => (first[c] === t ? v : 0)));
  }
  // Back through a stack, from the gradient behind its last norm to the shares of its tokens and positions.
  stack(side, gradient) {
    const { network, recording } = this,
      stack = network.stacks[side],
      isLast = side === this.last;
    gradient = this.norm(gradient, `${side}.norm`, isLast);
    for (let l = stack.n_layers - 1; l >= 0; l--) {
      const name = `${side}.layers.${l}`;
      if (network.without.layers.has(name)) continue;
      const back = {
        feed_forward: (g, sublayer) => this.feedForward(g, sublayer, stack),
        cross_attention: (g, sublayer) => this.crossAttention(g, sublayer, stack),
        self_attention: (g, sublayer) =>
          this.linear(this.values(g, sublayer, stack), `${sublayer}.query_key_value`, 2 * stack.n_heads * stack.d_head),
        recurrence: (g, sublayer) => this.recurrence(g, sublayer),
      };
      for (const [kind, sublayer] of Object.entries(back))
        if (recording.outputs[`${name}.${kind}`])
          gradient = this.residual(gradient, `${name}.${kind}`, stack, sublayer, isLast);
    }
    return this.embedded(side, this.norm(gradient, `${side}.embedding_norm`, isLast), isLast);
  }
  residual(gradient, name, stack, sublayer, isLast) {
    const norm = `${name}_residual.norm`,
      pre = stack.norm_order === "pre",
      added = pre ? gradient : this.norm(gradient, norm, isLast);
    if (isLast) this.write(name, stack);
    const through = sublayer(added, name),
      inner = pre ? this.norm(through, norm, false) : through;
    if (this.network.leaves("residual")) {
      if (isLast) this.straight = this.straight.map(() => null);
      return inner;
    }
    return added.map((g, t) => (g && inner[t] ? g.map((v, c) => v + inner[t][c]) : (g ?? inner[t])));
  }
  // The share of what a sublayer writes straight to the logits; of an attention by head, and its bias.
  write(name, stack) {
    const { outputs } = this.recording,
      { straight } = this,
      mixed = outputs[`${name}.heads.mixed`];
    const rectified = (vectors) => vectors.map((cell) => cell.map(ACTIVATIONS.relu)),
      written = name.endsWith(".recurrence") ? rectified(outputs[name]) : outputs[name];
    this.writes[name] = summed(straight, written);
    if (!mixed) return;
    const { biases } = this,
      inner = this.linear(straight, `${name}.output`);
    this.heads[name] = Array.from({ length: stack.n_heads }, (_, head) => {
      const from = head * stack.d_head;
      return summed(inner, mixed, from, from + stack.d_head);
    });
    this.heads[name].push(this.biases - biases);
    this.biases = biases;
  }

  // What the output layer makes of the output of a head at a position: logits, without their mean.
  writtenBy(name, head, row) {
    const { network, recording } = this,
      { n_layers, d_head, norm_order } = network.stacks.decoder,
      { shape, numbers } = network.arrays[`${name}.output.weight`],
      mixed = recording.outputs[`${name}.heads.mixed`][row],
      from = head * d_head;
    let x = new Float64Array(shape[0]);
    for (let r = 0; r < shape[0]; r++)
      for (let c = from; c < from + d_head; c++) x[r] += numbers[r * shape[1] + c] * mixed[c];
    const sublayers = Array.from({ length: n_layers }, (_, l) =>
      ["self_attention", "recurrence", "cross_attention", "feed_forward"].map((kind) => `decoder.layers.${l}.${kind}`),
    ).flat();
    const norms = norm_order === "pre" ? [] : sublayers.slice(sublayers.indexOf(name)).map((of) => `${of}_residual.norm`);
    for (const norm of [...norms, "decoder.norm"]) {
      const scales = recording.scales[norm],
        mean = x.reduce((a, b) => a + b, 0) / x.length;
      if (scales) x = x.map((v, c) => (v - mean) * scales[row] * network.arrays[`${norm}.weight`].numbers[c]);
    }
    const output = network.arrays["head.weight"],
      logits = Float64Array.from({ length: output.shape[0] }, (_, id) => rowTimes(output.numbers, id * x.length, x, x.length)),
      middle = logits.reduce((a, b) => a + b, 0) / logits.length;
    return logits.map((v) => v - middle);
  }

  // Gradient before a linear layer, by its rows from `from` on; its bias has a share.
  linear(gradient, name, from = 0) {
    const { shape, numbers } = this.network.arrays[`${name}.weight`],
      columns = shape[1],
      bias = this.network.arrays[`${name}.bias`]?.numbers;
    return gradient.map((g) => {
      if (!g) return null;
      const x = new Float64Array(columns);
      for (let r = 0; r < g.length; r++) {
        const v = g[r],
          at = (from + r) * columns;
        if (v === 0) continue;
        if (bias) this.biases += v * bias[from + r];
        for (let c = 0; c < columns; c++) x[c] += v * numbers[at + c];
      }
      return x;
    });
  }
  // The same of a norm with its scales held.
  norm(gradient, name, isLast) {
    const scales = this.recording.scales[name],
      weight = this.network.arrays[`${name}.weight`]?.numbers,
      bias = this.network.arrays[`${name}.bias`]?.numbers;
    if (!scales) return gradient;
    const back = (g, t) => {
      const scaled = g.map((v, c) => v * weight[c] * scales[t]),
        mean = scaled.reduce((a, b) => a + b, 0) / scaled.length;
      return scaled.map((v) => v - mean);
    };
    if (isLast) {
      this.straightBiases += summed(this.straight, this.straight.map(() => bias));
      this.straight = this.straight.map((g, t) => g && back(g, t));
    }
    return gradient.map((g, t) => {
      if (!g) return null;
      this.biases += dot(g, bias);
      return back(g, t);
    });
  }
  // The cells of an SSRU, with its gates held: the gradient of each comes from its output and from the next cell.
  recurrence(gradient, name) {
    const { outputs } = this.recording,
      cells = outputs[name],
      gates = outputs[`${name}.forget`].map((vector) => vector.map(sigmoid)),
      back = gradient.map((g, t) => g && g.map((v, c) => (cells[t][c] > 0 ? v : 0)));
    for (let t = back.length - 1; t > 0; t--)
      if (back[t]) back[t - 1] = back[t].map((v, c) => (back[t - 1]?.[c] ?? 0) + v * gates[t][c]);
    return this.linear(
      back.map((g, t) => g && g.map((v, c) => v * (1 - gates[t][c]))),
      `${name}.candidate`,
    );
  }
  feedForward(gradient, name, { activation, d_ff }) {
    const { outputs } = this.recording,
      gated = activation === "swiglu",
      inner = outputs[gated ? `${name}.gate_inner` : `${name}.inner`];
    const back = this.linear(gradient, `${name}.outer`).map(
      (g, t) =>
        g &&
        g.map((v, c) => v * (gated ? ACTIVATIONS.silu(inner[t][c]) : gateOf(activation, inner[t][c]))),
    );
    return this.linear(back, gated ? `${name}.gate_inner` : `${name}.inner`, gated ? d_ff : 0);
  }
  // Gradients of the values of an attention, its weights held.
  values(gradient, name, { n_heads, d_head }) {
    const { attention, heads } = this.recording,
      mixed = this.linear(gradient, `${name}.output`),
      values = heads[name].value.map(() => null);
    mixed.forEach((g, i) => {
      if (!g) return;
      for (let head = 0; head < n_heads; head++) {
        if (this.network.without.heads.has(`${name}:${head + 1}`)) continue;
        attention[name][head][i].forEach((weight, j) => {
          if (weight) axpy((values[j] ??= new Float64Array(g.length)), weight, g, head * d_head, (head + 1) * d_head);
        });
      }
    });
    return values;
  }
  // The gradient goes on into the memory, and nowhere else: queries only make patterns.
  crossAttention(gradient, name, stack) {
    const values = this.values(gradient, name, stack);
    this.linear(values, `${name}.key_value`, stack.n_heads * stack.d_head).forEach((g, j) => {
      const before = this.memory[j];
      this.memory[j] = g && before ? g.map((v, c) => v + before[c]) : (g ?? before ?? null);
    });
    return gradient.map(() => null);
  }
  // Shares of tokens and of their positions and segments.
  embedded(side, gradient, isLast) {
    const { network, recording } = this,
      front = side === "decoder" && network.stacks.encoder ? "target_front_end" : "front_end",
      looked = recording.outputs[`${front}.embedding`],
      tokens = looked ?? recording.outputs[front],
      scale = looked ? network.scale : 1,
      whole = recording.embedded[side],
      share = (g, vector, times = 1) => (g ? times * dot(g, vector) : 0);
    if (isLast) {
      this.writes.embedding = scale * summed(this.straight, tokens);
      this.writes.positions = summed(this.straight, whole) - this.writes.embedding;
    }
    const shares = tokens.map((vector, t) => share(gradient[t], vector, scale));
    return {
      tokens: shares,
      positions: whole.map((vector, t) => share(gradient[t], vector) - shares[t]),
    };
  }
}
