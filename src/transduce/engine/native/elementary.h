// Elementary functions in double, of additions, products and quotients alone: the same bits on every
// system, where libraries of mathematics differ in their last ones.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

// ln x, by 2 artanh of (m - 1) / (m + 1), where x is m times a power of 2.
static inline double logarithm(double x) {
  if (!(x > 0 && x < INFINITY)) return x == 0 ? -INFINITY : x > 0 ? x : NAN;
  int power;
  double m = std::frexp(x, &power);
  if (m < 0.70710678118654752) m *= 2, power--;
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 1.0 / 23;
  for (int i = 21; i > 0; i -= 2) series = series * square + 1.0 / i;
  return 2 * s * series + power * 0.69314718055994531;
}

// e^x by its Taylor series at |r| <= ln 2 / 2, where x = n ln 2 + r.
static inline double exponential(double x) {
  x = std::min(std::max(x, -1000.0), 1000.0);
  const double n = std::nearbyint(x * 1.44269504088896341);
  const double r = x - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10;
  double e = 1;
  for (int i = 13; i > 0; i--) e = e * r / i + 1;
  return std::ldexp(e, (int)n);
}

// x^y for x > 0.
static inline double power(double x, double y) { return exponential(y * logarithm(x)); }

// Sine and cosine, by their Taylor series at |r| <= pi / 4, where x = n pi / 2 + r.
struct Angle {
  double sine, cosine;

  explicit Angle(double x) {
    const double n = std::nearbyint(x * 0.63661977236758134);
    const double r = x - n * 1.57079632673412561417e+00 - n * 6.07710050630396597660e-11 -
                     n * 2.02226624879595063154e-21;
    double s = 1, c = 1;
    for (int i = 18; i > 0; i -= 2) {
      s = 1 - s * r * r / (i * (i + 1));
      c = 1 - c * r * r / (i * (i - 1));
    }
    s *= r;
    const int quarter = (int)((int64_t)n & 3);
    sine = quarter % 2 ? c : s, cosine = quarter % 2 ? s : c;
    if (quarter & 2) sine = -sine;
    if (quarter == 1 || quarter == 2) cosine = -cosine;
  }
};
