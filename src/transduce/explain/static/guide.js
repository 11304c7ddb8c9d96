// Guided cards for the first minutes: each points at a place, does the thing, and lets the reader go on.
// The card and whether it is open are remembered where the browser allows it.
const GUIDE = { card: 0, open: false, node: null };
const guideKey = () => `transduce guide ${location.pathname}`;

// Cards that have their place on this page: { key, place, go, names }; `place` finds the part of Figure 1, `go` does the thing.
function guideCards() {
  const tabs = openable(),
    side = D.stacks.decoder ? "decoder" : "encoder",
    lower = D.stacks.encoder ? "encoder" : side,
    rowOf = (key, of = side) => `[data-k="row${of}${key}"]`,
    press = (selector) => () => document.querySelector(selector)?.click();
  const cards = [
    { key: "Type", place: "#typing", go: () => BAR.fields[0].focus(), when: BAR.fields.length },
    { key: "Columns", place: rowOf("tokens", lower), go: nextColumn, when: D.stacks.encoder || D.steps.length > 1 },
    { key: "Embedding", place: rowOf("embedding", lower), go: press(rowOf("embedding", lower)), when: !IMAGES.facts },
    { key: "Heads", place: ".headnode", go: press(".headnode"), when: D.attention.length },
    { key: "Cross", place: rowOf("memory"), go: press(rowOf("memory")), when: tabs.includes("steps") && crosses().length },
    { key: "Play", place: "[data-k=play]", go: press("[data-k=play]"), when: D.steps.length > 1 },
    { key: "Walk", place: "[data-k=walk]", go: press("[data-k=walk]"), when: !D.steps.length },
    { key: "Output", place: rowOf("head"), go: press(rowOf("head")), when: tabs.includes("steps") || tabs.includes("answer") },
    { key: "Credit", place: ".tokencell:has(.share)", go: press(rowOf("tokens", lower)), when: tabs.includes("steps") && stepCredit() },
    { key: "Change", place: "#bar .changes", go: () => live.toggle("parts", breakable()), when: breakable(), names: [t(PARTS[breakable()] ?? "")] },
  ];
  return cards.filter((card) => !("when" in card) || card.when);
}

// A part of the network to take out: the positions, where it has some.
const breakable = () => partsThere().find((part) => part === "positions") ?? partsThere()[0];
function nextColumn() {
  if (!D.stacks.encoder) return set({ step: (S.step + 1) % D.steps.length });
  set({ column: (flowColumn("encoder") + 1) % flowTokens("encoder").length });
}
function startGuide() {
  try {
    Object.assign(GUIDE, JSON.parse(localStorage.getItem(guideKey()) ?? "null") ?? { open: !S.tab });
  } catch {
    GUIDE.open = false;
  }
  GUIDE.node = el("aside", { id: "guide" });
  document.getElementById("view").before(GUIDE.node);
}
function turnGuide(changes) {
  Object.assign(GUIDE, changes);
  try {
    localStorage.setItem(guideKey(), JSON.stringify({ card: GUIDE.card, open: GUIDE.open }));
  } catch {
    // A page without a place to remember in begins anew.
  }
  if (GUIDE.open && S.tab !== "figure") set({ tab: "figure", point: "" });
  else render();
  if (GUIDE.open) guidePlace()?.scrollIntoView({ block: "center" });
}
const guidePlace = () => document.querySelector(guideCards()[GUIDE.card]?.place);
// The button that opens the cards where they were left.
function guideButton() {
  if (S.embed || GUIDE.open || !openable().includes("figure")) return null;
  const cards = guideCards(),
    card = clamp(GUIDE.card, 0, cards.length - 1);
  return act("guide", t("guideOpen", card + 1, cards.length), () => turnGuide({ open: true }));
}
function renderGuide() {
  const cards = guideCards(),
    shown = GUIDE.open && !S.embed && cards.length > 0;
  GUIDE.node.hidden = !shown;
  document.querySelectorAll(".pointed").forEach((node) => node.classList.remove("pointed"));
  document.documentElement.classList.toggle("guided", shown);
  if (!shown) return;
  const n = (GUIDE.card = clamp(GUIDE.card, 0, cards.length - 1)),
    { key, go, names = [] } = cards[n],
    last = n === cards.length - 1,
    turn = (by) => () => turnGuide({ card: n + by });
  GUIDE.node.setAttribute("aria-label", t("guide"));
  fill(GUIDE.node, [
    el(
      "div",
      { "aria-live": "polite" },
      el("h2", {}, `${n + 1} / ${cards.length} · ${t("guide" + key)}`),
      el("p", {}, t(`guide${key}Text`, ...names)),
    ),
    el(
      "div",
      { class: "row" },
      act("guideGo", t(`guide${key}Go`, ...names), () => (S.tab === "figure" ? go() : turnGuide({}) ?? go()), { class: "on", disabled: false }),
      act("guideBack", "◀", turn(-1), { "aria-label": t("guidePrevious"), disabled: n === 0 }),
      last ? act("guideOn", t("guideEnd"), () => turnGuide({ open: false, card: 0 })) : act("guideOn", `${t("guideNext")} ▶`, turn(1)),
      act("guideLeave", t("guideLeave"), () => turnGuide({ open: false })),
    ),
  ]);
  if (S.tab === "figure") guidePlace()?.classList.add("pointed");
}
