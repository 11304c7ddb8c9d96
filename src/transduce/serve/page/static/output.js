// The words of the translation: doubtful ones are underlined, a chosen one shows its attention.
import { $, bars, el, failed, places, say } from "./dom.js";
import { terms } from "./glossary.js";
import * as net from "./net.js";
import { S, pair } from "./translate.js";
import { percent, t } from "./words.js";

const TOGETHER = 32; // sentences of one request for words
const DOUBT = 0.5;
const MUCH = 0.25;
const SHOWN = 5; // source words in the list
const LEAST = 0.03; // of attention

let chosen = null; // {sentence, word}
let asking = new AbortController();

// The words of a span [start, end) in characters of the server.
const cut = (text, [start, end]) => {
  const at = places(text);
  return text.slice(at[start], at[end]);
};

// Ask for the words of all sentences, and show the translation with them.
export async function showSentences(signal) {
  for (let first = 0; first < S.sentences.length; first += TOGETHER) {
    const some = S.sentences.slice(first, first + TOGETHER);
    await askForWords(some, signal);
    render();
  }
}

async function askForWords(sentences, signal) {
  const pairs = sentences.map(({ source, output }) => [source, output]);
  const { words } = await net.post("page/words", { pairs, ...pair() }, signal);
  sentences.forEach((sentence, i) => {
    sentence.words = words[i];
  });
}

function render() {
  const focused = document.activeElement?.closest?.(".w") ? key(document.activeElement) : null;
  const parts = [];
  let at = 0;
  S.sentences.forEach((sentence, i) => {
    parts.push(S.text.slice(at, sentence.start), ...wordsOf(sentence, i));
    at = sentence.start + sentence.output.length;
  });
  $("target").replaceChildren(...parts, S.text.slice(at));
  $("state").textContent = S.note || (document.querySelector("#target .doubt") ? t("doubtful") : "");
  const words = all();
  const now = words.find((word) => key(word) === focused) ?? words.find(isChosen) ?? words[0];
  if (now) now.tabIndex = 0;
  if (focused !== null && now) now.focus();
}

const key = (e) => `${e.dataset.sentence}.${e.dataset.word}`;
const all = () => [...$("target").querySelectorAll(".w")];
const isChosen = (e) => chosen && key(e) === `${chosen.sentence}.${chosen.word}`;

function wordsOf(sentence, i) {
  const { output, words } = sentence;
  if (!words) return [output];
  const at = places(output);
  const parts = [];
  let last = 0;
  words.target.forEach(([start, end], j) => {
    const p = words.probabilities[j];
    const doubt = p < DOUBT ? ` doubt${p < MUCH ? " much" : ""}` : "";
    const on = chosen && chosen.sentence === i && chosen.word === j;
    parts.push(
      output.slice(at[last], at[start]),
      el(
        "span",
        {
          class: `w${doubt}${on ? " on" : ""}`,
          role: "button",
          tabindex: -1,
          "aria-pressed": String(Boolean(on)),
          "data-sentence": i,
          "data-word": j,
          title: `${percent(p)} %`,
        },
        output.slice(at[start], at[end]),
      ),
    );
    last = end;
  });
  parts.push(output.slice(at[last]));
  return parts;
}

// Close what is shown of a word.
export function forget() {
  asking.abort();
  chosen = null;
  $("word").hidden = true;
  $("shade").replaceChildren();
}

// [source word, weight], the most attended first.
function attended({ source, words }, j) {
  const row = words.attention ? words.attention[j] : [];
  return words.source.map((span, k) => ({ span, text: cut(source, span), weight: row[k] ?? 0 }));
}

function shade(sentence, looked) {
  const whole = $("source").value;
  if (sentence.from < 0) return;
  const at = places(sentence.source);
  const parts = [whole.slice(0, sentence.from)];
  let last = 0;
  for (const { span, weight } of looked) {
    parts.push(
      sentence.source.slice(last, at[span[0]]),
      weight < LEAST
        ? sentence.source.slice(at[span[0]], at[span[1]])
        : el("mark", { style: { "--a": (0.75 * weight).toFixed(3) } }, sentence.source.slice(at[span[0]], at[span[1]])),
    );
    last = at[span[1]];
  }
  parts.push(whole.slice(sentence.from + last), "\n");
  $("shade").replaceChildren(...parts);
}

// Show what a word looked at, and ask for alternatives from it on.
export function choose(i, j) {
  const sentence = S.sentences[i];
  if (!sentence?.words) return;
  asking.abort();
  asking = new AbortController();
  chosen = { sentence: i, word: j };
  render();
  const word = cut(sentence.output, sentence.words.target[j]);
  const p = sentence.words.probabilities[j];
  const looked = attended(sentence, j);
  shade(sentence, looked);
  const best = looked
    .filter(({ weight }) => weight >= LEAST)
    .sort((a, b) => b.weight - a.weight)
    .slice(0, SHOWN);
  const others = el("ul", { class: "others" }, el("li", { class: "note" }, t("searching")));
  $("word").replaceChildren(
    el(
      "div",
      {},
      el("bdi", { class: "name", lang: pair().target }, word),
      el("p", { class: "note" }, t("probability", percent(p))),
      el("h3", {}, t("lookedAt")),
      sentence.words.attention
        ? bars(best.map(({ text, weight }) => [text, weight]))
        : el("p", { class: "note" }, t("noAttention")),
    ),
    el("div", {}, el("h3", {}, t("alternatives")), others),
  );
  $("word").hidden = false;
  const words = best.map(({ text, weight }) => `${text} ${percent(weight)} %`).join(", ");
  say(t("chosenWord", word, percent(p), words || "—"));
  alternatives(sentence, i, j, others, asking.signal).catch(failed);
}

async function alternatives(sentence, i, j, list, signal) {
  const prefix = sentence.output.slice(0, places(sentence.output)[sentence.words.target[j][0]]);
  const body = { q: sentence.source, output: sentence.output, word: j, glossary: terms(), ...pair() };
  let texts = [];
  try {
    ({ alternatives: texts } = await net.post("page/alternatives", body, signal));
  } finally {
    if (!signal.aborted) list.replaceChildren();
  }
  const option = (text) => {
    const same = text.startsWith(prefix) ? prefix.length : 0;
    const take = () => replace(sentence, text, i, j);
    return el(
      "li",
      {},
      el(
        "button",
        { type: "button", dir: "auto", lang: pair().target, onclick: take },
        el("span", { class: "same" }, text.slice(0, same)),
        text.slice(same),
      ),
    );
  };
  list.replaceChildren(
    ...(texts.length ? texts.map(option) : [el("li", { class: "note" }, t("noOthers"))]),
  );
}

// Put another translation in the place of a sentence.
async function replace(sentence, output, i, j) {
  const change = output.length - sentence.output.length;
  S.text = S.text.slice(0, sentence.start) + output + S.text.slice(sentence.start + sentence.output.length);
  sentence.output = output;
  sentence.words = null;
  for (const later of S.sentences.slice(i + 1)) later.start += change;
  render();
  try {
    await askForWords([sentence], asking.signal);
  } catch (error) {
    failed(error);
    return;
  }
  if (!sentence.words) return;
  const word = Math.min(j, sentence.words.target.length - 1);
  choose(i, word);
  all().find(isChosen)?.focus();
}

// The sentence at hand: of the chosen word, else the first.
export const sentenceAtHand = () => S.sentences[chosen ? chosen.sentence : 0];

export function start() {
  const target = $("target");
  const pick = (e) => choose(Number(e.dataset.sentence), Number(e.dataset.word));
  target.addEventListener("click", (e) => {
    const word = e.target.closest(".w");
    if (word && !String(getSelection())) {
      word.focus();
      pick(word);
    }
  });
  target.addEventListener("keydown", (e) => {
    const word = e.target.closest(".w");
    if (!word) return;
    const words = all();
    const forward = getComputedStyle(target).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (step) {
      const next = words[words.indexOf(word) + (e.key === forward ? 1 : -1)];
      if (next) {
        word.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    } else if (e.key === "Enter" || e.key === " ") pick(word);
    else return;
    e.preventDefault();
  });
  document.addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || $("word").hidden || document.querySelector("dialog[open]")) return;
    const back = all().find(isChosen);
    forget();
    render();
    back?.isConnected ? back.focus() : (all()[0] ?? $("source")).focus();
  });
}
