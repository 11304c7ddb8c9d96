// The film of learning: heads of a few fixed inputs at points of training.  Part of pages with one.
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
// Numbers from 0 to 63, one character each.
const sixes = (text) => Array.from(text, (c) => DIGITS.indexOf(c));
const pointOf = (film) => clamp(S.at < 0 ? Infinity : S.at, 0, film.points.length - 1);

// A scene at the chosen point, with the parts of an explanation that the heads need.
function filmed(film) {
  const scene = film.scenes[S.film],
    at = pointOf(film);
  scene.shown ??= [];
  scene.shown[at] ??= {
    sequences: scene.sequences,
    by_hand: [],
    attentionLeftOut: scene.leftOut,
    attention: scene.attention.map((a) => ({
      ...a,
      decoded: sixes(a.frames[at]).map((x) => (x * 255) / 63),
      patterns: patternsOf(sixes(a.patterns[at]), film.patterns),
    })),
  };
  return scene.shown[at];
}
function patternsOf(numbers, names) {
  return Array.from({ length: numbers.length / 2 }, (_, h) => [
    names[numbers[2 * h]],
    numbers[2 * h + 1] / 63,
  ]);
}
function filmLine(film) {
  const at = pointOf(film),
    [step, share] = film.points[at];
  const percent = Number((100 * share).toPrecision(2));
  return t("filmLine", at + 1, film.points.length, step.toLocaleString(), percent);
}

// What is shown, and the controls of the film; `draw` makes the heads anew.
function filmBar(film, draw) {
  const names = film.scenes.map((scene, i) => [
      i,
      `${t("film")} ${i + 1}: ${visible(scene.text).slice(0, 40)}`,
    ]),
    pairs = [...(D.attention.length ? [[-1, t("filmText")]] : []), ...names],
    chooser = choice("film", pairs, S.film, (i) => set({ film: Number(i), row: -1, pattern: "" }));
  const rolls = el(
    "button",
    { "data-k": "roll", "aria-label": `${t(timer ? "pause" : "play")}: ${t("film")}`, onclick: roll },
    timer ? "❚❚" : "▶ " + t("film"),
  );
  const first = el("div", { class: "row" }, el("label", {}, t("filmOf"), " ", chooser), rolls);
  if (S.film < 0) return first;
  const line = el("span", { class: "number" }, filmLine(film));
  const slide = (e) => {
    S.at = Number(e.target.value);
    line.textContent = filmLine(film);
    e.target.setAttribute("aria-valuetext", line.textContent);
    draw();
  };
  const slider = range("at", t("filmSlider"), 0, film.points.length - 1, 1, pointOf(film), slide);
  slider.style.setProperty("width", "16rem");
  slider.setAttribute("aria-valuetext", line.textContent);
  return [first, el("div", { class: "row" }, slider, line), note(t("filmNote"))];
}

// Play from the first point, or from the chosen one if it is not the last.
function roll() {
  const film = filmOf(),
    end = film.points.length - 1;
  if (!timer)
    Object.assign(S, {
      film: Math.max(S.film, 0),
      at: S.film < 0 || pointOf(film) === end ? 0 : pointOf(film),
    });
  tick(900, () => {
    if (S.tab !== "heads" || S.film < 0 || pointOf(film) >= end) return null;
    S.at = pointOf(film) + 1;
    say(filmLine(film));
    return {};
  });
}
