// The operations of a Transformer, each with its derivative.  dy, dx, dW: gradients of y, x, W.
#pragma once
#include "../native/model.h"
#include "random_numbers.h"
#include "tape.h"

// Sentences one after another: sentence i has the positions starts[i] to starts[i + 1] - 1.
struct Lines {
  std::vector<int> starts{0}, ids;

  int count() const { return (int)starts.size() - 1; }
  int length(int i) const { return starts[i + 1] - starts[i]; }
};

// y = x W^T + b.  So dx = dy W, dW = dy^T x, db = the sum of dy over all rows.
static Matrix linear(Tape& tape, const Matrix& x, const Matrix& weight, const Matrix* bias) {
  const int n = x.rows, out = weight.rows, in = weight.columns;
  const Matrix y = tape.matrix(n, out);
  tape.factor.pack_transposed(weight.numbers, out, in, in);
  if (bias) tape.factor.set_bias(bias->numbers);
  tape.factor.multiply(x.numbers, n, y.numbers, out);
  const float* added = bias ? bias->gradient : nullptr;
  tape.record([=, &tape] {
    tape.factor.pack(weight.numbers, out, in, in);
    tape.add_product(y.gradient, n, in, x.gradient, in);
    tape.add_transposed_product(y.gradient, out, out, x.numbers, in, in, n, weight.gradient, in);
    for (int i = 0; i < n && added; i++) add_to((float*)added, y.gradient_row(i), out);
  });
  return y;
}

// Row i is row ids[i] of the table times a scale, plus the vector of its position if there is one.
static Matrix embed(Tape& tape, const Lines& lines, const Matrix& table, float scale,
                    const Positions& positions, const Matrix* learned) {
  const int m = table.columns;
  const Matrix y = tape.matrix((int)lines.ids.size(), m);
  Floats room;
  for (int i = 0; i < lines.count(); i++) {
    for (int row = lines.starts[i]; row < lines.starts[i + 1]; row++) {
      const int at = row - lines.starts[i];
      const float* position = learned             ? learned->row(at)
                              : positions.added() ? positions.row(at, room)
                                                  : nullptr;
      const float* from = table.row(lines.ids[row]);
      float* to = y.row(row);
      for (int j = 0; j < m; j++) to[j] = scale * from[j] + (position ? position[j] : 0);
    }
  }
  const float* vectors = learned ? learned->gradient : nullptr;
  tape.record([=, &lines] {
    for (int i = 0; i < lines.count(); i++) {
      for (int row = lines.starts[i]; row < lines.starts[i + 1]; row++) {
        float* to = table.gradient_row(lines.ids[row]);
        const float* dy = y.gradient_row(row);
        for (int j = 0; j < m; j++) to[j] += scale * dy[j];
        if (vectors) add_to((float*)vectors + (size_t)(row - lines.starts[i]) * m, dy, m);
      }
    }
  });
  return y;
}

// z = x + y: the gradient of a sum goes to both, undiminished.
static Matrix add(Tape& tape, const Matrix& x, const Matrix& y) {
  const Matrix z = tape.matrix(x.rows, x.columns);
  memcpy(z.numbers, x.numbers, 4 * x.size());
  add_to(z.numbers, y.numbers, x.size());
  tape.record([=] {
    add_to(x.gradient, z.gradient, x.size());
    add_to(y.gradient, z.gradient, x.size());
  });
  return z;
}

// In place, as its operand has no other use.  The way back draws the same mask.
static Matrix dropout(Tape& tape, const Matrix& x, float p, const Draw& draw) {
  if (p <= 0) return x;
  drop(draw, p, x.numbers, x.size());
  tape.record([=] { drop(draw, p, x.gradient, x.size()); });
  return x;
}

// y = n * weight + bias, n = (x - mean) / √(variance + ε), by row; of RMSNorm without mean and bias.
// dx = (dn - mean(dn) - n mean(dn n)) / √(variance + ε), dn = dy * weight.
static Matrix norm(Tape& tape, const Matrix& x, const Matrix& weight, const Matrix* bias,
                   float epsilon) {
  const int m = x.columns;
  const Matrix y = tape.matrix(x.rows, m);
  float *normed = tape.zeros(x.size()), *scales = tape.zeros(x.rows);
  for (int i = 0; i < x.rows; i++) {
    const float* from = x.row(i);
    const auto number = [=](int j) { return load(from + j); };
    const float mean =
        bias ? sum_over(m, number, [=](int j) { return from[j]; }) / m : 0;
    const auto square = [=](int j) { return (load(from + j) - mean) * (load(from + j) - mean); };
    const float variance = sum_over(m, square, [=](int j) {
      return (from[j] - mean) * (from[j] - mean);
    });
    scales[i] = 1 / std::sqrt(variance / m + epsilon);
    float *n = normed + (size_t)i * m, *to = y.row(i);
    for (int j = 0; j < m; j++) {
      n[j] = (from[j] - mean) * scales[i];
      to[j] = n[j] * weight.numbers[j] + (bias ? bias->numbers[j] : 0);
    }
  }
  const float* added = bias ? bias->gradient : nullptr;
  tape.record([=] {
    for (int i = 0; i < x.rows; i++) {
      const float *dy = y.gradient_row(i), *n = normed + (size_t)i * m, *w = weight.numbers;
      float total = 0;
      if (added) {
        total = sum_over(
            m, [=](int j) { return load(dy + j) * load(w + j); },
            [=](int j) { return dy[j] * w[j]; });
      }
      const float product = sum_over(
          m, [=](int j) { return load(dy + j) * load(w + j) * load(n + j); },
          [=](int j) { return dy[j] * w[j] * n[j]; });
      float* dx = x.gradient_row(i);
      for (int j = 0; j < m; j++) {
        weight.gradient[j] += dy[j] * n[j];
        dx[j] += (dy[j] * w[j] - total / m - n[j] * product / m) * scales[i];
      }
      if (added) add_to((float*)added, dy, m);
    }
  });
  return y;
}

// The value and slope of an activation; of gated ones that of the gates.
static inline void activate(Activation kind, V x, V& value, V& slope) {
  if (kind == RELU) {
    value = larger(V{}, x), slope = x > 0 ? all(1) : V{};
    return;
  }
  // σ(u) x, of x itself or of GELU's polynomial (by tanh): tanh is 2 σ - 1.
  const bool is_silu = kind == SILU || kind == SWIGLU;
  const V u = is_silu ? x : 1.59576912f * (x + 0.044715f * x * x * x);
  const V du = is_silu ? all(1) : 1.59576912f * (1.0f + 0.134145f * x * x);
  const V sigmoid = 1.0f / (1.0f + exponential(smaller(all(88.0f), -u)));
  value = x * sigmoid, slope = sigmoid + x * sigmoid * (1.0f - sigmoid) * du;
}

static Matrix activation(Tape& tape, const Matrix& x, Activation kind) {
  const Matrix y = tape.matrix(x.rows, x.columns);
  float* slopes = tape.trains ? tape.zeros(x.size()) : nullptr;
  for (size_t j = 0; j < x.size(); j += W) {  // matrices have room for a vector behind them
    V value, slope;
    activate(kind, load(x.numbers + j), value, slope);
    store(y.numbers + j, value);
    if (slopes) store(slopes + j, slope);
  }
  tape.record([=] {
    for (size_t j = 0; j < x.size(); j++) x.gradient[j] += slopes[j] * y.gradient[j];
  });
  return y;
}

// Gates and inner values side by side (rows, 2 inner) -> f(gate) inner, (rows, inner).
static Matrix gated(Tape& tape, const Matrix& x, Activation kind) {
  const int inner = x.columns / 2;
  const Matrix y = tape.matrix(x.rows, inner);
  const auto each = [=](auto visit) {
    for (int i = 0; i < x.rows; i++) {
      for (int j = 0; j < inner; j++) {
        V value, slope;
        activate(kind, all(x.row(i)[j]), value, slope);
        visit(i, j, value[0], slope[0]);
      }
    }
  };
  each([&](int i, int j, float value, float) { y.row(i)[j] = value * x.row(i)[inner + j]; });
  tape.record([=] {
    each([&](int i, int j, float value, float slope) {
      const float dy = y.gradient_row(i)[j];
      x.gradient_row(i)[j] += dy * slope * x.row(i)[inner + j];
      x.gradient_row(i)[inner + j] += dy * value;
    });
  });
  return y;
}

// Turn pairs of each head by the angles of its position; the way back turns the other way.
// In place: columns from `first` on, `heads` of `width`.
static void rotate(Tape& tape, const Lines& lines, const Matrix& x, int first, int heads, int width,
                   const Positions& positions) {
  const auto turn = [=, &lines, &positions](float* numbers, float direction) {
    const int half = width / 2;
    Floats room;
    for (int i = 0; i < lines.count(); i++) {
      for (int row = lines.starts[i]; row < lines.starts[i + 1]; row++) {
        const float* cosine = positions.row(row - lines.starts[i], room);
        for (int h = 0; h < heads; h++) {
          float* low = numbers + (size_t)row * x.columns + first + h * width;
          for (int j = 0; j < half; j++) {
            const float a = low[j], b = low[half + j], sine = direction * cosine[half + j];
            low[j] = a * cosine[j] - b * sine;
            low[half + j] = b * cosine[j] + a * sine;
          }
        }
      }
    }
  };
  turn(x.numbers, 1);
  tape.record([=] { turn(x.gradient, -1); });
}

// Columns of a matrix that are the queries, keys or values of all heads.
struct Part {
  Matrix of;
  int first;
  const Lines* lines;
};

// Weights of the heads of a pass: those of head h of sentence i, (queries, keys), stand at
// numbers + starts[i] + h * queries * keys.
struct Weights {
  int heads;
  const Lines *queries, *keys;
  std::vector<size_t> starts;
  float* numbers;
};

// Softmax of a row of scores, of which the first n count; the others become 0.
static void softmax(float* row, int n, int columns) {
  float top = row[0], total = 0;
  for (int j = 1; j < n; j++) top = std::max(top, row[j]);
  int j = 0;
  for (; j + W <= n; j += W) store(row + j, exponential(load(row + j) - top));
  for (; j < n; j++) row[j] = exponential(row[j] - top);
  for (j = 0; j < n; j++) total += row[j];
  for (j = 0; j < n; j++) row[j] /= total;
  std::fill(row + n, row + columns, 0.0f);
}

// Each head: α = softmax(scale q·k), output Σ α v.  A causal query sees keys up to its own position.
// dv = α dy, dα = dy·v; softmax: ds = α (dα - Σ α dα); dq = scale ds k, dk = scale ds q.
static Matrix attention(Tape& tape, const Part& query, const Part& key, const Part& value,
                        int heads, int width, float scale, bool causal, const Positions& positions,
                        Weights& weights) {
  const Lines &asked = *query.lines, &seen = *key.lines;
  const Matrix y = tape.matrix(query.of.rows, heads * width);
  weights = {heads, &asked, &seen, {0}, nullptr};
  for (int i = 0; i < asked.count(); i++) {
    weights.starts.push_back(weights.starts.back() +
                             (size_t)heads * asked.length(i) * seen.length(i));
  }
  float* const all_weights = weights.numbers = tape.zeros(weights.starts.back());
  const auto at = [=](const Part& part, float* numbers, int sentence, int head) {
    return numbers + (size_t)part.lines->starts[sentence] * part.of.columns + part.first +
           head * width;
  };
  const auto gather = [=](const float* from, int rows, int stride, Buffer<float>& to) {
    float* rows_of_head = to.at_least((size_t)rows * width);
    for (int r = 0; r < rows; r++) {
      memcpy(rows_of_head + (size_t)r * width, from + (size_t)r * stride, 4 * width);
    }
    return rows_of_head;
  };
  Buffer<float> room;
  for (int i = 0; i < asked.count(); i++) {
    const int n = asked.length(i), k = seen.length(i);
    for (int h = 0; h < heads; h++) {
      float* row = all_weights + weights.starts[i] + (size_t)h * n * k;
      tape.factor.pack_transposed(at(key, key.of.numbers, i, h), k, width, key.of.columns);
      tape.factor.multiply(gather(at(query, query.of.numbers, i, h), n, query.of.columns, room), n,
                           row, k);
      for (int r = 0; r < n; r++) {
        float* scores = row + (size_t)r * k;
        const int count = causal ? std::min(r + 1, k) : k;
        for (int j = 0; j < count; j++) scores[j] *= scale;
        positions.add_biases(h, r, count, scores);
        softmax(scores, count, k);
      }
      tape.factor.pack(at(value, value.of.numbers, i, h), k, width, value.of.columns);
      tape.factor.multiply(row, n, y.row(asked.starts[i]) + h * width, y.columns);
    }
  }
  const std::vector<size_t> starts = weights.starts;
  tape.record([=, &tape, &asked, &seen] {
    Buffer<float> slopes_room, outputs;
    for (int i = 0; i < asked.count(); i++) {
      const int n = asked.length(i), k = seen.length(i);
      for (int h = 0; h < heads; h++) {
        const float* row = all_weights + starts[i] + (size_t)h * n * k;
        const float* dy = gather(y.gradient_row(asked.starts[i]) + h * width, n, y.columns, outputs);
        float* slopes = slopes_room.at_least((size_t)n * k);
        tape.factor.pack_transposed(at(value, value.of.numbers, i, h), k, width, value.of.columns);
        tape.factor.multiply(dy, n, slopes, k);
        tape.add_transposed_product(row, k, k, dy, width, width, n,
                                    at(value, value.of.gradient, i, h), value.of.columns);
        for (int r = 0; r < n; r++) {
          float *ds = slopes + (size_t)r * k, mean = 0;
          const float* alpha = row + (size_t)r * k;
          for (int j = 0; j < k; j++) mean += alpha[j] * ds[j];
          for (int j = 0; j < k; j++) ds[j] = scale * alpha[j] * (ds[j] - mean);
        }
        tape.factor.pack(at(key, key.of.numbers, i, h), k, width, key.of.columns);
        tape.add_product(slopes, n, width, at(query, query.of.gradient, i, h), query.of.columns);
        tape.add_transposed_product(slopes, k, k, at(query, query.of.numbers, i, h), width,
                                    query.of.columns, n, at(key, key.of.gradient, i, h),
                                    key.of.columns);
      }
    }
  });
  return y;
}

struct Loss {
  double total = 0, nll = 0;  // sums over targets, in nats: with label smoothing, and without
  int count = 0;
};

// Cross-entropy of logits for targets, of which those below 0 do not count.  The target distribution q
// has 1 - smoothing on the right token and `smoothing` spread over all.  Of the mean over the targets:
// dlogits = (p - q) / count.
static Loss cross_entropy(Tape& tape, const Matrix& logits, const int32_t* targets,
                          float smoothing) {
  const int v = logits.columns;
  Loss loss;
  for (int i = 0; i < logits.rows; i++) loss.count += targets[i] >= 0;
  float* probabilities = tape.zeros(logits.size());
  for (int i = 0; i < logits.rows; i++) {
    if (targets[i] < 0) continue;
    const float* row = logits.row(i);
    float *p = probabilities + (size_t)i * v, top = row[0];
    double total = 0, mean = 0;
    for (int j = 1; j < v; j++) top = std::max(top, row[j]);
    int j = 0;
    for (; j + W <= v; j += W) store(p + j, exponential(load(row + j) - top));
    for (; j < v; j++) p[j] = exponential(row[j] - top);
    for (j = 0; j < v; j++) total += p[j], mean += row[j];
    const double log_normaliser = top + logarithm(total);
    loss.nll += log_normaliser - row[targets[i]];
    loss.total += log_normaliser - (1 - smoothing) * row[targets[i]] - smoothing * mean / v;
    const float scale = (float)(1 / total);
    for (j = 0; j < v; j++) p[j] *= scale;
    p[targets[i]] -= 1 - smoothing;
  }
  const int count = loss.count;
  tape.record([=] {
    for (int i = 0; i < logits.rows; i++) {
      if (targets[i] < 0) continue;
      const float *p = probabilities + (size_t)i * v, each = smoothing / v;
      float* to = logits.gradient_row(i);
      for (int j = 0; j < v; j++) to[j] += (p[j] - each) / count;
    }
  });
  return loss;
}
