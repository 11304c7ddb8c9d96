// The worker of the page: one training, of a table or of a task, and its answers to messages.  Needs study.js
// and what that needs before it.

const DIGIT = SPECIAL.length; // id of 0
const PLUS = DIGIT + 10;
const TASK_SIZE = PLUS + 1;
const sumOf = (a, b) => {
  const digits = [];
  for (let [k, carry] = [1, 0]; k <= Math.max(a.length, b.length) || carry; k++) {
    const sum = (a.at(-k) ?? DIGIT) + (b.at(-k) ?? DIGIT) - 2 * DIGIT + carry;
    digits.unshift(DIGIT + (sum % 10));
    carry = sum > 9 ? 1 : 0;
  }
  return digits;
};
const TASKS = {
  copy: (line) => line,
  reverse: (line) => [...line].reverse(),
  sort: (line) => [...line].sort((a, b) => a - b),
  add: (line) => sumOf(line.slice(0, line.indexOf(PLUS)), line.slice(line.indexOf(PLUS) + 1)),
  repeat: (line) => line, // by a decoder alone, after the line itself
};

// Digits in, digits out, by a model whose sizes and parts one chooses.
class TaskStudy extends Study {
  static async open(dials) {
    const study = new TaskStudy(dials),
      isAlone = dials.task === "repeat",
      leftOut = dials.leftOut.filter((part) => part !== "positions"),
      positions = dials.leftOut.includes("positions") ? "none" : dials.positions,
      stack = { n_layers: dials.layers, n_heads: dials.heads, d_ff: 2 * dials.width, positions, norm_order: dials.order };
    Object.assign(study, { dials, failed: 0, budget: dials.steps, induction: [] });
    const model = { d_model: dials.width, tie: "two-way", left_out: leftOut, decoder: stack, target_size: TASK_SIZE };
    if (!isAlone) Object.assign(model, { encoder: stack, source_size: TASK_SIZE });
    const training = { clip_norm: 1, schedule: { peak: dials.rate, warmup_steps: Math.max(1, Math.floor(dials.steps / 10)) } };
    await study.begin(model, { ...training, optimizer: { kind: "adam", epsilon: 1e-8 } });
    return study;
  }
  progress() {
    return this.learner.steps / this.budget;
  }
  // A line to read; tasks of one number have all lengths, sums have a sign in the middle.
  line(random, longest = this.dials.longest, length = 1 + Math.floor(random() * longest)) {
    const digits = (n) => Array.from({ length: n }, () => DIGIT + Math.floor(10 * random()));
    if (this.dials.task === "add") return [...digits(length), PLUS, ...digits(1 + Math.floor(random() * length))];
    return digits(this.dials.task === "repeat" ? Math.max(length, 3) : length);
  }
  rowsOf(lines) {
    const { task } = this.dials,
      answers = lines.map(TASKS[task]);
    if (task !== "repeat")
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
    return this.rowsOf(Array.from({ length: 64 }, () => this.line(this.random)));
  }
  write(lines) {
    const longest = Math.max(...lines.map((line) => line.length)) + 3;
    if (this.dials.task !== "repeat") return this.learner.write(lines.map((line) => [...line, EOS]), longest);
    return this.learner.write([], longest, lines.map((line) => [BOS, ...line]));
  }
  // Share of lines of the greatest length that are right; they are not drawn from the training's numbers.
  share(count = 100) {
    const random = randomOf(12345),
      lines = Array.from({ length: count }, () => this.line(random, this.dials.longest, this.dials.longest)),
      written = this.write(lines);
    return lines.filter((line, k) => String(TASKS[this.dials.task](line)) === String(written[k])).length / count;
  }
  // The answer to a line, and the weights of all heads on the way.
  look(text) {
    const line = [...text].flatMap((sign) => (sign === "+" ? [PLUS] : /[0-9]/.test(sign) ? [DIGIT + Number(sign)] : [])),
      show = (ids) => ids.map((id) => (id === PLUS ? "+" : id >= DIGIT ? String(id - DIGIT) : id === BOS ? "↦" : "␣"));
    if (!line.length || (this.dials.task === "add" && (line.indexOf(PLUS) < 1 || line.at(-1) === PLUS))) return undefined;
    const isAlone = this.dials.task === "repeat",
      [written] = this.write([line]),
      inputs = isAlone ? [BOS, ...line, ...written] : [BOS, ...written];
    this.learner.pass({ sources: isAlone ? [] : [[...line, EOS]], inputs: [inputs] });
    const [queries, keys] = [show(inputs), show([...line, EOS])];
    return { written: show(written).join(""), wanted: show(TASKS[this.dials.task](line)).join(""), queries, keys, maps: this.learner.attentions() };
  }
  // Of each head of a decoder alone: weight of the token after the same token before, where a line comes again.
  inductionScores() {
    const random = randomOf(54321),
      n = this.dials.longest,
      line = this.line(random, n, n);
    this.learner.pass(this.rowsOf([line]));
    return this.learner.attentions().map(({ name, head, columns, numbers }) => {
      const weights = line.slice(0, -1).map((_, i) => numbers[(n + 1 + i) * columns + i + 2]);
      return { name: `${Number(name.match(/\d+/)[0]) + 1}.${head + 1}`, score: mean(weights) };
    });
  }
  facts() {
    const facts = super.facts();
    if (this.dials.task === "repeat") {
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
