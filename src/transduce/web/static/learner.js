// A Transformer that learns, in WebAssembly: the way back of the native engine.  Needs tokenizers.js and
// translator.js before it.

const POSITIONS = ["none", "sinusoidal", "sinusoidal-halves", "learned", "rotary", "alibi"];
const ACTIVATIONS = ["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"];
const TIES = ["none", "two-way", "three-way"];
const LEFT_OUT = { scale: 1, mask: 2, residual: 4, norm: 8 };
const MAX_POSITIONS = 1024;

// Bytes of the structures `ModelShape` and `Training` of the engine, from settings named as in a recipe.
function shapeBytes(model, precision = "float32") {
  const bytes = new DataView(new ArrayBuffer(4 * 42));
  let at = 0;
  const put = (number, isFloat) => {
    if (isFloat) bytes.setFloat32(at, number, true);
    else bytes.setInt32(at, number, true);
    at += 4;
  };
  for (const side of ["encoder", "decoder"]) {
    const stack = model[side];
    if (!stack) {
      at += 4 * 14;
      continue;
    }
    const head = stack.d_head ?? model.d_model / stack.n_heads;
    [stack.n_layers, stack.n_heads, head, stack.d_ff, ACTIVATIONS.indexOf(stack.activation ?? "relu")].forEach((n) => put(n));
    [Number(stack.norm_order === "pre"), POSITIONS.indexOf(stack.positions ?? "sinusoidal"), MAX_POSITIONS, 0].forEach((n) => put(n));
    put(stack.norm_epsilon ?? 1e-5, true);
    [0, Number(stack.norm === "rms"), 32, 128].forEach((n) => put(n));
  }
  [model.d_model, model.encoder ? model.source_size : 0, model.target_size].forEach((n) => put(n));
  put(["float32", "bf16", "int8"].indexOf(precision));
  put(Math.sqrt(model.d_model), true);
  return new Uint8Array(bytes.buffer);
}
function trainingBytes(model, { label_smoothing = 0 }) {
  const bytes = new DataView(new ArrayBuffer(20)),
    dropped = (model.left_out ?? []).reduce((bits, part) => bits | (LEFT_OUT[part] ?? 0), 0);
  [TIES.indexOf(model.tie), dropped, Number(model.init === "normal")].forEach((n, k) => bytes.setInt32(4 * k, n, true));
  [model.dropout ?? 0, label_smoothing].forEach((n, k) => bytes.setFloat32(12 + 4 * k, n, true));
  return new Uint8Array(bytes.buffer);
}
// The structure `Step`.  optimizer: settings of the recipe's section `training`.
function stepBytes(step, rate, { optimizer: o = {}, clip_norm = 0, ema = 0 }) {
  const bytes = new DataView(new ArrayBuffer(40)),
    isMuon = o.kind === "muon",
    floats = [rate, o.beta1 ?? 0.9, o.beta2 ?? 0.98, o.epsilon ?? 1e-9, o.weight_decay ?? 0, clip_norm];
  bytes.setInt32(0, step, true);
  [...floats, isMuon ? (o.momentum ?? 0.95) : 0, o.rms ?? 0.4, ema].forEach((n, k) => bytes.setFloat32(4 + 4 * k, n, true));
  return new Uint8Array(bytes.buffer);
}

class Learner {
  // model, training: settings named as in a recipe, with the sizes of the vocabularies.
  static async load(model, training, modules) {
    return new Learner(model, training, await Engine.load(modules));
  }
  constructor(model, training, engine) {
    Object.assign(this, { model, training, engine, steps: 0 });
    const { call } = engine;
    this.handle = engine.within((put) => call.learner_new(put(shapeBytes(model)), put(trainingBytes(model, training))));
    if (!this.handle) throw new TypeError("the trainer has no such model");
    this.parameters = Array.from({ length: call.learner_count(this.handle) }, (_, k) => ({
      name: this.text(call.learner_name(this.handle, k)),
      rows: call.learner_rows(this.handle, k),
      columns: call.learner_columns(this.handle, k),
    }));
  }
  delete() {
    this.engine.call.learner_delete(this.handle);
  }
  text(address) {
    const bytes = new Uint8Array(this.engine.call.memory.buffer, address);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }
  initialise(seed) {
    this.engine.call.learner_initialise(this.handle, seed);
    this.steps = 0;
  }
  // A view of the numbers of a parameter, until the memory grows.
  view(k, kind = "weights") {
    const { rows, columns } = this.parameters[k],
      place = ["weights", "gradients", "means", "squares", "average"].indexOf(kind);
    return new Float32Array(this.engine.call.memory.buffer, this.engine.call.learner_numbers(this.handle, k, place), rows * columns);
  }
  // Sums of a pass over pairs of ids: loss, nll in nats, targets.  Inputs begin with BOS, targets end with
  // EOS; without targets logits alone.  seed: of dropout, by default none; backward: computes gradients.
  pass({ sources = [], inputs, targets }, { backward = false, seed } = {}) {
    const { call } = this.engine;
    const done = this.engine.within((put) => {
      const flat = (rows) => [put(ints(rows.flat())), put(ints(rows.map((row) => row.length)))],
        wanted = targets ? put(ints(targets.flat())) : 0,
        step = seed === undefined ? -1 : this.steps;
      return call.learner_pass(this.handle, ...flat(sources), ...flat(inputs), wanted, inputs.length, seed ?? 0, step, backward ? 1 : 0);
    });
    if (!done) throw new RangeError("ids that the model lacks");
    this.lengths = { sources: sources.map((ids) => ids.length), inputs: inputs.map((ids) => ids.length) };
    const [loss, nll, count] = [0, 1, 2].map((kind) => call.learner_loss(this.handle, kind));
    return { loss, nll, count };
  }
  // One step of the optimizer; progress: share of the budget that is spent, from 0 to 1.
  step(progress) {
    const { call } = this.engine,
      { peak, warmup_steps: warmup } = this.training.schedule,
      rate = call.learner_rate(peak, warmup, this.steps + 1, progress);
    const norm = this.engine.within((put) => call.learner_step(this.handle, put(stepBytes(this.steps + 1, rate, this.training))));
    this.steps++;
    return { rate, norm };
  }
  logits() {
    const rows = this.lengths.inputs.reduce((a, b) => a + b, 0);
    return new Float32Array(this.engine.call.memory.buffer, this.engine.call.learner_logits(this.handle), rows * this.model.target_size);
  }
  // Weights of the attentions of the last pass for a sentence: name, head, rows, columns, numbers.
  attentions(sentence = 0) {
    const { call } = this.engine,
      [n, m] = [this.lengths.inputs[sentence], this.lengths.sources[sentence]];
    return Array.from({ length: call.learner_attentions(this.handle) }, (_, k) => {
      const name = this.text(call.learner_attention_name(this.handle, k)),
        side = name.startsWith("encoder") ? "encoder" : "decoder",
        rows = side === "encoder" ? m : n,
        columns = name.endsWith("cross_attention") || side === "encoder" ? m : n;
      return Array.from({ length: this.model[side].n_heads }, (_, head) => {
        const address = call.learner_attention(this.handle, k, sentence, head);
        return { name, head, rows, columns, numbers: this.engine.read(Float32Array, address, rows * columns) };
      });
    }).flat();
  }
  // The likeliest token, one after the other, until the end or `longest` of them.  starts: ids that the
  // outputs begin with, BOS first.
  write(sources, longest, starts = sources.map(() => [BOS])) {
    const written = starts.map((ids) => [...ids]),
      open = new Set(written.keys());
    for (let step = 0; step < longest && open.size; step++) {
      this.pass({ sources, inputs: written });
      const logits = this.logits(),
        size = this.model.target_size;
      let at = 0;
      const lengths = written.map((ids) => ids.length);
      lengths.forEach((length, k) => {
        at += length;
        if (!open.has(k)) return;
        const row = logits.subarray((at - 1) * size, at * size),
          best = row.reduce((top, score, id) => (score > row[top] && id !== PAD && id !== BOS ? id : top), UNK);
        if (best === EOS) open.delete(k);
        else written[k].push(best);
      });
    }
    return written.map((ids, k) => ids.slice(starts[k].length));
  }
}
