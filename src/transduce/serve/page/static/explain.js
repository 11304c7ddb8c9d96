// The explanation of an answer, in a frame, with other decoding options on demand.
import { $, el } from "./dom.js";
import { theKey } from "./net.js";
import { current } from "./words.js";

function show() {
  $("asked").action = `page/explanation#lang=${current()}`;
  $("asked").submit();
}

function putFields() {
  for (const e of document.querySelectorAll("[data-of]")) {
    e.hidden = !e.dataset.of.split(" ").includes($("method").value);
    e.querySelector("input").disabled = e.hidden;
  }
}

// Explain texts: {q: [texts], source, target} or {q: [texts], model, decodes}.
export function explain({ q, decodes = true, ...rest }) {
  const fields = [...q.map((text) => ["q", text]), ...Object.entries(rest)];
  if (theKey()) fields.push(["api_key", theKey()]);
  $("hidden").replaceChildren(...fields.map(([name, value]) => hidden(name, value)));
  $("asked").reset();
  for (const e of $("asked").querySelectorAll("label:not(.any)")) {
    e.hidden = !decodes;
    e.querySelector("input, select").disabled = !decodes;
  }
  if (decodes) putFields();
  $("explanation").showModal();
  show();
}

// A text area, since an input would lose line breaks.
const hidden = (name, value) => el("textarea", { name, hidden: true }, value);

export function start() {
  $("method").addEventListener("change", putFields);
  $("asked").addEventListener("submit", (e) => {
    e.preventDefault();
    show();
  });
  $("close").addEventListener("click", () => $("explanation").close());
  $("explanation").addEventListener("close", () => {
    $("explained").src = "about:blank";
  });
}
