// C interface of the engine.  Every size and id that comes in is checked here; nothing throws out.
#include <functional>
#include <memory>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "encoder.h"
#include "frames.h"
#include "search.h"

namespace {

enum StepStatus { OUT_OF_RANGE, STEPPED, STEP_NO_MEMORY, NO_POSITIONS_LEFT };

// Positions of a stack; more than any sequence has unless they are learned.
int64_t positions_of(const Stack& stack) {
  return stack.shape.positions == LEARNED ? stack.shape.max_positions : INT64_MAX;
}

// n sentences with ids below `size`, of `least` or more tokens.
bool read_sentences(const int32_t* ids, const int32_t* lengths, int32_t n, int size, int least,
                    Sentences& to) {
  for (int i = 0; i < n; i++) {
    if (lengths[i] < least) return false;
    for (int j = 0; j < lengths[i]; j++, ids++) {
      if (*ids < 0 || *ids >= size) return false;
      to.add(*ids);
    }
    to.end();
  }
  return n >= 1;
}

bool read_sources(const Model& model, const int32_t* ids, const int32_t* lengths, int32_t n,
                  Sentences& to) {
  for (int i = 0; i < n; i++) {
    if (lengths[i] > positions_of(model.encoder)) return false;
  }
  return read_sentences(ids, lengths, n, model.shape.source_size, 1, to);
}

// Lengths of n recordings in a memory.
bool read_lengths(const int32_t* lengths, int32_t n, Sentences& to) {
  for (int i = 0; i < n; i++) {
    if (lengths[i] < 1 || lengths[i] > INT32_MAX - to.starts.back()) return false;
    to.starts.push_back(to.starts.back() + lengths[i]);
  }
  return n >= 1;
}

// The shortlists of n sentences: ascending, with the end of sentence.
bool read_shortlists(const SearchOptions& o, int32_t n, int size, Sentences& to) {
  if (!o.shortlists) return true;
  if (!read_sentences(o.shortlists, o.shortlist_lengths, n, size, 1, to)) return false;
  for (int i = 0; i < n; i++) {
    const auto from = to.ids.begin() + to.starts[i], end = to.ids.begin() + to.starts[i + 1];
    if (std::adjacent_find(from, end, std::greater_equal<int>()) != end) return false;
    if (!std::binary_search(from, end, o.eos)) return false;
  }
  return true;
}

// Null uniforms are a search without chance.
bool are_valid(const Questions& questions, const Sampling& o, int samples) {
  if (!o.uniforms) return true;
  if (!(o.temperature > 0 && std::isfinite(o.temperature) && o.top_k >= 0 && o.steps >= 0 &&
        o.top_p > 0 && o.top_p <= 1 && o.min_p >= 0 && o.min_p <= 1)) {
    return false;
  }
  const int n = questions.count();
  const bool enough = std::all_of(questions.limits, questions.limits + n,
                                  [&](int limit) { return limit <= o.steps; });
  return enough && std::all_of(o.uniforms, o.uniforms + (size_t)n * samples * o.steps,
                               [](double x) { return x >= 0 && x < 1; });
}

bool are_valid(const Questions& questions, const SearchOptions& o, const Model& model) {
  const int64_t positions = positions_of(model.decoder);
  for (int i = 0; i < questions.count(); i++) {
    const int64_t most = o.window ? o.window
                                  : (int64_t)questions.prompts.length(i) + questions.limits[i];
    if (questions.limits[i] < 0 || questions.limits[i] > 1000000000 || most > positions ||
        questions.prompts.length(i) <= o.spoken.no_speech_at) {
      return false;
    }
  }
  auto is_id = [&](int id) { return id >= 0 && id < model.shape.target_size; };
  const bool ids = is_id(o.eos) && o.n_forbidden >= 0 &&
                   std::all_of(o.forbidden, o.forbidden + o.n_forbidden, is_id);
  const Spoken& rules = o.spoken;
  const int size = model.shape.target_size;
  const bool spoken = rules.first_time >= 0 && rules.first_time <= rules.end_time &&
                      rules.end_time <= size && rules.latest_start >= 0 &&
                      rules.latest_start <= size && is_id(rules.no_speech) &&
                      rules.no_speech_at >= 0 && rules.n_forbidden_first >= 0 &&
                      std::all_of(rules.forbidden_first,
                                  rules.forbidden_first + rules.n_forbidden_first, is_id) &&
                      rules.period >= 0 && rules.period <= 1000 && rules.loops >= 1 - !rules.period &&
                      rules.loops <= 1000 && rules.looped >= 0 && rules.looped <= 1000000 &&
                      !(rules.memory && o.shortlists);
  const bool window = o.window == 0 || (o.kept >= 1 && o.kept <= o.window);
  const bool kinds = o.length_penalty >= NO_PENALTY && o.length_penalty <= GNMT &&
                     o.stop >= FIRST && o.stop <= PRESENT && o.alpha >= 0 && o.alpha <= 1000;
  const bool counts = o.beam >= 1 && o.beam <= 1000000 && o.n_best >= 1 &&
                      o.extra_length >= 0 && o.extra_length <= 1000000;
  return ids && spoken && window && kinds && counts && are_valid(questions, o.sampling, o.beam);
}

// The result of some work, or `failure` where it throws, as without memory.
template <class T, class Work>
T guarded(T failure, Work work) {
  try {
    return work();
  } catch (const std::exception&) {
    return failure;
  }
}

}  // namespace

#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT int32_t engine_lanes() { return W; }

// Features that processor and system have, each a bit, in the order of `FEATURES` in build.py; 0 for
// other processors than x86-64.
EXPORT int32_t engine_features() {
  int32_t features = 0;
#if defined(__x86_64__)
  unsigned a, b, c, d, kept, one[2] = {}, seven[4] = {};
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
  asm volatile("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));  // registers that the system keeps
  __get_cpuid_count(7, 0, &seven[0], &seven[1], &seven[2], &d);
  __get_cpuid_count(7, 1, &one[0], &one[1], &a, &d);
  const unsigned bits[] = {seven[1] >> 5,  c >> 12,        one[0] >> 4,
                           seven[1] >> 16, seven[1] >> 30, seven[1] >> 17,
                           seven[1] >> 31, seven[2] >> 11, one[0] >> 5};
  for (int i = 0; i < 9; i++) {
    const unsigned needed = i < 3 ? 0x06 : 0xe6;
    if ((kept & needed) == needed) features |= (bits[i] & 1) << i;
  }
#endif
  return features;
}

// 1 if products of many rows are those of each row by itself, and close to those in float32.
EXPORT int32_t engine_works() {
  constexpr int ROWS_OF_X = 37, INPUTS = 75, OUTPUTS = 50;
  Floats x(ROWS_OF_X * INPUTS), weight(OUTPUTS * INPUTS);
  for (size_t i = 0; i < x.size(); i++) x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
  for (size_t i = 0; i < weight.size(); i++) weight[i] = (float)(i * 53 % 103) / 103 - 0.5f;
  Floats y[3];
  for (int precision = FLOAT32; precision <= INT8; precision++) {
    Linear linear;
    linear.pack((Precision)precision, {weight.data(), nullptr, INPUTS}, nullptr, OUTPUTS);
    ProductScratch scratch;
    y[precision].resize(ROWS_OF_X * OUTPUTS);
    apply(linear, x.data(), ROWS_OF_X, y[precision].data(), OUTPUTS, scratch);
    for (int i = 0; i < ROWS_OF_X; i++) {
      float alone[OUTPUTS], *row = &y[precision][i * OUTPUTS];
      apply(linear, &x[i * INPUTS], 1, alone, OUTPUTS, scratch);
      if (memcmp(alone, row, sizeof(alone))) return 0;
      for (int j = 0; j < OUTPUTS; j++) {
        if (!(std::fabs(row[j] - y[0][i * OUTPUTS + j]) < 0.1f)) return 0;
      }
    }
  }
  return 1;
}

// Null if the sizes make no sense.
EXPORT Model* engine_new(const ModelShape* shape) {
  return guarded<Model*>(nullptr, [&] { return is_valid(*shape) ? new Model(*shape) : nullptr; });
}
EXPORT void engine_delete(Model* model) { delete model; }

// 0, or why the weight is refused (LoadError).
EXPORT int32_t engine_load(Model* model, const char* name, const void* weight, const float* bias,
                           int64_t rows, int64_t columns, const float* divisors) {
  const Rows numbers{weight, divisors, (size_t)columns};
  return guarded<int32_t>(NO_MEMORY, [&] { return model->load(name, numbers, bias, rows); });
}
EXPORT int32_t engine_complete(const Model* model) { return model->complete(); }

// Outputs of an encoder alone for n texts, their ids and segments one after another; see
// `EncoderInputs` and `encode_all`.  1 for success, 0 for numbers out of range or without memory.
EXPORT int32_t encoder_run(const Model* model, const int32_t* ids, const int32_t* segments,
                           const int32_t* lengths, int32_t n, const int32_t* positions,
                           int32_t count, float* vectors, float* scores, int32_t threads) {
  return guarded<int32_t>(0, [&]() -> int32_t {
    const ModelShape& shape = model->shape;
    EncoderInputs texts{{}, segments, positions, count};
    const bool pooled = vectors || (scores && !positions);
    if (!model->complete() || model->has_decoder() || (pooled && !shape.pooling) ||
        (scores && !shape.scores) || !read_sources(*model, ids, lengths, n, texts.tokens)) {
      return 0;
    }
    const int32_t total = (int32_t)texts.tokens.ids.size();
    for (int i = 0; segments && i < total; i++) {
      if (segments[i] < 0 || segments[i] >= shape.segments) return 0;
    }
    for (int i = 0; positions && i < count; i++) {
      if (positions[i] < (i ? positions[i - 1] + 1 : 0) || positions[i] >= total) return 0;
    }
    encode_all(*model, texts, threads, vectors, scores);
    return 1;
  });
}

// A matrix (outputs, inputs) by itself, for models that PyTorch computes.  Null without memory, or
// if it makes no sense.
EXPORT Linear* linear_new(int32_t precision, const float* weight, const float* bias,
                          int32_t outputs, int32_t inputs) {
  const bool sizes = outputs >= 1 && inputs >= 1 && (int64_t)outputs * inputs < (int64_t)1 << 40;
  if (!sizes || precision < FLOAT32 || precision > INT8) return nullptr;
  const size_t n = (size_t)outputs * inputs;
  if (!std::all_of(weight, weight + n, [](float x) { return std::isfinite(x); })) return nullptr;
  return guarded<Linear*>(nullptr, [&]() -> Linear* {
    auto linear = std::make_unique<Linear>();
    linear->pack((Precision)precision, {weight, nullptr, (size_t)inputs}, bias, outputs);
    return linear.release();
  });
}
EXPORT void linear_delete(Linear* linear) { delete linear; }

// y (rows, outputs) = x (rows, inputs) W^T + b, rows shared among threads where there are many.
// 1 for success, 0 without memory.
EXPORT int32_t linear_apply(const Linear* linear, const float* x, int64_t rows, float* y,
                            int32_t threads) {
  const int64_t shares = std::max<int64_t>(1, std::min<int64_t>(threads, rows / 64));
  return guarded<int32_t>(0, [&]() -> int32_t {
    on_threads((int)shares, [&](int share) {
      const int64_t from = rows * share / shares, to = rows * (share + 1) / shares;
      ProductScratch scratch;
      apply(*linear, x + from * linear->inputs, (int)(to - from), y + from * linear->outputs,
            linear->outputs, scratch);
    });
    return 1;
  });
}

// Encode n sentences, their ids one after another; without an encoder n is 0.  Null for ids or
// lengths out of range.
EXPORT State* state_new(const Model* model, const int32_t* ids, const int32_t* lengths, int32_t n) {
  return guarded<State*>(nullptr, [&]() -> State* {
    if (!model->complete() || !model->has_decoder()) return nullptr;
    if (!model->has_encoder()) return n ? nullptr : new State(*model);
    Sentences sources;
    if (!read_sources(*model, ids, lengths, n, sources)) return nullptr;
    return new State(*model, sources);
  });
}

// Memory (positions, width) of n recordings or images, their frames one after another; see `encode_frames`.
// 1 for success, 0 for numbers out of range or without memory.
EXPORT int32_t frames_run(const Model* model, const float* frames, const int32_t* lengths,
                          int32_t n, float* memory, int32_t threads) {
  return guarded<int32_t>(0, [&]() -> int32_t {
    if (!model->complete() || !model->shape.bins || n < 1) return 0;
    for (int i = 0; i < n; i++) {
      int32_t rows = lengths[i];
      if (rows < 1) return 0;
      for (const Convolution& c : model->convolutions) rows = c.positions(rows);
      if (rows > positions_of(model->encoder)) return 0;
    }
    encode_frames(*model, frames, lengths, n, memory, threads);
    return 1;
  });
}

// As `state_new`, over the memory (positions, width) of n recordings, one after another.
EXPORT State* state_over(const Model* model, const float* memory, const int32_t* lengths,
                         int32_t n) {
  return guarded<State*>(nullptr, [&]() -> State* {
    if (!model->complete() || !model->shape.bins || model->is_bare()) return nullptr;
    Sentences recordings;
    if (!read_lengths(lengths, n, recordings)) return nullptr;
    return new State(*model, recordings, memory);
  });
}
EXPORT void state_delete(State* state) { delete state; }

// Advance n hypotheses, each by some tokens, the ids of all one after another.  Written unless null:
// outputs (tokens, width), logits (tokens, target_size), last_logits (n, target_size), for which
// each hypothesis needs a token, and attention (tokens, stride) of the last layer to the source.
// See StepStatus.
EXPORT int32_t state_step(State* state, const int32_t* ids, const int32_t* counts, int32_t n,
                          float* outputs, float* logits, float* last_logits, float* attention,
                          int32_t stride) {
  return guarded<int32_t>(STEP_NO_MEMORY, [&]() -> int32_t {
    const Model& model = state->model;
    const bool first = !model.has_encoder() && !state->rows();
    Sentences given;
    if (n != state->rows() && !first) return OUT_OF_RANGE;
    if (!read_sentences(ids, counts, n, model.shape.target_size, last_logits ? 1 : 0, given)) {
      return OUT_OF_RANGE;
    }
    for (int r = 0; r < n; r++) {
      const int64_t length = first ? 0 : state->length(r);
      if (length + counts[r] > positions_of(model.decoder)) return NO_POSITIONS_LEFT;
      if (attention && (!model.has_encoder() || state->memory_length(r) > stride)) {
        return OUT_OF_RANGE;
      }
    }
    const float* found = state->step(given, attention, stride);
    const size_t tokens = given.ids.size();
    if (outputs) memcpy(outputs, found, 4 * tokens * model.shape.width);
    if (logits) state->logits(model.head, found, (int)tokens, logits);
    if (last_logits) state->logits(model.head, state->last_outputs(given, found), n, last_logits);
    return STEPPED;
  });
}

// 1 for success.
EXPORT int32_t state_select(State* state, const int32_t* rows, int32_t n) {
  if (n < 0) return 0;
  for (int i = 0; i < n; i++) {
    if (rows[i] < 0 || rows[i] >= state->rows()) return 0;
  }
  return guarded<int32_t>(0, [&]() -> int32_t {
    state->select(rows, n);
    return 1;
  });
}

// Search for n sentences: their sources (without an encoder not read; of recordings the lengths of
// their memories, which are in the options) and prompts, the ids of each
// one after another; limits, min_lengths (n): tokens before an end.  cancelled: called after a step
// with the number of each live sentence, or null.  Null for ids or options out of range.
EXPORT Results* search_run(const Model* model, const int32_t* sources, const int32_t* source_lengths,
                           const int32_t* prompts, const int32_t* prompt_lengths,
                           const int32_t* limits, const int32_t* min_lengths, int32_t n,
                           const SearchOptions* options, Cancelled cancelled) {
  return guarded<Results*>(nullptr, [&]() -> Results* {
    Questions questions{{}, {}, {}, limits, min_lengths, options->spoken.memory};
    const int size = model->shape.target_size;
    if (!model->complete() || !model->has_decoder()) return nullptr;
    if (!questions.memory != !model->shape.bins) return nullptr;
    if (!read_sentences(prompts, prompt_lengths, n, size, 1, questions.prompts)) return nullptr;
    if (questions.memory) {
      if (!read_lengths(source_lengths, n, questions.sources)) return nullptr;
    } else if (model->has_encoder() &&
               !read_sources(*model, sources, source_lengths, n, questions.sources)) {
      return nullptr;
    }
    if (!are_valid(questions, *options, *model)) return nullptr;
    if (!read_shortlists(*options, n, size, questions.shortlists)) return nullptr;
    auto results = std::make_unique<Results>();
    search_all(*model, questions, *options, cancelled, *results);
    return results.release();
  });
}
EXPORT void search_delete(Results* results) { delete results; }

// Tokens after which scores were NaN, or -1.
EXPORT int32_t search_not_a_number(const Results* results) { return results->not_a_number; }
EXPORT const int32_t* search_counts(const Results* results) { return results->counts.data(); }
EXPORT const int32_t* search_lengths(const Results* results) { return results->lengths.data(); }
EXPORT const int32_t* search_tokens(const Results* results) { return results->tokens.data(); }
EXPORT const float* search_log_probs(const Results* results) { return results->log_probs.data(); }
EXPORT const double* search_scores(const Results* results) { return results->scores.data(); }
EXPORT const float* search_no_speech(const Results* results) { return results->no_speech.data(); }
EXPORT const uint8_t* search_finished(const Results* results) { return results->finished.data(); }
}
