// The bar above the screens: texts, what is left out of the model, how it writes.
const BAR = { fields: [], waiting: 0, open: innerWidth > 640 };
const PARTS = {
  scale: "partScale",
  mask: "partMask",
  positions: "partPositions",
  residual: "partResidual",
  norm: "partNorm",
  softmax: "partSoftmax",
};

// Fields stay while all else is drawn again, so that typing goes on.
function startBar() {
  const typing = el("section", { id: "typing" }),
    rest = el("section", { id: "bar" }),
    top = document.getElementById("top");
  for (const [k] of [...transduce.facts.inputs, "second"].entries()) {
    const field = el("input", {
      type: "text",
      class: "typed",
      "data-k": "typed" + k,
      spellcheck: false,
      autocomplete: "off",
      dir: "auto",
    });
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
function soon(run) {
  clearTimeout(BAR.waiting);
  BAR.waiting = setTimeout(run, 0);
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
    live.isChanged() ? wholeLine() : null,
    barButtons(),
    leftOut(),
    el(
      "details",
      { class: "changes", ...(BAR.open ? { open: true } : {}), ontoggle: (e) => (BAR.open = e.target.open) },
      el("summary", { "data-k": "changes" }, t("changeModel")),
      switches(),
      transduce.facts.decoding ? writing() : null,
    ),
  ]);
}
const act = (key, label, onclick, attrs) => el("button", { "data-k": key, onclick, ...attrs }, label);

function barButtons() {
  const examples =
    EXAMPLES.length < 2
      ? []
      : EXAMPLES.map((one, k) =>
          act("example" + k, token(titleOf(one).slice(0, 30)), () => live.type({ text: "", example: k }), {
            "aria-pressed": String(!S.text && S.example === k),
          }),
        );
  const compare = () => {
    BAR.comparing = !(S.second || BAR.comparing);
    if (S.second) live.type({ second: "" });
    else render();
    if (BAR.comparing) BAR.fields.at(-1).focus();
  };
  const share = (e) => {
    navigator.clipboard?.writeText(location.href).then(
      () => say(t("copied")),
      () => say(location.href),
    ) ?? say(location.href);
    e.target.focus();
  };
  return el(
    "div",
    { class: "row small" },
    examples,
    transduce.facts.inputs.length < 2
      ? act("compare", t(S.second || BAR.comparing ? "oneText" : "compareText"), compare)
      : null,
    act("undo", t("undo"), () => live.undo(), { disabled: !live.past.length }),
    act("restore", t("restoreAll"), () => live.restore(), {
      disabled: !live.isChanged() && !S.beam && !S.draw,
    }),
    act("link", t("copyLink"), share),
    el(
      "span",
      { class: "note" },
      t("computed", Math.round(live.milliseconds), transduce.facts.parameters.toLocaleString("en")),
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
  const chip = (key, name, text) =>
    act(
      `put${key}${name}`,
      [text, " ✕"],
      () => (key === "forced" ? live.change({ forced: "" }) : live.toggle(key, name)),
      { class: "out", "aria-label": `${t("putBack")}: ${text}` },
    );
  const place = (name) => ({ name: name.split(":")[0] }),
    source = seq("source", DOCS[0]);
  const beginning = DOCS[0].steps.slice(0, listed("forced").length);
  const chips = [
    ...listed("outHeads").map((name) =>
      chip("outHeads", name, headName(place(name), Number(name.split(":")[1]) - 1)),
    ),
    ...listed("outLayers").map((name) =>
      chip("outLayers", name, `${t(name.split(".")[0])} · ${t("layer")} ${Number(name.split(".")[2]) + 1}`),
    ),
    ...listed("outTokens").map((number) =>
      chip("outTokens", number, `${number} ${visible(source[number - 1] ?? "")}`),
    ),
    S.forced
      ? chip("forced", "", `${t("forced")}: ${beginning.map((step) => visible(step.written)).join(" ")}`)
      : null,
  ];
  return chips.some((one) => one)
    ? el("div", { class: "row small" }, el("span", { class: "note" }, t("leftOutNow")), chips)
    : null;
}

function switches() {
  const { stacks } = transduce.facts,
    positioned = Object.values(stacks).some((stack) => stack.positions !== "none"),
    there = { mask: Boolean(stacks.decoder), positions: positioned };
  const box = (part) =>
    el(
      "label",
      {},
      el("input", {
        type: "checkbox",
        "data-k": "part" + part,
        ...(live.isOut("parts", part) ? {} : { checked: true }),
        onchange: () => live.toggle("parts", part),
      }),
      t(PARTS[part]),
    );
  return el(
    "p",
    { class: "switches", role: "group", "aria-label": t("changeModel") },
    Object.keys(PARTS)
      .filter((part) => there[part] ?? true)
      .map(box),
  );
}

// Beam width, or drawing at a temperature.
function writing() {
  const own = transduce.facts.decoding,
    beams = [1, 2, 3, 4, 5, 8],
    chosen = S.draw ? "draw" : String(S.beam),
    name = (k) => (k === 1 ? t("greedy") : t("beamOf", k)),
    ofRun = own.method === "beam" ? name(own.beam_size) : t("drawn");
  const option = (value, text) =>
    el("option", { value, ...(value === chosen ? { selected: true } : {}) }, text);
  const choose = (e) =>
    live.change(e.target.value === "draw" ? { draw: 1, beam: 0 } : { draw: 0, beam: Number(e.target.value) });
  const slide = (e) => live.go({ draw: Number(e.target.value) });
  return el(
    "div",
    { class: "row" },
    el(
      "label",
      {},
      t("writes"),
      " ",
      el(
        "select",
        { "data-k": "writes", onchange: choose },
        option("0", t("ofRun", ofRun)),
        beams.map((k) => option(String(k), name(k))),
        option("draw", t("drawn")),
      ),
    ),
    S.draw
      ? [
          el(
            "label",
            { class: "row" },
            t("temperature", S.draw.toFixed(1)),
            range("draw", t("temperature", ""), 0.1, 3, 0.1, S.draw, slide),
          ),
          act("again", t("drawAgain"), () => live.change({ seed: S.seed + 1 })),
        ]
      : null,
  );
}
