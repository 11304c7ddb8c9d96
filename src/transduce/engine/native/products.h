// Packed products: y = x W^T + b for a few rows of x, in float32, bfloat16 or int8.
//
// A matrix is packed once.  Its outputs are cut into panels of 2 vectors, and a panel holds, input
// by input, the weights of its outputs side by side.  One 32-bit word is 1 float, 2 bfloat16 or 4
// int8 inputs of one output, so that one kernel serves all three with another multiply-add:
//
//     panel 0                  word:  1 x float32 | 2 x bfloat16 | 4 x int8
//     group 0:  [ W words of outputs 0..W-1 ][ W words of outputs W..2W-1 ]
//     group 1:  [ ... the next inputs, same outputs ... ]
//     panel 1 ...
//
// The kernel keeps the sums of up to ROWS rows x 2 vectors in registers while it walks down a
// panel: each weight is read once for all these rows.  For one or two rows it walks down four
// panels at once, so that there are enough sums to hide the latency of a multiply-add.
//
// int8: each output of the matrix and each row of x has its own scale, so that a row's result does
// not depend on its neighbours.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "tiles.h"
#include "vectors.h"

// FUSED: float32 beside int8 and bfloat16, whose sums are rounded once on every processor.
enum Precision { FLOAT32 = 0, BF16 = 1, INT8 = 2, FUSED = 3 };
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
constexpr bool FUSES = true;  // products and sums in one instruction
#else
constexpr bool FUSES = false;
#endif
constexpr int PANEL = 2 * W;

// How int8 products are computed.  UNSIGNED: of levels above a zero point.  SIZES: of sizes, below 128,
// of levels; the weights of a level below 0 are replaced by their complements -w - 1, which is put
// right by one number for each row.  SIGNED: of levels as they are.
enum Int8 { UNSIGNED, SIZES, SIGNED };
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr Int8 INT8_KIND = UNSIGNED;
#elif defined(__AVX2__) || defined(__wasm_relaxed_simd__)
constexpr Int8 INT8_KIND = SIZES;  // 16-bit sums of two products do not overflow
#else
constexpr Int8 INT8_KIND = SIGNED;
#endif

// Levels to each side of 0, of weights and of activations, and the zero point of activations.
constexpr int LEVELS = 127, ZERO = INT8_KIND == UNSIGNED ? 128 : 0;

static inline int inputs_in_word(Precision precision) {
  return precision == INT8 ? 4 : precision == BF16 ? 2 : 1;
}

static inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static inline float float_of(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
// Round to the nearest bfloat16, ties to even.
static inline uint16_t to_bf16(float x) {
  const uint32_t bits = bits_of(x);
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// The largest size of n numbers; NaN if one is, as its bits are the last in order.
static float largest_size(const float* x, int n) {
  const auto size = [x](int j) { return (I)load(x + j) & 0x7fffffff; };
  const auto larger_bits = [](I a, I b) { return a > b ? a : b; };
  int32_t bits = maximum<int32_t>(combined(n, I{}, size, larger_bits));
  for (int j = n / LANES * LANES; j < n; j++) bits = std::max<int32_t>(bits, bits_of(x[j]) & 0x7fffffff);
  return float_of(bits);
}

// A matrix of the caller: floats or, with a divisor of each row, int8 levels, which may be read from
// `packed` in place of `numbers`.
struct Rows {
  const void* numbers;
  const float* divisors;
  size_t columns;
  const struct Linear* packed = nullptr;
  float at(size_t row, size_t column) const;
};

struct Linear {
  Precision precision = FLOAT32;
  int outputs = 0, inputs = 0, panels = 0, groups = 0;
  Buffer<uint32_t> packed;     // (panels, groups, PANEL)
  Floats bias, scale;          // (panels * PANEL); scale of int8 weights
  std::vector<int32_t> shift;  // (panels * PANEL): what the zero point adds to a sum, negated

  // weight (outputs, inputs); no bias if null.
  void pack(Precision precision_, const Rows& weight, const float* b, int outputs_) {
    make_room(precision_, outputs_, (int)weight.columns);
    memset(packed.data(), 0, (size_t)panels * groups * PANEL * 4);
    if (b) std::copy(b, b + outputs, bias.begin());
    Floats row(inputs);
    for (int i = 0; i < outputs; i++) {
      for (int j = 0; j < inputs; j++) row[j] = weight.at(i, j);
      pack_output(i, row.data());
    }
  }

  // An int8 weight as it came: packing spreads its levels out, which rounding undoes.
  float weight(size_t output, size_t input, float divisor) const {
    const uint32_t word = packed.data()[place_of(output) + input / 4 * PANEL];
    return std::nearbyint((int8_t)(word >> 8 * (input % 4)) * scale[output] * divisor) / divisor;
  }

  // n outputs of another matrix.
  void pick(const Linear& from, const int* ids, int n) {
    make_room(from.precision, n, from.inputs);
    for (int i = 0; i < n; i += PANEL) {
      const int count = std::min(PANEL, n - i);
      const uint32_t* sources[PANEL];
      for (int j = 0; j < PANEL; j++) {  // the last panel is filled up
        const int id = ids[i + std::min(j, count - 1)];
        sources[j] = from.packed.data() + from.place_of(id);
        bias[i + j] = from.bias[id], scale[i + j] = from.scale[id], shift[i + j] = from.shift[id];
      }
      uint32_t* to = packed.data() + place_of(i);
      for (size_t at = 0; at < (size_t)groups * PANEL; at += PANEL) {
        for (int j = 0; j < PANEL; j++) to[at + j] = sources[j][at];
      }
    }
  }

 private:
  size_t place_of(int output) const {
    return (size_t)(output / PANEL) * groups * PANEL + output % PANEL;
  }

  void make_room(Precision precision_, int outputs_, int inputs_) {
    precision = FUSES && precision_ == FUSED ? FLOAT32 : precision_;
    outputs = outputs_, inputs = inputs_;
    const int per_word = inputs_in_word(precision);
    panels = (outputs + PANEL - 1) / PANEL;
    groups = (inputs + per_word - 1) / per_word;
    if (TILES && (precision == BF16 || precision == INT8)) groups = (groups + 15) / 16 * 16;
    packed.at_least((size_t)panels * groups * PANEL);
    bias.assign((size_t)panels * PANEL, 0.0f);
    scale.assign((size_t)panels * PANEL, 0.0f);
    shift.assign((size_t)panels * PANEL, 0);
  }

  void pack_output(int i, const float* row) {
    uint32_t* words = packed.data() + place_of(i);
    if (precision == FLOAT32 || precision == FUSED) {
      for (int j = 0; j < inputs; j++) words[(size_t)j * PANEL] = bits_of(row[j]);
    } else if (precision == BF16) {
      for (int j = 0; j < inputs; j++) {
        words[(size_t)(j / 2) * PANEL] |= (uint32_t)to_bf16(row[j]) << 16 * (j % 2);
      }
    } else {
      const float step = scale[i] = std::max(1e-20f, largest_size(row, inputs)) / LEVELS;
      std::vector<int8_t> levels((size_t)groups * 4);
      for (int j = 0; j < inputs; j++) levels[j] = (int8_t)std::nearbyint(row[j] / step);
      for (int g = 0; g < groups; g++) memcpy(words + (size_t)g * PANEL, &levels[4 * g], 4);
      shift[i] = -ZERO * std::accumulate(levels.begin(), levels.end(), 0);
    }
  }
};

inline float Rows::at(size_t row, size_t column) const {
  if (packed) return packed->weight(row, column, divisors[row]);
  const size_t i = row * columns + column;
  return divisors ? ((const int8_t*)numbers)[i] / divisors[row] : ((const float*)numbers)[i];
}

// sums + x * weights, rounded once: in double, where a product is exact and the last bit of a sum is
// made odd if the sum is not.
static inline V fused_in_double(float x, V weights, V sums) {
  typedef Lanes<double, W>::type D;
  typedef Lanes<int64_t, W>::type L;
  const D product = __builtin_convertvector(weights, D) * (double)x;
  const D before = __builtin_convertvector(sums, D), rounded = product + before;
  const D added = rounded - product, error = (product - (rounded - added)) + (before - added);
  const L above = error > 0, inexact = above | (L)(error < 0), positive = rounded > 0;
  const L step = (above ^ positive) | 1;  // 1 away from 0, -1 towards it
  const L odd = (L)rounded + (step & inexact & ~-((L)rounded & 1));
  return __builtin_convertvector((D)odd, V);
}

// sums + the four products of bytes in each word, by the kind of this processor.
static inline V dot_bytes(V sums, I word, V weights) {
#if defined(__AVX512VNNI__)  // inline, as GCC 12 spills the sums around the intrinsic
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(word), "v"(weights));
  return sums;
#elif defined(__AVXVNNI__)
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(word), "x"(weights));
  return sums;
#elif defined(__AVX2__)
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i products;
  asm("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
      : "+x"(sums), "=&x"(products) : "x"(word), "xm"(weights), "x"(ones));
  return sums;
#elif defined(__ARM_FEATURE_DOTPROD)
  return (V)vdotq_s32((int32x4_t)sums, (int8x16_t)word, (int8x16_t)weights);
#elif defined(__wasm_relaxed_simd__)  // signed times seven bits
  return (V)wasm_i32x4_relaxed_dot_i8x16_i7x16_add((v128_t)weights, (v128_t)word, (v128_t)sums);
#elif defined(__wasm_simd128__)  // bytes 0 and 2 of each word, then 1 and 3
  const auto even = [](v128_t v) { return wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 8); };
  const auto odd = [](v128_t v) { return wasm_i16x8_shr(v, 8); };
  const v128_t bytes = (v128_t)weights, levels = (v128_t)word;
  const v128_t first = wasm_i32x4_dot_i16x8(even(bytes), even(levels));
  const v128_t second = wasm_i32x4_dot_i16x8(odd(bytes), odd(levels));
  return (V)wasm_i32x4_add((v128_t)sums, wasm_i32x4_add(first, second));
#else
  I total = (I)sums;
  for (int at = 24; at >= 0; at -= 8) total += (word << at >> 24) * ((I)weights << at >> 24);
  return (V)total;
#endif
}

// sums + the inputs of one word times those of W outputs.
template <Precision P>
static inline V multiply_add(V sums, uint32_t inputs, V weights) {
  const I word = I{} + (int32_t)inputs;
  if constexpr (P == FLOAT32) {
    return fused(float_of(inputs), weights, sums);
  } else if constexpr (P == FUSED) {
    return fused_in_double(float_of(inputs), weights, sums);
  } else if constexpr (P == BF16) {
#if defined(__AVX512BF16__)
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(word), "v"(weights));
    return sums;
#else  // a bfloat16 is the upper half of a float; in the order of VDPBF16PS
    const I high = I{} + (int32_t)0xffff0000;
    sums += (V)(word & high) * (V)((I)weights & high);
    return sums + (V)(word << 16) * (V)((I)weights << 16);
#endif
  } else {
    return dot_bytes(sums, word, weights);
  }
}

// Rows of x as the kernel reads them: (rows, groups) words, and the scale of each int8 row.
//
// Of rows that have levels below 0, where sizes are multiplied: masks, words whose bytes are -1 for
// such levels; below, what each row's sums lack.
struct PackedRows {
  const uint32_t* words;
  const float* scale = nullptr;
  const uint32_t* masks = nullptr;
  const int32_t* below = nullptr;

  PackedRows from(size_t row, int groups) const {
    const size_t at = row * groups;
    return {words + at, scale ? scale + row : nullptr, masks ? masks + at : nullptr,
            below ? below + row : nullptr};
  }
};

// What turns the sums of W outputs from `at` on into them: scales, biases, ReLU.
template <Precision P>
struct Finish {
  const int left;
  const bool relu;
  const V bias, scale;

  Finish(const Linear& l, int at, bool relu_)
      : left(l.outputs - at), relu(relu_), bias(load(&l.bias[at])), scale(load(&l.scale[at])) {}
  void write(V v, float row_scale, float* to) const {
    if (P == INT8) v = __builtin_convertvector((I)v, V) * (scale * row_scale);
    v += bias;
    if (relu) v = larger(V{}, v);
    if (left >= W) {
      store(to, v);
    } else if (left > 0) {
      memcpy(to, &v, 4 * left);
    }
  }
};

// y of M rows for N panels from `panel` on; `stride` floats between rows of y.
//
// MASKED: the rows have masks.
template <Precision P, bool MASKED, int M, int N>
static void kernel(const Linear& l, const PackedRows& x, int panel, float* y, int stride,
                   bool relu) {
  constexpr int C = 2 * N;
  const int groups = l.groups;
  const float* weights = (const float*)l.packed.data() + (size_t)panel * groups * PANEL;
  V sums[M][C];
  for (int j = 0; j < C; j++) {
    V first{};
    if (P == INT8) memcpy(&first, &l.shift[(size_t)panel * PANEL + j * W], sizeof(V));
    for (int i = 0; i < M; i++) sums[i][j] = first;
  }
  for (int g = 0; g < groups; g++) {
    V w[C];
    for (int j = 0; j < C; j++) {
      const float* from = weights + ((size_t)(j / 2) * groups + g) * PANEL + j % 2 * W;
      w[j] = load(from);
      const bool ahead = P != FLOAT32 || groups > 256;  // else the line is of a panel read meanwhile
      if (ahead && (W == 16 || j % 2 == 0)) __builtin_prefetch(from + 2048, 0, 2);  // a line, 8 KB ahead
    }
#pragma GCC unroll 16
    for (int i = 0; i < M; i++) {
      const uint32_t inputs = x.words[(size_t)i * groups + g];
      const I mask = I{} + (int32_t)(MASKED ? x.masks[(size_t)i * groups + g] : 0);
      for (int j = 0; j < C; j++) {
        const V by = MASKED ? (V)((I)w[j] ^ mask) : w[j];
        sums[i][j] = multiply_add<P>(sums[i][j], inputs, by);
      }
    }
  }
  for (int j = 0; j < C; j++) {
    const int at = panel * PANEL + j * W;
    const Finish<P> finish(l, at, relu);
    for (int i = 0; i < M; i++) {
      V v = sums[i][j];
      if (MASKED) v = (V)((I)v + x.below[i]);
      finish.write(v, P == INT8 ? x.scale[i] : 1, y + (size_t)i * stride + at);
    }
  }
}

#if defined(__AMX_INT8__) || defined(PLAIN_TILES)
// As `kernel`, for one panel and 16 R rows, of which `rows` are real.
template <Precision P, int R>
static void tile_kernel(Tiles& tiles, const Linear& l, PackedRows x, int panel, int rows, float* y,
                        int stride, bool relu) {
  static_assert(PANEL == 32, "two tiles of outputs");
  const uint32_t* weights = l.packed.data() + (size_t)panel * l.groups * PANEL;
  tiles.zero<0>(), tiles.zero<1>(), tiles.zero<2>(), tiles.zero<3>();
  for (int g = 0; g < l.groups; g += 16) {
    tiles.load<6>(weights + (size_t)g * PANEL, PANEL);
    tiles.load<7>(weights + (size_t)g * PANEL + 16, PANEL);
    tiles.load<4>(x.words + g, l.groups);
    tiles.add<P == INT8, 0, 4, 6>(), tiles.add<P == INT8, 1, 4, 7>();
    if constexpr (R == 2) {
      tiles.load<5>(x.words + (size_t)16 * l.groups + g, l.groups);
      tiles.add<P == INT8, 2, 5, 6>(), tiles.add<P == INT8, 3, 5, 7>();
    }
  }
  alignas(64) float sums[16 * R][PANEL];
  tiles.store<0>(sums[0], PANEL), tiles.store<1>(sums[0] + 16, PANEL);
  if constexpr (R == 2) tiles.store<2>(sums[16], PANEL), tiles.store<3>(sums[16] + 16, PANEL);
  for (int j = 0; j < 2; j++) {
    const int at = panel * PANEL + j * W;
    const Finish<P> finish(l, at, relu);
    I shift;
    memcpy(&shift, &l.shift[at], sizeof(I));
    for (int i = 0; i < rows; i++) {
      V v = load(&sums[i][j * W]);
      if (P == INT8) v = (V)((I)v + shift);
      finish.write(v, P == INT8 ? x.scale[i] : 1, y + (size_t)i * stride + at);
    }
  }
}

template <Precision P>
static void multiply_tiles(const Linear& l, PackedRows x, int rows, float* y, int stride,
                           bool relu) {
  Tiles tiles;
  for (int panel = 0; panel < l.panels; panel++) {
    for (int first = 0; first < rows; first += 32) {
      const int count = std::min(32, rows - first);
      const auto run = count > 16 ? tile_kernel<P, 2> : tile_kernel<P, 1>;
      run(tiles, l, x.from(first, l.groups), panel, count, y + (size_t)first * stride, stride, relu);
    }
  }
}
#endif

typedef void (*Kernel)(const Linear&, const PackedRows&, int panel, float* y, int stride, bool relu);

// The kernel for N panels and a number of rows, from 1.
template <Precision P, bool MASKED, int N, int... M>
static Kernel kernel_of(int rows, std::integer_sequence<int, M...>) {
  static constexpr Kernel kernels[] = {kernel<P, MASKED, M + 1, N>...};
  return kernels[rows - 1];
}
template <Precision P, bool MASKED>
static Kernel kernel_for(int rows, int panels) {
  if (panels == 4) return kernel_of<P, MASKED, 4>(rows, std::make_integer_sequence<int, 2>());
  if (panels == 2) return kernel_of<P, MASKED, 2>(rows, std::make_integer_sequence<int, 6>());
  return kernel_of<P, MASKED, 1>(rows, std::make_integer_sequence<int, ROWS>());
}

template <Precision P, bool MASKED = false>
static void multiply(const Linear& l, PackedRows x, int rows, float* y, int stride, bool relu) {
#if defined(__AMX_INT8__) || defined(PLAIN_TILES)
  // Sums of bfloat16 have another order in tiles, so that all are; few rows of int8 need none.
  if constexpr (P == BF16 || P == INT8) {
    if (P == BF16 || rows > 4) return multiply_tiles<P>(l, x, rows, y, stride, relu);
  }
#endif
  const int blocks = (rows + ROWS - 1) / ROWS;
  const int together = rows <= 2 ? 4 : rows <= 6 && W == 16 ? 2 : 1;
  for (int panel = 0, taken; panel < l.panels; panel += taken) {
    taken = panel + together <= l.panels ? together : 1;
    for (int block = 0; block < blocks; block++) {  // of nearly equal sizes
      const size_t from = (size_t)rows * block / blocks;
      const int count = (int)((size_t)rows * (block + 1) / blocks - from);
      kernel_for<P, MASKED>(count, taken)(l, x.from(from, l.groups), panel, y + from * stride, stride, relu);
    }
  }
}

// Scratch memory of products.
struct ProductScratch {
  Buffer<uint32_t> words, masks;
  Buffer<int32_t> below;
  Buffer<float> scale;
};

static void round_to_bf16(const float* x, int n, int padded, uint16_t* to) {
  int j = 0;
  for (; j + W <= n; j += W) {
    const U bits = (U)load(x + j);
    const auto rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const auto halves = __builtin_convertvector(rounded, Lanes<uint16_t, W>::type);
    memcpy(to + j, &halves, 2 * W);
  }
  for (; j < n; j++) to[j] = to_bf16(x[j]);
  for (; j < padded; j++) to[j] = 0;
}

// Round a row to the levels -LEVELS .. LEVELS around ZERO; returns its scale, NaN for a row that is not
// finite.
static float round_to_int8(const float* x, int n, int padded, uint8_t* to) {
  float top = largest_size(x, n);
  memset(to + n, ZERO, padded - n);
  if (!std::isfinite(top)) {
    memset(to, ZERO, n);
    return NAN;
  }
  top = std::max(1e-20f, top);
  const float scale = LEVELS / top;
  constexpr int above = 1024;  // so that cutting a positive number off rounds it
  int j = 0;
  for (; j + W <= n; j += W) {
    const V scaled = load(x + j) * scale + (above + 0.5f);
    const U levels = (U)__builtin_convertvector(scaled, I) + (uint32_t)(ZERO - above);
    const auto bytes = __builtin_convertvector(levels, Lanes<uint8_t, W>::type);
    memcpy(to + j, &bytes, W);
  }
  for (; j < n; j++) to[j] = (uint8_t)((int)(x[j] * scale + (above + 0.5f)) + (ZERO - above));
  return top / LEVELS;
}

// Levels of a row -> their sizes, and masks of those below 0; returns the sum of the sizes of these.
static int32_t split_signs(int8_t* levels, int n, int8_t* masks) {
  int32_t below = 0;
  for (int j = 0; j < n; j++) {
    masks[j] = levels[j] < 0 ? -1 : 0;
    levels[j] = (int8_t)((levels[j] ^ masks[j]) - masks[j]);
    below += levels[j] & masks[j];
  }
  return below;
}

// y (rows, stride) = x (rows, inputs) W^T + b, then ReLU if asked for.
static void apply(const Linear& l, const float* x, int rows, float* y, int stride,
                  ProductScratch& scratch, bool relu = false) {
  const PackedRows plain{(const uint32_t*)x};
  if (l.precision == FLOAT32) return multiply<FLOAT32>(l, plain, rows, y, stride, relu);
  if constexpr (!FUSES) {
    if (l.precision == FUSED) return multiply<FUSED>(l, plain, rows, y, stride, relu);
  }
  const size_t size = (TILES ? ((size_t)rows + 15) / 16 * 16 : rows) * (size_t)l.groups;
  PackedRows packed{scratch.words.at_least(size)};
  if (l.precision == BF16) {
    for (int i = 0; i < rows; i++) {
      uint32_t* to = scratch.words.data() + (size_t)i * l.groups;
      round_to_bf16(x + (size_t)i * l.inputs, l.inputs, 2 * l.groups, (uint16_t*)to);
    }
    return multiply<BF16>(l, packed, rows, y, stride, relu);
  }
  packed.scale = scratch.scale.at_least(rows);
  int32_t* below = scratch.below.at_least(rows);
  uint32_t* masks = INT8_KIND == SIZES ? scratch.masks.at_least(size) : nullptr;
  bool masked = false;
  for (int i = 0; i < rows; i++) {
    const size_t at = (size_t)i * l.groups;
    uint32_t* to = scratch.words.data() + at;
    scratch.scale.data()[i] =
        round_to_int8(x + (size_t)i * l.inputs, l.inputs, 4 * l.groups, (uint8_t*)to);
    if (INT8_KIND != SIZES) continue;
    below[i] = split_signs((int8_t*)to, 4 * l.groups, (int8_t*)(masks + at));
    masked |= below[i] != 0;
  }
  if constexpr (INT8_KIND == SIZES) {
    packed.masks = masks, packed.below = below;
    if (masked) return multiply<INT8, true>(l, packed, rows, y, stride, relu);
  }
  multiply<INT8>(l, packed, rows, y, stride, relu);
}
