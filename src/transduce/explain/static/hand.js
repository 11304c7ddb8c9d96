// Switches, and the parts of a model in the page that they leave out.
const SWITCHES = { noScale: "scale", noMask: "mask", sigmoid: "softmax", noPositions: "positions" };
// Screen 5: one head by hand.
function hand() {
  if (live)
    Object.assign(
      edits,
      mapped(SWITCHES, (part) => part !== "positions" && live.isOut("parts", part)),
    );
  const sharpest = D.by_hand.findIndex((x) => x.attention === D.sharpest?.[0] && x.head === D.sharpest?.[1]);
  const c = (S.hand = clamp(S.hand < 0 ? sharpest : S.hand, 0, D.by_hand.length - 1)),
    one = D.by_hand[c],
    a = D.attention[one.attention],
    rows = seq(a.rows),
    columns = seq(a.columns),
    w = weightsOf(a);
  const i = (S.asks = S.asks < 0 ? Math.min(3, (rows.length - 1) >> 1) : clamp(S.asks, 0, rows.length - 1)),
    largest = columns.reduce((best, _, r) => (w(one.head, i, r) > w(one.head, i, best) ? r : best), 0),
    j = (S.looked = S.looked < 0 ? largest : clamp(S.looked, 0, columns.length - 1));
  const bare = edits.noPositions && one.bare ? one.bare : one,
    q = halves(bare.query),
    k = halves(bare.key),
    v = halves(bare.value),
    bias = one.bias && !edits.noPositions ? halves(one.bias) : null,
    d = q.d;
  const at = (what, r) =>
    Object.assign((what === "q" ? q : what === "k" ? k : v).row(r), edits[`${c}${what}${r}`] || {});
  // Numbers put in, from dimension n on.  A model in the page computes on with them, to the answer.
  const put = (what, r, n, numbers) => {
    if (live) return live.putNumbers(a.name, one.head, what, r, n, numbers);
    Object.assign((edits[`${c}${what}${r}`] ??= {}), Object.fromEntries(numbers.map((x, m) => [n + m, x])));
    render();
  };
  const asked = at("q", i);
  const scores = columns.map((name, r) => {
    const key = at("k", r),
      product = asked.reduce((sum, x, n) => sum + x * key[n], 0),
      scaled = edits.noScale ? product : product / Math.sqrt(d),
      biased = scaled + (bias ? bias.at(i, r) : 0),
      hidden = a.causal && r > i;
    return { name, product, scaled, biased, hidden, score: hidden && !edits.noMask ? -Infinity : biased };
  });
  const most = Math.max(...scores.map((r) => r.score)),
    sum = scores.reduce((s, r) => s + Math.exp(r.score - most), 0);
  scores.forEach((r) => {
    r.weight = edits.sigmoid
      ? r.score === -Infinity
        ? 0
        : 1 / (1 + Math.exp(-r.score))
      : Math.exp(r.score - most) / sum;
  });
  const mixed = asked.map((_, n) => scores.reduce((s, r, m) => s + r.weight * at("v", m)[n], 0));
  const flip = (name) =>
    checkbox(name, t(name), edits[name], (e) => {
      edits[name] = e.target.checked;
      render();
    });
  const vector = (what, r, label) => {
    const values = at(what, r),
      top = Math.max(...values.map(Math.abs), 1e-9),
      mine = live ? live.numbersAt(a.name, one.head, what, r) : edits[`${c}${what}${r}`] || {};
    return [
      el("h2", {}, label),
      el(
        "div",
        { class: "vector rove" },
        values.map((x, n) =>
          el("input", {
            type: "number",
            step: 0.1,
            value: Number(x.toFixed(3)),
            class: n in mine ? "changed" : "",
            "data-k": `${what}${r}.${n}`,
            "aria-label": `${label} ${n + 1}`,
            style: { "--a": (0.45 * Math.abs(x)) / top, "--tint": `var(${x < 0 ? "--red" : "--blue"})` },
            onchange: (e) => {
              const value = Number(e.target.value);
              if (e.target.value !== "" && Number.isFinite(value)) put(what, r, n, [value]);
            },
          }),
        ),
      ),
    ];
  };
  const products = asked.map((x, n) => x * at("k", j)[n]),
    way = D.recording && wayOf(a.name, i, rows.length, asked);
  const maskOf = (r) => (!r.hidden ? "0" : edits.noMask ? t("hidden") : "−∞");
  const scoreRow = (r, m) =>
    el(
      "tr",
      { style: m === j ? { outline: "2px solid var(--hot)" } : {} },
      el("th", { scope: "row" }, token(r.name)),
      numberCell(fixed(r.product, 2)),
      numberCell(edits.noScale ? "—" : fixed(r.scaled, 2)),
      bias ? numberCell(fixed(r.biased, 2)) : null,
      a.causal ? numberCell(maskOf(r), r.hidden && edits.noMask ? { class: "number masked" } : {}) : null,
      numberCell(fixed(r.weight), {
        style: {
          ...shade(0.9 * clamp(r.weight, 0, 1)),
          background: "rgba(var(--blue), var(--a))",
          "min-width": "4rem",
        },
      }),
      numberCell(fixed(w(one.head, i, m), 2)),
    );
  const heads = ["token", "product", "scaled", bias && "biased", a.causal && "masked", "weight", "own"].map(
    (key) => (key ? t(key, d) : null),
  );
  const all = scores.reduce((s, r) => s + r.weight, 0);
  const total = el(
    "tr",
    {},
    el("td", { colspan: 3 + (bias ? 1 : 0) + (a.causal ? 1 : 0) }),
    numberCell(t("sumIs", fixed(all, 2))),
    el("td", {}),
  );
  const notes = [
    edits.noScale && t("variance", d),
    edits.noMask && a.causal && t("noMaskNote"),
    edits.sigmoid && t("sigmoidNote"),
    edits.noPositions && one.bare && t("noPositionsNote"),
  ].filter(Boolean);
  const named = (x, n) => {
    const of = D.attention[x.attention],
      [pattern, value] = of.patterns[x.head];
    return [n, `${headName(of, x.head)} — ${t(pattern)} ${value.toFixed(2)}`];
  };
  const there = { noMask: a.causal, noPositions: one.bare },
    flips = live
      ? null
      : Object.keys(SWITCHES)
          .filter((name) => there[name] ?? true)
          .map(flip);
  const reset = () => {
    edits = {};
    if (live) live.change({ patches: "" });
    else render();
  };
  const chooseHead = (n) => set({ hand: Number(n), asks: -1, looked: -1 }),
    titles = { asks: "asks", looked: "lookedAt" };
  const chips = (key, names, chosen, changes) => {
    const chip = (s, r) =>
      act(key + r, token(s), () => set(changes(r)), { "aria-pressed": String(r === chosen) });
    return tokenRow(t(titles[key]), names.map(chip));
  };
  return [
    note(t(live ? "handFlows" : "handNote")),
    live ? note(t("sign")) : null,
    el("label", { class: "row" }, t("whichHead"), choice("hand", D.by_hand.map(named), c, chooseHead)),
    chips("asks", rows, i, (r) => ({ asks: r, looked: -1 })),
    chips("looked", columns, j, (r) => ({ looked: r })),
    way?.before,
    el("p", { class: "switches" }, flips, act("reset", t("reset"), reset)),
    el("p", {}, formula("weights")),
    notes.map(note),
    el(
      "div",
      { class: "two", "data-point": "table" },
      table(heads, [...scores.map(scoreRow), total]),
      el(
        "div",
        { style: { flex: "1 1 20rem" } },
        vector("q", i, t("query", isolated(rows[i]))),
        vector("k", j, t("key", isolated(columns[j]))),
        el("p", {}, act("alike", t("keyIsQuery"), () => put("k", j, 0, asked))),
        el("h2", {}, formula("products"), " ", t("products", fixed(scores[j].product, 2))),
        strip(products, 12),
        vector("v", j, t("value", isolated(columns[j]))),
        el("h2", {}, t("mixNote", d), " ", formula("mixed")),
        strip(mixed, 12),
        el("p", { class: "number note" }, firstOf(mixed)),
        way?.behind,
      ),
    ),
  ];
}
