// The glossary: pairs of a term and its translation, for this visit only.
import { $, el } from "./dom.js";
import { t } from "./words.js";

let changed = () => {};

export const terms = () =>
  [...document.querySelectorAll(".entry")]
    .map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()))
    .filter(([term, translation]) => term && translation);

function count() {
  const n = terms().length;
  $("terms").textContent = n ? t("inUse", n) : "";
}

function add() {
  const field = (name) =>
    el("input", {
      "data-t-label": name,
      "data-t-hint": name,
      "aria-label": t(name),
      placeholder: t(name),
      dir: "auto",
      maxlength: 200,
      oninput: () => {
        count();
        changed();
      },
    });
  const remove = () => {
    row.remove();
    count();
    changed();
    $("add").focus();
  };
  const row = el(
    "div",
    { class: "entry" },
    field("term"),
    el("span", { "aria-hidden": "true" }, "→"),
    field("itsTranslation"),
    el(
      "button",
      { type: "button", class: "quiet", "data-t-name": "remove", "aria-label": t("remove"), title: t("remove"), onclick: remove },
      "×",
    ),
  );
  $("entries").append(row);
  row.querySelector("input").focus();
}

function open() {
  $("glossary").open = true;
  const first = document.querySelector(".entry input");
  first ? first.focus() : add();
}

export const ACTIONS = { KeyG: ["keyGlossary", open] };
export const refresh = count;

export function start(whenChanged) {
  changed = whenChanged;
  $("add").addEventListener("click", add);
}
