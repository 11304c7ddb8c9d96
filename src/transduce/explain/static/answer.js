// First screen of encoders: labels, hidden tokens, spans, features, patches, embeddings.
function answer() {
  const tokens = seq(["text", "image", "read"].find((name) => D.sequences[name])),
    masked = D.task === "masked-language-model";
  if (S.hidden < 0 && masked && D.hidden.length)
    S.hidden = Math.max(tokens.indexOf("<mask>"), D.hidden[0].position);
  const hidden = D.hidden.find((one) => one.position === S.hidden);
  return [
    D.hidden.length ? tokensToHide(tokens, masked) : null,
    hidden && masked ? guessesFor(tokens, hidden) : null,
    D.labels.length ? labelBars(tokens, hidden) : null,
    D.span ? spanBars(tokens) : null,
    D.features.length ? featureTable(tokens) : null,
    D.picture && D.attention.length ? patches(tokens) : null,
    D.vectors.embedding ? embedding(tokens) : null,
    D.task === "recommendation" ? note(t("creditNone")) : null,
    ...answerCredits(tokens),
  ];
}

const MOST_SHADED = 16;
// Buttons that hide a token; of a classifier they are shaded by what the label loses without it.
function tokensToHide(tokens, masked) {
  const known = new Map(D.hidden.map((one) => [one.position, one]));
  const loss = (one) => {
    const [label, p] = D.labels[0];
    return clamp(p - (one.guesses.find(([name]) => name === label)?.[1] ?? 0), 0, 1);
  };
  // A model in the page needs a pass for each token.
  const isBare = masked || (live && D.hidden.length > MOST_SHADED && !D.shaded);
  const button = (s, i) => {
    const chosen = S.hidden === i,
      shaded = { ...shade(isBare ? 0 : loss(known.get(i))), background: "rgba(var(--blue), var(--a))" };
    const attributes = {
      class: "chip" + (chosen && !masked ? " gone" : ""),
      "data-k": "hide" + i,
      "aria-pressed": String(chosen),
      style: chosen ? {} : shaded,
      onclick: () => set({ hidden: chosen ? -1 : i }),
    };
    return el("button", attributes, token(masked && chosen ? "<mask>" : s));
  };
  const row = tokens.map((s, i) =>
    known.has(i) ? button(s, i) : el("span", { class: "chip later" }, token(s)),
  );
  const shadeAll = () => {
    D.shaded = true;
    render();
  };
  const offer = isBare && !masked ? act("shade", t("shadeTokens"), shadeAll) : null;
  return [note(t(masked ? "maskNote" : "hideNote")), tokenRow("", row), offer];
}

const guessesFor = (tokens, hidden) =>
  titled(
    t("hiddenAt", isolated(tokens[hidden.position]), hidden.position),
    bars(hidden.guesses, tokens[hidden.position]),
  );

function labelBars(tokens, hidden) {
  const best = D.labels[0][0],
    title = t(D.task === "recommendation" ? "nextItems" : "labels"),
    whole = titled(D.hidden.length ? `${title}: ${t("whole")}` : title, bars(D.labels, best));
  if (!hidden) return whole;
  const without = titled(t("without", isolated(tokens[hidden.position])), bars(hidden.guesses, best));
  return el("div", { class: "two" }, whole, without);
}

function spanBars(tokens) {
  const [a, b] = D.span.answer || [-1, -2],
    name = (i) => (i < 0 ? "" : `${i} ${visible(tokens[i])}`);
  const row = tokens.map((s, i) => {
    const style = shade(Math.max(D.span.start[i], D.span.end[i]));
    return el("span", { class: "chip" + (i >= a && i <= b ? " now" : ""), style }, token(s));
  });
  const side = (values, chosen) => {
    const ranked = values.map((p, i) => [name(i), p]).sort((x, y) => y[1] - x[1]);
    return bars(ranked.slice(0, 8), name(chosen));
  };
  return [
    note(t("spanNote")),
    tokenRow("", row),
    el("p", {}, t("answerIs", D.answer ? isolated(D.answer) : t("noAnswer"))),
    el(
      "div",
      { class: "two" },
      titled(t("start"), side(D.span.start, a)),
      titled(t("end"), side(D.span.end, b)),
    ),
  ];
}

function featureTable(tokens) {
  const heads = ["ngram", "featureValue", "featureWeight", "contribution"];
  const row = (f) =>
    el(
      "tr",
      {},
      el("td", { class: "said" }, tokens.slice(f.start, f.end).map(chip)),
      [f.value, f.weight, f.value * f.weight].map((x) => numberCell(fixed(x, 2))),
    );
  return [
    el("h2", {}, t("text-cnn")),
    note(t("featureNote", isolated(D.labels[0][0]))),
    table(
      heads.map((key) => t(key)),
      D.features.map(row),
    ),
  ];
}

// Attention over the image: of the chosen patch, of the class token, or the mean of all patches.
function patches(tokens) {
  S.att = clamp(S.att, 0, D.attention.length - 1);
  const a = D.attention[S.att],
    n = a.shape[2],
    row = S.patch < 0 && D.picture.first ? 0 : S.patch;
  S.head = clamp(S.head, 0, a.shape[0] - 1);
  const weights = (one, h) => {
    const w = weightsOf(one);
    return Array.from({ length: n }, (_, j) => {
      if (row >= 0) return w(h, row, j);
      let sum = 0;
      for (let i = 0; i < n; i++) sum += w(h, i, j);
      return sum / n;
    });
  };
  const thumb = (one, k, h) => {
    const attributes = {
      class: "thumb",
      "data-k": `thumb${k}.${h}`,
      "aria-pressed": String(k === S.att && h === S.head),
      onclick: () => set({ att: k, head: h }),
    };
    const picture = overlay(weights(one, h), 80, headName(one, h));
    return el("button", attributes, picture, el("span", {}, headName(one, h, true)));
  };
  const choose = (patch) => set({ patch: patch === S.patch ? -1 : patch }),
    from = row < 0 ? t("meanRow") : row < D.picture.first ? t("classToken") : `${t("patch")}: ${tokens[row]}`,
    big = overlay(weights(a, S.head), 320, headName(a, S.head), choose),
    thumbs = D.attention.flatMap((one, k) =>
      Array.from({ length: one.shape[0] }, (_, h) => thumb(one, k, h)),
    );
  return [
    el("h2", {}, t("heads")),
    note(t("imageNote")),
    el(
      "div",
      { class: "two" },
      el("div", {}, big, note(from)),
      el("div", { class: "pics", style: { flex: "1 1 20rem" } }, thumbs),
    ),
  ];
}

function embedding(tokens) {
  const v = halves(D.vectors.embedding),
    all = Array.from({ length: v.n }, (_, k) => v.at(k, 0));
  return [tokenRow("", tokens.slice(0, 200).map(chip)), note(t("vectorNote", all.length)), strip(all, 5)];
}
