// The page: what is typed is translated by a worker, with doubt, alignment and candidates.
// For the console: `await transduce.translate("a text")` gives the object of `transduce translate --jsonl`.
const DOUBT = 0.5;
const MOST_CANDIDATES = 5;
const WAIT = 40;
const MOST_ATTENDED = 400;
const TEXT_FILE = 20_000_000; // bytes

const $ = (selector) => document.querySelector(selector);
const page = JSON.parse($("#model").textContent);
$("#model").remove();
const t = (key, ...parts) =>
  page.words[document.documentElement.lang][key].replace(/\{(\d)\}/g, (_, number) => parts[number]);
const percent = (share) => (share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);

const fault = (message, known = true) => Object.assign(new Error(message), { known });

// Calls of the worker; `progress` gets shares of the work.
const waiting = new Map();
let calls = 0;
const worker = (async () => {
  if (typeof DecompressionStream === "undefined") throw fault(t("unsupported"));
  const packed = new Blob([Uint8Array.from(atob(page.worker), (letter) => letter.charCodeAt(0))]),
    code = await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).blob(),
    made = new Worker(URL.createObjectURL(code.slice(0, code.size, "text/javascript")));
  made.onmessage = ({ data: { id, share, result, message, known } }) => {
    const { settle, fail, progress } = waiting.get(id);
    if (share !== undefined) return progress(share);
    waiting.delete(id);
    if (message === undefined) settle(result);
    else fail(fault(message, known));
  };
  return made;
})();
async function ask(call, args, progress = () => {}) {
  const id = calls++;
  (await worker).postMessage({ id, call, args });
  return new Promise((settle, fail) => waiting.set(id, { settle, fail, progress }));
}

let models = []; // { number, run, languages, pairs, beam }
let paths = []; // numbers of the models of each way to translate
function load(name, ...args) {
  return ask("load", args, (share) => tell(t("loading", name, Math.round(100 * share))));
}
const first = load(page.run, page.file, [page.relaxed, page.plain]);
page.file = page.relaxed = page.plain = null; // the worker has them
const transduce = {
  translate: async (text, { n_best = 1, ...settings } = {}) => {
    await ready;
    return (await ask("translate", [[0], String(text), { n_best, ...settings, most: 0 }])).answer;
  },
};

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, setting] of Object.entries(attributes))
    if (name.startsWith("on")) made[name] = setting;
    else made.setAttribute(name, setting);
  made.append(...children);
  return made;
}

// Source and translation of a piece: choosing a segment shades those of the other side.
function pairOf({ sides, attended }) {
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

const chosenPath = () => paths[$("#path").value] ?? [0];
const tell = (text) => ($("#took").textContent = text);
const nameUnknown = (unknown) => ($("#unknown").textContent = unknown && t("unknown", unknown));
function show({ answer: { text, candidates }, pairs, read, unknown }, path, took) {
  nameUnknown(unknown);
  $("#written").textContent = text;
  $("#copy").hidden = !text;
  $("#between").textContent = path.length > 1 && read ? t("between", read) : "";
  $("#attended").hidden = !pairs.length;
  $("#lines").replaceChildren(...pairs.map(pairOf));
  $("#others").hidden = !text;
  $("#others table").replaceChildren(...(candidates.length > 1 ? tableOf(candidates) : []));
  $("#wider").hidden = candidates.length > 1;
  tell(t("took", took));
}
function complain(error) {
  if (error && !error.known) throw error;
  $("#fault").textContent = error ? t("fault", error.message) : "";
  $("#fault").hidden = !error;
}

// The latest text, once the worker has answered the one before.  beam: hypotheses, by default the model's.
let [isBusy, next] = [false, null];
async function refresh(beam) {
  next = { beam };
  if (isBusy) return;
  isBusy = true;
  try {
    await ready;
    while (next) {
      const path = chosenPath(),
        size = next.beam ?? models[path.at(-1)].beam,
        settings = { ...pairChosen(), beam: size, n_best: Math.min(MOST_CANDIDATES, size), most: MOST_ATTENDED },
        began = performance.now();
      next = null;
      const answer = await ask("translate", [path, $("#typed").value, settings]);
      show(answer, path, Math.round(performance.now() - began));
    }
    complain(null);
  } catch (error) {
    $("#written").textContent = nameUnknown("");
    $("#attended").hidden = $("#others").hidden = $("#copy").hidden = true;
    complain(error);
  } finally {
    isBusy = false;
  }
}

// The name of a language; browsers refuse codes such as en-x-arpabet.
function nameOf(code) {
  try {
    return new Intl.DisplayNames([document.documentElement.lang], { type: "language" }).of(code);
  } catch {
    return code;
  }
}
// Languages of a model of several.
function offerPair() {
  const { pairs } = models[chosenPath()[0]];
  $("#pair").hidden = !pairs;
  pairs?.forEach((codes, side) => {
    const [select, chosen] = [$(["#from", "#to"][side]), $(["#from", "#to"][side]).value];
    select.replaceChildren(...codes.map((code) => element("option", { value: code }, nameOf(code))));
    select.value = codes.includes(chosen) ? chosen : (codes.find((code) => !side || code !== $("#from").value) ?? codes[0]);
  });
}
const pairChosen = () => ($("#pair").hidden ? {} : { from: $("#from").value, to: $("#to").value });

// Ways to translate: each model, and two in turn where the one writes what the other reads.
function offer() {
  const base = (code) => code?.split("-")[0];
  const joins = ({ languages: [, target] }, { languages: [source] }) => target && base(target) === base(source);
  const chains = models.flatMap((a) => models.filter((b) => a !== b && joins(a, b)).map((b) => [a.number, b.number]));
  paths = [...models.map(({ number }) => [number]), ...chains];
  const label = (path) => {
    const codes = [models[path[0]].languages[0], ...path.map((number) => models[number].languages[1])];
    return codes.every(Boolean) ? codes.map(nameOf).join(" → ") : models[path[0]].run;
  };
  const chosen = $("#path").value;
  $("#path").replaceChildren(...paths.map((path, k) => element("option", { value: k }, label(path))));
  $("#path").value = chosen || "0";
  $("#ways").hidden = paths.length < 2 && !models[0].pairs;
  $("#path").hidden = paths.length < 2;
  offerPair();
}
async function add(loading) {
  const model = await loading;
  models.push(model);
  offer();
  const added = paths.findLastIndex((path) => path.includes(model.number));
  $("#path").value = String(added);
  offerPair();
  tell("");
}

// A file: another page of this kind or the model of an npm package becomes a model, all else is a text.
async function open(file) {
  try {
    const content = new Uint8Array(await file.slice(0, 3).arrayBuffer());
    if (content[0] === 0x1f && content[1] === 0x8b) {
      await add(load(file.name, new Uint8Array(await file.arrayBuffer()), null));
    } else {
      if (file.size > 20 * TEXT_FILE) throw fault(t("large", file.name));
      const text = await file.text(),
        inside = /<script id="model" type="application\/json">(.*?)<\/script>/s.exec(text);
      if (!inside) return await translateFile(file.name, text);
      const other = JSON.parse(inside[1]);
      await add(load(other.run, other.file, null));
    }
    await refresh();
  } catch (error) {
    complain(error);
  }
}
async function translateFile(name, text) {
  if (text.length > TEXT_FILE) throw fault(t("large", name));
  const parts = text.split(/(\r?\n)/),
    lines = parts.filter((_, k) => k % 2 === 0),
    breaks = parts.filter((_, k) => k % 2 === 1);
  await ready;
  const path = chosenPath(),
    progress = (share) => tell(t("reading", name, Math.round(100 * share))),
    { written, unknown } = await ask("lines", [path, lines, pairChosen()], progress);
  const blob = new Blob(written.flatMap((line, k) => [line, breaks[k] ?? ""]), { type: "text/plain;charset=utf-8" }),
    code = pairChosen().to ?? (models[path.at(-1)].languages[1] || "out"),
    saved = name.replace(/(\.[^.]*)?$/, (suffix) => `.${code}${suffix}`),
    link = element("a", { href: URL.createObjectURL(blob), download: saved }, t("save", saved));
  $("#saved").replaceChildren(link);
  nameUnknown(unknown);
  tell(t("read", lines.length));
}

function label(language) {
  document.documentElement.lang = language;
  const [mb, count] = [page.bytes / 1e6, page.parameters.toLocaleString(language)];
  document.title = $("h1").textContent = page.run;
  $("#language").textContent = t("language");
  $("#label").textContent = t("type");
  $("#attended h2").textContent = t("attended");
  $("#attended .note").textContent = t("attendedNote", 100 * DOUBT);
  $("#others h2").textContent = t("others");
  for (const name of ["copy", "paste", "open", "drop", "way"]) $(`#${name}`).textContent = t(name);
  for (const name of ["from", "to"]) $(`#${name}`).setAttribute("aria-label", t(name));
  $("#wider").textContent = t("wider", MOST_CANDIDATES);
  $("#account").textContent = page.account ?? "";
  $("#account").hidden = !page.account;
  $("#weight").textContent = t("weight", page.run, count, page.precision, mb.toFixed(1));
  if (models.length) offer();
}

label(navigator.language.startsWith("zh") ? "zh" : "en");
$("#language").onclick = () => {
  label(document.documentElement.lang === "zh" ? "en" : "zh");
  refresh();
};
let typing = 0;
$("#typed").oninput = () => {
  clearTimeout(typing);
  typing = setTimeout(refresh, WAIT);
};
$("#path").onchange = () => {
  offerPair();
  refresh();
};
$("#from").onchange = $("#to").onchange = () => refresh();
$("#wider").onclick = () => refresh(MOST_CANDIDATES);
$("#copy").onclick = async () => {
  const selection = getSelection();
  selection.selectAllChildren($("#written"));
  if (!document.execCommand("copy")) await navigator.clipboard.writeText($("#written").textContent);
  selection.removeAllRanges();
  tell(t("copied"));
};
$("#paste").hidden = !navigator.clipboard?.readText;
$("#paste").onclick = async () => {
  try {
    $("#typed").value = await navigator.clipboard.readText();
    await refresh();
  } catch {
    complain(fault(t("noPaste")));
  }
};
$("#open").onclick = () => $("#file").click();
$("#file").onchange = async () => {
  for (const file of $("#file").files) await open(file);
  $("#file").value = "";
};
document.ondragover = (event) => event.preventDefault();
document.ondrop = async (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  for (const file of event.dataTransfer.files) await open(file);
};
const ready = add(first);
ready.then(() => refresh(), complain);
