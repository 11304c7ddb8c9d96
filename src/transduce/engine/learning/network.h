// A Transformer that learns: an encoder and a decoder, or a decoder alone.  Parameters have the names
// of the PyTorch model.
#pragma once
#include <deque>
#include <string>

#include "operations.h"

enum Tie { NOT_TIED, TWO_WAY, THREE_WAY };
// Parts that an experiment takes out, as bits.
enum LeftOut { NO_SCALE = 1, NO_MASK = 2, NO_RESIDUAL = 4, NO_NORM = 8 };

// As the caller gives them, beside the shape of the engine's model; page fields of the same names.
struct Training {
  int32_t tie, left_out, init_normal;
  float dropout, smoothing;
};

// stacked: matrices that stand one below the other.
struct Parameter {
  std::string name;
  Matrix matrix;
  int stacked;
  Floats numbers, gradient, mean, square, average;

  bool is_matrix() const { return matrix.rows > 1; }
  bool is_embedding() const {
    return name.find("embedding.weight") != std::string::npos ||
           name.find("table.weight") != std::string::npos;
  }
  bool is_of_layer() const { return name.find(".layers.") != std::string::npos; }
};

class Network {
 public:
  const ModelShape shape;
  const Training training;
  std::deque<Parameter> parameters;
  std::vector<std::pair<std::string, Weights>> attentions;  // of the last pass
  Matrix logits;                                            // of the last pass

  Network(const ModelShape& shape_, const Training& training_) : shape(shape_), training(training_) {
    const int m = shape.width;
    if (has_encoder()) {
      add("front_end.embedding.weight", shape.source_size, m);
      add_stack("encoder", shape.encoder, false, encoder_positions_);
    }
    if (!has_encoder() || training.tie != THREE_WAY) add(target_table(), shape.target_size, m);
    add_stack("decoder", shape.decoder, has_encoder(), decoder_positions_);
    if (training.tie == NOT_TIED) add("head.weight", shape.target_size, m);
  }

  bool has_encoder() const { return shape.source_size > 0; }

  // Normal weights of deviation 0.02; or of matrices by Glorot, of embeddings of deviation 1/√m.
  void initialise(uint64_t seed) {
    for (size_t i = 0; i < parameters.size(); i++) {
      Parameter& p = parameters[i];
      const Matrix& w = p.matrix;
      const bool is_norm = p.name.find("norm.weight") != std::string::npos;
      const bool is_table = p.is_embedding() || p.name == "head.weight";
      const double widest = std::sqrt(6.0 / (w.rows / p.stacked + w.columns));
      const double deviation = training.init_normal ? 0.02 : 1 / std::sqrt((double)w.columns);
      for (size_t j = 0; j < w.size(); j++) {
        const Philox random(seed, 0xffffffffu, (uint32_t)i, j);
        double number = is_norm ? 1 : 0;
        if (w.rows > 1) {
          number = training.init_normal || is_table ? deviation * random.normal(0)
                                                    : widest * (2 * random.uniform(0) - 1);
        }
        w.numbers[j] = (float)number;
      }
    }
    start_average();
  }
  void start_average() {
    for (Parameter& p : parameters) p.average.assign(p.numbers.begin(), p.numbers.begin() + p.matrix.size());
  }

  // Loss of targets after inputs, sentence by sentence, and the gradients of their mean if asked for;
  // without targets logits alone.  Sources are empty without an encoder.
  //
  // step: of the training, for dropout; below 0 there is none.
  Loss pass(const Lines& sources, const Lines& inputs, const int32_t* targets, uint64_t seed,
            int64_t step, bool backward) {
    tape_.clear();
    tape_.trains = backward;
    attentions.clear();
    draw_ = {seed, (uint32_t)step, 0}, drops_ = step >= 0;
    Matrix memory;
    if (has_encoder()) {
      memory = stack("encoder", shape.encoder, encoder_positions_, sources, nullptr, nullptr);
    }
    const Matrix x = stack("decoder", shape.decoder, decoder_positions_, inputs,
                           has_encoder() ? &memory : nullptr, &sources);
    logits = linear(tape_, x, of(training.tie ? target_table() : "head.weight"), nullptr);
    if (!targets) return Loss();
    const Loss loss = cross_entropy(tape_, logits, targets, training.smoothing);
    if (backward) {
      for (Parameter& p : parameters) std::fill(p.gradient.begin(), p.gradient.end(), 0.0f);
      if (loss.count) tape_.backward();
    }
    return loss;
  }

 private:
  Tape tape_;
  Positions encoder_positions_, decoder_positions_;
  Draw draw_;
  bool drops_ = false;

  // Written out, as std::to_string would bring printf into the module.
  static std::string name_of_layer(const std::string& side, int i) {
    std::string digits(1, (char)('0' + i % 10));
    for (i /= 10; i; i /= 10) digits.insert(digits.begin(), (char)('0' + i % 10));
    return side + ".layers." + digits + ".";
  }

  const char* target_table() const {
    return has_encoder() && training.tie != THREE_WAY ? "target_front_end.embedding.weight"
                                                      : "front_end.embedding.weight";
  }

  const Matrix& of(const std::string& name) const {
    for (const Parameter& p : parameters) {
      if (p.name == name) return p.matrix;
    }
    abort();
  }
  const Matrix* bias_of(const std::string& name) const {
    for (const Parameter& p : parameters) {
      if (p.name == name + ".bias") return &p.matrix;
    }
    return nullptr;
  }

  void add(const std::string& name, int rows, int columns, int stacked = 1) {
    parameters.push_back({name, {}, stacked, {}, {}, {}, {}, {}});
    Parameter& p = parameters.back();
    const size_t size = (size_t)rows * columns;
    for (Floats* floats : {&p.numbers, &p.gradient, &p.mean, &p.square, &p.average}) {
      floats->assign(size + LANES, 0.0f);
    }
    p.matrix = {rows, columns, p.numbers.data(), p.gradient.data()};
  }
  void add_linear(const std::string& name, int outputs, int inputs, int stacked = 1,
                  bool bias = true) {
    add(name + ".weight", outputs, inputs, stacked);
    if (bias) add(name + ".bias", 1, outputs);
  }
  void add_norm(const std::string& name, const StackShape& s) {
    add(name + ".weight", 1, shape.width);
    if (!s.rms) add(name + ".bias", 1, shape.width);
  }
  void add_stack(const std::string& side, const StackShape& s, bool cross, Positions& positions) {
    const int m = shape.width, h = s.heads * s.head_width;
    if (s.positions == LEARNED) add(side + ".positions.table.weight", s.max_positions, m);
    positions.prepare(s, m, side == "decoder");
    for (int i = 0; i < s.layers; i++) {
      const std::string layer = name_of_layer(side, i);
      add_linear(layer + "self_attention.output", m, h);
      add_linear(layer + "self_attention.query_key_value", 3 * h, m, 3);
      add_norm(layer + "self_attention_residual.norm", s);
      if (cross) {
        add_linear(layer + "cross_attention.output", m, h);
        add_linear(layer + "cross_attention.query", h, m);
        add_linear(layer + "cross_attention.key_value", 2 * h, m, 2);
        add_norm(layer + "cross_attention_residual.norm", s);
      }
      if (is_gated(s)) {
        add_linear(layer + "feed_forward.gate_inner", 2 * s.inner, m, 2, false);
      } else {
        add_linear(layer + "feed_forward.inner", s.inner, m);
      }
      add_linear(layer + "feed_forward.outer", m, s.inner, 1, !is_gated(s));
      add_norm(layer + "feed_forward_residual.norm", s);
    }
    if (s.pre_norm) add_norm(side + ".norm", s);
  }

  Matrix linear_of(const std::string& name, const Matrix& x) {
    return linear(tape_, x, of(name + ".weight"), bias_of(name));
  }
  Matrix norm_of(const std::string& name, const StackShape& s, const Matrix& x) {
    if (training.left_out & NO_NORM) return x;
    return norm(tape_, x, of(name + ".weight"), bias_of(name), s.epsilon);
  }
  Matrix drop_out(const Matrix& x) {
    const Draw draw = draw_;
    draw_.site++;
    return dropout(tape_, x, drops_ ? training.dropout : 0, draw);
  }

  // x + sublayer(norm(x)), or norm(x + sublayer(x)).
  template <class Sublayer>
  Matrix residual(const std::string& name, const StackShape& s, const Matrix& x, Sublayer sublayer) {
    const Matrix in = s.pre_norm ? norm_of(name + "_residual.norm", s, x) : x;
    const Matrix made = drop_out(sublayer(in));
    const Matrix sum = training.left_out & NO_RESIDUAL ? made : ::add(tape_, x, made);
    return s.pre_norm ? sum : norm_of(name + "_residual.norm", s, sum);
  }

  Matrix attend(const std::string& name, const StackShape& s, const Part& query, const Part& key,
                const Part& value, bool causal, const Positions& positions) {
    const float scale = training.left_out & NO_SCALE ? 1 : 1 / std::sqrt((float)s.head_width);
    attentions.emplace_back(name, Weights());
    const Matrix mixed = attention(tape_, query, key, value, s.heads, s.head_width, scale, causal,
                                   positions, attentions.back().second);
    return linear_of(name + ".output", mixed);
  }

  // One side over its lines; the decoder looks at the memory, of the sources, if there is one.
  Matrix stack(const std::string& side, const StackShape& s, const Positions& positions,
               const Lines& lines, const Matrix* memory, const Lines* sources) {
    const bool is_decoder = side == "decoder", causal = is_decoder && !(training.left_out & NO_MASK);
    const int h = s.heads * s.head_width;
    static const Positions none;
    const std::string table = is_decoder || training.tie == THREE_WAY ? target_table()
                                                                       : "front_end.embedding.weight";
    const Matrix* learned =
        s.positions == LEARNED ? &of(side + ".positions.table.weight") : nullptr;
    Matrix x = drop_out(embed(tape_, lines, of(table), shape.scale, positions, learned));
    for (int i = 0; i < s.layers; i++) {
      const std::string layer = name_of_layer(side, i);
      x = residual(layer + "self_attention", s, x, [&](const Matrix& in) {
        const std::string name = layer + "self_attention";
        const Matrix all = linear_of(name + ".query_key_value", in);
        if (s.positions == ROTARY) {
          rotate(tape_, lines, all, 0, 2 * s.heads, s.head_width, positions);
        }
        return attend(name, s, {all, 0, &lines}, {all, h, &lines}, {all, 2 * h, &lines}, causal,
                      positions);
      });
      if (memory) {
        x = residual(layer + "cross_attention", s, x, [&](const Matrix& in) {
          const std::string name = layer + "cross_attention";
          const Matrix query = linear_of(name + ".query", in);
          const Matrix both = linear_of(name + ".key_value", *memory);
          return attend(name, s, {query, 0, &lines}, {both, 0, sources}, {both, h, sources}, false,
                        none);
        });
      }
      x = residual(layer + "feed_forward", s, x, [&](const Matrix& in) {
        const std::string name = layer + "feed_forward";
        const Activation kind = (Activation)s.activation;
        const Matrix wide = is_gated(s)
                                ? gated(tape_, linear_of(name + ".gate_inner", in), kind)
                                : activation(tape_, linear_of(name + ".inner", in), kind);
        return linear_of(name + ".outer", wide);
      });
    }
    return s.pre_norm ? norm_of(side + ".norm", s, x) : x;
  }
};
