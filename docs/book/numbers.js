// Numbers of chapter 0 and of the guesses, without a page: tests run them in Node beside numpy.

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const dot = (a, b) => sum(a.map((x, i) => x * b[i]));
const length = (a) => Math.sqrt(dot(a, a));

// The greatest score is taken off first: exp(1000) would be infinite.
function softmax(scores, temperature = 1) {
  const greatest = Math.max(...scores),
    exponentials = scores.map((score) => Math.exp((score - greatest) / temperature)),
    total = sum(exponentials);
  return exponentials.map((x) => x / total);
}

const lossOf = (probability) => -Math.log(probability);
const meanLoss = (probabilities) => sum(probabilities.map(lossOf)) / probabilities.length;

// L(w) = (x w − y)²: one weight w, one example x → y.
const squaredError = (w, [x, y]) => (x * w - y) ** 2;
const slopeOf = (w, [x, y]) => 2 * x * (x * w - y);
const stepped = (w, example, rate) => w - rate * slopeOf(w, example);

// The longest piece of the vocabulary first; a sign that no piece holds becomes its UTF-8 bytes.
// Ids 0 to 255 are the bytes, the pieces follow in their order.
function tokenized(text, pieces) {
  const tokens = [],
    byLength = [...new Set(pieces)].sort((a, b) => b.length - a.length);
  for (let rest = text; rest; ) {
    const piece = byLength.find((candidate) => rest.startsWith(candidate)),
      sign = piece ?? String.fromCodePoint(rest.codePointAt(0));
    if (piece) tokens.push({ text: piece, id: 256 + pieces.indexOf(piece) });
    else
      for (const byte of new TextEncoder().encode(sign))
        tokens.push({ text: `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`, id: byte });
    rest = rest.slice(sign.length);
  }
  return tokens;
}

const HALF = (text) => text.normalize("NFKC").replace(/[−–]/g, "-");

const FRACTION = /^(-?\d+)[/\u2044](\d+)$/;

function numberOf(text) {
  const fraction = FRACTION.exec(text.replace(/\s+/g, ""));
  return fraction ? fraction[1] / fraction[2] : Number(text);
}

// The numbers of a line, separated by blanks, commas or semicolons; null where a part is none.
function numbersOf(line) {
  const parts = HALF(line)
      .split(/[\s,;、()[\]]+/)
      .filter(Boolean),
    numbers = parts.map(numberOf);
  return numbers.length && numbers.every(Number.isFinite) ? numbers : null;
}

const COUNTS = ["zero|零", "one|一", "two|二两兩", "three|三", "four|四", "five|五", "six|六", "seven|七", "eight|八", "nine|九", "ten|十"].map((words) => {
  const [english, chinese] = words.split("|");
  return new RegExp(`\\b${english}\\b|(?<![一二三四五六七八九十])[${chinese}](?![一二三四五六七八九十])`, "gi");
});
const NUMBER = /(?<![\d.])-?(?:\d+\s*[/\u2044]\s*\d+(?![\d.])|\d*\.?\d+)/g;

// Readings of the numbers in a guess, with words and units around them: a comma separates numbers,
// thousands or decimals, and behind an equals sign stands the result.
function readingsOf(guess) {
  const text = COUNTS.reduce((line, words, x) => line.replace(words, ` ${x} `), HALF(guess).replace(/^.*[=≈](?=.*\d)/s, "")),
    readings = [text, text.replace(/(\d),(?=\d{3}(?!\d))/g, "$1"), text.replace(/(\d),(?=\d)/g, "$1.")].map((line) =>
      (line.match(NUMBER) ?? []).map(numberOf),
    );
  return text.includes("%") ? [...readings, readings[0].map((x) => x / 100)] : readings;
}

// Words of a line between blanks; Chinese signs and Latin letters apart.
const plain = (text) =>
  HALF(text)
    .toLowerCase()
    .replace(/[\s.,;:!?'"“”‘’`▁()[\]。，、；：！？（）「」]+/g, " ")
    .replace(/[\u4e00-\u9fff]+/g, " $& ")
    .replace(/ +/g, " ")
    .trim();

const holds = (line, word) =>
  /[a-z0-9]/.test(word) ? ` ${line} `.includes(` ${word} `) : line.includes(word);

// True for a right guess.  answer: alternatives separated by |, numbers that must all come within
// `within`, or words that the guess holds.  wrong: words that it must not hold, except inside a right one.
function isRight(guess, answer, within = 0.01, wrong = "") {
  const alternatives = answer.split("|"),
    numbers = alternatives.map(numbersOf).filter(Boolean),
    [words, refused] = [alternatives.filter((each) => !numbersOf(each)), wrong.split("|")].map((list) => list.map(plain).filter(Boolean)),
    close = (expected, reading) =>
      reading.length === expected.length && reading.every((x, i) => Math.abs(x - expected[i]) <= within + 1e-9);
  if (numbers.some((expected) => readingsOf(guess).some((reading) => close(expected, reading)))) return true;
  const line = plain(guess),
    others = words.filter((word) => refused.some((part) => word.includes(part))).reduce((rest, word) => rest.replaceAll(word, " "), line);
  return words.some((word) => holds(line, word)) && !refused.some((word) => holds(others, word));
}

// Beam search where the next token depends on the last alone.  rows: probabilities of each token and,
// at the end of the row, of the end of the sentence: at the beginning first, then behind each token.
// Returns the candidates of each step, best first, and the finished sentences, best score first.
function beamSearch(rows, width, alpha = 0, limit = 6) {
  const end = rows.length - 1,
    steps = [],
    finished = [];
  for (let beam = [{ tokens: [], p: 1 }]; beam.length && finished.length < width && steps.length < limit; ) {
    const candidates = beam.flatMap((from) =>
      rows[from.tokens.length ? from.tokens.at(-1) + 1 : 0]
        .map((p, token) => ({ tokens: [...from.tokens, token], p: from.p * p, from: from.p, last: p, fate: "cut" }))
        .filter(({ p }) => p > 0),
    );
    candidates.sort((a, b) => b.p - a.p);
    beam = [];
    for (const candidate of candidates) {
      if (beam.length === width) break;
      if (candidate.tokens.at(-1) === end) {
        candidate.fate = "ended";
        candidate.score = Math.log(candidate.p) / candidate.tokens.length ** alpha;
        finished.push(candidate);
      } else {
        candidate.fate = "kept";
        beam.push(candidate);
      }
    }
    steps.push(candidates);
  }
  return { steps, finished: finished.sort((a, b) => b.score - a.score) };
}

// Multiplications of a layer over n positions of width d: attention, recurrence, convolution of width k.
const workOf = (n, d, k) => [n * n * d, n * d * d, k * n * d * d];
