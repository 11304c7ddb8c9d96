// Training a Transformer in plain JavaScript: forward pass, backward pass, Adam.
// One layer of encoder and decoder learns to write a line of symbols again.  All lines of a batch have one
// length, so that a batch of sequences is one matrix: row b · length + t is position t of line b.
// Each operation computes its result and puts its own derivative on the tape; `backward` plays the tape
// from its end.  Parameters have their names of PyTorch.

const BOS = 0,
  EOS = 1,
  FIRST = 2;

class Matrix {
  constructor(rows, columns, numbers = new Float32Array(rows * columns)) {
    Object.assign(this, { rows, columns, numbers, gradient: new Float32Array(rows * columns) });
  }
}

// ---- Operations.  dy, dx, dW are gradients: the change of the loss for a small change of y, x, W.

// y = x Wᵀ + b.  So dx = dy W, dW = dyᵀ x, db = the sum of dy over all rows.
function linear(tape, x, weight, bias) {
  const [n, out, width] = [x.rows, weight.rows, x.columns],
    y = new Matrix(n, out),
    [X, W, Y] = [x.numbers, weight.numbers, y.numbers];
  for (let i = 0; i < n; i++)
    for (let r = 0; r < out; r++) {
      let [a, b] = [bias ? bias.numbers[r] : 0, 0];
      for (let c = 0, p = i * width, q = r * width; c < width; c += 2, p += 2, q += 2) {
        a += X[p] * W[q];
        b += X[p + 1] * W[q + 1];
      }
      Y[i * out + r] = a + b;
    }
  tape.push(() => {
    const [dX, dW, dY] = [x.gradient, weight.gradient, y.gradient];
    for (let i = 0; i < n; i++)
      for (let r = 0; r < out; r++) {
        const dy = dY[i * out + r];
        if (dy === 0) continue;
        if (bias) bias.gradient[r] += dy;
        for (let c = 0, p = i * width, q = r * width; c < width; c++, p++, q++) {
          dX[p] += dy * W[q];
          dW[q] += dy * X[p];
        }
      }
  });
  return y;
}

// Row i of the result is row ids[i] of the table, times a scale.
function embed(tape, ids, table, scale) {
  const m = table.columns,
    y = new Matrix(ids.length, m);
  ids.forEach((id, i) => {
    for (let c = 0; c < m; c++) y.numbers[i * m + c] = scale * table.numbers[id * m + c];
  });
  tape.push(() => {
    ids.forEach((id, i) => {
      for (let c = 0; c < m; c++) table.gradient[id * m + c] += scale * y.gradient[i * m + c];
    });
  });
  return y;
}

// PE(pos, 2i) = sin(pos / 10000^(2i/m)), PE(pos, 2i+1) = cos of the same, added to each line.
function withPositions(tape, x, length) {
  const m = x.columns,
    y = new Matrix(x.rows, m);
  for (let i = 0; i < x.rows; i++)
    for (let c = 0; c < m; c++) {
      const angle = (i % length) / 10000 ** ((2 * (c >> 1)) / m);
      y.numbers[i * m + c] = x.numbers[i * m + c] + (c % 2 ? Math.cos(angle) : Math.sin(angle));
    }
  tape.push(() => addTo(x.gradient, y.gradient));
  return y;
}
function addTo(sum, more) {
  for (let k = 0; k < sum.length; k++) sum[k] += more[k];
}

// z = x + y: the gradient of a sum goes to both, undiminished.  This is why residual connections help.
function add(tape, x, y) {
  const z = new Matrix(x.rows, x.columns);
  for (let k = 0; k < z.numbers.length; k++) z.numbers[k] = x.numbers[k] + y.numbers[k];
  tape.push(() => {
    addTo(x.gradient, z.gradient);
    addTo(y.gradient, z.gradient);
  });
  return z;
}

// y = n · weight + bias, n = (x − mean) / √(variance + ε), by row.
// dx = (dn − mean(dn) − n · mean(dn · n)) / √(variance + ε), dn = dy · weight.
function layerNorm(tape, x, weight, bias, epsilon = 1e-5) {
  const m = x.columns,
    y = new Matrix(x.rows, m),
    normed = new Float32Array(x.rows * m),
    scales = new Float32Array(x.rows);
  for (let i = 0; i < x.rows; i++) {
    const row = x.numbers.subarray(i * m, (i + 1) * m),
      mean = row.reduce((a, b) => a + b, 0) / m,
      variance = row.reduce((a, b) => a + (b - mean) ** 2, 0) / m;
    scales[i] = 1 / Math.sqrt(variance + epsilon);
    for (let c = 0, k = i * m; c < m; c++, k++) {
      normed[k] = (row[c] - mean) * scales[i];
      y.numbers[k] = normed[k] * weight.numbers[c] + bias.numbers[c];
    }
  }
  tape.push(() => {
    for (let i = 0; i < x.rows; i++) {
      let [sum, product] = [0, 0];
      for (let c = 0, k = i * m; c < m; c++, k++) {
        const dn = y.gradient[k] * weight.numbers[c];
        weight.gradient[c] += y.gradient[k] * normed[k];
        bias.gradient[c] += y.gradient[k];
        sum += dn;
        product += dn * normed[k];
      }
      for (let c = 0, k = i * m; c < m; c++, k++) {
        const dn = y.gradient[k] * weight.numbers[c];
        x.gradient[k] += (dn - sum / m - (normed[k] * product) / m) * scales[i];
      }
    }
  });
  return y;
}

function relu(tape, x) {
  const y = new Matrix(x.rows, x.columns);
  for (let k = 0; k < x.numbers.length; k++) y.numbers[k] = Math.max(0, x.numbers[k]);
  tape.push(() => {
    for (let k = 0; k < x.numbers.length; k++) if (x.numbers[k] > 0) x.gradient[k] += y.gradient[k];
  });
  return y;
}

// Each head: α = softmax(scale · q · k), output Σ α v.  Queries, keys and values are columns of wider matrices:
// {of: matrix, from: first column, length: positions of a line}.  A causal query t sees keys 0 … t.
// dv = α dy, dα = dy · v; softmax: ds = α (dα − Σ α dα); dq = scale · ds k, dk = scale · ds q.
function attention(tape, query, key, value, { width, heads, lines, scale, causal }) {
  const d = width / heads,
    [Q, K, V] = [query.of, key.of, value.of],
    y = new Matrix(Q.rows, width),
    maps = new Float32Array(heads * Q.rows * key.length);
  const each = (visit) => {
    for (let b = 0; b < lines; b++)
      for (let h = 0; h < heads; h++)
        for (let t = 0; t < query.length; t++) {
          const row = b * query.length + t,
            n = causal ? t + 1 : key.length,
            keyAt = (j) => (b * key.length + j) * K.columns + key.from + h * d,
            valueAt = (j) => (b * key.length + j) * V.columns + value.from + h * d,
            at = (h * Q.rows + row) * key.length;
          visit(n, row * Q.columns + query.from + h * d, keyAt, valueAt, row * width + h * d, at);
        }
  };
  each((n, q, keyAt, valueAt, out, at) => {
    let most = -Infinity,
      sum = 0;
    for (let j = 0; j < n; j++) {
      let score = 0;
      for (let c = 0, k = keyAt(j); c < d; c++) score += Q.numbers[q + c] * K.numbers[k + c];
      maps[at + j] = scale * score;
      most = Math.max(most, maps[at + j]);
    }
    for (let j = 0; j < n; j++) sum += maps[at + j] = Math.exp(maps[at + j] - most);
    for (let j = 0; j < n; j++) {
      const weight = (maps[at + j] /= sum);
      for (let c = 0, v = valueAt(j); c < d; c++) y.numbers[out + c] += weight * V.numbers[v + c];
    }
  });
  tape.push(() => {
    const slopes = new Float32Array(key.length);
    each((n, q, keyAt, valueAt, out, at) => {
      let mean = 0;
      for (let j = 0; j < n; j++) {
        slopes[j] = 0;
        for (let c = 0, v = valueAt(j); c < d; c++) {
          slopes[j] += y.gradient[out + c] * V.numbers[v + c];
          V.gradient[v + c] += maps[at + j] * y.gradient[out + c];
        }
        mean += maps[at + j] * slopes[j];
      }
      for (let j = 0; j < n; j++) {
        const ds = scale * maps[at + j] * (slopes[j] - mean);
        for (let c = 0, k = keyAt(j); c < d; c++) {
          Q.gradient[q + c] += ds * K.numbers[k + c];
          K.gradient[k + c] += ds * Q.numbers[q + c];
        }
      }
    });
  });
  return { output: y, maps };
}

// Mean of −log softmax(logits)[target].  Its gradient: (probabilities − 1 at the target) / rows.
function crossEntropy(tape, logits, targets) {
  const n = logits.columns;
  let loss = 0;
  const probabilities = targets.map((target, i) => {
    const row = logits.numbers.subarray(i * n, (i + 1) * n),
      most = Math.max(...row),
      powers = Float64Array.from(row, (score) => Math.exp(score - most)),
      sum = powers.reduce((a, b) => a + b, 0);
    loss -= row[target] - most - Math.log(sum);
    return powers.map((power) => power / sum);
  });
  tape.push(() => {
    targets.forEach((target, i) => {
      probabilities[i].forEach((p, c) => {
        logits.gradient[i * n + c] += (p - (c === target)) / targets.length;
      });
    });
  });
  return loss / targets.length;
}

// ---- The model

// Random numbers that come again: mulberry32, and a normal one by Box and Muller.
function randomNumbers(seed) {
  const uniform = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let z = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    z = (z + Math.imul(z ^ (z >>> 7), 61 | z)) ^ z;
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return { uniform, normal, below: (n) => Math.floor(uniform() * n) };
}

const SIZES = { symbols: 10, m: 32, heads: 2, inner: 64 };

// Parameters by name: embeddings of deviation 1/√m, matrices by Glorot, biases 0, weights of norms 1.
function newParameters(random, { symbols, m, inner } = SIZES) {
  const parameters = {};
  const matrix = (name, rows, columns, number) => {
    parameters[name] = new Matrix(rows, columns, Float32Array.from({ length: rows * columns }, number));
  };
  const linearParts = (name, parts, rows, columns) => {
    const most = Math.sqrt(6 / (rows + columns));
    matrix(`${name}.weight`, parts * rows, columns, () => most * (2 * random.uniform() - 1));
    matrix(`${name}.bias`, 1, parts * rows, () => 0);
  };
  const norm = (name) => {
    matrix(`${name}.weight`, 1, m, () => 1);
    matrix(`${name}.bias`, 1, m, () => 0);
  };
  for (const [side, front] of [
    ["encoder", "front_end"],
    ["decoder", "target_front_end"],
  ]) {
    const layer = `${side}.layers.0`;
    matrix(`${front}.embedding.weight`, FIRST + symbols, m, () => random.normal() / Math.sqrt(m));
    linearParts(`${layer}.self_attention.query_key_value`, 3, m, m);
    linearParts(`${layer}.self_attention.output`, 1, m, m);
    norm(`${layer}.self_attention_residual.norm`);
    if (side === "decoder") {
      linearParts(`${layer}.cross_attention.query`, 1, m, m);
      linearParts(`${layer}.cross_attention.key_value`, 2, m, m);
      linearParts(`${layer}.cross_attention.output`, 1, m, m);
      norm(`${layer}.cross_attention_residual.norm`);
    }
    linearParts(`${layer}.feed_forward.inner`, 1, inner, m);
    linearParts(`${layer}.feed_forward.outer`, 1, m, inner);
    norm(`${layer}.feed_forward_residual.norm`);
    norm(`${side}.norm`);
  }
  return parameters;
}

// Parts that can be left out: "positions", "scale", "mask", "residual", "norm".
class CopyModel {
  constructor(parameters, leftOut = []) {
    this.parameters = parameters;
    this.leftOut = new Set(leftOut);
    this.m = parameters["encoder.norm.weight"].columns;
  }
  linear(tape, x, name) {
    return linear(tape, x, this.parameters[`${name}.weight`], this.parameters[`${name}.bias`]);
  }
  norm(tape, x, name) {
    if (this.leftOut.has("norm")) return x;
    return layerNorm(tape, x, this.parameters[`${name}.weight`], this.parameters[`${name}.bias`]);
  }
  // x + Sublayer(Norm(x))
  residual(tape, x, name, sublayer) {
    const y = sublayer(this.norm(tape, x, `${name}_residual.norm`), name);
    return this.leftOut.has("residual") ? y : add(tape, x, y);
  }
  attend(tape, name, query, key, value, lines, causal) {
    const d = this.m / SIZES.heads,
      scale = this.leftOut.has("scale") ? 1 : 1 / Math.sqrt(d),
      options = { width: this.m, heads: SIZES.heads, lines, scale, causal },
      { output, maps } = attention(tape, query, key, value, options);
    this.maps[name] = { maps, rows: query.length, columns: key.length, lines };
    return this.linear(tape, output, `${name}.output`);
  }
  // One layer of a side over lines of `length` positions; `memory` is what the encoder made of the source.
  stack(tape, ids, length, side, memory) {
    const front = side === "encoder" ? "front_end" : "target_front_end",
      layer = `${side}.layers.0`,
      lines = ids.length / length,
      causal = side === "decoder" && !this.leftOut.has("mask"),
      table = this.parameters[`${front}.embedding.weight`];
    let x = embed(tape, ids, table, Math.sqrt(this.m));
    if (!this.leftOut.has("positions")) x = withPositions(tape, x, length);
    x = this.residual(tape, x, `${layer}.self_attention`, (y, name) => {
      const all = this.linear(tape, y, `${name}.query_key_value`),
        part = (k) => ({ of: all, from: k * this.m, length });
      return this.attend(tape, name, part(0), part(1), part(2), lines, causal);
    });
    if (memory)
      x = this.residual(tape, x, `${layer}.cross_attention`, (y, name) => {
        const query = { of: this.linear(tape, y, `${name}.query`), from: 0, length },
          both = this.linear(tape, memory.of, `${name}.key_value`),
          part = (k) => ({ of: both, from: k * this.m, length: memory.length });
        return this.attend(tape, name, query, part(0), part(1), lines, false);
      });
    x = this.residual(tape, x, `${layer}.feed_forward`, (y, name) =>
      this.linear(tape, relu(tape, this.linear(tape, y, `${name}.inner`)), `${name}.outer`),
    );
    return this.norm(tape, x, `${side}.norm`);
  }
  // Logits of the next symbol at each position; the output matrix is the table of the target's embeddings.
  logits(tape, sources, sourceLength, inputs, inputLength) {
    this.maps = {};
    const memory = { of: this.stack(tape, sources, sourceLength, "encoder"), length: sourceLength },
      x = this.stack(tape, inputs, inputLength, "decoder", memory);
    return linear(tape, x, this.parameters["target_front_end.embedding.weight"]);
  }
  // Loss of lines of one length to copy, and, with backward, the gradients of all parameters.
  loss(lines, backward = true) {
    const tape = [],
      length = lines[0].length,
      inputs = lines.flatMap((line) => [BOS, ...line]),
      targets = lines.flatMap((line) => [...line, EOS]),
      logits = this.logits(tape, lines.flat(), length, inputs, length + 1),
      loss = crossEntropy(tape, logits, targets);
    if (backward) {
      for (const { gradient } of Object.values(this.parameters)) gradient.fill(0);
      while (tape.length) tape.pop()();
    }
    return loss;
  }
  // The likeliest symbol, one after the other, until the end or `longest` of them.
  copy(line, longest = line.length + 3) {
    const written = [];
    while (written.length < longest) {
      const inputs = [BOS, ...written],
        logits = this.logits([], line, line.length, inputs, inputs.length),
        last = logits.numbers.subarray((inputs.length - 1) * logits.columns),
        best = last.indexOf(Math.max(...last));
      if (best === EOS) break;
      written.push(best);
    }
    return written;
  }
}

// ---- Training

// Adam: the mean of the gradient over the root of the mean of its square, both corrected for their start.
class Adam {
  constructor(parameters, { beta1 = 0.9, beta2 = 0.98, epsilon = 1e-8 } = {}) {
    Object.assign(this, { parameters, beta1, beta2, epsilon, steps: 0 });
    const zeros = () => Object.values(parameters).map((p) => new Float32Array(p.numbers.length));
    this.means = zeros();
    this.squares = zeros();
  }
  // One step, the gradient cut to the length 1.
  step(rate) {
    this.steps++;
    const all = Object.values(this.parameters),
      norm = Math.sqrt(all.reduce((sum, { gradient }) => gradient.reduce((a, g) => a + g * g, sum), 0)),
      cut = Math.min(1, 1 / (norm + 1e-6)),
      first = 1 - this.beta1 ** this.steps,
      second = Math.sqrt(1 - this.beta2 ** this.steps);
    all.forEach(({ numbers, gradient }, i) => {
      const [means, squares] = [this.means[i], this.squares[i]];
      for (let k = 0; k < numbers.length; k++) {
        const slope = gradient[k] * cut;
        means[k] += (1 - this.beta1) * (slope - means[k]);
        squares[k] += (1 - this.beta2) * (slope * slope - squares[k]);
        numbers[k] -= ((rate / first) * means[k]) / (Math.sqrt(squares[k]) / second + this.epsilon);
      }
    });
  }
}

// A training: `step()` draws 64 lines of one length, of 1 to `longest` symbols, and learns from them.
class Training {
  constructor({ leftOut = [], seed = 1, steps = 400, longest = 5, peak = 1e-2, batch = 64 } = {}) {
    Object.assign(this, { steps, longest, peak, batch, losses: [] });
    this.random = randomNumbers(seed);
    this.model = new CopyModel(newParameters(this.random), leftOut);
    this.optimizer = new Adam(this.model.parameters);
  }
  line(length) {
    return Array.from({ length }, () => FIRST + this.random.below(SIZES.symbols));
  }
  // A tenth of the steps of warm-up, then half a cosine.
  rate() {
    const step = this.losses.length,
      warmup = (step + 1) / Math.max(Math.floor(this.steps / 10), 1);
    return this.peak * Math.min(warmup, (1 + Math.cos((Math.PI * step) / this.steps)) / 2);
  }
  step() {
    const length = 1 + this.random.below(this.longest),
      lines = Array.from({ length: this.batch }, () => this.line(length)),
      loss = this.model.loss(lines);
    this.optimizer.step(this.rate());
    this.losses.push(loss);
    return loss;
  }
  // Share of lines that are written again without an error; its lines are not drawn from the training's numbers.
  copied(count = 50, length = this.longest) {
    const random = randomNumbers(12345);
    let right = 0;
    for (let i = 0; i < count; i++) {
      const line = Array.from({ length }, () => FIRST + random.below(SIZES.symbols));
      right += String(this.model.copy(line)) === String(line);
    }
    return right / count;
  }
}
