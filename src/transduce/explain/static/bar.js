// The bar above the screens: texts, what is left out of the model, how it writes.
const BAR = { fields: [], waiting: 0, open: innerWidth > 640 && !S.embed };
const PARTS = {
  scale: "partScale",
  mask: "partMask",
  positions: "partPositions",
  residual: "partResidual",
  norm: "partNorm",
  softmax: "partSoftmax",
};

const SLOW = 400;
const PAUSE = 700;
// Fields stay while all else is drawn again, so that typing goes on.
function startBar() {
  const typing = el("section", { id: "typing" }),
    rest = el("section", { id: "bar" }),
    top = document.getElementById("top");
  if (IMAGES.facts) typing.append((BAR.file = imageField()));
  for (const [k] of IMAGES.facts ? [] : [...transduce.facts.inputs, "second"].entries()) {
    // A history has a turn on each line.
    const plain = { spellcheck: false, autocomplete: "off", dir: "auto" },
      tag = transduce.facts.task === "dialogue" ? "textarea" : "input",
      field = el(tag, { type: "text", rows: 3, class: "typed", "data-k": "typed" + k, ...plain });
    field.addEventListener("input", (e) => {
      if (!e.isComposing) soon(typed);
    });
    field.addEventListener("compositionend", () => soon(typed));
    BAR.fields.push(field);
    typing.append(field);
  }
  top.before(typing);
  top.after(rest);
}
// A large model waits for the end of a word.
function soon(run) {
  clearTimeout(BAR.waiting);
  BAR.waiting = setTimeout(run, live.milliseconds > SLOW ? PAUSE : 0);
}
function typed() {
  const values = BAR.fields.map((field) => field.value),
    second = BAR.fields.at(-1).hidden ? "" : values.at(-1),
    tab = second && !S.second ? "beside" : S.tab;
  live.type({ text: values.slice(0, -1).join("\t") || " ", second, tab });
}

function renderBar() {
  const inputs = transduce.facts.inputs,
    values = [...live.texts(), S.second],
    rest = document.getElementById("bar");
  BAR.file?.tell();
  BAR.fields.forEach((field, k) => {
    const isSecond = k === inputs.length,
      label = t(isSecond ? "secondText" : "typeText");
    if (field.value.trim() !== values[k].trim()) field.value = values[k];
    field.setAttribute("aria-label", inputs.length > 1 && !isSecond ? `${label}: ${inputs[k]}` : label);
    field.placeholder = label;
    if (isSecond) field.hidden = !S.second && !BAR.comparing;
  });
  document.getElementById("typing").setAttribute("aria-label", t("which"));
  rest.setAttribute("aria-label", t("liveModel"));
  fill(rest, [
    live.fault ? el("p", { class: "fault", role: "alert" }, live.fault) : null,
    live.unknown ? el("p", { class: "note", role: "status" }, t("unknownParts", isolated(live.unknown))) : null,
    live.isChanged() ? wholeLine() : null,
    S.embed ? null : barButtons(),
    leftOut(),
    (partsThere().length || transduce.facts.decoding) && el(
      "details",
      { class: "changes", ...(BAR.open ? { open: true } : {}), ontoggle: (e) => (BAR.open = e.target.open) },
      el("summary", { "data-k": "changes" }, t("changeModel")),
      switches(),
      transduce.facts.decoding ? writing() : null,
    ),
  ]);
  renderGuide();
}
function barButtons() {
  const example = (doc, k) => {
    const pressed = { "aria-pressed": String(!S.text && S.example === k) };
    return act(
      "example" + k,
      doc.picture ? thumbnail(doc) : token(titleOf(doc).slice(0, 30)),
      () => live.type({ text: "", example: k }),
      pressed,
    );
  };
  const compare = () => {
    BAR.comparing = !(S.second || BAR.comparing);
    if (S.second) live.type({ second: "" });
    else render();
    if (BAR.comparing) BAR.fields.at(-1).focus();
  };
  const shown = () => say(location.href),
    share = () =>
      navigator.clipboard?.writeText(location.href).then(() => say(t("copied")), shown) ?? shown();
  const { inputs, parameters } = transduce.facts,
    unchanged = !live.isChanged() && !S.beam && S.most < 0 && !S.draw,
    comparing = S.second || BAR.comparing;
  return el(
    "div",
    { class: "row small" },
    EXAMPLES.length > 1 ? EXAMPLES.map(example) : null,
    inputs.length < 2 && !IMAGES.facts ? act("compare", t(comparing ? "oneText" : "compareText"), compare) : null,
    act("undo", t("undo"), () => live.undo(), { disabled: !live.past.length }),
    act("restore", t("restoreAll"), () => live.restore(), { disabled: unchanged }),
    act("link", t("copyLink"), share),
    guideButton(),
    el(
      "span",
      { class: "note" },
      t("computed", Math.round(live.milliseconds), parameters.toLocaleString("en")),
      transduce.facts.arrays.some(([, , kind]) => kind === "int8") ? ` · ${t("int8")}` : "",
      live.most() ? ` · ${t("mostTokens", live.most())}` : "",
    ),
  );
}

// The answer of the whole model beside that of the changed one.
function wholeLine() {
  const whole = live.whole(live.texts()),
    same = answerOf(whole) === answerOf(DOCS[0]);
  const beside = () => {
    live.change({ whole: !S.whole, second: "" });
    if (S.whole) set({ tab: "beside" });
  };
  return el(
    "p",
    { class: "whole" },
    t(same ? "sameAnswer" : "wholeAnswer"),
    " ",
    same ? null : el("bdi", { class: "token" }, answerOf(whole)),
    " ",
    act("whole", t("beside"), beside, { "aria-pressed": String(S.whole) }),
  );
}

// What is left out or forced; a click puts it back.
function leftOut() {
  const chip = (key, name, text) => {
    const back = () => (key === "forced" ? live.change({ forced: "" }) : live.toggle(key, name));
    return act(`put${key}${name}`, [text, " ✕"], back, {
      class: "out",
      "aria-label": `${t("putBack")}: ${text}`,
    });
  };
  const source = seq("source", DOCS[0]),
    written = DOCS[0].steps.slice(0, listed("forced").length).map((step) => visible(step.written));
  const nameOf = {
    outHeads: (name) => headName({ name: name.split(":")[0] }, Number(name.split(":")[1]) - 1),
    outLayers: (name) => `${t(name.split(".")[0])} · ${t("layer")} ${Number(name.split(".")[2]) + 1}`,
    outTokens: (number) => `${number} ${visible(source[number - 1] ?? "")}`,
  };
  const chips = Object.keys(nameOf).flatMap((key) =>
    listed(key).map((name) => chip(key, name, nameOf[key](name))),
  );
  for (const text of listed("patches")) chips.push(chip("patches", text, patchName(text)));
  if (S.forced) chips.push(chip("forced", "", `${t("forced")}: ${written.join(" ")}`));
  return chips.length
    ? el("div", { class: "row small" }, el("span", { class: "note" }, t("leftOutNow")), chips)
    : null;
}

// Parts of the architecture that each kind of stack has.
const PARTS_OF = {
  transformer: Object.keys(PARTS),
  ssru: ["scale", "positions", "residual", "norm", "softmax"],
  recurrent: ["softmax"],
  convolution: ["scale", "positions", "residual", "norm", "softmax"],
  "memory-network": ["scale", "norm", "softmax"],
  "text-cnn": [],
};
function partsThere() {
  const { stacks } = transduce.facts,
    attends = D.attention.length,
    positioned = Object.values(stacks).some((stack) => stack.positions !== "none"),
    there = { scale: attends, softmax: attends, mask: stacks.decoder?.kind === "transformer", positions: positioned },
    known = Object.values(stacks).flatMap(({ kind }) => PARTS_OF[kind]);
  return Object.keys(PARTS).filter((part) => known.includes(part) && (there[part] ?? true));
}
function switches() {
  const box = (part) => {
    const there = !live.isOut("parts", part);
    return checkbox("part" + part, t(PARTS[part]), there, () => live.toggle("parts", part));
  };
  return el("p", { class: "switches", role: "group", "aria-label": t("changeModel") }, partsThere().map(box));
}

// Beam width, or drawing at a temperature.
function writing() {
  const decoding = transduce.facts.decoding,
    name = (k) => (k === 1 ? t("greedy") : t("beamOf", k)),
    ofRun = t("ofRun", decoding.method === "beam" ? name(decoding.beam_size) : t("drawn")),
    beams = [1, 2, 3, 4, 5, 8].map((k) => [k, name(k)]),
    choose = (way) => live.change(way === "draw" ? { draw: 1, beam: 0 } : { draw: 0, beam: Number(way) });
  const ways = choice(
    "writes",
    [[0, ofRun], ...beams, ["draw", t("drawn")]],
    S.draw ? "draw" : S.beam,
    choose,
  );
  const slide = (e) => live.go({ draw: Number(e.target.value) }),
    slider = range("draw", t("temperature", ""), 0.1, 3, 0.1, S.draw, slide),
    heat = el("label", { class: "row" }, t("temperature", S.draw.toFixed(1)), slider);
  return el(
    "div",
    { class: "row" },
    el("label", {}, t("writes"), " ", ways),
    transduce.facts.window ? longest(decoding) : null,
    S.draw ? [heat, act("again", t("drawAgain"), () => live.change({ seed: S.seed + 1 }))] : null,
  );
}

// Tokens of a continuation at most.
function longest({ max_tokens: ofRun }) {
  const counts = [8, 16, 32].filter((count) => count < ofRun).map((count) => [count, t("mostTokens", count)]),
    ways = [[0, t("ofRun", t("mostTokens", ofRun))], ...counts];
  return el("label", {}, t("writtenLength"), " ", choice("most", ways, live.most(), (count) => live.change({ most: Number(count) })));
}
