// The page around train.js: switches, curves of all trainings, the heads and the answer as they form.
// The address holds the state: #lang=en&without=mask,scale&line=31415.

const WORDS = {
  zh: {
    title: "在网页里训练一个 Transformer",
    other: "English",
    task: "任务：把一行数字原样再写一遍。编码器、解码器各一层，宽 32，两个头，共 22,272 个参数；每一步从 64 行里学习，一共 400 步。全部计算都在本页的 JavaScript 里（train.js），不连网络。",
    leftOut: "模型的部件（取消勾选就是拿掉）",
    positions: "位置编码",
    scale: "÷√d",
    mask: "解码器的掩码",
    residual: "残差连接",
    norm: "LayerNorm",
    predictions: {
      "": "先猜：多少步以后，它能一字不差地写出五个数字？",
      positions: "先猜：没有位置编码，它还分得清 31415 和 51413 吗？损失会停在哪里？",
      scale: "先猜：不除以 √d，学得慢一点，还是根本学不会？",
      mask: "先猜：解码器看得见后面的答案，损失会更低还是更高？写出来的又对不对？",
      residual: "先猜：只有一层，没有残差还学得会吗？",
      norm: "先猜：LayerNorm 对这么浅的模型要紧吗？",
    },
    several: "先猜：这些一起拿掉，会怎样？",
    train: "▶ 训练",
    pause: "❚❚ 暂停",
    resume: "▶ 继续",
    forget: "清除曲线",
    progress: (step, steps, loss) => `第 ${step} / ${steps} 步，损失 ${loss}`,
    curves: "损失（每个符号的交叉熵，nat）",
    chance: "瞎猜：ln 12",
    steps: "训练步数",
    whole: "完整的模型",
    without: (parts) => `去掉${parts.join("、")}`,
    head: ["", "训练", "最后 20 步的损失", "五个数字一字不差"],
    line: "一行数字，六个头",
    lineLabel: "输入",
    writes: (text) => `→ 它写：${text || "（什么也没写）"}`,
    untrained: "（还没训练）",
    names: { encoder: "编码器自注意力", decoder: "解码器自注意力", cross: "交叉注意力" },
    headOf: (name, h) => `${name}，第 ${h} 个头`,
    note: "一行是一个查询，一列是一个键，颜色越深权重越大（深色模式下越亮）。学会以后，交叉注意力里至少有一个头走对角线：写第 t 个，就看第 t 个。",
    describe: (rows) => `注意力权重：${rows}`,
  },
  en: {
    title: "Train a Transformer in the page",
    other: "中文",
    task: "The task: write a line of digits again. One layer of encoder and decoder, width 32, two heads, 22,272 parameters; each step learns from 64 lines, 400 steps in all. Everything is computed by the JavaScript of this page (train.js), without a network.",
    leftOut: "Parts of the model (untick to leave one out)",
    positions: "positions",
    scale: "÷√d",
    mask: "the decoder's mask",
    residual: "residual connections",
    norm: "LayerNorm",
    predictions: {
      "": "Guess first: after how many steps will it write five digits without an error?",
      positions: "Guess first: without positions, can it tell 31415 from 51413? Where will the loss stop?",
      scale: "Guess first: without ÷√d, will it learn later, or never?",
      mask: "Guess first: if the decoder sees the answer to come, is the loss lower or higher? And what it writes, is it right?",
      residual: "Guess first: can a single layer learn without residual connections?",
      norm: "Guess first: does LayerNorm matter in so shallow a model?",
    },
    several: "Guess first: what happens without all of these?",
    train: "▶ Train",
    pause: "❚❚ Pause",
    resume: "▶ Go on",
    forget: "Clear the curves",
    progress: (step, steps, loss) => `step ${step} of ${steps}, loss ${loss}`,
    curves: "Loss (cross-entropy of a symbol, nats)",
    chance: "guessing: ln 12",
    steps: "training steps",
    whole: "the whole model",
    without: (parts) => `without ${parts.join(", ")}`,
    head: ["", "training", "loss of the last 20 steps", "five digits without an error"],
    line: "A line, and the six heads",
    lineLabel: "Input",
    writes: (text) => `→ it writes ${text || "(nothing)"}`,
    untrained: "(not trained yet)",
    names: { encoder: "encoder", decoder: "decoder", cross: "cross-attention" },
    headOf: (name, h) => `${name}, head ${h}`,
    note: "A row is a query, a column a key; darker is more weight (brighter in dark mode). Once the task is learned, at least one head of the cross-attention follows the diagonal: to write symbol t it looks at symbol t.",
    describe: (rows) => `attention weights: ${rows}`,
  },
};
const PARTS = ["positions", "scale", "mask", "residual", "norm"],
  COLOURS = ["#2f81f7", "#d1791c", "#2da44e", "#e5534b", "#8a63d2", "#768390"],
  ATTENTIONS = [
    ["encoder.layers.0.self_attention", "encoder"],
    ["decoder.layers.0.self_attention", "decoder"],
    ["decoder.layers.0.cross_attention", "cross"],
  ];

const byId = (id) => document.getElementById(id);
const address = new URLSearchParams(location.hash.slice(1));
let language = address.get("lang") === "en" ? "en" : "zh",
  leftOut = (address.get("without") ?? "").split(",").filter((part) => PARTS.includes(part)),
  running = false;
const runs = []; // { leftOut, training, share }: the last one is drawn and asked
const words = () => WORDS[language];
const nameOf = (parts) =>
  parts.length ? words().without(parts.map((part) => words()[part])) : words().whole;

function element(name, attributes = {}, ...children) {
  const space = ["svg", "path", "line", "text", "rect", "g"].includes(name);
  const made = space
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, setting] of Object.entries(attributes)) made.setAttribute(key, setting);
  made.append(...children);
  return made;
}
const meanOf = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;
const currentRun = () => runs.at(-1);
const isDone = (run) => run.training.losses.length >= run.training.steps;

function writeAddress() {
  const state = new URLSearchParams({ lang: language });
  if (leftOut.length) state.set("without", leftOut.join(","));
  state.set("line", byId("line").value);
  history.replaceState(null, "", `#${state}`);
}

function drawWords() {
  const w = words();
  document.documentElement.lang = language;
  document.title = w.title;
  document.querySelector("h1").textContent = w.title;
  for (const [id, text] of [
    ["language", w.other],
    ["task", w.task],
    ["left-out", w.leftOut],
    ["forget", w.forget],
    ["curves-title", w.curves],
    ["line-title", w.line],
    ["line-label", w.lineLabel],
    ["heads-note", w.note],
  ])
    byId(id).textContent = text;
  byId("switches").replaceChildren(
    ...PARTS.map((part) => {
      const box = element("input", { type: "checkbox", name: part });
      box.checked = !leftOut.includes(part);
      box.disabled = running;
      box.addEventListener("change", () => {
        leftOut = PARTS.filter((other) => (other === part ? !box.checked : leftOut.includes(other)));
        draw();
      });
      return element("label", {}, box, w[part]);
    }),
  );
  byId("prediction").textContent = leftOut.length > 1 ? w.several : w.predictions[leftOut[0] ?? ""];
}

function drawProgress() {
  const run = currentRun(),
    same = run && !isDone(run) && String(run.leftOut) === String(leftOut);
  byId("train").textContent = running ? words().pause : same ? words().resume : words().train;
  byId("forget").disabled = running || !runs.length;
  const losses = run?.training.losses ?? [];
  byId("progress").textContent = losses.length
    ? words().progress(losses.length, run.training.steps, meanOf(losses.slice(-10)).toFixed(3))
    : "";
}

// Means of ten losses each, of every training, over the steps.
function drawCurves() {
  const wide = Math.min(640, Math.max(340, byId("curves").clientWidth || 640)),
    [left, right, top, bottom, most] = [34, wide - 10, 10, 210, 3],
    x = (step) => left + ((right - left) * step) / (currentRun()?.training.steps ?? 400),
    y = (loss) => bottom - ((bottom - top) * Math.min(loss, most)) / most;
  const parts = [0, 1, 2, 3].flatMap((loss) => [
    element("line", { class: "axis", x1: left, x2: right, y1: y(loss), y2: y(loss) }),
    element("text", { x: left - 6, y: y(loss) + 4, "text-anchor": "end" }, String(loss)),
  ]);
  const chance = y(Math.log(12));
  parts.push(
    element("line", { class: "axis", x1: left, x2: right, y1: chance, y2: chance, "stroke-dasharray": "4 4" }),
    element("text", { x: right, y: chance - 5, "text-anchor": "end" }, words().chance),
    element("text", { x: right, y: 232, "text-anchor": "end" }, words().steps),
    ...[0, 100, 200, 300, 400].map((step) =>
      element("text", { x: x(step), y: 226, "text-anchor": "middle" }, step === 400 ? "" : String(step)),
    ),
  );
  runs.forEach(({ training }, i) => {
    const points = [];
    for (let step = 0; step < training.losses.length; step += 10) {
      const loss = meanOf(training.losses.slice(step, step + 10));
      points.push(`${x(step + 5).toFixed(1)} ${y(loss).toFixed(1)}`);
    }
    const stroke = COLOURS[i % COLOURS.length],
      latest = i === runs.length - 1;
    if (points.length)
      parts.push(
        element("path", { d: `M${points.join("L")}`, fill: "none", stroke, "stroke-width": latest ? 2.5 : 1.5 }),
      );
  });
  byId("curves").setAttribute("viewBox", `0 0 ${wide} 240`);
  byId("curves").replaceChildren(...parts);
  const rows = runs.map(({ leftOut: parts, training, share }, i) => {
    const key = element("span", { class: "key", style: `background: ${COLOURS[i % COLOURS.length]}` }),
      loss = training.losses.length ? meanOf(training.losses.slice(-20)).toFixed(3) : "";
    const cells = [key, nameOf(parts), loss, share === undefined ? "…" : `${Math.round(100 * share)} %`];
    return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
  });
  const head = element("tr", {}, ...words().head.map((text) => element("th", { scope: "col" }, text)));
  byId("runs").replaceChildren(...(rows.length ? [element("table", {}, head, ...rows)] : []));
  byId("curves").setAttribute("aria-label", words().curves);
}

// The answer to the line of the reader, and the weights of the six heads while the line itself is written.
function drawHeads() {
  const digits = [...byId("line").value].filter((sign) => "0123456789".includes(sign)),
    run = currentRun(),
    model = run?.training.model ?? (drawHeads.fresh ??= new Training().model);
  if (!digits.length) {
    byId("answer").textContent = "";
    byId("heads").replaceChildren();
    return;
  }
  const line = digits.map((digit) => FIRST + Number(digit)),
    written = model.copy(line).map((id) => (id < FIRST ? "␣" : id - FIRST));
  byId("answer").textContent = run ? words().writes(written.join("")) : words().untrained;
  model.loss([line], false);
  const inputs = ["↦", ...digits];
  const figures = ATTENTIONS.flatMap(([name, kind]) => {
    const { maps, rows, columns } = model.maps[name],
      queries = kind === "encoder" ? digits : inputs,
      keys = kind === "decoder" ? inputs : digits;
    return [0, 1].map((h) => headFigure(words().headOf(words().names[kind], h + 1), queries, keys, (i, j) =>
      maps[(h * rows + i) * columns + j],
    ));
  });
  byId("heads").replaceChildren(...figures);
}
function headFigure(title, queries, keys, weight) {
  const [n, k] = [queries.length, keys.length],
    picture = element("svg", { viewBox: `-0.2 -0.2 ${k + 1.2} ${n + 1.2}`, role: "img" });
  keys.forEach((key, j) => picture.append(element("text", { x: j + 1.5, y: 0.7 }, String(key))));
  const strongest = queries.map((query, i) => {
    picture.append(element("text", { x: 0.5, y: i + 1.7 }, String(query)));
    const weights = keys.map((_, j) => weight(i, j));
    weights.forEach((w, j) => {
      const cell = element("rect", { x: j + 1, y: i + 1, width: 1, height: 1, "fill-opacity": w.toFixed(3) });
      cell.append(element("title", {}, `${query} → ${keys[j]}: ${w.toFixed(3)}`));
      picture.append(cell);
    });
    const best = weights.indexOf(Math.max(...weights));
    return `${query} → ${keys[best]} ${weights[best].toFixed(2)}`;
  });
  picture.setAttribute("aria-label", words().describe(strongest.join(", ")));
  return element("figure", {}, element("figcaption", {}, title), picture);
}

function draw() {
  drawWords();
  drawProgress();
  drawCurves();
  drawHeads();
  writeAddress();
}

// Train for some 40 ms at a time, so that the page answers; draw every ten steps.
function learn() {
  const run = currentRun(),
    until = performance.now() + 40;
  while (running && !isDone(run) && performance.now() < until) {
    run.training.step();
    if (run.training.losses.length % 10 === 0) {
      drawProgress();
      drawCurves();
      drawHeads();
    }
  }
  if (running && !isDone(run)) return setTimeout(learn);
  run.share = run.training.copied();
  running = false;
  draw();
}
function start() {
  const run = currentRun();
  if (!run || isDone(run) || String(run.leftOut) !== String(leftOut))
    runs.push({ leftOut: [...leftOut], training: new Training({ leftOut }) });
  running = true;
  draw();
  setTimeout(learn);
}

byId("train").addEventListener("click", () => (running ? (running = false) : start()));
byId("forget").addEventListener("click", () => {
  runs.length = 0;
  draw();
});
byId("language").addEventListener("click", () => {
  language = language === "zh" ? "en" : "zh";
  draw();
});
byId("line").addEventListener("input", () => {
  drawHeads();
  writeAddress();
});
byId("line").value = (address.get("line") ?? "31415").slice(0, 9);
draw();
