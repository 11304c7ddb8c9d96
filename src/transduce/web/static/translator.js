// A translator in WebAssembly: the model of a file that `transduce export` wrote, in the native engine.
// Needs tokenizers.js before it.

const CAN_RELAX = Uint8Array.of(
  // A module with one relaxed dot product: valid where the browser has them.
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0],
  ...[65, 1, 253, 15, 65, 2, 253, 15, 253, 146, 2, 11],
);
const canRelax = () => WebAssembly.validate(CAN_RELAX);
const SENTENCE_ENDS = /[.!?。！？…;；:：]$/u;
// Characters that no blank separates from the next word, as in `transduce.text.scripts`.
const UNSPACED =
  /^[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff01-\uff60\uff66-\uff9f\u{1b000}-\u{1b16f}\u{20000}-\u{3ffff}]$/u;
const NO_MEMORY = "the engine ran out of memory; reload the page, and take a shorter text";

const NO_MODEL = "this is not a model of transduce; give the bytes of a file of `transduce export --format npm`";
const NO_SIMD = "the engine needs WebAssembly with SIMD; take a newer browser or Node";

// A file: length of its facts in 4 bytes, facts as JSON, then the weights.
function contentOf(file) {
  let length, facts, bytes;
  try {
    bytes = new Uint8Array(file.buffer ?? file, file.byteOffset ?? 0, file.byteLength);
    length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    facts = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  } catch {
    throw new TypeError(NO_MODEL);
  }
  if (facts?.format !== 1) throw new TypeError(NO_MODEL);
  const isAligned = (bytes.byteOffset + 4 + length) % 4 === 0;
  return { facts, weights: isAligned ? bytes.subarray(4 + length) : bytes.slice(4 + length) };
}

// The bytes that gzip compressed; others as they are.
async function unpacked(file) {
  const bytes = ArrayBuffer.isView(file) ? new Uint8Array(file.buffer, file.byteOffset, file.byteLength) : file;
  if (!(bytes instanceof Uint8Array) || bytes[0] !== 0x1f || bytes[1] !== 0x8b) return file;
  if (typeof DecompressionStream === "undefined") throw new TypeError(NO_SIMD);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer().catch(() => {
    throw new TypeError(NO_MODEL);
  });
}

// The code among several for one in another spelling: "de" for "DE", "de_AT" and "deu_Latn"; undefined without one.
function knownCode(name, codes) {
  const spellings = [name.replaceAll("_", "-")];
  try {
    const locale = new Intl.Locale(spellings[0]);
    spellings.push(locale.baseName, `${locale.language}-${locale.maximize().script}`, locale.language);
  } catch {
    return undefined;
  }
  const codeOf = (spelling) => codes.find((code) => code.toLowerCase() === spelling.toLowerCase());
  return spellings.map(codeOf).find((code) => code !== undefined);
}

// Functions and memory of the compiled engine; addresses are numbers.
class Engine {
  // modules: bytes of the module, `relaxed` and `plain`.
  static async load(modules) {
    const bytes = canRelax() ? modules.relaxed : modules.plain,
      nothing = new Proxy({}, { get: () => () => 0 });
    if (!WebAssembly.validate(bytes)) throw new TypeError(NO_SIMD);
    const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: nothing });
    return new Engine(instance);
  }
  constructor(instance) {
    this.call = instance.exports;
    this.call._initialize();
  }
  // Memory with these bytes in it; `work` calls `put`, and all is freed after it.
  within(work) {
    const addresses = [];
    const put = (bytes) => {
      addresses.push(this.put(bytes));
      return addresses.at(-1);
    };
    try {
      return work(put);
    } finally {
      addresses.forEach((address) => this.call.free(address));
    }
  }
  put(array) {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength),
      address = this.call.malloc(bytes.length || 1);
    if (!address) throw new RangeError(NO_MEMORY);
    new Uint8Array(this.call.memory.buffer).set(bytes, address);
    return address;
  }
  // A copy of `count` numbers.
  read(Kind, address, count) {
    return new Kind(this.call.memory.buffer, address, count).slice();
  }
}
const ints = (numbers) => Int32Array.from(numbers);

class Translator {
  // file: its bytes.  modules: bytes of the engine, `relaxed` and `plain`.
  // progress: called with the share of the weights that are loaded.
  static async load(file, modules, progress = () => {}) {
    const { facts, weights } = contentOf(await unpacked(file));
    return new Translator(facts, weights, await Engine.load(modules), progress);
  }
  constructor(facts, weights, engine, progress) {
    this.facts = facts;
    this.engine = engine;
    const tokenizers = facts.tokenizers.map(tokenizerOf);
    [this.source, this.target] = [tokenizers[0], tokenizers.at(-1)];
    this.isListed = facts.tokenizers.every(({ kind }) => kind === facts.tokenizers[0].kind && kind in LISTED);
    this.model = engine.within((put) => engine.call.engine_new(put(Uint8Array.from(facts.shape))));
    this.fill(weights, progress);
    this.shortlist = facts.shortlist && shortlistOf(weights, facts.shortlist);
  }
  fill(weights, progress) {
    const { engine, facts } = this,
      arrays = new Map(facts.arrays.map(([name, ...where]) => [name, where])),
      kept = new Map(); // addresses of tables by their places in the file: tied ones are there once
    let n = 0;
    for (const [name, [shape, , offset]] of arrays) {
      progress(n++ / arrays.size);
      const part = name.replace(/\.[^.]*$/, ""),
        bias = arrays.get(`${part}.bias`);
      if (name.endsWith(".bias") && arrays.has(`${part}.weight`)) continue;
      const put = (at) => numbers(weights, at).map((array) => array && engine.put(array)),
        table = kept.get(offset) ?? put(arrays.get(name)),
        [matrix, divisors] = table,
        [biases] = bias ? put(bias) : [0],
        [rows, columns] = [shape[0], shape[1] ?? 1].map(BigInt);
      const refused = engine.within((put) => {
        const called = put(new TextEncoder().encode(`${part}\0`));
        return engine.call.engine_load(this.model, called, matrix, biases, rows, columns, divisors);
      });
      if (refused) throw new TypeError(`weight ${name} does not fit the model`);
      // The engine packs matrices, and reads all else where it stands.
      if (/norm|\.(embedding|table)$/.test(part)) kept.set(offset, table);
      else [biases, ...(kept.has(offset) ? [] : table)].forEach((address) => engine.call.free(address));
    }
    if (!engine.call.engine_complete(this.model)) throw new TypeError("weights are missing");
  }

  // The translation of a text: text, score, log_prob, tokens, candidates, as `transduce translate --jsonl`
  // gives them.  n_best: candidates, by default one.  beam: hypotheses, by default the model's.  from, to: languages
  // of a model of several; without them tags say them, as on the command line.
  translate(text, { n_best = 1, beam = this.facts.rules.beam, from, to } = {}) {
    const parts = text.split(/(\r?\n)/),
      lines = this.lines(parts.filter((_, k) => k % 2 === 0), from, to),
      breaks = parts.filter((_, k) => k % 2 === 1);
    const pieces = lines.flatMap((line) => line.pieces);
    if (!pieces.length) return { text: "", tokens: [], score: 0, log_prob: 0, candidates: [], lines: [] };
    this.search(pieces, n_best, beam);
    const ranks = Math.min(...pieces.map((piece) => piece.hypotheses.length));
    const candidates = Array.from({ length: ranks }, (_, rank) => {
      const chosen = pieces.map((piece) => piece.hypotheses[rank]),
        written = lines.map((line) => this.joined(line.pieces.map((piece) => piece.hypotheses[rank].ids))),
        texts = written.map((ids, k) => this.written(ids, lines[k].text));
      return {
        text: texts.map((line, k) => line + (breaks[k] ?? "")).join(""),
        tokens: written.flat().map((id) => this.target.token(id)),
        score: chosen.reduce((sum, { score }) => sum + score, 0) / chosen.length,
        log_prob: chosen.reduce((sum, { log_prob }) => sum + log_prob, 0),
      };
    });
    return { ...candidates[0], candidates, lines };
  }

  // The same for a caller, without the work behind it.
  answer(text, settings) {
    const { lines: _, ...answer } = this.translate(String(text), settings);
    return answer;
  }

  // Lines with their pieces: source ids of at most the greatest length of training, the beginning of the output, and
  // `room`, the length that its limits go by.  Tags before the first line that is not blank count for all without any.
  lines(texts, from, to) {
    let first;
    const { opening = [], closing = [], endless } = this.source.facts,
      prompt = [BOS, ...(this.target.facts.opening ?? [])];
    return this.separated(texts, from, to).map(([text, near, far]) => {
      if (!text.trim()) return { text, pieces: [] };
      let ids = this.source.encode(text);
      if (near) ids = closing.length ? [...ids.slice(0, -closing.length), EOS, near] : [near, ...ids.slice(opening.length)];
      const head = this.head(ids);
      first ??= head;
      if (!head.length) ids = [...first, ...ids];
      const whole = (part) => ({ ids: endless && part.length ? part : [...part, EOS], room: part.length, prompt: far ? [BOS, far] : prompt });
      return { text, pieces: this.cut(ids, head.length ? head : first, closing.length).map(whole) };
    });
  }
  // Texts without the tags of their languages, and the ids of those.
  separated(texts, from, to) {
    const { pairs } = this.facts;
    if (!pairs) return texts.map((text) => [text]);
    const [sources, targets] = pairs,
      [known, codes] = pairs.map(Object.keys);
    let near = from ? knownCode(from, known) : known[0],
      far = to ? knownCode(to, codes) : codes.length > 1 ? "" : codes[0];
    return texts.map((line) => {
      const leading = to ? [] : (line.match(/^(?:<[^<>\s]+> ){0,2}/u)[0].match(/[^<>\s]+/gu) ?? []),
        tags = leading.filter((tag) => knownCode(tag, [...known, ...codes])),
        marks = tags.map((tag) => `<${tag}> `).join("");
      if (tags.length && line.startsWith(marks)) {
        const named = tags.map((tag) => knownCode(tag, [...known, ...codes]));
        far = named.at(-1);
        if (tags.length > 1) near = named[0];
        line = line.slice(marks.length);
      }
      if (line.trim() && !(near in sources && far in targets)) throw new RangeError(`no pair of languages; choose it, or begin the text with tags such as <${near ?? known[0]}> <${codes.find((code) => code !== near)}>`);
      return [line, sources[near], targets[far]];
    });
  }
  // head, n_last: ids that every piece begins with, and the number of those that it ends with.
  cut(ids, head, n_last) {
    const { max_source_length: most } = this.facts,
      pieces = [];
    if (ids.length <= most) return [ids];
    if (2 * head.length > most) head = [];
    const [room, tail] = [most - head.length - n_last, ids.slice(ids.length - n_last)];
    let rest = ids.slice(head.length, ids.length - n_last);
    while (rest.length > room) {
      const cut = cutOf(rest.slice(0, room + 1).map((id) => this.source.token(id)));
      pieces.push([...head, ...rest.slice(0, cut), ...tail]);
      rest = rest.slice(cut);
      if (this.source.facts.kind === "characters")
        while (rest.length > 1 && !this.source.decode(rest.slice(0, 1)).trim()) rest = rest.slice(1);
    }
    return [...pieces, [...head, ...rest, ...tail]];
  }
  // Ids of the tags, or of a language, before a text.
  head(ids) {
    const { kind, marks } = this.source.facts;
    if (marks) return ids.slice(0, Number(marks.includes(ids[0]) || (kind !== "hugging-face" && /^>>.*<<$/.test(this.source.token(ids[0])))));
    if (!this.facts.tagged) return [];
    const [tags] = this.source.decode(ids).match(/^(?:<[^<>\s]+> )*/u),
      head = this.source.encode(kind === "characters" ? tags : tags.trimEnd());
    return head.every((id, k) => id === ids[k]) ? head : [];
  }
  // Ids of a line from those of its pieces.
  joined(parts) {
    const { target } = this;
    return parts.reduce((ids, part) => {
      if (!ids.length || !part.length || target.facts.kind !== "characters") return [...ids, ...part];
      const sides = [...target.decode([ids.at(-1), part[0]])],
        blank = target.encode(" ");
      if (blank.includes(UNK) || sides.some((side) => side === " " || UNSPACED.test(side))) blank.pop();
      return [...ids, ...blank, ...part];
    }, []);
  }
  written(ids, source) {
    return oneLine(this.target.decode(ids, this.isListed ? this.source.unknown(source) : []));
  }

  // Sets `hypotheses` of each piece: its best hypotheses.
  search(pieces, nBest, beam) {
    const { call } = this.engine,
      { limits } = this.facts;
    const most = pieces.map(({ room }) => this.limit(room)),
      least = pieces.map(({ room }, k) =>
        Math.min(most[k], Math.max(limits.min_length, Math.floor(room * limits.min_length_ratio))),
      );
    const results = this.engine.within((put) => {
      const flat = (rows) => [rows.flat(), rows.map((row) => row.length)],
        arrays = [...flat(pieces.map(({ ids }) => ids)), ...flat(pieces.map(({ prompt }) => prompt)), most, least],
        addresses = arrays.map((array) => put(ints(array)));
      const lists = this.shortlist ? flat(pieces.map(({ ids }) => this.allowed(ids))) : [],
        options = put(optionsOf({ ...this.facts, rules: { ...this.facts.rules, beam } }, nBest, put(ints(this.facts.forbidden)), lists.map((list) => put(ints(list)))));
      return call.search_run(this.model, ...addresses, pieces.length, options, 0);
    });
    if (!results) throw new RangeError("too long for this model");
    try {
      if (call.search_not_a_number(results) >= 0) throw new RangeError("the scores are NaN");
      this.readResults(results, pieces);
    } finally {
      call.search_delete(results);
    }
  }
  // Target ids, ascending, that the shortlist allows for a source.
  allowed(source) {
    const { counts, ends, likely, frequent, joint } = this.shortlist,
      mask = new Uint8Array(this.facts.target_size);
    mask.fill(1, 0, SPECIAL.length);
    frequent.forEach((id) => (mask[id] = 1));
    for (const id of source) {
      likely.subarray(ends[id] - counts[id], ends[id]).forEach((other) => (mask[other] = 1));
      if (joint) mask[id] = 1;
    }
    return [...mask.keys()].filter((id) => mask[id]);
  }
  limit(length) {
    const { max_length_ratio, max_length_extra, max_target_length } = this.facts.limits;
    const limit = Math.floor(length * max_length_ratio) + max_length_extra;
    return Math.min(limit, max_target_length ?? Infinity);
  }
  readResults(results, pieces) {
    const { engine } = this,
      of = (Kind, name, count) => engine.read(Kind, engine.call[`search_${name}`](results), count),
      counts = of(Int32Array, "counts", pieces.length),
      total = counts.reduce((a, b) => a + b),
      lengths = of(Int32Array, "lengths", total),
      ids = [...of(Int32Array, "tokens", lengths.reduce((a, b) => a + b, 0))],
      [logProbs, scores] = [of(Float32Array, "log_probs", total), of(Float64Array, "scores", total)];
    let at = 0;
    pieces.forEach((piece, k) => {
      piece.hypotheses = Array.from({ length: counts[k] }, () => {
        const hypothesis = { ids: ids.splice(0, lengths[at]), log_prob: logProbs[at], score: scores[at] };
        at++;
        return hypothesis;
      });
    });
  }

  // Of each token that a piece emits, and of the end: its probability, and its attention to the source.
  attended({ ids: source, prompt }, written) {
    const { call } = this.engine,
      [n, m, v] = [prompt.length + written.length, source.length, this.facts.target_size];
    return this.engine.within((put) => {
      const state = call.state_new(this.model, put(ints(source)), put(ints([m])), 1),
        [logits, attention] = [put(new Float32Array(n * v)), put(new Float32Array(n * m))],
        inputs = [put(ints([...prompt, ...written])), put(ints([n]))];
      const done = state && call.state_step(state, ...inputs, 1, 0, logits, 0, attention, m);
      if (state) call.state_delete(state);
      if (done !== 1) throw new RangeError(NO_MEMORY);
      const row = (address, k, size) => this.engine.read(Float32Array, address + 4 * (k + prompt.length - 1) * size, size);
      return [...written, EOS].map((id, k) => ({
        id,
        probability: probabilityOf(row(logits, k, v), id),
        attention: row(attention, k, m),
      }));
    });
  }
}

const LISTED = { characters: true, symbols: true };

// Numbers of an array of the file, and 0, or levels and the divisors of their rows; rows with scales
// become floats.
function numbers(bytes, [shape, kind, offset]) {
  const [rows, columns] = [shape[0], shape[1] ?? 1],
    at = bytes.byteOffset + offset;
  if (kind === "float32") return [new Float32Array(bytes.buffer, at, rows * columns), 0];
  const scales = new Float32Array(bytes.buffer, at, rows),
    levels = new Int8Array(bytes.buffer, at + 4 * rows, rows * columns);
  if (kind === "levels") return [levels, scales];
  return [Float32Array.from(levels, (level, k) => level * scales[Math.floor(k / columns)]), 0];
}

// A shortlist of the file: counts of the source ids, their likely target ids, the frequent ones.
function shortlistOf(bytes, { joint, width, lengths, offset }) {
  const Kind = width === 2 ? Uint16Array : Uint32Array;
  let at = bytes.byteOffset + offset;
  const [counts, likely, frequent] = lengths.map((length) => {
    const part = new Kind(bytes.buffer, at, length).slice();
    at += length * width;
    return part;
  });
  let end = 0;
  return { counts, likely, frequent, joint, ends: Uint32Array.from(counts, (count) => (end += count)) };
}

const SAMPLING = 40; // bytes of the structure `Sampling`
// The structure `SearchOptions` of the engine: whole numbers, an address, a float64, places of
// the shortlists; the rest is zero.
function optionsOf({ rules, rule_fields: fields }, nBest, forbidden, shortlists) {
  const bytes = new DataView(new ArrayBuffer(256)),
    end = 4 * fields.length;
  fields.forEach((name, k) => bytes.setInt32(4 * k, name === "n_best" ? nBest : (rules[name] ?? 0), true));
  bytes.setInt32(end, forbidden, true);
  const alpha = Math.ceil((end + 4) / 8) * 8,
    lists = alpha + 8 + SAMPLING;
  bytes.setFloat64(alpha, rules.alpha, true);
  shortlists.forEach((address, k) => bytes.setInt32(lists + 4 * k, address, true));
  return bytes;
}

function probabilityOf(logits, id) {
  const most = logits.reduce((a, b) => Math.max(a, b)),
    sum = logits.reduce((a, b) => a + Math.exp(b - most), 0);
  return Math.exp(logits[id] - most) / sum;
}

// Cut after the last end of a sentence in the later half, else before a word.
function cutOf(tokens) {
  const half = Math.floor(tokens.length / 2);
  for (const isCut of [(i) => SENTENCE_ENDS.test(tokens[i - 1]), (i) => /^[\u2581 ]/.test(tokens[i])])
    for (let i = tokens.length - 1; i > half; i--) if (isCut(i)) return i;
  return tokens.length - 1;
}
