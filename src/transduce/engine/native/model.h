// The weights of a Transformer, found by their names in the PyTorch model: an encoder and a decoder,
// or one of them alone.
#pragma once
#include <string>
#include <vector>

#include "attention.h"
#include "products.h"

enum Activation { RELU, GELU, GELU_TANH, SILU, SWIGLU, GEGLU };
enum Pooling { NOT_POOLED, FIRST_VECTOR, MEAN_VECTOR, MAXIMUM };
enum Dense { NO_DENSE, DENSE_TANH, DENSE_RELU, DENSE_GELU_NORM };  // before an encoder's scores
enum FrontEnd { GATED_FRONT_END, WHISPER_FRONT_END, NO_FRONT_END };  // of frames

// As the caller gives them; the same fields in `library.py`.
struct ModelShape {
  StackShape encoder, decoder;
  int32_t width, source_size, target_size, precision;  // size 0: that side is missing
  float scale;                               // of embeddings
  int32_t segments, pooling, dense, scores;  // of an encoder alone; scores 0: no head
  // Of an encoder of frames of `bins` features, 0 for ids; gated convolutions span `taps` frames.
  // Without a front end, `width` features: vectors of patches, for layers without a decoder.
  int32_t bins, front_end, convolutions, taps, channels;
};

static inline bool is_gated(const StackShape& s) {
  return s.activation == SWIGLU || s.activation == GEGLU;
}

struct Norm {
  const float *weight = nullptr, *bias = nullptr;
  float epsilon = 0;
  bool rms = false;  // without mean and bias
};

struct Layer {
  Linear query_key_value, self_output;
  Linear candidate, forget;              // instead of them, of a recurrent unit
  Linear query, key_value, cross_output;  // of a decoder
  Linear inner, outer;
  Norm self_norm, cross_norm, feed_forward_norm;
};

// Over frames, zeros outside, before GELU or, if gated, half of the outputs times the gates of the
// other half.
struct Convolution {
  Linear linear;  // of the inputs of `taps` frames, frame by frame
  int inputs, outputs, taps, stride;
  bool gated;

  int positions(int frames) const { return (frames - 1) / stride + 1; }
};

struct Stack {
  StackShape shape;
  Heads heads;
  Positions positions;
  Norm embedding_norm, norm;
  std::vector<Layer> layers;

  Stack(const StackShape& shape_, int width, bool causal)
      : shape(shape_), heads(shape_.heads, shape_.head_width), layers(shape_.layers) {
    positions.prepare(shape, width, causal);
  }
};

// Which side of a matrix the heads are on: they are padded there to whole vectors.
enum HeadSide { NO_HEADS, HEADS_OUT, HEADS_IN };

// A place for a weight.  rows, columns: the shape that it must have, columns 1 for a vector.
struct Slot {
  std::string name;
  size_t rows, columns;
  Linear* linear = nullptr;
  Norm* norm = nullptr;
  Rows* embedding = nullptr;
  const float** table = nullptr;
  const Heads* heads = nullptr;
  HeadSide side = NO_HEADS;
  size_t taps = 0;  // of a convolution, whose columns are its inputs, and the taps of each
  bool filled = false;
};

enum LoadError { LOADED, UNKNOWN_NAME, WRONG_SHAPE, NOT_FINITE, NO_MEMORY };

class Model {
 public:
  ModelShape shape;
  Stack encoder, decoder;
  Linear head, dense;
  std::vector<Convolution> convolutions;
  Norm dense_norm;
  Rows source_table{}, target_table{};   // (size, width)
  const float* segment_table = nullptr;  // (segments, width)

  explicit Model(const ModelShape& shape_)
      : shape(shape_),
        encoder(has_encoder() ? shape_.encoder : StackShape{}, shape_.width, false),
        decoder(shape_.target_size ? shape_.decoder : StackShape{}, shape_.width, true) {
    const size_t m = shape.width;
    if (has_decoder()) {
      const char* target = has_encoder() ? "target_front_end.embedding" : "front_end.embedding";
      add({target, (size_t)shape.target_size, m}).embedding = &target_table;
      add({"head", (size_t)shape.target_size, m}).linear = &head;
      add_stack("decoder", decoder, has_encoder());
    }
    if (!has_encoder()) return;
    add_stack("encoder", encoder, false);
    if (shape.bins) {
      add_front_end();
    } else {
      add({"front_end.embedding", (size_t)shape.source_size, m}).embedding = &source_table;
      if (!has_decoder()) add_encoder_head();
    }
  }

  bool has_encoder() const { return shape.source_size > 0 || shape.bins > 0; }
  bool has_decoder() const { return shape.target_size > 0; }
  bool is_bare() const { return shape.front_end == NO_FRONT_END; }

  // weight (rows, columns) is packed, or kept by the caller if it is a table or a norm's.
  LoadError load(const std::string& name, const Rows& weight, const float* bias, size_t rows) {
    for (Slot& slot : slots_) {
      if (slot.name != name) continue;
      if (slot.rows != rows || slot.columns != weight.columns) return WRONG_SHAPE;
      for (size_t i = 0; i < rows * weight.columns; i++)
        if (!std::isfinite(weight.at(i / weight.columns, i % weight.columns))) return NOT_FINITE;
      if (slot.embedding) *slot.embedding = weight;
      if (slot.table) *slot.table = (const float*)weight.numbers;
      if (slot.norm) slot.norm->weight = (const float*)weight.numbers, slot.norm->bias = bias;
      if (slot.norm && slot.norm->rms == (bias != nullptr)) return WRONG_SHAPE;
      if (weight.divisors && (slot.table || slot.norm)) return WRONG_SHAPE;
      if (slot.linear) pack(slot, weight, bias);
      slot.filled = true;
      if (slot.embedding || slot.linear == &head) read_from_head(source_table), read_from_head(target_table);
      return LOADED;
    }
    return UNKNOWN_NAME;
  }

  bool complete() const {
    return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.filled; });
  }

 private:
  std::vector<Slot> slots_;

  // Read a table from the packed head, if all its numbers are there: the caller's then take no memory.
  void read_from_head(Rows& table) {
    const size_t rows = head.precision == INT8 && table.divisors ? head.outputs : 0;
    const Rows twin{table.numbers, table.divisors, table.columns, &head};
    for (size_t i = 0; i < rows * table.columns; i++) {
      const size_t row = i / table.columns, column = i % table.columns;
      if (twin.at(row, column) != table.at(row, column)) return;
    }
    if (rows) table = twin;
  }

  Slot& add(Slot slot) {
    slots_.push_back(slot);
    return slots_.back();
  }

  void add_linear(const std::string& name, Linear& linear, size_t rows, size_t columns,
                  const Heads* heads = nullptr, HeadSide side = NO_HEADS) {
    Slot& slot = add({name, rows, columns});
    slot.linear = &linear, slot.heads = heads, slot.side = side;
  }

  void add_norm(const std::string& name, Norm& norm, const StackShape& stack, bool rms) {
    norm.epsilon = stack.epsilon, norm.rms = rms;
    add({name, (size_t)shape.width, 1}).norm = &norm;
  }

  void add_front_end() {
    const bool whisper = shape.front_end == WHISPER_FRONT_END;
    const int m = shape.width, n = whisper ? 2 : is_bare() ? 0 : shape.convolutions;
    for (int i = 0; i < n; i++) {
      const int inputs = i ? convolutions[i - 1].outputs : shape.bins;
      const int outputs = whisper || i == n - 1 ? m : shape.channels;
      convolutions.push_back({{}, inputs, outputs, whisper ? 3 : shape.taps,
                              whisper && !i ? 1 : 2, !whisper});
    }
    for (int i = 0; i < n; i++) {
      Convolution& c = convolutions[i];
      const std::string gated = "front_end.convolutions." + std::to_string(i);
      add_linear(whisper ? i ? "front_end.second" : "front_end.first" : gated, c.linear,
                 (size_t)c.outputs * (c.gated ? 2 : 1), (size_t)c.inputs * c.taps);
      slots_.back().taps = c.taps;
    }
  }

  void add_encoder_head() {
    const size_t m = shape.width;
    if (shape.segments) add({"front_end.segments", (size_t)shape.segments, m}).table = &segment_table;
    if (!shape.scores) return;
    const bool masked = shape.dense == DENSE_GELU_NORM;  // of a masked language model
    if (shape.dense) add_linear(masked ? "head.dense" : "head.hidden", dense, m, m);
    if (masked) add_norm("head.norm", dense_norm, shape.encoder, false);
    add_linear(masked ? "head.vocabulary" : "head.output", head, (size_t)shape.scores, m);
  }

  void add_stack(const std::string& name, Stack& stack, bool cross) {
    const StackShape& s = stack.shape;
    const size_t m = shape.width, all_heads = (size_t)s.heads * s.head_width;
    const Heads* heads = &stack.heads;
    for (int i = 0; i < s.layers; i++) {
      const std::string at = name + ".layers." + std::to_string(i) + ".";
      Layer& l = stack.layers[i];
      if (s.recurrent) {
        add_linear(at + "recurrence.candidate", l.candidate, m, m);
        add_linear(at + "recurrence.forget", l.forget, m, m);
      } else {
        add_linear(at + "self_attention.query_key_value", l.query_key_value, 3 * all_heads, m, heads, HEADS_OUT);
        add_linear(at + "self_attention.output", l.self_output, m, all_heads, heads, HEADS_IN);
      }
      add_norm(at + (s.recurrent ? "recurrence" : "self_attention") + "_residual.norm", l.self_norm, s, s.rms);
      if (cross) {
        add_linear(at + "cross_attention.query", l.query, all_heads, m, heads, HEADS_OUT);
        add_linear(at + "cross_attention.key_value", l.key_value, 2 * all_heads, m, heads, HEADS_OUT);
        add_linear(at + "cross_attention.output", l.cross_output, m, all_heads, heads, HEADS_IN);
        add_norm(at + "cross_attention_residual.norm", l.cross_norm, s, s.rms);
      }
      const bool gated = is_gated(s);
      const char* inner = gated ? "feed_forward.gate_inner" : "feed_forward.inner";
      add_linear(at + inner, l.inner, (size_t)s.inner * (gated ? 2 : 1), m);
      add_linear(at + "feed_forward.outer", l.outer, m, s.inner);
      add_norm(at + "feed_forward_residual.norm", l.feed_forward_norm, s, s.rms);
    }
    if (s.embedding_norm) add_norm(name + ".embedding_norm", stack.embedding_norm, s, s.rms);
    if (s.pre_norm) add_norm(name + ".norm", stack.norm, s, s.rms);
    if (s.positions != LEARNED && s.positions != RELATIVE) return;
    const bool learned = s.positions == LEARNED;  // or of distances
    const size_t rows = learned ? s.max_positions : s.buckets, columns = learned ? m : s.heads;
    add({name + ".positions.table", rows, columns}).table = &stack.positions.learned;
  }

  void pack(const Slot& slot, const Rows& weight, const float* bias) {
    const Precision precision = slot.taps && shape.precision ? FUSED : (Precision)shape.precision;
    const size_t d = slot.heads ? slot.heads->width : 1, padded = slot.heads ? slot.heads->padded : 1;
    if (!slot.taps && d == padded) return slot.linear->pack(precision, weight, bias, slot.rows);
    const auto spread = [&](size_t at, HeadSide side) {
      return slot.side == side ? at / d * padded + at % d : at;
    };
    const size_t taps = std::max<size_t>(slot.taps, 1), inputs = slot.columns / taps;
    const size_t rows = spread(slot.rows, HEADS_OUT), columns = spread(slot.columns, HEADS_IN);
    Floats moved(rows * columns), moved_bias(rows);
    for (size_t i = 0; i < slot.rows; i++) {
      const size_t row = spread(i, HEADS_OUT);
      if (bias) moved_bias[row] = bias[i];
      for (size_t j = 0; j < slot.columns; j++) {  // of a convolution, frame by frame
        moved[row * columns + spread(j % taps * inputs + j / taps, HEADS_IN)] = weight.at(i, j);
      }
    }
    bias = bias ? moved_bias.data() : nullptr;
    slot.linear->pack(precision, {moved.data(), nullptr, columns}, bias, rows);
  }
};

// True if the sizes make sense and no product of them overflows.
static bool is_valid(const StackShape& s) {
  const bool sizes = s.layers >= 1 && s.layers <= 1000 && s.heads >= 1 && s.heads <= 1000 &&
                     s.head_width >= 1 && s.head_width <= 10000 && s.inner >= 1 &&
                     s.inner <= 1000000;
  const bool kinds = s.activation >= RELU && s.activation <= GEGLU &&
                     s.positions >= NO_POSITIONS && s.positions <= RELATIVE;
  const bool relative = s.buckets >= 4 && s.distance > s.buckets / 2 && s.distance <= 1000000;
  return sizes && kinds && s.max_positions >= 1 &&
         (s.positions != ROTARY || s.head_width % 2 == 0) && (s.positions != RELATIVE || relative);
}
static bool is_valid(const ModelShape& s) {
  const auto side = [](int32_t size, const StackShape& stack) {
    return size == 0 || (size > 0 && is_valid(stack));
  };
  const int32_t source = s.bins ? s.bins : s.source_size;
  const bool bare = s.front_end == NO_FRONT_END;
  const bool sides = side(source, s.encoder) && side(s.target_size, s.decoder) &&
                     (source || s.target_size) && !(source && s.encoder.recurrent) &&
                     !(s.bins && (s.source_size || bare == (s.target_size > 0)));
  const bool frames = (bare ? s.bins == s.width : s.bins <= 10000) &&
                      s.front_end >= GATED_FRONT_END && s.front_end <= NO_FRONT_END &&
                      s.convolutions >= 0 &&
                      s.convolutions <= 8 && s.taps >= 0 && s.taps <= 1000 && s.channels >= 0 &&
                      s.channels <= 100000 &&
                      (!s.bins || s.front_end || (s.convolutions && s.taps % 2 && s.channels));
  const bool head = s.segments >= 0 && s.segments <= 1000 && s.scores >= 0 &&
                    s.pooling >= NOT_POOLED && s.pooling <= MAXIMUM && s.dense >= NO_DENSE &&
                    s.dense <= DENSE_GELU_NORM;
  return sides && frames && head && s.width >= 1 && s.width <= 100000 && s.precision >= FLOAT32 &&
         s.precision <= INT8;
}
