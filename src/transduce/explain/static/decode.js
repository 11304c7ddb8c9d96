// Beam search, greedy search and sampling, with the tree of hypotheses.

const DEAD = -Infinity;
const SAMPLED_RIVALS = 4;
const MOST_NODES = 1500;

function logSoftmax(logits) {
  const most = logits.reduce((a, b) => Math.max(a, b), DEAD),
    sum = logits.reduce((a, b) => a + Math.exp(b - most), 0);
  return Float64Array.from(logits, (v) => v - most - Math.log(sum));
}
// Indices of the greatest numbers, best first; ties go to the lower index.
function topOf(numbers, count) {
  const best = [];
  for (let k = 0; k < numbers.length; k++) {
    if (best.length === count && !(numbers[k] > numbers[best.at(-1)])) continue;
    let at = best.length;
    while (at > 0 && numbers[k] > numbers[best[at - 1]]) at--;
    best.splice(at, 0, k);
    if (best.length > count) best.pop();
  }
  return best;
}
function lengthPenalty({ length_penalty, alpha }) {
  if (length_penalty === "none") return () => 1;
  if (length_penalty === "mean") return (length) => Math.max(length, 1);
  if (length_penalty === "gnmt") return (length) => ((5 + length) / 6) ** alpha;
  throw new Error(`no length penalty ${length_penalty}`);
}
// Probabilities to draw from: temperature, then the k likeliest, then nucleus, then a share of the greatest.
function drawnFrom(logProbs, { temperature, top_k, top_p, min_p }) {
  let scaled = logProbs.map((v) => v / temperature);
  const keep = (ids) => {
    const allowed = new Set(ids);
    scaled = scaled.map((v, id) => (allowed.has(id) ? v : DEAD));
  };
  if (top_k) keep(topOf(scaled, top_k));
  if (top_p < 1) {
    const shares = softmax(scaled);
    let before = 0;
    keep(
      topOf(shares, shares.length).filter((id) => {
        const inside = before < top_p;
        before += shares[id];
        return inside;
      }),
    );
  }
  if (min_p) {
    const least = Math.max(...scaled) + Math.log(min_p);
    scaled = scaled.map((v) => (v < least ? DEAD : v));
  }
  return softmax(scaled);
}

// step: hypotheses -> logits of the next token of each, whose `state` moves on.
// options: of decoding, with `limit`, `least` (tokens), `forbidden` (ids), `forced` (ids at the beginning),
// `within` (a Set of the only ids there are; null for all), `ended` (ids -> true where a text stops) and `random` (step -> a number from [0, 1)).
class Search {
  constructor(step, state, options, names) {
    this.step = step;
    this.options = options;
    this.names = names;
    this.width = options.method === "beam" ? options.beam_size : 1;
    this.penalty = lengthPenalty(options);
    this.finished = [];
    this.nodes = [{ parent: -1, token: names([BOS])[0], log_prob: 0, fate: "kept", score: null }];
    this.active = [{ ids: [], total: 0, state, node: 0 }];
  }
  run() {
    while (this.active.length) this.advance();
    const best = this.finished[0];
    if (best) this.crown(best);
    return best;
  }
  advance() {
    const length = this.active[0].ids.length,
      { limit, free_end, within } = this.options,
      full = length >= limit;
    const logits = full && free_end && length ? null : this.step(this.active);
    const listed = (row) => (within ? row.map((v, id) => (within.has(id) ? v : DEAD)) : row),
      raw = this.active.map((_, k) => (logits ? logSoftmax(listed(logits[k])) : null)),
      allowed = raw.map((row) => this.allowed(row, length, full));
    const candidates = this.options.method === "beam" ? this.beam(allowed) : this.drawn(allowed, length);
    const ends = (c) => c.id === EOS,
      ending = candidates.slice(0, this.width).filter(ends),
      going = candidates.filter((c) => !ends(c)).slice(0, this.width);
    const next = going.map(({ parent, id, total }) => ({ ids: [...parent.ids, id], total, parent, id })),
      stopped = next.filter((h) => this.options.ended?.(h.ids)),
      living = next.filter((h) => !stopped.includes(h));
    for (const h of stopped) this.finish(h.ids, h.total, length + 1, false);
    for (const c of ending) this.finish(c.parent.ids, c.total, length + 1, true);
    const bound = Math.max(DEAD, ...living.map((h) => h.total)),
      done = this.isDone(bound / this.penalty((this.options.stop === "present" ? length : limit) + 1));
    if (done && !this.finished.length)
      for (const h of this.active) this.finish(h.ids, h.total, length, false);
    this.grow(raw, done ? [] : next, full);
    this.active = done ? [] : living.map((h) => ({ ...h, state: h.parent.state.copy(), parent: null }));
  }
  // Log-probabilities of the tokens that may come; at the greatest length, and where it is forced, of one.
  allowed(row, length, full) {
    const { forbidden, least, limit, forced, free_end } = this.options;
    const only = (id) => Float64Array.from(row, (v, k) => (k === id ? v : DEAD));
    if (forced && length < forced.length) return only(forced[length]);
    if (full)
      return row && !free_end
        ? only(EOS)
        : Float64Array.from({ length: EOS + 1 }, (_, k) => (k === EOS ? 0 : DEAD));
    const open = Float64Array.from(row);
    for (const id of forbidden) open[id] = DEAD;
    if (length < Math.min(least, limit)) open[EOS] = DEAD;
    return open;
  }
  beam(allowed) {
    const count = 2 * this.width;
    return allowed
      .flatMap((row, k) =>
        topOf(row, count).map((id) => ({
          parent: this.active[k],
          id,
          total: this.active[k].total + row[id],
        })),
      )
      .filter((c) => c.total > DEAD)
      .sort((a, b) => b.total - a.total)
      .slice(0, count);
  }
  drawn([row], length) {
    const parent = this.active[0],
      shares = drawnFrom(row, this.options);
    let [at, id] = [this.options.random(length), -1];
    do at -= shares[++id];
    while (at >= 0 && id + 1 < shares.length);
    return row[id] > DEAD ? [{ parent, id, total: parent.total + row[id] }] : [];
  }
  finish(ids, total, length, ended) {
    this.finished.push({ ids, total, score: total / this.penalty(length), ended });
    this.finished.sort((a, b) => b.score - a.score);
  }
  isDone(bound) {
    const { method, stop } = this.options,
      scoreOf = (rank) => this.finished[rank - 1]?.score ?? DEAD,
      enough = this.finished.length >= this.width;
    if (method === "beam" && stop === "present")
      return (enough && bound <= scoreOf(this.width)) || bound === DEAD;
    return (enough && !(method === "beam" && stop === "exact")) || bound <= scoreOf(1);
  }

  // The tree: of each step the hypotheses that go on or end, and the best of those that are cut.
  grow(raw, survivors, full) {
    if (this.nodes.length >= MOST_NODES) return;
    const beam = this.options.method === "beam",
      rivals = beam ? 2 * this.width : SAMPLED_RIVALS + 1,
      early = this.active[0].ids.length < Math.min(this.options.least, this.options.limit),
      barred = new Set([...this.options.forbidden, ...(early ? [EOS] : [])]);
    const shown = this.active.flatMap((parent, k) => {
      if (full) return [{ parent, id: EOS, total: parent.total + (this.options.free_end ? 0 : raw[k][EOS]) }];
      const open = raw[k].map((v, id) => (barred.has(id) ? DEAD : v));
      return topOf(open, rivals).map((id) => ({ parent, id, total: parent.total + open[id] }));
    });
    const ranked = shown
      .filter((c) => c.total > DEAD)
      .sort((a, b) => b.total - a.total)
      .slice(0, rivals);
    const survivorOf = (c) => survivors.find((h) => h.parent === c.parent && h.id === c.id);
    for (const h of survivors) if (!ranked.some((c) => survivorOf(c) === h)) ranked.push(h);
    let rank = -1;
    for (const c of ranked) {
      const survivor = survivorOf(c);
      rank += !survivors.length || survivor || c.id === EOS ? 1 : 0;
      const ends = c.id === EOS && beam && rank < this.width,
        score = ends ? c.total / this.penalty(c.parent.ids.length + 1) : null;
      const fate = ends ? "ended" : survivor ? "kept" : "cut";
      if (survivor) survivor.node = this.nodes.length;
      this.add(c.parent.node, c.id, c.total, fate, score, [...c.parent.ids, c.id]);
    }
  }
  add(parent, id, total, fate, score, path) {
    this.nodes.push({ parent, token: this.names([id])[0], log_prob: total, fate, score });
    (this.paths ??= new Map()).set(path.join(), this.nodes.length - 1);
  }
  crown({ ids, total, score, ended }) {
    const path = ended ? [...ids, EOS] : ids,
      parent = this.paths?.get(path.slice(0, -1).join()) ?? 0;
    if (!path.length) return;
    if (!this.paths?.has(path.join())) this.add(parent, path.at(-1), total, "ended", null, path);
    Object.assign(this.nodes[this.paths.get(path.join())], { fate: "won", score });
  }
  tree() {
    const { method, length_penalty, alpha, coverage_penalty } = this.options;
    return { method, width: this.width, length_penalty, alpha, nodes: this.nodes, coverage_penalty };
  }
}
