// Screen 2: every head of every attention, after training or in the film of it.
function heads() {
  const film = filmOf();
  if (!film) S.film = -1;
  else S.film = clamp(S.film, D.attention.length ? -1 : 0, film.scenes.length - 1);
  const body = el("div", {}, headsBody());
  // The slider stays while it is drawn: only what is below it is made anew.
  return [note(t("headsNote")), film ? filmBar(film, () => fill(body, headsBody())) : null, body];
}
function headsBody() {
  const X = S.film < 0 ? D : filmed(filmOf());
  if (S.att < 0 && D.by_hand.length)
    [S.att, S.head] = D.sharpest ?? [D.by_hand.at(-1).attention, D.by_hand.at(-1).head];
  S.att = clamp(S.att, 0, X.attention.length - 1);
  const a = X.attention[S.att],
    h = (S.head = clamp(S.head, 0, a.shape[0] - 1)),
    rows = seq(a.rows, X),
    columns = seq(a.columns, X),
    w = weightsOf(a);
  const row = (S.row = clamp(S.row < 0 ? 2 : S.row, 0, rows.length - 1));
  const [name, value] = a.patterns[h];
  const big = el(
    "div",
    { class: "big", "data-point": "big" },
    el("h2", {}, headName(a, h)),
    note([
      `${t(name)} ${value.toFixed(2)}`,
      a.shape[0] > 1 ? [" · ", el("bdi", { class: "token" }, `${a.name}:${h + 1}`)] : null,
    ]),
    live && X === D && hasHeads(a) ? headSwitch(`${a.name}:${h + 1}`) : null,
    X.picture && a.rows === X.picture.sequence
      ? null
      : heat((i, j) => w(h, i, j), rows, columns, {
          chosen: row,
          choose: (r) => set({ row: r }),
          label: headName(a, h),
          key: "big",
        }),
    X.picture && a.columns === X.picture.sequence
      ? [
          overlay(
            Array.from({ length: columns.length }, (_, j) => w(h, row, j)),
            260,
            headName(a, h),
            a.rows === X.picture.sequence ? (patch) => set({ row: patch, patch }) : null,
          ),
          note(`${t("patch")}: ${rows[row]}`),
        ]
      : [el("h3", {}, t("lines", rowName(a, rows, row, X))), lines((i, j) => w(h, i, j), rows, columns, row)],
  );
  return [
    X.attentionLeftOut ? note(t(S.film < 0 ? "leftOut" : "filmLeftOut", X.attentionLeftOut)) : null,
    patternButtons(X),
    el("div", { class: "two" }, big, headGrid(X)),
  ];
}
// A row of the map; of a decoder, with the token that is written where it is read.
function rowName(a, rows, row, X) {
  const written = seq("written", X);
  if (!D.stacks.decoder || written.length !== rows.length || a.name.startsWith("encoder")) return isolated(rows[row]);
  return t("readsWrites", isolated(seq("read", X)[row] ?? ""), isolated(written[row]));
}
// Each measured name with the number of its heads; a click shows the best of them.
function patternButtons(X) {
  const all = X.attention.flatMap((x, att) =>
      x.patterns.map(([name, value], head) => ({ name, value, att, head })),
    ),
    counts = {};
  for (const { name } of all) counts[name] = (counts[name] || 0) + 1;
  const button = (name, text, changes) =>
    act("pattern" + name, text, () => set({ pattern: name, ...changes() }), {
      "aria-pressed": String(S.pattern === name),
    });
  const bestOf = (name) => {
    const { att, head } = all
      .filter((one) => one.name === name)
      .reduce((x, y) => (y.value > x.value ? y : x));
    return { att, head };
  };
  const names = Object.entries(counts).sort((x, y) => y[1] - x[1]),
    buttons = names.map(([name, n]) => button(name, `${t(name)} (${n})`, () => bestOf(name)));
  return el(
    "div",
    { class: "row" },
    button("", t("all"), () => ({})),
    buttons,
  );
}
// All heads in a column for each kind, a row for each layer.
function headGrid(X) {
  const kinds = ["encoderSelf", "decoderSelf", "cross"]
    .map((kind) => [kind, layersOf(X, kind)])
    .filter(([, layers]) => layers.length);
  const layerOf = ([x, k]) =>
    el(
      "div",
      { class: "layer" },
      layerName(x),
      el(
        "div",
        { class: "row-of-heads rove" },
        x.patterns.map((_, head) => (k < 0 ? emptyThumb() : thumb(x, k, head))),
      ),
    );
  const columns = kinds.map(([kind, layers]) => el("div", {}, el("h2", {}, t(kind)), layers.map(layerOf)));
  return el("div", { class: "kinds", style: { "--kinds": kinds.length } }, columns);
}
// Attentions of a kind by layer, with their numbers; of a layer that is left out of the model its name, and -1.
function layersOf(X, kind) {
  const side = kind === "encoderSelf" ? "encoder" : "decoder",
    last = kind === "cross" ? "cross_attention" : "self_attention",
    isLeftOut = (name) => name.startsWith(side) && (kind !== "cross" || hasBoth());
  const patterns = Array(D.stacks[side]?.n_heads ?? 0).fill(null),
    out = live && X === D ? listed("outLayers").filter(isLeftOut) : [];
  return [
    ...X.attention.map((x, k) => [x, k]).filter(([x]) => kindOf(x).kind === kind),
    ...out.map((name) => [{ name: `${name}.${last}`, patterns }, -1]),
  ].sort(([x], [y]) => kindOf(x).layer - kindOf(y).layer);
}
const emptyThumb = () => el("span", { class: "thumb empty" }, el("canvas"), el("span", {}, "—"));
function thumb(x, att, head) {
  const [name, value] = x.patterns[head],
    w = weightsOf(x),
    title = `${t(name)} ${value.toFixed(2)}`,
    dim = S.pattern && S.pattern !== name ? " dim" : "",
    off = live?.isOut("outHeads", `${x.name}:${head + 1}`) ? " off" : "";
  const choose = () => {
    set({ att, head });
    if (innerWidth < 640) document.querySelector(".big").scrollIntoView({ block: "start" });
  };
  const attrs = {
      title,
      class: "thumb" + dim + off,
      "aria-pressed": String(att === S.att && head === S.head),
    },
    picture = paint(el("canvas"), x.shape[1], x.shape[2], (i, j) => w(head, i, j)),
    label = { "aria-label": `${headName(x, head)}: ${title}` };
  return act(`thumb${att}.${head}`, [picture, el("span", {}, title)], choose, { ...attrs, ...label });
}
// Layers and heads of Transformers and SSRU decoders alone can be left out.
const hasHeads = ({ name }) => transduce.facts.stacks[name.split(".")[0]].d_head > 0;
// Leaves a head out of a model in the page, or puts it back.
function headSwitch(name) {
  const out = live.isOut("outHeads", name),
    attributes = {
      "data-k": "headOut",
      "aria-pressed": String(out),
      onclick: () => live.toggle("outHeads", name),
    };
  return el("p", {}, el("button", attributes, t(out ? "putHead" : "takeHead")));
}
// The number of a layer; of a model in the page a button that leaves the layer out.
function layerName(a) {
  const { layer } = kindOf(a);
  if (layer < 0) return null;
  const text = `${t("layer")} ${layer + 1}`,
    name = a.name.split(".").slice(0, 3).join("."),
    out = live?.isOut("outLayers", name),
    attributes = {
      "data-k": `layer${a.name}`,
      "aria-pressed": String(out),
      title: t(out ? "putLayer" : "takeLayer", layer + 1),
      onclick: () => live.toggle("outLayers", name),
    };
  return live && hasHeads(a) ? el("button", attributes, text) : el("span", {}, text);
}
function lines(value, rows, columns, row) {
  const places = (names) => {
    let x = 8;
    return names.map((s) => {
      const w = Math.max(10 + breadth(s), 26),
        mid = x + w / 2;
      x += w;
      return mid;
    });
  };
  const top = places(columns),
    bottom = places(rows),
    width = Math.max(top.at(-1) || 0, bottom.at(-1) || 0) + 60;
  const svg = el("svg", {
    width,
    height: 170,
    role: "img",
    "aria-label": columns
      .map((c, j) => [value(row, j), c])
      .sort((x, y) => y[0] - x[0])
      .slice(0, 5)
      .map(([v, c]) => `${visible(c)} ${fixed(v, 2)}`)
      .join(", "),
  });
  const draw = (i, j) => {
    const weight = value(i, j),
      strong = i === row;
    if (weight < 0.02) return;
    const ends = { x1: top[j], y1: 24, x2: bottom[i], y2: 142, stroke: css("--accent") };
    svg.append(
      el("line", {
        ...ends,
        "stroke-width": 1 + (strong ? 8 : 3) * weight,
        opacity: strong ? 0.2 + 0.8 * weight : 0.3 * weight,
      }),
    );
  };
  const order = [...rows.keys()].filter((i) => i !== row);
  for (const i of [...order, row]) columns.forEach((_, j) => draw(i, j));
  columns.forEach((c, j) =>
    svg.append(el("text", { x: top[j], y: 16, "text-anchor": "middle" }, visible(c))),
  );
  rows.forEach((c, i) =>
    svg.append(
      el(
        "text",
        {
          x: bottom[i],
          y: 160,
          "text-anchor": "middle",
          class: i === row ? "" : "muted",
          onmouseenter: () => i !== row && set({ row: i }),
          style: i === row ? { fill: css("--hot"), "font-weight": 700 } : {},
        },
        visible(c),
      ),
    ),
  );
  return el("div", { class: "scroll", tabindex: 0 }, svg);
}
