// Screen 6: Figure 1 with the shapes of this input, its positions and its masks.
const FIGURE = { width: 250, gap: 54, column: 380 };

function figure() {
  const columns = ["encoder", "decoder"].filter((side) => D.stacks[side]).map(figureColumn),
    stacked = innerWidth < 640,
    drawn = stacked ? columns.map((column) => [column]) : [columns];
  if (live && !figureBoxes().some((box) => box.module === S.box)) S.box = figureBoxes()[0].module;
  let memory = null;
  const figures = drawn.map((part) => {
    const tallest = Math.max(...part.map((c) => c.boxes.length)),
      [width, height] = [part.length * FIGURE.column + 40, (tallest + 1) * FIGURE.gap],
      svg = el("svg", {
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        class: "whole",
        role: "group",
        "aria-label": t("figureNote"),
      });
    part.forEach((column, n) => {
      memory = drawColumn(svg, column, 44 + n * FIGURE.column, height - 30, stacked && memory ? [] : memory);
    });
    return svg;
  });
  return [
    note(t("figureNote")),
    live ? note(t("boxNote")) : null,
    el("div", { class: "two" }, el("div", { class: "figures" }, figures.reverse()), live ? boxPanel() : null),
    el("div", { class: "two" }, waves(), masks()),
  ];
}

const shapeOf = (name) => (D.shapes[name] ? `(${D.shapes[name].join(", ")})` : "");
const hasBoth = () => D.stacks.encoder && D.stacks.decoder;

// The boxes of a stack from the bottom up; those from `from` to `to` are one layer.
function figureColumn(side) {
  const s = D.stacks[side],
    image = s.sequence === "image",
    audio = s.sequence === "audio",
    frontName = side === "decoder" && hasBoth() ? "target_front_end" : "front_end",
    front = shapeOf(frontName),
    input = t(side === "decoder" ? "figureTarget" : "figureSource"),
    size = image ? t("image") : `(1, ${seq(s.sequence).length})`;
  const boxes = [
    { text: input, plain: true, shape: size },
    { text: t(image ? "patches" : audio ? "convolutions" : "embedding"), shape: front, module: frontName },
  ];
  if (["sinusoidal", "learned"].includes(s.positions))
    boxes.push({ text: `+ ${t("positions")}`, shape: front, module: s.kind === "transformer" ? `${side}.embedding_norm` : null });
  const from = boxes.length;
  boxes.push(...layerBoxes(side, s));
  const to = boxes.length;
  if (s.pre_norm) boxes.push({ text: t("norm"), shape: shapeOf(side), module: `${side}.norm` });
  if (side === "decoder" || !hasBoth()) {
    boxes.push({
      text: t(lastBox()),
      shape: shapeOf("head") || `(1, ${s.d_model})`,
      module: D.vectors.embedding ? null : "head",
    });
    boxes.push({ text: D.vectors.embedding ? "" : t("probabilities"), plain: true, shape: "" });
  }
  return { side, boxes, from, to, times: t("times", s.n_layers) };
}

function layerBoxes(side, s) {
  const layer = `${side}.layers.0`,
    n = seq(s.sequence).length,
    cross = crosses()[0],
    looks = side === "decoder" && (cross || s.context);
  if (s.kind !== "transformer") {
    const own = { text: t(s.kind), shape: shapeOf(side), module: side };
    if (!looks) return [own];
    const text = s.context === "fixed" ? t("memory") : t("crossAttention") + (s.context ? ` (${s.context})` : "");
    return [own, { text, memory: true, shape: shapeOf(side) }];
  }
  const vectors = (m) => t("qkv", `(1, ${s.n_heads}, ${n}, ${s.d_head})`, `(1, ${s.n_heads}, ${n}, ${m})`);
  const sublayer = (key, name, inner, memory) => [
    {
      text: s.pre_norm ? `${t("norm")}, ${t(key)}` : t(key),
      shape: shapeOf(name),
      inner,
      memory,
      skip: true,
      module: name,
    },
    { text: t(s.pre_norm ? "add" : "addNorm"), shape: shapeOf(name), module: `${name}_residual` },
  ];
  const own = side === "decoder" ? "maskedSelf" : "selfAttention";
  return [
    ...sublayer(own, `${layer}.self_attention`, vectors(n)),
    ...(looks ? sublayer("crossAttention", `${layer}.cross_attention`, vectors(cross.shape[2]), true) : []),
    ...sublayer("feedForward", `${layer}.feed_forward`, shapeOf(`${layer}.feed_forward.inner`)),
  ];
}

function lastBox() {
  if (D.span) return "spanHead";
  if (D.vectors.embedding) return "vectorHead";
  return D.labels.length && !D.layers_of ? "labelHead" : "linear";
}

// Draws a column at x from the bottom up; gives the place where the memory of an encoder leaves.
function drawColumn(svg, column, x, bottom, memory) {
  const { width, gap } = FIGURE,
    { boxes, from, to } = column,
    middle = x + width / 2,
    at = (k) => bottom - k * gap,
    wire = (d) => svg.append(el("path", { class: "wire", d })),
    write = (left, y, text, cls, anchor = "middle") =>
      svg.append(el("text", { x: left, y, class: cls, "text-anchor": anchor }, text)),
    frame = { x: x - 30, y: at(to - 1) - 32, width: width + 42, height: (to - from - 1) * gap + 58, rx: 10 };
  svg.append(el("rect", { class: "stack", ...frame }));
  write(x + width + 20, (at(from) + at(to - 1)) / 2, column.times, "", "start");
  boxes.forEach((box, k) => {
    const y = at(k);
    if (k > 0 && box.text) {
      wire(`M${middle},${y + 31} V${y + 15} m-4,5 l4,-5 l4,5`);
      write(middle + 8, y + 27, boxes[k - 1].shape, "small muted", "start");
    }
    const chosen = live && box.module && box.module === S.box;
    if (!box.plain)
      svg.append(el("rect", { class: chosen ? "box on" : "box", x, y: y - 22, width, height: 36, rx: 6 }));
    write(middle, y + (box.inner ? -6 : box.plain ? 4 : 1), box.text);
    if (box.inner) write(middle, y + 8, box.inner, "tiny muted");
    if (live && box.module) svg.append(opener(box, { x, y: y - 22, width, height: 36, rx: 6 }));
    if (box.skip) wire(`M${middle},${y + 24} H${x - 16} V${y - gap - 4} H${x} m-5,-4 l5,4 l-5,4`);
    if (box.memory && memory && !memory.length) {
      wire(`M2,${y - 4} H${x} m-5,-4 l5,4 l-5,4`);
      write(2, y - 10, t("memory"), "small muted", "start");
    } else if (box.memory && memory)
      wire(`M${memory[0]},${memory[1]} H${memory[0] + width / 2 + 58} V${y - 4} H${x} m-5,-4 l5,4 l-5,4`);
  });
  if (column.side === "decoder" || !hasBoth()) return null;
  const top = at(boxes.length - 1) - 44;
  wire(`M${middle},${top + 22} V${top}`);
  write(middle - 8, top - 6, `${t("memory")} ${shapeOf("encoder")}`, "small muted");
  return [middle, top];
}

// A box as a button that shows its vectors.
function opener(box, frame) {
  const open = () => {
      set({ box: box.module });
      const panel = document.querySelector(".boxpanel");
      if (panel.getBoundingClientRect().bottom > innerHeight || panel.getBoundingClientRect().top < 0)
        panel.scrollIntoView({ block: "start" });
    },
    onkeydown = (e) => {
      if (e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      open();
    };
  const attributes = {
    class: "opener",
    role: "button",
    tabindex: 0,
    "data-k": "box" + box.module,
    "aria-label": box.text,
    onclick: open,
    onkeydown,
  };
  return el("rect", { ...attributes, ...frame });
}

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
      return titled(title, note(t("wavesNote", n - 1)), canvas);
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
