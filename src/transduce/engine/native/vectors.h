// Vectors of floats, one machine register each, by the vector extension of GCC and Clang.
//
// Every sum here has one order, written out: a result depends on its own inputs alone, never on
// the rows beside it, and is the same to the bit in every batch.
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
static inline V all(float x) { return V{} + x; }
// The second where either is NaN.
static inline V larger(V a, V b) { return a > b ? a : b; }
static inline V smaller(V a, V b) { return a < b ? a : b; }
static inline float larger(float a, float b) { return a > b ? a : b; }

// Half of the lanes with the other half, until one is left.
template <int N, class Combine>
static inline float reduce(typename Lanes<float, N>::type v, Combine combine) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    typename Lanes<float, N / 2>::type low, high;
    memcpy(&low, &v, 2 * N);
    memcpy(&high, (const char*)&v + 2 * N, 2 * N);
    return reduce<N / 2>(combine(low, high), combine);
  }
}
static inline float sum(V v) {
  return reduce<W>(v, [](auto a, auto b) { return a + b; });
}
static inline float maximum(V v) {
  return reduce<W>(v, [](auto a, auto b) { return a > b ? a : b; });
}

// Combine the vectors part(0), part(W), ... of n elements, then the elements that are left, by
// `add`.  Four partial results, so that one addition need not wait for the other.
template <class Part, class Add>
static inline V combined(int n, V first, Part part, Add add) {
  V a = first, b = first, c = first, d = first;
  int j = 0;
  for (; j + 4 * W <= n; j += 4 * W) {
    a = add(a, part(j)), b = add(b, part(j + W));
    c = add(c, part(j + 2 * W)), d = add(d, part(j + 3 * W));
  }
  for (; j + W <= n; j += W) a = add(a, part(j));
  return add(add(a, b), add(c, d));
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

// e^x for x <= 88 with a relative error below 3e-7, 1e-38 below -87, NaN for NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series, 2^n by the exponent's bits.
static inline V exponential(V x) {
  x = larger(all(-87.0f), x);
  const V magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  V n = x * 1.44269504f + magic;
  I bits = (I)n - (I)magic;
  n -= magic;
  V r = x - n * 0.693359375f + n * 2.12194440e-4f;  // ln 2 in two parts
  V e = all(1.0f / 5040);
  for (float coefficient : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    e = e * r + coefficient;
  }
  return e * (V)((bits + 127) << 23);
}

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
