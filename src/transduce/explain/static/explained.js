// The object of `transduce explain --json`, computed from a text.

const MOST_TOKENS = 256;
const RIVALS = 8;
const GENERATED_RIVALS = 50;
const LENS = 3;
const MOST_STEPS = 32;
const MOST_PROMPT = 40;
const SHARE_FOR_HISTORY = 0.75;
// Tokens that are written without the mask, where each computes all before it anew.
const MOST_UNMASKED = 16;
const LISTS = "attention steps layers by_hand ctc labels hidden features credit".split(" ");
const GROUPS = {
  sequences: {},
  stacks: {},
  shapes: {},
  vectors: {},
  search: null,
  span: null,
  picture: null,
};
const NOTHING = {
  ...GROUPS,
  ...Object.fromEntries(LISTS.map((key) => [key, []])),
  first_step: 0,
  layers_of: "",
};
const mapped = (record, change) =>
  Object.fromEntries(Object.entries(record).map(([k, v]) => [k, change(v, k)]));

// Plain data with numbers of 5 digits, as Python writes them.
function plain(part) {
  if (typeof part === "number") return Number(part.toPrecision(5));
  if (Array.isArray(part) || ArrayBuffer.isView(part)) return Array.from(part, plain);
  return part && typeof part === "object" ? mapped(part, plain) : part;
}
const likeliest = (shares, names, count) => {
  const ids = topOf(shares, count),
    shown = names(ids);
  return ids.map((id, k) => [shown[k], shares[id], id]);
};
// What Python shows of an explanation: the sharpest heads by hand, no ids beside names, numbers of 5 digits.
function published({ recording, hand, creditOf, choices = [], ...explanation }) {
  const pairs = (guesses) => guesses.map(([name, share]) => [name, share]),
    { steps, layers, labels, hidden } = explanation;
  return plain({
    ...explanation,
    steps: steps.map(({ id, ...step }) => ({ ...step, guesses: pairs(step.guesses) })),
    by_hand: hand ? hand.sharpest.map(hand.vectors) : [],
    credit: choices.map((_, k) => creditOf(k)).filter(Boolean),
    layers: layers.map((layer) => layer.map(pairs)),
    labels: pairs(labels),
    hidden: hidden.map((token) => ({ ...token, guesses: pairs(token.guesses) })),
  });
}
// marks: names of the ids behind the vocabulary.
const namesOf = (tokenizer, marks = []) => {
  const name = (id) => SPECIAL[id] ?? marks[id - tokenizer.size] ?? tokenizer.token(id);
  return (ids) => ids.map(name);
};

// By task: model, what is known before, texts, settings -> explanation.
const TASKS = {
  translation: (model, ...rest) => model.translation(...rest),
  "language-model": (model, ...rest) => model.continuation(...rest),
  dialogue: (model, ...rest) => model.continuation(...rest),
  recommendation: (model, ...rest) => model.recommendation(...rest),
  classification: (...rest) => classified(...rest),
  "masked-language-model": (...rest) => filled(...rest),
  embedding: (...rest) => embedded(...rest),
  "image-classification": (...rest) => classifiedImage(...rest),
  "image-embedding": (...rest) => embeddedImage(...rest),
};

// A model of the page: settings and limits of the run, tokenizers, and the network.
class LiveModel {
  constructor(facts, bytes) {
    this.facts = facts;
    this.network = new Transformer(facts, unpackedArrays(facts.arrays, bytes));
    this.tokenizers = facts.tokenizers.map(tokenizerOf);
  }
  // texts: one for each input.  settings: `changes` of the network; `decoding`, options that differ from the
  // run's; `forced`, ids that begin the output; `rivals`, tokens shown for each step.
  explain(texts, settings = {}) {
    const { facts, network } = this,
      inputs = Object.fromEntries(facts.inputs.map((name, k) => [name, texts[k]])),
      bare = { format: 1, task: facts.task, run: facts.run, inputs, answer: "", ...NOTHING };
    network.change(settings.changes);
    return TASKS[facts.task](this, bare, texts, settings);
  }

  translation(bare, [text], settings) {
    const { network, facts } = this,
      [source, target = source] = this.tokenizers,
      encoded = source.encode(text);
    if (text.trim() === "") return bare;
    this.checkLength(encoded.length, facts.max_source_length);
    const ids = source.facts.endless ? encoded : [...encoded, EOS],
      names = namesOf(target),
      lengths = { ...facts.decoding, ...settings.decoding },
      most = Math.trunc(encoded.length * lengths.max_length_ratio) + lengths.max_length_extra;
    const [memory, reading] = network.record(() => network.project(network.encode(ids)));
    const search = this.search(settings, names, (hypotheses) => this.step(hypotheses, memory), {
      limit: Math.min(most, facts.max_target_length ?? most),
      least: Math.max(lengths.min_length, Math.trunc(encoded.length * lengths.min_length_ratio)),
      forbidden: [BOS, PAD],
      within: this.shortlisted(ids, settings.forced ?? []),
    });
    const written = search.run()?.ids ?? [],
      alike = source instanceof ListedTokenizer && source.facts.kind === target.facts.kind,
      answer = oneLine(target.decode(written, alike ? source.unknown(text) : []));
    const read = [BOS, ...written],
      shown = { source: namesOf(source)(ids), read: names(read), written: names([...written, EOS]) },
      roles = { encoder: ["source", "source"], decoder: ["read", "read"], cross: ["written", "source"] };
    const [logits, writing] = network.record(() => this.whole(read, memory));
    const recording = mapped(reading, (records, part) => ({ ...records, ...writing[part] })),
      ended = [...written, EOS],
      choices = [...ended.entries()],
      again = () => this.whole(read, network.project(network.encode(ids)));
    return {
      ...bare,
      answer,
      search: search.tree(),
      steps: stepsOf(read, ended, logits.map(softmax), names, settings.rivals ?? RIVALS),
      ...creditsOf(this, recording, names, choices),
      layers: this.tokenLens(recording, names),
      layers_of: "written",
      vectors: memory.context ? { context: memory.context } : {},
      ...this.pass(recording, roles, shown, { encoder: "source", decoder: "read" }, again),
    };
  }

  // The only ids of a translation, where the run has a shortlist: those of its source, and those that are forced.
  shortlisted(source, forced) {
    const { facts, network } = this;
    if (!facts.shortlist) return null;
    const ids = [...source, EOS],
      likely = ids.flatMap((id) => [...network.row("shortlist.likely", id)]),
      frequent = network.arrays["shortlist.frequent"].numbers;
    return new Set([...SPECIAL.keys(), ...frequent, ...likely, ...(facts.shortlist.joint ? ids : []), ...forced]);
  }

  continuation(bare, [text], settings) {
    const { facts } = this,
      [tokenizer] = this.tokenizers,
      [prompt, names] = this.prompt(text),
      replies = facts.task === "dialogue",
      limit = settings.decoding?.max_tokens ?? facts.decoding.max_tokens,
      step = (hypotheses) => hypotheses.map((h) => this.windowed(h, prompt)),
      search = this.search(settings, names, step, {
        limit,
        least: facts.decoding.min_length,
        forbidden: [BOS, PAD, UNK, ...(facts.roles ?? []).map((_, k) => tokenizer.size + k)],
        ended: (ids) => ids.length >= limit,
      });
    const best = search.run(),
      whole = [...best.ids, ...(best.ended ? [EOS] : [])],
      before = replies ? [] : prompt,
      answer = tokenizer.decode([...before, ...best.ids]).slice(tokenizer.decode(before).length),
      [, parts] = this.alone(prompt, whole.slice(0, MOST_STEPS), names);
    return { ...bare, answer: oneLine(answer), search: search.tree(), ...parts };
  }

  // The likeliest items that are not in the history.
  recommendation(bare, [text]) {
    const [tokenizer] = this.tokenizers,
      known = tokenizer.encode(text).filter((id) => id !== UNK),
      names = namesOf(tokenizer),
      [logits, parts] = this.alone([BOS, ...known], [], names),
      out = new Set([PAD, UNK, BOS, EOS, ...known]),
      open = softmax(logits.at(-1).map((v, id) => (out.has(id) ? -Infinity : v))),
      items = (ids) => ids.map((id) => tokenizer.decode([id])),
      labels = likeliest(open, items, this.facts.at).filter(([, share]) => share > 0);
    return { ...bare, answer: labels.map(([item]) => item).join(" "), labels, ...parts };
  }

  // Ids that a decoder alone reads first, and names of all.
  prompt(text) {
    const { facts } = this,
      [tokenizer] = this.tokenizers;
    if (facts.task !== "dialogue") return [[BOS, ...tokenizer.encode(text)], namesOf(tokenizer)];
    // Turns of two roles alternate; those that have room are read, the newest to the end.
    const mark = (back) => tokenizer.size + facts.roles.length - 1 - (back % 2),
      turns = text.split("\n").map((line) => line.trim()),
      room = Math.max(4, Math.trunc(SHARE_FOR_HISTORY * facts.window)) - 2;
    let history = [];
    for (const [k, turn] of turns.filter(Boolean).reverse().entries()) {
      const ids = tokenizer.encode(turn).slice(k ? 0 : -Math.max(1, room - 2));
      if (history.length + ids.length + 2 > room) break;
      history = [mark(k + 1), ...ids, EOS, ...history];
    }
    const marks = facts.roles.map((role) => `<${role}>`);
    return [[BOS, ...history, mark(0)], namesOf(tokenizer, marks)];
  }
  // Logits of a pass of a decoder alone over a prompt and what it has written, and what there is to show.
  alone(prompt, written, names) {
    const { network, facts } = this,
      row = [...prompt, ...written.slice(0, -1)].slice(-facts.window),
      first = Math.max(0, row.length - MOST_STEPS - MOST_PROMPT),
      shown = {
        read: names(row.slice(first)),
        written: names([...row.slice(first + 1), ...written.slice(-1)]),
      };
    const [logits, recording] = network.record(() => this.whole(row)),
      again = () => this.whole(row),
      begin = row.length - Math.max(written.length, 1),
      shares = written.map((_, k) => softmax(logits[begin + k])),
      choices = written.map((id, k) => [begin + k, id]);
    const parts = {
      steps: stepsOf(row.slice(begin), written, shares, names, GENERATED_RIVALS),
      ...creditsOf(this, recording, names, choices, first),
      first_step: begin - first,
      layers: this.tokenLens(recording, names, first),
      layers_of: "read",
      ...this.pass(recording, { decoder: ["read", "read"] }, shown, { decoder: "read" }, again, first),
    };
    return [logits, parts];
  }

  checkLength(count, most) {
    const room = Math.min(most, MOST_TOKENS - 1);
    if (count <= room) return;
    const message = `${count} tokens; at most ${room} are computed here`;
    throw Object.assign(new RangeError(message), { sizes: [count, room] });
  }
  logits(x) {
    return this.network.linear(x, "head");
  }
  // Logits before each written token as a function of changes; what a change leaves as it is, is not made again.
  rowsOf(texts, written) {
    const { network } = this,
      translates = this.facts.task === "translation",
      ids = this.tokenizers[0].encode(texts[0]),
      source = this.tokenizers[0].facts.endless ? ids : [...ids, EOS],
      before = translates ? [BOS] : this.prompt(texts[0])[0],
      read = [...before, ...written.slice(0, -1)].slice(translates ? 0 : -this.facts.window),
      memories = new Map(),
      inEncoder = (name) => name.startsWith("encoder") || name.startsWith("front_end");
    return (changes) => {
      network.change(changes);
      const heads = network.changes.heads.filter(inEncoder),
        patches = network.changes.patches.filter(({ name }) => inEncoder(name)),
        key = JSON.stringify({ ...changes, heads, patches });
      if (translates && !memories.has(key)) memories.set(key, network.encode(source));
      const memory = translates ? network.project(memories.get(key)) : undefined;
      return this.whole(read, memory).slice(-written.length);
    };
  }
  // The same before one of them.
  rowOf(texts, written, step) {
    const rows = this.rowsOf(texts, written.slice(0, step + 1));
    return (changes) => rows(changes).at(-1);
  }
  chanceOf(texts, written, step) {
    const row = this.rowOf(texts, written, step);
    return (changes) => softmax(row(changes))[written[step]];
  }
  namesOfOutput(ids) {
    const marks = (this.facts.roles ?? []).map((role) => `<${role}>`);
    return namesOf(this.tokenizers.at(-1), marks)(ids);
  }
  // Logits behind each token of one row.
  whole(ids, memory) {
    const states = Array(ids.length).fill(this.network.start());
    return this.logits(this.network.decode(ids, states, memory));
  }
  // Logits of the next token of each hypothesis; without the mask every position is computed anew.
  step(hypotheses, memory) {
    const { network } = this;
    if (network.leaves("mask")) return hypotheses.map((h) => this.whole([BOS, ...h.ids], memory).at(-1));
    const last = hypotheses.map((h) => h.ids.at(-1) ?? BOS),
      states = hypotheses.map((h) => h.state);
    return this.logits(network.decode(last, states, memory));
  }
  // The same for a decoder alone, whose context keeps three quarters of what is too long for it.
  windowed(h, prompt) {
    const { network, facts } = this;
    if (network.leaves("mask")) return this.whole([...prompt, ...h.ids].slice(-facts.window)).at(-1);
    let ids = h.ids.length ? h.ids.slice(-1) : prompt;
    if (h.state.length + ids.length > facts.window) {
      ids = [...prompt, ...h.ids].slice(-Math.max(1, Math.trunc(0.75 * facts.window)));
      h.state = network.start();
    }
    const x = network.decode(ids, Array(ids.length).fill(h.state));
    return this.logits(x.slice(-1))[0];
  }
  search(settings, names, step, limits) {
    const draw = uniforms(settings.decoding?.seed ?? this.facts.decoding.seed),
      numbers = [];
    const random = (k) => {
      while (numbers.length <= k) numbers.push(draw());
      return numbers[k];
    };
    const { decoding, forced } = settings,
      limit = this.network.leaves("mask") ? Math.min(limits.limit, MOST_UNMASKED) : limits.limit,
      options = { ...this.facts.decoding, ...decoding, ...limits, limit, forced, random };
    return new Search(step, this.network.start(), options, names);
  }
  // Scores of the vectors after each layer, as if it were the last (logit lens), made when they are read.
  lens(recording, side, first, read) {
    const { network } = this,
      { changes } = network,
      { epsilon } = network.stacks[side],
      normed = (x) => network.norm(x.slice(first), `${side}.norm`, epsilon),
      layers = [];
    (recording.layers[side] ?? []).forEach((x, l) => {
      let scores;
      const get = () => {
        if (!scores) network.change(changes);
        return (scores ??= network.unpatched(() => read(normed(x))));
      };
      Object.defineProperty(layers, l, { enumerable: true, get });
    });
    return layers;
  }
  tokenLens(recording, names, first = 0) {
    const read = (x) => this.logits(x).map((row) => likeliest(softmax(row), names, LENS));
    return this.lens(recording, "decoder", first, read);
  }

  // Credit of each choice: its number, perhaps the id of a rival -> shares of the difference of logits between the
  // token (or label) chosen and the rival, by default the likeliest other one; null while numbers are put in by hand.
  // choices: row and id of each.  first: number of the first token shown; those before it have one share together.
  creditOf(recording, names, choices, first = 0) {
    const { network, facts } = this,
      { changes } = network,
      sum = (shares) => shares.reduce((a, b) => a + b, 0);
    return (number, chosen) => {
      if (changes.patches.length) return null;
      network.change(changes);
      const [row, id] = choices[number],
        logits = recording.outputs.head[row],
        rival = chosen ?? topOf(logits, 2).find((other) => other !== id),
        shares = new Credit(network, recording, facts).of(row, id, rival),
        ends = [shares.read, shares.read_positions];
      return {
        rival: names([rival])[0],
        difference: logits[id] - logits[rival],
        ...shares,
        read: ends[0].slice(first),
        read_positions: ends[1].slice(first),
        earlier: sum(ends.map((all) => sum(all.slice(0, first)))),
      };
    };
  }

  // What every explanation has of a recorded pass.  again: the same pass, to record it without positions.
  pass(recording, roles, shown, sequences, again, first = 0) {
    const { network } = this,
      cut = (maps) => maps.map((rows) => rows.slice(first).map((row) => row.slice(first)));
    const attention = Object.entries(recording.attention).map(([name, maps]) => {
      const kind = name.endsWith("cross_attention") ? "cross" : name.split(".")[0],
        [rows, columns] = roles[kind],
        weights = cut(maps),
        causal = kind === "decoder" && !network.leaves("mask"),
        patterns = weights.map((map) => headPattern(map, shown[columns], rows === columns, causal));
      return { name, rows, columns, weights, patterns, causal };
    });
    let bare;
    const changes = network.changes,
      vectors = ([number, head]) => {
        bare ??= [this.withoutPositions(again, changes)];
        return this.headVectors(recording, bare[0], attention[number].name, [number, head], first, changes);
      };
    return {
      sequences: shown,
      attention,
      stacks: mapped(network.stacks, (stack, side) => this.stack(side, stack, sequences[side])),
      shapes: this.shapes(recording),
      recording,
      hand: { sharpest: sharpest(attention, recording.heads), vectors },
    };
  }
  // The recording of a pass with the same changes, and no positions.
  withoutPositions(again, changes) {
    const { network } = this,
      { parts } = changes,
      bare = Object.values(network.stacks).every((stack) => stack.positions === "none");
    if (bare || parts.includes("positions")) return null;
    network.change({ ...changes, parts: [...parts, "positions"] });
    const [, recording] = network.record(again);
    return recording;
  }
  headVectors(recording, bare, name, [attention, head], first, changes) {
    const stack = this.network.stacks[name.split(".")[0]],
      [from, to] = [head * stack.d_head, (head + 1) * stack.d_head],
      of = (vectors) => vectors.slice(first).map((vector) => vector.slice(from, to)),
      vectorsOf = (records) => mapped(records.heads[name], of);
    const vectors = vectorsOf(recording),
      biased = stack.slopes && !changes.parts.includes("positions") && !name.endsWith("cross_attention"),
      slope = biased ? stack.slopes[head] : null,
      bias = slope && vectors.query.map((_, i) => vectors.key.map((_, j) => -slope * Math.abs(i - j)));
    return { attention, head, vectors, bias, without_positions: bare && vectorsOf(bare) };
  }
  stack(side, stack, sequence) {
    const { n_layers, n_heads, d_head, norm_order } = stack,
      { d_model } = this.facts,
      waves = wavesOf(stack, this.network.arrays[`${side}.positions.table.weight`], d_model),
      positions = stack.positions.startsWith("sinusoidal") ? "sinusoidal" : stack.positions,
      sizes = { n_layers, d_model, n_heads, d_head, pre_norm: norm_order === "pre" };
    // An SSRU is shown as the recurrent stack that it is.
    const recurs = stack.kind === "ssru" ? { kind: "recurrent", d_head: 0 } : {};
    return { sequence, kind: stack.kind, ...sizes, ...recurs, context: stack.context ?? "", positions, waves };
  }
  // Shapes of outputs, of the first layer alone where there are several; a module that is shared has its first name.
  shapes(recording) {
    const { arrays } = this.network,
      shared = arrays["target_front_end.embedding.weight"] === arrays["front_end.embedding.weight"],
      pools = /classification|embedding/.test(this.facts.task);
    const shapeOf = (name, x) => {
      if (name.endsWith(".table")) return [x.length, x[0].length];
      return pools && name.startsWith("head") ? [1, x[0].length] : [1, x.length, x[0].length];
    };
    const named = { ...mapped(recording.outputs, (x, name) => shapeOf(name, x)), ...recording.shapes };
    const shown = Object.entries(named).filter(
      ([name]) =>
        (!/layers\.|residuals\./.test(name) || /\.(layers|residuals)\.0(\.|$)/.test(name)) &&
        !name.endsWith(".activation") &&
        !name.includes(".heads.") &&
        !(shared && name === "target_front_end.embedding"),
    );
    return Object.fromEntries(shown);
  }
}

function stepsOf(read, ids, shares, names, count) {
  const [reads, written] = [names(read), names(ids)];
  return ids.map((id, k) => {
    const guesses = likeliest(shares[k], names, count);
    return { id, read: reads[k], written: written[k], probability: shares[k][id], guesses };
  });
}
// The sharpest head of each kind of attention with queries, keys and values: its attention and its number.
function sharpest(attention, heads) {
  const best = new Map();
  attention.forEach(({ name, rows, columns, weights }, number) =>
    weights.forEach((map, head) => {
      const role = `${rows} ${columns}`,
        sharp = sharpness(map);
      if (!heads[name]) return;
      if (!best.has(role) || sharp > best.get(role)[0]) best.set(role, [sharp, number, head]);
    }),
  );
  return [...best.values()].map(([, number, head]) => [number, head]);
}
// [BOS] a [EOS], or [BOS] a [EOS] b [EOS], with the segment of each; what is too long is cut at the end.
// between: marks between two texts, where an imported model has more than one.
function inputRow([a, b], most, between = 1) {
  if (!b) return [[BOS, ...a.slice(0, most - 2), EOS], Array(Math.min(a.length, most - 2) + 2).fill(0)];
  const room = most - 2 - between,
    marks = Array(between).fill(EOS);
  if (a.length + b.length > room) {
    const rest = Math.min(b.length, Math.max(Math.floor(room / 2), room - a.length));
    [a, b] = [a.slice(0, room - rest), b.slice(0, rest)];
  }
  return [
    [BOS, ...a, ...marks, ...b, EOS],
    [...Array(a.length + 1 + between).fill(0), ...Array(b.length + 1).fill(1)],
  ];
}
