// The operations of tiles as loops, so that processors without tiles test what is built on them.
#pragma once
#include <cstdint>
#include <cstring>

struct Tiles {
  uint32_t words[8][16][16];

  template <int TO>
  void zero() { memset(words[TO], 0, sizeof(words[TO])); }
  template <int TO>
  void load(const uint32_t* from, int stride) {
    for (int i = 0; i < 16; i++) memcpy(words[TO][i], from + (size_t)i * stride, 64);
  }
  template <int FROM>
  void store(float* to, int stride) {
    for (int i = 0; i < 16; i++) memcpy(to + (size_t)i * stride, words[FROM][i], 64);
  }
  template <bool BYTES, int TO, int X, int WEIGHTS>
  void add() {
    for (int i = 0; i < 16; i++) {
      for (int j = 0; j < 16; j++) {
        for (int k = 0; k < 16; k++) {
          words[TO][i][j] = sum(BYTES, words[TO][i][j], words[X][i][k], words[WEIGHTS][k][j]);
        }
      }
    }
  }

 private:
  static uint32_t sum(bool bytes, uint32_t sum, uint32_t x, uint32_t w) {
    if (!bytes) {
      const auto number = [](uint32_t bits) { return __builtin_bit_cast(float, bits); };
      const float lower = number(x << 16) * number(w << 16);
      const float upper = number(x & 0xffff0000) * number(w & 0xffff0000);
      return __builtin_bit_cast(uint32_t, number(sum) + (lower + upper));
    }
    for (int at = 0; at < 32; at += 8) sum += (x >> at & 255) * (uint32_t)(int8_t)(w >> at);
    return sum;
  }
};
