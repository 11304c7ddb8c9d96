// Adam with decoupled decay, and Muon for the matrices of layers, as in `transduce.training.optimizer`.
#pragma once
#include "network.h"

// As the caller gives them.  step: from 1.  clip: greatest norm of all gradients; 0 for none.
// momentum: of Muon; 0 for Adam alone.  ema: decay of the moving average of the weights.
struct Step {
  int32_t step;
  float rate, beta1, beta2, epsilon, weight_decay, clip, momentum, rms, ema;
};

// Half a cosine from `peak` down over the budget, times a linear rise; progress: share of it spent.
static double cosine_rate(double peak, double warmup, double step, double progress) {
  const double level = peak * (1 + Angle(3.14159265358979324 * std::min(progress, 1.0)).cosine) / 2;
  return std::min(step / std::max(warmup, 1.0), 1.0) * level;
}

// Singular values brought near to 1: five times aX + b(XX^T)X + c(XX^T)^2 X (Jordan 2024).
class Orthogonalised {
 public:
  // x (rows, columns), in place.
  void run(float* x, int rows, int columns) {
    const bool is_tall = rows > columns;
    const int a = is_tall ? columns : rows, b = is_tall ? rows : columns;
    const size_t size = (size_t)rows * columns, square = (size_t)a * a;
    float* wide = wide_.at_least(size);
    float top = 1.17549435e-38f;
    for (size_t j = 0; j < size; j++) top = std::max(top, std::fabs(x[j]));
    double norm = 0;
    for (size_t j = 0; j < size; j++) norm += (double)(x[j] / top) * (x[j] / top);
    const float divisor = std::max((float)std::sqrt(norm), 1e-30f);
    for (size_t j = 0; j < size; j++) x[j] = x[j] / top / divisor;
    if (is_tall) transpose(x, rows, columns, columns, wide);
    else memcpy(wide, x, 4 * size);
    float *squares = squares_.at_least(square), *mixed = mixed_.at_least(square);
    float* product = product_.at_least(size);
    for (int round = 0; round < 5; round++) {
      factor_.pack_transposed(wide, a, b, b);
      factor_.multiply(wide, a, squares, a);
      factor_.pack(squares, a, a, a);
      factor_.multiply(squares, a, mixed, a);
      for (size_t j = 0; j < square; j++) mixed[j] = -4.7750f * squares[j] + 2.0315f * mixed[j];
      factor_.pack(wide, a, b, b);
      factor_.multiply(mixed, a, product, b);
      for (size_t j = 0; j < size; j++) wide[j] = 3.4445f * wide[j] + product[j];
    }
    if (is_tall) transpose(wide, a, b, b, x);
    else memcpy(x, wide, 4 * size);
  }

 private:
  Factor factor_;
  Buffer<float> wide_, squares_, mixed_, product_;
};

class Optimizer {
 public:
  // Step all parameters; returns the norm of all gradients.
  float step(Network& network, const Step& s) {
    double squares = 0;
    for (const Parameter& p : network.parameters) {
      for (size_t j = 0; j < p.matrix.size(); j++) {
        squares += (double)p.gradient[j] * p.gradient[j];
      }
    }
    const float norm = (float)std::sqrt(squares);
    if (!std::isfinite(norm)) return norm;  // the step is left out
    const float cut = s.clip > 0 ? std::min(1.0f, s.clip / (norm + 1e-6f)) : 1;
    for (Parameter& p : network.parameters) {
      for (size_t j = 0; j < p.matrix.size(); j++) p.gradient[j] *= cut;
      const bool is_decayed = p.is_matrix() && !p.is_embedding();
      const float decay = 1 - s.rate * (is_decayed ? s.weight_decay : 0);
      for (size_t j = 0; j < p.matrix.size(); j++) p.numbers[j] *= decay;
      if (s.momentum > 0 && p.is_matrix() && p.is_of_layer()) by_muon(p, s);
      else by_adam(p, s);
      average(p, s);
    }
    return norm;
  }

 private:
  Orthogonalised orthogonalised_;

  static void by_adam(Parameter& p, const Step& s) {
    const float first = (float)(1 - power(s.beta1, s.step));
    const float second = (float)std::sqrt(1 - power(s.beta2, s.step));
    for (size_t j = 0; j < p.matrix.size(); j += W) {  // with room for a vector behind them
      const V g = load(&p.gradient[j]);
      const V mean = load(&p.mean[j]) * s.beta1 + g * (1 - s.beta1);
      const V square = load(&p.square[j]) * s.beta2 + g * g * (1 - s.beta2);
      store(&p.mean[j], mean), store(&p.square[j], square);
      V root;
      for (int k = 0; k < W; k++) root[k] = std::sqrt(square[k]);
      store(&p.numbers[j], load(&p.numbers[j]) - s.rate / first * mean / (root / second + s.epsilon));
    }
  }

  // Nesterov's mean of the gradients, orthogonalised, of root mean square `rms` times the rate.
  void by_muon(Parameter& p, const Step& s) {
    const int rows = p.matrix.rows / p.stacked, columns = p.matrix.columns;
    const size_t size = p.matrix.size();
    for (size_t j = 0; j < size; j++) {
      p.mean[j] += (1 - s.momentum) * (p.gradient[j] - p.mean[j]);
      p.gradient[j] += s.momentum * (p.mean[j] - p.gradient[j]);
    }
    const float length = s.rate * s.rms * std::sqrt((float)std::max(rows, columns));
    for (int k = 0; k < p.stacked; k++) {
      orthogonalised_.run(p.gradient.data() + (size_t)k * rows * columns, rows, columns);
    }
    for (size_t j = 0; j < size; j++) p.numbers[j] -= length * p.gradient[j];
  }

  // At step n the decay is at most (1 + n) / (10 + n).
  static void average(Parameter& p, const Step& s) {
    const float decay = std::min(s.ema, (1.0f + s.step) / (10.0f + s.step));
    for (size_t j = 0; j < p.matrix.size(); j++) {
      p.average[j] += (1 - decay) * (p.numbers[j] - p.average[j]);
    }
  }
};
