// The choice of the tokens that continue a hypothesis, by chance: the caller gives the random numbers.
//
// Tokens stand in the order of their ids, each with a stretch as long as its probability; a number
// from [0, 1) draws the token of its stretch.  Rounding moves a border by next to nothing, and cannot
// swap two tokens.  A stretch is found by the sums of blocks, without a sum up to every token.
#pragma once
#include "choice.h"

// As the caller gives them; the same fields in `library.py`.
//
// temperature: divisor of the logits.  top_k, top_p, min_p: which tokens may be drawn; 0, 1 and 0 for
// all.  uniforms: (sentences, samples, steps) random numbers from [0, 1); null for a search.
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
    const float largest = row.largest();
    if (largest == DEAD) return;
    weigh(row, largest, sampling.temperature);
    if (sampling.top_k || sampling.top_p < 1) truncate(row, sampling);
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
  static constexpr int BLOCK = 4 * W, RANKED = 256;

  struct Likely {
    float logit, weight;
    int token;
  };

  int blocks_ = 0;
  double total_ = 0;
  Buffer<float> weights_;      // of each token, in proportion to its probability; the likeliest has 1
  std::vector<float> sums_;    // of each block of weights
  std::vector<Likely> ranked_;

  // In float32: where a scaled logit x is so low that its rounding matters, e^x is next to nothing.
  void weigh(const Row& row, float largest, double temperature) {
    const float divisor = (float)std::min(std::max(temperature, 1e-30), 1e30);
    float* weights = weights_.at_least((size_t)blocks_ * BLOCK);
    for (int j = 0; j < row.n; j += W) {  // rows have room for a vector behind them
      const V scaled = (load(row.logits + j) - largest) / divisor;
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
      V added[4];
      for (int i = 0; i < 4; i++, weights += W) {
        const V weight = load(weights);
        added[i] = weight < least ? V{} : weight;
        store(weights, added[i]);
      }
      sums_[b] = sum((added[0] + added[1]) + (added[2] + added[3]));
      total_ += sums_[b];
    }
  }

  // Keep the `top_k` likeliest tokens, and of these the fewest that have `top_p` of the probability.
  void truncate(const Row& row, const Sampling& sampling) {
    int count = std::min(row.n, sampling.top_k ? sampling.top_k : RANKED);
    rank(row, count);
    if (sampling.top_p < 1) {
      double whole = 0;
      if (sampling.top_k) {
        for (const Likely& one : ranked_) whole += one.weight;
      } else {
        sum_up(0);
        whole = total_;
      }
      while (!cut(sampling.top_p * whole) && !sampling.top_k && count < row.n) {
        count = count > row.n / 8 ? row.n : 8 * count;
        rank(row, count);
      }
    }
    std::fill(weights_.data(), weights_.data() + row.n, 0.0f);
    for (const Likely& one : ranked_) weights_.data()[one.token] = one.weight;
  }

  // The `most` likeliest tokens, in any order; ties go to the lower id.
  void rank(const Row& row, int most) {
    float least = DEAD;  // that a new one must exceed
    ranked_.clear();
    const auto drop_the_rest = [&] {
      if ((int)ranked_.size() <= most) return;
      std::nth_element(ranked_.begin(), ranked_.begin() + most - 1, ranked_.end(), is_likelier);
      ranked_.resize(most);
      least = ranked_.back().logit;
    };
    look_through(
        row.logits, row.n, [&](float logit) { return logit > least; },
        [&](int j) {
          if (!(row.logits[j] > least)) return;
          ranked_.push_back({row.logits[j], weights_.data()[j], j});
          if (ranked_.size() >= 2 * (size_t)most) drop_the_rest();
        });
    drop_the_rest();
  }

  static bool is_likelier(const Likely& a, const Likely& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }

  // Keep the fewest of the ranked tokens whose weights come to `wanted`; false if all are too few.
  bool cut(double wanted) {
    std::sort(ranked_.begin(), ranked_.end(), is_likelier);
    double so_far = 0;
    for (size_t i = 0; i < ranked_.size(); i++) {
      so_far += ranked_[i].weight;
      if (so_far < wanted) continue;
      ranked_.resize(i + 1);
      return true;
    }
    return false;
  }
};

// One token for each sample of a sentence.  Samples go their own ways from the first token on; before
// it they are one hypothesis.
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
