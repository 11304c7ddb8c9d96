// The vectors behind Figure 1, and the way of one token through a layer: all as computed for this text.

// A label, a formula, the numbers as a strip, and the first of them.
function vectorLine(label, rule, values) {
  return el(
    "div",
    { class: "vectorline" },
    el("span", {}, label, " ", rule ? formula(rule) : null),
    strip([...values], clamp(Math.floor(384 / values.length), 1, 12)),
    el("span", { class: "number note" }, firstOf([...values])),
  );
}
const RULES = {
  scaled: "x = √m E_token",
  sinusoidal: "x + PE_pos",
  learned: "x + P_pos",
  attention: "Concat ( head_1 … head_h ) W_O ,  head = softmax ( Q K^⊤ ÷ √d ) V",
  post: "LayerNorm ( x + Sublayer ( x ) )",
  pre: "x + Sublayer ( LayerNorm ( x ) )",
  norm: "( x − μ ) ÷ √(σ²+ε) · γ + β",
  relu: "max ( 0 , x W_1 + b_1 ) W_2 + b_2",
  gated: "( silu ( x W_g ) ∘ x W_1 ) W_2",
  other: "f ( x W_1 + b_1 ) W_2 + b_2",
  linear: "softmax ( x W^⊤ )",
};
// The rule of a module by its name.
function ruleOf(module) {
  const side = module.split(".")[0],
    stack = transduce.facts.stacks[side];
  if (module.endsWith("front_end")) return transduce.facts.scale === 1 ? "x = E_token" : RULES.scaled;
  if (module.endsWith("embedding_norm")) return RULES[stack.positions.split("-")[0]];
  if (module.endsWith("_residual")) return RULES[stack.norm_order];
  if (module.endsWith("_attention")) return RULES.attention;
  if (module.endsWith("feed_forward"))
    return { relu: RULES.relu, swiglu: RULES.gated }[stack.activation] ?? RULES.other;
  return module.startsWith("head") ? RULES.linear : RULES.norm;
}
const layered = (module) => module.replace(".layers.0.", `.layers.${S.boxLayer}.`);
const tokensOf = (module) => {
  const encoder = module.startsWith("encoder") || module === "front_end" || !D.stacks.decoder;
  return seq(D.stacks[encoder && D.stacks.encoder ? "encoder" : "decoder"].sequence);
};

// Below the figure: what a box gave for each token, and all numbers of the token chosen.
function boxPanel() {
  const { outputs } = D.recording,
    boxes = figureBoxes(),
    box = boxes.find(({ module }) => module === S.box) ?? boxes[0];
  const { stacks } = transduce.facts,
    side = box.module.split(".")[0],
    depth = box.module.includes(".layers.0.") ? stacks[side].n_layers : 0;
  S.boxLayer = clamp(S.boxLayer, 0, Math.max(depth - 1, 0));
  const vectors = outputs[layered(box.module)] ?? [],
    tokens = tokensOf(box.module),
    chosen = (S.boxToken = clamp(S.boxToken, 0, Math.max(vectors.length - 1, 0))),
    first = Math.max(vectors.length - tokens.length, 0);
  const step = (by) => () => set({ box: boxes.at((boxes.indexOf(box) + by) % boxes.length).module }),
    layers = Array.from({ length: depth }, (_, l) => [l, `${t("layer")} ${l + 1}`]);
  const row = (vector, k) => {
    const attrs = { class: "chip", "aria-pressed": String(k === chosen) },
      name = token(tokens[k - first] ?? "");
    return el(
      "div",
      { class: "vectorline" },
      act("boxToken" + k, name, () => set({ boxToken: k }), attrs),
      strip([...vector], clamp(Math.floor(384 / vector.length), 1, 12)),
    );
  };
  const chooseLayer = (l) => set({ boxLayer: Number(l) }),
    numbers = [...(vectors[chosen] ?? [])].map((x) => fixed(x, 2)).join("  ");
  return el(
    "section",
    { class: "boxpanel", "aria-label": t("boxVectors") },
    el("h2", {}, box.text, " ", formula(ruleOf(box.module))),
    el(
      "div",
      { class: "row" },
      act("boxBack", "◀", step(-1), { "aria-label": t("back") }),
      act("boxPlay", timer ? "❚❚" : "▶ " + t("walk"), walk, { "aria-label": t(timer ? "pause" : "walk") }),
      act("boxOn", "▶", step(1), { "aria-label": t("on") }),
      depth ? choice("boxLayer", layers, S.boxLayer, chooseLayer, { "aria-label": t("layer") }) : null,
      note(`${layered(box.module)} (1, ${vectors.length}, ${vectors[0]?.length ?? 0})`),
    ),
    vectors.map(row),
    numbers ? el("p", { class: "numbers number", tabindex: 0 }, numbers) : note(t("outNow")),
  );
}
const figureBoxes = () =>
  ["encoder", "decoder"]
    .filter((side) => D.stacks[side])
    .flatMap((side) => figureColumn(side).boxes.filter((box) => box.module));
// One token walks through the figure, box by box.
function walk() {
  const modules = figureBoxes().map((box) => box.module);
  if (!timer) S.box = modules[0];
  tick(1400, () => {
    const box = modules[modules.indexOf(S.box) + 1];
    return S.tab === "figure" && box && { box };
  });
}

// From x to the end of the layer for one token: what stands before and behind the head worked out by hand.
function wayOf(name, i, rows) {
  const { outputs } = D.recording,
    parts = name.split("."),
    [side, layer] = [parts[0], parts.slice(0, 3).join(".")],
    stack = transduce.facts.stacks[side],
    pre = stack.norm_order === "pre",
    below = Number(parts[2]) ? `${side}.layers.${parts[2] - 1}` : `${side}.embedding_norm`,
    unnormed = name.endsWith("cross_attention") ? `${layer}.self_attention_residual` : below;
  const vector = (module) => {
    const vectors = outputs[module];
    return vectors?.[i + vectors.length - rows];
  };
  const line = (label, rule, module) => (vector(module) ? vectorLine(t(label), rule, vector(module)) : null),
    last = Number(parts[2]) === stack.n_layers - 1,
    writes = last && D.layers_of && (side === "decoder" || !D.stacks.decoder) && vector("head"),
    inner = stack.activation === "relu" ? "max ( 0 , x W_1 + b_1 )" : "f ( x W_1 + b_1 )",
    forward = `${layer}.feed_forward`;
  return {
    before: line("wayIn", "x", pre ? `${name}_residual.norm` : unnormed),
    behind: [
      line("wayHeads", "Concat ( head_1 … head_h ) W_O", name),
      line(pre ? "add" : "addNorm", RULES[stack.norm_order], `${name}_residual`),
      line("wayInner", inner, `${forward}.activation`),
      line("feedForward", ruleOf(forward), forward),
      line("wayOut", RULES[stack.norm_order], layer),
      last && pre ? line("norm", RULES.norm, `${side}.norm`) : null,
      writes ? [line("wayLogits", "x W^⊤", "head"), bars(D.layers.at(-1)[i].slice(0, 5))] : null,
    ],
  };
}
