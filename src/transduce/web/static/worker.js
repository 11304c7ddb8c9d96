// The worker of a page: its translators, by number, and calls of them.  Needs translator.js before it.
// Messages are { id, call, args }; the answers { id, result } or { id, message, known }, before them { id, share }.
const PART = 1 << 15; // characters of base64 that are decoded at a time, a multiple of four
const models = [];
let modules = null;

function bytesOf(text, progress = () => {}) {
  const padding = text.endsWith("==") ? 2 : Number(text.endsWith("=")),
    bytes = new Uint8Array((text.length / 4) * 3 - padding);
  for (let from = 0, at = 0; from < text.length; from += PART) {
    const part = atob(text.slice(from, from + PART));
    for (let k = 0; k < part.length; k++) bytes[at++] = part.charCodeAt(k);
    if (from % (PART << 5) === 0) progress(from / text.length);
  }
  return bytes;
}

// Ids cut where their text has whole characters: [text, indices of the ids].
function segmentsOf(ids, write) {
  const segments = [];
  let [before, from] = ["", 0];
  for (let to = 1; to <= ids.length; to++) {
    const text = write(ids.slice(0, to));
    const isWhole = text.startsWith(before) && text !== before && !text.endsWith(REPLACEMENT);
    if (!isWhole && to < ids.length) continue;
    const numbers = Array.from({ length: to - from }, (_, k) => from + k);
    segments.push([text.slice(before.length), numbers]);
    [before, from] = [text, to];
  }
  return segments;
}

// Segments of the source and of the translation of a piece, with what each token attended to.
function pairOf(model, piece, source) {
  const ids = piece.hypotheses[0].ids,
    unknown = model.source.unknown(source),
    sides = [
      segmentsOf(piece.ids.slice(0, piece.room), (part) => model.source.decode(part, unknown)),
      segmentsOf(ids, (part) => model.written(part, source)),
    ];
  return { sides, attended: model.attended(piece, ids) };
}

const calls = {
  // Number and facts of a model, with the modules of the engine where it is the first.
  async load(progress, file, engine) {
    if (engine) {
      const [relaxed, plain] = await Promise.all(engine.map((text) => unpacked(bytesOf(text))));
      modules = { relaxed, plain };
    }
    const bytes = typeof file === "string" ? bytesOf(file, (share) => progress(share / 2)) : file,
      model = await Translator.load(bytes, modules, (share) => progress((1 + share) / 2)),
      { run, languages, pairs, rules } = model.facts;
    return { number: models.push(model) - 1, run, languages, pairs: pairs?.map(Object.keys), beam: rules.beam };
  },
  // The answer of models in turn to a text; of the last, with alignment of at most `most` tokens.
  translate(progress, path, text, { most, ...settings }) {
    let read = text;
    for (const number of path.slice(0, -1)) read = models[number].translate(read).text;
    const model = models[path.at(-1)],
      { lines, ...answer } = model.translate(read, settings);
    const pieces = lines.flatMap((line) => line.pieces.map((piece) => [piece, line.text])),
      tokens = pieces.reduce((sum, [piece]) => sum + piece.hypotheses[0].ids.length, 0);
    const unknown = unknownTo(path, text.split("\n"), settings);
    return { answer, read, unknown, pairs: tokens > most ? [] : pairsOf(model, pieces, most) };
  },
  // The translations of lines, one after the other, and what the model does not know of them.
  lines(progress, path, lines, settings) {
    const written = lines.map((line, k) => {
      progress(k / lines.length);
      return path.reduce((text, number) => models[number].translate(text, settings).text, line);
    });
    return { written, unknown: unknownTo(path, lines, settings) };
  },
};
const pairsOf = (model, pieces, most) => (most ? pieces.map(([piece, line]) => pairOf(model, piece, line)) : []);
// Parts of texts, without tags, that the first model of a path does not know.
function unknownTo([number], texts, { from, to }) {
  const model = models[number];
  return unknownParts(model.source, model.separated(texts, from, to).map(([text]) => text));
}

// Errors that a user can understand; others are our own.
const isKnown = (error) =>
  error instanceof RangeError || error instanceof TypeError || error instanceof WebAssembly.RuntimeError;

let turn = Promise.resolve(); // of one call after the other, as loading takes several steps
onmessage = ({ data: { id, call, args } }) => {
  turn = turn.then(async () => {
    try {
      const result = await calls[call]((share) => postMessage({ id, share }), ...args);
      postMessage({ id, result });
    } catch (error) {
      postMessage({ id, message: error.message, known: isKnown(error) });
    }
  });
};
