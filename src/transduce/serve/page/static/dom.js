// Helpers for the page.  Text of users and models enters it through textContent or attributes alone.
import { t } from "./words.js";

export const $ = (id) => document.getElementById(id);

export function el(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "style") for (const pair of Object.entries(v)) e.style.setProperty(...pair);
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

export const say = (text) => {
  $("announced").textContent = text;
};

export const fault = (text) => {
  $("fault").textContent = text;
};

// Show an error, unless it is the end of a request that was given up.
export const failed = (error) => {
  if (error.name !== "AbortError") fault(error.message);
};

// [label, share] as bars.
export const bars = (rows) =>
  el(
    "div",
    { class: "bars" },
    rows.map(([label, share]) => [
      el("bdi", { class: "label", title: label }, label),
      el(
        "span",
        { class: "track", "aria-hidden": "true" },
        el("span", { class: "fill", style: { width: `${100 * Math.min(1, Math.max(0, share))}%` } }),
      ),
      el("span", { class: "number" }, `${Math.round(100 * share)} %`),
    ]),
  );

// Put the words of the page's language in all elements that name one.
export function putWords() {
  for (const e of document.querySelectorAll("[data-t]")) e.textContent = t(e.dataset.t);
  for (const e of document.querySelectorAll("[data-t-label]")) e.setAttribute("aria-label", t(e.dataset.tLabel));
  for (const e of document.querySelectorAll("[data-t-hint]")) e.placeholder = t(e.dataset.tHint);
  for (const e of document.querySelectorAll("[data-t-name]")) {
    e.title = t(e.dataset.tName);
    e.setAttribute("aria-label", t(e.dataset.tName));
  }
}

// Characters of a text as the server counts them, and their places in a string of this language.
export const size = (text) => {
  let n = 0;
  for (const _ of text) n++;
  return n;
};
export function places(text) {
  const starts = [];
  let at = 0;
  for (const c of text) {
    starts.push(at);
    at += c.length;
  }
  return [...starts, at];
}
