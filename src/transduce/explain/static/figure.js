// The first screen: Figure 1, through which the sentence flows; every other screen opens from its place there.
function figure() {
  if (live && !figureBoxes().some((box) => box.module === S.box)) S.box = figureBoxes()[0]?.module ?? "";
  S.step = clamp(S.step, 0, Math.max(D.steps.length - 1, 0));
  const body = el("div", {}, flows()),
    line = el("p", { class: "stepline" }, stepLine());
  // The slider stays while it is drawn: only what is beside and below it is made anew.
  const slide = (e) => {
    S.step = Number(e.target.value);
    fill(line, [stepLine()]);
    fill(body, [flows()]);
  };
  return [
    note(t("figureNote")),
    el("div", { class: "row", "data-point": "flow" }, D.steps.length ? stepControls(slide) : live ? walkButton("walk") : null, line),
    body,
    live && S.box ? boxPanel() : null,
    el("div", { class: "two" }, waves(), masks()),
  ];
}
// Both stacks beside each other where there is room, else the decoder above the encoder.
function flows() {
  const sides = ["encoder", "decoder"].filter((side) => D.stacks[side]),
    room = Math.min(innerWidth, 1248) - (innerWidth < 640 ? 24 : 44),
    columns = sides.reduce((sum, side) => sum + Math.max(Math.min(flowTokens(side).length, FLOW.most), side === "decoder" ? 6 : 1), 0),
    longest = Math.max(...sides.map((side) => flowTokens(side).length)),
    fitting = (count, stacks) => Math.floor((room - stacks * flowGutter() - 24 * (stacks - 1)) / count),
    abreast = fitting(columns, sides.length),
    width = clamp(abreast < 38 ? fitting(longest, 1) : abreast, 38, 56);
  queueMicrotask(scrollFlows);
  return el("div", { class: timer ? "flows playing" : "flows" }, sides.map((side) => flow(side, width)));
}
function stepLine() {
  const k = clamp(S.step, 0, D.steps.length - 1),
    step = D.steps[k];
  return step ? t("stepLine", k + 1, D.steps.length, isolated(step.read), isolated(step.written), fixed(step.probability)) : null;
}

const shapeOf = (name) => (D.shapes[name] ? `(${D.shapes[name].join(", ")})` : "");
const hasBoth = () => D.stacks.encoder && D.stacks.decoder;
const hasLab = () => openable().includes("lab");
// The layer of a stack that is open, and the name of a module in it.
const layerOf = (side) => clamp(S.boxLayer, 0, D.stacks[side].n_layers - 1);
const layered = (module) => module.replace(/^(\w+)\.layers\.0\./, (_, side) => `${side}.layers.${layerOf(side)}.`);

// Another screen at a place; Back returns.
function openAt(changes, point) {
  FLOW.opener = document.activeElement?.dataset?.k ?? "";
  set({ ...changes, point });
  const target = document.querySelector(`[data-point="${point}"]`) ?? document.getElementById("tabs");
  target.scrollIntoView({ block: "start" });
  if (!changes.tab) return;
  document.getElementById("view").focus({ preventScroll: true });
}
function openBox(module, j) {
  if (live) openAt({ box: module, boxToken: j }, "boxes");
}

// The rows of a stack from the bottom up: { kind, key, text, height } with what their kind needs.
function figureRows(side) {
  const s = D.stacks[side],
    credit = D.steps.length ? stepCredit() : null,
    shares = credit && (side === "encoder" ? credit.source : credit.read),
    own = side === "decoder",
    fits = shares?.length === flowTokens(side).length,
    lowest = s.sequence === "image" ? "patches" : s.sequence === "audio" ? "convolutions" : "embedding",
    front = own && hasBoth() ? "target_front_end" : "front_end",
    openTokens = () => (credit ? openAt({ tab: "steps" }, "credit") : openAnswer()),
    open = credit || openable().includes("answer") ? openTokens : undefined;
  const rows = [
    { kind: "tokens", key: "tokens", text: t(own ? "figureTarget" : "figureSource"), height: fits ? 46 : 30, shares: fits ? shares : null, open },
    vectorRow(side, "embedding", t(lowest), front, (j) => openEmbedding(side, j)),
  ];
  if (["sinusoidal", "learned"].includes(s.positions)) {
    const row = vectorRow(side, "positions", `+ ${t("positions")}`, `${side}.embedding_norm`);
    if (s.kind !== "transformer") Object.assign(row, { module: null, open: null, openAt: null });
    rows.push({ ...row, shape: rows[1].shape, open: s.waves ? () => openAt({}, "waves") : row.open });
  }
  if (s.kind !== "transformer") rows.push(...otherRows(side, s));
  else for (let l = 0; l < s.n_layers; l++) rows.push(...(l === layerOf(side) ? layerRows(side, s) : [closedRow(side, l)]));
  if (s.pre_norm) rows.push(vectorRow(side, "norm", t("norm"), `${side}.norm`));
  if (own || !hasBoth()) rows.push(...outputRows(side));
  else rows.at(-1).shape = `${t("memory")} ${shapeOf("encoder")}`;
  return rows;
}
function vectorRow(side, key, text, module, openCell = (j) => openBox(module, j)) {
  const vectors = D.recording?.outputs[layered(module)],
    row = { kind: "vectors", key, text, module, vectors, height: FLOW.row, shape: shapeOf(module) };
  return live ? { ...row, openAt: openCell, open: () => openCell(flowColumn(side)) } : row;
}
// A layer of which only the output is shown: a click fans it out.
function closedRow(side, l) {
  const name = `${side}.layers.${l}`,
    isOut = live && listed("outLayers").includes(name);
  return { kind: "layer", key: `layer${l}`, layer: l, text: `${t("layer")} ${l + 1}${isOut ? ` · ${t("outNow")}` : ""}`, vectors: D.recording?.outputs[name], height: FLOW.row, open: () => set({ boxLayer: l }) };
}
// The layer that is open: its attentions with their heads, and its feed-forward network.
function layerRows(side, s) {
  const l = layerOf(side),
    layer = `${side}.layers.0`,
    own = side === "decoder" ? "maskedSelf" : "selfAttention",
    attends = (key, name, below) => {
      const attention = D.attention.find((a) => a.name === layered(name));
      const n = seq(s.sequence).length,
        qkv = t("qkv", `(1, ${s.n_heads}, ${n}, ${s.d_head})`, `(1, ${s.n_heads}, ${n}, ${attention?.shape[2] ?? n})`);
      return [
        headsRow(key, t(key), attention, { module: name, shape: qkv, below }),
        vectorRow(side, `${key}Add`, t(s.pre_norm ? "add" : "addNorm"), `${name}_residual`),
      ];
    };
  const cross = crosses().find((a) => a.name === layered(`${layer}.cross_attention`)),
    memory = cross && memoryRow(cross);
  const rows = [
    ...attends(own, `${layer}.self_attention`),
    ...(cross ? [memory, ...attends("crossAttention", `${layer}.cross_attention`, memory)] : []),
    vectorRow(side, "feedForward", t("feedForward"), `${layer}.feed_forward`),
    { ...vectorRow(side, "out", `${t("layer")} ${l + 1}`, `${layer}.feed_forward_residual`, (j) => openLens(side, l, j)), shape: shapeOf(`${layer}.feed_forward`) },
  ];
  rows.forEach((row) => (row.layer = l));
  return rows;
}
function headsRow(key, text, attention, more) {
  const number = D.attention.indexOf(attention),
    sharpest = attention && attention.patterns.reduce((best, [, value], h) => (value > attention.patterns[best][1] ? h : best), 0),
    byHand = D.by_hand.findIndex((x) => x.attention === number && (!live || x.head === sharpest)),
    map = more.below ? () => openAt({ tab: "steps" }, "attention") : () => openAt({ tab: "heads", att: number, head: sharpest, film: -1 }, "big"),
    links = [
      byHand >= 0 && ["hand", () => openAt({ tab: "hand", hand: byHand, asks: -1, looked: -1 }, "table")],
      hasLab() && ["lab", () => openAt({ tab: "lab", module: layered(more.module ?? ""), rows: "heads" }, "map")],
    ].filter(Boolean);
  return { kind: "heads", key, text, attention, height: FLOW.fan, open: attention ? map : undefined, links: attention ? links : [], ...more };
}
const memoryRow = (attention) => ({ kind: "memory", key: "memory", text: t("memory"), attention, shape: shapeOf("encoder"), height: FLOW.row, open: () => openAt({ tab: "steps" }, "attention") });
// Stacks of other kinds: their attentions, of which one is fanned out, below a row for all layers.
function otherRows(side, s) {
  const attentions = D.attention.filter((a) => a.name.startsWith(side)),
    open = clamp(S.boxLayer, 0, attentions.length - 1),
    rows = attentions.flatMap((attention, l) => {
      const memory = kindOf(attention).kind === "cross" ? memoryRow(attention) : null,
        name = `${t(kindOf(attention).kind)}${s.context ? ` (${s.context})` : ""}`;
      return l === open ? [memory, headsRow("attention", name, attention, { below: memory })].filter(Boolean) : [closedRow(side, l)];
    });
  if (side === "decoder" && s.context === "fixed") rows.push({ ...memoryRow(null), kind: "vectors", open: () => openAt({ tab: "steps" }, "attention") });
  return [...rows, { ...vectorRow(side, "stack", t(s.kind), side), shape: shapeOf(side) }];
}
// What is likeliest at the moving step (or of an encoder the answer), and what was written.
function outputRows(side) {
  const tabs = openable(),
    step = D.steps[clamp(S.step, 0, D.steps.length - 1)],
    hidden = D.hidden.find(({ position }) => position === flowColumn(side)),
    masked = D.task === "masked-language-model",
    ends = D.span ? D.span.start.map((p, i) => [`${i} ${seq(D.stacks[side].sequence)[i]}`, p]).sort((x, y) => y[1] - x[1]) : [],
    guesses = step?.guesses ?? (masked && hidden ? hidden.guesses : D.labels.length ? D.labels : ends),
    open = step ? () => openAt({ tab: "steps" }, "candidates") : tabs.includes("answer") ? openAnswer : undefined,
    links = [["beam", () => openAt({ tab: "beam" }, "")], ["layers", () => openLens(side, D.stacks[side].n_layers - 1, flowColumn(side))]].filter(([name]) => tabs.includes(name));
  return [
    { kind: "guesses", key: "head", text: t(lastBox()), module: D.vectors.embedding ? null : "head", shape: shapeOf("head") || `(1, ${D.stacks[side].d_model})`, height: 80, guesses, open, links },
    ...(step ? [{ kind: "written", key: "written", text: t("written"), height: 30, open }] : []),
  ];
}
function lastBox() {
  if (D.span) return "spanHead";
  if (D.vectors.embedding) return "vectorHead";
  return D.labels.length && !D.layers_of ? "labelHead" : "linear";
}
function openAnswer() {
  const column = D.stacks.encoder ? flowColumn("encoder") : -1,
    isHidden = D.task === "masked-language-model" && D.hidden.some(({ position }) => position === column);
  openAt({ tab: "answer", hidden: isHidden ? column : S.hidden }, "");
}
// Neighbours of the embedding of a token, in the laboratory or (of encoders alone) below its numbers.
function openEmbedding(side, j) {
  const front = side === "decoder" && hasBoth() ? "target_front_end" : "front_end";
  if (!hasLab()) return openBox(front, j);
  openAt({ tab: "lab", module: `${side}.embedding_norm`, place: j, token: idOf(side, flowTokens(side)[j]) }, "meaning");
}
// The id of a token by its name, or -1.
function idOf(side, name) {
  const tokenizer = side === "encoder" ? transduce.model.tokenizers[0] : transduce.model.tokenizers.at(-1),
    ids = Array.from({ length: tokenizer.size }, (_, id) => id);
  return ids.findIndex((id) => id >= SPECIAL.length && tokenizer.token(id) === name);
}
function openLens(side, layer, j) {
  const isSeen = openable().includes("layers") && (side === "decoder" || !D.stacks.decoder) && D.layers.length > layer;
  if (!isSeen) return openBox(`${side}.layers.0.feed_forward_residual`, j);
  openAt({ tab: "layers", layer, place: j }, "");
}
// All rows with vectors, each once: a stack's layers share their names.
const figureBoxes = () =>
  ["encoder", "decoder"].filter((side) => D.stacks[side]).flatMap((side) => figureRows(side).filter((row) => row.module));

// Each kind of positions once.
function waves() {
  const kinds = new Map(Object.values(D.stacks).map((s) => [s.positions, s.waves]));
  return [...kinds]
    .filter(([, packed]) => packed && packed.shape[0])
    .map(([kind, packed]) => {
      const data = bytes(packed.byte),
        [n, m] = packed.shape,
        title = t("waves", t(kind)),
        style = { width: m * clamp(Math.floor(480 / m), 4, 16) + "px", height: n * 6 + "px" },
        canvas = el("canvas", { class: "strip", role: "img", "aria-label": title, style });
      paint(canvas, n, m, (i, j) => (data[i * m + j] - 128) / 127, true);
      return el("div", { "data-point": "waves" }, titled(title, note(t("wavesNote", n - 1)), canvas));
    });
}

function masks() {
  return Object.entries(D.stacks)
    .filter(([, s]) => s.kind === "transformer" && seq(s.sequence).length)
    .map(([side, s]) => {
      const names = seq(s.sequence).slice(0, 40),
        causal = side === "decoder",
        size = clamp(Math.floor(300 / names.length), 6, 22),
        seen = (i, j) => (!causal || j <= i ? 0.5 : 0),
        map = heat(seen, names, names, { size, label: t("mask"), key: "mask" + side });
      return titled(`${t("mask")} (${t(s.sequence)})`, note(t(causal ? "maskCausal" : "maskAll")), map);
    });
}
