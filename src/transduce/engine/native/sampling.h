// The choice of the tokens that continue a hypothesis, by chance; random numbers are the caller's.
//
// Tokens stand in the order of their ids, each with a stretch as long as its probability; a number
// from [0, 1) draws the token of its stretch.  Rounding moves a border by next to nothing, and
// cannot swap two tokens.  A stretch is found by the sums of blocks, without a sum up to every
// token; the likeliest tokens by bisection for the least likely of them, without sorting.
#pragma once
#include <cfloat>

#include "choice.h"

// As the caller gives them; the same fields in `library.py`.
//
// temperature: divisor of the logits.  top_k, top_p, min_p: limits of the distribution; 0, 1 and 0
// for none.  uniforms: (sentences, samples, steps) numbers from [0, 1); null for a search.
struct Sampling {
  double temperature, top_p, min_p;
  int32_t top_k, steps;
  const double* uniforms;
};

// The distribution of the next token.
class Distribution {
 public:
  // Of the logits of a row, of which DEAD ones are not allowed.
  void prepare(const Row& row, const Sampling& sampling) {
    blocks_ = (row.n + BLOCK - 1) / BLOCK;
    total_ = 0;
    const float top = largest(row.logits, row.n);
    if (top == DEAD) return;
    weigh(row, top, sampling.temperature);
    if (sampling.top_k && sampling.top_k < row.n) keep_top_k(row, sampling.top_k);
    if (sampling.top_p < 1) keep_top_p(sampling.top_p);
    sum_up((float)sampling.min_p);
  }
  bool is_empty() const { return total_ == 0; }

  // Not of an empty distribution.
  int draw(double uniform) const {
    double left = uniform * total_;
    int block = 0;
    for (int b = 0; b < blocks_; b++) {
      if (sums_[b] == 0) continue;
      block = b;
      if (left < sums_[b]) break;
      left -= sums_[b];
    }
    const float* weights = weights_.data();
    int token = 0;
    for (int j = block * BLOCK; j < (block + 1) * BLOCK; j++) {
      if (weights[j] == 0) continue;
      token = j;
      if (left < weights[j]) break;
      left -= weights[j];
    }
    return token;  // where sums were rounded, the last one that may be drawn
  }

 private:
  static constexpr int BLOCK = 4 * LANES;

  int blocks_ = 0;
  double total_ = 0;
  Buffer<float> weights_;    // of whole blocks; probabilities in proportion to the largest one
  Buffer<float> logits_;     // of whole blocks
  std::vector<float> sums_;  // of each block of weights

  // In float32: where a scaled logit x is so low that its rounding matters, e^x is next to nothing.
  void weigh(const Row& row, float top, double temperature) {
    const float divisor = (float)std::min(std::max(temperature, 1e-30), 1e30);
    float* weights = weights_.at_least((size_t)blocks_ * BLOCK);
    for (int j = 0; j < row.n; j += W) {  // rows have room for a vector behind them
      const V scaled = (load(row.logits + j) - top) / divisor;
      store(weights + j, scaled < -87.0f ? V{} : exponential(scaled));
    }
    std::fill(weights + row.n, weights + (size_t)blocks_ * BLOCK, 0.0f);
  }

  // The sums of blocks and of all; weights below `least` become 0.
  void sum_up(float least) {
    sums_.resize(blocks_);
    total_ = 0;
    float* weights = weights_.data();
    for (int b = 0; b < blocks_; b++) {
      const auto part = [&](int j) {
        const V weight = load(weights + j), left = weight < least ? V{} : weight;
        store(weights + j, left);
        return left;
      };
      sums_[b] = sum(combined(BLOCK, V{}, part, [](V x, V y) { return x + y; }));
      total_ += sums_[b], weights += BLOCK;
    }
  }

  void keep_top_k(const Row& row, int k) {
    float* logits = logits_.at_least((size_t)blocks_ * BLOCK);
    std::copy(row.logits, row.logits + row.n, logits);
    std::fill(logits + row.n, logits + (size_t)blocks_ * BLOCK, DEAD);
    keep(logits, k, [](V) { return all(1); });
  }

  // The fewest tokens with this share of the probability.
  void keep_top_p(double p) {
    const auto weight = [](V key) { return key; };
    keep(weights_.data(), p * sum_from(0, weights_.data(), weight), weight);
  }

  // Keep the tokens with the largest keys, the fewest whose amounts come to `wanted`; ties go to the
  // lower ids.  amount: of tokens, by their keys.
  template <class Amount>
  void keep(const float* keys, double wanted, Amount amount) {
    int64_t low = order_of(-FLT_MAX), high = order_of(INFINITY);  // enough from low on, not from high
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (sum_from(float_at(middle), keys, amount) >= wanted ? low : high) = middle;
    }
    const float least = float_at(low);
    double so_far = sum_from(float_at(high), keys, amount);
    float* weights = weights_.data();
    for (int j = 0; j < blocks_ * BLOCK; j += W) {
      store(weights + j, load(keys + j) >= least ? load(weights + j) : V{});
    }
    look_through(
        keys, blocks_ * BLOCK, [&](float key) { return key >= least; },
        [&](int j) {
          if (keys[j] != least) return;
          if (so_far >= wanted) weights[j] = 0;
          so_far += amount(all(least))[0];
        });
  }

  // The sum of the amounts of keys that are not below `least`; never rises with it.
  template <class Amount>
  float sum_from(float least, const float* keys, Amount amount) const {
    const auto part = [&](int j) {
      const V key = load(keys + j);
      return key >= least ? amount(key) : V{};
    };
    return sum(combined(blocks_ * BLOCK, V{}, part, [](V a, V b) { return a + b; }));
  }

  // Floats as whole numbers in the same order, and back.
  static int64_t order_of(float x) {
    const int32_t bits = (int32_t)bits_of(x);
    return bits < 0 ? INT32_MIN - bits : bits;
  }
  static float float_at(int64_t order) {
    const int32_t bits = order < 0 ? INT32_MIN - (int32_t)order : (int32_t)order;
    float x;
    memcpy(&x, &bits, 4);
    return x;
  }
};

// One token for each sample of a sentence.  Samples go their own ways from the first token on;
// before it they are one hypothesis.
class Draws {
 public:
  static constexpr int ALL = -1;  // samples, of the first hypothesis

  std::vector<Candidate> chosen;  // in the order of samples

  // uniforms: (samples, steps), from the column of this step on.
  Draws(const Sampling& sampling, int samples, const double* uniforms, Distribution& distribution)
      : sampling_(sampling), samples_(samples), uniforms_(uniforms), distribution_(distribution) {}

  // A hypothesis that has only this continuation.
  void only(const Parent& parent, int token, float log_prob) {
    for_each_sample(parent, [&](int sample) { add(parent, token, log_prob, sample); });
  }
  void any(const Parent& parent, const Row& row) {
    distribution_.prepare(row, sampling_);
    if (distribution_.is_empty()) return;
    for_each_sample(parent, [&](int sample) {
      const int token = distribution_.draw(uniforms_[(size_t)sample * sampling_.steps]);
      add(parent, token, row.log_prob(row.logits[token]), sample);
    });
  }

 private:
  const Sampling& sampling_;
  int samples_;
  const double* uniforms_;
  Distribution& distribution_;

  template <class Draw>
  void for_each_sample(const Parent& parent, Draw draw) {
    const bool all = parent.sample == ALL;
    for (int i = 0; i < (all ? samples_ : 1); i++) draw(all ? i : parent.sample);
  }

  void add(const Parent& parent, int token, float log_prob, int sample) {
    const float total = parent.log_prob + log_prob;
    if (total > DEAD) chosen.push_back({total, parent.place, token, sample});
  }
};
