// The page: tabs, language, and the screen chosen.
const VIEWS = { answer, steps, heads, beam, layers, hand, figure };
function openable() {
  const has = {
    answer:
      D.labels.length || D.hidden.length || D.span || D.vectors.embedding || (D.picture && !D.steps.length),
    steps: D.steps.length,
    heads: D.attention.length,
    beam: D.search && D.search.nodes.length > 1,
    layers: D.layers.length,
    hand: D.by_hand.length,
    figure: Object.keys(D.stacks).length,
  };
  return Object.keys(VIEWS).filter((k) => has[k]);
}
function render() {
  const kept = document.activeElement?.dataset?.k,
    tabs = openable();
  if (!tabs.includes(S.tab)) S.tab = tabs[0] || "";
  document.documentElement.lang = S.lang === "zh" ? "zh-CN" : "en";
  document.title = `${Object.values(D.inputs).map(visible).join(" · ").slice(0, 60)} — ${t("title")}`;
  document.getElementById("top").replaceChildren(
    el(
      "div",
      {},
      el(
        "h1",
        {},
        Object.values(D.inputs).map((s, i) => [i ? " · " : "", el("bdi", {}, visible(s))]),
        el("span", { class: "arrow" }, "→"),
        el("bdi", {}, D.vectors.embedding ? `[${halves(D.vectors.embedding).n}]` : visible(D.answer)),
      ),
      note(t("run", D.run, D.task)),
    ),
    el(
      "div",
      { class: "row" },
      DOCS.length > 1
        ? el(
            "label",
            {},
            t("which"),
            " ",
            el(
              "select",
              {
                "data-k": "doc",
                onchange: (e) => {
                  S.doc = Number(e.target.value);
                  D = DOCS[S.doc];
                  edits = {};
                  set({ step: 0, row: 0, hidden: -1, patch: -1, asks: -1, layer: -1, place: 0 });
                },
              },
              DOCS.map((d, i) =>
                el(
                  "option",
                  { value: i, ...(i === S.doc ? { selected: true } : {}) },
                  `${i + 1}  ${Object.values(d.inputs).map(visible).join(" · ").slice(0, 40)}`,
                ),
              ),
            ),
          )
        : null,
      el(
        "button",
        {
          "data-k": "lang",
          lang: S.lang === "zh" ? "en" : "zh-CN",
          onclick: () => set({ lang: S.lang === "zh" ? "en" : "zh" }),
        },
        t("lang"),
      ),
    ),
  );
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
          onclick: () => set({ tab: k }),
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
  if (kept) document.querySelector(`[data-k="${CSS.escape(kept)}"]`)?.focus({ preventScroll: true });
}
document.addEventListener("keydown", (e) => {
  if (S.tab !== "steps" || e.target.closest("input, select, canvas, [role=tab]")) return;
  if (e.key === "ArrowRight") set({ step: S.step + 1 });
  if (e.key === "ArrowLeft") set({ step: S.step - 1 });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
render();
