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
  return Array.from({ length: numbers.length / 2 }, (_, h) => [names[numbers[2 * h]], numbers[2 * h + 1] / 63]);
}
function filmLine(film) {
  const at = pointOf(film),
    [step, share] = film.points[at];
  const percent = Number((100 * share).toPrecision(2));
  return t("filmLine", at + 1, film.points.length, step.toLocaleString(), percent);
}

// What is shown, and the controls of the film; `draw` makes the heads anew.
function filmBar(film, draw) {
  const option = (i, text) => el("option", { value: i, ...(i === S.film ? { selected: true } : {}) }, text);
  const names = film.scenes.map((scene, i) => option(i, `${t("film")} ${i + 1}: ${visible(scene.text).slice(0, 40)}`));
  const choose = (e) => set({ film: Number(e.target.value), row: -1, pattern: "" });
  const chooser = el(
    "select",
    { "data-k": "film", onchange: choose },
    D.attention.length ? option(-1, t("filmText")) : null,
    names,
  );
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
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    render();
  };
  if (timer) return stop();
  const start = S.film < 0 || pointOf(film) === end ? 0 : pointOf(film);
  timer = setInterval(() => {
    if (S.tab !== "heads" || S.film < 0 || pointOf(film) >= end) return stop();
    set({ at: pointOf(film) + 1 });
    say(filmLine(film));
  }, 900);
  set({ film: Math.max(S.film, 0), at: start });
}
