// The vectors behind Figure 1, and the way of one token through a layer: all as computed for this text.

// A label, a formula by its name, the numbers as a strip, and the first of them.
function vectorLine(label, rule, values) {
  return el(
    "div",
    { class: "vectorline" },
    el("span", {}, label, " ", rule ? formula(rule) : null),
    strip([...values], clamp(Math.floor(384 / values.length), 1, 12)),
    el("span", { class: "number note" }, firstOf([...values])),
  );
}
// Names of a module's formulas.
function ruleOf(module) {
  const side = module.split(".")[0],
    stack = transduce.facts.stacks[side];
  if (module === "front_end" && transduce.facts.image) return "patch";
  if (module.endsWith("front_end")) return transduce.facts.scale === 1 ? "unscaled" : "scaled";
  if (module.endsWith("embedding_norm")) return stack.positions.split("-")[0];
  if (module.endsWith("_residual")) return stack.norm_order;
  if (module.endsWith("_attention")) return "head concat";
  if (module.endsWith("feed_forward"))
    return ["relu", "swiglu"].includes(stack.activation) ? stack.activation : "feedForward";
  if (stack && module === side && !["transformer", "ssru"].includes(stack.kind)) return stack.kind;
  return module.startsWith("head") ? "probabilities" : "norm";
}
const tokensOf = (module) => seq(sequenceOf(module));
const sequenceOf = (module) => {
  const encoder = module.startsWith("encoder") || module === "front_end" || !D.stacks.decoder;
  return D.stacks[encoder && D.stacks.encoder ? "encoder" : "decoder"].sequence;
};

// Below the figure: what a box gave for each token, and all numbers of the token chosen.
function boxPanel() {
  const { outputs } = D.recording,
    boxes = figureBoxes(),
    box = boxes.find(({ module }) => module === S.box) ?? boxes[0];
  const { stacks } = transduce.facts,
    side = box.module.split(".")[0],
    depth = box.module.includes(".layers.0.") ? stacks[side].n_layers : 0;
  if (depth) S.boxLayer = clamp(S.boxLayer, 0, depth - 1);
  const vectors = outputs[layered(box.module)] ?? [],
    tokens = tokensOf(box.module),
    chosen = (S.boxToken = clamp(S.boxToken, 0, Math.max(vectors.length - 1, 0))),
    first = Math.max(vectors.length - tokens.length, 0);
  const step = (by) => () => set({ box: boxes.at((boxes.indexOf(box) + by) % boxes.length).module }),
    layers = Array.from({ length: depth }, (_, l) => [l, `${t("layer")} ${l + 1}`]);
  const row = (vector, k) => {
    const attrs = { class: "chip", "aria-pressed": String(k === chosen) },
      name = tokenOrPatch(tokens[k - first] ?? "", k - first, sequenceOf(box.module));
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
    { class: "boxpanel", "data-point": "boxes", "aria-label": t("boxVectors") },
    el("h2", {}, box.text, " ", ruleOf(box.module).split(" ").map((name) => [formula(name), " "])),
    el(
      "div",
      { class: "row" },
      act("boxBack", "◀", step(-1), { "aria-label": t("back") }),
      walkButton("boxPlay"),
      act("boxOn", "▶", step(1), { "aria-label": t("on") }),
      depth ? choice("boxLayer", layers, S.boxLayer, chooseLayer, { "aria-label": t("layer") }) : null,
      note(`${layered(box.module)} (1, ${vectors.length}, ${vectors[0]?.length ?? 0})`),
    ),
    vectors.map(row),
    numbers ? el("p", { class: "numbers number", tabindex: 0 }, numbers) : note(t("outNow")),
    boxNeighbours(box.module, tokens[chosen - first]),
  );
}
// Neighbours of an embedding, in pages whose models have no laboratory for it.
function boxNeighbours(module, name) {
  const side = module === "front_end" && D.stacks.encoder ? "encoder" : "decoder";
  if (S.point !== "boxes" || !module.endsWith("front_end") || hasLab() || !transduce.model.network.arrays[`${module}.embedding.weight`]) return null;
  return embeddingPanel(side, S.token >= 0 ? S.token : idOf(side, name));
}
// The sentence walks through the figure, row by row and layer by layer.
const walkButton = (key) => act(key, timer ? "❚❚" : "▶ " + t("walk"), walk, { "aria-label": t(timer ? "pause" : "walk") });
function walk() {
  const modules = figureBoxes().map((box) => box.module);
  if (!timer) Object.assign(S, { box: modules[0], boxLayer: 0 });
  tick(1400, () => {
    const side = S.box.split(".")[0],
      at = modules.indexOf(S.box),
      inLayer = (module) => module?.startsWith(`${side}.layers.0.`),
      first = modules.findIndex(inLayer);
    if (S.tab !== "figure") return null;
    if (inLayer(S.box) && !inLayer(modules[at + 1]) && S.boxLayer < D.stacks[side].n_layers - 1)
      return { box: modules[first], boxLayer: S.boxLayer + 1 };
    const box = modules[at + 1];
    return box && { box, boxLayer: inLayer(box) && !inLayer(S.box) ? 0 : S.boxLayer };
  });
}

// From x to the end of the layer for one token: what stands before and behind the head worked out by hand.
function wayOf(name, i, rows, query) {
  const { outputs } = D.recording,
    parts = name.split("."),
    [side, layer] = [parts[0], parts.slice(0, 3).join(".")],
    stack = transduce.facts.stacks[side],
    pre = stack.norm_order === "pre",
    below = Number(parts[2]) ? `${side}.layers.${parts[2] - 1}` : `${side}.embedding_norm`,
    unnormed = name.endsWith("cross_attention") ? `${layer}.${stack.kind === "ssru" ? "recurrence" : "self_attention"}_residual` : below;
  const vector = (module) => {
    const vectors = outputs[module];
    return vectors?.[i + vectors.length - rows];
  };
  const line = (label, rule, module) => (vector(module) ? vectorLine(t(label), rule, vector(module)) : null),
    ofNormed = (rule) => (pre ? `${rule}Normed` : rule),
    last = Number(parts[2]) === stack.n_layers - 1,
    writes = last && D.layers_of && (side === "decoder" || !D.stacks.decoder) && vector("head"),
    inner = { relu: "innerRelu", swiglu: "innerSwiglu" }[stack.activation] ?? "inner",
    turned = stack.positions === "rotary" && !name.endsWith("cross_attention"),
    forward = `${layer}.feed_forward`;
  return {
    before: [
      line("wayIn", "input", unnormed),
      pre ? line("norm", "normed", `${name}_residual.norm`) : null,
      vectorLine(t("wayQuery"), ofNormed(turned ? "queryTurned" : "queryOf"), query),
    ],
    behind: [
      line("wayHeads", "concat", name),
      line(pre ? "add" : "addNorm", stack.norm_order, `${name}_residual`),
      pre ? line("norm", "normed", `${forward}_residual.norm`) : null,
      line("wayInner", ofNormed(inner), `${forward}.activation`),
      line("feedForward", stack.activation === "swiglu" ? "outerGated" : "outer", forward),
      line("wayOut", stack.norm_order, layer),
      last && pre ? line("norm", "norm", `${side}.norm`) : null,
      writes ? [line("wayLogits", "logits", "head"), bars(D.layers.at(-1)[i].slice(0, 5))] : null,
    ],
  };
}
