// Screen 1: one step of a decoder after the other.
function steps() {
  S.step = clamp(S.step, 0, D.steps.length - 1);
  const body = el("div", {}, stepBody());
  // The slider stays while it is drawn: only what is below it is made anew.
  const slide = (e) => {
    S.step = Number(e.target.value);
    fill(body, stepBody());
  };
  return [note(t("stepNote")), stepControls(slide), body];
}

function stepControls(slide) {
  const go = (by) => () => set({ step: S.step + by });
  return el(
    "div",
    { class: "row" },
    act("back", "◀", go(-1), { "aria-label": t("back") }),
    act("play", timer ? "❚❚" : "▶ " + t("play"), play, { "aria-label": t(timer ? "pause" : "play") }),
    act("on", "▶", go(1), { "aria-label": t("on") }),
    range("slide", t("stepSlider"), 0, D.steps.length - 1, 1, S.step, slide),
  );
}

const range = (key, label, min, max, step, value, oninput) =>
  el("input", { type: "range", "data-k": key, "aria-label": label, min, max, step, value, oninput });

function stepBody() {
  const step = D.steps[S.step],
    facts = [isolated(step.read), isolated(step.written), fixed(step.probability)];
  return [
    stepTokens(),
    el("p", {}, t("stepLine", S.step + 1, D.steps.length, ...facts)),
    el(
      "div",
      { class: "two" },
      el(
        "div",
        { style: { flex: "1 1 24rem" } },
        el("div", { "data-point": "candidates" }, stepGuesses(step)),
        live ? why(step) : null,
        note(cacheSize()),
      ),
      el("div", { style: { flex: "1 1 22rem" }, "data-point": "attention" }, stepContext(), stepAttention()),
    ),
    creditPanel(stepCredit(), step.written, step.guesses),
    live ? stateRows() : null,
  ];
}

// The sequences, with the place of this step; the source is shaded by credit where the page computes, else by the
// mean of the last layer.
function stepTokens() {
  const last = crosses().at(-1),
    credit = stepCredit(),
    shaded = !credit && last && !(D.picture && last.columns === D.picture.sequence),
    most = credit && greatestOf([...credit.source, ...credit.read]),
    at = D.first_step + S.step,
    written = D.steps.map((s) => s.written),
    read = [...seq("read").slice(0, D.first_step + 1), ...written.slice(0, -1)];
  const mean = shaded ? meanOf(last) : null;
  const isForced = (j) => live && S.doc === 0 && j < listed("forced").length;
  const chips = (tokens, now, from = 0, shares = null) =>
    tokens.map((s, j) =>
      el(
        "span",
        {
          class:
            "chip" +
            (j === now ? " now" : j > now ? " later" : "") +
            (isForced(j - from) && j >= from ? " forced" : ""),
          style: shares?.[j] ? tinted(shares[j], most) : undefined,
        },
        token(s),
        shares && j <= now ? underneath(shares[j]) : null,
      ),
    );
  const source = seq("source").map((s, j) =>
    credit
      ? sourceChip(s, j, tinted(credit.source[j], most), underneath(credit.source[j]))
      : sourceChip(s, j, shade(shaded ? mean(S.step, j) : 0)),
  );
  const blank = ([[name]]) => name === "<pad>",
    spikes = D.ctc.map((guesses) =>
      el(
        "span",
        { class: "chip" + (blank(guesses) ? " later" : "") },
        blank(guesses) ? "·" : token(guesses[0][0]),
      ),
    );
  return [
    source.length ? tokenRow(t("source"), source) : null,
    spikes.length ? tokenRow("CTC", spikes) : null,
    tokenRow(t("read"), chips(read, at, D.first_step + 1, credit?.read)),
    tokenRow(t("written"), chips(written, S.step)),
    shaded ? note(t("attends")) : null,
    credit ? note(t("creditColours")) : null,
    live && source.length && transduce.model.network.isTransformer() ? note(t("hideSource")) : null,
  ];
}
// A source token; of a model in the page a button that hides it.
function sourceChip(s, j, style, below = null) {
  if (!live || !transduce.model.network.isTransformer())
    return el("span", { class: "chip", style }, token(s), below);
  const out = live.isOut("outTokens", j + 1),
    last = !out && listed("outTokens").length === seq("source").length - 1;
  const attributes = {
    class: "chip" + (out ? " gone" : ""),
    style,
    disabled: last,
    "data-k": "source" + j,
    "aria-pressed": String(out),
  };
  return el("button", { ...attributes, onclick: () => live.toggle("outTokens", j + 1) }, token(s), below);
}

function stepGuesses(step) {
  const head = [el("h2", {}, t("likeliest")), live ? note(t("rivalNote")) : null],
    choose = live && S.doc === 0 ? ([, , id]) => live.force(S.step, id) : null;
  if (step.guesses.length <= 12) return [head, bars(step.guesses, step.written, choose)];
  const body = el("div", {}, bars(warmed(step.guesses).slice(0, 14), step.written, choose)),
    label = el("span", {}, t("temperature", S.temperature.toFixed(2)));
  const slide = (e) => {
    S.temperature = Number(e.target.value);
    label.textContent = t("temperature", S.temperature.toFixed(2));
    fill(body, [bars(warmed(step.guesses).slice(0, 14), step.written, choose)]);
  };
  const slider = range("temperature", t("temperature", ""), 0.1, 2.5, 0.05, S.temperature, slide);
  return [head, el("label", { class: "row" }, label, slider), note(t("tempNote", step.guesses.length)), body];
}

// Probabilities at another temperature, over the tokens that the page keeps.
function warmed(guesses) {
  if (S.temperature === 1) return guesses;
  const logs = guesses.map(([, p]) => Math.log(Math.max(p, 1e-30)) / S.temperature),
    powers = logs.map((x) => Math.exp(x - logs[0])),
    sum = powers.reduce((a, b) => a + b, 0);
  return guesses.map(([name, , id], k) => [name, powers[k] / sum, id]);
}

function cacheSize() {
  const stack = D.stacks.decoder;
  if (["convolution", "memory-network", "bytenet"].includes(stack.kind)) return "";
  if (stack.kind !== "transformer") return t("cacheRnn", stack.n_layers, stack.d_model);
  const width = stack.n_heads * stack.d_head,
    read = D.first_step + S.step + 1,
    memory = crosses().length ? crosses()[0].shape[2] : 0,
    numbers = (n) => (2 * stack.n_layers * n * width).toLocaleString();
  const own = t("cache", read, stack.n_layers, width, numbers(read));
  return own + (memory ? t("cacheMemory", memory, numbers(memory)) : t("cacheEnd"));
}

// The one vector of a decoder without attention.
function stepContext() {
  if (!D.vectors.context) return null;
  const v = halves(D.vectors.context),
    all = Array.from({ length: v.n }, (_, k) => v.at(k, 0));
  return [note(t("fixed", all.length)), strip(all, clamp(Math.floor(480 / all.length), 2, 12))];
}

// Attention of this step: over the source, over the image, or over what was read.
function stepAttention() {
  const cross = crosses(),
    shown = cross.length ? cross : D.attention.filter((a) => a.rows === "read"),
    heads = shown.flatMap((a) => Array.from({ length: a.shape[0] }, (_, h) => [a, h])),
    row = cross.length ? S.step : D.first_step + S.step;
  if (!heads.length) return null;
  const title = t(cross.length ? "cross" : "decoderSelf"),
    columns = seq(shown[0].columns);
  if (D.stacks.decoder.context) {
    const [a] = heads[0],
      choose = (r) => set({ step: r });
    const map = heat((r, c) => weightsOf(a)(0, r, c), seq("written"), columns, {
      chosen: S.step,
      choose,
      label: title,
      key: "alpha",
    });
    return [el("h2", {}, title), note(t("alphaNote", D.stacks.decoder.context)), map];
  }
  if (D.picture && cross.length) {
    const figures = heads.map(([a, h]) => {
      const weights = columns.map((_, j) => weightsOf(a)(h, row, j));
      return el(
        "figure",
        {},
        overlay(weights, D.picture.grid[0] > 1 ? 110 : 300, headName(a, h)),
        el("figcaption", {}, headName(a, h, true)),
      );
    });
    return [el("h2", {}, title), el("div", { class: "pics" }, figures)];
  }
  const map = heat(
    (r, c) => weightsOf(heads[r][0])(heads[r][1], row, c),
    heads.map(([a, h]) => headName(a, h, true)),
    cross.length ? columns : columns.slice(0, row + 1),
    { size: clamp(Math.floor(520 / columns.length), 8, 24), label: title, key: "cross" },
  );
  return [el("h2", {}, title), note(t(cross.length ? "crossNote" : "selfNote")), map];
}

function play() {
  const more = () => S.step < D.steps.length - 1;
  if (!timer && !more()) S.step = 0;
  const { tab } = S;
  tick(1100, () => S.tab === tab && more() && { step: S.step + 1 });
}
