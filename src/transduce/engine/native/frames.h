// An encoder of frames: convolutions before its layers; or of vectors, without.
#pragma once
#include "layers.h"

// y (positions, outputs) of x (rows, inputs).
static void convolve(const Convolution& c, const float* x, int rows, float* y,
                     Scratches scratches) {
  const size_t window = (size_t)c.taps * c.inputs;
  share_rows(c.positions(rows), scratches, [&](int first, int n, Scratch& scratch) {
    float* windows = scratch.mixed.at_least(n * window);
    memset(windows, 0, 4 * n * window);
    for (int i = 0; i < n; i++) {
      const int begin = (first + i) * c.stride - c.taps / 2;
      const int from = std::max(0, begin), to = std::min(rows, begin + c.taps);
      if (from < to) {
        memcpy(windows + i * window + (size_t)(from - begin) * c.inputs,
               x + (size_t)from * c.inputs, 4 * (size_t)(to - from) * c.inputs);
      }
    }
    const int width = c.linear.outputs;
    float* wide = scratch.wide.at_least((size_t)n * width);
    apply(c.linear, windows, n, wide, width, scratch.products);
    if (!c.gated) activate(GELU, wide, (size_t)n * width);
    for (int i = 0; i < n; i++) {
      const float *from = wide + (size_t)i * width, *gates = from + c.outputs;
      float* to = y + (size_t)(first + i) * c.outputs;
      int j = 0;
      for (; j + W <= c.outputs; j += W) {
        store(to + j, c.gated ? sigmoid_times(load(from + j), load(gates + j)) : load(from + j));
      }
      for (; j < c.outputs; j++) {
        to[j] = c.gated ? sigmoid_times(all(from[j]), all(gates[j]))[0] : from[j];
      }
    }
  });
}

// The memory (positions, width) of n recordings, given by their frames one after another.  lengths:
// frames of each.
static void encode_frames(const Model& model, const float* frames, const int32_t* lengths, int n,
                          float* memory, int threads) {
  const int m = model.shape.width;
  std::vector<Scratch> scratches(std::clamp(threads, 1, 1024));
  Buffer<float> buffers[2];
  Sentences recordings;
  for (int i = 0; i < n; i++) {
    const float* x = frames;
    int rows = lengths[i];
    frames += (size_t)rows * model.shape.bins;
    float* first = memory + (size_t)recordings.starts.back() * m;
    if (model.is_bare()) memcpy(first, x, 4 * (size_t)rows * m);
    for (const Convolution& c : model.convolutions) {
      const int positions = c.positions(rows);
      const bool last = &c == &model.convolutions.back();
      Buffer<float>& buffer = buffers[x == buffers[0].data()];
      float* y = last ? first : buffer.at_least((size_t)positions * c.outputs);
      convolve(c, x, rows, y, scratches);
      x = y, rows = positions;
    }
    for (int at = 0; at < rows; at++) {
      place(model.encoder, m, at, first + (size_t)at * m, scratches[0]);
    }
    recordings.starts.push_back(recordings.starts.back() + rows);
  }
  encoder_layers(model, recordings, memory, scratches);
}
