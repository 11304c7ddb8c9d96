// C interface of the engine.  Every size and id that comes in is checked here; nothing throws out.
#include <memory>

#include "search.h"

namespace {

bool read_sentences(const Model& model, const int32_t* ids, const int32_t* lengths, int32_t n,
                    Sentences& to) {
  const StackShape& shape = model.encoder.shape;
  to.starts.push_back(0);
  for (int i = 0; i < n; i++) {
    const bool too_long = shape.positions == LEARNED && lengths[i] > shape.max_positions;
    if (lengths[i] < 1 || too_long) return false;
    to.starts.push_back(to.starts.back() + lengths[i]);
  }
  for (int i = 0; i < to.starts.back(); i++) {
    if (ids[i] < 0 || ids[i] >= model.shape.source_size) return false;
    to.ids.push_back(ids[i]);
  }
  return n >= 1;
}

bool can_step(const State& state, const int32_t* tokens) {
  const StackShape& shape = state.model.decoder.shape;
  for (int r = 0; r < state.rows(); r++) {
    const bool too_long = shape.positions == LEARNED && state.length(r) >= shape.max_positions;
    if (tokens[r] < -1 || tokens[r] >= state.model.shape.target_size || too_long) return false;
  }
  return true;
}

bool is_valid(const SearchOptions& o, const Model& model, const int32_t* limits, int32_t n) {
  const int size = model.shape.target_size;
  auto is_id = [&](int id) { return id >= 0 && id < size; };
  const StackShape& decoder = model.decoder.shape;
  for (int i = 0; i < n; i++) {
    const bool too_long = decoder.positions == LEARNED && limits[i] >= decoder.max_positions;
    if (limits[i] < 0 || too_long) return false;
  }
  return o.beam >= 1 && o.beam <= 1000000 && o.n_best >= 1 && is_id(o.bos) && is_id(o.eos) &&
         is_id(o.pad);
}

}  // namespace

#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT int32_t engine_lanes() { return W; }

// Null if the sizes make no sense.
EXPORT Model* engine_new(const ModelShape* shape) {
  try {
    return is_valid(*shape) ? new Model(*shape) : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
EXPORT void engine_delete(Model* model) { delete model; }

// 0, or why the weight is refused (LoadError).
EXPORT int32_t engine_load(Model* model, const char* name, const float* weight, const float* bias,
                    int64_t rows, int64_t columns) {
  try {
    return model->load(name, weight, bias, rows, columns);
  } catch (const std::bad_alloc&) {
    return NO_MEMORY;
  }
}
EXPORT int32_t engine_complete(const Model* model) { return model->complete(); }

// Encode n sentences, their ids one after another.  Null for ids or lengths out of range.
EXPORT State* state_new(const Model* model, const int32_t* ids, const int32_t* lengths, int32_t n) {
  try {
    Sentences sources;
    if (!model->complete() || !read_sentences(*model, ids, lengths, n, sources)) return nullptr;
    return new State(*model, sources);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
EXPORT void state_delete(State* state) { delete state; }

// Advance by a token for each row.  outputs (rows, width), logits (rows, target_size) and attention
// (rows, stride) of the last layer's cross-attention are written unless null.
// 1 for success, 0 for ids out of range, -1 without memory.
EXPORT int32_t state_step(State* state, const int32_t* tokens, float* outputs, float* logits,
                   float* attention, int32_t stride) {
  try {
    if (!can_step(*state, tokens)) return 0;
    for (int r = 0; r < state->rows() && attention; r++) {
      if (state->memory_length(r) > stride) return 0;
    }
    const float* found = state->step(tokens, attention, stride);
    if (outputs) {
      memcpy(outputs, found, 4 * (size_t)state->rows() * state->model.shape.width);
    }
    if (logits) state->logits(found, logits);
    return 1;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

// 1 for success.
EXPORT int32_t state_select(State* state, const int32_t* rows, int32_t n) {
  for (int i = 0; i < n; i++) {
    if (rows[i] < 0 || rows[i] >= state->rows()) return 0;
  }
  try {
    state->select(rows, n);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  return n >= 0;
}
EXPORT void state_rewind(State* state, int32_t count) { state->rewind(count); }

// Search for n sentences, their ids one after another.  limits, min_lengths (n): tokens before an
// end.  cancelled: called after a step with the number of each live sentence, or null.  Null for
// ids or options out of range.
EXPORT Results* search_run(const Model* model, const int32_t* ids, const int32_t* lengths,
                           const int32_t* limits, const int32_t* min_lengths, int32_t n,
                           const SearchOptions* options, Cancelled cancelled) {
  try {
    Sentences sources;
    if (!model->complete() || !read_sentences(*model, ids, lengths, n, sources)) return nullptr;
    if (!is_valid(*options, *model, limits, n)) return nullptr;
    auto results = std::make_unique<Results>();
    search_all(*model, sources, limits, min_lengths, *options, cancelled, *results);
    return results.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}
EXPORT void search_delete(Results* results) { delete results; }

// Tokens after which scores were NaN, or -1.
EXPORT int32_t search_not_a_number(const Results* results) { return results->not_a_number; }
EXPORT const int32_t* search_counts(const Results* results) { return results->counts.data(); }
EXPORT const int32_t* search_lengths(const Results* results) { return results->lengths.data(); }
EXPORT const int32_t* search_tokens(const Results* results) { return results->tokens.data(); }
EXPORT const float* search_log_probs(const Results* results) { return results->log_probs.data(); }
EXPORT const double* search_scores(const Results* results) { return results->scores.data(); }
EXPORT const uint8_t* search_finished(const Results* results) { return results->finished.data(); }
}
