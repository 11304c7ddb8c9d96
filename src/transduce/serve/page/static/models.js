// Views of models of other tasks: their inputs, and an answer as its fields say.
import { $, bars, el, failed, fault, places, say } from "./dom.js";
import { explain } from "./explain.js";
import { listen } from "./microphone.js";
import * as net from "./net.js";
import { has, number, t } from "./words.js";

const WAIT = 300; // milliseconds after the last key, for models that answer at once
const MOST = 10; // bars
const TRANSLATION = "";

let models = [];
let chosen = TRANSLATION;
let timer = 0;
let running = new AbortController();

const inputs = () => [...document.querySelectorAll("#inputs textarea")].map((box) => box.value);
const labelOf = (name) => (has(name) ? t(name) : name);

function stop() {
  clearTimeout(timer);
  running.abort();
  running = new AbortController();
}

async function predict(model, texts) {
  stop();
  fault("");
  const signal = running.signal;
  $("result").setAttribute("aria-busy", "true");
  try {
    const { predictions } = await net.post("api/predict", { model: model.name, inputs: texts }, signal);
    const wrong = predictions.find((prediction) => prediction.error);
    if (wrong) throw new net.Fault(wrong.error);
    return predictions;
  } finally {
    if (!signal.aborted) $("result").setAttribute("aria-busy", "false");
  }
}

// An answer by its fields: the first of these that it has.
const FIELDS = {
  probabilities: ({ probabilities }) => {
    const ranked = Object.entries(probabilities).sort((a, b) => b[1] - a[1]);
    return bars(ranked.slice(0, MOST));
  },
  answer: ({ answer, start, end, probability }, texts) => {
    const text = texts.at(-1);
    const at = places(text);
    const [from, to] = [at[start] ?? 0, at[end] ?? 0];
    return [
      bars([[answer || "—", probability]]),
      el("p", { class: "result", dir: "auto" }, text.slice(0, from), el("mark", {}, text.slice(from, to)), text.slice(to)),
    ];
  },
  candidates: ({ filled, candidates }) => [
    el("p", { class: "result", dir: "auto" }, filled),
    candidates.map((tokens) => el("div", { class: "card" }, bars(tokens.map((c) => [c.token, c.probability])))),
  ],
  items: ({ items }) => bars(items.slice(0, MOST).map(({ item, probability }) => [item, probability])),
  continuation: ({ continuation }, [prompt]) =>
    el("p", { class: "result", dir: "auto" }, el("span", { class: "given" }, prompt), " ", continuation),
};
const textOf = (answer) => Object.values(answer).find((field) => typeof field === "string") ?? "";

function shown(answer, texts) {
  const name = Object.keys(FIELDS).find((field) => answer[field] !== undefined && answer[field] !== null);
  return name ? FIELDS[name](answer, texts) : el("p", { class: "result", dir: "auto" }, textOf(answer));
}

function put(...parts) {
  $("result").replaceChildren(...parts.flat(9));
  say(`${t("result")}: ${$("result").innerText.slice(0, 300)}`);
}

// One input, one answer.
function single(model) {
  const run = async () => {
    const texts = inputs();
    if (!texts.every((text) => text.trim())) return $("result").replaceChildren();
    const [answer] = await predict(model, [texts]);
    put(shown(answer, texts));
  };
  return { fields: model.inputs.length ? model.inputs : ["text"], run, live: !model.decodes };
}

// Vectors: one text a line, and how alike they are.
function alike(model) {
  const cosine = (a, b) => {
    const dot = (u, v) => u.reduce((sum, component, i) => sum + component * v[i], 0);
    return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b)) || 0;
  };
  const run = async () => {
    const lines = inputs()[0].split("\n").filter((line) => line.trim());
    if (!lines.length) return $("result").replaceChildren();
    const vectors = (await predict(model, lines)).map((prediction) => prediction.embedding);
    const row = (line, i) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, el("bdi", {}, line)),
        vectors.map((other) => {
          const share = cosine(vectors[i], other);
          return el("td", { class: "cell", style: { "--a": Math.max(0, share) * 0.6 } }, share.toFixed(2));
        }),
      );
    put(
      el("p", { class: "note" }, t("numbers", number(vectors[0].length))),
      el("div", { class: "scroll" }, el("table", {}, lines.map(row))),
    );
  };
  return { fields: model.inputs, run, live: true, note: "eachLine" };
}

// Turns, of which the history is sent.
function dialogue(model) {
  let turns = [];
  const draw = () => {
    $("result").replaceChildren(
      ...turns.map((text, i) => el("p", { class: `turn${i % 2 ? "" : " sent"}`, dir: "auto" }, text)),
    );
  };
  const run = async () => {
    const box = document.querySelector("#inputs textarea");
    const message = box.value.split("\n").join(" ").trim();
    if (!message) return;
    const before = turns;
    turns = [...turns, message];
    draw();
    box.value = "";
    try {
      const [answer] = await predict(model, [turns.join("\n")]);
      const reply = textOf(answer).split("\n").join(" ");
      turns = [...turns, reply];
      say(reply);
    } catch (error) {
      turns = before;
      box.value ||= message;
      throw error;
    } finally {
      draw();
    }
  };
  const again = () => {
    stop();
    turns = [];
    draw();
  };
  const history = () => [turns.slice(0, turns.length - (turns.length % 2 ? 0 : 1)).join("\n")];
  return { fields: ["message"], run, live: false, word: "send", above: true, again, history, enter: true };
}

// Sound to play, in place of the last one.
let address = "";
function player(sound) {
  URL.revokeObjectURL(address);
  address = URL.createObjectURL(sound);
  return el("audio", { controls: true, "aria-label": t("recording"), src: address });
}

// A recording, of a file or the microphone, and its text.
function recording(model) {
  let end = null;
  const input = el("input", { type: "file", accept: "audio/*,video/*", id: "recording" });
  const transcribe = async (file) => {
    stop();
    fault("");
    $("result").replaceChildren(t("listening", file.name));
    try {
      const answer = await net.postFile("v1/audio/transcriptions", { file, model: model.name }, running.signal);
      put(el("p", { class: "result", dir: "auto" }, answer.text), player(file));
    } catch (error) {
      $("result").replaceChildren();
      throw error;
    }
  };
  const record = async () => {
    if (end) return end();
    stop();
    fault("");
    const [final, certain] = [el("span"), el("span")];
    const draft = el("span", { class: "given" });
    const text = el("p", { class: "result", dir: "auto" }, final, certain, draft);
    const show = (answer) => {
      fault("");
      if (answer.final) {
        final.textContent += `${answer.final}\n`;
        say(answer.final);
      }
      certain.textContent = answer.certain;
      draft.textContent = answer.draft;
    };
    const begun = (over) => {
      end = over;
      button.textContent = t("recordingEnds");
      $("result").replaceChildren(text);
    };
    try {
      const file = await listen({ model: model.name, name: t("recording"), signal: running.signal, begun, show, failed });
      $("result").replaceChildren(text, player(file));
    } catch (error) {
      const ofMicrophone = error instanceof DOMException && error.name !== "AbortError";
      throw ofMicrophone ? new net.Fault(t("noMicrophone", error.message)) : error;
    } finally {
      end = null;
      button.textContent = t("record");
    }
  };
  const run = async () => input.files[0] && transcribe(input.files[0]);
  input.addEventListener("change", () => run().catch(failed));
  const button = el("button", { type: "button", onclick: () => record().catch(failed) }, t("record"));
  const control = [
    el("label", {}, el("h3", {}, t("recording")), input),
    navigator.mediaDevices ? el("div", { class: "bar" }, button) : null, // of secure pages alone
  ];
  return { fields: [], control, run, live: true, unexplained: true };
}

// A text, and its speech.
function speaking(model) {
  const run = async () => {
    const [text, voice = ""] = inputs();
    if (!text.trim()) return $("result").replaceChildren();
    stop();
    fault("");
    const body = { model: model.name, input: text, voice, response_format: "wav" };
    put(player(await net.postForBlob("v1/audio/speech", body, running.signal)));
  };
  return { fields: model.inputs.length ? model.inputs : ["text"], run, live: false };
}

const VIEWS = { embedding: alike, dialogue, "speech-synthesis": speaking };

function draw(model) {
  const view = (model.inputs[0] === "audio" ? recording : (VIEWS[model.task] ?? single))(model);
  const run = () => view.run().catch(failed);
  const later = () => {
    if (!view.live) return;
    stop();
    timer = setTimeout(run, WAIT);
  };
  const keys = (e) => {
    if (e.key !== "Enter" || e.isComposing || !(e.ctrlKey || e.metaKey || (view.enter && !e.shiftKey))) return;
    e.preventDefault();
    run();
  };
  const box = (name) =>
    el(
      "label",
      {},
      el("h3", {}, labelOf(name)),
      el("textarea", { class: "text", dir: "auto", rows: 2, spellcheck: "false", oninput: later, onkeydown: keys }),
    );
  const explained = () => {
    const q = (view.history ?? inputs)();
    if (q.every((text) => text.trim())) explain({ q, model: model.name, decodes: model.decodes });
  };
  const button = (word, action, attrs) => el("button", { type: "button", onclick: action, ...attrs }, t(word));
  const parts = [
    el(
      "div",
      { class: "fields", id: "inputs" },
      view.control,
      view.fields.map(box),
      view.note ? el("p", { class: "note" }, t(view.note)) : null,
      el(
        "div",
        { class: "bar" },
        view.live ? null : button(view.word ?? "run", run, { "aria-keyshortcuts": "Control+Enter" }),
        view.unexplained ? null : button("explain", explained, { class: "quiet" }),
        view.again ? button("newDialogue", view.again, { class: "quiet" }) : null,
      ),
    ),
    el("div", { id: "result", class: "card answer", role: "group", "aria-label": t("result") }),
  ];
  $("model").replaceChildren(...(view.above ? parts.reverse() : parts));
  $("model").classList.toggle("talk", Boolean(view.above));
  $("model").querySelector("textarea, input").focus();
}

function choose(name) {
  stop();
  fault("");
  chosen = name;
  $("translation").hidden = name !== TRANSLATION;
  $("model").hidden = name === TRANSLATION;
  $("model").replaceChildren();
  const model = models.find((served) => served.name === name);
  if (model) draw(model);
}

// The words of the page's language; texts stay.
export function refresh() {
  const options = [...$("view").options];
  if (options[0]?.value === TRANSLATION) options[0].textContent = t("translate");
  const model = models.find((served) => served.name === chosen);
  if (!model) return;
  const texts = inputs();
  draw(model);
  document.querySelectorAll("#inputs textarea").forEach((box, i) => {
    box.value = texts[i] ?? "";
  });
}

export function start(all, translates) {
  models = all.filter((model) => !model.pairs.length);
  const names = [...(translates ? [TRANSLATION] : []), ...models.map((model) => model.name)];
  $("view").replaceChildren(
    ...names.map((name) => el("option", { value: name }, name === TRANSLATION ? t("translate") : name)),
  );
  $("view").hidden = names.length < 2;
  $("view").addEventListener("change", () => choose($("view").value));
  choose(names[0] ?? TRANSLATION);
}
