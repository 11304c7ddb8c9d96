// The page: what the server offers, its language and theme, the keys.
import { $, el, failed, putWords } from "./dom.js";
import * as explanation from "./explain.js";
import * as files from "./files.js";
import * as glossary from "./glossary.js";
import * as models from "./models.js";
import * as net from "./net.js";
import * as output from "./output.js";
import * as translation from "./translate.js";
import { current, t, turn } from "./words.js";

const THEMES = { auto: "◐", light: "☀", dark: "☾" };

// A choice that the browser keeps, where it may.
function remembered(name, choice) {
  try {
    if (choice === undefined) return localStorage.getItem(`transduce.${name}`);
    localStorage.setItem(`transduce.${name}`, choice);
  } catch {
    // no storage: the choice holds for this visit
  }
  return choice ?? null;
}

let theme = remembered("theme") in THEMES ? remembered("theme") : "auto";

function explainAnswer() {
  const sentence = output.sentenceAtHand();
  if (!$("explain").hidden && sentence)
    explanation.explain({ q: [sentence.source], ...translation.pair() });
}

const ACTIONS = {
  ...translation.ACTIONS,
  ...files.ACTIONS,
  ...glossary.ACTIONS,
  KeyE: ["keyExplain", explainAnswer],
};

function putAll() {
  document.documentElement.lang = current() === "zh" ? "zh-CN" : "en";
  document.documentElement.dataset.theme = theme;
  putWords();
  $("lang").textContent = t("other");
  $("lang").lang = current() === "zh" ? "en" : "zh-CN";
  $("theme").textContent = THEMES[theme];
  $("theme").title = t(`theme-${theme}`);
  $("theme").setAttribute("aria-label", t(`theme-${theme}`));
  const row = (keys, word) => [el("dt", {}, keys.map((key) => [el("kbd", {}, key), " "])), el("dd", {}, t(word))];
  $("shortcuts").replaceChildren(
    ...row(["Ctrl", "Enter"], "keyNow"),
    ...Object.entries(ACTIONS).flatMap(([code, [word]]) => row(["Alt", code.slice(3)], word)),
    ...row(["←", "→"], "keyWords"),
    ...row(["Enter"], "keyChoose"),
    ...row(["Esc"], "keyBack"),
  );
  translation.putLanguages();
  glossary.refresh();
  models.refresh();
}

function keys(e) {
  if (!e.altKey || e.ctrlKey || e.metaKey || $("translation").hidden || $("explanation").open) return;
  const action = ACTIONS[e.code];
  if (!action) return;
  e.preventDefault();
  action[1]();
}

function settle() {
  if (remembered("language")) turn(remembered("language"));
  $("lang").addEventListener("click", () => {
    turn(current() === "zh" ? "en" : "zh");
    remembered("language", current());
    putAll();
  });
  $("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    remembered("theme", theme);
    putAll();
  });
  $("explain").addEventListener("click", explainAnswer);
  $("keyed").addEventListener("submit", (e) => e.preventDefault());
  $("key").addEventListener("change", () => {
    net.setKey($("key").value);
    translation.changed(0);
  });
  document.addEventListener("keydown", keys);
}

async function start() {
  settle();
  putAll();
  const [languages, settings, { models: served }] = await Promise.all(
    ["languages", "frontend/settings", "api/models"].map(net.get),
  );
  $("keyed").hidden = !settings.keyRequired;
  output.start();
  explanation.start();
  glossary.start(() => $("source").value.trim() && translation.changed());
  translation.start(languages, settings, served);
  if (settings.filesTranslation) files.start(settings.supportedFilesFormat);
  models.start(served, languages.length > 0);
  putAll();
  const box = [...document.querySelectorAll("textarea")].find((each) => each.offsetParent);
  if (document.activeElement === document.body) box?.focus();
}

start().catch(failed);
