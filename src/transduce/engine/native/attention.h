// Attention of one query over keys and values that stay where their step wrote them.
//
// Keys and values are gathered by pointer: a hypothesis is a list of pointers, and when the beam is
// reordered only the lists change.  A head is padded to whole vectors when the weights are loaded,
// with zeros, which add nothing.
#pragma once
#include <algorithm>
#include <vector>

#include "vectors.h"

constexpr float NEVER = -3e38f;

struct Heads {
  int count, width, padded;  // padded: width, rounded up to whole vectors
  Heads(int count_, int width_)
      : count(count_), width(width_), padded((width_ + W - 1) / W * W) {}
  int total() const { return count * padded; }
};

// The positions that a query may look at.
struct Keys {
  std::vector<const float*> keys, values;  // each (heads.total())
  void resize(size_t n) { keys.resize(n), values.resize(n); }
  int size() const { return (int)keys.size(); }
};

// Weighted sum of one head's values: c += s_i * values_i over P vectors.
template <int P>
static void mix(const float* weights, const Keys& seen, size_t offset, float total, float* out) {
  V sums[P] = {};
  for (int i = 0; i < seen.size(); i++) {
    const float* value = seen.values[i] + offset;
    for (int p = 0; p < P; p++) sums[p] += weights[i] * load(value + p * W);
  }
  for (int p = 0; p < P; p++) store(out + p * W, sums[p] / total);
}

// softmax(q K^T / sqrt(d)) V for each head; q and out (heads.total()).
//
// slopes: (heads) of ALiBi with the query at position `at`, or null.  weights: (keys) the mean of
// the heads' attention is written there, or null.
static void attend(const float* query, const Keys& seen, const Heads& heads, const float* slopes,
                   int at, float* out, float* weights, Buffer<float>& scratch) {
  const int n = seen.size(), d = heads.padded;
  const float scale = 1 / std::sqrt((float)heads.width);
  float* scores = scratch.at_least((size_t)n + W);
  if (weights) std::fill(weights, weights + n, 0.0f);
  for (int h = 0; h < heads.count; h++) {
    const size_t offset = (size_t)h * d;
    for (int i = 0; i < n; i++) {
      V dot{};
      for (int j = 0; j < d; j += W) dot += load(query + offset + j) * load(seen.keys[i] + offset + j);
      scores[i] = sum(dot) * scale;
      if (slopes) scores[i] -= slopes[h] * std::abs(at - i);
    }
    for (int i = n; i < n + W; i++) scores[i] = NEVER;
    V tops = all(NEVER), sums{};
    for (int i = 0; i < n; i += W) tops = larger(tops, load(scores + i));
    const V top = all(maximum(tops));
    for (int i = 0; i < n; i += W) {
      const V e = exponential(load(scores + i) - top);  // past the end 1e-38, lost in the sum
      sums += e;
      store(scores + i, e);
    }
    const float total = sum(sums);
    if (weights) {
      for (int i = 0; i < n; i++) weights[i] += scores[i] / (total * heads.count);
    }
    int j = 0;
    for (; j + 4 * W <= d; j += 4 * W) mix<4>(scores, seen, offset + j, total, out + offset + j);
    for (; j + 2 * W <= d; j += 2 * W) mix<2>(scores, seen, offset + j, total, out + offset + j);
    for (; j < d; j += W) mix<1>(scores, seen, offset + j, total, out + offset + j);
  }
}
