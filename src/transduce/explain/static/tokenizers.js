// Tokenizers: text to token ids and back, exactly as in Python.

const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
const SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"];
const SPACE = "\u2581";
const REPLACEMENT = "\ufffd";
// White space and line ends as Python's `split` and `splitlines` know them.
const BLANKS = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;
const LINE_ENDS = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/u;
const EDGES = new RegExp(`^(?:${BLANKS.source})|(?:${BLANKS.source})$`, "gu");
const words = (text) => text.split(BLANKS).filter((word) => word !== "");
const oneLine = (text) => {
  const lines = text.split(LINE_ENDS);
  if (lines.at(-1) === "") lines.pop();
  return lines.join(" ");
};

function normalized(text, { normalization, lowercase }) {
  const inForm = (s) => (normalization === "none" ? s : s.normalize(normalization.toUpperCase())),
    plain = inForm(text.replace(/[\ud800-\udfff]/gu, REPLACEMENT));
  return lowercase ? inForm(plain.toLowerCase()) : plain;
}

// One id for each unit of a list: characters, or symbols between spaces.
class ListedTokenizer {
  constructor(facts) {
    this.facts = facts;
    this.units = facts.pieces;
    this.ids = new Map(this.units.map((unit, k) => [unit, k + SPECIAL.length]));
    this.size = this.units.length + SPECIAL.length;
  }
  split(text) {
    const plain = normalized(text, this.facts);
    if (this.facts.kind === "symbols") return words(plain);
    // A tag such as "<de> " at the beginning is one unit, if the vocabulary has it.
    const [tags] = plain.match(/^(?:<[^<>\s]+> )*/u),
      rest = [...plain.slice(tags.length)];
    const units = (tags.match(/<[^<>]+> /gu) ?? []).flatMap((tag) => (this.ids.has(tag) ? [tag] : [...tag]));
    return [...units, ...rest];
  }
  encode(text) {
    return this.split(text).map((unit) => this.ids.get(unit) ?? UNK);
  }
  // unknown: units for unknown ids, in order.
  decode(ids, unknown = []) {
    const rest = [...unknown];
    return ids
      .filter((id) => id !== PAD && id !== BOS && id !== EOS)
      .map((id) => this.units[id - SPECIAL.length] ?? rest.shift() ?? REPLACEMENT)
      .join(this.facts.kind === "symbols" ? " " : "");
  }
  unknown(text) {
    return this.split(text).filter((unit) => !this.ids.has(unit));
  }
  token(id) {
    const unit = this.units[id - SPECIAL.length];
    return SPECIAL[id] ?? (unit === " " ? SPACE : (unit ?? SPECIAL[UNK]));
  }
}

// The segmentation with the greatest sum of scores (Viterbi).
function viterbi(characters, { scoreOf, longest, unknownScore, rounded }) {
  const best = [{ score: 0, from: -1 }];
  for (let from = 0; from < characters.length; from++) {
    const here = best[from].score,
      propose = (to, score) => {
        const sum = rounded(here + score);
        if (!best[to] || sum > best[to].score) best[to] = { score: sum, from };
      };
    let single = false;
    for (let to = from + 1, piece = ""; to <= Math.min(characters.length, from + longest); to++) {
      piece += characters[to - 1];
      const score = scoreOf.get(piece);
      if (score === undefined) continue;
      propose(to, score);
      single ||= to === from + 1;
    }
    if (!single) propose(from + 1, unknownScore);
  }
  const pieces = [];
  for (let to = characters.length; to > 0; to = best[to].from)
    pieces.push(characters.slice(best[to].from, to).join(""));
  return pieces.reverse();
}

// A heap of numbers, the least on top.
class Heap {
  constructor() {
    this.keys = [];
  }
  push(key) {
    const { keys } = this;
    let at = keys.push(key) - 1;
    for (let up; at > 0 && keys[(up = (at - 1) >> 1)] > key; at = up) keys[at] = keys[up];
    keys[at] = key;
  }
  pop() {
    const { keys } = this,
      top = keys[0],
      key = keys.pop();
    let at = 0;
    for (let down = 1; down < keys.length; down = 2 * at + 1) {
      if (keys[down + 1] < keys[down]) down++;
      if (keys[down] >= key) break;
      [keys[at], at] = [keys[down], down];
    }
    if (keys.length) keys[at] = key;
    return top;
  }
}
// Symbols with neighbours merged, of the least rank first, of equal ranks the leftmost.
// rankOf: a whole number for two symbols that are merged; else undefined.  merge: the symbol for both.
function merged(symbols, rankOf, merge) {
  const n = symbols.length,
    after = symbols.map((_, k) => k + 1),
    before = symbols.map((_, k) => k - 1),
    heap = new Heap();
  const propose = (k) => {
    const rank = k >= 0 && after[k] < n ? rankOf(symbols[k], symbols[after[k]]) : undefined;
    if (rank !== undefined) heap.push(rank * n + k);
  };
  for (let k = 0; k < n; k++) propose(k);
  while (heap.keys.length) {
    const key = heap.pop(),
      k = key % n,
      next = after[k];
    // Of a pair that another merge has changed.
    if (symbols[k] === undefined || next >= n || rankOf(symbols[k], symbols[next]) * n + k !== key) continue;
    symbols[k] = merge(symbols[k], symbols[next]);
    symbols[next] = undefined;
    after[k] = after[next];
    if (after[k] < n) before[after[k]] = k;
    propose(before[k]);
    propose(k);
  }
  return symbols.filter((symbol) => symbol !== undefined);
}

// SentencePiece: byte-pair encoding, or a unigram language model; other characters are spelt in bytes.
class SubwordTokenizer {
  constructor(facts) {
    this.facts = facts;
    this.pieces = facts.pieces;
    this.size = this.pieces.length;
    const isByte = (piece, id) =>
      id >= SPECIAL.length && /^<0x[0-9A-F]{2}>$/.test(piece) && id < SPECIAL.length + 256;
    this.bytes = new Map(
      this.pieces.flatMap((piece, id) => (isByte(piece, id) ? [[id, parseInt(piece.slice(3, 5), 16)]] : [])),
    );
    if (facts.replacements) this.bytes = new Map(
      this.pieces.flatMap((piece, id) => (/^<0x[0-9A-F]{2}>$/.test(piece) && id >= SPECIAL.length ? [[id, parseInt(piece.slice(3, 5), 16)]] : [])),
    );
    this.byteIds = new Map([...this.bytes].map(([id, byte]) => [byte, id]));
    this.ids = new Map(
      this.pieces.flatMap((piece, id) => (id < SPECIAL.length || this.bytes.has(id) ? [] : [[piece, id]])),
    );
    this.longest = this.pieces.reduce((most, piece) => Math.max(most, [...piece].length), 1);
    // Scores of the pieces that texts are divided into; others have no id.
    this.scoreOf = new Map(
      [...this.ids].flatMap(([piece, id]) => {
        const score = facts.scores?.[id];
        return score === undefined || score === null ? [] : [[piece, Math.fround(score)]];
      }),
    );
    for (const [piece, score] of Object.entries(facts.others ?? {})) {
      this.scoreOf.set(piece, Math.fround(score));
      this.longest = Math.max(this.longest, [...piece].length);
    }
    // Of pieces that merges make: by order of learning, or by the scores of an imported model, equal ones alike.
    const scores = [...new Set(this.scoreOf.values())].sort((a, b) => b - a),
      rankOf = new Map(scores.map((score, rank) => [score, rank]));
    this.ranks = facts.replacements ? new Map([...this.scoreOf].map(([piece, score]) => [piece, rankOf.get(score)])) : this.ids;
    this.rounded = Math.fround;
    this.unknownScore = Math.fround([...this.scoreOf.values()].reduce((least, score) => Math.min(least, score), 0) - 10);
    this.replacements = facts.replacements && new Map(Object.entries(facts.replacements));
    this.replaced = [...(this.replacements?.keys() ?? [])].reduce((most, text) => Math.max(most, [...text].length), 0);
  }
  encode(text) {
    if (this.replacements) return this.encodeImported(text);
    const plain = normalized(text, this.facts).replaceAll(SPACE, " ");
    if (plain === "") return [];
    const characters = [...(" " + plain).replaceAll(" ", SPACE)],
      pieces = this.divided(characters);
    return pieces.flatMap((piece) => this.ids.get(piece) ?? this.spelt(piece));
  }
  // With the rules of an imported SentencePiece model: its table of replacements, its blanks, and a
  // language such as ">>fra<<" before the text.  Unknown neighbours are one piece, which may have an id: the
  // vocabulary of a Marian is that of both its models.
  encodeImported(text) {
    const plain = normalized(text, this.facts),
      { opening = [], closing = [], marks = [] } = this.facts,
      end = plain.startsWith(">>") && !marks.length ? plain.indexOf("<<") : -1,
      code = end < 0 ? [] : [this.ids.get(plain.slice(0, end + 2)) ?? UNK],
      characters = [...this.replace(end < 0 ? plain : plain.slice(end + 2))];
    if (!code.length && !characters.length) return [];
    const pieces = [];
    let wasUnknown = false;
    for (const piece of this.divided(characters)) {
      const isUnknown = !this.scoreOf.has(piece);
      if (isUnknown && wasUnknown) pieces[pieces.length - 1] += piece;
      else pieces.push(piece);
      wasUnknown = isUnknown;
    }
    const idsOf = (piece) => (this.byteIds.size && !this.scoreOf.has(piece) ? this.spelt(piece) : (this.ids.get(piece) ?? UNK));
    return [...opening, ...code, ...pieces.flatMap(idsOf), ...closing];
  }
  replace(text) {
    const { single_blanks: single, dummy_prefix: prefix } = this.facts,
      characters = [...text],
      parts = [];
    for (let at = 0; at < characters.length; ) {
      let [taken, part] = [1, characters[at]];
      for (let n = Math.min(this.replaced, characters.length - at); n > 0; n--) {
        const by = this.replacements.get(characters.slice(at, at + n).join(""));
        if (by === undefined) continue;
        [taken, part] = [n, by];
        break;
      }
      parts.push(part);
      at += taken;
    }
    let plain = parts.join("");
    if (single) plain = plain.replace(/ {2,}/g, " ").replace(/^ | $/g, "");
    return plain && ((prefix ? " " : "") + plain).replaceAll(" ", SPACE);
  }
  spelt(piece) {
    return [...new TextEncoder().encode(piece)].map((byte) => this.byteIds.get(byte));
  }
  divided(characters) {
    if (this.facts.kind !== "bpe") return viterbi(characters, this);
    return merged(characters, (a, b) => this.ranks.get(a + b), (a, b) => a + b);
  }
  decode(ids) {
    const encoder = new TextEncoder(),
      bytes = ids.flatMap((id) => {
        if (id === PAD || id === BOS || id === EOS || this.facts.marks?.includes(id)) return [];
        if (this.bytes.has(id)) return [this.bytes.get(id)];
        const piece = id === UNK ? REPLACEMENT : (this.pieces[id] ?? REPLACEMENT);
        return [...encoder.encode(piece.replaceAll(SPACE, " "))];
      });
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
    if (this.replacements) return text.replace(EDGES, "");
    return text.startsWith(" ") ? text.slice(1) : text;
  }
  unknown() {
    return [];
  }
  token(id) {
    return this.pieces[id] ?? SPECIAL[UNK];
  }
}

// Parts of texts that become the unknown token, for a line: units of a list; letters, or whole words of known letters.
const MOST_UNKNOWN = 12;
function unknownParts(tokenizer, texts) {
  const isUnknown = (part) => tokenizer.encode(part).includes(UNK),
    partsOf = (text) =>
      tokenizer instanceof ListedTokenizer ? tokenizer.unknown(text) : words(text).filter(isUnknown).flatMap(lettersOf),
    lettersOf = (word) => {
      const letters = [...word].filter(isUnknown);
      return letters.length ? letters : [word];
    };
  const parts = [...new Set(texts.filter((text) => text.trim() && isUnknown(text)).flatMap(partsOf).map((part) => part.trim() || SPACE))];
  return parts.slice(0, MOST_UNKNOWN).join(" ") + (parts.length > MOST_UNKNOWN ? " …" : "");
}

const TOKENIZERS = { bpe: SubwordTokenizer, unigram: SubwordTokenizer, characters: ListedTokenizer, symbols: ListedTokenizer };
function tokenizerOf(facts) {
  const Kind = TOKENIZERS[facts.kind];
  if (!Kind) throw new TypeError(`this page has no tokenizers of kind ${facts.kind}; begin with the page of that model`);
  return new Kind(facts);
}
