// Saving a model: the page of `transduce export --format html`, and a run directory as a .zip for
// `transduce import`.

const bytesOfText = (text) => new TextEncoder().encode(text);
function joined(parts) {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
const littleEndian = (size, number) => {
  const bytes = new DataView(new ArrayBuffer(size));
  if (size === 8) bytes.setBigUint64(0, BigInt(number), true);
  else if (size === 4) bytes.setUint32(0, number, true);
  else bytes.setUint16(0, number, true);
  return new Uint8Array(bytes.buffer);
};
async function gzipped(bytes) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer());
}
function base64(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 0x8000) parts.push(String.fromCharCode(...bytes.subarray(at, at + 0x8000)));
  return btoa(parts.join(""));
}

const asBytes = (numbers) => new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
// Rows of a matrix as int8, with one scale each; as in `transduce.explain.live`.
function roundedRows(numbers, rows, columns) {
  const scales = new Float32Array(rows),
    levels = new Int8Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    const row = numbers.subarray(i * columns, (i + 1) * columns);
    scales[i] = row.reduce((top, x) => Math.max(top, Math.abs(x)), 0) / 127;
    const scale = scales[i] || 1;
    row.forEach((x, j) => {
      const level = Math.fround(x / scale),
        low = Math.floor(level),
        rest = level - low;
      levels[i * columns + j] = rest === 0.5 ? low + (low & 1) : low + (rest > 0.5 ? 1 : 0);
    });
  }
  return joined([asBytes(scales), asBytes(levels)]);
}

// Names that share a parameter, in the order of PyTorch.
function aliasesOf(model) {
  const table = "target_front_end.embedding.weight";
  if (model.tie === "three-way") return { "front_end.embedding.weight": [table, "head.weight"] };
  return model.tie === "two-way" ? { [table]: ["head.weight"] } : {};
}
// tensors: name, rows, columns and numbers, in the order of the model.  Gives the bytes of a model file,
// not compressed, as `transduce.web.page.model_file` has them.
function modelFile(tensors, aliases, facts, precision) {
  const arrays = [],
    parts = [];
  let offset = 0;
  for (const { name, rows, columns, numbers } of tensors) {
    const isExact = rows === 1 || name.endsWith(".embedding.weight") || name.endsWith(".table.weight") || precision === "float32",
      content = isExact ? asBytes(numbers) : roundedRows(numbers, rows, columns),
      padding = (4 - (content.length % 4)) % 4;
    arrays.push([name, rows === 1 ? [columns] : [rows, columns], isExact ? "float32" : precision, offset]);
    parts.push(content, new Uint8Array(padding));
    offset += content.length + padding;
  }
  for (const [name, others] of Object.entries(aliases))
    for (const other of others) {
      const [, ...facts] = arrays.find(([each]) => each === name),
        at = other === "head.weight" ? arrays.length : arrays.findIndex(([each]) => each.startsWith("decoder."));
      arrays.splice(at, 0, [other, ...facts]);
    }
  const json = JSON.stringify({ ...facts, precision, arrays }),
    text = bytesOfText(json + " ".repeat((4 - (bytesOfText(json).length % 4)) % 4));
  return joined([littleEndian(4, text.length), text, ...parts]);
}

// The page of a model: template and scripts of `transduce export --format html`.
async function savedPage(file, { sources, relaxed, plain }, { run, precision, parameters, account }) {
  const style = sources.base + sources.style,
    packed = async (bytes) => base64(await gzipped(bytes)),
    [before, after] = sources.html.replace("/*STYLE*/", () => style).replace("/*SCRIPT*/", () => sources.page).split("/*MODEL*/"),
    worker = await packed(bytesOfText(sources.tokenizers + sources.translator + sources.worker)),
    facts = { run, precision, parameters, account, words: JSON.parse(sources.words), file: await packed(file), relaxed, plain, worker };
  const json = (content) =>
    JSON.stringify(content).replaceAll("<", "\\u003c").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
  const size = bytesOfText(before + after).length + bytesOfText(json(facts)).length;
  return before + json({ ...facts, bytes: size }) + after;
}

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});
const crc32 = (bytes) => (bytes.reduce((crc, byte) => CRC[(crc ^ byte) & 255] ^ (crc >>> 8), -1) ^ -1) >>> 0;
// A .zip of files that are stored as they are: [name, bytes].
function zipped(files) {
  const [parts, directory] = [[], []];
  let at = 0;
  for (const [name, bytes] of files) {
    const title = bytesOfText(name),
      // version, UTF-8 names, stored, 1 January 1980
      facts = joined([[20, 0, 0, 8, 0, 0, 0, 0, 33, 0], littleEndian(4, crc32(bytes)), littleEndian(4, bytes.length), littleEndian(4, bytes.length)]),
      head = joined([[80, 75, 3, 4], facts, littleEndian(2, title.length), littleEndian(2, 0), title]);
    directory.push(
      joined([[80, 75, 1, 2, 20, 0], facts, littleEndian(2, title.length), Array(12).fill(0), littleEndian(4, at), title]),
    );
    parts.push(head, bytes);
    at += head.length + bytes.length;
  }
  const central = joined(directory),
    [count, size, begin] = [littleEndian(2, files.length), littleEndian(4, central.length), littleEndian(4, at)];
  return joined([...parts, central, [80, 75, 5, 6, 0, 0, 0, 0], count, count, size, begin, [0, 0]]);
}
function safetensors(tensors) {
  let at = 0;
  const head = { __metadata__: { transduce_format: "1" } };
  for (const { name, rows, columns } of tensors) {
    const size = 4 * rows * columns;
    head[name] = { dtype: "F32", shape: rows === 1 ? [columns] : [rows, columns], data_offsets: [at, at + size] };
    at += size;
  }
  const json = JSON.stringify(head),
    text = bytesOfText(json + " ".repeat((8 - (json.length % 8)) % 8));
  return joined([littleEndian(8, text.length), text, ...tensors.map(({ numbers }) => asBytes(numbers))]);
}
// Sections of a recipe.
function toml(settings, path = []) {
  const isSection = (value) => typeof value === "object" && !Array.isArray(value),
    lines = Object.entries(settings).flatMap(([name, value]) => (isSection(value) ? [] : [`${name} = ${JSON.stringify(value)}`])),
    sections = Object.entries(settings).flatMap(([name, value]) => (isSection(value) ? [toml(value, [...path, name])] : []));
  return [...(path.length && lines.length ? [`[${path.join(".")}]`] : []), ...lines, "", ...sections].join("\n");
}

// A model of SentencePiece with byte-pair merges, as `transduce.text.subword` trains and saves them.
function sentencePiece(facts) {
  const varint = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...varint(n >>> 7)]),
    field = (number, bytes) => joined([varint(number * 8 + 2), varint(bytes.length), bytes]),
    flag = (number, value) => joined([varint(number * 8), varint(value)]);
  const kinds = [3, 2, 3, 3],
    size = facts.pieces.length;
  const pieces = facts.pieces.map((piece, id) => {
    const kind = id < 4 ? kinds[id] : id < 260 ? 6 : 1,
      score = new Float32Array([kind === 1 ? 260 - id : 0]);
    return field(1, joined([field(1, bytesOfText(piece)), [21], asBytes(score), flag(3, kind)]));
  });
  const names = SPECIAL.map((_, k) => bytesOfText(SPECIAL[[UNK, BOS, EOS, PAD][k]])),
    trainer = joined([flag(3, 2), flag(4, size), flag(35, 1), flag(40, UNK), flag(41, BOS), flag(42, EOS), flag(43, PAD), ...names.map((name, k) => field(45 + k, name))]),
    normalizer = joined([field(1, bytesOfText("identity")), flag(3, 1), flag(4, 0), flag(5, 1)]),
    model = joined([...pieces, field(2, trainer), field(3, normalizer)]);
  const footer = bytesOfText(JSON.stringify({ normalization: "none", lowercase: false, kind: "bpe", crc32: crc32(model) }));
  return joined([model, [0x92, 0xc7, 0x0e, footer.length], footer]);
}
function tokenizerFile(facts) {
  if (facts.kind === "bpe") return sentencePiece(facts);
  const { kind, normalization, lowercase, pieces } = facts;
  return bytesOfText(JSON.stringify({ kind, normalization, lowercase, symbols: pieces }, null, 1) + "\n");
}
// The files of a run.  facts: of its tokenizers.  data: pairs that it learnt from.
function runFiles(tensors, recipe, tokenizers, card, data) {
  const suffix = (facts) => (facts.kind === "bpe" ? "model" : "json"),
    names = tokenizers.length === 1 ? ["tokenizer"] : ["source_tokenizer", "target_tokenizer"],
    lines = data.map(([source, target]) => JSON.stringify({ source, target }) + "\n").join("");
  return [
    ["recipe.toml", bytesOfText(toml(recipe))],
    ["README.md", bytesOfText(card)],
    ...tokenizers.map((facts, k) => [`${names[k]}.${suffix(facts)}`, tokenizerFile(facts)]),
    ["weights.safetensors", safetensors(tensors)],
    ["train.jsonl", bytesOfText(lines)],
  ];
}
