// Screen 3: the tree of hypotheses.
function divisor(length) {
  const { length_penalty, alpha } = D.search;
  if (length_penalty === "none") return 1;
  if (length_penalty === "mean") return Math.max(length, 1);
  return length_penalty === "gnmt" ? ((5 + length) / 6) ** alpha : null; // null: not known here
}
function beam() {
  const keys = ["parent", "token", "log_prob", "fate", "score"],
    all = D.search.nodes.map((node) => Object.fromEntries(node.map((part, k) => [keys[k], part]))),
    depth = [0],
    mark = { kept: "●", won: "★", ended: "■", cut: "✕" };
  all.forEach((n, i) => {
    if (n.parent >= 0) depth[i] = depth[n.parent] + 1;
  });
  const path = new Set();
  let at = all.findIndex((n) => n.fate === "won");
  const winner = at;
  while (at >= 0) {
    path.add(at);
    at = all[at].parent;
  }
  const shown = all.map((n, i) => i).filter((i) => S.cut || all[i].fate !== "cut"),
    by = {};
  shown.forEach((i) => (by[depth[i]] ??= []).push(i));
  const order = { won: 0, ended: 1, kept: 1, cut: 2 },
    where = {};
  let x = 14,
    most = 0;
  for (const d of Object.keys(by)
    .map(Number)
    .sort((a, b) => a - b)) {
    by[d].sort((a, b) => order[all[a].fate] - order[all[b].fate] || all[b].log_prob - all[a].log_prob);
    by[d].forEach((i, k) => {
      where[i] = [x, 26 + 25 * k];
    });
    most = Math.max(most, by[d].length);
    x += 70 + 0.92 * Math.max(...by[d].map((i) => breadth(all[i].token))) + 34;
  }
  const svg = el("svg", { width: x, height: 25 * most + 30, role: "img", "aria-label": t("beam") });
  for (const i of shown) {
    const n = all[i];
    if (n.parent < 0) continue;
    const [x1, y1] = where[n.parent],
      [x2, y2] = where[i],
      from = x1 + 60 + 0.92 * breadth(all[n.parent].token),
      mid = (from + x2) / 2;
    svg.append(
      el("path", {
        d: `M${from},${y1 - 4} C${mid},${y1 - 4} ${mid},${y2 - 4} ${x2 - 3},${y2 - 4}`,
        fill: "none",
        stroke: path.has(i) ? css("--won") : n.fate === "cut" ? css("--line") : css("--accent"),
        "stroke-width": path.has(i) ? 2.6 : 1.2,
        opacity: path.has(i) || n.fate === "cut" ? 1 : 0.55,
      }),
    );
  }
  for (const i of shown) {
    const n = all[i],
      [px, py] = where[i],
      sign = mark[path.has(i) && n.fate !== "won" ? "kept" : n.fate],
      score = n.score === null ? "" : `, ${t("score")} ${fixed(n.score, 3)}`;
    const parts = [
      `${sign} ${visible(n.token)} `,
      el("tspan", { class: "small" }, fixed(n.log_prob, 2)),
      el("title", {}, `log p ${fixed(n.log_prob, 3)}${score}`),
    ];
    svg.append(el("text", { x: px, y: py, class: path.has(i) ? "won" : n.fate }, parts));
  }
  const spelled = (i) => {
    const parts = [];
    for (let k = i; k > 0; k = all[k].parent) parts.unshift(all[k].token);
    return parts;
  };
  const ended = all
    .map((n, i) => i)
    .filter((i) => all[i].score !== null)
    .sort((a, b) => all[b].score - all[a].score);
  const best = [...ended].sort((a, b) => all[b].log_prob - all[a].log_prob)[0];
  const s = D.search,
    rules = { none: "penaltyNone", mean: "penaltyMean", gnmt: "penaltyGnmt" },
    typeset = ["mean", "gnmt"].includes(s.length_penalty) ? formula(s.length_penalty) : null,
    rule = [rules[s.length_penalty] ? t(rules[s.length_penalty], s.alpha) : s.length_penalty, " ", typeset];
  const show = (i) =>
    spelled(i)
      .filter((k) => k !== "</s>")
      .join(" ")
      .slice(0, 120);
  const line = (i) => {
    const by = divisor(depth[i]),
      penalty = by === null ? "–" : fixed(by, 2),
      numbers = [fixed(all[i].log_prob), depth[i], penalty, fixed(all[i].score)],
      name = el("td", { class: i === winner ? "best" : "said" }, token((i === winner ? "★ " : "") + show(i)));
    return el("tr", {}, name, ...numbers.map((x) => numberCell(x)));
  };
  const penalised = s.length_penalty !== "none" && s.method === "beam" && !s.coverage_penalty,
    decided = penalised && winner >= 0 && ended.length > 1,
    heads = ["hypothesis", "logp", "length", "penalty", "score"].map((k) => t(k));
  return [
    note(s.method === "beam" ? t("beamNote", s.width) : t("sampleNote")),
    el(
      "div",
      { class: "legend" },
      ["kept", "won", "ended", "cut"].map((k) => el("span", { class: k }, t(k === "cut" ? "cutWord" : k))),
      checkbox("cut", t("showCut"), S.cut, (e) => set({ cut: e.target.checked })),
    ),
    el("div", { class: "scroll", tabindex: 0, "aria-label": t("beam") }, svg),
    s.method === "beam"
      ? el("p", {}, rule, s.coverage_penalty ? t("coverage", s.coverage_penalty) : null)
      : null,
    ended.length
      ? el("div", { "data-point": "table" }, table(heads, ended.slice(0, 12).map(line)))
      : note(t("unfinished")),
    decided ? el("p", {}, best !== winner ? t("decided", isolated(show(best))) : t("same")) : null,
  ];
}
