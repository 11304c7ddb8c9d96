// Two columns of a table that someone pasted or dropped: found as `transduce make` finds them.

const NUMBER = /^[+\-−]?[$€£]?\p{Nd}[\p{Nd}.,'’_]*([eE][+-]?\p{Nd}+)?\s?[%€$]?$/u;
const DATE =
  /^(\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([T ]\d{1,2}:\d{2}(:\d{2})?([.,]\d+)?\s?(Z|[+-]\d{2}:?\d{2})?)?|\d{1,2}:\d{2}(:\d{2})?([.,]\d+)?)$/;
const KEY = /^(?=.*[A-Za-z])(?=.*([0-9._/:#@\\]|[a-z][A-Z]))[\w.:/#@\\~?=&%+\-[\]]+$/;
const CODE = /^[a-z]{2,3}([_-][a-z]{2,8})?$/;
const [MOSTLY, RELATED, ABOUT, MANY, MAX_LABELS] = [0.9, 0.3, 0.15, 20, 100];
const kindOfCell = (cell) => (NUMBER.test(cell) ? "number" : DATE.test(cell) ? "date" : KEY.test(cell) ? "key" : "text");
const areLabels = (different, count) => different <= Math.min(MAX_LABELS, Math.max(Math.floor(count / 20), 2));

const tally = (counts, key, by = 1) => counts.set(key, (counts.get(key) ?? 0) + by);
const frequent = (counts) => [...counts].sort((a, b) => b[1] - a[1]); // [key, count], the most frequent first

// Bytes of a file as text: by its mark of order, as UTF-8, else as Windows-1252.
function decoded(bytes) {
  const [a, b] = bytes;
  if ((a === 0xff && b === 0xfe) || (a === 0xfe && b === 0xff))
    return new TextDecoder(a === 0xff ? "utf-16le" : "utf-16be").decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

// The character between cells: of those that most lines have as often, the first.
function delimiterOf(lines) {
  const sample = lines.slice(0, 200),
    marks = ["\t", ",", ";", "|"];
  const shares = marks.map((mark) => {
    const counts = new Map();
    for (const line of sample) {
      const plain = line.slice(0, 10000).replace(/"(?:[^"]|"")*"/g, ""),
        count = plain.split(mark).length - 1;
      if (count) tally(counts, count);
    }
    return Math.max(0, ...counts.values()) / sample.length;
  });
  if (shares[0] >= 0.5) return "\t";
  const best = Math.max(...shares);
  return best >= 0.5 ? marks[shares.indexOf(best)] : "\t";
}

// Rows of cells; quoted cells may hold delimiters and line ends.
function rowsOf(text) {
  const plain = text.replace(/^\ufeff/, ""),
    mark = delimiterOf(plain.split(/\r\n|\n|\r/, 200).filter((line) => line.trim()));
  if (mark === "\t" || !plain.includes('"'))
    return plain.split(/\r\n|\n|\r/).map((line) => (line.trim() ? line.split(mark).map((cell) => cell.trim()) : []));
  const rows = [[]],
    cells = new RegExp(`("(?:[^"]|"")*"|[^${mark}\\r\\n]*)(${mark === "|" ? "\\|" : mark}|\\r\\n|\\n|\\r|$)`, "gy");
  for (let match; cells.lastIndex <= plain.length && (match = cells.exec(plain)); ) {
    const [, cell, end] = match;
    rows.at(-1).push((cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell).split(/\s+/).join(" ").trim());
    if (end !== mark) rows.push([]);
    if (!end) break;
  }
  return rows.map((row) => (row.some(Boolean) ? row : []));
}

function kindOfColumn(cells) {
  const filled = cells.filter(Boolean),
    different = new Set(filled);
  if (different.size < 2) return "constant";
  for (const kind of ["date", "key", "number"]) {
    if (filled.filter((cell) => kindOfCell(cell) === kind).length < MOSTLY * filled.length) continue;
    const areGrades = kind !== "date" && different.size <= 10 && areLabels(different.size, filled.length);
    if (!areGrades || (kind === "number" && ![...different].every((cell) => /^\p{Nd}+$/u.test(cell)))) return kind;
  }
  if (!areLabels(different.size, filled.length)) return "text";
  return [...different].every((cell) => CODE.test(cell)) ? "code" : "label";
}

// Correlation of the logarithms of the lengths of two columns; -1 if too often blank.
function relationOf(left, right) {
  const both = left.flatMap((cell, k) => (cell && right[k] ? [[cell, right[k]].map((text) => Math.log1p([...text].length))] : []));
  if (both.length < Math.max(2, Math.floor(left.length / 2))) return -1;
  const mean = [0, 1].map((side) => both.reduce((sum, pair) => sum + pair[side], 0) / both.length),
    [xx, yy, xy] = both.reduce(
      ([a, b, c], [x, y]) => [a + (x - mean[0]) ** 2, b + (y - mean[1]) ** 2, c + (x - mean[0]) * (y - mean[1])],
      [0, 0, 0],
    );
  return Math.min(xx, yy) < 1e-12 * both.length ? 0 : xy / Math.sqrt(xx * yy);
}

// names: of columns in headers, `source`, `target` and `ids`.  Gives header (0 or 1), names, kinds, and the
// columns source and target, or none.
function columnsOf(rows, names) {
  const sample = rows.filter((row) => row.length).slice(0, 2000),
    counts = new Map();
  for (const row of sample.length > 1 ? sample.slice(1) : sample) tally(counts, row.length);
  const [[width] = [0]] = frequent(counts),
    every = sample.filter((row) => row.length === width),
    columns = (of) => Array.from({ length: width }, (_, at) => of.map((row) => row[at]));
  const head = sample[0]?.length === width ? sample[0].map((cell) => cell.toLowerCase()) : [],
    below = columns(every.length > 1 && every[0] === sample[0] ? every.slice(1) : every),
    kindsBelow = below.map(kindOfColumn),
    known = new Set([...names.source, ...names.target]);
  const isHeader =
    head.length === width &&
    every.length > 1 &&
    !head.some((cell, at) => cell && below[at].some((other) => other.toLowerCase() === cell)) &&
    (head.some((cell) => known.has(cell)) ||
      head.filter((cell) => names.ids.includes(cell)).length > 1 ||
      (width > 1 && new Set(head).size === width && head.every((cell) => /^[a-z]{2}([-_][a-z]{2,4})?$/.test(cell))) ||
      head.some((cell, at) => {
        const kind = kindsBelow[at];
        if (!cell || below[at].length < MANY) return false;
        if (["number", "date", "key"].includes(kind)) return kindOfCell(cell) !== kind;
        return ["label", "code", "constant"].includes(kind) && below[at].some(Boolean);
      }));
  const cells = isHeader ? below : columns(every),
    kinds = isHeader ? kindsBelow : cells.map(kindOfColumn),
    titles = isHeader ? head : Array(width).fill("");
  const pair = byNames(titles, names) ?? byContent(cells, kinds, titles, names),
    title = (at) => `${at + 1}${titles[at] ? ` (${sample[0][at]})` : ""}`;
  return { header: Number(isHeader), width, kinds, names: kinds.map((_, at) => title(at)), pair };
}
function byNames(titles, names) {
  const [source, target] = [names.source, names.target].map((of) => titles.findIndex((cell) => of.includes(cell)));
  return source >= 0 && target >= 0 && source !== target ? [source, target] : undefined;
}
function byContent(cells, kinds, titles, names) {
  const isSide = (at) => !names.ids.includes(titles[at]),
    target = titles.findIndex((cell) => names.target.includes(cell)),
    all = [...kinds.keys()];
  let texts = all.filter((at) => kinds[at] === "text" && isSide(at));
  if (texts.length < 2) texts = all.filter((at) => kinds[at] === "text");
  if (!texts.length) texts = all.filter((at) => kinds[at] === "key");
  const labels = all.filter((at) => ["label", "code"].includes(kinds[at])),
    pairs = texts.flatMap((a, k) => texts.slice(k + 1).map((b) => [a, b])).filter((p) => !texts.includes(target) || p.includes(target));
  if (pairs.length) {
    const relations = pairs.map(([a, b]) => relationOf(cells[a], cells[b])),
      best = Math.max(...relations),
      chosen = pairs[relations.findIndex((relation) => relation >= best - ABOUT)];
    if (best >= RELATED || labels.length !== 1) return chosen[0] === target ? [chosen[1], chosen[0]] : chosen;
  }
  if (texts.length && labels.length) return [texts[0], labels[0]];
  const other = all.find((at) => ["number", "date", "key"].includes(kinds[at]) && isSide(at));
  if (texts.length === 1 && other !== undefined && other !== texts[0]) return [other, texts[0]].sort((a, b) => a - b);
  return kinds.length === 2 && cells[0].length < 80 ? [0, 1] : undefined;
}

const SCRIPTS = ["Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Thai", "Hangul", "Hiragana", "Katakana", "Han"].map(
  (name) => [name, new RegExp(`\\p{Script=${name}}`, "gu")],
);
const scriptOf = (text) => {
  const counts = SCRIPTS.map(([name, letters]) => [name, text.match(letters)?.length ?? 0]);
  const [name, most] = counts.reduce((best, each) => (each[1] > best[1] ? each : best));
  return most ? name : "";
};

// Pairs of a table, and the rows that are left out: { pairs, read, leftOut: [{ reason, count, rows }] }.  Each pair has
// the number of its row, from 1.  longest: characters of a cell, at most.
function pairsOf(rows, [source, target], header, longest) {
  const reasons = new Map(),
    seen = new Set(),
    pairs = [];
  const leaveOut = (reason, row) => {
    const each = reasons.get(reason) ?? { reason, count: 0, rows: [] };
    if (each.count++ < 3) each.rows.push(row);
    reasons.set(reason, each);
  };
  let [read, skipped] = [0, header];
  rows.forEach((row, k) => {
    if (!row.length || skipped-- > 0) return;
    read++;
    const [a, b] = [row[source], row[target]].map((cell) => cell?.normalize("NFC").replace(/\s+/g, " ").trim());
    if (!a || !b) return leaveOut("blank", k + 1);
    if (a.length > longest || b.length > longest) return leaveOut("long", k + 1);
    const key = `${a}\t${b}`;
    if (seen.has(key)) return leaveOut("repeated", k + 1);
    seen.add(key);
    pairs.push([a, b, k + 1]);
  });
  const turned = turnRound(pairs);
  return { pairs, read, turned, leftOut: [...reasons.values()] };
}

// Rows whose sides are in each other's script are turned round; returns their numbers.
function turnRound(pairs) {
  const sample = pairs.filter((_, k) => k % Math.ceil(pairs.length / 2000) === 0),
    counts = new Map();
  for (const [a, b] of sample) tally(counts, `${scriptOf(a)} ${scriptOf(b)}`);
  const [[usual, count] = ["", 0]] = frequent(counts),
    [source, target] = usual.split(" ");
  if (!source || !target || source === target || count < 0.6 * sample.length) return [];
  return pairs.flatMap((pair) => {
    if (scriptOf(pair[0]) !== target || scriptOf(pair[1]) !== source) return [];
    [pair[0], pair[1]] = [pair[1], pair[0]];
    return [pair[2]];
  });
}
