// Attention of one query over keys and values that stay where their step wrote them.
//
// Keys and values are gathered by pointer: a hypothesis is a list of pointers, and when the beam is
// reordered only the lists change.  A head is padded to whole vectors when the weights are loaded,
// with zeros, which add nothing.
#pragma once
#include <algorithm>
#include <vector>

#include "positions.h"

constexpr float NEVER = -3e38f;

struct Heads {
  int count, width, padded;  // padded: width, rounded up to whole vectors
  Heads(int count_, int width_)
      : count(count_), width(width_), padded((width_ + W - 1) / W * W) {}
  int total() const { return count * padded; }
};

// The positions that a query may look at.  Keys come in groups of W; the last is filled up with
// repetitions, whose weights are 0.
class Keys {
 public:
  std::vector<const float*> keys, values;  // each (heads.total())

  void clear() { keys.clear(), values.clear(); }
  void add(const float* key, const float* value) {
    keys.resize(values.size());  // what filled it up
    keys.push_back(key), values.push_back(value);
  }
  void fill_up() {
    while (keys.size() % W) keys.push_back(keys.back());
  }
  int size() const { return (int)values.size(); }
};

// Lane by lane the products of a query with W keys of one head, of every STEP-th part of its LANES.
template <int PART, int STEP>
static inline void add_up(const float* query, const float* const* keys, size_t offset, int d,
                          V* products) {
  if constexpr (STEP < PARTS) {
    V others[W] = {};
    add_up<PART, 2 * STEP>(query, keys, offset, d, products);
    add_up<PART + STEP, 2 * STEP>(query, keys, offset, d, others);
    for (int k = 0; k < W; k++) products[k] += others[k];
  } else {
    const size_t first = offset + PART * W;
    for (size_t j = first; j < offset + d; j += LANES) {
      const V q = load(query + j);
#pragma GCC unroll 16
      for (int k = 0; k < W; k++) {
        const V product = q * load(keys[k] + j);
        products[k] = j == first ? product : products[k] + product;
      }
    }
  }
}

// Products of a query with W keys of one head.
static inline V dots(const float* query, const float* const* keys, size_t offset, int d) {
  V products[W] = {};
  add_up<0, 1>(query, keys, offset, d, products);
  return sums_of<W>(products);
}

// Powers of e of n scores, below their largest, in their place; returns their sum.  There is room
// for whole LANES.
static inline float softmax(float* scores, int n) {
  for (int i = n; i % LANES; i++) scores[i] = NEVER;
  V tops = all(NEVER);
  for (int i = 0; i < n; i += W) tops = larger(tops, load(scores + i));
  const V top = all(maximum(tops));
  Wide<V> sums{};
  for (int i = 0; i < n; i += LANES) {
    for (int p = 0; p < PARTS; p++) {
      const V e = exponential(load(scores + i + p * W) - top);  // past the end 1e-38
      sums.part[p] += e;
      store(scores + i + p * W, e);
    }
  }
  return sum(sums);
}

// Weighted sum of one head's values over P vectors; odd and even keys have sums of their own, so
// that one addition need not wait for the other.
template <int P>
static void mix(const float* weights, const Keys& seen, size_t offset, float total, float* out) {
  V even[P] = {}, odd[P] = {};
  const int n = seen.size();
  int i = 0;
  for (; i + 2 <= n; i += 2) {
    const float *a = seen.values[i] + offset, *b = seen.values[i + 1] + offset;
    for (int p = 0; p < P; p++) even[p] += weights[i] * load(a + p * W);
    for (int p = 0; p < P; p++) odd[p] += weights[i + 1] * load(b + p * W);
  }
  for (; i < n; i++) {
    for (int p = 0; p < P; p++) even[p] += weights[i] * load(seen.values[i] + offset + p * W);
  }
  for (int p = 0; p < P; p++) store(out + p * W, (even[p] + odd[p]) / total);
}

// softmax(q K^T / sqrt(d)) V for each head; q and out (heads.total()).
//
// positions: that add to the scores of the query, at `at`, or null.  weights: (keys) the mean of
// the heads' attention is written there, or null.
static void attend(const float* query, const Keys& seen, const Heads& heads,
                   const Positions* positions, int at, float* out, float* weights, Buffer<float>& scratch) {
  const int n = seen.size(), d = heads.padded;
  const float scale = 1 / std::sqrt((float)heads.width);
  float* scores = scratch.at_least((size_t)n + 2 * LANES);
  if (weights) std::fill(weights, weights + n, 0.0f);
  for (int h = 0; h < heads.count; h++) {
    const size_t offset = (size_t)h * d;
    for (int i = 0; i < n; i += W) {
      store(scores + i, dots(query, &seen.keys[i], offset, d) * scale);
    }
    if (positions) positions->add_biases(h, at, n, scores);
    const float total = softmax(scores, n);
    if (weights) {
      for (int i = 0; i < n; i++) weights[i] += scores[i] / (total * heads.count);
    }
    int j = 0;
    for (; j + 4 * W <= d; j += 4 * W) mix<4>(scores, seen, offset + j, total, out + offset + j);
    for (; j + 2 * W <= d; j += 2 * W) mix<2>(scores, seen, offset + j, total, out + offset + j);
    for (; j < d; j += W) mix<1>(scores, seen, offset + j, total, out + offset + j);
  }
}
