// The picture of Figure 1: a column for each token, from the bottom up, and the heads of one layer fanned out.
const FLOW = { row: 28, cell: 20, fan: 84, head: 32, most: 64, opener: "", left: {} };

// A column for each token of a stack: rows from `figureRows`, with the wires between them.
function flow(side, width) {
  const rows = figureRows(side),
    tokens = flowTokens(side),
    count = Math.min(tokens.length, FLOW.most),
    gutter = flowGutter(),
    now = flowColumn(side),
    shown = flowWindow(tokens.length, now),
    inner = Math.max(count * width, ...rows.map((row) => widthOf(row, width))),
    height = rows.reduce((sum, row) => sum + row.height, 0) + 6;
  const g = { side, width, gutter, inner, now, shown, tokens, center: (j) => gutter + (j - shown[0] + 0.5) * width },
    lines = [],
    wires = el("svg", { class: "wires", width: gutter + inner + 4, height, "aria-hidden": "true" }),
    layer = [];
  let bottom = height - 2;
  for (const row of rows) {
    row.top = bottom - row.height;
    row.bottom = bottom;
    bottom = row.top;
  }
  streams(wires, g, rows);
  for (const row of [...rows].reverse()) {
    const { parts, buttons } = FLOW_ROWS[row.kind](row, g, wires);
    const label = rowLabel(row, g);
    layer.push(label.parts, parts);
    lines.push([...label.buttons, ...buttons]);
  }
  const style = { width: gutter + inner + 4 + "px", height: height + "px" },
    box = el("div", { class: "flow", style }, frameOf(rows, g), wires, layer),
    scroll = el("section", { class: "flowbox", "data-side": side, "data-center": g.center(now), "aria-label": t(side) }, box);
  scroll.addEventListener("scroll", () => (FLOW.left[side] = scroll.scrollLeft));
  roveGrid(box, lines);
  return scroll;
}
// Pictures that are wider than their boxes stay where they were scrolled, until the step moves out of sight.
function scrollFlows() {
  for (const box of document.querySelectorAll(".flowbox")) {
    const center = Number(box.dataset.center),
      left = FLOW.left[box.dataset.side] ?? 0,
      inside = center - left > flowGutter() && center - left < box.clientWidth - 20;
    box.scrollLeft = inside ? left : center - (box.clientWidth + flowGutter()) / 2;
  }
}
const flowGutter = () => (innerWidth < 640 ? 92 : 168);
// Tokens under the columns: what the stack reads.
const flowTokens = (side) => seq(D.stacks[side].sequence);
// Columns that have room, with the chosen one among them.
function flowWindow(count, now) {
  const from = clamp(now - (FLOW.most >> 1), 0, Math.max(count - FLOW.most, 0));
  return [from, Math.min(count, from + FLOW.most)];
}
function widthOf(row, width) {
  if (row.kind === "heads") return row.attention ? row.attention.shape[0] * (FLOW.head + 6) : 0;
  if (row.kind === "memory") return seq(row.attention.columns).length * memoryWidth(row, width);
  return row.kind === "guesses" ? 150 : 0;
}
const memoryWidth = (row, width) => (seq(row.attention.columns).length > FLOW.most ? 6 : Math.min(width, 40));
// The column of the moving step; of an encoder that of the token chosen, or of the one that counts most.
function flowColumn(side) {
  const last = flowTokens(side).length - 1;
  if (side === "decoder") return D.steps.length ? clamp(D.first_step + S.step, 0, last) : last;
  if (S.column >= 0) return clamp(S.column, 0, last);
  const credit = D.steps.length ? stepCredit() : null,
    cross = crosses().at(-1),
    of = (shares) => shares.indexOf(Math.max(...shares));
  if (credit && credit.source.length === last + 1) return of(credit.source.map(Math.abs));
  if (D.steps.length && cross && cross.shape[2] === last + 1) {
    const mean = meanOf(cross);
    return of(Array.from({ length: last + 1 }, (_, j) => mean(S.step, j)));
  }
  if (D.picture) return Math.max(S.patch, D.picture.first + ((last - D.picture.first) >> 1));
  return Math.max(S.hidden, flowTokens(side).indexOf("<mask>"), 0);
}

const boxed = (x, y, width, height) => ({ left: x + "px", top: y + "px", width: width + "px", height: height + "px" });
// The stream of each column, that of the moving step over the others, and the way of a token that was written.
function streams(wires, g, rows) {
  const [first, last] = [rows[0].top + 2, rows.at(-1).kind === "written" ? rows.at(-1).bottom - 2 : rows.at(-1).top + 10],
    reached = Array.from({ length: Math.min(g.now + 1, g.shown[1]) - g.shown[0] }, (_, k) => g.shown[0] + k),
    all = g.side === "decoder" ? reached : Array.from({ length: g.shown[1] - g.shown[0] }, (_, k) => g.shown[0] + k);
  wires.append(el("path", { class: "stream", d: all.map((j) => `M${g.center(j)},${first} V${last}`).join("") }));
  wires.append(el("path", { class: "stream now", d: `M${g.center(g.now)},${first} V${last}` }));
  const next = g.now + 1;
  if (g.side !== "decoder" || !D.steps.length || next >= g.shown[1]) return;
  const edge = g.center(g.now) + g.width / 2 - 2,
    [from, to] = [rows.at(-1).top + 15, rows[0].top + 15];
  wires.append(el("path", { class: "stream back", d: `M${edge - 2},${from} h2 V${to} h3` }));
}
// The frame of the layer that is open.
function frameOf(rows, g) {
  const inside = rows.filter((row) => row.layer !== undefined && row.kind !== "layer");
  if (!inside.length) return null;
  const top = inside.at(-1).top;
  return el("div", { class: "frame", style: boxed(0, top - 1, g.gutter + g.inner + 4, inside[0].bottom - top + 2) });
}
// The name of a row, which opens its view, with its shape and further views.
function rowLabel(row, g) {
  if (row.kind === "layer") return { parts: null, buttons: [] };
  const key = `row${g.side}${row.key}`,
    open = el("button", { class: "name", "data-k": key, "data-row": row.key, onclick: row.open, disabled: !row.open }, row.text),
    links = (row.links ?? []).map(([name, go]) => el("button", { class: "link", "data-k": key + name, onclick: go }, t(name)));
  const parts = el("div", { class: row.height > 40 ? "label tall" : "label", style: boxed(0, row.top, g.gutter - 6, row.height) }, open, row.shape ? el("span", { class: "shape" }, row.shape) : null, links);
  return { parts, buttons: [open, ...links] };
}

// Ways to draw a row: what stands there, and its buttons from left to right.
const FLOW_ROWS = {
  tokens(row, g) {
    const most = row.shares && greatestOf(row.shares),
      own = g.side === "decoder";
    const chip = (name, j) => {
      const share = row.shares?.[j],
        choose = () => (own ? j >= D.first_step && set({ step: j - D.first_step }) : set({ column: j }));
      const attributes = {
        class: "tokencell" + (own && j > g.now ? " later" : ""),
        "data-k": `flow${g.side}${j}`,
        "aria-pressed": String(j === g.now),
        title: visible(name),
        style: { ...boxed(g.center(j) - g.width / 2, row.top + 2, g.width - 4, row.height - 4), ...(share ? tinted(share, most) : {}) },
        onclick: choose,
      };
      return el("button", attributes, tokenOrPatch(name, j, D.stacks[g.side].sequence), share === undefined || (own && j > g.now) ? null : underneath(share));
    };
    return cellsOf(row, g, chip);
  },
  written(row, g) {
    const chip = (_, j) => {
      const step = D.steps[j - D.first_step];
      if (!step) return null;
      const attributes = {
        class: "tokencell" + (j > g.now ? " later" : ""),
        "data-k": `flowwritten${j}`,
        "aria-pressed": String(j === g.now),
        title: visible(step.written),
        style: boxed(g.center(j) - g.width / 2, row.top + 2, g.width - 4, row.height - 4),
        onclick: () => set({ step: j - D.first_step }),
      };
      return el("button", attributes, token(step.written));
    };
    return cellsOf(row, g, chip);
  },
  vectors(row, g) {
    const chosen = live && row.module === S.box;
    const cell = (name, j) => {
      const attributes = {
        class: "cell" + (chosen && (timer || j - g.tokens.length + row.vectors?.length === S.boxToken) ? " on" : "") + (g.side === "decoder" && j > g.now ? " later" : ""),
        "data-k": `flow${g.side}${row.key}.${j}`,
        "aria-label": `${row.text}: ${isolated(name)}`,
        style: boxed(g.center(j) - g.width / 2, row.top + 4, g.width - 4, FLOW.cell),
        onclick: () => row.openAt(j),
      };
      return el("button", attributes);
    };
    const cells = row.openAt ? cellsOf(row, g, cell) : { parts: null, buttons: [] };
    return { ...cells, parts: [colours(row.vectors, row.top + 4, g), cells.parts] };
  },
  layer(row, g) {
    const attributes = {
      class: "closed",
      "data-k": `flow${g.side}${row.key}`,
      style: boxed(0, row.top + 2, g.gutter + g.inner, row.height - 4),
      onclick: row.open,
      disabled: !row.open,
      "aria-expanded": row.open ? "false" : undefined,
    };
    const button = el("button", attributes, el("span", {}, row.text), row.shape ? el("span", { class: "shape" }, ` ${row.shape}`) : null);
    return { parts: [colours(row.vectors, row.top + 4, g), button], buttons: [button] };
  },
  memory(row, g) {
    const a = row.attention,
      mean = meanOf(a),
      at = attentionRow(a, g),
      width = memoryWidth(row, g.width),
      names = seq(a.columns);
    const cell = (name, j) => {
      const attributes = {
        class: "tokencell memory",
        "data-k": `flow${g.side}memory${j}`,
        title: `${visible(name)} ${fixed(mean(at, j), 2)}`,
        "aria-label": `${row.text}: ${isolated(name)} ${fixed(mean(at, j), 2)}`,
        style: { ...boxed(g.gutter + j * width, row.top + 3, width - 3, FLOW.row - 6), ...shade(mean(at, j)) },
        onclick: row.open,
      };
      return el("button", attributes, width > 12 ? tokenOrPatch(name, j, a.columns) : null);
    };
    const buttons = names.length > FLOW.most ? [] : names.map(cell);
    return { parts: buttons, buttons };
  },
  heads: fan,
  guesses(row, g) {
    const width = 150,
      left = clamp(g.center(g.now) - width / 2, g.gutter, g.gutter + g.inner - width);
    const guess = ([name, p], k) => {
      const attributes = {
        class: "guess",
        "data-k": `guess${k}`,
        style: { ...boxed(left, row.top + 4 + 24 * k, width, 22), "--p": `${100 * clamp(p, 0, 1)}%` },
        onclick: row.open,
        disabled: !row.open,
      };
      return el("button", attributes, token(name, k ? "" : " said"), el("span", { class: "number" }, fixed(p)));
    };
    const buttons = row.guesses.slice(0, 3).map(guess);
    return { parts: buttons, buttons };
  },
};
function cellsOf(row, g, cell) {
  const buttons = [];
  for (let j = g.shown[0]; j < g.shown[1]; j++) {
    const button = cell(g.tokens[j], j);
    if (button) buttons.push(button);
  }
  return { parts: buttons, buttons };
}
// The vectors of a row in colours, of each column some lines of numbers; of a decoder up to the moving step.
function colours(vectors, top, g) {
  if (!vectors?.length) return null;
  const [from, to] = g.shown,
    first = Math.max(vectors.length - g.tokens.length, 0),
    wide = Math.min(vectors[0].length, 32),
    high = clamp(Math.floor(vectors[0].length / wide), 1, 4),
    gap = Math.round((4 * wide) / (g.width - 4)),
    end = g.side === "decoder" ? Math.min(to, g.now + 1) : to;
  let most = 1e-9;
  for (let j = from; j < end; j++) for (const x of vectors[j + first] ?? []) most = Math.max(most, Math.abs(x));
  const canvas = el("canvas", { class: "colours", "aria-hidden": "true", style: boxed(g.gutter, top, (to - from) * g.width, FLOW.cell) });
  const value = (i, x) => {
    const j = from + Math.floor(x / (wide + gap)),
      c = x % (wide + gap),
      vector = j < end && c < wide ? vectors[j + first] : null;
    return vector ? (1.4 * vector[i * wide + c]) / most : 0;
  };
  return paint(canvas, high, (to - from) * (wide + gap), value, true);
}
// The row of an attention at the column of the step.
const attentionRow = (a, g) => clamp(a.rows === "written" ? g.now - D.first_step : g.now, 0, a.shape[1] - 1);
// Heads side by side: from every token that one attends to a line to the head, from the head one to the column.
function fan(row, g, wires) {
  const a = row.attention;
  if (!a) return { parts: null, buttons: [] };
  const w = weightsOf(a),
    heads = a.shape[0],
    at = attentionRow(a, g),
    pitch = FLOW.head + 6,
    middle = g.center(g.now),
    left = clamp(middle - (heads * pitch) / 2, g.gutter, Math.max(g.gutter + g.inner - heads * pitch, g.gutter)),
    top = row.top + (row.height - FLOW.head) / 2 - 6,
    across = row.below ? memoryWidth(row.below, g.width) : 0,
    from = (j) => (row.below ? g.gutter + (j + 0.45) * across : g.center(j)),
    curve = (x, y, x2, y2) => `M${x},${y} C${x},${(y + y2) / 2} ${x2},${(y + y2) / 2} ${x2},${y2}`;
  const head = (_, h) => {
    const x = left + (h + 0.5) * pitch - 3,
      style = { "--hue": (h * 137 + 210) % 360 },
      [name, value] = a.patterns[h] ?? ["", 0];
    for (let j = 0; j < a.shape[2]; j++) {
      const weight = w(h, at, j);
      if (weight < 0.03 || (!row.below && (j < g.shown[0] || j >= g.shown[1]))) continue;
      wires.append(el("path", { class: "ray", d: curve(from(j), row.bottom, x, top + FLOW.head), style, "stroke-opacity": 0.25 + 0.75 * weight, "stroke-width": 0.8 + 3 * weight }));
    }
    wires.append(el("path", { class: "ray", d: curve(x, top, middle, row.top), style, "stroke-opacity": 0.7, "stroke-width": 1.6 }));
    const off = live?.isOut("outHeads", `${a.name}:${h + 1}`) ? " off" : "";
    const attributes = {
      class: "headnode" + off,
      "data-k": `fan${a.name}:${h}`,
      style: { ...boxed(x - FLOW.head / 2, top, FLOW.head, FLOW.head), ...style },
      title: name && `${t(name)} ${value.toFixed(2)}`,
      "aria-label": `${headName(a, h)}${name && `: ${t(name)} ${value.toFixed(2)}`}`,
      onclick: () => openAt({ tab: "heads", att: D.attention.indexOf(a), head: h, row: at, film: -1 }, "big"),
    };
    return el("button", attributes, paint(el("canvas"), a.shape[1], a.shape[2], (i, j) => w(h, i, j)));
  };
  const buttons = Array.from({ length: heads }, head);
  return { parts: buttons, buttons };
}

// One tab stop for a picture; arrow keys go along a row, and to the nearest button of the row above or below.
function roveGrid(box, lines) {
  const rows = lines.map((line) => line.filter((button) => button && !button.disabled)).filter((line) => line.length),
    all = rows.flat(),
    middle = (button) => button.getBoundingClientRect().left + button.offsetWidth / 2;
  let stop = all.find((button) => button.getAttribute("aria-pressed") === "true") ?? all[0];
  all.forEach((button) => (button.tabIndex = button === stop ? 0 : -1));
  box.addEventListener("focusin", (e) => {
    if (!all.includes(e.target)) return;
    stop.tabIndex = -1;
    stop = e.target;
    stop.tabIndex = 0;
  });
  box.addEventListener("keydown", (e) => {
    const r = rows.findIndex((line) => line.includes(e.target)),
      along = { ArrowRight: 1, ArrowLeft: -1 }[e.key],
      over = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (r < 0 || (!along && !over)) return;
    e.preventDefault();
    e.stopPropagation();
    const line = rows[clamp(r + (over ?? 0), 0, rows.length - 1)],
      near = (a, b) => (Math.abs(middle(b) - middle(e.target)) < Math.abs(middle(a) - middle(e.target)) ? b : a);
    const next = along ? line[clamp(line.indexOf(e.target) + along, 0, line.length - 1)] : line.reduce(near);
    next.focus();
  });
}
