// Tiles of Intel's AMX: 8 registers of 16 rows of 16 words, and the five operations on them.
#pragma once
#include "vectors.h"

#if defined(__AMX_INT8__)
constexpr bool TILES = true;

// The shape of all tiles of this thread, while it lives.
struct Tiles {
  Tiles() {
    alignas(64) uint8_t shape[64] = {1};
    for (int i = 0; i < 8; i++) shape[16 + 2 * i] = 64, shape[48 + i] = 16;
    _tile_loadconfig(shape);
  }
  ~Tiles() { _tile_release(); }

  template <int TO>
  void zero() { asm volatile("tilezero %%tmm%c0" ::"i"(TO)); }
  // stride: words between two rows.
  template <int TO>
  void load(const uint32_t* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,4), %%tmm%c2" ::"r"(from), "r"(stride), "i"(TO) : "memory");
  }
  template <int FROM>
  void store(float* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,4)" ::"r"(to), "r"(stride), "i"(FROM) : "memory");
  }
  // TO += X times WEIGHTS: unsigned bytes times signed ones in whole numbers, or bfloat16.
  template <bool BYTES, int TO, int X, int WEIGHTS>
  void add() {
    if (BYTES) {
      asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(TO), "i"(X), "i"(WEIGHTS));
    } else {
      asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(TO), "i"(X), "i"(WEIGHTS));
    }
  }
};
#elif defined(PLAIN_TILES)  // the file of a test, with the same operations as loops
constexpr bool TILES = true;
#include PLAIN_TILES
#else
constexpr bool TILES = false;
#endif
