// Credit in the page: which tokens, layers and heads decided it, in exact shares.
const signed = (x) => (Math.abs(x) < 0.005 ? "0.00" : (x > 0 ? "+" : "") + fixed(x, 2));
// A background by sign: blue counts for, red against.
const tinted = (x, most) => ({
  ...shade(clamp(Math.abs(x) / Math.max(most, 1e-9), 0, 1)),
  background: `rgba(var(${x < 0 ? "--red" : "--blue"}), var(--a))`,
});
const sumOfAll = (shares) => shares.reduce((a, b) => a + b, 0);
const greatestOf = (shares) => Math.max(...shares.map(Math.abs), 1e-9);

// The credit of the chosen step, beside a rival that may be chosen for it ("STEP:ID"); once for each state.
const CREDIT = { key: "", shares: null };
function stepCredit() {
  if (!D.creditOf) return D.credit[S.step] ?? null;
  const [step, rival] = S.against.split(":").map(Number),
    chosen = S.against && step === S.step && rival !== D.steps[S.step].id ? rival : undefined,
    key = `${live.computed} ${S.doc} ${S.step} ${chosen}`;
  if (CREDIT.key !== key) Object.assign(CREDIT, { key, shares: D.creditOf(S.step, chosen) });
  return CREDIT.shares;
}
// Share of a token beneath it.
const underneath = (share) => el("span", { class: "share" }, signed(share));

// guesses: of a step, whose rival can be chosen in a page that computes.
function creditPanel(credit, written, guesses = null) {
  if (!credit) return D.creditOf ? note(t("creditPatched")) : null;
  const names = [isolated(written), isolated(credit.rival)],
    side = D.stacks.decoder ? "decoder" : "encoder",
    source = side === "decoder" ? "creditSource" : "creditTexts";
  const parts = [
    [source, sumOfAll(credit.source)],
    ["creditSourcePositions", sumOfAll(credit.source_positions)],
    ["creditRead", sumOfAll(credit.read)],
    ["creditReadPositions", sumOfAll(credit.read_positions)],
    ["creditEarlier", credit.earlier],
    ["creditBiases", credit.biases],
  ].filter(([, share]) => share !== 0);
  const most = greatestOf(parts.map(([, share]) => share)),
    row = ([key, share]) => tableRow(t(key), numberCell(signed(share), { style: tinted(share, most) }));
  return el(
    "section",
    { "data-point": "credit" },
    el("h2", {}, t("creditTitle", ...names)),
    note(t("creditNote", ...names)),
    guesses && D.creditOf ? rivalChoice(credit, guesses) : null,
    el(
      "div",
      { class: "two" },
      table([t("creditPart"), t("creditShare")], [...parts.map(row), tableRow("Σ", numberCell(signed(credit.difference)))]),
      el(
        "details",
        { open: innerWidth > 640 || undefined },
        el("summary", { "data-k": "creditLayers" }, t("creditWrites")),
        creditLayers(credit, side),
        creditHeads(credit),
      ),
    ),
  );
}
function rivalChoice(credit, guesses) {
  const rivals = guesses.filter(([, , id]) => id !== D.steps[S.step].id),
    value = rivals.find(([name]) => name === credit.rival)?.[2],
    options = rivals.map(([name, p, id]) => [id, `${visible(name)}  ${fixed(p)}`]);
  return el("label", { class: "row" }, t("creditRival"), choice("against", options, value, (id) => set({ against: `${S.step}:${id}` })));
}
// Credit of the label, of each mask, or of start and end of an answer; tokens have their shares below.
function answerCredits(tokens) {
  const masks = [...tokens.keys()].filter((i) => tokens[i] === "<mask>"),
    ends = D.span?.answer ?? [],
    count = D.creditOf ? D.choices.length : D.credit.length;
  const chosen = (k) =>
    D.labels.length ? D.labels[0][0] : D.span ? `${ends[k]} ${tokens[ends[k]]}` : D.hidden.find(({ position }) => position === masks[k])?.guesses[0][0];
  return Array.from({ length: count }, (_, k) => {
    const credit = D.creditOf ? D.creditOf(k) : D.credit[k],
      most = credit && greatestOf(credit.source),
      label = D.span ? t(k ? "end" : "start") : count > 1 ? t("creditMask", k + 1) : "";
    const chips = tokens.map((s, i) => el("span", { class: "chip", style: credit && tinted(credit.source[i], most) }, token(s), credit && underneath(credit.source[i])));
    return [credit && (D.picture ? creditPicture(tokens, credit) : tokenRow(label, chips)), creditPanel(credit, chosen(k) ?? "")];
  });
}
// Shares of the patches over the image; of the class token beside it.
function creditPicture(tokens, { source }) {
  const named = tokens.slice(0, D.picture.first).map((s, i) => el("span", { class: "chip" }, token(s), underneath(source[i])));
  return el("div", { "data-point": "credit" }, el("h2", {}, t("creditPatches")), overlay(source, 260, t("creditPatches"), null, true), named, note(t("creditPatchesNote")));
}
// What each sublayer writes straight to the logits: rows are layers.
function creditLayers({ writes, difference }, side) {
  const kinds = ["self_attention", "recurrence", "cross_attention", "feed_forward"].filter((kind) => `${side}.layers.0.${kind}` in writes),
    words = { self_attention: side === "decoder" ? "maskedSelf" : "selfAttention", recurrence: "recurrence", cross_attention: "crossAttention", feed_forward: "feedForward" },
    most = greatestOf(Object.values(writes)),
    cell = (share) => numberCell(share === undefined ? "—" : signed(share), share === undefined ? {} : { style: tinted(share, most) }),
    spanning = (key, share) => tableRow(t(key), el("td", { class: "number", colspan: kinds.length, style: tinted(share, most) }, signed(share)));
  const layers = Array.from({ length: D.stacks[side].n_layers }, (_, l) =>
    tableRow(`${t("layer")} ${l + 1}`, ...kinds.map((kind) => cell(writes[`${side}.layers.${l}.${kind}`]))),
  );
  return table(
    [t("layer"), ...kinds.map((kind) => t(words[kind]))],
    [
      spanning("embedding", writes.embedding),
      spanning("positions", writes.positions),
      ...layers,
      spanning("creditBiases", writes.biases),
      tableRow("Σ", el("td", { class: "number", colspan: kinds.length }, signed(difference))),
    ],
  );
}
function creditHeads({ heads }) {
  const entries = Object.entries(heads).reverse();
  if (!entries.length) return null;
  const most = greatestOf(entries.flatMap(([, shares]) => shares)),
    count = entries[0][1].length - 1;
  const row = ([name, shares]) => {
    const { kind, layer } = kindOf({ name });
    return tableRow(
      `${t(kind)} ${layer + 1}`,
      shares.map((share) => numberCell(signed(share), { style: tinted(share, most) })),
    );
  };
  return [
    el("h3", {}, t("creditHeads")),
    table([t("layer"), ...Array.from({ length: count }, (_, head) => head + 1), t("creditBias")], entries.map(row)),
  ];
}
