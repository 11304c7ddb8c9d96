// The page: a table goes in, a model comes out; a worker computes.  The state is kept in this browser.

const page = JSON.parse(document.getElementById("page").textContent);
const $ = (selector) => document.querySelector(selector);
const address = new URLSearchParams(location.hash.slice(1));
let language = address.get("lang") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
if (!["en", "zh"].includes(language)) language = "en";
const t = (key, ...parts) => (page.words[language]?.[key] ?? key).replace(/\{(\d)\}/g, (_, number) => parts[number]);
const number = (count) => count.toLocaleString(language);
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

function element(tag, attributes = {}, ...children) {
  const isDrawn = ["svg", "path", "line", "text", "rect"].includes(tag),
    made = isDrawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, setting] of Object.entries(attributes))
    if (name.startsWith("on")) made[name] = setting;
    else made.setAttribute(name, setting);
  made.append(...children);
  return made;
}
const rowOf = (tag, cells) => element("tr", {}, ...cells.map((cell) => (cell instanceof Node ? cell : element(tag, { dir: "auto" }, String(cell)))));
const cellOf = (text, kind) => element("td", { class: kind, dir: "auto" }, text);
function fill(table, head, rows) {
  table.replaceChildren(element("thead", {}, rowOf("th", head)), element("tbody", {}, ...rows.map((row) => rowOf("td", row))));
}

// ---- A worker, which answers calls and tells events.

const unzipped = (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
};
const sources = unzipped(page.sources).then((texts) => (page.sources = texts));
class Worked {
  constructor(onevent) {
    this.waiting = new Map();
    this.worker = sources.then((texts) => {
      const parts = page.scripts.map((name) => texts[name]),
        { words: _, ...facts } = page,
        script = `const page = ${JSON.stringify(facts)};\n${parts.join("\n")}`,
        worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
      worker.onmessage = ({ data: { id, event, ...answer } }) => {
        if (event) return onevent(event, answer);
        const { done, failed } = this.waiting.get(id);
        this.waiting.delete(id);
        if (answer.refused) failed(Object.assign(new Error(answer.refused[0]), { parts: answer.refused.slice(1) }));
        else done(answer.result);
      };
      worker.onerror = ({ message }) => this.waiting.forEach(({ failed }) => failed(Object.assign(new Error("failed"), { parts: [message] })));
      return worker;
    });
  }
  async call(kind, request = {}) {
    const worker = await this.worker,
      id = (this.last = (this.last ?? 0) + 1);
    return new Promise((done, failed) => {
      this.waiting.set(id, { done, failed });
      worker.postMessage({ id, kind, ...request });
    });
  }
}
// Run work, and show what it refuses; the state stays as it is.
async function guarded(work) {
  $("#fault").hidden = true;
  try {
    return await work();
  } catch (error) {
    if (!error.parts) throw error;
    $("#fault").textContent = t(error.message, ...error.parts.map((part) => (typeof part === "number" ? number(part) : part)));
    $("#fault").hidden = false;
    return undefined;
  }
}

// ---- Drawings.

const COLOURS = ["#2f81f7", "#d1791c", "#2da44e", "#e5534b", "#8a63d2", "#768390", "#bf3989", "#1b7c83"];
// Curves of [step, value] in one frame.  most: of the values.
function drawCurves(svg, curves, most, label) {
  const wide = Math.max(300, svg.clientWidth || 600),
    [left, right, top, bottom] = [34, wide - 8, 8, 150],
    end = Math.max(1, ...curves.map((curve) => curve.at(-1)?.[0] ?? 1)),
    x = (step) => left + ((right - left) * step) / end,
    y = (value) => bottom - ((bottom - top) * Math.min(value, most)) / most;
  const ticks = [0, most / 2, most].flatMap((value) => [
    element("line", { class: "axis", x1: left, x2: right, y1: y(value), y2: y(value) }),
    element("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(most < 2 ? 1 : 0)),
  ]);
  const paths = curves.map((curve, k) =>
    element("path", { stroke: COLOURS[k % COLOURS.length], d: curve.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("") || "M0 0" }),
  );
  svg.setAttribute("viewBox", `0 0 ${wide} 176`);
  svg.setAttribute("aria-label", label);
  svg.replaceChildren(...ticks, ...paths, element("text", { x: right, y: 170, "text-anchor": "end" }, `${label}, ${number(end)}`));
}
const LEAST_DRAWN = 0.01; // weight of a cell, so that long lines are drawn fast
// Weights of one head: a row is a query, a column a key.
function mapFigure(title, queries, keys, numbers) {
  const [n, k] = [queries.length, keys.length],
    picture = element("svg", { viewBox: `-0.2 -0.2 ${k + 1.4} ${n + 1.3}`, role: "img", "aria-label": title });
  keys.forEach((key, j) => picture.append(element("text", { x: j + 1.5, y: 0.7 }, key)));
  picture.append(element("rect", { x: 1, y: 1, width: k, height: n, "fill-opacity": 0 }));
  queries.forEach((query, i) => {
    picture.append(element("text", { x: 0.5, y: i + 1.7 }, query));
    keys.forEach((key, j) => {
      const weight = numbers[i * k + j] ?? 0;
      if (weight < LEAST_DRAWN) return;
      const cell = element("rect", { x: j + 1, y: i + 1, width: 1, height: 1, "fill-opacity": weight.toFixed(3) });
      cell.append(element("title", {}, `${query} → ${key}: ${weight.toFixed(2)}`));
      picture.append(cell);
    });
  });
  return element("figure", {}, element("figcaption", {}, title), picture);
}

// ---- What is kept in this browser, until it is deleted.

const database = new Promise((done) => {
  let asked;
  try {
    asked = indexedDB.open("transduce-learner", 1);
  } catch {
    return done(undefined); // the browser keeps nothing
  }
  asked.onupgradeneeded = () => asked.result.createObjectStore("training");
  asked.onsuccess = () => done(asked.result);
  asked.onerror = () => done(undefined);
});
async function kept(mode, work) {
  const opened = await database;
  if (!opened) return undefined;
  return new Promise((done) => {
    const asked = work(opened.transaction("training", mode).objectStore("training"));
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => done(undefined);
  });
}

// ---- The table.

const state = { text: "", account: undefined, opened: undefined, running: false, shown: {}, report: undefined };
const HELD_TEXT = 200_000; // characters above which a text is not drawn
const SAVE_EVERY = 15_000;
let trainer = new Worked(onevent),
  savedAt = 0;

async function read(request) {
  const account = await guarded(() => trainer.call("read", request));
  $("#found").hidden = !account;
  if (!account) return;
  state.text = account.text ?? request.text;
  state.account = account;
  drawAccount();
  kept("readwrite", (store) => store.put({ text: state.text, pair: account.pair, name: $("#name").value, at: Date.now() }, "table"));
}
function leftOutOf({ leftOut, turned }) {
  const parts = leftOut.map(({ reason, count, rows }) => t(reason, number(count), [...rows, ...(count > rows.length ? ["…"] : [])].join(", ")));
  if (turned) parts.push(t("turned", number(turned)));
  return parts.join("; ");
}
function accountOf(account) {
  const [source, target] = account.pair.map((at) => account.columns[at]);
  return [t("columns", source, target), t(account.symbols ? "symbols" : (account.kind ?? "none"), number(account.count)), leftOutOf(account)].filter(Boolean).join(" · ");
}
function drawAccount() {
  const { account } = state;
  if (!account) return;
  $("#account").textContent = accountOf(account);
  ["source", "target"].forEach((side, k) => {
    $(`#${side}`).replaceChildren(...account.columns.map((name, at) => element("option", { value: at }, name)));
    $(`#${side}`).value = account.pair[k];
  });
  fill($("#examples"), account.pair.map((at) => account.columns[at]), account.examples.map((pair) => pair.map((cell) => (cell.length > 80 ? `${cell.slice(0, 80)}…` : cell))));
}
function choose(source, target) {
  if (source !== target) return read({ text: state.text, pair: [source, target] });
  return drawAccount();
}

// Begin or go on: a request for the worker, with numbers if there are any.
async function open(request) {
  if (state.running) await trainer.call("pause");
  const opened = await guarded(() => trainer.call("open", request));
  if (!opened) return false;
  opened.name = request.name;
  Object.assign(state, { opened, text: request.text, shown: opened, report: undefined });
  ["training", "keep"].forEach((id) => ($(`#${id}`).hidden = false));
  $("#report").hidden = $("#kept").hidden = true;
  draw();
  return true;
}
async function train(minutes = 0) {
  state.running = true;
  draw();
  const done = await guarded(() => trainer.call("train", { minutes }));
  state.running = false;
  draw();
  if (!done) return;
  await keepState();
  if (!done.isDone) return;
  state.report = await guarded(() => trainer.call("examine"));
  draw();
}
function onevent(event, facts) {
  Object.assign(state.shown, event === "progress" ? facts : { samples: facts });
  drawTraining();
  if (event === "samples") ask();
  if (event === "progress" && performance.now() - savedAt > SAVE_EVERY) keepState();
}
async function keepState() {
  savedAt = performance.now();
  const numbers = await guarded(() => trainer.call("state"));
  if (numbers) await kept("readwrite", (store) => store.put({ ...numbers, account: state.account, at: Date.now() }, "training"));
}
let asking = 0;
function ask() {
  clearTimeout(asking);
  asking = setTimeout(async () => {
    const text = $("#asked").value;
    if (!text.trim() || !state.opened) return $("#answer").replaceChildren();
    const answer = await guarded(() => trainer.call("answer", { text }));
    if (!answer || text !== $("#asked").value) return undefined;
    $("#answer").textContent = answer.text;
    fill($("#candidates"), [t("candidate"), t("probability")], answer.candidates.map(([other, share]) => [other, percent(share)]));
    return undefined;
  }, 60);
}

function drawTraining() {
  const { shown, opened, running } = state;
  if (!opened) return;
  $("#progress").value = shown.progress;
  const facts = [t("step", number(shown.step), shown.loss?.toFixed(2) ?? "–"), t("spent", (shown.spent / 60).toFixed(1)), shown.pace ? t("pace", number(Math.round(shown.pace))) : ""],
    size = t("size", number(opened.parameters), number(opened.learnt), number(opened.heldOut));
  $("#status").textContent = [...facts.filter(Boolean), size].join(" · ");
  $("#pause").textContent = running ? t("pause") : t("goOn");
  $("#pause").hidden = !running && shown.progress >= 1;
  $("#more").textContent = t("more", $("#minutes").value);
  drawCurves($("#curve"), [shown.curve], Math.max(1, Math.ceil(shown.curve[0]?.[1] ?? 1)), t("loss"));
  if (!shown.samples || shown.samples === state.drawn) return;
  const { rows, maps, queries, keys } = (state.drawn = shown.samples);
  fill($("#samples"), [t("source"), t("wanted"), t("written")], rows.map(([source, target, written]) => [source, target, cellOf(written || "—", written === target ? "right" : "wrong")]));
  $("#maps").replaceChildren(...maps.map(({ head, numbers }) => mapFigure(t("head", head + 1), queries, keys, numbers)));
}
// A unit of the output, visible where it is a blank or missing.
const unitShown = (unit) => (unit === " " ? "␣" : unit || "∅");
// Learnt and not learnt, in words.
function drawReport() {
  const { report } = state;
  $("#report").hidden = !report;
  if (!report) return;
  const share = ({ right, count }) => t("of", percent(count ? right / count : 0), number(count)),
    [low, high] = report.interval,
    list = (items) => items.join(t("comma"));
  const lines = [
    t("rightRows", share(report), percent(low), percent(high), percent(report.errors)),
    report.long.count ? t("lengths", report.middle, share(report.short), share(report.long)) : "",
    report.unseen.count ? t("unseen", share(report.unseen)) : "",
    report.learnt.length ? t("learntUnits", list(report.learnt.map(unitShown))) : t("nothingLearnt"),
    report.hard.length ? t("hardUnits", list(report.hard.map(([unit, [right, count]]) => `${unitShown(unit)} (${right}/${count})`))) : "",
    report.confused.length ? t("confused", list(report.confused.map(([wanted, written, count]) => `${unitShown(wanted)} → ${unitShown(written)} ×${count}`))) : t("noErrors"),
  ];
  const wrong = element("table");
  fill(wrong, [t("source"), t("wanted"), t("written")], report.wrong);
  $("#told").replaceChildren(...lines.filter(Boolean).map((line) => element("p", { dir: "auto" }, line)), element("div", { class: "scroll" }, ...(report.wrong.length ? [wrong] : [])));
}
function draw() {
  document.documentElement.lang = language;
  document.title = $("h1").textContent = t("title");
  document.querySelectorAll("[data-t]").forEach((each) => (each.textContent = t(each.dataset.t)));
  $("#language").textContent = t("language");
  ["table", "dials"].forEach((name) => ($(`#tab-${name}`).textContent = t(name)));
  drawAccount();
  drawTraining();
  drawReport();
  drawDials();
}
function showTab(name) {
  for (const other of ["table", "dials"]) {
    $(`#${other}`).hidden = other !== name;
    $(`#tab-${other}`).setAttribute("aria-selected", String(other === name));
    $(`#tab-${other}`).tabIndex = other === name ? 0 : -1;
  }
  address.set("tab", name);
  writeAddress();
  if (name === "dials") drawDials();
}
function writeAddress() {
  address.set("lang", language);
  history.replaceState(null, "", `#${address}`);
}
async function save(form) {
  const result = await guarded(() => trainer.call("save", { form, account: accountOf(state.account) }));
  if (!result) return;
  const name = `${state.opened.name || "model"}.${form}`.replace(/[\\/:*?"<>|]/g, "_"),
    link = element("a", { href: URL.createObjectURL(new Blob([result], { type: form === "html" ? "text/html" : "application/zip" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
// Numbers and their names, for a first try.
function exampleTable() {
  const ones = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(" "),
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ");
  const named = (n) => {
    if (n < 20) return ones[n];
    if (n < 100) return tens[Math.floor(n / 10) - 2] + (n % 10 ? ` ${ones[n % 10]}` : "");
    return `${ones[Math.floor(n / 100)]} hundred${n % 100 ? ` and ${named(n % 100)}` : ""}`;
  };
  const rows = Array.from({ length: 1000 }, (_, k) => (k * 7919) % 1000);
  return ["input\toutput", ...rows.map((n) => `${n}\t${named(n)}`)].join("\n");
}

function take(text, from = "") {
  state.text = text;
  $("#text").value = text.length > HELD_TEXT ? "" : text;
  $("#dropped").textContent = text.length > HELD_TEXT ? t("held", number(text.length)) : from;
  return read({ text });
}
async function takeFile(file) {
  if (!file) return;
  const bytes = await file.arrayBuffer();
  if (!$("#name").value) $("#name").value = file.name.replace(/\.[^.]*$/, "").slice(0, 40);
  $("#text").value = "";
  $("#dropped").textContent = t("fromFile", file.name, number(bytes.byteLength));
  await read({ bytes });
}
let typing = 0;
$("#text").oninput = () => {
  clearTimeout(typing);
  typing = setTimeout(() => take($("#text").value), 250);
};
$("#text").onpaste = (event) => {
  const text = event.clipboardData.getData("text");
  if (text.length <= HELD_TEXT) return;
  event.preventDefault();
  take(text);
};
$("#file").onchange = ({ target }) => {
  const [file] = target.files;
  target.value = ""; // so that the same file may be chosen again
  takeFile(file);
};
$("#example").onclick = () => take(exampleTable());
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file) takeFile(file);
  else take(event.dataTransfer.getData("text"));
});
$("#source").onchange = $("#target").onchange = () => choose(Number($("#source").value), Number($("#target").value));
$("#swap").onclick = () => choose(state.account.pair[1], state.account.pair[0]);
$("#train").onclick = async () => {
  const minutes = Number($("#minutes").value),
    seed = Number($("#seed").value);
  if (!(minutes > 0 && minutes <= 600) || !Number.isInteger(seed) || seed < 0) return guarded(() => Promise.reject(Object.assign(new Error("wrongNumber"), { parts: [] })));
  const request = { text: state.text, pair: state.account.pair, seed, minutes, name: $("#name").value.trim() || t("model") };
  if (await open(request)) train();
  return undefined;
};
$("#pause").onclick = () => (state.running ? trainer.call("pause") : train());
$("#more").onclick = async () => {
  if (state.running) await trainer.call("pause");
  while (state.running) await new Promise((done) => setTimeout(done, 20));
  train(Number($("#minutes").value) || 1);
};
$("#asked").oninput = ask;
$("#save-html").onclick = () => save("html");
$("#save-zip").onclick = () => save("zip");
$("#language").onclick = () => {
  language = language === "zh" ? "en" : "zh";
  writeAddress();
  draw();
};
for (const [name, other] of [["table", "dials"], ["dials", "table"]]) {
  $(`#tab-${name}`).onclick = () => showTab(name);
  $(`#tab-${name}`).onkeydown = ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    showTab(other);
    $(`#tab-${other}`).focus();
  };
}
document.addEventListener("visibilitychange", () => document.hidden && state.running && keepState());

// Remains of an earlier visit: a training to go on with, or a table.
async function offerKept() {
  const [training, table] = await Promise.all(["training", "table"].map((key) => kept("readonly", (store) => store.get(key))));
  if (table && !training) {
    $("#name").value = table.name;
    await take(table.text);
  }
  if (!training) return;
  $("#kept").hidden = false;
  $("#kept span").textContent = t("kept", training.name, number(training.steps), new Date(training.at).toLocaleString(language));
  $("#resume").textContent = t("goOn");
  $("#discard").textContent = t("discard");
  $("#resume").onclick = async () => {
    state.account = training.account;
    $("#found").hidden = false;
    $("#name").value = training.name;
    $("#minutes").value = Number(training.minutes.toFixed(1));
    if (!(await open(training))) return;
    if (state.shown.progress < 1) train();
    else {
      state.report = await guarded(() => trainer.call("examine"));
      draw();
    }
  };
  $("#discard").onclick = async () => {
    await Promise.all(["training", "table"].map((key) => kept("readwrite", (store) => store.delete(key))));
    $("#kept").hidden = true;
  };
}
