// A training in a worker: of someone's table, or of a task for a class.  Needs tokenizers.js, translator.js,
// learner.js, table.js and saving.js before it; `page` holds the facts of `transduce.making.learner_page`.

const SHARE = 40; // milliseconds of steps between two looks at the messages
const REPORT = 250;
const randomOf = (seed) => () => {
  seed = (seed + 0x6d2b79f5) | 0;
  let z = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  z = (z + Math.imul(z ^ (z >>> 7), 61 | z)) ^ z;
  return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
};
function shuffled(items, random) {
  for (let k = items.length - 1; k > 0; k--) {
    const other = Math.floor(random() * (k + 1));
    [items[k], items[other]] = [items[other], items[k]];
  }
  return items;
}
const tick = () =>
  new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => (port1.close(), done());
    port2.postMessage(0);
  });
const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;

// ---- Choices, by the rules and the table of `transduce make`.

const unitsOf = (text) => [...text];
function kindOf(pairs) {
  const { SHORT, ONE_WORD, MAX_SYMBOLS } = page.limits,
    share = (test) => pairs.filter(test).length / pairs.length,
    isWord = (text) => words(text).length === 1,
    symbols = pairs.flatMap(([, target]) => words(target)),
    inventory = new Set(symbols).size,
    areSymbols = symbols.length >= 2 * pairs.length && inventory <= Math.min(MAX_SYMBOLS, pairs.length);
  const areWords = share(([source]) => isWord(source)) >= ONE_WORD,
    areShort = share((pair) => Math.max(pair[0].length, pair[1].length) <= SHORT) >= ONE_WORD,
    areSpelt = share(([, target]) => isWord(target)) >= ONE_WORD;
  const isSpelling = areWords && areShort && (areSpelt || areSymbols);
  return { kind: isSpelling ? "spelling" : "translation", symbols: isSpelling && areSymbols && !areSpelt };
}
// The candidate that lost least in the measured rows near this data and work; as `transduce.making.plan.ranked`.
function candidateOf(kind, pairs, work) {
  const groups = new Map();
  for (const [of, set, n, done, candidate, score] of page.table.measured) {
    if (of !== kind) continue;
    const key = `${set} ${n} ${done}`,
      far = Math.log(pairs / n) ** 2 + Math.log(Math.max(work, 1) / done) ** 2,
      group = groups.get(key) ?? { far, scores: new Map() };
    group.scores.set(candidate, score);
    groups.set(key, group);
  }
  const nearest = Math.min(...[...groups.values()].map(({ far }) => far)),
    lost = new Map();
  for (const { far, scores } of groups.values())
    for (const [name, score] of scores) {
      const [total, weight] = lost.get(name) ?? [0, 1e-12],
        by = Math.exp((nearest - far) / 2);
      lost.set(name, [total + by * (Math.max(...scores.values()) - score), weight + by]);
    }
  return [...lost].sort(([, [a, b]], [, [c, d]]) => a / b - c / d)[0][0];
}

function listedFacts(kind, lines) {
  const counts = new Map();
  for (const line of lines) for (const unit of kind === "symbols" ? words(line) : line) tally(counts, unit);
  const points = (text) => [...text].map((c) => c.codePointAt(0)),
    order = (a, b) => {
      const [x, y] = [points(a), points(b)],
        at = x.findIndex((point, k) => point !== y[k]);
      return at < 0 ? x.length - y.length : x[at] - (y[at] ?? -1);
    };
  const pieces = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || order(a, b));
  return { kind, normalization: "none", lowercase: false, pieces };
}
// Byte-pair merges of the words of some lines, the most frequent pair first (Sennrich et al. 2016).
function pieceFacts(lines, size) {
  const wordCounts = new Map(),
    letters = new Map();
  for (const line of lines)
    for (const word of line.replaceAll(SPACE, " ").split(" "))
      if (word) tally(wordCounts, SPACE + word);
  const cuts = [...wordCounts].map(([word, count]) => ({ pieces: [...word], count }));
  for (const { pieces, count } of cuts) for (const letter of pieces) tally(letters, letter, count);
  const total = [...letters.values()].reduce((a, b) => a + b, 0);
  let covered = 0;
  const alphabet = [...letters].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).flatMap(([letter, count]) => {
    const isRare = covered >= 0.9995 * total;
    covered += count;
    return isRare ? [] : [letter];
  });
  const known = new Set(alphabet),
    pairs = new Map(); // "a b" -> [count, words]
  const count = (cut, sign) => {
    for (let k = 0; k + 1 < cut.pieces.length; k++) {
      if (!known.has(cut.pieces[k]) || !known.has(cut.pieces[k + 1])) continue;
      const key = `${cut.pieces[k]} ${cut.pieces[k + 1]}`,
        pair = pairs.get(key) ?? { count: 0, cuts: new Set() };
      pair.count += sign * cut.count;
      pair.cuts.add(cut);
      pairs.set(key, pair);
    }
  };
  cuts.forEach((cut) => count(cut, 1));
  const merges = [];
  while (merges.length < size) {
    let [best, most] = ["", 1];
    for (const [key, pair] of pairs) if (pair.count > most || (pair.count === most && most > 1 && key < best)) [best, most] = [key, pair.count];
    if (!best) break;
    const [a, b] = best.split(" "),
      changed = [...pairs.get(best).cuts];
    if (!known.has(a + b)) merges.push(a + b);
    known.add(a + b);
    for (const cut of changed) {
      count(cut, -1);
      for (let k = 0; k + 1 < cut.pieces.length; k++) if (cut.pieces[k] === a && cut.pieces[k + 1] === b) cut.pieces.splice(k, 2, a + b);
      count(cut, 1);
    }
    pairs.delete(best);
  }
  const bytes = Array.from({ length: 256 }, (_, n) => `<0x${n.toString(16).toUpperCase().padStart(2, "0")}>`);
  return { kind: "bpe", normalization: "none", lowercase: false, pieces: [...SPECIAL, ...bytes, ...merges, ...alphabet], scores: null };
}

// ---- A training.

class Study {
  constructor({ seed = 1 }) {
    Object.assign(this, { seed, random: randomOf(seed), curve: [], spent: 0, running: false, step: 0 });
  }
  async begin(model, training) {
    this.learner = await Learner.load(model, training, await modulesOf("learner"));
    this.learner.initialise(this.seed);
  }
  // Train until the budget is spent or `running` is false; report(facts) now and then.
  async train(report) {
    this.running = true;
    let [reported, losses, tokens, since] = [performance.now(), [], 0, performance.now()];
    while (this.running && this.progress() < 1) {
      const until = performance.now() + SHARE;
      while (performance.now() < until && this.progress() < 1) {
        const began = performance.now(),
          { loss, nll, count } = this.learner.pass(this.batch(), { backward: true, seed: this.seed });
        this.warmUp();
        const { norm } = this.learner.step(this.progress());
        if (Number.isFinite(norm)) losses.push(nll / count);
        else if (++this.failed > 20) throw new RangeError("the loss is not a number");
        tokens += count;
        this.spent += (performance.now() - began) / 1000;
      }
      if (performance.now() - reported > REPORT || this.progress() >= 1) {
        if (losses.length) this.curve.push([this.learner.steps, mean(losses)]);
        const pace = (1000 * tokens) / (performance.now() - since);
        [reported, losses, tokens, since] = [performance.now(), [], 0, performance.now()];
        await report({ ...this.facts(), pace });
      }
      await tick();
    }
    this.running = false;
  }
  facts() {
    const { curve, spent } = this;
    return { step: this.learner.steps, progress: this.progress(), spent, loss: curve.at(-1)?.[1], curve: thinned(curve) };
  }
  parameters() {
    return this.learner.parameters.reduce((sum, { rows, columns }) => sum + rows * columns, 0);
  }
  warmUp() {}
}
// At most 200 points of a curve.
const thinned = (curve) => curve.filter((_, k) => k % Math.ceil(curve.length / 200) === 0 || k === curve.length - 1);
const modulesOf = async (name) => {
  const of = name === "learner" ? page.learner : page;
  modulesOf[name] ??= Promise.all([of.relaxed, of.plain].map((text) => unpacked(bytesOfBase64(text)))).then(([relaxed, plain]) => ({ relaxed, plain }));
  return modulesOf[name];
};
const bytesOfBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

class TableStudy extends Study {
  // Finds columns and pairs of a text; raises RangeError with a key of the page's words and its parts.
  static read(text, chosen) {
    const rows = rowsOf(text);
    if (!rows.some((row) => row.length)) throw refusal("empty");
    const found = columnsOf(rows, page.columns),
      pair = chosen ?? found.pair;
    if (found.width < 2) throw refusal("oneColumn");
    if (!pair) throw refusal("noColumns", found.kinds.join(", "));
    const { pairs, read, turned, leftOut } = pairsOf(rows, pair, found.header, page.limits.LONGEST);
    const { kind, symbols } = pairs.length ? kindOf(pairs.slice(0, 20000)) : {};
    const account = { columns: found.names, pair, header: found.header, read, turned: turned.length, leftOut, count: pairs.length, kind, symbols };
    return { pairs, account: { ...account, examples: pairs.slice(0, 3).map(([a, b]) => [a, b]) } };
  }
  static async open({ text, pair, seed, minutes, name }) {
    const study = new TableStudy({ seed }),
      { pairs, account } = TableStudy.read(text, pair);
    if (pairs.length < page.limits.LEAST_PAIRS) throw refusal("few", pairs.length, page.limits.LEAST_PAIRS);
    Object.assign(study, { text, pair: account.pair, name, account, failed: 0, budget: 60 * minutes });
    study.split(pairs);
    const recipe = study.settle(page.limits.PACE * study.budget);
    await study.begin(study.model, recipe.training);
    return study;
  }
  // Rows of one source, up to case and signs, are on one side: learnt, or held out.
  split(pairs) {
    const [low, high] = page.limits.TEST_PAIRS,
      share = Math.min(Math.max(0.05, low / pairs.length), high / pairs.length, 0.1),
      place = (text) => {
        const plain = text.toLowerCase().replace(/[^\p{L}\p{M}\p{N}]/gu, "") || text;
        return ([...plain].reduce((hash, c) => Math.imul(hash ^ c.codePointAt(0), 16777619), 2166136261 ^ this.seed) >>> 0) / 2 ** 32;
      };
    const isHeldOut = pairs.map(([source]) => place(`${place(source)}`) < share);
    this.learnt = pairs.filter((_, k) => !isHeldOut[k]);
    this.heldOut = pairs.filter((_, k) => isHeldOut[k]);
    if (!this.heldOut.length) this.heldOut = this.learnt.splice(0, Math.max(1, Math.floor(pairs.length / 20)));
  }
  // Tokenizers, sizes and settings; work: target tokens that the time is enough for.
  settle(work) {
    const { kind, symbols } = this.account,
      pairs = this.learnt,
      sides = [0, 1].map((side) => pairs.map((pair) => pair[side])),
      name = candidateOf(kind, pairs.length, work),
      chosen = page.table.candidates[kind][name],
      scripts = sides.map((lines) => scriptOf(lines.slice(0, 2000).join(" "))),
      joint = scripts[0] === scripts[1] && !symbols;
    const characters = sides.map((lines) => new Set(lines.join("")).size),
      piecesOf = (lines) => Math.min(chosen.pieces, Math.floor(lines.reduce((sum, line) => sum + line.length, 0) / page.limits.TEXT_OF_A_PIECE));
    const learn = (lines, count, isTarget) => {
      if (kind === "spelling") return listedFacts(isTarget && symbols ? "symbols" : "characters", lines);
      return count > page.limits.LETTERS ? listedFacts("characters", lines) : pieceFacts(lines, piecesOf(lines));
    };
    this.tokenizers = joint
      ? [learn(sides.flat(), new Set(sides.flat().join("")).size)]
      : sides.map((lines, side) => learn(lines, characters[side], side === 1));
    const [source, target] = [this.tokenizers[0], this.tokenizers.at(-1)].map(tokenizerOf);
    this.unit = target.facts.kind === "symbols" ? words : unitsOf;
    const items = pairs.map(([a, b]) => [source.encode(a), target.encode(b)]),
      most = items.reduce((longest, [a, b]) => Math.max(longest, a.length, b.length), 0);
    this.longest = Math.min(most + 4, page.limits.LONGEST);
    this.items = items.filter(([a, b]) => Math.max(a.length, b.length) <= this.longest && a.length && b.length);
    const stack = (side) => ({ n_heads: chosen.n_heads, ...chosen.model[side], dropout: chosen.dropout, positions: "rotary", norm_order: "post" }),
      model = { d_model: chosen.model.d_model, init: "normal", tie: joint ? "three-way" : "two-way", encoder: stack("encoder"), decoder: stack("decoder") };
    this.model = { ...model, dropout: chosen.dropout, source_size: source.size, target_size: target.size };
    const training = {
      batch_tokens: chosen.batch_tokens,
      label_smoothing: 0.1,
      clip_norm: 1.0,
      ema: 0.99,
      optimizer: { kind: chosen.optimizer },
      schedule: { kind: "cosine", peak: chosen.peak, warmup_steps: 100 },
    };
    const text = this.tokenizers.map(({ kind, pieces }) => (kind === "bpe" ? { kind, size: pieces.length } : { kind }));
    this.recipe = {
      task: "translation",
      data: { filters: { max_length: this.longest }, train: { kind: "jsonl", path: "train.jsonl", source: "source", target: "target" } },
      text: { source: text[0], ...(joint ? {} : { target: text[1] }) },
      model,
      training,
      decoding: page.decoding,
    };
    this.candidate = name;
    return this.recipe;
  }
  progress() {
    return this.spent / this.budget;
  }
  // A tenth of the steps that the budget is expected to hold.
  warmUp() {
    const { steps, training } = this.learner,
      expected = Math.max((this.budget * (steps + 1)) / Math.max(this.spent, 0.01), 1);
    if (steps < 20) training.schedule.warmup_steps = Math.min(Math.max(Math.floor(expected / 10), 1), 400);
    training.ema = Math.min(Math.max(1 - 20 / expected, 0.9), 0.9995);
  }
  batch() {
    if (!this.queue?.length) this.queue = this.epoch();
    const rows = this.queue.pop().map((k) => this.items[k]);
    return {
      sources: rows.map(([source]) => [...source, EOS]),
      inputs: rows.map(([, target]) => [BOS, ...target]),
      targets: rows.map(([, target]) => [...target, EOS]),
    };
  }
  // Batches of rows of about equal length, in random order.
  epoch() {
    const { batch_tokens: most } = this.recipe.training,
      width = ([source, target]) => Math.max(source.length, target.length) + 1,
      order = shuffled([...this.items.keys()], this.random).sort((a, b) => width(this.items[a]) - width(this.items[b])),
      batches = [[]];
    let sums = [0, 0];
    for (const k of order) {
      const sizes = this.items[k].map((ids) => ids.length + 1);
      if (batches.at(-1).length && Math.max(sums[0] + sizes[0], sums[1] + sizes[1]) > most) {
        batches.push([]);
        sums = [0, 0];
      }
      batches.at(-1).push(k);
      sums = sums.map((sum, side) => sum + sizes[side]);
    }
    return shuffled(batches, this.random);
  }
  tensors() {
    return this.learner.parameters.map((parameter, k) => ({ ...parameter, numbers: this.learner.view(k, "average").slice() }));
  }
  // Bytes of the model file of now.
  file(precision, tensors = this.tensors()) {
    const facts = {
      ...page.facts,
      languages: ["", ""],
      pairs: null,
      tagged: false,
      run: this.name,
      shape: [...shapeBytes(this.model, precision)],
      target_size: this.model.target_size,
      tokenizers: this.tokenizers,
      max_source_length: this.longest,
    };
    return modelFile(tensors, aliasesOf(this.model), facts, precision);
  }
  async translator() {
    if (this.translatedAt !== this.learner.steps) {
      this.last = await Translator.load(this.file("float32"), await modulesOf("engine"));
      this.translatedAt = this.learner.steps;
    }
    return this.last;
  }
  async answer(text) {
    const translator = await this.translator(),
      { text: written, candidates } = translator.translate(text, { n_best: 4 });
    return { text: written, candidates: candidates.map(({ text, log_prob }) => [text, Math.exp(log_prob)]) };
  }
  // Held-out rows as they are answered now, and the cross-attention of the last layer for the first.
  async samples(count = 6) {
    const translator = await this.translator(),
      rows = this.heldOut.slice(0, count).map(([source, target]) => [source, target, translator.translate(source).text]),
      [source, target] = this.heldOut[0],
      ids = [translator.source.encode(source), translator.target.encode(target)];
    this.learner.pass({ sources: [[...ids[0], EOS]], inputs: [[BOS, ...ids[1]]] });
    const attentions = this.learner.attentions().filter(({ name }) => name.endsWith("cross_attention")),
      last = attentions.at(-1).name;
    return {
      rows,
      maps: attentions.filter(({ name }) => name === last),
      queries: [...ids[1].map((id) => translator.target.token(id)), "</s>"],
      keys: [...ids[0].map((id) => translator.source.token(id)), "</s>"],
    };
  }
  // Answers to all held-out rows, beside their references.
  async examine() {
    const translator = await this.translator(),
      references = new Map();
    for (const [source, target] of this.heldOut) references.set(source, [...(references.get(source) ?? []), target]);
    const rows = [];
    for (const [source, targets] of references) {
      rows.push({ source, targets, written: translator.translate(source).text });
      if (rows.length % 8 === 0) await tick();
    }
    const known = new Set(this.learnt.flatMap(([source]) => [...source]));
    return reportOf(rows, this.unit, known);
  }
  async save(form, account) {
    const file = this.file("int8");
    if (form === "html") {
      const facts = { run: this.name, precision: "int8", parameters: this.parameters(), account };
      return savedPage(file, page, facts);
    }
    const card = `# ${this.name}\n\n${account}\n\nTrained in a web page of transduce; \`transduce import\` reads this file.\n`;
    return zipped(runFiles(this.tensors(), this.recipe, this.tokenizers, card, this.learnt));
  }
  // A state to go on from later: request, time, and the numbers of weights and optimizer, one array for each kind.
  state() {
    const { text, pair, seed, name, spent, budget, curve, learner } = this;
    const numbers = KEPT_NUMBERS.map((kind) => {
      const all = new Float32Array(this.parameters());
      this.places((k, from, to) => all.subarray(from, to).set(learner.view(k, kind)));
      return all;
    });
    return { text, pair, seed, name, spent, minutes: budget / 60, curve, steps: learner.steps, numbers };
  }
  restore({ spent, curve, steps, numbers }) {
    Object.assign(this, { spent, curve });
    this.learner.steps = steps;
    KEPT_NUMBERS.forEach((kind, i) => this.places((k, from, to) => this.learner.view(k, kind).set(numbers[i].subarray(from, to))));
  }
  // visit(parameter, from, to): where its numbers stand in an array of all.
  places(visit) {
    let from = 0;
    this.learner.parameters.forEach(({ rows, columns }, k) => visit(k, from, (from += rows * columns)));
  }
}
const KEPT_NUMBERS = ["weights", "means", "squares", "average"];
const refusal = (key, ...parts) => Object.assign(new RangeError(key), { parts });

// Operations that turn one list of units into another, the fewest: [wanted, written], one of them undefined for
// what is missing or too much.
function editsOf(wanted, written) {
  const [n, m] = [wanted.length, written.length],
    costs = Array.from({ length: n + 1 }, (_, i) => Array.from({ length: m + 1 }, (_, j) => (i ? (j ? 0 : i) : j)));
  for (let i = 1; i <= n; i++)
    for (let j = 1; j <= m; j++)
      costs[i][j] = Math.min(costs[i - 1][j] + 1, costs[i][j - 1] + 1, costs[i - 1][j - 1] + Number(wanted[i - 1] !== written[j - 1]));
  const edits = [];
  for (let [i, j] = [n, m]; i || j; ) {
    const isPair = i && j && costs[i][j] === costs[i - 1][j - 1] + Number(wanted[i - 1] !== written[j - 1]);
    if (isPair) edits.push([wanted[--i], written[--j]]);
    else if (i && costs[i][j] === costs[i - 1][j] + 1) edits.push([wanted[--i], undefined]);
    else edits.push([undefined, written[--j]]);
  }
  return edits.reverse();
}
// Interval of 95 % of a share (Wilson 1927).
function intervalOf(right, count) {
  const z = 1.96,
    share = right / count,
    middle = (share + (z * z) / (2 * count)) / (1 + (z * z) / count),
    half = (z * Math.sqrt((share * (1 - share)) / count + (z * z) / (4 * count * count))) / (1 + (z * z) / count);
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}
// Scores of answers, and units that are learnt or not.  known: characters of the sources that were learnt from.
function reportOf(rows, unit, known) {
  const units = new Map(),
    confused = new Map();
  let [errors, total] = [0, 0];
  const judged = rows.map((row) => {
    const each = row.targets.map((target) => ({ target, edits: editsOf(unit(target), unit(row.written)) })),
      wrong = ({ edits }) => edits.filter(([a, b]) => a !== b).length,
      best = each.reduce((a, b) => (wrong(b) < wrong(a) ? b : a));
    errors += wrong(best);
    total += unit(best.target).length;
    for (const [wanted, written] of best.edits) {
      if (wanted !== undefined) {
        const [right, count] = units.get(wanted) ?? [0, 0];
        units.set(wanted, [right + Number(wanted === written), count + 1]);
      }
      if (wanted !== written) tally(confused, `${wanted ?? ""}\t${written ?? ""}`);
    }
    return { ...row, right: !wrong(best), length: [...row.source].length, isKnown: [...row.source].every((c) => known.has(c)) };
  });
  const sharesOf = (some) => ({ right: some.filter(({ right }) => right).length, count: some.length }),
    lengths = judged.map(({ length }) => length).sort((a, b) => a - b),
    middle = lengths[Math.floor(lengths.length / 2)] ?? 0,
    all = sharesOf(judged);
  return {
    ...all,
    interval: intervalOf(all.right, Math.max(all.count, 1)),
    errors: errors / Math.max(total, 1),
    middle,
    short: sharesOf(judged.filter(({ length }) => length <= middle)),
    long: sharesOf(judged.filter(({ length }) => length > middle)),
    unseen: sharesOf(judged.filter(({ isKnown }) => !isKnown)),
    learnt: [...units].filter(([, [right, count]]) => count >= 5 && right === count).sort((a, b) => b[1][1] - a[1][1]).map(([u]) => u).slice(0, 24),
    hard: [...units].filter(([, [right, count]]) => count >= 5 && right / count < 0.7).sort(([, a], [, b]) => a[0] / a[1] - b[0] / b[1]).slice(0, 8),
    confused: frequent(confused).slice(0, 8).map(([key, count]) => [...key.split("\t"), count]),
    wrong: judged.filter(({ right }) => !right).slice(0, 12).map(({ source, targets, written }) => [source, targets[0], written]),
  };
}
