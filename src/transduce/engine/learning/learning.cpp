// The C interface of the trainer.  Pointers to numbers stay valid as long as the learner; those of a
// pass (logits, attention) until the next one.
#include "optimizer.h"

#if defined(__wasm__)
#define EXPORT extern "C"
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

struct Learner {
  Network network;
  Optimizer optimizer;
  Lines sources, inputs;
  std::vector<int32_t> targets;
  Loss loss;

  Learner(const ModelShape& shape, const Training& training) : network(shape, training) {}
};

// Values that the engine computes, and the trainer has no way back for.
static bool has_way_back(const StackShape& s) {
  const bool has_positions = s.positions == NO_POSITIONS || s.positions == SINUSOIDAL ||
                             s.positions == LEARNED || s.positions == ROTARY || s.positions == ALIBI;
  return has_positions && s.activation != GELU && !s.recurrent && !s.embedding_norm;
}

// Null for a shape that has no way back here.
EXPORT Learner* learner_new(const ModelShape* shape, const Training* t) {
  const bool is_fit = is_valid(*shape) && shape->target_size > 0 && has_way_back(shape->decoder) &&
                      !shape->bins && !shape->segments &&
                      (!shape->source_size || has_way_back(shape->encoder)) && t->tie >= NOT_TIED &&
                      t->tie <= THREE_WAY && t->dropout >= 0 && t->dropout < 1 &&
                      t->smoothing >= 0 && t->smoothing < 1;
  const bool is_joint = !shape->source_size || shape->source_size == shape->target_size;
  if (!is_fit || (t->tie == THREE_WAY && !is_joint)) return nullptr;
  return new Learner(*shape, *t);
}
EXPORT void learner_delete(Learner* learner) { delete learner; }
EXPORT void learner_initialise(Learner* learner, uint32_t seed) {
  learner->network.initialise(seed);
}
EXPORT void learner_start_average(Learner* learner) { learner->network.start_average(); }

EXPORT int32_t learner_count(Learner* learner) { return (int32_t)learner->network.parameters.size(); }
EXPORT const char* learner_name(Learner* learner, int32_t i) {
  return learner->network.parameters[i].name.c_str();
}
EXPORT int32_t learner_rows(Learner* learner, int32_t i) {
  return learner->network.parameters[i].matrix.rows;
}
EXPORT int32_t learner_columns(Learner* learner, int32_t i) {
  return learner->network.parameters[i].matrix.columns;
}
// kind: 0 weights, 1 gradients, 2 and 3 moments of the optimizer, 4 the moving average.
EXPORT float* learner_numbers(Learner* learner, int32_t i, int32_t kind) {
  Parameter& p = learner->network.parameters[i];
  Floats* of[] = {&p.numbers, &p.gradient, &p.mean, &p.square, &p.average};
  return of[kind]->data();
}

// False for an id or a length that the model lacks.
static bool read(const int32_t* ids, const int32_t* lengths, int n, int size, const StackShape& s,
                 Lines& lines) {
  lines.starts.assign(1, 0);
  for (int i = 0; i < n; i++) {
    if (lengths[i] < 1 || lengths[i] > 1 << 20) return false;
    if (s.positions == LEARNED && lengths[i] > s.max_positions) return false;
    lines.starts.push_back(lines.starts.back() + lengths[i]);
  }
  lines.ids.assign(ids, ids + lines.starts.back());
  return std::all_of(lines.ids.begin(), lines.ids.end(),
                     [=](int id) { return id >= 0 && id < size; });
}

// Sentences n: ids one after another, and how many each has.  targets: one for each input, below 0 where
// there is none; null for logits alone.  step: below 0 without dropout.  Returns 0 for ids out of range.
EXPORT int32_t learner_pass(Learner* learner, const int32_t* sources, const int32_t* source_lengths,
                            const int32_t* inputs, const int32_t* input_lengths,
                            const int32_t* targets, int32_t n, uint32_t seed, int32_t step,
                            int32_t backward) {
  Network& network = learner->network;
  const ModelShape& shape = network.shape;
  if (n < 1 || (network.has_encoder() && !read(sources, source_lengths, n, shape.source_size,
                                               shape.encoder, learner->sources))) {
    return 0;
  }
  if (!read(inputs, input_lengths, n, shape.target_size, shape.decoder, learner->inputs)) return 0;
  const size_t count = learner->inputs.ids.size();
  learner->targets.assign(targets ? targets : inputs, (targets ? targets : inputs) + count);
  for (int32_t target : learner->targets) {
    if (target >= shape.target_size) return 0;
  }
  learner->loss = network.pass(learner->sources, learner->inputs,
                               targets ? learner->targets.data() : nullptr, seed, step,
                               backward && targets);
  return 1;
}
// Of the last pass, sums: kind 0 loss, 1 negative log-likelihood in nats, 2 targets.
EXPORT double learner_loss(Learner* learner, int32_t kind) {
  const Loss& loss = learner->loss;
  return kind == 0 ? loss.total : kind == 1 ? loss.nll : loss.count;
}
// (inputs, target_size)
EXPORT const float* learner_logits(Learner* learner) { return learner->network.logits.numbers; }

EXPORT int32_t learner_attentions(Learner* learner) {
  return (int32_t)learner->network.attentions.size();
}
EXPORT const char* learner_attention_name(Learner* learner, int32_t i) {
  return learner->network.attentions[i].first.c_str();
}
// Weights (queries, keys) of a head for a sentence of the last pass.
EXPORT const float* learner_attention(Learner* learner, int32_t i, int32_t sentence, int32_t head) {
  const Weights& weights = learner->network.attentions[i].second;
  const size_t size = (size_t)weights.queries->length(sentence) * weights.keys->length(sentence);
  return weights.numbers + weights.starts[sentence] + head * size;
}

EXPORT double learner_rate(double peak, double warmup, double step, double progress) {
  return cosine_rate(peak, warmup, step, progress);
}
// The norm of the gradients; where it is not finite nothing is changed.
EXPORT float learner_step(Learner* learner, const Step* step) {
  return learner->optimizer.step(learner->network, *step);
}
