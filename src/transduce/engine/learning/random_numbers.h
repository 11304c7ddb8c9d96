// Random numbers by counters: Philox4x32-10 (Salmon et al. 2011).  A number depends on its key and
// its place alone, so that the way back draws the masks of dropout again instead of keeping them.
#pragma once
#include <cstdint>

#include "../native/elementary.h"

struct Philox {
  uint32_t word[4];

  Philox(uint64_t key, uint32_t a, uint32_t b, uint64_t place)
      : word{(uint32_t)place, (uint32_t)(place >> 32), a, b} {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      const uint64_t p0 = (uint64_t)0xD2511F53u * word[0], p1 = (uint64_t)0xCD9E8D57u * word[2];
      const uint32_t a0 = (uint32_t)(p1 >> 32) ^ word[1] ^ k0, a2 = (uint32_t)(p0 >> 32) ^ word[3] ^ k1;
      word[0] = a0, word[1] = (uint32_t)p1, word[2] = a2, word[3] = (uint32_t)p0;
    }
  }
  // From (0, 1).
  double uniform(int i) const { return (word[i] + 0.5) / 4294967296.0; }
  // Two normal numbers (Box and Muller 1958), i 0 or 1.
  double normal(int i) const {
    const double length = std::sqrt(-2 * logarithm(uniform(2 * i)));
    return length * Angle(6.28318530717958648 * uniform(2 * i + 1)).cosine;
  }
};

// Place of a draw: a training's seed, the step, and the number of the dropout in its pass.
struct Draw {
  uint64_t seed;
  uint32_t step, site;
};

// Zero a share p of n numbers, and scale the others by 1 / (1 - p).  16 bits decide for each, as in
// `transduce.nn.residual.Dropout`.
static void drop(const Draw& draw, float p, float* x, size_t n) {
  const uint32_t least = (uint32_t)std::nearbyint((double)p * 65536);
  const float scale = 1 / (1 - p);
  for (size_t first = 0; first < n; first += 8) {
    const Philox random(draw.seed, draw.step, draw.site, first / 8);
    for (size_t j = first; j < std::min(n, first + 8); j++) {
      const uint32_t bits = random.word[(j - first) / 2] >> 16 * (j % 2) & 0xffff;
      x[j] = bits >= least ? x[j] * scale : 0;
    }
  }
}
