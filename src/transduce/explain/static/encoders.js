// Explanations of texts by an encoder alone: labels, tokens behind masks, vectors.

const MASK = "<mask>";
const MOST_LABELS = 10;
const MOST_HIDDEN = 64;
const MOST_FEATURES = 16;
const HIDDEN_GUESSES = 5;

// The result of a pass over a row of text, its recording, and what every explanation has of it.
function readText(model, ids, run) {
  model.checkLength(ids.length, MOST_TOKENS);
  const [result, recording] = model.network.record(run),
    shown = { text: namesOf(model.tokenizers[0], [MASK])(ids) },
    parts = model.pass(recording, { encoder: ["text", "text"] }, shown, { encoder: "text" }, run);
  return [result, recording, parts];
}
// Positions that are hidden in turn.
const hideable = (ids) =>
  [...ids.keys()].filter((i) => ids[i] !== BOS && ids[i] !== EOS).slice(0, MOST_HIDDEN);

// A pass for each token takes long: guesses are made when they are read, with the changes of now.
function hiddenEach(network, positions, guessesAt) {
  const { changes } = network;
  return positions.map((position) => {
    let guesses;
    const get = () => {
      if (!guesses) network.change(changes);
      return (guesses ??= guessesAt(position));
    };
    return Object.defineProperty({ position }, "guesses", { enumerable: true, get });
  });
}

function classified(model, bare, texts) {
  const { network, facts } = model,
    labels = (ids) => ids.map((id) => facts.labels[id]),
    best = (scores) => likeliest(softmax(scores), labels, MOST_LABELS);
  if (texts.every((text) => text.trim() === "")) return bare;
  const encoded = texts.map((text) => model.tokenizers[0].encode(text)),
    [ids, segments] = inputRow(encoded, facts.max_length, model.tokenizers[0].facts.between),
    [scores, recording, parts] = readText(model, ids, () =>
      labelScores(model, network.encode(ids, segments)),
    ),
    hiding = hideable(ids);
  const guessesAt = (position) => {
    const [rest, sides] = [ids, segments].map((row) => row.filter((_, i) => i !== position));
    return best(labelScores(model, network.encode(rest, sides)));
  };
  const hidden = hiddenEach(network, hiding.length < 2 ? [] : hiding, guessesAt);
  return {
    ...bare,
    answer: best(scores)[0][0],
    labels: best(scores),
    layers: model.lens(recording, "encoder", 0, (x) => [best(labelScores(model, x))]),
    hidden,
    features: featuresOf(model, recording, topOf(scores, 1)[0]),
    ...creditsOf(model, recording, labels, facts.labels.length > 1 ? [[0, topOf(scores, 1)[0]]] : []),
    ...parts,
  };
}
// The windows of a text CNN that max pooling chose, those with the largest part in the label first.
function featuresOf(model, recording, label) {
  const { arrays, stacks } = model.network;
  if (stacks.encoder.kind !== "text-cnn" || model.facts.pooling !== "max" || arrays["head.hidden.weight"]) return [];
  const vectors = recording.outputs.encoder,
    m = vectors[0].length,
    weights = arrays["head.output.weight"].numbers.subarray(label * m, (label + 1) * m),
    reaches = stacks.encoder.widths.flatMap((width, i) => Array(arrays[`encoder.windows.${i}.bias`].shape[0]).fill(width)),
    places = reaches.map((_, f) => topOf(vectors.map((vector) => vector[f]), 1)[0]),
    shares = places.map((t, f) => Math.abs(vectors[t][f] * weights[f]));
  return topOf(shares, MOST_FEATURES).map((f) => {
    const begin = places[f] - Math.floor(reaches[f] / 2);
    return {
      start: Math.max(begin, 0),
      end: Math.min(begin + reaches[f], vectors.length),
      value: vectors[places[f]][f],
      weight: weights[f],
    };
  });
}
// Credit needs stacks that are linear where their patterns are held: Transformers.
const creditsOf = (model, recording, names, choices, first) =>
  model.network.isTransformer()
    ? { choices, creditOf: model.creditOf(recording, names, choices, first) }
    : { choices: [] };

function embedded(model, bare, [text]) {
  const { network, facts } = model;
  if (text.trim() === "") return bare;
  const [ids, segments] = inputRow([model.tokenizers[0].encode(text)], facts.max_length),
    [embedding, , parts] = readText(model, ids, () => scaledVector(model, network.encode(ids, segments)));
  return { ...bare, answer: writtenVector(embedding), vectors: { embedding }, ...parts };
}
// The pooled vector, of length 1 where the run has it so.
function scaledVector({ network, facts }, vectors) {
  const x = pooledOf(facts.pooling, vectors),
    length = facts.normalize ? Math.max(Math.sqrt(dot(x, x)), 1e-12) : 1;
  return network.note("head", [x.map((v) => v / length)])[0];
}
const writtenVector = (embedding) => Array.from(embedding, (v) => Number(v.toPrecision(8))).join(" ");

function filled(model, bare, [text]) {
  if (text.trim() === "") return { ...bare, answer: oneLine(text) };
  const { network } = model,
    [tokenizer] = model.tokenizers,
    masks = new Masks(tokenizer),
    names = namesOf(tokenizer, [MASK]),
    [ids] = inputRow([masks.encode(text)], model.facts.max_length),
    pass = () => tokenScores(network, network.encode(ids)),
    [scores, recording, parts] = readText(model, ids, pass);
  const at = [...ids.keys()].filter((i) => ids[i] === masks.id),
    chosen = at.map((i) => topOf(scores[i].slice(SPECIAL.length, masks.id), 1)[0] + SPECIAL.length);
  const guessesAt = (position) => {
    const vectors = network.encode(ids.map((id, k) => (k === position ? masks.id : id))),
      shares = softmax(tokenScores(network, [vectors[position]])[0]),
      guesses = likeliest(shares, names, HIDDEN_GUESSES),
      id = ids[position],
      known = id === masks.id || guesses.some(([name]) => name === names([id])[0]);
    return known ? guesses : [...guesses, [names([id])[0], shares[id], id]];
  };
  const hidden = hiddenEach(network, hideable(ids), guessesAt);
  const best = (x) => tokenScores(network, x).map((row) => likeliest(softmax(row), names, LENS)),
    layers = model.lens(recording, "encoder", 0, best);
  const credits = creditsOf(model, recording, names, at.map((i, k) => [i, chosen[k]]));
  return { ...bare, answer: oneLine(masks.fill(text, chosen)), layers, layers_of: "text", hidden, ...credits, ...parts };
}

const pooledOf = (pooling, x) => {
  const over = (join) => x[0].map((_, c) => join(x.map((vector) => vector[c])));
  return { first: () => x[0], mean: () => over(meanOfAll), max: () => over(greatest) }[pooling]();
};
// Scores of the labels: pooled vectors, perhaps a dense layer, a linear layer.
function labelScores({ network, facts }, x) {
  let pooled = pooledOf(facts.pooling, x);
  if (network.arrays["head.hidden.weight"]) {
    pooled = network.linear([pooled], "head.hidden")[0].map(ACTIVATIONS[facts.pooler_activation]);
  }
  return network.note("head", network.linear([pooled], "head.output"))[0];
}
// Scores of the tokens at each position: dense, GELU, norm, the embeddings once more.
function tokenScores(network, x) {
  const dense = network.linear(x, "head.dense").map((vector) => vector.map(ACTIVATIONS.gelu)),
    normed = network.norm(dense, "head.norm", network.stacks.encoder.epsilon);
  return network.note("head", network.linear(normed, "head.vocabulary"));
}

// Texts with masks.  Where tokens hold the space before them, a mask holds it too.
class Masks {
  constructor(tokenizer) {
    const { size } = tokenizer;
    this.tokenizer = tokenizer;
    this.id = size;
    this.holdSpaces = Array.from({ length: size }, (_, id) => tokenizer.token(id)).some(
      (token, id) => id >= SPECIAL.length && token.startsWith(SPACE) && token.length > 1,
    );
    this.implySpace = tokenizer.encode("a").some((id) => tokenizer.token(id).startsWith(SPACE));
  }
  encode(text) {
    const parts = text.split(MASK).map((part, i, { length }) => {
      const bare = this.holdSpaces && i + 1 < length ? part.replace(/ $/, "") : part;
      return i ? [this.id, ...this.behind(bare)] : this.tokenizer.encode(bare);
    });
    return parts.flat();
  }
  behind(part) {
    const { tokenizer } = this;
    if (!this.holdSpaces || !this.implySpace) return tokenizer.encode(part);
    if (part.startsWith(" ")) return tokenizer.encode(part.slice(1));
    // Within a word: encoded after a line end, where no space is implied.
    const guard = tokenizer.encode("\n"),
      ids = tokenizer.encode("\n" + part);
    return guard.every((id, k) => id === ids[k]) ? ids.slice(guard.length) : tokenizer.encode(part);
  }
  // The text with tokens for its first masks.
  fill(text, ids) {
    const [first, ...rest] = text.split(MASK);
    return rest.reduce(
      (before, part, i) => (i < ids.length ? this.joined(before, ids[i]) : before + MASK) + part,
      first,
    );
  }
  joined(before, id) {
    const token = this.tokenizer.token(id),
      word = this.tokenizer.decode([id]),
      bare = before.replace(/ $/, "");
    if (this.holdSpaces ? !token.startsWith(SPACE) : /^##./u.test(token))
      return bare + word.replace(/^##/, "");
    if (word.startsWith(" ")) return before ? bare + word : word.slice(1);
    return before + (this.implySpace && before && !/\s$/u.test(before) ? " " : "") + word;
  }
}
