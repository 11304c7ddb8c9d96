// Matrices with gradients, and the tape of a pass: the way back of the native engine.
//
// Each operation computes its result and puts its own derivative on the tape; `backward` plays the
// tape from its end.  Sentences stand one after another without padding, so that a batch is one
// matrix (positions, width).  All products are those of the engine (products.h).
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "../native/products.h"

// gradient: change of the loss for a small change of each number.
struct Matrix {
  int rows = 0, columns = 0;
  float *numbers = nullptr, *gradient = nullptr;

  size_t size() const { return (size_t)rows * columns; }
  float* row(int i) const { return numbers + (size_t)i * columns; }
  float* gradient_row(int i) const { return gradient + (size_t)i * columns; }
};

// Memory of one pass, used again by the next; zeros, with room for vectors behind them.
class Arena {
 public:
  float* zeros(size_t n) {
    n = (n + 2 * LANES - 1) / LANES * LANES;
    if (at_ == blocks_.size() || used_ + n > blocks_[at_].room) next(n);
    float* to = blocks_[at_].memory.data() + used_;
    used_ += n;
    memset(to, 0, 4 * n);
    return to;
  }
  void clear() { at_ = 0, used_ = 0; }

 private:
  struct Block {
    Buffer<float> memory;
    size_t room;
  };
  static constexpr size_t LEAST = 1 << 20;
  std::vector<Block> blocks_;
  size_t at_ = 0, used_ = 0;

  void next(size_t n) {
    if (at_ < blocks_.size()) at_++;
    while (at_ < blocks_.size() && blocks_[at_].room < n) at_++;
    used_ = 0;
    if (at_ < blocks_.size()) return;
    blocks_.push_back({Buffer<float>(), std::max(n, LEAST)});
    blocks_.back().memory.at_least(blocks_.back().room);
  }
};

// x (rows, columns), `stride` floats between rows -> to (columns, rows).
static void transpose(const float* x, int rows, int columns, int stride, float* to) {
  constexpr int TILE = 16;
  for (int first = 0; first < rows; first += TILE) {
    const int end = std::min(first + TILE, rows);
    for (int j = 0; j < columns; j++) {
      for (int i = first; i < end; i++) to[(size_t)j * rows + i] = x[(size_t)i * stride + j];
    }
  }
}

// A matrix on the right of products, packed for one of them.
class Factor {
 public:
  // B (inputs, outputs), for y = x B.
  void pack(const float* b, int inputs, int outputs, int stride) {
    make_room(outputs, inputs);
    for (int first = 0; first < outputs; first += PANEL) {
      const int count = std::min(PANEL, outputs - first);
      float* to = (float*)linear_.packed.data() + (size_t)first * inputs;
      for (int j = 0; j < inputs; j++, to += PANEL) {
        memcpy(to, b + (size_t)j * stride + first, 4 * count);
        for (int i = count; i < PANEL; i++) to[i] = 0;
      }
    }
  }
  // B (outputs, inputs), for y = x B^T.
  void pack_transposed(const float* b, int outputs, int inputs, int stride) {
    make_room(outputs, inputs);
    for (int first = 0; first < outputs; first += PANEL) {
      const int count = std::min(PANEL, outputs - first);
      float* to = (float*)linear_.packed.data() + (size_t)first * inputs;
      for (int i = 0; i < PANEL; i++) {
        const float* row = b + (size_t)(first + std::min(i, count - 1)) * stride;
        for (int j = 0; j < inputs; j++) to[(size_t)j * PANEL + i] = row[j];
      }
    }
  }
  void set_bias(const float* bias) { std::copy(bias, bias + linear_.outputs, linear_.bias.begin()); }

  // y (rows, outputs) of x (rows, inputs); `stride` floats between rows of y.
  void multiply(const float* x, int rows, float* y, int stride) {
    ::multiply<FLOAT32>(linear_, {(const uint32_t*)x}, rows, y, stride, false);
  }

 private:
  Linear linear_;

  void make_room(int outputs, int inputs) {
    linear_.outputs = outputs, linear_.inputs = linear_.groups = inputs;
    linear_.panels = (outputs + PANEL - 1) / PANEL;
    linear_.packed.at_least((size_t)linear_.panels * inputs * PANEL);
    linear_.bias.assign((size_t)linear_.panels * PANEL, 0.0f);
    linear_.scale.resize((size_t)linear_.panels * PANEL);
  }
};

// to += from, n numbers.
static void add_to(float* to, const float* from, size_t n) {
  size_t j = 0;
  for (; j + W <= n; j += W) store(to + j, load(to + j) + load(from + j));
  for (; j < n; j++) to[j] += from[j];
}

// The sum of part(j), a vector of the numbers from j on, over n numbers; `single` of one number.
template <class Part, class Single>
static float sum_over(int n, Part part, Single single) {
  float total = sum(combined(n, V{}, part, [](V a, V b) { return a + b; }));
  for (int j = n / LANES * LANES; j < n; j++) total += single(j);
  return total;
}

// One pass: its memory, and its derivatives in the order of their operations.
class Tape {
 public:
  bool trains = true;  // records derivatives
  Factor factor;
  Buffer<float> scratch, turned;

  Matrix matrix(int rows, int columns) {
    const size_t n = (size_t)rows * columns;
    return {rows, columns, arena_.zeros(n), trains ? arena_.zeros(n) : nullptr};
  }
  float* zeros(size_t n) { return arena_.zeros(n); }
  void record(std::function<void()> derivative) {
    if (trains) derivatives_.push_back(std::move(derivative));
  }
  void backward() {
    for (; !derivatives_.empty(); derivatives_.pop_back()) derivatives_.back()();
  }
  void clear() { derivatives_.clear(), arena_.clear(); }

  // to (columns of a, columns of b) += a^T b, of a and b with as many rows.
  void add_transposed_product(const float* a, int a_columns, int a_stride, const float* b,
                              int b_columns, int b_stride, int rows, float* to, int to_stride) {
    float* left = turned.at_least((size_t)rows * a_columns);
    transpose(a, rows, a_columns, a_stride, left);
    factor.pack(b, rows, b_columns, b_stride);
    add_product(left, a_columns, b_columns, to, to_stride);
  }
  // to (rows, columns) += x times the factor.
  void add_product(const float* x, int rows, int columns, float* to, int to_stride) {
    float* product = scratch.at_least((size_t)rows * columns);
    factor.multiply(x, rows, product, columns);
    for (int i = 0; i < rows; i++) {
      add_to(to + (size_t)i * to_stride, product + (size_t)i * columns, columns);
    }
  }

 private:
  Arena arena_;
  std::vector<std::function<void()>> derivatives_;
};
