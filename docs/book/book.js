// Guesses that are typed and checked, words that explain themselves, and the sentence of the front page.

const CHINESE = document.documentElement.lang.startsWith("zh");
const say = (chinese, english) => (CHINESE ? chinese : english);

function element(tag, properties = {}, ...children) {
  const { data = {}, ...others } = properties,
    made = Object.assign(document.createElement(tag), others);
  Object.assign(made.dataset, data);
  made.append(...children);
  return made;
}

// A field before each answer that says what counts as right; the answer opens after a try.
function addGuess(answer) {
  const { answer: right, within, wrong } = answer.dataset,
    field = element("input", { autocomplete: "off", size: 18 }),
    verdict = element("span", { role: "status" }),
    form = element(
      "form",
      { className: "guess" },
      element("label", {}, say("你猜：", "Your guess: "), field),
      element("button", { textContent: say("对答案", "Check") }),
      verdict,
    );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!field.value.trim()) {
      verdict.textContent = say("先写一个再看。", "Write one first.");
      return field.focus();
    }
    const good = isRight(field.value, right, within ? Number(within) : undefined, wrong);
    verdict.textContent = good
      ? say("✓ 对了", "✓ Right")
      : say("✗ 不一样，看下面", "✗ Not this; see below");
    verdict.className = good ? "right" : "wrong";
    answer.open = true;
  });
  answer.before(form);
}

// The explanation of a word stands under it, inside the window; the browser opens and closes it.
function placeAtWord(explanation) {
  const word = document.querySelector(`[popovertarget="${explanation.id}"]`);
  explanation.addEventListener("toggle", (event) => {
    if (event.newState !== "open") return;
    const { left, bottom, top } = word.getBoundingClientRect(),
      { offsetWidth: width, offsetHeight: height } = explanation,
      below = bottom + 6 + height < innerHeight;
    explanation.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
    explanation.style.top = `${below ? bottom + 6 : Math.max(8, top - height - 6)}px`;
  });
}

// A translation with its weights: each word that was written shows what it looked at.
function showSentence(place) {
  const { sentences, page, size } = JSON.parse(place.querySelector("script").textContent),
    source = element("p", { className: "source", lang: "zh" }),
    written = element("p", { className: "written", lang: "en" }),
    note = element("p", { className: "note", role: "status" }),
    choices = element("p", { className: "choices" }),
    still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let sentence, timer;
  const show = (step) => {
    const { weights, guesses } = sentence.steps[step];
    [...source.children].forEach((sign, i) => sign.style.setProperty("--weight", weights[i]));
    [...written.children].forEach((word, i) => word.setAttribute("aria-pressed", i === step));
    const most = weights.indexOf(Math.max(...weights)),
      likely = guesses.map(([token, p]) => `${token} ${p.toFixed(2)}`).join(say("，", ", "));
    note.textContent = say(
      `第 ${step + 1} 步，看得最多的是“${sentence.source[most]}”（${weights[most].toFixed(2)}）。可以写：${likely}`,
      `Step ${step + 1} looks mostly at ${sentence.source[most]} (${weights[most].toFixed(2)}). It could write: ${likely}`,
    );
  };
  const stop = () => clearInterval(timer);
  const choose = (chosen) => {
    stop();
    sentence = chosen;
    [...choices.querySelectorAll("button")].forEach((button, i) =>
      button.setAttribute("aria-pressed", sentences[i] === chosen),
    );
    source.replaceChildren(...sentence.source.map((sign) => element("span", { textContent: sign })));
    written.replaceChildren(
      ...sentence.steps.map(({ token }, step) => {
        const word = element("button", { type: "button", textContent: token });
        for (const event of ["click", "focus", "pointerenter"])
          word.addEventListener(event, () => (stop(), show(step)));
        return word;
      }),
    );
    show(0);
    let step = 0;
    if (!still) timer = setInterval(() => (++step < sentence.steps.length ? show(step) : stop()), 1100);
  };
  for (const one of sentences) {
    const button = element("button", { type: "button", textContent: one.source.slice(0, -1).join("") });
    button.addEventListener("click", () => choose(one));
    choices.append(button);
  }
  const own = element("button", { type: "button", textContent: say(`写你自己的句子（${size}）`, `Type your own (${size})`) });
  own.addEventListener("click", () => {
    stop();
    place.replaceChildren(element("iframe", { className: "live tall", title: own.textContent, src: page }));
  });
  place.replaceChildren(source, written, note, choices, own);
  choose(sentences[0]);
}

// Browsers leave a focused part of a wide table where it is, as long as a corner of it is seen.
document.addEventListener("focusin", ({ target }) => {
  if (target.matches("article :focus-visible")) target.scrollIntoView({ block: "nearest", inline: "nearest" });
});
document.querySelectorAll("details[data-answer]").forEach(addGuess);
document.querySelectorAll(".explanation[popover]").forEach(placeAtWord);
document.querySelectorAll(".sentence").forEach(showSentence);
