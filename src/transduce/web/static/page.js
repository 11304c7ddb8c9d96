// The page: what is typed is translated, with doubt, alignment and candidates.
// For the console: `await transduce.translate("a text")` gives the object of `transduce translate --jsonl`.
const DOUBT = 0.5;
const MOST_CANDIDATES = 5;
const WAIT = 40;
const MOST_ATTENDED = 400;

const page = JSON.parse(document.getElementById("model").textContent);
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const $ = (selector) => document.querySelector(selector);
const t = (key, ...parts) =>
  page.words[document.documentElement.lang][key].replace(/\{(\d)\}/g, (_, number) => parts[number]);
const percent = (share) => (share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);

const translator = (async () => {
  const [relaxed, plain] = await Promise.all([page.relaxed, page.plain].map((text) => unpacked(bytesOf(text)))),
    modules = { relaxed, plain };
  if (!WebAssembly.validate(modules.plain)) throw new TypeError(t("unsupported"));
  return Translator.load(bytesOf(page.file), modules);
})();
const transduce = {
  translate: async (text, settings) => (await translator).answer(text, settings),
};

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, setting] of Object.entries(attributes))
    if (name.startsWith("on")) made[name] = setting;
    else made.setAttribute(name, setting);
  made.append(...children);
  return made;
}

// Ids cut where their text has whole characters: [text, indices of the ids].
function segmentsOf(ids, write) {
  const segments = [];
  let [before, from] = ["", 0];
  for (let to = 1; to <= ids.length; to++) {
    const text = write(ids.slice(0, to));
    const isWhole = text.startsWith(before) && text !== before && !text.endsWith(REPLACEMENT);
    if (!isWhole && to < ids.length) continue;
    const numbers = Array.from({ length: to - from }, (_, k) => from + k);
    segments.push([text.slice(before.length), numbers]);
    [before, from] = [text, to];
  }
  return segments;
}

// Source and translation of a piece: choosing a segment shades those of the other side.
function pairOf(model, piece, source) {
  const ids = piece.hypotheses[0].ids,
    attended = model.attended(piece.ids, ids),
    sides = [
      segmentsOf(piece.ids.slice(0, -1), (part) => model.source.decode(part, model.source.unknown(source))),
      segmentsOf(ids, (part) => model.written(part, source)),
    ];
  const weight = (from, to) =>
    to.reduce((sum, k) => sum + from.reduce((part, j) => part + attended[k].attention[j], 0), 0) / to.length;
  const buttons = [[], []];
  const choose = (side, number) => {
    const wasChosen = buttons[side][number].getAttribute("aria-pressed") === "true";
    buttons.flat().forEach((button) => button.setAttribute("aria-pressed", "false"));
    buttons[side][number].setAttribute("aria-pressed", String(!wasChosen));
    const chosen = sides[side][number][1];
    const shares = sides[1 - side].map(([, other]) => (side ? weight(other, chosen) : weight(chosen, other)));
    buttons[side].forEach((button) => (button.style.background = ""));
    buttons[1 - side].forEach((button, k) => {
      button.style.background = wasChosen ? "" : `rgba(var(--blue), ${Math.min(shares[k], 1) * 0.75})`;
    });
  };
  sides.forEach((segments, side) =>
    segments.forEach(([text, numbers], number) => {
      const probability = numbers.reduce((share, k) => share * attended[k]?.probability, 1),
        doubted = side && probability < DOUBT ? " doubted" : "",
        attributes = { type: "button", class: "token", "aria-pressed": "false", onclick: () => choose(side, number) },
        shown = element("span", { class: doubted.trim() }, text.trim() || "\u2423");
      const button = element("button", attributes, shown);
      if (side) button.append(element("small", {}, percent(probability)));
      buttons[side].push(button);
    }),
  );
  return element("div", { class: "pair" }, ...buttons.map((row) => element("div", {}, ...row)));
}

function tableOf(candidates) {
  const row = (tag, cells) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
  const rows = candidates.map(({ text, score, log_prob }) =>
    row("td", [text, score.toFixed(3), percent(Math.exp(log_prob))]),
  );
  const head = row("th", [t("candidate"), t("score"), t("share")]);
  return [element("thead", {}, head), element("tbody", {}, ...rows)];
}

function show(model, text) {
  const began = performance.now(),
    n_best = Math.min(MOST_CANDIDATES, model.facts.rules.beam),
    { text: written, candidates, lines } = model.translate(text, { n_best });
  $("#written").textContent = written;
  const pieces = lines.flatMap((line) => line.pieces.map((piece) => [piece, line.text])),
    tokens = pieces.reduce((sum, [piece]) => sum + piece.hypotheses[0].ids.length, 0);
  const isShown = pieces.length > 0 && tokens <= MOST_ATTENDED;
  $("#attended").hidden = !isShown;
  $("#lines").replaceChildren(...(isShown ? pieces.map(([piece, line]) => pairOf(model, piece, line)) : []));
  $("#others").hidden = candidates.length < 2;
  $("#others table").replaceChildren(...tableOf(candidates));
  $("#took").textContent = t("took", Math.round(performance.now() - began));
}

async function refresh() {
  const text = $("#typed").value;
  let fault = "";
  try {
    show(await translator, text);
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof TypeError || error instanceof WebAssembly.RuntimeError))
      throw error;
    $("#written").textContent = "";
    $("#attended").hidden = $("#others").hidden = true;
    fault = t("fault", error.message);
  }
  $("#fault").textContent = fault;
  $("#fault").hidden = !fault;
}

function label(language) {
  document.documentElement.lang = language;
  const [mb, count] = [page.bytes / 1e6, page.parameters.toLocaleString(language)];
  document.title = $("h1").textContent = page.run;
  $("#language").textContent = t("language");
  $("label").textContent = t("type");
  $("#attended h2").textContent = t("attended");
  $("#attended .note").textContent = t("attendedNote", 100 * DOUBT);
  $("#others h2").textContent = t("others");
  $("#weight").textContent = t("weight", page.run, count, page.precision, mb.toFixed(1));
}

label(navigator.language.startsWith("zh") ? "zh" : "en");
$("#took").textContent = t("loading");
$("#language").onclick = () => {
  label(document.documentElement.lang === "zh" ? "en" : "zh");
  refresh();
};
let waiting = 0;
$("#typed").oninput = () => {
  clearTimeout(waiting);
  waiting = setTimeout(refresh, WAIT);
};
refresh();
