// Imported tokenizers of Hugging Face's library `tokenizers`: steps of its JSON by their types.  Needs tokenizers.js
// before it.

const LETTER_OF_BYTE = Array.from({ length: 256 }, (_, byte) => byte);
LETTER_OF_BYTE.filter((byte) => byte < 33 || (byte > 126 && byte < 161) || byte === 173).forEach((byte, k) => (LETTER_OF_BYTE[byte] = 256 + k));
LETTER_OF_BYTE.forEach((code, byte) => (LETTER_OF_BYTE[byte] = String.fromCharCode(code)));
const BYTE_OF_LETTER = new Map(LETTER_OF_BYTE.map((letter, byte) => [letter, byte]));
const utf8 = (text) => [...new TextEncoder().encode(text)];
const fromUtf8 = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
const byteName = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
const eachCharacter = (text, change) => [...text].map(change).join("");
const patternOf = ({ String: text, Regex: expression }) => text ?? new RegExp(expression, "gu");

// The text for the shortest beginning of a chunk that a table replaces.
function replacedBy(chunk, table) {
  for (let to = 1, characters = [...chunk]; to <= characters.length; to++) {
    const text = table.get(characters.slice(0, to).join(""));
    if (text !== undefined) return text;
  }
  return undefined;
}
const ideograph = /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/gu;
const NORMALIZERS = {
  ...Object.fromEntries(["NFC", "NFD", "NFKC", "NFKD"].map((form) => [form, (text) => text.normalize(form)])),
  Lowercase: (text) => eachCharacter(text, (c) => c.toLowerCase()),
  StripAccents: (text) => text.replace(/\p{M}/gu, ""),
  Strip: (text, { strip_left: left, strip_right: right }) => text.replace(left ? /^\p{White_Space}+/u : "", "").replace(right ? /\p{White_Space}+$/u : "", ""),
  Prepend: (text, { prepend }) => text && prepend + text,
  Replace: (text, { pattern, content }) => text.replaceAll(patternOf(pattern), () => content),
  Precompiled(text, { table }) {
    const change = (chunk) => replacedBy(chunk, table),
      graphemes = [...new Intl.Segmenter("en", { granularity: "grapheme" }).segment(text)];
    return graphemes.map(({ segment }) => (utf8(segment).length < 6 ? change(segment) : undefined) ?? eachCharacter(segment, (c) => change(c) ?? c)).join("");
  },
  BertNormalizer(text, { clean_text: clean, handle_chinese_chars: apart, strip_accents: strip, lowercase }) {
    let plain = text;
    if (clean) plain = plain.replace(/(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\ufffd]/gu, "").replace(/\p{White_Space}/gu, " ");
    if (apart) plain = plain.replace(ideograph, " $& ");
    if (strip ?? lowercase) plain = plain.normalize("NFD").replace(/\p{Mn}/gu, "");
    return lowercase ? NORMALIZERS.Lowercase(plain) : plain;
  },
};
const GPT2 = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
// Words of a word.
const SPLITTERS = {
  WhitespaceSplit: (word) => word.split(/\p{White_Space}+/u),
  BertPreTokenizer: (word) => word.split(/\p{White_Space}+/u).flatMap((part) => part.split(/([\p{P}$+<=>^`|~])/u)),
  ByteLevel(word, { add_prefix_space: prefix, use_regex: cut }) {
    const text = prefix && !word.startsWith(" ") ? ` ${word}` : word;
    return (cut ?? true ? text.match(GPT2) : [text]).map((part) => utf8(part).map((byte) => LETTER_OF_BYTE[byte]).join(""));
  },
  Metaspace(word, { replacement: blank, prepend_scheme: scheme, split }) {
    const text = word.replaceAll(" ", blank),
      whole = scheme === "always" && !text.startsWith(blank) ? blank + text : text;
    return split ?? true ? whole.split(new RegExp(`(?=${blank})`, "u")) : [whole];
  },
};
const DECODERS = {
  ByteLevel: (tokens) => [fromUtf8(tokens.flatMap((token) => ([...token].every((c) => BYTE_OF_LETTER.has(c)) ? [...token].map((c) => BYTE_OF_LETTER.get(c)) : utf8(token))))],
  Metaspace: (tokens, { replacement: blank, prepend_scheme: scheme }) => tokens.map((token, k) => token.replaceAll(blank, k || scheme === "never" ? " " : "")),
  WordPiece(tokens, { prefix, cleanup }) {
    const joined = tokens.map((token, k) => (!k ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`));
    const marks = [/ ([.?!,])/g, / (') /g, / (n't|'m|'s|'ve|'re)/g];
    return cleanup ? joined.map((token) => marks.reduce((text, mark) => text.replace(mark, "$1"), token).replace(/ do not/g, " don't")) : joined;
  },
  Replace: (tokens, step) => tokens.map((token) => NORMALIZERS.Replace(token, step)),
};

// Ids of a word, in the library's numbers; each model has its own.
const MODELS = {
  WordLevel: (t, word) => [t.ids.get(word) ?? t.unknownId],
  WordPiece(t, word) {
    const { max_input_chars_per_word: most, continuing_subword_prefix: prefix } = t.facts.model,
      characters = [...word],
      ids = [];
    if (characters.length > most) return [t.unknownId];
    for (let from = 0, to; from < characters.length; from = to) {
      const named = () => (from ? prefix : "") + characters.slice(from, to).join("");
      for (to = Math.min(characters.length, from + t.longest); to > from && !t.ids.has(named()); ) to--;
      if (to === from) return [t.unknownId];
      ids.push(t.ids.get(named()));
    }
    return ids;
  },
  BPE(t, word) {
    const { ignore_merges: whole, byte_fallback: spelt, fuse_unk: fuse } = t.facts.model,
      ids = [];
    if (whole && t.ids.has(word)) return [t.ids.get(word)];
    let wasUnknown = false;
    for (const character of word) {
      const bytes = spelt ? utf8(character).map((byte) => t.ids.get(byteName(byte))) : [undefined],
        known = t.ids.has(character) ? [t.ids.get(character)] : bytes,
        isUnknown = known.includes(undefined);
      if (!isUnknown) ids.push(...known);
      else if (t.unknownId !== undefined && !(fuse && wasUnknown)) ids.push(t.unknownId);
      wasUnknown = isUnknown;
    }
    const rankOf = (a, b) => t.merges.get(a * t.room + b),
      merge = (a, b) => t.ids.get(t.names.get(a) + t.names.get(b));
    return merged(ids, rankOf, merge);
  },
  Unigram(t, word) {
    const ids = [];
    for (const piece of viterbi([...word], t.lattice)) {
      const id = t.ids.get(piece) ?? t.unknownId;
      if (id !== t.unknownId || ids.at(-1) !== id) ids.push(id);
    }
    return ids;
  },
};

class HuggingFaceTokenizer {
  constructor(facts) {
    this.facts = facts;
    const { size, specials, mask, model, added, names } = facts,
      entries = Array.isArray(model.vocab) ? model.vocab.map(([piece], id) => [piece, id]) : Object.entries(model.vocab),
      taken = new Set([...specials, mask]);
    this.there = [...specials, ...Array.from({ length: size }, (_, id) => id).filter((id) => !taken.has(id))];
    this.here = new Map(this.there.map((id, k) => [id, k]).slice(SPECIAL.length));
    [this.size, this.room] = [this.there.length, size];
    this.ids = new Map(entries);
    this.names = new Map([...entries, ...names].map(([piece, id]) => [id, piece]));
    this.unknownId = model.unk_id ?? this.ids.get(model.unk_token);
    this.merges = new Map((model.merges ?? []).map(([a, b], rank) => [this.ids.get(a) * size + this.ids.get(b), rank]));
    this.longest = entries.reduce((most, [piece]) => Math.max(most, [...piece].length), 1);
    if (model.type === "Unigram") {
      const least = model.vocab.reduce((worst, [, score]) => Math.min(worst, score), Infinity);
      this.lattice = { scoreOf: new Map(model.vocab), longest: this.longest, unknownScore: least - 10, rounded: (sum) => sum };
    }
    for (const step of facts.normalizer) if (step.replacements) step.table = new Map(Object.entries(step.replacements));
    const escaped = ([text]) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    this.added = added.map((tokens) => ({ ids: new Map(tokens), pattern: tokens.length && new RegExp(`(${tokens.map(escaped).join("|")})`, "u") }));
  }
  // Parts of a text, with the ids of those that are added tokens.
  cut(text, { ids, pattern }) {
    return (pattern ? text.split(pattern) : [text]).filter((part) => part !== "").map((part) => [part, ids.get(part)]);
  }
  encode(text) {
    const { normalizer, pre_tokenizer: splitters, model, opening, closing } = this.facts,
      normal = (part) => normalizer.reduce((plain, step) => NORMALIZERS[step.type](plain, step), part),
      split = (words, step) => words.flatMap((word) => SPLITTERS[step.type](word, step)).filter((word) => word !== "");
    const ids = this.cut(normalized(text, this.facts), this.added[0])
      .flatMap(([part, id]) => (id === undefined ? this.cut(normal(part), this.added[1]) : [[part, id]]))
      .flatMap(([part, id]) => id ?? splitters.reduce(split, [part]).flatMap((word) => MODELS[model.type](this, word)))
      .map((id) => this.here.get(id) ?? UNK);
    return ids.length ? [...opening, ...ids, ...closing] : ids;
  }
  decode(ids) {
    const text = ids.filter((id) => id !== PAD && id !== BOS && id !== EOS && !this.facts.marks.includes(id));
    return this.joined(text.map((id) => this.piece(id) ?? REPLACEMENT));
  }
  piece(id) {
    return id > UNK ? this.names.get(this.there[id]) : undefined;
  }
  joined(pieces) {
    const { decoder } = this.facts;
    return decoder ? decoder.reduce((tokens, step) => DECODERS[step.type](tokens, step), pieces).join("") : pieces.join(" ");
  }
  unknown() {
    return [];
  }
  token(id) {
    if (id < SPECIAL.length) return SPECIAL[id];
    const piece = this.piece(id) ?? SPECIAL[UNK];
    return this.facts.decoder?.some(({ type }) => type === "ByteLevel") ? this.joined([piece]).replaceAll(" ", SPACE) : piece;
  }
}
TOKENIZERS["hugging-face"] = HuggingFaceTokenizer;
