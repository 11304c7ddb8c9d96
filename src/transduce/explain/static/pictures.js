// Pieces of pictures: heat maps, bars, strips, attention over an image.
function paint(canvas, rows, columns, value, signed) {
  canvas.width = Math.max(columns, 1);
  canvas.height = Math.max(rows, 1);
  const g = canvas.getContext("2d"),
    blue = css("--blue").split(",").map(Number),
    red = css("--red").split(",").map(Number);
  const image = g.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const v = value(i, j),
        c = signed && v < 0 ? red : blue,
        at = 4 * (i * columns + j);
      image.data[at] = c[0];
      image.data[at + 1] = c[1];
      image.data[at + 2] = c[2];
      image.data[at + 3] = 255 * clamp(Math.abs(v), 0, 1);
    }
  g.putImageData(image, 0, 0);
  return canvas;
}
// The value beside the pointer.
function tip(e, text = "") {
  const node = document.getElementById("tip");
  node.textContent = text;
  if (!e) return;
  node.style.left = Math.min(e.clientX + 14, innerWidth - node.offsetWidth - 4) + "px";
  node.style.top = Math.max(e.clientY - 34, 2) + "px";
}
// A heat map with labels: pointer and arrow keys tell each cell; rows can be chosen.
function heat(value, rows, columns, { size, chosen, choose, label, key } = {}) {
  const px = size || clamp(Math.floor(640 / Math.max(columns.length, 1)), 4, 28),
    py = rows.length > 64 ? Math.min(px, 10) : rows.length > 40 ? Math.max(px, 14) : Math.max(px, 17);
  const canvas = el("canvas", {
    tabindex: 0,
    role: "img",
    "data-k": key,
    "aria-label": `${label || ""}. ${rows.length} × ${columns.length}. ${t("arrows")}`,
    style: { width: px * columns.length + "px", height: py * rows.length + "px" },
  });
  paint(canvas, rows.length, columns.length, value);
  let at = [chosen ?? 0, 0];
  const cellText = () => t("cell", isolated(rows[at[0]]), isolated(columns[at[1]]), fixed(value(...at), 2)),
    light = (on) => {
      const [, top, side] = canvas.parentElement.children;
      [top.children[at[1]], side.children[at[0]]].forEach((one) => one?.classList.toggle("lit", on));
    },
    tell = () => say(cellText());
  const place = (e) => {
    const r = canvas.getBoundingClientRect();
    return [
      clamp(Math.floor((e.clientY - r.top) / py), 0, rows.length - 1),
      clamp(Math.floor((e.clientX - r.left) / px), 0, columns.length - 1),
    ];
  };
  canvas.addEventListener("pointermove", (e) => {
    light(false);
    at = place(e);
    light(true);
    tip(e, cellText());
  });
  canvas.addEventListener("pointerleave", () => {
    light(false);
    tip();
  });
  canvas.addEventListener("click", (e) => {
    if (choose) choose(place(e)[0]);
  });
  canvas.addEventListener("keydown", (e) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (step) {
      e.preventDefault();
      at = [clamp(at[0] + step[0], 0, rows.length - 1), clamp(at[1] + step[1], 0, columns.length - 1)];
      tell();
    }
    if ((e.key === "Enter" || e.key === " ") && choose) {
      e.preventDefault();
      choose(at[0]);
    }
  });
  const tops = el(
    "div",
    { class: "tops" },
    px < 13
      ? null
      : columns.map((c) =>
          el("span", { class: breadth(c) <= px ? "flat" : "", style: { width: px + "px" } }, token(c)),
        ),
  );
  const side = (r, i) =>
    choose
      ? el(
          "button",
          {
            class: chosen === i ? "on" : "",
            "aria-pressed": String(chosen === i),
            "data-k": `side${key}${i}`,
            style: { height: py + "px" },
            onclick: () => choose(i),
          },
          token(r),
        )
      : el("span", { style: { height: py + "px" } }, token(r));
  const sides = el("div", { class: "sides" }, py < 13 ? null : rows.map(side));
  return el(
    "div",
    { class: "scroll" },
    el(
      "div",
      { class: "heat", style: { "grid-template-columns": "auto auto" } },
      el("span"),
      tops,
      sides,
      canvas,
    ),
  );
}
// choose: called with the guess whose name is clicked.
function bars(guesses, said, choose, key = "rival") {
  return el(
    "div",
    { class: "bars rove" },
    guesses.map((guess, k) => {
      const [name, p] = guess,
        on = name === said ? " said" : "",
        rival = {
          class: "rival",
          "data-k": key + k,
          "aria-pressed": String(name === said),
          onclick: () => choose(guess),
        };
      return [
        choose ? el("button", rival, token(name, on)) : token(name, on),
        el(
          "div",
          { class: "track" },
          el("span", { class: "fill" + on, style: { width: clamp(p, 0, 1) * 100 + "%" } }),
        ),
        el("span", { class: "number" + on }, fixed(p)),
      ];
    }),
  );
}
const act = (key, label, onclick, attrs) => el("button", { "data-k": key, onclick, ...attrs }, label);
const firstOf = (values) =>
  [...values.slice(0, 8).map((x) => fixed(x, 2)), values.length > 8 ? "…" : ""].join("  ");
const checkbox = (key, text, checked, onchange) =>
  el("label", {}, el("input", { type: "checkbox", "data-k": key, checked, onchange }), text);
// A list to choose from: pairs of a value and its text.
function choice(key, pairs, chosen, choose, attrs) {
  const option = ([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text),
    onchange = (e) => choose(e.target.value);
  return el("select", { "data-k": key, onchange, ...attrs }, pairs.map(option));
}
// Plays or pauses: `next` gives the changes of each step, or nothing at the end.
function tick(every, next) {
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    render();
  };
  if (timer) return stop();
  timer = setInterval(() => {
    const changes = next();
    if (changes) set(changes);
    else stop();
  }, every);
  render();
}
// A formula by its name, as MathML that was made with the page.
const formula = (name) => document.getElementById(`formula-${name}`).content.cloneNode(true);
const tokenRow = (name, children) =>
  el("div", { class: "tokens rove" }, name ? el("span", { class: "name" }, name) : null, children);
const breadth = (s) => [...visible(s)].reduce((n, c) => n + (c.codePointAt(0) > 0x2e7f ? 15 : 9), 0);
const chip = (s) => el("span", { class: "chip" }, token(s));
const titled = (title, ...children) => el("div", {}, el("h2", {}, title), children);
// A table that scrolls by itself: heads are texts or elements, rows are elements.
function table(heads, rows) {
  const head = heads.filter((x) => x !== null).map((text) => el("th", { scope: "col" }, text)),
    parts = [el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)];
  return el("div", { class: "scroll", tabindex: 0 }, el("table", {}, parts));
}
const tableRow = (name, ...cells) => el("tr", {}, el("th", { scope: "row" }, name), cells);
const numberCell = (text, attrs) => el("td", { class: "number", ...attrs }, text);
const note = (text) => el("p", { class: "note" }, text);
function strip(values, px = 8) {
  const most = Math.max(...values.map(Math.abs), 1e-9),
    canvas = el("canvas", {
      class: "strip",
      role: "img",
      "aria-label":
        values
          .slice(0, 8)
          .map((v) => fixed(v, 2))
          .join(", ") + " …",
      style: { width: px * values.length + "px" },
    });
  return paint(canvas, 1, values.length, (_, j) => values[j] / most, true);
}
// A token, or a patch of the image as its pixels, which stand once for all of them.
let patched = null;
function tokenOrPatch(name, k, sequence) {
  if (sequence !== "image" || k < D.picture.first) return token(name);
  const [rows, columns] = D.picture.grid,
    at = k - D.picture.first,
    percent = (n, most) => `${(100 * n) / Math.max(most - 1, 1)}%`;
  if (patched !== D.picture)
    document.documentElement.style.setProperty("--picture", `url(data:image/png;base64,${(patched = D.picture).png})`);
  const style = {
    "background-size": `${100 * columns}% ${100 * rows}%`,
    "background-position": `${percent(at % columns, columns)} ${percent(Math.floor(at / columns), rows)}`,
  };
  return el("span", { class: "patch", role: "img", "aria-label": name, style });
}
// Weights over the patches of the image, laid over it, or shares in colours of their signs; a spectrogram is one row.
function overlay(weights, px, label, click, isSigned = false) {
  const [rows, columns] = D.picture.grid,
    first = D.picture.first,
    py = Math.round(px * Math.max(rows / columns, 1 / 3)),
    canvas = el("canvas", { class: "picture", width: px, height: py, role: "img", "aria-label": label });
  const g = canvas.getContext("2d"),
    image = new Image();
  const most = Math.max(...weights.slice(first).map(Math.abs), 1e-9),
    tint = (w) => `rgba(${css(w < 0 ? "--red" : "--blue")}, ${0.8 * Math.abs(w)})`;
  image.onload = () => {
    g.imageSmoothingEnabled = false;
    g.drawImage(image, 0, 0, px, py);
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) {
        const w = weights[first + i * columns + j] / most,
          x = Math.round((j * px) / columns),
          y = Math.round((i * py) / rows),
          x2 = Math.round(((j + 1) * px) / columns),
          y2 = Math.round(((i + 1) * py) / rows);
        for (const colour of isSigned ? [tint(w)] : [`rgba(0,0,0,${0.72 * (1 - w)})`, tint(0.6 * w)]) {
          g.fillStyle = colour;
          g.fillRect(x, y, x2 - x, y2 - y);
        }
        if (S.patch === first + i * columns + j && click) {
          g.strokeStyle = css("--hot");
          g.lineWidth = 3;
          g.strokeRect(x + 1, y + 1, x2 - x - 2, y2 - y - 2);
        }
      }
  };
  image.src = "data:image/png;base64," + D.picture.png;
  if (click) {
    canvas.tabIndex = 0;
    canvas.dataset.k = "patch";
    canvas.addEventListener("keydown", (e) => {
      const step = { ArrowUp: -columns, ArrowDown: columns, ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (step) {
        e.preventDefault();
        click(first + clamp(Math.max(S.patch - first, 0) + step, 0, rows * columns - 1));
      }
    });
  }
  if (click)
    canvas.addEventListener("click", (e) => {
      const r = canvas.getBoundingClientRect();
      click(
        first +
          Math.floor(((e.clientY - r.top) / r.height) * rows) * columns +
          Math.floor(((e.clientX - r.left) / r.width) * columns),
      );
    });
  return canvas;
}
