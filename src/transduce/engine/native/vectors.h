// Vectors of floats, one machine register each, by the vector extension of GCC and Clang.
//
// Every sum here has one order, written out, of 16 lanes on every processor: a result depends on its
// own inputs alone, never on the rows beside it, and is the same to the bit in every batch and with
// every instruction set.  Compilers may not fuse products and sums (-ffp-contract=off): where that is
// meant, it is written.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <utility>
#include <vector>

// W: floats in a register.  ROWS: rows whose sums fit into registers beside 2 vectors of weights.
#if defined(__AVX512F__)
constexpr int W = 16, ROWS = 13;
#elif defined(__AVX2__)
constexpr int W = 8, ROWS = 6;
#elif defined(__aarch64__)
constexpr int W = 4, ROWS = 12;
#else
constexpr int W = 4, ROWS = 6;
#endif

// Lanes of a sum, on every processor, in PARTS registers.
constexpr int LANES = 16, PARTS = LANES / W;

template <class T, int N>
struct Lanes {
  typedef T type __attribute__((vector_size(sizeof(T) * N)));
};
typedef std::vector<float> Floats;
typedef Lanes<float, W>::type V;
typedef Lanes<int32_t, W>::type I;
typedef Lanes<uint32_t, W>::type U;
typedef float Unaligned __attribute__((vector_size(4 * W), aligned(4), may_alias));

static inline V load(const float* from) { return *(const Unaligned*)from; }
static inline void store(float* to, V v) { *(Unaligned*)to = v; }
static inline V all(float x) { return x - V{}; }
// The second where either is NaN.
static inline V larger(V a, V b) { return a > b ? a : b; }
static inline V smaller(V a, V b) { return a < b ? a : b; }
static inline float larger(float a, float b) { return a > b ? a : b; }

// As many numbers as sums have lanes.
template <class Register>
struct Wide {
  Register part[PARTS];
};

// Half of the lanes with the other half, until one is left.
template <class T, int N, class Combine>
static inline T reduce(typename Lanes<T, N>::type v, Combine combine) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    typename Lanes<T, N / 2>::type low, high;
    memcpy(&low, &v, sizeof(low));
    memcpy(&high, (const char*)&v + sizeof(low), sizeof(low));
    return reduce<T, N / 2>(combine(low, high), combine);
  }
}
// Half of the registers with the other half before.
template <int N, class Register, class Combine>
static inline Register folded(const Register* v, Combine combine) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    Register halves[N / 2];
    for (int i = 0; i < N / 2; i++) halves[i] = combine(v[i], v[i + N / 2]);
    return folded<N / 2>(halves, combine);
  }
}
static inline float sum(const Wide<V>& v) {
  const auto add = [](auto a, auto b) { return a + b; };
  return reduce<float, W>(folded<PARTS>(v.part, add), add);
}
template <class T = float, class Register>
static inline T maximum(Register v) {
  return reduce<T, W>(v, [](auto a, auto b) { return a > b ? a : b; });
}
template <class T = float, class Register>
static inline T maximum(const Wide<Register>& v) {
  return maximum<T>(folded<PARTS>(v.part, [](auto a, auto b) { return a > b ? a : b; }));
}

// Combine the vectors part(0), part(W), ... of n elements, as if of LANES lanes each, by `add`; the
// elements that are left, fewer than LANES, are the caller's.  Four partial results, so that one
// addition need not wait for the other.
template <class Register, class Part, class Add>
static inline Wide<Register> combined(int n, Register first, Part part, Add add) {
  Wide<Register> sums[4];
  for (Wide<Register>& each : sums) {
    for (Register& lanes : each.part) lanes = first;
  }
  int j = 0;
  for (; j + 4 * LANES <= n; j += 4 * LANES) {
#pragma GCC unroll 16
    for (int i = 0; i < 4 * PARTS; i++) {
      Register& lanes = sums[i / PARTS].part[i % PARTS];
      lanes = add(lanes, part(j + i * W));
    }
  }
  for (; j + LANES <= n; j += LANES) {
#pragma GCC unroll 4
    for (int p = 0; p < PARTS; p++) sums[0].part[p] = add(sums[0].part[p], part(j + p * W));
  }
#pragma GCC unroll 4
  for (int p = 0; p < PARTS; p++) {
    const Register *a = &sums[0].part[p], even = add(a[0], a[PARTS]);
    sums[0].part[p] = add(even, add(a[2 * PARTS], a[3 * PARTS]));
  }
  return sums[0];
}

// Lanes of a and b, each cut into segments of 2 H: the halves of every segment are added.
template <int H, int... LANE>
static inline V add_halves(V a, V b, std::integer_sequence<int, LANE...>) {
  return __builtin_shufflevector(a, b, (LANE / H * 2 * H + LANE % H)...) +
         __builtin_shufflevector(a, b, (LANE / H * 2 * H + LANE % H + H)...);
}

// The sums of N vectors; of W vectors, one in each lane.
template <int N>
static inline V sums_of(const V* v) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    const V a = sums_of<N / 2>(v), b = sums_of<N / 2>(v + N / 2);
    return add_halves<W / N>(a, b, std::make_integer_sequence<int, W>());
  }
}

// sums + x * weights, rounded once where the processor can.
static inline V fused(float x, V weights, V sums) {
#if defined(__AVX512F__)
  return (V)_mm512_fmadd_ps((__m512)all(x), (__m512)weights, (__m512)sums);
#elif defined(__FMA__)
  return (V)_mm256_fmadd_ps((__m256)all(x), (__m256)weights, (__m256)sums);
#elif defined(__aarch64__)
  return (V)vfmaq_n_f32((float32x4_t)sums, (float32x4_t)weights, x);
#elif defined(__wasm_relaxed_simd__)
  return (V)wasm_f32x4_relaxed_madd((v128_t)weights, (v128_t)all(x), (v128_t)sums);
#else
  return sums + x * weights;
#endif
}

// e^x for x <= 88 with a relative error below 3e-7, 1e-38 below -87, NaN for NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial, 2^n by the exponent's bits.
static inline V exponential(V x) {
  x = larger(all(-87.0f), x);
  const V magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  V n = x * 1.44269504f + magic;
  const I bits = (I)n - (I)magic;
  n -= magic;
  // ln 2 in two parts, so short that products with n are exact, fused or not.
  const V r = fused(0.00021219439804553986f, n, fused(-0.693359375f, n, x));
  V e = all(0.0082902722f);
  for (float coefficient : {0.0418981612f, 0.166676387f, 0.499991477f, 0.999999702f, 1.0f}) {
    e = e * r + coefficient;
  }
#if defined(__AVX512F__)
  return (V)_mm512_scalef_ps((__m512)e, (__m512)n);
#else
  return e * (V)((bits + 127) << 23);
#endif
}

static inline float exponential(float x) { return exponential(all(x))[0]; }

#ifdef _WIN32
#include <malloc.h>
#define aligned_alloc(alignment, size) _aligned_malloc(size, alignment)
#define aligned_free _aligned_free
#else
#define aligned_free free
#endif

// Memory that grows and is never shared: of a call or of a state.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept : data_(other.data_), room_(other.room_) {
    other.data_ = nullptr;
    other.room_ = 0;
  }
  ~Buffer() { aligned_free(data_); }

  // Room for n elements and one vector more; what was there is lost if it grows.
  T* at_least(size_t n) {
    if (n > room_ || !data_) {
      aligned_free(data_);
      data_ = (T*)aligned_alloc(64, (n * sizeof(T) + 4 * W + 63) / 64 * 64);
      if (!data_) throw std::bad_alloc();
      room_ = n;
    }
    return data_;
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  size_t room_ = 0;
};
