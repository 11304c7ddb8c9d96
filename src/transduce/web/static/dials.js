// Two small models side by side, whose sizes and parts one chooses: a lesson for a class.
// The address holds the state: #tab=dials&without=mask&line=31415&a=task:sort,width:64&b=….

const DIALS = {
  task: ["copy", "reverse", "sort", "add", "agreement", "repeat"],
  layers: [1, 2, 3, 4],
  heads: [1, 2, 4, 8],
  width: [16, 32, 64, 128],
  order: ["pre", "post"],
  positions: ["sinusoidal", "rotary", "learned", "alibi", "none"],
};
const NUMBERS = { longest: [2, 12], steps: [50, 5000], seed: [0, 999999] };
const PARTS = ["positions", "scale", "mask", "residual", "norm"];
const DEFAULTS = { task: "copy", layers: 1, heads: 2, width: 32, order: "pre", positions: "sinusoidal", longest: 5, steps: 400, seed: 1, leftOut: [] };
const DRAWN_MAPS = 12;
const LOOK_EVERY = 300; // milliseconds
const MOST_LOOKS = 64; // kept of a training, above which every other one goes

// Dials of a side in the address.
function dialsOf(text) {
  const chosen = { ...DEFAULTS, leftOut: [] };
  for (const part of (text ?? "").split(",")) {
    const [name, value] = part.split(":");
    if (name === "without") chosen.leftOut = value.split("+").filter((each) => PARTS.includes(each));
    else if (name in DIALS) chosen[name] = DIALS[name].find((each) => String(each) === value) ?? chosen[name];
    else if (name in NUMBERS && Number.isInteger(Number(value))) chosen[name] = within(Number(value), ...NUMBERS[name]);
  }
  return chosen;
}
const within = (n, low, high) => Math.min(Math.max(n, low), high);

class Side {
  constructor(name) {
    const old = (address.get("without") ?? "").split(",").filter((part) => PARTS.includes(part));
    Object.assign(this, { name, dials: dialsOf(address.get(name)), runs: [], running: false });
    if (name === "a" && old.length) this.dials.leftOut = old;
    this.trainer = new Worked((_, facts) => this.show(facts));
    this.element = element("section", { "aria-label": name.toUpperCase() });
    $("#sides").append(this.element);
  }
  key() {
    return JSON.stringify(this.dials);
  }
  run() {
    return this.runs.at(-1);
  }
  // The run that goes on, unless a dial was turned.
  isSame() {
    return this.run()?.key === this.key() && this.run().progress < 1;
  }
  async toggle() {
    if (this.running) return this.trainer.call("pause");
    this.running = true;
    if (!this.isSame()) {
      const { width } = this.dials,
        made = await guarded(() => this.trainer.call("task", { ...this.dials, rate: 1e-2 * Math.min(1, 32 / width) }));
      if (!made) return (this.running = false);
      this.runs.push({ key: this.key(), dials: { ...this.dials }, curve: [], looks: [], progress: 0, ...made });
    }
    this.draw();
    await this.look();
    Object.assign(this.run(), await guarded(() => this.trainer.call("practise")));
    this.running = false;
    this.draw();
    return this.look();
  }
  show(facts) {
    Object.assign(this.run(), facts);
    this.drawRun();
    if (performance.now() - (this.lookedAt ?? 0) > LOOK_EVERY) this.look();
  }
  async look() {
    const run = this.run();
    if (!run) return;
    this.lookedAt = performance.now();
    const seen = await guarded(() => this.trainer.call("look", { line: $("#line").value }));
    if (!seen || run !== this.run()) return;
    const isNewest = this.at === undefined || this.at >= run.looks.length - 1,
      looks = run.looks.filter(({ line, step }) => line === seen.line && step < seen.step);
    run.looks = [...(looks.length < MOST_LOOKS ? looks : looks.filter((_, k) => k % 2 === 0)), seen];
    this.drawLook(isNewest ? run.looks.length - 1 : this.at);
  }
  // Answer and attention at one of the steps that were looked at.
  drawLook(at) {
    const { looks } = this.run(),
      [answer, maps, steps] = ["answer", "maps", "looks"].map((part) => this.element.querySelector(`.${part}`)),
      seen = looks[(this.at = Math.min(at, looks.length - 1))];
    Object.assign(steps, { max: looks.length - 1, value: this.at, disabled: looks.length < 2 });
    steps.labels[0].firstChild.textContent = `${t("lookedAt", number(seen.step))} `;
    answer.textContent = `${seen.isTyped ? "" : t("noLine")} ${t("writes", seen.line, seen.written || "—")}`;
    answer.className = `answer ${seen.written === seen.wanted ? "right" : "wrong"}`;
    const title = ({ name, head }) => t("headOf", t(name.replace(/\.layers\.\d+\./, " ")), Number(name.match(/\d+/)[0]) + 1, head + 1);
    const figures = seen.maps.map((map) => {
      const rows = map.name.startsWith("encoder") ? seen.keys : seen.queries,
        columns = map.name.endsWith("cross_attention") ? seen.keys : rows;
      return mapFigure(title(map), rows, columns, map.numbers);
    });
    maps.replaceChildren(...figures.slice(-DRAWN_MAPS));
  }
  control(name, made) {
    made.value = this.dials[name];
    made.disabled = this.running;
    made.onchange = () => {
      const value = name in NUMBERS ? within(Math.round(Number(made.value) || 0), ...NUMBERS[name]) : (DIALS[name].find((each) => String(each) === made.value) ?? DEFAULTS[name]);
      this.dials[name] = value;
      this.remember();
    };
    return element("label", {}, `${t(name)} `, made);
  }
  remember() {
    const differ = Object.keys(DEFAULTS).filter((name) => name !== "leftOut" && this.dials[name] !== DEFAULTS[name]),
      parts = differ.map((name) => `${name}:${this.dials[name]}`);
    if (this.dials.leftOut.length) parts.push(`without:${this.dials.leftOut.join("+")}`);
    if (this.name === "a") address.delete("without");
    if (parts.length) address.set(this.name, parts.join(","));
    else address.delete(this.name);
    writeAddress();
    this.draw();
  }
  draw() {
    const { dials, running } = this;
    const choices = Object.entries(DIALS).map(([name, values]) =>
      this.control(name, element("select", { "data-dial": name }, ...values.map((value) => element("option", { value }, typeof value === "number" ? String(value) : t(value))))),
    );
    const numbers = Object.entries(NUMBERS).map(([name, [min, max]]) => this.control(name, element("input", { type: "number", "data-dial": name, min, max, step: 1 })));
    const parts = PARTS.map((part) => {
      const box = element("input", { type: "checkbox", name: part });
      box.checked = !dials.leftOut.includes(part);
      box.disabled = running;
      box.onchange = () => {
        dials.leftOut = PARTS.filter((other) => (other === part ? !box.checked : dials.leftOut.includes(other)));
        this.remember();
      };
      return element("label", {}, box, ` ${t(part)}`);
    });
    const guess = dials.leftOut.length > 1 ? "guessSeveral" : `guess-${dials.leftOut[0] ?? dials.task}`,
      button = element("button", { type: "button", class: "first", onclick: () => this.toggle() }, running ? t("pause") : this.isSame() ? t("goOn") : t("train")),
      clear = element("button", { type: "button", onclick: () => this.forget() }, t("forget"));
    clear.disabled = running || !this.runs.length;
    this.element.replaceChildren(
      element("h2", {}, this.name.toUpperCase()),
      element("div", { class: "dial" }, ...choices, ...numbers),
      element("p", { class: "dial" }, element("span", {}, t("parts")), ...parts),
      element("p", { class: "note" }, t(guess)),
      element("p", { class: "controls" }, button, clear, element("span", { class: "status", role: "status" })),
      element("svg", { class: "curve", role: "img" }),
      element("div", { class: "scroll" }, element("table", { class: "runs" })),
      element("p", {}, element("output", { class: "answer" })),
      element("div", { class: "induction" }),
      element("label", {}, "", element("input", { type: "range", class: "looks", min: 0, max: 0, disabled: "", oninput: ({ target }) => this.drawLook(Number(target.value)) })),
      element("div", { class: "maps" }),
      element("p", { class: "note" }, t("mapsNote")),
    );
    this.drawRun();
    if (!running) this.look();
  }
  forget() {
    this.runs = [];
    this.draw();
  }
  nameOf({ dials }) {
    const differ = Object.keys(DEFAULTS).filter((name) => name !== "leftOut" && name !== "task" && dials[name] !== DEFAULTS[name]),
      parts = differ.map((name) => `${t(name)} ${typeof dials[name] === "number" ? dials[name] : t(dials[name])}`),
      out = dials.leftOut.map((part) => t("withoutPart", t(part)));
    return [t(dials.task), ...parts, ...out].join(t("comma"));
  }
  drawRun() {
    const run = this.run(),
      status = this.element.querySelector(".status");
    status.textContent = run?.curve.length ? t("stepOf", number(run.step), number(run.dials.steps), run.loss.toFixed(3), number(run.parameters)) : "";
    drawCurves(this.element.querySelector(".curve"), this.runs.map(({ curve }) => curve), 3, t("loss"));
    fill(
      this.element.querySelector(".runs"),
      [t("run"), t("lastLoss"), t("allRight")],
      this.runs.map((each, k) => [
        element("td", { style: `border-left: 0.5rem solid ${COLOURS[k % COLOURS.length]}; padding-left: 0.5rem` }, this.nameOf(each)),
        each.loss?.toFixed(3) ?? "",
        each.share === undefined ? "…" : percent(each.share),
      ]),
    );
    const place = this.element.querySelector(".induction");
    if (!run?.induction) return place.replaceChildren();
    if (!place.firstChild) place.replaceChildren(element("h2", {}, t("induction")), element("svg", { class: "curve", role: "img" }), element("p", { class: "note" }));
    const { names, curve } = run.induction;
    drawCurves(place.querySelector("svg"), names.map((_, k) => curve.map(([step, scores]) => [step, scores[k]])), 1, t("inductionScore"));
    const [best, score] = names.map((name, k) => [name, curve.at(-1)[1][k]]).reduce((a, b) => (b[1] > a[1] ? b : a));
    place.querySelector("p").textContent = t("inductionNote", best, score.toFixed(2));
    return undefined;
  }
}

const sides = [];
function drawDials() {
  if ($("#dials").hidden) return;
  if (!sides.length) {
    const line = element("input", { id: "line", inputmode: "text", maxlength: 60, size: 22, autocomplete: "off" });
    line.value = (address.get("line") ?? "31415").slice(0, 60);
    line.oninput = () => {
      address.set("line", line.value);
      writeAddress();
      sides.forEach((side) => side.look());
    };
    $("#sides").before(element("p", {}, element("label", {}, element("span", { "data-t": "line" }, t("line")), " ", line)));
    sides.push(new Side("a"), new Side("b"));
  }
  sides.forEach((side) => side.draw());
}

unzipped(page.words).then((words) => {
  page.words = words;
  draw();
  showTab(address.get("tab") === "dials" || address.has("without") ? "dials" : "table");
  offerKept();
});
