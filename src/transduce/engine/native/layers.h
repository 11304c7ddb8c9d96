// Encoder and decoder layers, over rows without padding.
//
// The encoder runs over the real positions of all sentences, one after another.  The decoder
// advances each hypothesis by some tokens, a prompt or one: keys and values of all layers of a token
// are one row of a block, which stays where it is; a hypothesis is the list of its rows.
#pragma once
#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <thread>

#include "long_attention.h"
#include "model.h"

// Memory of one computation, never shared between two.
struct Scratch {
  ProductScratch products;
  Buffer<float> normed, added, wide, projected, mixed, scores;
  Floats position;
  Keys seen;
  PackedHead head;
};

// Scratch memory of some threads.
struct Scratches {
  Scratch* first;
  int count;
  Scratches(Scratch& scratch) : first(&scratch), count(1) {}
  Scratches(std::vector<Scratch>& of) : first(of.data()), count((int)of.size()) {}
};

// run(i) for each i below n, each on a thread of its own where there is one.
template <class Run>
static void on_threads(int n, Run run) {
  std::vector<std::exception_ptr> errors(n);
  const auto guarded = [&](int i) {
    try {
      run(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < n; i++) {
    try {
      others.emplace_back(guarded, i);
    } catch (const std::exception&) {  // there may be no more threads
      guarded(i);
    }
  }
  if (n) guarded(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// run(i, scratch) for each i below n, on as many threads as there are scratches.
template <class Run>
static void share_out(int n, Scratches scratches, Run run) {
  std::atomic<int> next{0};
  on_threads(std::min(scratches.count, n), [&](int thread) {
    for (int i; (i = next++) < n;) run(i, scratches.first[thread]);
  });
}

// As `share_out`, for nearly equal shares of rows that stay in the cache: run(first, rows, scratch).
template <class Run>
static void share_rows(int rows, Scratches scratches, Run run) {
  const int shares = (rows + 10 * ROWS - 1) / (10 * ROWS);
  share_out(shares, scratches, [&](int i, Scratch& scratch) {
    const int first = (int)((int64_t)rows * i / shares);
    run(first, (int)((int64_t)rows * (i + 1) / shares) - first, scratch);
  });
}

// Layer norm, or its division by the root mean square alone.
static void layer_norm(const Norm& norm, const float* x, int rows, int m, float* y) {
  for (int i = 0; i < rows; i++) {
    const float* from = x + (size_t)i * m;
    float* to = y + (size_t)i * m;
    const auto add = [](V a, V b) { return a + b; };
    const int whole = m / LANES * LANES;
    float mean = sum(combined(m, V{}, [=](int j) { return load(from + j); }, add));
    for (int j = whole; j < m; j++) mean += from[j];
    mean = norm.rms ? 0 : mean / m;
    const auto square = [=](int j) { return (load(from + j) - mean) * (load(from + j) - mean); };
    float variance = sum(combined(m, V{}, square, add));
    for (int j = whole; j < m; j++) variance += (from[j] - mean) * (from[j] - mean);
    const float scale = 1 / std::sqrt(variance / m + norm.epsilon);
    for (int j = 0; j < whole; j += W) {
      const V bias = norm.rms ? V{} : load(norm.bias + j);
      store(to + j, (load(from + j) - mean) * scale * load(norm.weight + j) + bias);
    }
    for (int j = whole; j < m; j++) {
      to[j] = (from[j] - mean) * scale * norm.weight[j] + (norm.rms ? 0 : norm.bias[j]);
    }
  }
}

// x / (1 + e^-u)
static inline V sigmoid_times(V x, V u) {
  return x / (1.0f + exponential(smaller(all(88.0f), -u)));
}

// Abramowitz and Stegun 7.1.26: error below 2e-7.
static inline V error_function(V x) {
  const V size = larger(x, -x), t = 1.0f / (1.0f + 0.3275911f * size);
  V series = all(1.061405429f);
  for (float coefficient : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) {
    series = series * t + coefficient;
  }
  const V value = 1.0f - series * t * exponential(-size * size);
  return x < 0 ? -value : value;
}

// Other activations than ReLU, which products apply themselves; of gated ones that of the gates.
static inline V activated(Activation activation, V x) {
  if (activation == GELU) return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
  if (activation == GELU_TANH || activation == GEGLU) return sigmoid_times(x, 1.59576912f * (x + 0.044715f * x * x * x));
  return sigmoid_times(x, x);
}

// wide (n) -> the same place; rows stand one after another, with room for a vector behind them.
static void activate(Activation activation, float* wide, size_t n) {
  for (size_t i = 0; i < n; i += W) store(wide + i, activated(activation, load(wide + i)));
}

// wide (rows, 2 inner), gates first -> activated(gate) * inner, (rows, inner) at its beginning.
static void gate(Activation activation, float* wide, int rows, int inner) {
  for (int i = 0; i < rows; i++) {
    const float* from = wide + (size_t)i * 2 * inner;
    float* to = wide + (size_t)i * inner;
    int j = 0;
    for (; j + W <= inner; j += W) {
      store(to + j, activated(activation, load(from + j)) * load(from + inner + j));
    }
    for (; j < inner; j++) to[j] = activated(activation, all(from[j]))[0] * from[inner + j];
  }
}

static void feed_forward(const Layer& l, const StackShape& shape, const float* x, int rows,
                         float* y, Scratch& scratch) {
  const Activation activation = (Activation)shape.activation;
  float* wide = scratch.wide.at_least((size_t)rows * l.inner.outputs);
  apply(l.inner, x, rows, wide, l.inner.outputs, scratch.products, activation == RELU);
  if (is_gated(shape)) {
    gate(activation, wide, rows, shape.inner);
  } else if (activation != RELU) {
    activate(activation, wide, (size_t)rows * shape.inner);
  }
  apply(l.outer, wide, rows, y, l.outer.outputs, scratch.products);
}

// x = x + added, or x = norm(x + added), in place of `added`.
static void add(bool pre_norm, const Norm& norm, float* x, float* added, int rows, int m) {
  float* sums = pre_norm ? x : added;
  for (size_t i = 0; i < (size_t)rows * m; i++) sums[i] = x[i] + added[i];
  if (!pre_norm) layer_norm(norm, added, rows, m, x);
}

// x = x + sublayer(norm(x)), or x = norm(x + sublayer(x)).
template <class Sublayer>
static void residual(bool pre_norm, const Norm& norm, float* x, int rows, int m, Scratch& scratch,
                     Sublayer sublayer) {
  const size_t size = (size_t)rows * m;
  float* added = scratch.added.at_least(size);
  const float* input = x;
  if (pre_norm) {
    float* normed = scratch.normed.at_least(size);
    layer_norm(norm, x, rows, m, normed);
    input = normed;
  }
  sublayer(input, added);
  add(pre_norm, norm, x, added, rows, m);
}

// Add its position to a vector before the first layer.
static void place(const Stack& stack, int m, int at, float* x, Scratch& scratch) {
  if (stack.positions.added()) {
    const float* position = stack.positions.row(at, scratch.position);
    for (int j = 0; j < m; j++) x[j] += position[j];
  }
  if (stack.shape.embedding_norm) layer_norm(stack.embedding_norm, x, 1, m, x);
}

// The embedding of a token at a position, before the first layer.  segment: (m), added, or null.
static void embed(const Stack& stack, const Rows& table, float scale, int m, int token, int at,
                  float* x, Scratch& scratch, const float* segment = nullptr) {
  for (int j = 0; j < m; j++) x[j] = table.at(token, j) * scale;
  for (int j = 0; j < m && segment; j++) x[j] += segment[j];
  place(stack, m, at, x, scratch);
}

// Turn the queries and keys of a row (queries, keys, values) by the angles of its position.
static void rotate(const Stack& stack, float* row, int at, Scratch& scratch) {
  if (stack.positions.kind != ROTARY) return;
  const Heads& heads = stack.heads;
  const int half = heads.width / 2;
  const float *cosine = stack.positions.row(at, scratch.position), *sine = cosine + half;
  for (int h = 0; h < 2 * heads.count; h++) {
    float *low = row + (size_t)h * heads.padded, *high = low + half;
    for (int i = 0; i < half; i++) {
      const float a = low[i], b = high[i];
      low[i] = a * cosine[i] - b * sine[i];
      high[i] = b * cosine[i] + a * sine[i];
    }
  }
}

// Sentences one after another: sentence i is ids[starts[i]] to ids[starts[i + 1] - 1].
// Without ids: lengths alone, of recordings.
struct Sentences {
  std::vector<int> starts{0}, ids;

  int count() const { return (int)starts.size() - 1; }
  int length(int i) const { return starts[i + 1] - starts[i]; }
  void add(int id) { ids.push_back(id); }
  void end() { starts.push_back((int)ids.size()); }  // the sentence that was added to
  Sentences part(int from, int to) const {
    Sentences some;
    for (int i = from; i < to; i++) some.starts.push_back(some.starts.back() + length(i));
    if (!ids.empty()) some.ids.assign(ids.begin() + starts[from], ids.begin() + starts[to]);
    return some;
  }
};

// Self-attention of the encoder: mixed (rows, heads) of projected (rows, queries, keys, values).
static void encoder_attention(const Model& model, const Sentences& sources, float* projected,
                              float* mixed, Scratches scratches) {
  const Stack& stack = model.encoder;
  const Precision precision = (Precision)model.shape.precision;
  const Heads& heads = stack.heads;
  const int h = heads.total();
  share_out(sources.count() * heads.count, scratches, [&](int number, Scratch& scratch) {
    const int i = number / heads.count, head = number % heads.count;
    const int start = sources.starts[i], n = sources.length(i);
    float* row = projected + (size_t)start * 3 * h;
    float* to = mixed + (size_t)start * h;
    if (n >= MANY_KEYS) {
      const int offset = head * heads.padded;
      scratch.head.pack(precision, row + h + offset, row + 2 * h + offset, 3 * h, n, heads);
      scratch.head.attend(row + offset, n, 3 * h, &stack.positions, head, to + offset, h, nullptr, 0,
                          0, scratch.scores, scratch.products);
    } else if (!head) {
      Keys& seen = scratch.seen;
      seen.clear();
      for (int j = 0; j < n; j++) seen.add(row + (3 * j + 1) * h, row + (3 * j + 2) * h);
      seen.fill_up();
      for (int j = 0; j < n; j++) {
        attend(row + 3 * j * h, seen, heads, &stack.positions, j, to + (size_t)j * h, nullptr,
               scratch.scores);
      }
    }
  });
}

// The layers of the encoder over vectors x (positions, width), in place.
static void encoder_layers(const Model& model, const Sentences& sources, float* x,
                           Scratches scratches) {
  const Stack& stack = model.encoder;
  const int m = model.shape.width, rows = sources.starts.back(), h = stack.heads.total();
  const bool pre = stack.shape.pre_norm;
  float* projected = scratches.first->projected.at_least((size_t)rows * 3 * h);
  float* mixed = scratches.first->mixed.at_least((size_t)rows * h);
  for (const Layer& l : stack.layers) {
    share_rows(rows, scratches, [&](int first, int n, Scratch& scratch) {
      const float* in = x + (size_t)first * m;
      float* normed = scratch.normed.at_least((size_t)n * m);
      if (pre) layer_norm(l.self_norm, in, n, m, normed);
      apply(l.query_key_value, pre ? normed : in, n, projected + (size_t)first * 3 * h, 3 * h,
            scratch.products);
    });
    for (int i = 0; i < sources.count(); i++) {
      for (int row = sources.starts[i]; row < sources.starts[i + 1]; row++) {
        rotate(stack, projected + (size_t)row * 3 * h, row - sources.starts[i], *scratches.first);
      }
    }
    encoder_attention(model, sources, projected, mixed, scratches);
    share_rows(rows, scratches, [&](int first, int n, Scratch& scratch) {
      float* part = x + (size_t)first * m;
      float* added = scratch.added.at_least((size_t)n * m);
      apply(l.self_output, mixed + (size_t)first * h, n, added, m, scratch.products);
      add(pre, l.self_norm, part, added, n, m);
      residual(pre, l.feed_forward_norm, part, n, m, scratch, [&](const float* in, float* out) {
        feed_forward(l, stack.shape, in, n, out, scratch);
      });
    });
  }
  if (pre) layer_norm(stack.norm, x, rows, m, x);
}

// The encoder's outputs (positions, width).  segments: the number of each position's, or null.
static void encode(const Model& model, const Sentences& sources, float* x,
                   Scratches scratches, const int32_t* segments = nullptr) {
  const int m = model.shape.width;
  for (int i = 0; i < sources.count(); i++) {
    for (int row = sources.starts[i]; row < sources.starts[i + 1]; row++) {
      const float* segment = model.segment_table;
      if (segment && segments) segment += (size_t)segments[row] * m;
      embed(model.encoder, model.source_table, model.shape.scale, m, sources.ids[row],
            row - sources.starts[i], x + (size_t)row * m, *scratches.first, segment);
    }
  }
  encoder_layers(model, sources, x, scratches);
}

// Floats between two rows of keys and values: an odd number of cache lines, so that the rows of a
// head do not all fall into the same sets of the cache.
static inline size_t staggered(size_t width) { return ((width + 15) / 16 | 1) * 16; }

// The past of a batch of hypotheses, and the memory that they look at, if there is an encoder.
class State {
 public:
  const Model& model;

  // For a decoder alone: as many hypotheses as the first step has.
  explicit State(const Model& model_) : model(model_) {}

  State(const Model& model_, const Sentences& sources) : model(model_), sources_(sources) {
    Buffer<float> x;
    float* memory = x.at_least(sources.ids.size() * model.shape.width);
    encode(model, sources, memory, scratch_);
    look_at(memory);
  }

  // memory: the encoder's outputs (positions, width).
  State(const Model& model_, const Sentences& sources, const float* memory)
      : model(model_), sources_(sources) {
    look_at(memory);
  }

  int rows() const { return (int)past_.size(); }
  int length(int row) const { return (int)past_[row].rows.size(); }
  int memory_length(int row) const { return sources_.length(past_[row].sentence); }

  // Hypotheses `rows`, in order: only lists move.
  void select(const int* rows, int n) {
    std::vector<Past> past;
    for (int i = 0; i < n; i++) past.push_back(past_[rows[i]]);
    past_.swap(past);
  }

  // Forget all of a hypothesis.
  void forget(int row) { past_[row].rows.clear(); }

  // Advance each hypothesis by the tokens given for it, which may be none; returns the decoder's
  // outputs (tokens, width).
  //
  // attention: (tokens, stride) of the cross-attention of the last layer, or null.
  const float* step(const Sentences& given, float* attention = nullptr, int attention_stride = 0) {
    const Stack& stack = model.decoder;
    const int m = model.shape.width, n = (int)given.ids.size();
    const bool pre = stack.shape.pre_norm;
    const size_t stride = staggered(stack.shape.recurrent ? m : 2 * stack.heads.total());
    const size_t row = stride * stack.layers.size();
    float* x = x_.at_least((size_t)n * m);
    if (past_.empty()) past_.resize(given.count());
    for (Past& past : past_) {
      if (!past.blocks) past.blocks = std::make_shared<Blocks>();
      past.blocks->oldest = steps_;
    }
    for (const Past& past : past_) {
      if (!past.rows.empty()) past.blocks->oldest = std::min(past.blocks->oldest, past.since);
    }
    for (int r = 0; r < rows(); r++) {
      if (past_[r].rows.empty()) past_[r].since = steps_;
      const int begin = given.starts[r], count = given.length(r);
      float* to = past_[r].blocks->add(steps_, count, row);
      for (int i = begin; i < begin + count; i++, to += row) {
        const float scale = stack.shape.recurrent && !length(r) ? 0 : model.shape.scale;
        embed(stack, model.target_table, scale, m, given.ids[i], length(r), x + (size_t)i * m,
              scratch_);
        past_[r].rows.push_back(to);
      }
    }
    steps_++;
    for (size_t i = 0; i < stack.layers.size(); i++) {
      const Layer& l = stack.layers[i];
      residual(pre, l.self_norm, x, n, m, scratch_, [&](const float* in, float* out) {
        if (stack.shape.recurrent) return recurrence(l, given, in, out, i * stride);
        self_attention(l, given, in, out, i * stride);
      });
      float* seen = i + 1 == stack.layers.size() ? attention : nullptr;
      if (model.has_encoder()) {
        residual(pre, l.cross_norm, x, n, m, scratch_, [&](const float* in, float* out) {
          cross_attention(l, given, in, out, i, seen, attention_stride);
        });
      }
      residual(pre, l.feed_forward_norm, x, n, m, scratch_, [&](const float* in, float* out) {
        feed_forward(l, stack.shape, in, n, out, scratch_);
      });
    }
    if (pre) layer_norm(stack.norm, x, n, m, x);
    return x;
  }

  // Logits (n, outputs of the head) of decoder outputs (n, width).
  void logits(const Linear& head, const float* outputs, int n, float* to) {
    apply(head, outputs, n, to, head.outputs, scratch_.products);
  }

  // Outputs (rows, width) after the last token of each hypothesis, of the outputs of a step.
  const float* last_outputs(const Sentences& given, const float* outputs) {
    const int m = model.shape.width, n = rows();
    if ((int)given.ids.size() <= n) return outputs;
    float* last = last_.at_least((size_t)n * m);
    for (int r = 0; r < n; r++) {
      memcpy(last + (size_t)r * m, outputs + (given.starts[r + 1] - 1) * (size_t)m, 4 * (size_t)m);
    }
    return last;
  }

 private:
  // Rows of the tokens of all hypotheses with one beginning; freed with the last of them.
  struct Blocks {
    std::deque<std::pair<int64_t, Buffer<float>>> of_steps;  // and the last step of each
    int64_t oldest = 0;  // step that a hypothesis comes from
    int room = 0;        // tokens, in the last block
    float* next = nullptr;

    float* add(int64_t step, int tokens, size_t row) {
      if (room < tokens || of_steps.empty()) {
        while (!of_steps.empty() && of_steps.front().first < oldest) of_steps.pop_front();
        of_steps.emplace_back(step, Buffer<float>());
        room = std::max(tokens, TOGETHER);
        next = of_steps.back().second.at_least(room * row);
      }
      of_steps.back().first = step, room -= tokens, next += tokens * row;
      return next - tokens * row;
    }
    static constexpr int TOGETHER = 16;
  };

  // What a hypothesis comes from.
  struct Past {
    std::vector<const float*> rows;  // of the blocks, one for each token
    std::shared_ptr<Blocks> blocks;
    int sentence = 0;   // in the memory
    int64_t since = 0;  // number of the step that its first row is of
  };

  Sentences sources_;                  // their positions in the memory are those of the sources
  std::vector<Buffer<float>> memory_;  // of each layer, (positions, keys and values)
  std::vector<PackedHead> packed_;     // of each layer, sentence and head, if there are many keys
  size_t memory_stride_ = 0;
  int64_t steps_ = 0;
  std::vector<Past> past_;  // of each hypothesis
  Buffer<float> x_, last_;
  Scratch scratch_;

  void look_at(const float* memory) {
    const int rows = sources_.starts.back(), m = model.shape.width;
    const Heads& heads = model.decoder.heads;
    memory_stride_ = staggered(2 * heads.total());
    for (const Layer& l : model.decoder.layers) {
      Buffer<float> kept;
      float* projected = kept.at_least((size_t)rows * memory_stride_);
      share_rows(rows, scratch_, [&](int first, int n, Scratch& scratch) {
        apply(l.key_value, memory + (size_t)first * m, n, projected + first * memory_stride_,
              (int)memory_stride_, scratch.products);
      });
      bool few = false;
      for (int i = 0; i < sources_.count(); i++) {
        const int n = sources_.length(i);
        few |= n < MANY_KEYS;
        for (int head = 0; head < heads.count; head++) {
          packed_.emplace_back();
          const float* keys = projected + sources_.starts[i] * memory_stride_ + head * heads.padded;
          if (n >= MANY_KEYS) {
            packed_.back().pack((Precision)model.shape.precision, keys, keys + heads.total(),
                                (int)memory_stride_, n, heads);
          }
        }
      }
      memory_.push_back(few ? std::move(kept) : Buffer<float>());
    }
    past_.resize(sources_.count());
    for (int i = 0; i < sources_.count(); i++) past_[i].sentence = i;
  }

  void self_attention(const Layer& l, const Sentences& given, const float* in, float* out,
                      size_t offset) {
    const Stack& stack = model.decoder;
    const int n = (int)given.ids.size(), h = stack.heads.total();
    float* wide = scratch_.wide.at_least((size_t)n * 3 * h);
    float* mixed = scratch_.mixed.at_least((size_t)n * h);
    apply(l.query_key_value, in, n, wide, 3 * h, scratch_.products);
    Keys& seen = scratch_.seen;
    for (int r = 0; r < rows(); r++) {
      seen.clear();
      const int before = length(r) - given.length(r);
      for (int at = 0; at < length(r); at++) {
        const float* keys = past_[r].rows[at] + offset;
        seen.add(keys, keys + h);
        if (at < before) continue;
        const size_t i = given.starts[r] + at - before;
        float* row = wide + i * 3 * h;
        rotate(stack, row, at, scratch_);
        memcpy((float*)keys, row + h, 8 * (size_t)h);
        seen.fill_up();
        attend(row, seen, stack.heads, &stack.positions, at, mixed + i * h, nullptr,
               scratch_.scores);
      }
    }
    apply(l.self_output, mixed, n, out, model.shape.width, scratch_.products);
  }

  // A row of a hypothesis holds cells c = f c' + (1 - f) W x, after c' of the token before.
  void recurrence(const Layer& l, const Sentences& given, const float* in, float* out,
                  size_t offset) {
    const int n = (int)given.ids.size(), m = model.shape.width;
    float* candidates = scratch_.wide.at_least((size_t)n * m);
    float* gates = scratch_.mixed.at_least((size_t)n * m);
    apply(l.candidate, in, n, candidates, m, scratch_.products);
    apply(l.forget, in, n, gates, m, scratch_.products);
    for (int r = 0; r < rows(); r++) {
      for (int i = given.starts[r]; i < given.starts[r + 1]; i++) {
        const int at = length(r) - given.starts[r + 1] + i;
        const float* before = at ? past_[r].rows[at - 1] + offset : nullptr;
        float* cells = (float*)past_[r].rows[at] + offset;
        for (int j = 0; j < m; j += W) {
          const size_t from = (size_t)i * m + j;
          const V kept = sigmoid_times(all(1), load(gates + from));
          const V added = (1.0f - kept) * load(candidates + from);
          const V cell = before ? kept * load(before + j) + added : added;
          store(cells + j, cell);
          store(out + from, larger(V{}, cell));  // past a row, the next one writes over it
        }
      }
    }
  }

  void cross_attention(const Layer& l, const Sentences& given, const float* in, float* out,
                       size_t layer, float* attention, int attention_stride) {
    const Heads& heads = model.decoder.heads;
    const int n = (int)given.ids.size(), h = heads.total();
    float* queries = scratch_.wide.at_least((size_t)n * h);
    float* mixed = scratch_.mixed.at_least((size_t)n * h);
    apply(l.query, in, n, queries, h, scratch_.products);
    for (int r = 0, end; r < rows(); r = end) {  // the hypotheses of a sentence together
      const int sentence = past_[r].sentence;
      for (end = r + 1; end < rows() && past_[end].sentence == sentence;) end++;
      const int first = given.starts[r], count = given.starts[end] - first;
      const float* asked = queries + (size_t)first * h;
      float* to = mixed + (size_t)first * h;
      float* weights = attention ? attention + (size_t)first * attention_stride : nullptr;
      if (memory_length(r) >= MANY_KEYS) {
        const size_t at = (layer * sources_.count() + sentence) * heads.count;
        for (int i = 0; i < count && weights; i++) {
          std::fill_n(weights + (size_t)i * attention_stride, memory_length(r), 0.0f);
        }
        for (int head = 0; head < heads.count; head++) {
          const int offset = head * heads.padded;
          packed_[at + head].attend(asked + offset, count, h, nullptr, 0, to + offset, h, weights,
                                    attention_stride, heads.count, scratch_.scores,
                                    scratch_.products);
        }
        continue;
      }
      Keys& seen = scratch_.seen;
      seen.clear();
      const float* row = memory_[layer].data() + sources_.starts[sentence] * memory_stride_;
      for (int s = 0; s < memory_length(r); s++, row += memory_stride_) seen.add(row, row + h);
      seen.fill_up();
      for (int i = 0; i < count; i++) {
        attend(asked + (size_t)i * h, seen, heads, nullptr, 0, to + (size_t)i * h,
               weights ? weights + (size_t)i * attention_stride : nullptr, scratch_.scores);
      }
    }
    apply(l.cross_output, mixed, n, out, model.shape.width, scratch_.products);
  }
};
