// An encoder alone: a vector of each text, and scores of texts or of positions.
//
// Texts go through the layers some hundred positions at a time, so that a layer's rows stay in the
// cache; threads take these shares in turn.
#pragma once
#include "layers.h"

// Texts one after another.  segments: of each position, or null.  positions (count): places in
// ascending order, counted over all texts, whose scores are to be written; null for the scores of
// the pooled vectors.
struct EncoderInputs {
  Sentences tokens;
  const int32_t *segments, *positions;
  int count;
};

// The pooled vector (m) of n rows.
static void pool(Pooling pooling, const float* x, int n, int m, float* to) {
  memcpy(to, x, 4 * (size_t)m);
  for (int i = 1; i < n && pooling != FIRST_VECTOR; i++) {
    const float* row = x + (size_t)i * m;
    for (int j = 0; j < m; j++) {
      const bool is_largest = row[j] > to[j] || std::isnan(row[j]);
      to[j] = pooling != MAXIMUM ? to[j] + row[j] : is_largest ? row[j] : to[j];
    }
  }
  for (int j = 0; j < m && pooling == MEAN_VECTOR; j++) to[j] /= (float)n;
}

// Scores (rows, scores) of vectors (rows, m).
static void score(const Model& model, const float* x, int rows, float* to, Scratch& scratch) {
  const int m = model.shape.width;
  const auto dense = (Dense)model.shape.dense;
  if (dense) {
    const size_t size = (size_t)rows * m;
    float* hidden = scratch.wide.at_least(size);
    apply(model.dense, x, rows, hidden, m, scratch.products, dense == DENSE_RELU);
    if (dense == DENSE_TANH) {
      for (size_t i = 0; i < size; i += W) {
        store(hidden + i, sigmoid_times(all(2), 2.0f * load(hidden + i)) - 1.0f);
      }
    } else if (dense == DENSE_GELU_NORM) {
      activate(GELU, hidden, size);
      layer_norm(model.dense_norm, hidden, rows, m, hidden);
    }
    x = hidden;
  }
  apply(model.head, x, rows, to, model.shape.scores, scratch.products);
}

// The outputs of texts `from` to `to`; see `encode_all`.
static void encode_texts(const Model& model, const EncoderInputs& texts, int from, int to, float* vectors,
                         float* scores, Scratch& scratch) {
  const int m = model.shape.width, n = to - from, width = model.shape.scores;
  const int first = texts.tokens.starts[from], end = texts.tokens.starts[to];
  const Sentences part = texts.tokens.part(from, to);
  Buffer<float> outputs, chosen;
  float* x = outputs.at_least((size_t)(end - first) * m);
  encode(model, part, x, scratch, texts.segments ? texts.segments + first : nullptr);
  if (model.shape.pooling && (vectors || !texts.positions)) {
    float* pooled = vectors ? vectors + (size_t)from * m : chosen.at_least((size_t)n * m);
    for (int i = 0; i < n; i++) {
      pool((Pooling)model.shape.pooling, x + (size_t)part.starts[i] * m, part.length(i), m,
           pooled + (size_t)i * m);
    }
    if (scores && !texts.positions) {
      score(model, pooled, n, scores + (size_t)from * width, scratch);
    }
  }
  if (!scores || !texts.positions) return;
  const int32_t* last = texts.positions + texts.count;
  const int32_t* at = std::lower_bound(texts.positions, last, first);
  const int rows = (int)(std::lower_bound(at, last, end) - at);
  float* picked = chosen.at_least((size_t)rows * m);
  for (int i = 0; i < rows; i++) {
    memcpy(picked + (size_t)i * m, x + (size_t)(at[i] - first) * m, 4 * (size_t)m);
  }
  if (rows) score(model, picked, rows, scores + (at - texts.positions) * (size_t)width, scratch);
}

// vectors (texts, m) and scores (texts or positions, scores), each unless null.
static void encode_all(const Model& model, const EncoderInputs& texts, int threads, float* vectors,
                       float* scores) {
  constexpr int SHARE = 128;  // positions, at least, but for the last
  std::vector<int> borders{0};
  for (int i = 1; i <= texts.tokens.count(); i++) {
    const int size = texts.tokens.starts[i] - texts.tokens.starts[borders.back()];
    if (size >= SHARE || i == texts.tokens.count()) borders.push_back(i);
  }
  std::vector<Scratch> scratches(std::clamp(threads, 1, 1024));
  share_out((int)borders.size() - 1, scratches, [&](int i, Scratch& scratch) {
    encode_texts(model, texts, borders[i], borders[i + 1], vectors, scores, scratch);
  });
}
