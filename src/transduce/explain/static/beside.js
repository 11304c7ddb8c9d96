// First screen of several runs: their answers, figures and attention beside each other.
function beside() {
  const runs = besides().map((i) => [DOCS[i], i]);
  return [
    runs.some(([d]) => d.steps.length) ? note(t("besideNote")) : null,
    besideFigures(runs),
    live && runs.every(([d]) => d.vectors.embedding) ? note(t("cosine", fixed(cosine(runs), 2))) : null,
    el(
      "div",
      { class: "runs" },
      runs.map(([d, i]) => besideRun(d, i)),
    ),
  ];
}

// Cosine of the vectors of the first two.
function cosine(runs) {
  const [a, b] = runs.map(([d]) => d.vectors.embedding.numbers);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

// A table of what the runs have: without steps or a search there are no log-probabilities or scores.
function besideFigures(runs) {
  const figure = (x, by = 1) => (x === null ? null : fixed(x / by));
  const figures = {
    logp: (d) => figure(d.log_prob),
    perToken: (d) => figure(d.log_prob, d.steps.length),
    score: (d) => figure(d.score),
    parameters: (d) => d.parameters.toLocaleString("en"),
    seconds: (d) => fixed(d.seconds),
  };
  const keys = Object.keys(figures).filter((key) => runs.some(([d]) => figures[key](d) !== null)),
    row = (key, cell) => tableRow(t(key), runs.map(([d]) => cell(d))),
    answer = (d) => el("td", { class: "said" }, el("bdi", {}, answerOf(d)));
  return table(
    [t("model"), ...runs.map(([d]) => el("bdi", {}, d.run))],
    [row("answer", answer), ...keys.map((key) => row(key, (d) => numberCell(figures[key](d) ?? "–")))],
  );
}

function besideRun(d, i) {
  const name = el("bdi", {}, d.run),
    first = openable(d).find((key) => key !== "beside");
  return el(
    "section",
    { "aria-label": d.run },
    el("h2", {}, name),
    note(
      Object.entries(d.stacks)
        .map(([side, s]) => stackLine(side, s))
        .join(" · "),
    ),
    d.steps.length ? besideSteps(d, i) : null,
    d.labels.length ? bars(d.labels.slice(0, 5), d.labels[0][0]) : null,
    besideAttention(d, i),
    first ? act("open" + i, t("allScreens", d.run), () => turnTo(i, { tab: first })) : null,
  );
}

function stackLine(side, s) {
  const kind = t(s.kind),
    looks = s.context ? ` (${s.context})` : s.n_heads > 1 ? ` (${t("nHeads", s.n_heads)})` : "";
  return `${t(side)}: ${kind} × ${s.n_layers}${looks}`;
}

// The tokens written, each with its probability; a click shows the rivals of that step in all runs.
function besideSteps(d, i) {
  const at = clamp(S.step, 0, d.steps.length - 1),
    step = d.steps[at];
  const chip = (one, k) => {
    const text = [token(one.written), el("span", { class: "small" }, ` ${fixed(one.probability, 2)}`)],
      pressed = { class: "chip", "aria-pressed": String(k === at) };
    return act(`say${i}.${k}`, text, () => set({ step: k }), pressed);
  };
  const chips = d.steps.map(chip);
  return [
    tokenRow("", chips),
    el("h3", {}, t("besideStep", at + 1, isolated(step.written))),
    bars(step.guesses.slice(0, 4), step.written),
  ];
}

// Attention over the source; a fixed context as the equal weights of its one vector.
function besideAttention(d, i) {
  const shown = crosses(d).at(-1) || d.attention.at(-1);
  if (shown) {
    const [rows, columns] = [seq(shown.rows, d), seq(shown.columns, d)],
      stepped = shown.rows === "written",
      heads = shown.shape[0];
    const title = t(kindOf(shown).kind),
      layer = kindOf(shown).layer < 0 ? "" : ` · ${t("layer")} ${kindOf(shown).layer + 1}`,
      mean = heads > 1 ? ` · ${t("meanHeads", heads)}` : "";
    const map = heat(meanOf(shown), rows, columns, {
      size: besideSize(columns),
      label: `${d.run}: ${title}`,
      key: "beside" + i,
      ...(stepped ? { chosen: clamp(S.step, 0, rows.length - 1), choose: (step) => set({ step }) } : {}),
    });
    return [el("h3", {}, title + layer + mean), map];
  }
  if (!d.vectors.context) return null;
  const source = seq("source", d),
    vector = halves(d.vectors.context),
    all = Array.from({ length: vector.n }, (_, k) => vector.at(k, 0));
  const map = heat(() => 1 / source.length, [t("everyStep")], source, {
    size: besideSize(source),
    label: `${d.run}: ${t("everyStep")}`,
    key: "beside" + i,
  });
  return [
    el("h3", {}, t("besideVector", all.length)),
    strip(all, clamp(Math.floor(320 / all.length), 2, 12)),
    note(t("besideFixed", source.length, fixed(1 / source.length, 2))),
    map,
  ];
}

const besideSize = (columns) => clamp(Math.floor(300 / Math.max(columns.length, 1)), 13, 26);
