// Screen 4: the output layer after each layer.
function layers() {
  const L = D.layers,
    n = L.length,
    over = seq(D.layers_of),
    best = (k) => L[k][0].slice(0, 5);
  if (!D.layers_of)
    return [
      note(t("lensNote")),
      L.map((_, k) => titled(t("after", k + 1), bars(best(k), best(n - 1)[0][0]))),
    ];
  const l = S.layer < 0 ? n - 1 : clamp(S.layer, 0, n - 1),
    p = (S.place = clamp(S.place, 0, over.length - 1)),
    final = D.layers_of === "written" ? over : L[n - 1].map((cell) => cell[0][0]);
  const cell = ([[name, probability]], k, j) => {
    const chosen = k === l && j === p;
    const attributes = {
      class: "cell",
      "data-k": `lens${k}.${j}`,
      "aria-pressed": String(chosen),
      style: { ...shade(probability), ...(chosen ? { outline: "2px solid var(--hot)" } : {}) },
      onclick: () => set({ layer: k, place: j }),
    };
    const shown = name === final[j] ? el("b", {}, token(name)) : token(name),
      number = el("span", { class: "number" }, fixed(probability, 2));
    return el("td", {}, el("button", attributes, shown, el("br"), number));
  };
  const rows = L.map((layer, k) => tableRow(t("after", k + 1), layer.map((one, j) => cell(one, k, j)))),
    last = tableRow(
      t(D.layers_of),
      over.map((s) => el("td", {}, token(s))),
    );
  return [
    note(t("lensNote")),
    table([t("layer"), ...over.map((_, j) => j + 1)], [...rows.reverse(), last]),
    titled(t("lensOne", l + 1, p + 1, isolated(over[p])), bars(L[l][p], final[p])),
  ];
}
