// The model of the page: what was typed, what was changed, and the explanations of it.
// For the console: `await transduce.explain("a text")` gives the object of `transduce explain --json`.
const transduce = (() => {
  const facts = JSON.parse(document.getElementById("model").textContent),
    model = new LiveModel(facts, bytes(facts.bytes)),
    explain = async (text, settings) => published(model.explain([text].flat(), settings));
  return { facts, model, explain };
})();
const EXAMPLES = [...DOCS];
IMAGES.facts = transduce.facts.image;
// Parameters of a model whose continuations are short unless longer ones are chosen, and their tokens.
const LARGE = 2e7;
const FEW = 8;
const LIVE_RIVALS = 50;
const UNDOS = 200;
// Parts of the state that the model depends on; lists are separated by spaces.
const CHANGED = { outHeads: "", outLayers: "", outTokens: "", parts: "", patches: "", forced: "" };
const LIVE_KEYS = [...Object.keys(CHANGED), ..."example text second donor beam most draw seed whole".split(" ")];
const OTHER_TEXT = {
  outTokens: "",
  patches: "",
  forced: "",
  step: 0,
  row: -1,
  asks: -1,
  looked: -1,
  layer: -1,
  hidden: -1,
  column: -1,
};
const listed = (key) => S[key].split(" ").filter(Boolean);
const chosenState = () => Object.fromEntries(LIVE_KEYS.map((key) => [key, S[key]]));

live = {
  fault: "",
  unknown: "",
  milliseconds: 0,
  computed: 0,
  past: [],
  cached: new Map(),
  texts: () => (S.text ? S.text.split("\t") : (EXAMPLES[S.example].typed ?? Object.values(EXAMPLES[S.example].inputs))),
  // Changes of the network as the page's state has them.
  changes: (patches = listed("patches").flatMap(patchOf)) => ({
    heads: listed("outHeads"),
    layers: listed("outLayers"),
    tokens: listed("outTokens").map(Number),
    parts: listed("parts"),
    patches,
  }),
  isChanged: () => Object.keys(CHANGED).some((key) => S[key]),
  // Tokens of a continuation at most; 0: as many as in the run.
  most() {
    const { window, decoding, parameters } = transduce.facts;
    if (!window || !decoding) return 0;
    return S.most < 0 && parameters > LARGE && decoding.max_tokens > FEW ? FEW : Math.max(S.most, 0);
  },
  decoding() {
    const most = this.most() ? { max_tokens: this.most() } : {};
    if (S.draw) return { ...most, method: "sample", temperature: S.draw, seed: S.seed };
    return S.beam ? { ...most, method: "beam", beam_size: S.beam } : most;
  },
  // A change of the state, after which all is computed again; it can be undone.
  change(changes) {
    this.past.push(chosenState());
    this.past.splice(0, this.past.length - UNDOS);
    this.go(changes);
  },
  go(changes) {
    Object.assign(S, changes);
    edits = {};
    this.compute();
    render();
  },
  undo() {
    if (this.past.length) this.go(this.past.pop());
  },
  restore() {
    this.change({ ...CHANGED, beam: 0, most: -1, draw: 0, whole: false });
  },
  // Another text: tokens and ids of the one before mean nothing in it.
  type(changes) {
    this.change({ ...OTHER_TEXT, ...changes });
  },
  // Query, key or value of a head, by the row that the screen shows: a module, a position, a dimension.
  placeOf(name, head, what, r) {
    const kind = { q: "query", k: "key", v: "value" }[what],
      all = D.recording.heads[name][kind].length,
      shown = seq(D.attention.find((a) => a.name === name)[what === "q" ? "rows" : "columns"]).length,
      { d_head } = transduce.facts.stacks[name.split(".")[0]];
    return [`${name}.heads.${kind}@${r + all - shown}.`, head * d_head, d_head];
  },
  // Numbers that were typed there, by dimension of the head.
  numbersAt(name, head, what, r) {
    const [place, from, width] = this.placeOf(name, head, what, r),
      typed = listed("patches").filter((text) => text.startsWith(place));
    const pairs = typed.flatMap((text) => {
      const [first, numbers] = text.slice(place.length).split("=");
      return numbers.split(",").map((number, k) => [Number(first) + k - from, Number(number)]);
    });
    return Object.fromEntries(pairs.filter(([n]) => n >= 0 && n < width));
  },
  putNumbers(name, head, what, r, n, numbers) {
    const [place, from] = this.placeOf(name, head, what, r),
      typed = { ...this.numbersAt(name, head, what, r), ...Object.fromEntries(numbers.map((x, k) => [n + k, x])) },
      rest = listed("patches").filter(
        (text) => !text.startsWith(place) || !this.isOfHead(text.slice(place.length), from, name),
      );
    const dimensions = Object.keys(typed).map(Number).sort((x, y) => x - y),
      texts = [];
    for (const [k, dimension] of dimensions.entries()) {
      const digits = String(Number(typed[dimension].toPrecision(6)));
      if (k && dimensions[k - 1] === dimension - 1) texts[texts.length - 1] += `,${digits}`;
      else texts.push(`${place}${from + dimension}=${digits}`);
    }
    this.change({ patches: [...rest, ...texts].join(" ") });
  },
  isOfHead(numbers, from, name) {
    const first = Number(numbers.split("=")[0]);
    return first >= from && first < from + transduce.facts.stacks[name.split(".")[0]].d_head;
  },
  isOut: (key, name) => listed(key).includes(String(name)),
  toggle(key, name) {
    const rest = listed(key).filter((other) => other !== String(name)),
      out = this.isOut(key, name) ? rest : [...rest, name];
    this.change({ [key]: out.join(" ") });
  },
  // The output up to a step, then a rival, then whatever follows.
  force(step, id) {
    this.change({ forced: [...D.steps.slice(0, step).map((written) => written.id), id].join(" "), step });
  },

  compute() {
    const texts = this.texts(),
      changes = this.changes();
    try {
      const shown = [this.explained(texts, { changes, forced: listed("forced").map(Number) })];
      this.milliseconds = 1000 * shown[0].seconds;
      if (S.second) shown.push(this.explained([S.second], { changes: { ...changes, tokens: [], patches: [] } }));
      else if (S.whole && this.isChanged()) shown.push(this.whole(texts));
      const names = S.second ? shown.map(titleOf) : [t("changedModel"), t("wholeModel")];
      if (shown.length > 1) shown.forEach((doc, k) => (doc.run = names[k]));
      DOCS.splice(0, DOCS.length, ...shown);
      this.computed++;
      S.doc = clamp(S.doc, 0, shown.length - 1);
      D = DOCS[S.doc];
      this.fault = "";
      this.unknown = this.unknownIn(S.second ? [...texts, S.second] : texts);
    } catch (error) {
      if (!error.sizes) throw error;
      this.fault = t(error.word ?? "tooLong", ...error.sizes);
    }
  },
  // Parts of the texts that the model does not know; images have none.
  unknownIn(texts) {
    const [tokenizer] = transduce.model.tokenizers;
    return IMAGES.facts ? "" : unknownParts(tokenizer, texts.flatMap((text) => text.split(/\n|<mask>/)));
  },
  explained(texts, settings) {
    const began = performance.now(),
      more = { decoding: this.decoding(), rivals: LIVE_RIVALS },
      explanation = transduce.model.explain(texts, { ...settings, ...more });
    if (explanation.picture) explanation.picture.png = pngOf(texts[0]);
    return docOf(explanation, (performance.now() - began) / 1000);
  },
  // The same text by the model without any change.
  whole(texts) {
    const key = JSON.stringify([texts, this.decoding()]);
    if (!this.cached.has(key)) this.cached = new Map([[key, this.explained(texts, {})]]);
    return { ...this.cached.get(key) };
  },
  async start() {
    startBar();
    startGuide();
    if (IMAGES.facts) await readExamples();
    this.compute();
    if (this.fault) this.type({ text: "" });
    document.addEventListener("keydown", (e) => {
      if (!(e.ctrlKey || e.metaKey) || e.key.toLowerCase() !== "z" || e.target.closest("input")) return;
      e.preventDefault();
      this.undo();
    });
  },
};

// An explanation as the screens read it: weights as flat numbers, heads by hand made when they are looked at.
function docOf(explanation, seconds) {
  const { attention, hand: byHand, search, steps, stacks, vectors } = explanation,
    logs = steps.map((step) => Math.log(Math.max(step.probability, 1e-38))),
    example = EXAMPLES[S.example];
  return {
    ...explanation,
    text: 0,
    film: EXAMPLES.find((doc) => doc.film)?.film ?? null,
    attention: attention.map(attentionOf),
    attentionLeftOut: 0,
    by_hand: attention.flatMap((a, number) =>
      explanation.recording?.heads[a.name] ? a.weights.map((_, head) => headOf(byHand, number, head)) : [],
    ),
    sharpest: byHand?.sharpest.at(-1),
    vectors: mapped(vectors, (numbers) => ({ shape: [numbers.length], numbers })),
    search: search && { ...search, nodes: search.nodes.map((node) => Object.values(node)) },
    stacks: mapped(stacks, (stack, side) => ({ ...stack, waves: example.stacks[side]?.waves ?? null })),
    parameters: transduce.facts.parameters,
    seconds,
    log_prob: steps.length ? logs.reduce((a, b) => a + b) : null,
    score: search?.nodes.find((node) => node.fate === "won")?.score ?? null,
  };
}
function attentionOf(a) {
  const [rows, columns] = [a.weights[0].length, a.weights[0][0].length],
    triangle = a.causal && rows === columns;
  const decoded = a.weights.flatMap((map) =>
    map.flatMap((row, i) => Array.from(triangle ? row.subarray(0, i + 1) : row, (w) => 255 * w)),
  );
  return { ...a, shape: [a.weights.length, rows, columns], decoded };
}
function headOf(byHand, attention, head) {
  const flat = (rows) => rows.flatMap((row) => [...row]),
    packed = (rows) => rows && { shape: [rows.length, rows[0].length], numbers: flat(rows) };
  let made;
  const vectors = () => {
    if (!made) {
      const { vectors, bias, without_positions: bare } = byHand.vectors([attention, head]);
      made = { ...mapped(vectors, packed), bias: packed(bias), bare: bare && mapped(bare, packed) };
    }
    return made;
  };
  const lazy = ["query", "key", "value", "bias", "bare"].map((name) => [
    name,
    { get: () => vectors()[name] },
  ]);
  return Object.defineProperties({ attention, head }, Object.fromEntries(lazy));
}
