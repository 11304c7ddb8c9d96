// Screen 4: the output layer after each layer.
function layers() {
  const L = D.layers,
    n = L.length,
    over = seq(D.layers_of),
    out = [note(t("lensNote"))];
  if (!D.layers_of) {
    L.forEach((layer, l) =>
      out.push(el("h2", {}, t("after", l + 1)), bars(layer[0].slice(0, 5), L[n - 1][0][0][0])),
    );
    return out;
  }
  const l = S.layer < 0 ? n - 1 : clamp(S.layer, 0, n - 1),
    p = (S.place = clamp(S.place, 0, over.length - 1)),
    final = L[n - 1].map((cell) => cell[0][0]);
  out.push(
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", {}),
            over.map((s, j) => el("th", { scope: "col" }, j)),
          ),
        ),
        el(
          "tbody",
          {},
          L.map((layer, k) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, t("after", k + 1)),
              layer.map((cell, j) =>
                el(
                  "td",
                  {},
                  el(
                    "button",
                    {
                      class: "cell",
                      "data-k": `lens${k}.${j}`,
                      "aria-pressed": String(k === l && j === p),
                      style: {
                        ...shade(0.8 * cell[0][1]),
                        ...(k === l && j === p ? { outline: "2px solid var(--hot)" } : {}),
                      },
                      onclick: () => set({ layer: k, place: j }),
                    },
                    cell[0][0] === final[j] ? el("b", {}, token(cell[0][0])) : token(cell[0][0]),
                    el("br"),
                    el("span", { class: "number" }, fixed(cell[0][1], 2)),
                  ),
                ),
              ),
            ),
          ).reverse(),
          el(
            "tr",
            {},
            el("th", { scope: "row" }, t(D.layers_of)),
            over.map((s) => el("td", {}, token(s))),
          ),
        ),
      ),
    ),
  );
  out.push(el("h2", {}, t("lensOne", l + 1, p, isolated(over[p]))), bars(L[l][p], final[p]));
  return out;
}
