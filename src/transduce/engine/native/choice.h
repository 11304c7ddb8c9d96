// The choice of the tokens that continue a hypothesis, by the logits of a step: the best ones.
//
// Log-softmax and the choice go over the logits together, so that no log-probability but a
// candidate's is written.
#pragma once
#include <algorithm>
#include <vector>

#include "elementary.h"
#include "vectors.h"

constexpr float DEAD = -INFINITY;  // of what is not allowed

// A hypothesis to be continued: its place in the beam; in sampling its sample (see sampling.h).
struct Parent {
  int place;
  float log_prob;
  int sample;
};

struct Candidate {
  float log_prob;
  int parent, token, sample;
};

// Look at those of n values that are good enough: at(j) for all j of the groups, four vectors each,
// whose largest value is.
template <class GoodEnough, class At>
static inline void look_through(const float* x, int n, GoodEnough good_enough, At at) {
  int j = 0;
  for (; j + 4 * W <= n; j += 4 * W) {
    V tops = larger(load(x + j), load(x + j + W));
    tops = larger(tops, larger(load(x + j + 2 * W), load(x + j + 3 * W)));
    if (!good_enough(maximum(tops))) continue;
    for (int i = j; i < j + 4 * W; i++) at(i);
  }
  for (; j < n; j++) at(j);
}

static inline float largest(const float* x, int n) {
  const auto part = [=](int j) { return load(x + j); };
  float found = maximum(combined(n, all(DEAD), part, [](V a, V b) { return larger(a, b); }));
  for (int j = n / LANES * LANES; j < n; j++) found = larger(found, x[j]);
  return found;
}

// Logits (n) of one row, and what turns them into log-probabilities: (x - top) - log_sum.
struct Row {
  float* logits;
  int n;
  float top, log_sum;

  Row(float* logits_, int n_) : logits(logits_), n(n_), top(largest(logits_, n_)) {
    const auto power = [=](int j) { return exponential(load(logits + j) - top); };
    float total = sum(combined(n, V{}, power, [](V a, V b) { return a + b; }));
    for (int j = n / LANES * LANES; j < n; j++) total += exponential(logits[j] - top);
    log_sum = (float)logarithm(total);
  }
  float log_prob(float logit) const { return (logit - top) - log_sum; }
};

// The `most` best candidates, best first; ties go to the better parent, then to the lower id.
class Best {
 public:
  std::vector<Candidate> chosen;

  explicit Best(int most) : most_(most) {}

  // A hypothesis that has only this continuation.
  void only(const Parent& parent, int token, float log_prob) {
    offer(parent, token, parent.log_prob + log_prob);
  }
  void any(const Parent& parent, const Row& row) {
    const auto total = [&](float logit) { return row.log_prob(logit) + parent.log_prob; };
    look_through(
        row.logits, row.n, [&](float logit) { return total(logit) > least_; },
        [&](int j) { offer(parent, j, total(row.logits[j])); });
  }

 private:
  int most_;
  float least_ = DEAD;  // that a new one must exceed

  void offer(const Parent& parent, int token, float total) {
    if (!(total > least_)) return;
    size_t at = chosen.size();
    while (at > 0 && chosen[at - 1].log_prob < total) at--;
    chosen.insert(chosen.begin() + at, {total, parent.place, token, parent.sample});
    if ((int)chosen.size() > most_) chosen.pop_back();
    if ((int)chosen.size() == most_) least_ = chosen.back().log_prob;
  }
};
