// Attention over many keys, for many queries: products of matrices that are packed once.
#pragma once
#include "attention.h"
#include "products.h"

constexpr int MANY_KEYS = 256;  // from so many on, attention is of this kind

// Keys and values of many positions, of one head.
class PackedHead {
 public:
  // keys, values: of the first of n positions, `stride` floats apart.  Beside int8 in float32.
  void pack(Precision precision, const float* keys, const float* values, int stride, int n,
            const Heads& heads) {
    if (precision == INT8) precision = FUSED;
    n_ = n, scale_ = 1 / std::sqrt((float)heads.width);
    const int d = heads.padded, whole = (n + LANES - 1) / LANES * LANES;
    Floats rows((size_t)whole * d);
    for (int i = 0; i < n; i++) memcpy(&rows[(size_t)i * d], keys + (size_t)i * stride, 4 * d);
    keys_.pack(precision, {rows.data(), nullptr, (size_t)d}, nullptr, whole);
    for (int i = 0; i < n; i++) {
      for (int j = 0; j < d; j++) rows[(size_t)j * whole + i] = values[(size_t)i * stride + j];
    }
    for (int j = 0; j < d; j++) std::fill_n(&rows[(size_t)j * whole + n], whole - n, 0.0f);
    values_.pack(precision, {rows.data(), nullptr, (size_t)whole}, nullptr, d);
  }

  // out = softmax(q K^T / sqrt(d)) V of `count` queries; both of the head, `stride` floats apart.
  //
  // positions: that add to the scores of `head`, with the queries from 0 on, or null.  weights: (count, keys), rows
  // `weights_stride` apart, to which this head's attention is added, divided by `heads`, or null.
  void attend(const float* queries, int count, int stride, const Positions* positions, int head,
              float* out, int out_stride, float* weights, int weights_stride, int heads,
              Buffer<float>& scratch, ProductScratch& products) const {
    constexpr int TOGETHER = 4 * ROWS;
    const int d = keys_.inputs, whole = keys_.outputs;
    for (int first = 0; first < count; first += TOGETHER) {
      const int rows = std::min(TOGETHER, count - first);
      float* scaled = scratch.at_least((size_t)TOGETHER * (d + whole) + W);
      float* scores = scaled + TOGETHER * d;
      for (int i = 0; i < rows; i++) {
        const float* query = queries + (size_t)(first + i) * stride;
        for (int j = 0; j < d; j++) scaled[i * d + j] = query[j] * scale_;
      }
      apply(keys_, scaled, rows, scores, whole, products);
      float totals[TOGETHER];
      for (int i = 0; i < rows; i++) {
        float* row = scores + (size_t)i * whole;
        if (positions) positions->add_biases(head, first + i, n_, row);
        totals[i] = softmax(row, n_);
        float* seen = weights ? weights + (size_t)(first + i) * weights_stride : nullptr;
        for (int k = 0; k < n_ && seen; k++) seen[k] += row[k] / (totals[i] * heads);
      }
      float* to = out + (size_t)first * out_stride;
      apply(values_, scores, rows, to, out_stride, products);
      for (int i = 0; i < rows; i++) {
        for (int j = 0; j < d; j++) to[(size_t)i * out_stride + j] /= totals[i];
      }
    }
  }

 private:
  Linear keys_, values_;  // (keys, d) and (d, keys), of whole vectors of keys
  int n_ = 0;
  float scale_ = 1;
};
