// Models with random weights for the drivers of this directory, which hold the whole engine.
#pragma once
// The standard headers first: the engine's own are opened below.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define private public  // the places of the weights
#include "../../src/transduce/engine/native/interface.cpp"
#undef private

// The same numbers on every machine (xorshift64*).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2654435761u + 88172645463325252u) {}
  uint32_t bits() {
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    return (uint32_t)((state_ * 2685821657736338717u) >> 32);
  }
  int below(int n) { return (int)(bits() % (uint32_t)n); }
  int from_to(int low, int high) { return low + below(high - low + 1); }
  float real() { return (float)bits() / 4294967296.0f - 0.5f; }

 private:
  uint64_t state_;
};

// Sentences one after another, as the engine takes them.
struct Texts {
  std::vector<int32_t> ids, lengths;

  int32_t n() const { return (int32_t)lengths.size(); }
  Texts only(int sentence) const {
    int from = 0;
    for (int i = 0; i < sentence; i++) from += lengths[i];
    return {{ids.begin() + from, ids.begin() + from + lengths[sentence]}, {lengths[sentence]}};
  }
};

static Results* search(const Model* model, const Texts& sources, const Texts& prompts,
                       const std::vector<int32_t>& limits, const std::vector<int32_t>& min_lengths,
                       const SearchOptions& options, Cancelled cancelled = nullptr) {
  return search_run(model, sources.ids.data(), sources.lengths.data(), prompts.ids.data(),
                    prompts.lengths.data(), limits.data(), min_lengths.data(), prompts.n(),
                    &options, cancelled);
}

// Weights in the engine, with the memory that it keeps reading.
struct Loaded {
  Model* model;
  std::vector<std::unique_ptr<Floats>> kept;

  explicit Loaded(const ModelShape& shape) : model(engine_new(&shape)) {}
  Loaded(const Loaded&) = delete;
  ~Loaded() { engine_delete(model); }

  // Load a weight of any shape into the place of that number; returns the status.
  int load(size_t slot, int64_t rows, int64_t columns, Random& random, float scale, bool bias) {
    const bool norm = model->slots_[slot].norm;
    kept.push_back(std::make_unique<Floats>((size_t)(rows * columns)));
    Floats& weight = *kept.back();
    for (float& x : weight) x = norm ? 1 + 0.1f * random.real() : scale * random.real();
    kept.push_back(std::make_unique<Floats>((size_t)rows));
    for (float& x : *kept.back()) x = 0.1f * random.real();
    const std::string name = model->slots_[slot].name;
    return engine_load(model, name.c_str(), weight.data(), bias ? kept.back()->data() : nullptr,
                       rows, columns, nullptr);
  }

  // Load all weights with their right shapes.
  void load_all(Random& random) {
    for (size_t i = 0; i < model->slots_.size(); i++) {
      const size_t rows = model->slots_[i].rows, columns = model->slots_[i].columns;
      load(i, (int64_t)rows, (int64_t)columns, random, 3 / std::sqrt((float)columns), true);
    }
  }
};
