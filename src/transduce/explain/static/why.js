// Why a token: its probability without each source token, and without each head.
const WHY = { key: "", result: null };
const WHY_SHOWN = 6;

const whyKey = () => JSON.stringify([live.texts(), live.changes(), S.forced, S.beam, S.draw, S.seed, S.step]);
function findWhy() {
  const written = D.steps.map((step) => step.id),
    changes = live.changes(),
    p = transduce.model.chanceOf(live.texts(), written, S.step),
    without = (key, name) => p({ ...changes, [key]: [...changes[key], name] });
  const heads = D.attention.flatMap((a) => a.patterns.map((_, head) => [a, head])),
    byChance = (rows) => rows.sort((x, y) => x[1] - y[1]).slice(0, WHY_SHOWN);
  const tokens = seq("source").map((name, k) => [
    `${k + 1} ${name}`,
    without("tokens", k + 1),
    ["outTokens", k + 1],
  ]);
  WHY.result = {
    tokens: byChance(tokens.length > 1 ? tokens : []),
    heads: byChance(
      heads.map(([a, head]) => [
        headName(a, head),
        without("heads", `${a.name}:${head + 1}`),
        ["outHeads", `${a.name}:${head + 1}`],
      ]),
    ),
  };
  WHY.key = whyKey();
  render();
}
function why(step) {
  if (!live || S.doc || !transduce.model.network.isTransformer()) return null;
  const name = isolated(step.written);
  if (WHY.key !== whyKey()) {
    const ask = (e) => {
      e.target.disabled = true;
      setTimeout(findWhy, 20);
    };
    return el("p", {}, act("why", t("why", name), ask));
  }
  const list = (title, rows, key) =>
    rows.length
      ? [
          el("h3", {}, t(title)),
          el(
            "div",
            { class: "whys" },
            bars(rows, null, ([, , chosen]) => live.toggle(...chosen), key),
          ),
        ]
      : null;
  return [
    el("h2", {}, t("why", name)),
    note(t("whyNote", name, fixed(step.probability))),
    list("whyTokens", WHY.result.tokens, "token"),
    list("whyHeads", WHY.result.heads, "head"),
  ];
}
