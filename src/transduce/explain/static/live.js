// The model of the page: what was typed, what was changed, and the explanations of it.
// For the console: `await transduce.explain("a text")` gives the object of `transduce explain --json`.
const transduce = (() => {
  const facts = JSON.parse(document.getElementById("model").textContent),
    model = new LiveModel(facts, bytes(facts.bytes)),
    explain = async (text, settings) => published(model.explain([text].flat(), settings));
  return { facts, model, explain };
})();
const EXAMPLES = [...DOCS];
const LIVE_RIVALS = 50;
const UNDOS = 200;
// Parts of the state that the model depends on; lists are separated by spaces.
const LIVE_KEYS = [
  "example",
  "text",
  "second",
  "outHeads",
  "outLayers",
  "outTokens",
  "parts",
  "forced",
  "beam",
  "draw",
  "seed",
  "whole",
];
const listed = (key) => S[key].split(" ").filter((one) => one);
const chosenState = () => Object.fromEntries(LIVE_KEYS.map((key) => [key, S[key]]));

live = {
  fault: "",
  milliseconds: 0,
  past: [],
  cached: new Map(),
  texts: () => (S.text ? S.text.split("\t") : Object.values(EXAMPLES[S.example].inputs)),
  // Changes of the network as the page's state has them.
  changes: () => ({
    heads: listed("outHeads"),
    layers: listed("outLayers"),
    tokens: listed("outTokens").map(Number),
    parts: listed("parts"),
  }),
  isChanged: () => ["outHeads", "outLayers", "outTokens", "parts", "forced"].some((key) => S[key]),
  decoding() {
    if (S.draw) return { method: "sample", temperature: S.draw, seed: S.seed };
    return S.beam ? { method: "beam", beam_size: S.beam } : {};
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
    this.change({
      outHeads: "",
      outLayers: "",
      outTokens: "",
      parts: "",
      forced: "",
      beam: 0,
      draw: 0,
      whole: false,
    });
  },
  // Another text: tokens and ids of the one before mean nothing in it.
  type(changes) {
    this.change({
      outTokens: "",
      forced: "",
      step: 0,
      row: -1,
      asks: -1,
      looked: -1,
      layer: -1,
      place: 0,
      hidden: -1,
      ...changes,
    });
  },
  list: listed,
  isOut: (key, name) => listed(key).includes(String(name)),
  toggle(key, name) {
    const out = this.isOut(key, name)
      ? listed(key).filter((one) => one !== String(name))
      : [...listed(key), name];
    this.change({ [key]: out.join(" ") });
  },
  // The output up to a step, then a rival, then whatever follows.
  force(step, id) {
    this.change({ forced: [...D.steps.slice(0, step).map((one) => one.id), id].join(" "), step });
  },

  compute() {
    const texts = this.texts(),
      forced = listed("forced").map(Number);
    try {
      const first = this.explained(texts, {
        changes: this.changes(),
        forced: forced.length ? forced : undefined,
      });
      this.milliseconds = 1000 * first.seconds;
      const shown = [first];
      if (S.second)
        shown.push(this.explained(S.second.split("\t"), { changes: { ...this.changes(), tokens: [] } }));
      else if (S.whole && this.isChanged()) shown.push(this.whole(texts));
      const names = S.second ? shown.map(titleOf) : [t("changedModel"), t("wholeModel")];
      if (shown.length > 1) shown.forEach((one, k) => (one.run = names[k]));
      DOCS.splice(0, DOCS.length, ...shown);
      S.doc = clamp(S.doc, 0, shown.length - 1);
      D = DOCS[S.doc];
      this.fault = "";
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.fault = t("tooLong", error.message);
    }
  },
  explained(texts, settings) {
    const began = performance.now(),
      explanation = transduce.model.explain(texts, {
        ...settings,
        decoding: this.decoding(),
        rivals: LIVE_RIVALS,
      });
    return docOf(explanation, (performance.now() - began) / 1000);
  },
  // The same text by the model without any change.
  whole(texts) {
    const key = JSON.stringify([texts, this.decoding()]);
    if (!this.cached.has(key)) this.cached = new Map([[key, this.explained(texts, {})]]);
    return { ...this.cached.get(key) };
  },
  start() {
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
  const { attention, hand: byHand, search, steps, stacks } = explanation,
    logs = steps.map((step) => Math.log(Math.max(step.probability, 1e-38))),
    example = EXAMPLES[S.example];
  return {
    ...explanation,
    text: 0,
    film: EXAMPLES.find((one) => one.film)?.film ?? null,
    attention: attention.map(attentionOf),
    attentionLeftOut: 0,
    by_hand: byHand
      ? attention.flatMap((one, number) => one.weights.map((_, head) => headOf(byHand, number, head)))
      : [],
    sharpest: byHand?.sharpest.at(-1),
    search: search && { ...search, nodes: search.nodes.map((node) => Object.values(node)) },
    stacks: Object.fromEntries(
      Object.entries(stacks).map(([side, stack]) => [
        side,
        { ...stack, waves: example.stacks[side]?.waves ?? null },
      ]),
    ),
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
  const packed = (rows) =>
    rows && { shape: [rows.length, rows[0].length], numbers: rows.flatMap((row) => [...row]) };
  let made;
  const vectors = () => (made ??= byHand.vectors([attention, head])),
    of = (three) =>
      three && Object.fromEntries(Object.entries(three).map(([key, rows]) => [key, packed(rows)]));
  return {
    attention,
    head,
    get query() {
      return packed(vectors().vectors.query);
    },
    get key() {
      return packed(vectors().vectors.key);
    },
    get value() {
      return packed(vectors().vectors.value);
    },
    get bias() {
      return packed(vectors().bias);
    },
    get bare() {
      return of(vectors().without_positions);
    },
  };
}
