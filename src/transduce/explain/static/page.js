// The page: tabs, language, and the screen chosen.
const VIEWS = { beside, figure, answer, steps, heads, beam, layers, hand, ...(typeof lab === "function" ? { lab } : {}) };
function openable(d = D) {
  const has = {
    beside: besides().length > 1,
    answer:
      d.labels.length || d.hidden.length || d.span || d.vectors.embedding || (d.picture && !d.steps.length),
    steps: d.steps.length,
    heads: d.attention.length || filmOf(d),
    beam: d.search && d.search.nodes.length > 1,
    layers: d.layers.length,
    hand: d.by_hand.length,
    figure: Object.keys(d.stacks).length,
    lab: live && d.creditOf && d.steps.length && S.doc === 0,
  };
  return Object.keys(VIEWS).filter((k) => has[k]);
}
const answerOf = (d) => (d.vectors.embedding ? `[${halves(d.vectors.embedding).n}]` : visible(d.answer));
// A list to choose an explanation from; `all` are numbers of explanations.
function chooser(key, all, chosen, nameOf) {
  if (all.length < 2) return null;
  const pairs = all.map((i, n) => [i, `${n + 1}  ${nameOf(DOCS[i])}`]),
    choose = (i) => turnTo(Number(i), key === "which" ? { step: 0 } : {});
  return el("label", {}, t(key), " ", choice(key, pairs, chosen, choose));
}
function choosers() {
  const runs = besides(),
    place = runs.indexOf(S.doc);
  const others = texts().map((i) => i + place),
    short = (d) => titleOf(d).slice(0, 40);
  return [chooser("which", others, S.doc, short), chooser("model", runs, S.doc, (d) => d.run)];
}
function render() {
  const focused = document.activeElement?.dataset?.k,
    tabs = openable();
  if (!tabs.includes(S.tab)) S.tab = tabs[0] || "";
  const other = S.lang === "zh" ? "en" : "zh";
  document.documentElement.lang = S.lang === "zh" ? "zh-CN" : "en";
  document.title = `${titleOf(D).slice(0, 60)} — ${t("title")}`;
  document.getElementById("top").replaceChildren(
    el(
      "div",
      {},
      el(
        "h1",
        { tabindex: S.tab !== "beside" && answerOf(D).length > 80 ? 0 : undefined },
        live ? null : Object.values(D.inputs).map((s, i) => [i ? " · " : "", el("bdi", {}, visible(s))]),
        S.tab === "beside"
          ? live
            ? t("beside")
            : null
          : [el("span", { class: "arrow" }, "→"), el("bdi", {}, answerOf(D))],
      ),
      S.embed
        ? null
        : note(
            S.tab === "beside" && !live
              ? t("runs", besides().length, t(D.task))
              : t("run", live ? transduce.facts.run : D.run, t(D.task)),
          ),
    ),
    el(
      "div",
      { class: "row" },
      choosers(),
      S.embed
        ? null
        : act("lang", t("lang"), () => set({ lang: other }), { lang: other === "zh" ? "zh-CN" : "en" }),
    ),
  );
  document.body.classList.toggle("embed", S.embed);
  const bar = document.getElementById("tabs");
  bar.replaceChildren(
    ...tabs.map((k, i) =>
      el(
        "button",
        {
          role: "tab",
          id: "tab-" + k,
          "data-k": "tab" + k,
          "aria-selected": String(k === S.tab),
          "aria-controls": "view",
          tabindex: k === S.tab ? 0 : -1,
          onclick: () => set({ tab: k, point: "" }),
          onkeydown: (e) => {
            const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
            if (!step) return;
            const next = tabs[(i + step + tabs.length) % tabs.length];
            e.preventDefault();
            set({ tab: next });
            document.getElementById("tab-" + next).focus();
          },
        },
        `${i + 1} ${t(k)}`,
      ),
    ),
  );
  const view = document.getElementById("view");
  view.setAttribute("aria-labelledby", "tab-" + S.tab);
  const made = S.tab ? VIEWS[S.tab]() : [note(t("nothing"))];
  fill(view, made);
  if (live) renderBar();
  view.querySelectorAll(".rove").forEach(rove);
  putAddress();
  const again = focused && document.querySelector(`[data-k="${CSS.escape(focused)}"]`);
  if (again && again !== document.activeElement) again.focus({ preventScroll: true });
}
// One tab stop for many buttons or fields; arrow keys move among them.
function rove(group) {
  const stops = [...group.querySelectorAll("button, input")],
    chosen = Math.max(
      stops.findIndex((one) => one.getAttribute("aria-pressed") === "true"),
      0,
    );
  stops.forEach((one, k) => (one.tabIndex = k === chosen ? 0 : -1));
  group.addEventListener("keydown", (e) => {
    const at = stops.indexOf(e.target),
      step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key],
      edits = e.target.tagName === "INPUT" && !e.altKey;
    if (!step || at < 0 || (edits && e.key !== "ArrowRight" && e.key !== "ArrowLeft")) return;
    e.preventDefault();
    e.stopPropagation();
    const next = stops[clamp(at + step, 0, stops.length - 1)];
    e.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    next.select?.();
  });
}
document.addEventListener("keydown", (e) => {
  if (!D.steps.length || !["steps", "figure"].includes(S.tab) || e.target.closest("input, select, canvas, [role=tab]")) return;
  if (e.key === "ArrowRight") set({ step: S.step + 1 });
  if (e.key === "ArrowLeft") set({ step: S.step - 1 });
});
addEventListener("popstate", () => {
  Object.assign(S, USUAL);
  readAddress();
  PLACE.restoring = true;
  live?.compute();
  D = DOCS[S.doc] ?? DOCS[0];
  render();
  PLACE.restoring = false;
  if (S.tab === "figure" && FLOW.opener) document.querySelector(`[data-k="${CSS.escape(FLOW.opener)}"]`)?.focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
function begin() {
  render();
  // A frame in a text shows its point: the part of the screen that is named in its address.
  if (S.point) scrollTo(0, document.querySelector(`[data-point="${CSS.escape(S.point)}"]`)?.offsetTop ?? 0);
}
if (live)
  live.start().then(begin).catch((error) => {
    fill(document.getElementById("view"), [el("p", { class: "fault", role: "alert" }, t("noStart", error.message))]);
    throw error;
  });
else begin();
