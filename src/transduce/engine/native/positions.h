// Kinds of positions of a stack: vectors, angles, and what they add to the scores of attention.
#pragma once
#include <algorithm>

#include "elementary.h"
#include "vectors.h"

enum PositionKind {
  NO_POSITIONS,
  SINUSOIDAL,
  SINUSOIDAL_HALVES,
  LEARNED,
  ROTARY,
  ALIBI,
  SINUSOIDAL_MARIAN,
  RELATIVE
};

// As the caller gives them; the same fields in `library.py`.
struct StackShape {
  int32_t layers, heads, head_width, inner, activation, pre_norm, positions, max_positions;
  int32_t embedding_norm;
  float epsilon;
  int32_t recurrent;  // of a decoder: a simple recurrent unit for self-attention
  int32_t rms;        // norms divide by the root mean square alone
  int32_t buckets, distance;  // classes of relative positions, and where the last begins
};

// Angles and vectors of positions; the first ones are kept, later ones are computed when needed.
class Positions {
 public:
  static constexpr int KEPT = 512;
  PositionKind kind = NO_POSITIONS;
  const float* learned = nullptr;  // (max_positions, width); (buckets, heads) of relative ones

  void prepare(const StackShape& shape, int width_, bool causal_) {
    kind = (PositionKind)shape.positions, width = width_, head_width = shape.head_width;
    heads = shape.heads, causal = causal_, side = causal ? shape.buckets : shape.buckets / 2;
    for (int h = 0; h < heads && kind == ALIBI; h++) {
      slopes.push_back((float)power(2, -8.0f * (h + 1) / heads));
    }
    for (int at = 0; at <= shape.distance && kind == RELATIVE; at++) {
      const int single = side / 2;
      const float whole = (float)logarithm((double)shape.distance / single);
      const float steps = (float)logarithm((float)std::max(at, 1) / single) / whole;
      const int grown = single + (int)(steps * (side - single));
      classes.push_back(at < single ? at : std::min(grown, side - 1));
    }
    const bool computed = is_sinusoidal() || kind == ROTARY;
    kept.resize(computed ? (size_t)KEPT * size() : 0);
    for (int at = 0; at < KEPT && computed; at++) compute(at, &kept[(size_t)at * size()]);
  }

  // Sinusoids (width) of a position, or cosines (head_width / 2) and then sines of its angles.
  const float* row(int at, Floats& scratch) const {
    if (kind == LEARNED) return learned + (size_t)at * width;
    if (at < KEPT) return &kept[(size_t)at * size()];
    scratch.resize(size());
    compute(at, scratch.data());
    return scratch.data();
  }
  bool added() const { return kind == LEARNED || is_sinusoidal(); }

  // Add to the scores (n) of a head, of a query at a position, what the first n keys have.
  void add_biases(int head, int at, int n, float* scores) const {
    for (int i = 0; i < n && kind == ALIBI; i++) scores[i] -= slopes[head] * std::abs(at - i);
    for (int i = 0; i < n && kind == RELATIVE; i++) {
      const int near = classes[std::min((size_t)std::abs(at - i), classes.size() - 1)];
      scores[i] += learned[(size_t)(near + (!causal && i > at ? side : 0)) * heads + head];
    }
  }

 private:
  int width = 0, head_width = 0, heads = 0, side = 0;
  bool causal = false;
  Floats kept, slopes;       // slopes: (heads) of ALiBi
  std::vector<int> classes;  // of relative distances to one side

  bool is_sinusoidal() const {
    return kind == SINUSOIDAL || kind == SINUSOIDAL_HALVES || kind == SINUSOIDAL_MARIAN;
  }
  int size() const { return kind == ROTARY ? head_width : width; }
  void compute(int at, float* to) const {
    const int n = size();
    for (int i = 0; 2 * i < n; i++) {
      if (kind == ROTARY) {
        const Angle angle(at * (float)power(10000, -(2.0 * i) / n));
        to[i] = (float)angle.cosine, to[i + n / 2] = (float)angle.sine;
        continue;
      }
      const int steps = kind == SINUSOIDAL_MARIAN ? std::max(n - 2, 1) : n;
      const Angle angle(at / power(10000, 2.0 * i / steps));
      const int half = (n + 1) / 2;
      const int sine = kind == SINUSOIDAL ? 2 * i : i;
      const int cosine = kind == SINUSOIDAL ? 2 * i + 1 : half + i;
      to[sine] = (float)angle.sine;
      if (cosine < n) to[cosine] = (float)angle.cosine;
    }
  }
};
