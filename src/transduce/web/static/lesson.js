// The worker of the page: one training, of a table or of a task, and its answers to messages.  Needs study.js
// and what that needs before it.

const DIGIT = SPECIAL.length; // id of a task's first symbol, of digits 0
const PLUS = DIGIT + 10;
const NOUNS = "cat cats key keys dog dogs jar jars".split(" "); // singular, plural
const WORDS = [...NOUNS, "by", "on", "of", "in", "is", "are"];
const [PREPOSITION, IS] = ["by", "is"].map((word) => DIGIT + WORDS.indexOf(word));
const below = (random, n) => Math.floor(n * random());
const digitsOf = (random, n) => Array.from({ length: n }, () => DIGIT + below(random, 10));
const sumOf = (a, b) => {
  const digits = [];
  for (let [k, carry] = [1, 0]; k <= Math.max(a.length, b.length) || carry; k++) {
    const sum = (a.at(-k) ?? DIGIT) + (b.at(-k) ?? DIGIT) - 2 * DIGIT + carry;
    digits.unshift(DIGIT + (sum % 10));
    carry = sum > 9 ? 1 : 0;
  }
  return digits;
};
// Nouns, of which all but the first, the subject, follow a preposition.
function phraseOf(random, n) {
  const noun = () => DIGIT + below(random, NOUNS.length);
  return [noun(), ...Array.from({ length: n - 1 }, () => [PREPOSITION + below(random, 4), noun()]).flat()];
}
const ofDigits = { symbols: [..."0123456789+"], cut: (text) => [...text].filter((sign) => /[0-9+]/.test(sign)), between: "", example: "31415", line: digitsOf, fits: (line) => line.length };
// line(random, n): a line to read, of n digits or nouns; fits: a typed one; answer: what is right.
const TASKS = {
  copy: { ...ofDigits, answer: (line) => line },
  reverse: { ...ofDigits, answer: (line) => [...line].reverse() },
  sort: { ...ofDigits, answer: (line) => [...line].sort((a, b) => a - b) },
  add: {
    ...ofDigits,
    example: "12+34",
    line: (random, n) => [...digitsOf(random, n), PLUS, ...digitsOf(random, 1 + below(random, n))],
    fits: (line) => line.indexOf(PLUS) > 0 && line.at(-1) !== PLUS,
    answer: (line) => sumOf(line.slice(0, line.indexOf(PLUS)), line.slice(line.indexOf(PLUS) + 1)),
  },
  agreement: {
    symbols: WORDS,
    cut: words,
    between: " ",
    example: "key by cats of jars",
    line: phraseOf,
    fits: (line) => line.length % 2 === 1 && line.every((id, k) => (k % 2 ? id >= PREPOSITION && id < IS : id < PREPOSITION)),
    answer: ([subject]) => [IS + ((subject - DIGIT) % 2)],
  },
  repeat: { ...ofDigits, line: (random, n) => digitsOf(random, Math.max(n, 3)), answer: (line) => line }, // by a decoder alone, after the line itself
};

// Symbols in, symbols out, by a model whose sizes and parts one chooses.
class TaskStudy extends Study {
  static async open(dials) {
    const study = new TaskStudy(dials),
      isAlone = dials.task === "repeat",
      leftOut = dials.leftOut.filter((part) => part !== "positions"),
      positions = dials.leftOut.includes("positions") ? "none" : dials.positions,
      stack = { n_layers: dials.layers, n_heads: dials.heads, d_ff: 2 * dials.width, positions, norm_order: dials.order };
    Object.assign(study, { dials, isAlone, task: TASKS[dials.task], failed: 0, budget: dials.steps, induction: [] });
    const size = DIGIT + study.task.symbols.length,
      model = { d_model: dials.width, tie: "two-way", left_out: leftOut, decoder: stack, target_size: size };
    if (!isAlone) Object.assign(model, { encoder: stack, source_size: size });
    const training = { clip_norm: 1, schedule: { peak: dials.rate, warmup_steps: Math.max(1, Math.floor(dials.steps / 10)) } };
    await study.begin(model, { ...training, optimizer: { kind: "adam", epsilon: 1e-8 } });
    return study;
  }
  progress() {
    return this.learner.steps / this.budget;
  }
  rowsOf(lines) {
    const answers = lines.map(this.task.answer);
    if (!this.isAlone)
      return {
        sources: lines.map((line) => [...line, EOS]),
        inputs: answers.map((ids) => [BOS, ...ids]),
        targets: answers.map((ids) => [...ids, EOS]),
      };
    return {
      inputs: lines.map((line) => [BOS, ...line, ...line]),
      targets: lines.map((line) => [...line.map(() => -1), ...line, EOS]), // the first time nothing tells them
    };
  }
  batch() {
    return this.rowsOf(Array.from({ length: 64 }, () => this.task.line(this.random, 1 + below(this.random, this.dials.longest))));
  }
  write(lines) {
    const longest = Math.max(...lines.map((line) => line.length)) + 3;
    if (!this.isAlone) return this.learner.write(lines.map((line) => [...line, EOS]), longest);
    return this.learner.write([], longest, lines.map((line) => [BOS, ...line]));
  }
  // Share of lines of the greatest length that are right; they are not drawn from the training's numbers.
  share(count = 100) {
    const random = randomOf(12345),
      lines = Array.from({ length: count }, () => this.task.line(random, this.dials.longest)),
      written = this.write(lines);
    return lines.filter((line, k) => String(this.task.answer(line)) === String(written[k])).length / count;
  }
  idsOf(text) {
    return this.task.cut(text.toLowerCase()).map((symbol) => DIGIT + this.task.symbols.indexOf(symbol));
  }
  // The answer to a line, and the weights of all heads on the way; to the task's example if it has no such line.
  look(text) {
    const { task, isAlone } = this,
      typed = this.idsOf(text),
      isTyped = Boolean(typed.length && typed.every((id) => id >= DIGIT) && task.fits(typed)),
      line = isTyped ? typed : this.idsOf(task.example),
      show = (ids) => ids.map((id) => task.symbols[id - DIGIT] ?? (id === BOS ? "↦" : "␣")),
      [written] = this.write([line]),
      inputs = isAlone ? [BOS, ...line, ...written] : [BOS, ...written];
    this.learner.pass({ sources: isAlone ? [] : [[...line, EOS]], inputs: [inputs] });
    const [queries, keys] = [show(inputs), show([...line, EOS])],
      [read, output, wanted] = [line, written, task.answer(line)].map((ids) => show(ids).join(task.between));
    return { step: this.learner.steps, isTyped, line: read, written: output, wanted, queries, keys, maps: this.learner.attentions() };
  }
  // Of each head of a decoder alone: weight of the token after the same token before, where a line comes again.
  inductionScores() {
    const random = randomOf(54321),
      line = this.task.line(random, this.dials.longest),
      n = line.length;
    this.learner.pass(this.rowsOf([line]));
    return this.learner.attentions().map(({ name, head, columns, numbers }) => {
      const weights = line.slice(0, -1).map((_, i) => numbers[(n + 1 + i) * columns + i + 2]);
      return { name: `${Number(name.match(/\d+/)[0]) + 1}.${head + 1}`, score: mean(weights) };
    });
  }
  facts() {
    const facts = super.facts();
    if (this.isAlone) {
      const scores = this.inductionScores();
      this.induction.push([facts.step, scores.map(({ score }) => score)]);
      facts.induction = { names: scores.map(({ name }) => name), curve: thinned(this.induction) };
    }
    return facts;
  }
}

let study;
const post = (event, facts) => postMessage({ event, ...facts });
const HANDLERS = {
  read: ({ text, bytes, pair }) => {
    const plain = bytes ? decoded(new Uint8Array(bytes)) : text;
    return { ...TableStudy.read(plain, pair).account, text: bytes ? plain : undefined };
  },
  open: async (request) => {
    study = await TableStudy.open(request);
    if (request.numbers) study.restore(request);
    return { ...study.facts(), parameters: study.parameters(), learnt: study.learnt.length, heldOut: study.heldOut.length };
  },
  train: async ({ minutes = 0 }) => {
    study.budget += 60 * minutes;
    let shown = 0;
    await study.train(async (facts) => {
      post("progress", facts);
      if (performance.now() - shown < page.limits.SAMPLES * 1000 && facts.progress < 1) return;
      shown = performance.now();
      post("samples", await study.samples());
    });
    return { isDone: study.progress() >= 1 };
  },
  pause: () => {
    study.running = false;
  },
  examine: () => study.examine(),
  answer: ({ text }) => study.answer(text),
  state: () => study.state(),
  save: ({ form, account }) => study.save(form, account),
  // A task with dials.
  task: async (dials) => {
    study = await TaskStudy.open(dials);
    return { parameters: study.parameters() };
  },
  practise: async () => {
    await study.train((facts) => post("progress", facts));
    return study.progress() >= 1 ? { share: study.share() } : {};
  },
  look: ({ line }) => study.look(line),
};
onmessage = async ({ data: { id, kind, ...request } }) => {
  try {
    const result = await HANDLERS[kind](request);
    postMessage({ id, result }, (result?.numbers ?? []).map(({ buffer }) => buffer)); // moved, not copied
  } catch (error) {
    postMessage({ id, refused: error.parts ? [error.message, ...error.parts] : ["failed", error.message] });
  }
};
