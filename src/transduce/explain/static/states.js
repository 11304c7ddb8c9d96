// Hidden states of recurrent layers: a row for each token, a colour for each dimension; the newest are those of the step.
function stateRows() {
  const sides = ["encoder", "decoder"].filter((side) => D.recording.states[side]);
  if (!sides.length) return null;
  const rows = (side) => {
    const states = D.recording.states[side],
      tokens = seq(D.stacks[side].sequence),
      first = states.length - tokens.length,
      now = D.first_step + S.step,
      px = clamp(Math.floor(384 / states[0].length), 1, 12);
    const row = (name, k) => {
      const kind = side === "encoder" || k < now ? "" : k === now ? " now" : " later";
      return el("div", { class: "vectorline" }, el("span", { class: `chip${kind}` }, token(name)), strip([...states[first + k]], px));
    };
    return titled(t(side === "encoder" ? "statesSource" : "statesRead"), tokens.map(row));
  };
  return el("section", { "data-point": "states" }, note(t("statesNote")), el("div", { class: "two states" }, sides.map(rows)));
}
