// Screen 8: the laboratory.  Vectors move from one sentence to another, or are taken out; what a vector means.

// A patch in the address is NAME@POSITION<SOURCE: a vector (or, of NAME:HEAD, the output of a head) from position
// SOURCE of the other sentence, or "zero", "mean", "noise"; "*" is every position.  Numbers that were typed are
// NAME@POSITION.DIMENSION=NUMBER,NUMBER,…
const PATCH = /^(.+?)(?::(\d+))?@(\d+|\*)(?:<(\w+)|\.(\d+)=(.+))$/;
const MOST_POSITIONS = 24;
const NOISE_SEED = 1;
const LAB = { from: -1, map: null, heads: null, induction: null, key: "" };

// Vectors of every module for a text, by the model without patches; the last few are kept.
const RECORDED = new Map();
function recordedOf(texts) {
  const { patches, ...changes } = live.changes([]),
    key = JSON.stringify([texts, changes, live.decoding()]);
  if (!RECORDED.has(key)) {
    if (RECORDED.size > 4) RECORDED.clear();
    RECORDED.set(key, transduce.model.explain(texts, { changes, decoding: live.decoding() }));
  }
  return RECORDED.get(key);
}
const donorTexts = () => [S.donor || Object.values(EXAMPLES[(S.example + 1) % EXAMPLES.length].inputs)[0]];

// A patch as the network takes it: { name, position, numbers } for each position.
function patchOf(text) {
  const parts = PATCH.exec(text);
  if (!parts) return [];
  const [, module, head, place, source, dimension, typed] = parts;
  if (typed) {
    const from = Number(dimension),
      numbers = typed.split(",").map((number, k) => [from + k, Number(number)]);
    return [{ name: module, position: Number(place), numbers: Object.fromEntries(numbers) }];
  }
  const name = head ? `${module}.heads.mixed` : module,
    own = recordedOf(live.texts()).recording?.outputs[name];
  if (!own) return [];
  const other = /^\d+$/.test(source) ? (recordedOf(donorTexts()).recording?.outputs[name] ?? []) : own,
    stack = transduce.facts.stacks[module.split(".")[0]],
    [from, to] = head ? [(head - 1) * stack.d_head, head * stack.d_head] : [0, own[0].length],
    positions = place === "*" ? [...own.keys()] : [Number(place)];
  return positions.flatMap((position) => {
    if (!own[position]) return [];
    const vector = otherVector(source, own, other, place === "*" ? position : Number(source), position);
    return vector ? [{ name, position, numbers: sliced(vector, from, to) }] : [];
  });
}
const sliced = (vector, from, to) =>
  Object.fromEntries(Array.from({ length: to - from }, (_, c) => [from + c, vector[from + c]]));
function otherVector(source, own, other, from, position) {
  const mean = () => own[0].map((_, c) => own.reduce((sum, vector) => sum + vector[c], 0) / own.length);
  if (source === "zero") return own[0].map(() => 0);
  if (source === "mean") return mean();
  if (source === "noise") {
    const vector = own[position],
      deviation = Math.sqrt(dot(vector, vector) / vector.length),
      draw = uniforms(NOISE_SEED + position);
    return vector.map((v) => v + deviation * Math.sqrt(-2 * Math.log(1 - draw())) * Math.cos(2 * Math.PI * draw()));
  }
  return other[from];
}
// A patch in words.
function patchName(text) {
  const [, module, head, place, source, dimension, typed] = PATCH.exec(text) ?? [],
    at = place === "*" ? t("allPositions") : `${Number(place) + 1}`;
  if (!module) return text;
  const name = moduleName(module) + (head ? ` · ${t("head")} ${head}` : "");
  if (typed) return `${name} · ${at} · ${Number(dimension) + 1} := ${typed.split(",").slice(0, 2).join(", ")}${typed.includes(",") ? " …" : ""}`;
  const from = /^\d+$/.test(source) ? `${isolated(donorTexts()[0])} ${Number(source) + 1}` : t(`way_${source}`);
  return `${name} · ${at} ← ${from}`;
}
function moduleName(module) {
  const [side, , layer, kind] = module.split("."),
    words = { self_attention: side === "encoder" ? "selfAttention" : "maskedSelf", recurrence: "recurrence", cross_attention: "crossAttention", feed_forward: "feedForward" },
    last = module.split(".").at(-1),
    [of, vector] = module.split(".heads.");
  if (vector) return `${headsName(of)} ${{ query: "q", key: "k", value: "v", mixed: t("way_mixed") }[vector]}`;
  if (last === "embedding_norm") return `${t(side)} · ${t("embedding")}`;
  if (layer === undefined) return `${t(side)} · ${t("wayOut")}`;
  return `${t(side)} · ${t("layer")} ${Number(layer) + 1}${kind ? ` · ${t(words[kind])}` : ""}`;
}
const headsName = (name) => `${t(kindOf({ name }).kind)} ${kindOf({ name }).layer + 1}`;
// Puts a patch in; the one before at the same place goes.
function addPatch(text) {
  const place = text.split(/[<=]/)[0],
    rest = listed("patches").filter((other) => other.split(/[<=]/)[0] !== place);
  live.change({ patches: [...rest, text].join(" ") });
}

// Modules whose vectors move: the embedding, each sublayer and each layer of a stack.
function modulesOf(side) {
  const stack = transduce.facts.stacks[side];
  if (!stack) return [];
  const recurs = stack.kind === "ssru",
    kinds = [recurs ? "recurrence" : "self_attention", ...(side === "decoder" && transduce.facts.stacks.encoder ? ["cross_attention"] : []), "feed_forward"],
    layers = Array.from({ length: stack.n_layers }, (_, l) => `${side}.layers.${l}`);
  return [...(recurs ? [] : [`${side}.embedding_norm`]), ...layers.flatMap((layer) => [...kinds.map((kind) => `${layer}.${kind}`), layer])];
}
const tokensAt = (explanation, module) => {
  const encoder = module.startsWith("encoder"),
    names = explanation.sequences[encoder ? "source" : "read"] ?? [],
    count = explanation.recording?.outputs[module]?.length ?? 0;
  return names.slice(0, count);
};

function lab() {
  const own = recordedOf(live.texts()),
    other = recordedOf(donorTexts()),
    modules = ["encoder", "decoder"].flatMap(modulesOf);
  if (!modules.includes(S.module)) S.module = modules[0];
  return [
    note(t("labNote")),
    labMove(own, other, modules),
    labMap(own, other),
    labHeads(),
    labPairs(),
    labMeaning(own),
  ];
}

// Two sentences side by side: a vector goes by drag, or by two clicks, from the upper one to the lower one.
function labMove(own, other, modules) {
  const [from, to] = [tokensAt(other, S.module), tokensAt(own, S.module)],
    offset = (explanation, tokens) => (explanation.recording?.outputs[S.module]?.length ?? 0) - tokens.length,
    [skipped, ownSkipped] = [offset(other, from), offset(own, to)],
    moves = S.way === "other",
    put = (j, source) => addPatch(`${S.module}@${j + ownSkipped}<${source}`);
  const typed = el("input", { type: "text", class: "typed small", "data-k": "donor", value: donorTexts()[0], "aria-label": t("donor"), spellcheck: false, onchange: (e) => live.change({ donor: e.target.value.trim(), patches: "" }) });
  const giver = (name, j) =>
    el(
      "button",
      {
        class: "chip",
        draggable: "true",
        "data-k": `from${j}`,
        "aria-pressed": String(LAB.from === j),
        ondragstart: (e) => e.dataTransfer.setData("text/plain", String(j)),
        onclick: () => {
          LAB.from = LAB.from === j ? -1 : j;
          render();
        },
      },
      token(name),
    );
  const taker = (name, j) => {
    const place = `${S.module}@${j + ownSkipped}`,
      patched = listed("patches").some((text) => text.startsWith(place + "<"));
    const take = (k) => {
      if (moves && k < 0) return say(t("labChoose"));
      put(j, moves ? k + skipped : S.way);
    };
    return el(
      "button",
      {
        class: "chip" + (patched ? " now" : ""),
        "data-k": `to${j}`,
        ondragover: (e) => moves && e.preventDefault(),
        ondrop: (e) => {
          e.preventDefault();
          take(Number(e.dataTransfer.getData("text/plain")));
        },
        onclick: () => take(LAB.from),
      },
      token(name),
    );
  };
  const ways = ["other", "zero", "mean", "noise"].map((way) => [way, t(`way_${way}`)]);
  return el(
    "section",
    {},
    el("h2", {}, t("labMove")),
    el(
      "div",
      { class: "row" },
      el("label", {}, t("labVector"), " ", choice("module", modules.map((name) => [name, moduleName(name)]), S.module, (module) => set({ module }))),
      el("label", {}, t("labWay"), " ", choice("way", ways, S.way, (way) => set({ way }))),
    ),
    el("label", { class: "row" }, t("donor"), typed, el("span", { class: "note" }, "→ ", isolated(other.answer))),
    moves ? tokenRow(t("labFrom"), from.map(giver)) : null,
    tokenRow(t("labTo"), to.map(taker)),
    el("p", {}, t("labAnswer", isolated(own.answer), isolated(D.answer))),
  );
}

// The first step at which the answers differ, or the step chosen, where they differ there.
function stepsApart(own, other) {
  const count = Math.min(own.steps.length, other.steps.length),
    apart = Array.from({ length: count }, (_, k) => k).filter((k) => own.steps[k].id !== other.steps[k].id);
  return apart.includes(S.step) ? S.step : (apart[0] ?? -1);
}
// Every vector in turn: how much of the difference of logits comes back (or, of another way, is lost).
function labMap(own, other) {
  const moves = S.way === "other",
    step = moves ? stepsApart(own, other) : clamp(S.step, 0, own.steps.length - 1),
    key = JSON.stringify([live.texts(), donorTexts(), S.way, S.rows, step, live.changes([])]);
  const rows = choice("rows", ["layers", "sublayers", "heads"].map((kind) => [kind, t(`rows_${kind}`)]), S.rows, (kind) => set({ rows: kind }));
  const title = el("h2", {}, t("labMap"));
  if (step < 0) return el("section", { "data-point": "map" }, title, note(t("labAlike")));
  const find = (e) => {
    e.target.disabled = true;
    setTimeout(() => {
      LAB.map = patchMap(own, other, step, moves);
      LAB.key = key;
      render();
    }, 20);
  };
  const names = moves ? [isolated(other.steps[step].written), isolated(own.steps[step].written)] : [isolated(own.steps[step].written), isolated(own.steps[step].guesses.find(([, , id]) => id !== own.steps[step].id)[0])];
  return el(
    "section",
    { "data-point": "map" },
    title,
    note(t(moves ? "labMapNote" : "labMapLost", step + 1, ...names)),
    el("div", { class: "row" }, el("label", {}, t("labRows"), " ", rows), act("map", t("labFind"), find)),
    LAB.key === key ? LAB.map.map(({ title, rows, columns }) => mapTable(title, rows, columns)) : null,
  );
}
function mapTable(title, rows, columns) {
  const most = Math.max(1, greatestOf(rows.flatMap(([, cells]) => cells.map(({ share }) => share))));
  const cell = ({ text, share }, k) =>
    el("td", { class: "number", style: tinted(share, most) }, act(`map${text}`, fixed(share, 2), () => addPatch(text), { class: "bare", "aria-label": `${patchName(text)}: ${fixed(share, 2)}` }));
  return titled(title, table([t("labVector"), ...columns.map((name) => (typeof name === "number" ? name : token(name)))], rows.map(([name, cells]) => tableRow(name, cells.map(cell)))));
}
function patchMap(own, other, step, moves) {
  const texts = live.texts(),
    changes = live.changes([]),
    ids = (explanation) => explanation.steps.map(({ id }) => id),
    id = moves ? other.steps[step].id : own.steps[step].id,
    rival = moves ? own.steps[step].id : topOf(own.recording.outputs.head.at(-own.steps.length + step), 2).find((x) => x !== id),
    row = transduce.model.rowOf(texts, ids(own), step),
    apart = (logits) => logits[id] - logits[rival],
    before = apart(row(changes)),
    goal = moves ? apart(transduce.model.rowOf(donorTexts(), ids(other), step)(changes)) : 0,
    share = (text) => {
      const now = apart(row({ ...changes, patches: patchOf(text) }));
      return moves ? (now - before) / (goal - before) : now - before;
    };
  return ["encoder", "decoder"]
    .filter((side) => transduce.facts.stacks[side])
    .map((side) => {
      const names = side === "encoder" ? own.sequences.source : own.sequences.read,
        vectors = own.recording.outputs[`${side}.embedding_norm`].length,
        skipped = vectors - names.length,
        most = side === "encoder" ? vectors : own.first_step + step + 1 + skipped;
      if (S.rows === "heads") {
        const heads = transduce.facts.stacks[side].n_heads,
          rows = modulesOf(side)
            .filter((module) => module.endsWith("attention"))
            .map((module) => [
              headsName(module),
              Array.from({ length: heads }, (_, head) => {
                const text = `${module}:${head + 1}@*<${moves ? 0 : S.way}`;
                return { text, share: share(text) };
              }),
            ]);
        return { title: t(side), rows, columns: Array.from({ length: heads }, (_, head) => head + 1) };
      }
      const shown = [...names.keys()].filter((j) => j + skipped < most).slice(-MOST_POSITIONS),
        modules = modulesOf(side).filter((module) => (module.split(".").length === 4) === (S.rows === "sublayers")),
        rows = modules.map((module) => [
          moduleName(module),
          shown.map((j) => {
            const place = j + skipped,
              text = `${module}@${place}<${moves ? place : S.way}`;
            return { text, share: share(text) };
          }),
        ]);
      return { title: t(side), rows, columns: shown.map((j) => names[j]) };
    });
}

// Each head by its name, and what is other without it.
function labHeads() {
  const key = `${live.computed}`,
    ready = LAB.heads?.key === key;
  const find = (e) => {
    e.target.disabled = true;
    setTimeout(() => {
      LAB.heads = { key, rows: headUses() };
      render();
    }, 20);
  };
  const row = ({ name, pattern, induction, text, share, out }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, act(`use${out}`, name, () => live.toggle("outHeads", out), { "aria-pressed": String(live.isOut("outHeads", out)) })),
      el("td", {}, pattern),
      numberCell(induction === null ? "—" : fixed(induction, 2)),
      el("td", {}, text),
      numberCell(fixed(share, 2)),
    );
  return el(
    "section",
    { "data-point": "uses" },
    el("h2", {}, t("labHeads")),
    note(t("labHeadsNote")),
    ready ? null : el("p", {}, act("uses", t("labFind"), find)),
    ready ? table([t("head"), t("labNamed"), t("labInduction"), t("labWithout"), t("labLeast")], LAB.heads.rows.map(row)) : null,
  );
}
function headUses() {
  const ids = D.steps.map(({ id }) => id),
    changes = live.changes(),
    rows = transduce.model.rowsOf(live.texts(), ids),
    best = (logits) => topOf(logits, 1)[0],
    whole = rows(changes),
    before = whole.map((logits, k) => [best(logits), softmax(logits)[ids[k]]]),
    induction = inductionScores();
  return D.attention.flatMap((a) =>
    a.patterns.map(([pattern, value], head) => {
      const out = `${a.name}:${head + 1}`,
        logits = rows({ ...changes, heads: [...changes.heads, out] }),
        other = logits.findIndex((scores, k) => best(scores) !== before[k][0]),
        shares = logits.map((scores, k) => softmax(scores)[ids[k]] / before[k][1]),
        written = other < 0 ? "" : isolated(transduce.model.namesOfOutput([best(logits[other])])[0]);
      return {
        out,
        name: headName(a, head),
        pattern: `${t(pattern)} ${value.toFixed(2)}`,
        induction: induction[a.name]?.[head] ?? null,
        share: Math.min(...shares),
        text: other < 0 ? t("labNothing") : t("labChanges", other + 1, written),
      };
    }),
  );
}
// Mean weight on the token behind the one before of the same kind, in random tokens that stand twice.
const REPEATED = 12;
function inductionScores() {
  const { model } = transduce,
    { network } = model,
    tokenizer = model.tokenizers.at(-1),
    draw = uniforms(NOISE_SEED),
    once = Array.from({ length: REPEATED }, () => SPECIAL.length + Math.floor(draw() * (tokenizer.size - SPECIAL.length))),
    read = [BOS, ...once, ...once],
    source = [...model.tokenizers[0].encode(live.texts()[0]), EOS],
    [, recording] = network.record(() => model.whole(read, network.stacks.encoder ? network.project(network.encode(source)) : undefined));
  return mapped(recording.attention, (maps, name) =>
    name.endsWith("cross_attention") || name.startsWith("encoder")
      ? null
      : maps.map((map) => once.reduce((sum, _, k) => sum + map[1 + REPEATED + k][2 + k], 0) / REPEATED),
  );
}

// What a vector means: tokens near an embedding or a state, the logit lens of a state, what a head writes.
function tableOf(side) {
  const { arrays } = transduce.model.network,
    front = side === "decoder" && transduce.facts.stacks.encoder ? "target_front_end" : "front_end",
    { shape, numbers } = arrays[`${front}.embedding.weight`];
  return Array.from({ length: shape[0] }, (_, id) => numbers.subarray(id * shape[1], (id + 1) * shape[1]));
}
const cosineOf = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b) || 1);
// Pairs of a token and its cosine, the nearest first.
function neighboursOf(side, vector, count, without = -1) {
  const tokenizer = side === "encoder" ? transduce.model.tokenizers[0] : transduce.model.tokenizers.at(-1),
    near = tableOf(side)
      .slice(0, tokenizer.size)
      .map((row, id) => (id < SPECIAL.length || id === without ? -Infinity : cosineOf(row, vector)));
  return topOf(near, count).map((id) => [tokenizer.token(id), near[id], id]);
}
function labMeaning(own) {
  const side = S.module.startsWith("encoder") ? "encoder" : "decoder",
    names = tokensAt(own, S.module),
    vectors = own.recording?.outputs[S.module] ?? [],
    j = (S.place = clamp(S.place, 0, Math.max(names.length - 1, 0))),
    state = vectors[j + vectors.length - names.length];
  if (!state) return null;
  const chips = names.map((name, k) => act(`state${k}`, token(name), () => set({ place: k }), { "aria-pressed": String(k === j) })),
    decodes = side === "decoder" && S.module !== "decoder.embedding_norm",
    lens = () => {
      const { model } = transduce,
        { epsilon } = model.network.stacks.decoder,
        logits = model.network.unpatched(() => model.logits(model.network.norm([state], "decoder.norm", epsilon)))[0];
      return likeliest(softmax(logits), (ids) => model.namesOfOutput(ids), 6);
    };
  const id = S.token >= 0 ? S.token : -1;
  return el(
    "section",
    { "data-point": "meaning" },
    el("h2", {}, t("labMeaning")),
    note(t("labMeaningNote", moduleName(S.module))),
    tokenRow(t(side), chips),
    el(
      "div",
      { class: "two" },
      titled(t("labNear"), bars(neighboursOf(side, state, 8))),
      decodes ? titled(t("labLens"), bars(lens())) : null,
      embeddingPanel(side, id),
    ),
    headWrites(own),
  );
}
// The embeddings of a vocabulary: neighbours of one, and a map of them.
function embeddingPanel(side, chosen) {
  const tokenizer = side === "encoder" ? transduce.model.tokenizers[0] : transduce.model.tokenizers.at(-1),
    all = Array.from({ length: tokenizer.size - SPECIAL.length }, (_, k) => k + SPECIAL.length),
    shown = all.slice(0, 2000),
    id = all.includes(chosen) ? chosen : all[0],
    near = neighboursOf(side, tableOf(side)[id], 8, id),
    options = shown.map((k) => [k, visible(tokenizer.token(k))]);
  return el(
    "div",
    {},
    el("h2", {}, t("labEmbedding")),
    el("label", { class: "row" }, t("token"), choice("token", options, id, (k) => set({ token: Number(k) }))),
    bars(near, null, ([, , k]) => set({ token: k }), "near"),
    all.length <= 120 ? embeddingMap(side, all, id) : embeddingMap(side, [id, ...neighboursOf(side, tableOf(side)[id], 30, id).map(([, , k]) => k)], id),
  );
}
// The two directions in which vectors differ most, by power iteration.
function principal(vectors) {
  const mean = vectors[0].map((_, c) => vectors.reduce((sum, v) => sum + v[c], 0) / vectors.length),
    rows = vectors.map((v) => Float64Array.from(v, (x, c) => x - mean[c])),
    axes = [];
  for (let n = 0; n < 2; n++) {
    let axis = Float64Array.from(mean, (_, c) => Math.cos(1 + c * (n + 1)));
    for (let round = 0; round < 60; round++) {
      const next = new Float64Array(axis.length);
      for (const row of rows) axpy(next, dot(axis, row), row);
      for (const before of axes) axpy(next, -dot(before, next), before);
      const length = Math.sqrt(dot(next, next)) || 1;
      axis = next.map((v) => v / length);
    }
    axes.push(axis);
  }
  return rows.map((row) => axes.map((axis) => dot(axis, row)));
}
function embeddingMap(side, ids, chosen) {
  const tokenizer = side === "encoder" ? transduce.model.tokenizers[0] : transduce.model.tokenizers.at(-1),
    table = tableOf(side),
    unit = (v) => v.map((x) => x / (Math.sqrt(dot(v, v)) || 1)),
    points = principal(ids.map((id) => unit(table[id]))),
    size = 340,
    extent = (axis) => [Math.min(...points.map((p) => p[axis])), Math.max(...points.map((p) => p[axis]))],
    [[left, right], [low, high]] = [extent(0), extent(1)],
    svg = el("svg", { viewBox: `0 0 ${size} ${size}`, class: "whole embeddings", role: "img", "aria-label": t("labPlane") });
  ids.forEach((id, k) => {
    const x = 20 + ((size - 40) * (points[k][0] - left)) / (right - left || 1),
      y = size - 14 - ((size - 28) * (points[k][1] - low)) / (high - low || 1);
    svg.append(el("text", { x, y, "text-anchor": "middle", class: id === chosen ? "here" : "small muted" }, visible(tokenizer.token(id))));
  });
  return [note(t("labPlane")), svg];
}
// What each head writes at the chosen step, by the output layer: three tokens that it favours, three against.
function headWrites(own) {
  const step = clamp(S.step, 0, own.steps.length - 1),
    row = own.recording.outputs.head.length - own.steps.length + step,
    { model } = transduce;
  model.network.change(live.changes([]));
  const straight = new Credit(model.network, own.recording),
    names = (ids) => ids.map((id) => token(model.namesOfOutput([id])[0])),
    spaced = (parts) => parts.flatMap((part) => [part, " "]);
  const body = () =>
    own.attention
      .filter((a) => a.name.startsWith("decoder"))
      .flatMap((a) =>
        a.patterns.map((_, head) => {
          const logits = straight.writtenBy(a.name, head, row);
          return tableRow(headName(a, head), el("td", {}, spaced(names(topOf(logits, 3)))), el("td", {}, spaced(names(topOf(logits.map((v) => -v), 3)))));
        }),
      );
  const panel = el("details", { ontoggle: (e) => e.target.open && !e.target.filled && ((e.target.filled = true), e.target.append(table([t("head"), t("labFor"), t("labAgainst")], body()))) }, el("summary", { "data-k": "headWrites" }, t("labHeadWrites", step + 1, isolated(own.steps[step].written))));
  return panel;
}
