// Products by tiles, as loops: each row has the bits that it has alone, and int8 those of the other
// instruction sets.  Build it for AVX-512 with and without -DPLAIN_TILES='"plain_tiles.h"', -I of this
// directory, and compare what it prints of int8.
#include <cstdio>

#include "../../src/transduce/engine/native/products.h"

int main() {
  uint32_t state = 1, hash = 0;
  const auto number = [&] { return (int)((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1; };
  for (int rows : {1, 4, 5, 15, 16, 17, 31, 32, 33, 70}) {
    for (int inputs : {3, 16, 64, 70, 130}) {
      for (int outputs : {1, 16, 31, 33, 50, 100}) {
        Floats weight(inputs * outputs), bias(outputs), x(rows * inputs), y(rows * outputs + 16);
        for (Floats* each : {&weight, &bias, &x}) {
          for (float& one : *each) one = number();
        }
        for (int precision = BF16; precision <= INT8; precision++) {
          Linear linear;
          linear.pack((Precision)precision, {weight.data(), nullptr, (size_t)inputs}, bias.data(), outputs);
          ProductScratch scratch;
          apply(linear, x.data(), rows, y.data(), outputs, scratch, rows % 2);
          for (int i = 0; i < rows; i++) {
            Floats alone(outputs + 16);
            apply(linear, &x[i * inputs], 1, alone.data(), outputs, scratch, rows % 2);
            if (memcmp(alone.data(), &y[i * outputs], 4 * outputs)) return 1;
          }
          for (int i = 0; i < rows * outputs && precision == INT8; i++) {
            uint32_t bits;
            memcpy(&bits, &y[i], 4);
            hash = hash * 31 + bits;
          }
        }
      }
    }
  }
  printf("%08x\n", hash);
}
