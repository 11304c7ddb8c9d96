// Pieces of chapters 0, 10 and 11: each shows what its own fields hold.

const SVG = "http://www.w3.org/2000/svg";
const shown = (x, digits = 4) => String(Number(x.toFixed(digits))).replace("-", "−");

function drawn(tag, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// Fields with their labels; `draw` gets their texts at each change and gives what is shown below.
function widget(place, fields, draw) {
  const output = element("output"),
    inputs = fields.map(([, value, settings]) => element("input", { autocomplete: "off", value, ...settings }));
  const update = () => output.replaceChildren(...[draw(...inputs.map((input) => input.value), inputs, update)].flat());
  inputs.forEach((input) => input.addEventListener("input", update));
  place.replaceChildren(
    element("p", { className: "fields" }, ...fields.map(([label], i) => element("label", {}, `${label} `, inputs[i]))),
    output,
  );
  update();
}

const line = (text, className = "") => element("p", { className, textContent: text });
const refused = () => line(say("请写数字，用空格隔开，最大一百万。", "Numbers please, separated by blanks, up to a million."), "refused");

// The numbers of a field; null where a part is none, or too great for a picture.
function fieldNumbers(text) {
  const numbers = numbersOf(text);
  return numbers?.every((x) => Math.abs(x) <= 1e6) ? numbers : null;
}

function fieldNumber(text) {
  const numbers = fieldNumbers(text);
  return numbers?.length === 1 ? numbers[0] : undefined;
}

function table(heads, rows) {
  const cells = (tag, list) => list.map((cell) => element(tag, {}, cell));
  return element(
    "div",
    { className: "wide" },
    element(
      "table",
      {},
      element("thead", {}, element("tr", {}, ...cells("th", heads))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row)))),
    ),
  );
}

function bar(share) {
  const made = element("span", { className: "bar" });
  made.style.setProperty("--share", share);
  return made;
}

function tokens(place) {
  widget(
    place,
    [
      [say("句子", "Sentence"), "我是个学生。", { maxLength: 40 }],
      [say("词表（用空格隔开）", "Vocabulary (blanks between)"), say("我 是 个 学 生 学生 机器 学习 。", "我 是 个 学 生 学生 。 I student a ' m"), { size: 34 }],
    ],
    (text, vocabulary) => {
      const found = tokenized(text, vocabulary.split(/\s+/).filter(Boolean)),
        bytes = found.filter(({ id }) => id < 256).length;
      return [
        element(
          "p",
          { className: "tokens" },
          ...found.map(({ text: token, id }) =>
            element("span", {}, element("b", { textContent: token === " " ? "␣" : token }), element("small", { textContent: id })),
          ),
        ),
        line(
          say(`${found.length} 个词元`, `${found.length} tokens`) +
            (bytes ? say(`，其中 ${bytes} 个是字节`, `, ${bytes} of them bytes`) : ""),
          "sum",
        ),
      ];
    },
  );
}

// A plane of ten squares each way that holds all arrows; a click or tap moves the first one.
function plane(arrows, moved) {
  const greatest = Math.max(...arrows.flatMap(([, v]) => v.map(Math.abs)));
  let unit = 1; // of a square: 1, 2, 5, 10, 20 …
  for (let i = 0; greatest > 5 * unit; i++) unit *= [2, 2.5, 2][i % 3];
  const picture = drawn("svg", { viewBox: "-5.5 -5.5 11 11", role: "img", "aria-label": arrows.map(([name, v]) => `${name} (${v.map((x) => shown(x))})`).join(", ") });
  for (let i = -5; i <= 5; i++)
    picture.append(
      drawn("line", { x1: i, x2: i, y1: -5, y2: 5, class: i ? "grid" : "axis" }),
      drawn("line", { y1: i, y2: i, x1: -5, x2: 5, class: i ? "grid" : "axis" }),
    );
  picture.append(drawn("text", { x: 5, y: 0.8, "text-anchor": "end" }, shown(5 * unit)));
  arrows.forEach(([name, v], i) => {
    const [x, y] = v.map((part) => part / unit);
    picture.append(
      drawn("line", { x1: 0, y1: 0, x2: x, y2: -y, class: `arrow a${i}` }),
      drawn("circle", { cx: x, cy: -y, r: 0.18, class: `a${i}` }),
      drawn("text", { x: x + (x > 3 ? -0.3 : 0.3), y: -y - 0.3, "text-anchor": x > 3 ? "end" : "start" }, name),
    );
  });
  picture.addEventListener("click", ({ clientX, clientY }) => {
    const { left, top, width } = picture.getBoundingClientRect();
    moved([((clientX - left) / width) * 11 - 5.5, 5.5 - ((clientY - top) / width) * 11].map((x) => (Math.round(2 * x) / 2) * unit));
  });
  return picture;
}

function vectors(place) {
  widget(
    place,
    [
      ["a =", "3 1", { size: 8 }],
      ["b =", "1 2", { size: 8 }],
    ],
    (first, second, inputs, update) => {
      const [a, b] = [first, second].map(fieldNumbers);
      if (a?.length !== 2 || b?.length !== 2) return refused();
      const both = a.map((x, i) => x + b[i]),
        apart = a.map((x, i) => x - b[i]),
        list = (v) => `(${v.map((x) => shown(x)).join(", ")})`;
      return [
        plane([["a", a], ["b", b], ["a + b", both]], (point) => {
          inputs[0].value = point.join(" ");
          update();
        }),
        line(`a + b = ${list(both)}   2a = ${list(a.map((x) => 2 * x))}`, "sum"),
        line(say(`|a| = ${shown(length(a))}   |b| = ${shown(length(b))}   a 到 b 的距离 ${shown(length(apart))}`, `|a| = ${shown(length(a))}   |b| = ${shown(length(b))}   from a to b ${shown(length(apart))}`), "sum"),
      ];
    },
  );
}

function products(place) {
  widget(
    place,
    [
      ["q =", "1 0 2", { size: 16 }],
      ["k =", "3 5 −1", { size: 16 }],
    ],
    (first, second) => {
      const [q, k] = [first, second].map(fieldNumbers);
      if (!q || !k) return refused();
      if (q.length !== k.length) return line(say(`两个向量要一样长：现在是 ${q.length} 和 ${k.length}。`, `Both need the same length: now ${q.length} and ${k.length}.`), "refused");
      const value = dot(q, k),
        lengths = length(q) * length(k),
        signed = (x) => (x < 0 ? `(${shown(x)})` : shown(x));
      return [
        line(`q · k = ${q.map((x, i) => `${signed(x)}×${signed(k[i])}`).join(" + ")} = ${shown(value)}`, "sum"),
        line(
          (lengths ? `cos = ${shown(value)} / (${shown(length(q))} × ${shown(length(k))}) = ${shown(value / lengths)}` : "cos = –") +
            `   q · k / √${q.length} = ${shown(value / Math.sqrt(q.length))}`,
          "sum",
        ),
        line(
          value > 0 ? say("大致同向：相配。", "Roughly the same direction: they match.") : value < 0 ? say("大致反向：不相配。", "Roughly opposite: they do not match.") : say("互相垂直：毫不相干。", "At a right angle: unrelated."),
        ),
      ];
    },
  );
}

function weights(place) {
  widget(
    place,
    [
      [say("分数", "Scores"), "1 0 1", { size: 18 }],
      [say("温度", "Temperature"), "1", { size: 5 }],
    ],
    (first, second) => {
      const scores = fieldNumbers(first),
        temperature = fieldNumber(second);
      if (!scores) return refused();
      if (!(temperature >= 1e-6)) return line(say("温度要大于 0。", "The temperature must be above 0."), "refused");
      const shares = softmax(scores, temperature),
        divided = scores.map((score) => score / temperature),
        exact = divided.every((x) => Math.abs(x) < 9);
      return [
        table(
          [say("分数", "score"), temperature === 1 ? "exp" : `exp(·/${shown(temperature)})`, say("权重", "weight"), ""],
          scores.map((score, i) => [shown(score), exact ? shown(Math.exp(divided[i])) : `e^${shown(divided[i])}`, shares[i].toFixed(4), bar(shares[i])]),
        ),
        line(say(`权重之和 ${shown(sum(shares))}`, `Sum of the weights ${shown(sum(shares))}`), "sum"),
      ];
    },
  );
}

function losses(place) {
  widget(
    place,
    [[say("正确词元的概率", "Probabilities of the right tokens"), "0.8865 0.3950 0.9364 0.8457 0.7624 0.8923 0.9215", { size: 44 }]],
    (typed) => {
      const given = fieldNumbers(typed);
      if (!given) return refused();
      if (given.some((p) => !(p > 0 && p <= 1))) return line(say("概率大于 0，不超过 1。概率是 0 时损失无穷大。", "Probabilities are above 0 and at most 1. At 0 the loss is infinite."), "refused");
      const mean = meanLoss(given);
      return [
        table(["p", "−ln p", ""], given.map((p) => [shown(p), lossOf(p).toFixed(4), bar(Math.min(1, lossOf(p) / 4))])),
        line(say(`平均损失 ${mean.toFixed(4)}   困惑度 e^${mean.toFixed(4)} = ${Math.exp(mean).toFixed(4)}`, `Mean loss ${mean.toFixed(4)}   Perplexity e^${mean.toFixed(4)} = ${Math.exp(mean).toFixed(4)}`), "sum"),
        line(say(`整句的概率（各个相乘）${given.reduce((a, b) => a * b).toPrecision(3)}`, `Probability of the whole sentence (their product) ${given.reduce((a, b) => a * b).toPrecision(3)}`), "sum"),
      ];
    },
  );
}

function descent(place) {
  const path = [],
    start = { w: 0, example: "", rate: "" };
  widget(
    place,
    [
      [say("开始的 w", "First w"), "0", { size: 5 }],
      [say("x 与 y", "x and y"), "2 6", { size: 6 }],
      [say("学习率 η", "Learning rate η"), "0.1", { size: 5 }],
    ],
    (first, second, third, inputs, update) => {
      const [w0, example, rate] = [fieldNumber(first), fieldNumbers(second), fieldNumber(third)];
      if (w0 === undefined || example?.length !== 2 || rate === undefined) return refused();
      if (Math.abs(example[0]) < 1e-3) return line(say("x 离 0 太近。", "x is too near 0."), "refused");
      if (start.w !== w0 || start.example !== second || start.rate !== third || !path.length) {
        Object.assign(start, { w: w0, example: second, rate: third });
        path.splice(0, path.length, w0);
      }
      const w = path.at(-1),
        slope = slopeOf(w, example),
        best = example[1] / example[0],
        away = path.map((v) => Math.abs(v - best)),
        reach = Math.max(1, ...away) * 1.4,
        far = away.at(-1) > 1e6 * Math.max(1, away[0]),
        highest = squaredError(best + reach, example),
        at = (v) => [(v - best) / reach, -squaredError(v, example) / highest],
        picture = drawn("svg", { viewBox: "-1.1 -1.1 2.2 1.3", class: "curve", role: "img", "aria-label": `w = ${shown(w)}, L = ${shown(squaredError(w, example))}` }),
        curve = Array.from({ length: 61 }, (_, i) => at(best + reach * (i / 30 - 1)).map((x) => x.toFixed(3)));
      picture.append(drawn("path", { d: `M${curve.join("L")}` }));
      path.forEach((v) => picture.append(drawn("circle", { cx: at(v)[0], cy: at(v)[1], r: v === w ? 0.045 : 0.02 })));
      const button = (text, act) => {
        const made = element("button", { type: "button", textContent: text });
        made.addEventListener("click", () => (act(), update(), place.querySelector(`output button:nth-of-type(${text.includes("⟲") ? 2 : 1})`).focus()));
        return made;
      };
      return [
        picture,
        line(`L(w) = (${shown(example[0])}w − ${shown(example[1])})² = ${shown(squaredError(w, example))}`, "sum"),
        line(say(`梯度 = 2·x·(x·w − y) = ${shown(slope)}   第 ${path.length - 1} 步，w = ${shown(w)}`, `Gradient = 2·x·(x·w − y) = ${shown(slope)}   Step ${path.length - 1}, w = ${shown(w)}`), "sum"),
        far ? line(say("越走越远：学习率太大。", "Further and further away: the learning rate is too high."), "refused") : line(say(`下一个 w = ${shown(w)} − ${shown(rate)} × ${shown(slope)} = ${shown(stepped(w, example, rate))}`, `Next w = ${shown(w)} − ${shown(rate)} × ${shown(slope)} = ${shown(stepped(w, example, rate))}`), "sum"),
        element(
          "p",
          {},
          button(say("走一步", "One step"), () => far || path.length > 200 || path.push(stepped(w, example, rate))),
          " ",
          button(say("⟲ 重来", "⟲ Again"), () => path.splice(1)),
        ),
      ];
    },
  );
}

// A beam over sentences of A and B: rows of probabilities, the width and the length penalty are typed.
function beam(place) {
  const names = ["A", "B", "</s>"],
    textOf = ({ tokens }) => tokens.map((token) => names[token]).join(" "),
    fates = { kept: say("留下", "kept"), ended: say("写完", "finished"), cut: say("剪掉", "cut") };
  widget(
    place,
    [
      [say("开头", "At the beginning"), "0.6 0.4 0", { size: 12 }],
      [say("A 之后", "After A"), "0.3 0.3 0.4", { size: 12 }],
      [say("B 之后", "After B"), "0.05 0.05 0.9", { size: 12 }],
      [say("束宽", "Width"), "2", { size: 3 }],
      ["α", "0", { size: 3 }],
    ],
    (...typed) => {
      const rows = typed.slice(0, 3).map(fieldNumbers),
        [width, alpha] = typed.slice(3, 5).map(fieldNumber);
      if ([...rows, width ?? null, alpha ?? null].includes(null)) return refused();
      if (rows.some((row) => row.length !== 3 || row.some((p) => p < 0) || Math.abs(sum(row) - 1) > 0.001))
        return line(say("每行三个概率，不小于 0，和为 1。", "Three probabilities a line, none below 0, with the sum 1."), "refused");
      if (!Number.isInteger(width) || width < 1 || width > 8 || alpha < 0)
        return line(say("束宽是 1 到 8 的整数，α 不小于 0。", "The width is a whole number from 1 to 8, α at least 0."), "refused");
      const { steps, finished } = beamSearch(rows, width, alpha),
        [best] = finished;
      return [
        ...steps.map((candidates, step) =>
          table(
            [say(`第 ${step + 1} 步`, `Step ${step + 1}`), say("概率", "probability"), "ln p", say("去向", "fate")],
            candidates.map((each) => [textOf(each), `${shown(each.from)} × ${shown(each.last)} = ${shown(each.p)}`, shown(Math.log(each.p)), fates[each.fate]]),
          ),
        ),
        line(
          best
            ? say(`答案：${textOf(best)}，概率 ${shown(best.p)}，得分 ${shown(best.score)}`, `Answer: ${textOf(best)}, probability ${shown(best.p)}, score ${shown(best.score)}`)
            : say(`${steps.length} 步之内没有一句写完。`, `No sentence is finished within ${steps.length} steps.`),
          "sum",
        ),
      ];
    },
  );
}

function cost(place) {
  widget(
    place,
    [
      [say("句长 n", "Length n"), "7", { size: 6 }],
      [say("宽 d", "Width d"), "128", { size: 6 }],
      [say("卷积窗口 k", "Window k"), "3", { size: 4 }],
      [say("头数", "Heads"), "4", { size: 4 }],
    ],
    (...typed) => {
      const [n, d, k, heads] = typed.slice(0, 4).map(fieldNumber);
      if (![n, d, k, heads].every((x) => Number.isInteger(x) && x > 0 && x <= 1e5)) return line(say("请写 1 到 100000 的整数。", "Whole numbers from 1 to 100,000, please."), "refused");
      const work = workOf(n, d, k),
        count = (x) => x.toLocaleString("en"),
        rows = [
          [say("自注意力", "self-attention"), `${n}²·${d}`, 1, 1],
          [say("循环", "recurrent"), `${n}·${d}²`, n, n],
          [say("卷积", "convolution"), `${k}·${n}·${d}²`, 1, `${n}/${k}`],
        ];
      return [
        table(
          [say("层", "layer"), say("乘法", "multiplications"), say("步数", "steps"), say("路径", "path")],
          rows.map(([name, formula, steps, path], i) => [name, `${formula} = ${count(work[i])}`, count(steps), String(path)]),
        ),
        line(
          say(`全部权重：${heads}·${n}²·4 = ${count(heads * n * n * 4)} 字节（float32）`, `All weights: ${heads}·${n}²·4 = ${count(heads * n * n * 4)} bytes (float32)`),
          "sum",
        ),
      ];
    },
  );
}

const WIDGETS = { tokens, vectors, products, weights, losses, descent, beam, cost };
document.querySelectorAll("[data-widget]").forEach((place) => WIDGETS[place.dataset.widget](place));
