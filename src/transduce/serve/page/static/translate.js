// The two panes: languages, translation as one types, what is on the screen.
import { $, el, failed, fault, say, size } from "./dom.js";
import { terms } from "./glossary.js";
import * as net from "./net.js";
import { forget, showSentences } from "./output.js";
import { languageName, number, t } from "./words.js";

const WAIT = 300; // milliseconds after the last key
const LONG = 400; // characters from which the type is smaller

export const S = {
  languages: [],
  pairs: [], // that one run translates
  limit: Infinity,
  detected: null,
  measured: false, // whether the detection says more than that one language is served
  text: "", // the translation
  note: "", // about it: what is left, unknown, or without the glossary
  sentences: [], // {source, output} in order; empty where it went through another language
};
let timer = 0;
let running = new AbortController();

const languageOf = (code) => S.languages.find((language) => language.code === code);
const nameOf = (code) => languageName(code, languageOf(code)?.name ?? code);
export const sourceCode = () => ($("from").value === "auto" ? S.detected : $("from").value);
export const pair = () => ({ source: sourceCode(), target: $("to").value });
const isDirect = () => {
  const { source, target } = pair();
  return S.pairs.some((direct) => direct.source === source && direct.target === target);
};
const targetsOf = (code) => languageOf(code)?.targets.filter((target) => target !== code) ?? [];
const sources = () => S.languages.filter(({ code }) => targetsOf(code).length);

// Fill the lists of languages; what was chosen stays where it can.
export function putLanguages(from = $("from").value, to = $("to").value) {
  const able = sources();
  const auto = S.detected && S.measured ? t("autoFound", nameOf(S.detected)) : t("auto");
  const option = (code) => el("option", { value: code }, nameOf(code));
  $("from").replaceChildren(
    ...(able.length > 1 ? [el("option", { value: "auto" }, auto)] : []),
    ...able.map(({ code }) => option(code)),
  );
  if ([...$("from").options].some((choice) => choice.value === from)) $("from").value = from;
  const shown = $("from").value;
  const targets = S.languages
    .map((language) => language.code)
    .filter((code) => (shown === "auto" ? able : [{ code: shown }]).some((from) => targetsOf(from.code).includes(code)));
  $("to").replaceChildren(...targets.map(option));
  if (targets.includes(to)) $("to").value = to;
  $("source").lang = sourceCode() || "";
  $("target").lang = $("to").value;
  $("swap").disabled = !targetsOf($("to").value).includes(sourceCode());
}

function putCount() {
  const n = size($("source").value);
  $("count").textContent = n > 0.8 * S.limit ? t("count", number(n), number(S.limit)) : n ? number(n) : "";
  $("translation").classList.toggle("long", n > LONG);
  $("clear").hidden = !n;
  return n;
}

// Show no translation: there is none of this text.
function putNothing() {
  S.sentences = [];
  putText("");
  busy(false);
}

// Show a text in place of the translation.
function putText(text) {
  S.text = text;
  $("target").textContent = text;
  $("copy").hidden = $("explain").hidden = true;
}

export function give(text) {
  $("source").value = text;
  changed(0);
}

export function stop() {
  clearTimeout(timer);
  running.abort();
  running = new AbortController();
}

// Translate some time after a change; what runs is given up.
export function changed(wait = WAIT) {
  stop();
  forget();
  fault("");
  const n = putCount();
  if (!$("source").value.trim()) {
    S.detected = null;
    putLanguages();
    putNothing();
    return;
  }
  if (n > S.limit) {
    fault(t("tooLong", number(n), number(S.limit)));
    putNothing();
    return;
  }
  $("target").classList.add("stale");
  timer = setTimeout(() => translate(running.signal).catch(failed), wait);
}

function busy(on) {
  $("target").setAttribute("aria-busy", String(on));
  $("state").textContent = on ? t("translating") : "";
  if (!on) $("target").classList.remove("stale");
}

async function translate(signal) {
  const body = {
    q: $("source").value,
    source: $("from").value,
    target: $("to").value,
    glossary: terms(),
  };
  const sentences = [];
  let end = {};
  let text = "";
  busy(true);
  try {
    for await (const event of net.events("page/translate", body, signal)) {
      if (signal.aborted) return;
      if (event.detected) {
        S.detected = event.detected.language;
        S.measured = event.detected.confidence > 0;
        putLanguages();
      }
      if (event.withdrawn) {
        text = text.slice(0, -event.withdrawn.length) + event.sentence.output;
        putText(text);
      }
      if (event.sentence) {
        const end = text.length;
        sentences.push({ ...event.sentence, start: end - event.sentence.output.length });
      }
      if (event.text) {
        text += event.text;
        $("target").classList.remove("stale");
        putText(text);
      }
      end = event;
    }
    if (!text) putText("");
  } catch (error) {
    if (!signal.aborted) putNothing();
    throw error;
  }
  busy(false);
  finished(text, sentences, end, signal);
}

function finished(text, sentences, { untranslated, unknown }, signal) {
  S.sentences = sentences;
  $("copy").hidden = !text || !navigator.clipboard;
  $("explain").hidden = !sentences.length;
  S.note = terms().length && !isDirect() ? t("noPivot") : "";
  if (unknown) S.note = t("unknown", unknown.join(" "));
  if (untranslated) S.note = leftNote(untranslated);
  $("state").textContent = S.note;
  say(t("ready", text.slice(0, 500)));
  locate(sentences);
  if (sentences.length) showSentences(signal).catch(failed);
}

// A note about lines, blocks or cues that were not translated.
export const leftNote = (left) => t("left", number(left.length), left[0].reason);

// Find the sentences in the source text, in their order.
function locate(sentences) {
  const source = $("source").value;
  let at = 0;
  for (const sentence of sentences) {
    sentence.from = source.indexOf(sentence.source, at);
    if (sentence.from >= 0) at = sentence.from + sentence.source.length;
  }
}

function swap() {
  if ($("swap").disabled) return;
  const { source, target } = pair();
  const text = S.text || $("source").value;
  S.detected = null;
  putLanguages(target, source);
  give(text);
  $("source").focus();
}

async function copy() {
  try {
    await navigator.clipboard.writeText(S.text);
    $("state").textContent = t("copied");
    say(t("copied"));
  } catch (error) {
    failed(error);
  }
}

export const ACTIONS = {
  KeyS: ["keySwap", swap],
  KeyC: ["keyCopy", copy],
};

export function start(languages, settings, models) {
  S.languages = languages;
  S.limit = settings.charLimit;
  S.pairs = models.flatMap((model) => model.pairs);
  putLanguages(sources().length > 1 ? "auto" : "", settings.language.target.code);
  $("source").addEventListener("input", (e) => e.isComposing || changed());
  $("source").addEventListener("compositionend", () => changed());
  $("source").addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) changed(0);
  });
  for (const id of ["from", "to"])
    $(id).addEventListener("change", () => {
      S.detected = null;
      putLanguages();
      changed(0);
    });
  $("swap").addEventListener("click", swap);
  $("copy").addEventListener("click", copy);
  $("clear").addEventListener("click", () => {
    give("");
    $("source").focus();
  });
  if ($("source").value) changed(0);
}
