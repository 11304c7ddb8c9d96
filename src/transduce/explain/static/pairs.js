// Two heads at a time: both taken out together, and the path of one into the other.

const PAIRS = { key: "", rows: null };

// Patches that hold the outputs of all heads; `change` may change those of an attention at a position.
const heldHeads = (recording, change) =>
  Object.keys(recording.attention).flatMap((name) => {
    const key = `${name}.heads.mixed`;
    return recording.outputs[key].map((vector, position) => ({ name: key, position, numbers: change(name, { ...vector }) }));
  });
// The attention, the key of its output, and the dimensions of a head NAME:HEAD.
function dimensionsOf(out) {
  const [name, head] = out.split(":"),
    { d_head } = transduce.facts.stacks[name.split(".")[0]];
  return [name, `${name}.heads.mixed`, Array.from({ length: d_head }, (_, c) => (head - 1) * d_head + c)];
}
// Change of logit(id) - logit(rival) at a step where head `receiver` alone reads without head `sender`; all other
// heads are held, feed-forward layers follow (path patching, Wang et al. 2023).
function headPath(sender, receiver, written, step, id, rival) {
  const { model } = transduce,
    changes = live.changes([]),
    texts = live.texts(),
    row = (patches) => model.rowOf(texts, written, step)({ ...changes, patches }),
    apart = (logits) => logits[id] - logits[rival],
    [logits, clean] = model.network.record(() => row([])),
    [giver, , out] = dimensionsOf(sender),
    [taker, key, into] = dimensionsOf(receiver);
  const held = heldHeads(clean, (name, numbers) => {
    if (name === giver) for (const c of out) numbers[c] = 0;
    if (name === taker) for (const c of into) delete numbers[c];
    return numbers;
  });
  const [, told] = model.network.record(() => row(held)),
    patches = told.outputs[key].map((vector, position) => ({ name: key, position, numbers: sliced(vector, into[0], into.at(-1) + 1) }));
  return apart(row(patches)) - apart(logits);
}

// Every other head beside the chosen one: what both do together, beyond the sum of each alone, and the path from
// the one that stands first.
function pairRows(chosen, step) {
  const ids = D.steps.map(({ id }) => id),
    changes = live.changes(),
    id = ids[step],
    row = transduce.model.rowOf(live.texts(), ids, step),
    rival = topOf(row(changes), 2).find((other) => other !== id),
    without = (...heads) => {
      const logits = row({ ...changes, heads: [...changes.heads, ...heads] });
      return logits[id] - logits[rival];
    },
    whole = without(),
    alone = without(chosen) - whole;
  const numberOf = (out) => D.attention.findIndex(({ name }) => name === out.split(":")[0]),
    pathOf = (ends) => (numberOf(ends[0]) === numberOf(ends[1]) ? 0 : headPath(...ends, ids, step, id, rival));
  return headsShown().flatMap(([out, name]) => {
    if (out === chosen) return [];
    const single = without(out) - whole,
      both = without(chosen, out) - whole,
      path = changes.patches.length ? [] : [pathOf(numberOf(out) < numberOf(chosen) ? [out, chosen] : [chosen, out])];
    return [{ name, numbers: [single, both, both - single - alone, ...path] }];
  });
}
const headsShown = () => D.attention.flatMap((a) => a.patterns.map((_, head) => [`${a.name}:${head + 1}`, headName(a, head)]));
function labPairs() {
  const names = headsShown(),
    chosen = names.some(([out]) => out === S.pair) ? S.pair : names.at(-1)[0],
    step = clamp(S.step, 0, D.steps.length - 1),
    key = `${live.computed} ${chosen} ${step}`;
  const find = (e) => {
    e.target.disabled = true;
    setTimeout(() => {
      Object.assign(PAIRS, { key, rows: pairRows(chosen, step) });
      render();
    }, 20);
  };
  const most = PAIRS.key === key ? greatestOf(PAIRS.rows.flatMap(({ numbers }) => numbers)) : 1,
    row = ({ name, numbers }) => tableRow(name, numbers.map((x) => numberCell(signed(x), { style: tinted(x, most) }))),
    heads = ["labAlone", "labBoth", "labBeyond", "labPath"].map((word) => t(word));
  return el(
    "section",
    { "data-point": "pairs" },
    el("h2", {}, t("labPairs")),
    note(t("labPairsNote", step + 1, isolated(D.steps[step].written))),
    el("div", { class: "row" }, el("label", {}, t("head"), " ", choice("pair", names, chosen, (pair) => set({ pair }))), act("pairs", t("labFind"), find)),
    PAIRS.key === key ? table([t("head"), ...heads.slice(0, PAIRS.rows[0]?.numbers.length)], PAIRS.rows.map(row)) : null,
  );
}
