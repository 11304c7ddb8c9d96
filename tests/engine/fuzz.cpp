// A fuzzer at the C interface of the engine: sizes, weights, ids and options, right and wrong.
//
// What is out of range must be refused, and nothing read or written out of bounds: to be compiled
// with sanitizers.  Each search is checked: its outputs obey its options, and are the same to the
// bit for a sentence alone.  Drawn tokens are compared with a distribution in double precision.
//
//     fuzz SECONDS [SEED]        of CPU time; 0: that seed alone
//
// With abort_on_error=1 in ASAN_OPTIONS and UBSAN_OPTIONS the seed that fails is printed.
#include <csignal>
#include <ctime>

#include "random_model.h"

namespace {

void check(bool right, const char* what) {
  if (right) return;
  fprintf(stderr, "wrong: %s\n", what);
  abort();
}

bool rarely(Random& random) { return random.below(12) == 0; }

// A number from low to high, or rarely any.
int32_t number(Random& random, int low, int high) {
  if (!rarely(random)) return random.from_to(low, high);
  const int32_t odd[] = {-1, 0, INT32_MIN, INT32_MAX, 1 << 16, (int32_t)random.bits()};
  return odd[random.below(6)];
}

float any_real(Random& random) {
  const float odd[] = {NAN, INFINITY, -INFINITY, -1, 0, 3e38f, 1e-40f};
  return odd[random.below(7)];
}

StackShape stack_shape(Random& random) {
  StackShape s;
  s.layers = number(random, 1, 2), s.heads = number(random, 1, 3);
  s.head_width = number(random, 1, 20), s.inner = number(random, 1, 40);
  s.activation = number(random, RELU, GEGLU), s.pre_norm = random.below(2);
  s.positions = number(random, NO_POSITIONS, RELATIVE);
  s.max_positions = number(random, 1, 12), s.embedding_norm = random.below(2);
  s.epsilon = rarely(random) ? any_real(random) : 1e-5f;
  s.recurrent = random.below(3) == 0, s.rms = random.below(3) == 0;
  s.buckets = number(random, 4, 9), s.distance = number(random, 5, 15);
  return s;
}

ModelShape model_shape(Random& random) {
  ModelShape s{};
  s.encoder = stack_shape(random), s.decoder = stack_shape(random);
  if (!rarely(random)) s.encoder.recurrent = 0;
  s.width = number(random, 1, 40), s.precision = number(random, FLOAT32, INT8);
  s.source_size = random.below(3) ? number(random, 1, 50) : 0, s.target_size = number(random, 4, 90);
  s.scale = rarely(random) ? any_real(random) : 2;
  if (random.below(4) == 0) {  // an encoder alone
    s.source_size = number(random, 1, 50), s.target_size = 0;
    s.segments = number(random, 0, 3), s.pooling = number(random, NOT_POOLED, MAXIMUM);
    s.dense = number(random, NO_DENSE, DENSE_GELU_NORM), s.scores = number(random, 0, 9);
  } else if (random.below(4) == 0) {  // an encoder of frames
    s.source_size = rarely(random) ? 1 : 0, s.bins = number(random, 1, 9);
    s.front_end = number(random, GATED_FRONT_END, WHISPER_FRONT_END);
    s.convolutions = number(random, 1, 3), s.taps = number(random, 1, 5);
    s.channels = number(random, 1, 12);
    if (random.below(3) == 0) {  // of vectors, without a front end
      s.front_end = NO_FRONT_END, s.target_size = rarely(random) ? 4 : 0;
      s.bins = rarely(random) ? number(random, 1, 40) : s.width;
    }
  }
  return s;
}

// Sizes that fill no memory.
bool is_small(const Model& model) {
  size_t total = 0;
  for (const Slot& slot : model.slots_) {
    if (slot.rows > 100000 || slot.columns > 100000) return false;
    total += slot.rows * slot.columns;
  }
  return total < 1000000;
}

// Load weights, with mistakes rarely; true if the engine has all of them.
bool load(Loaded& loaded, Random& random) {
  const bool mistakes = random.below(4) == 0;
  for (size_t i = 0; i < loaded.model->slots_.size(); i++) {
    const Slot slot = loaded.model->slots_[i];
    int64_t rows = (int64_t)slot.rows, columns = (int64_t)slot.columns;
    if (mistakes && rarely(random)) rows = random.below(60), columns = random.below(60);
    const bool right = rows == (int64_t)slot.rows && columns == (int64_t)slot.columns;
    const bool rms = slot.norm && slot.norm->rms, wrong = mistakes && rarely(random);
    const bool bias = rms == wrong;
    const int status = loaded.load(i, rows, columns, random, 1.5f, bias);
    check(right ? status == LOADED || (slot.norm && wrong) : status == WRONG_SHAPE, "load");
  }
  check(engine_load(loaded.model, "no.such", nullptr, nullptr, 1, 1, nullptr) == UNKNOWN_NAME, "a name");
  return engine_complete(loaded.model);
}

Texts texts(int n, int size, Random& random) {
  Texts made;
  for (int i = 0; i < n; i++) {
    const int length = rarely(random) ? random.from_to(-1, 30) : random.from_to(1, 12);
    made.lengths.push_back(length);
    for (int j = 0; j < length; j++) {
      made.ids.push_back(number(random, 0, size - 1));
    }
  }
  return made;
}

void steps(const Model& model, const Texts& sources, Random& random) {
  const int n = model.has_encoder() ? sources.n() : 0;
  State* state = state_new(&model, sources.ids.data(), sources.lengths.data(), n);
  if (!state) return;
  const int size = model.shape.target_size;
  for (int step = random.below(9); step > 0; step--) {
    const int rows = state->rows() ? state->rows() : random.from_to(1, 5);
    const Texts given = texts(rows, size, random);
    const size_t tokens = given.ids.size();
    const int stride = random.below(14);
    Floats outputs(tokens * model.shape.width), logits(tokens * size), attention(tokens * stride);
    Floats last((size_t)rows * size);
    auto perhaps = [&](Floats& to) { return random.below(2) ? to.data() : nullptr; };
    const int count = rarely(random) ? random.from_to(-1, rows) : rows;
    state_step(state, given.ids.data(), given.lengths.data(), count, perhaps(outputs),
               perhaps(logits), perhaps(last), perhaps(attention), stride);
    std::vector<int32_t> parents(random.from_to(0, 9));
    for (int32_t& parent : parents) parent = number(random, 0, rows - 1);
    if (random.below(3) == 0) {
      const int n = (int)parents.size();
      state_select(state, parents.data(), std::min(number(random, 0, n), n));
    }
  }
  state_delete(state);
}

// Outputs over a memory begin with a time that is early enough, if times are written.
void writes(const Model& model, const Floats& memory, const std::vector<int32_t>& positions,
            Random& random) {
  const int size = model.shape.target_size, n = (int)positions.size();
  const int32_t first[] = {number(random, 0, size - 1), number(random, 0, size - 1)};
  SearchOptions o{number(random, 1, 4), number(random, 1, 4), MEAN, FIRST, 1, 0, 0, 0, 0, 1};
  Spoken& rules = o.spoken;
  rules.memory = rarely(random) ? nullptr : memory.data();
  rules.n_forbidden_first = number(random, 0, 2), rules.forbidden_first = first;
  rules.first_time = number(random, 0, size), rules.end_time = number(random, 0, size);
  rules.latest_start = number(random, 0, 3), rules.is_renormalised = random.below(2);
  rules.no_speech = number(random, 0, size - 1), rules.no_speech_at = number(random, 0, 1);
  rules.period = number(random, 0, 3), rules.loops = number(random, 1, 3);
  rules.looped = number(random, 0, 6);
  if (o.beam > 6 && o.beam <= 1000000) o.beam = 6;
  const Texts prompts = texts(n, size, random);
  const std::vector<int32_t> limits(n, random.from_to(0, 9)), least(n, 0);
  Results* results = search_run(&model, nullptr, positions.data(), prompts.ids.data(),
                                prompts.lengths.data(), limits.data(), least.data(), n, &o, nullptr);
  if (!results) return;
  check((int)results->no_speech.size() == (rules.no_speech ? n : 0), "a probability for each recording");
  const int32_t* token = results->tokens.data();
  const bool timed = rules.first_time < rules.end_time && results->not_a_number < 0;
  for (int length : results->lengths) {
    const int number = length ? *token - rules.first_time : 0;
    check(!timed || (number >= 0 && number <= rules.latest_start), "the first time");
    token += length;
  }
  search_delete(results);
}

// The memory of recordings is the same to the bit for each alone, on any threads, and steps go over
// it.
void listens(const Model& model, Random& random) {
  const int n = random.from_to(1, 3), m = model.shape.width, bins = model.shape.bins;
  std::vector<int32_t> lengths, positions;
  size_t rows = 0;
  for (int i = 0; i < n; i++) {
    const int many = random.below(3) ? 20 : 600;
    lengths.push_back(rarely(random) ? random.from_to(-1, 2) : random.from_to(1, many));
    int32_t count = std::max(1, lengths.back());
    rows += count;
    for (const Convolution& c : model.convolutions) count = c.positions(count);
    positions.push_back(count);
  }
  Floats frames(rows * bins), memory(rows * m), alone(rows * m);
  for (float& x : frames) x = random.real();
  if (!frames_run(&model, frames.data(), lengths.data(), n, memory.data(), random.from_to(0, 3))) {
    return;
  }
  const float *from = frames.data(), *to = memory.data();
  for (int i = 0; i < n; i++) {
    check(frames_run(&model, from, &lengths[i], 1, alone.data(), 1), "a recording alone");
    check(!memcmp(alone.data(), to, 4 * (size_t)positions[i] * m), "the memory of one alone");
    from += (size_t)lengths[i] * bins, to += (size_t)positions[i] * m;
  }
  State* state = state_over(&model, memory.data(), positions.data(), n);
  if (!model.has_decoder()) {
    check(!state, "a state without a decoder");
    return;
  }
  check(state, "a state over a memory");
  writes(model, memory, positions, random);
  const Texts given = texts(n, model.shape.target_size, random);
  const size_t tokens = given.ids.size();
  const int stride = random.below(2) ? 400 : random.below(9);
  Floats logits(tokens * model.shape.target_size), attention(tokens * stride);
  state_step(state, given.ids.data(), given.lengths.data(), n, nullptr, logits.data(), nullptr,
             random.below(2) ? attention.data() : nullptr, stride);
  state_delete(state);
}

// Outputs of an encoder alone are the same to the bit for each text alone, on any threads.
void encodes(const Model& model, const Texts& sources, Random& random) {
  const ModelShape& shape = model.shape;
  const int total = (int)sources.ids.size(), n = sources.n();
  std::vector<int32_t> segments(total), positions;
  positions.reserve(1);
  for (int32_t& segment : segments) segment = number(random, 0, std::max(0, shape.segments - 1));
  for (int i = 0; i < total; i++) {
    if (random.below(2)) positions.push_back(rarely(random) ? number(random, 0, total) : i);
  }
  const bool pooled = random.below(2), chosen = random.below(2);
  const int count = chosen ? (int)positions.size() : n;
  Floats vectors((size_t)n * shape.width + 1), scores((size_t)count * shape.scores + 1);
  const int32_t* at = chosen ? positions.data() : nullptr;
  const int32_t* parts = shape.segments ? segments.data() : nullptr;
  if (!encoder_run(&model, sources.ids.data(), parts, sources.lengths.data(), n, at, count,
                   pooled ? vectors.data() : nullptr, shape.scores ? scores.data() : nullptr,
                   number(random, 1, 3))) {
    return;
  }
  for (int i = 0, from = 0; i < n; from += sources.lengths[i++]) {
    const Texts text = sources.only(i);
    std::vector<int32_t> own;
    own.reserve(1);  // null would ask for the scores of pooled vectors
    size_t before = 0;
    for (int32_t place : positions) {
      if (place < from) before++;
      if (place >= from && place < from + text.lengths[0]) own.push_back(place - from);
    }
    if (!chosen) before = i;
    const size_t rows = chosen ? own.size() : 1;
    Floats vector(shape.width), score(rows * shape.scores + 1);
    check(encoder_run(&model, text.ids.data(), parts ? parts + from : nullptr, text.lengths.data(), 1,
                      chosen ? own.data() : nullptr, (int)rows, pooled ? vector.data() : nullptr,
                      shape.scores ? score.data() : nullptr, 1),
          "a text alone");
    const auto same = [](const Floats& one, const Floats& all, size_t at, size_t size) {
      return !memcmp(one.data(), all.data() + at, 4 * size);
    };
    check(!pooled || same(vector, vectors, (size_t)i * shape.width, shape.width), "a vector alone");
    check(same(score, scores, before * shape.scores, rows * shape.scores), "scores alone");
  }
}

int32_t sometimes(int32_t sentence) {
  static thread_local Random random(7);
  return random.below(9) == 0 && sentence >= 0;
}

// Options of sampling, with `uniforms` for some sentences and samples.
Sampling sampling_options(Random& random, int rows, std::vector<double>& uniforms) {
  Sampling o;
  o.steps = rarely(random) ? random.from_to(-1, 5) : 40;
  o.top_k = random.below(2) ? number(random, 0, 30) : 0;
  o.temperature = rarely(random) ? any_real(random) : 0.2 + 2 * random.from_to(0, 10);
  o.top_p = rarely(random) ? any_real(random) : random.below(2) ? 1 : 0.51 + random.real();
  o.min_p = rarely(random) ? any_real(random) : random.below(2) ? 0 : 0.51 + random.real();
  uniforms.resize((size_t)std::max(0, rows) * std::max(0, o.steps));
  for (double& one : uniforms) one = random.bits() / 4294967296.0;
  if (rarely(random) && !uniforms.empty()) uniforms[0] = any_real(random);
  o.uniforms = uniforms.data();
  return o;
}

// Probabilities (n) by the definition, in double precision; none where a limit is too near to say.
std::vector<double> distribution(const std::vector<float>& logits, const Sampling& o) {
  const int n = (int)logits.size();
  std::vector<int> ranked(n);
  for (int i = 0; i < n; i++) ranked[i] = i;
  std::stable_sort(ranked.begin(), ranked.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  const double top = logits[ranked[0]];
  if (o.top_k && o.top_k < n) ranked.resize(o.top_k);
  std::vector<double> weights(n), found(n);
  double whole = 0, before = 0, kept = 0;
  for (int i : ranked) whole += weights[i] = std::exp((logits[i] - top) / o.temperature);
  std::sort(ranked.begin(), ranked.end());
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](int a, int b) { return weights[a] > weights[b]; });
  for (size_t rank = 0; rank < ranked.size(); rank++) {
    const double weight = weights[ranked[rank]];
    const double gap = rank ? weights[ranked[rank - 1]] - weight : 1;
    const bool kept_before = !rank || before - gap - weight < o.top_p * whole;
    const bool is_kept = before < o.top_p * whole;
    if (std::fabs(before / whole - o.top_p) < 1e-5 && weight > 0) return {};
    if (kept_before && !is_kept && gap > 0 && gap < 1e-5 * weight) return {};
    if (rank && o.min_p > 0 && std::fabs(weight - o.min_p) < 1e-5) return {};
    if (is_kept && weight >= o.min_p) found[ranked[rank]] = weight, kept += weight;
    before += weight;
  }
  for (double& one : found) one /= kept;
  return found;
}

void draws(Random& random) {
  const int n = random.below(3) ? random.from_to(1, 90) : random.from_to(200, 900);
  Buffer<float> buffer;
  float* logits = buffer.at_least(n);
  const float scale = random.below(2) ? 9 : 0.5f;
  const bool ties = random.below(3) == 0, gaps = random.below(2);
  for (int i = 0; i < n; i++) {
    logits[i] = scale * random.real();
    if (ties) logits[i] = std::round(2 * logits[i]) / 2;
    if (gaps && random.below(3) == 0) logits[i] = DEAD;
  }
  std::vector<double> uniforms;
  const Sampling o = sampling_options(random, 1, uniforms);
  if (!o.uniforms || !are_valid({{}, {}, {}, nullptr, nullptr}, o, 1)) return;
  Distribution drawn;
  drawn.prepare(Row(logits, n), o);
  const bool none = std::all_of(logits, logits + n, [](float x) { return x == DEAD; });
  check(drawn.is_empty() == none, "nothing to draw");
  const std::vector<double> right = distribution({logits, logits + n}, o);
  for (double uniform : uniforms) {
    if (none || right.empty()) break;
    const int token = drawn.draw(uniform);
    check(token >= 0 && token < n && right[token] > 0, "a token that may be drawn");
    double before = 0;
    for (int i = 0; i < token; i++) before += right[i];
    const bool near = uniform > before - 1e-5 && uniform < before + right[token] + 1e-5;
    check(near || !(uniform >= 0 && uniform < 1), "the token drawn");
  }
}

// Each sentence alone has the same hypotheses, to the bit.
void check_alone(const Model& model, const Texts& sources, const Texts& prompts,
                 const std::vector<int32_t>& limits, const std::vector<int32_t>& least,
                 const SearchOptions& options, const Results& together) {
  size_t hypothesis = 0, token = 0;
  for (int i = 0; i < prompts.n(); i++) {
    const Texts source = model.has_encoder() ? sources.only(i) : Texts{};
    SearchOptions own = options;
    if (own.shortlists) {
      for (int j = 0; j < i; j++) own.shortlists += *own.shortlist_lengths++;
    }
    if (own.sampling.uniforms) own.sampling.uniforms += (size_t)i * own.beam * own.sampling.steps;
    Results* alone = search(&model, source, prompts.only(i), {limits[i]}, {least[i]}, own);
    check(alone && alone->not_a_number < 0, "a sentence alone");
    check(alone->counts[0] == together.counts[i], "hypotheses alone");
    const auto same = [](const auto& one, const auto& all, size_t from) {
      return std::equal(one.begin(), one.end(), all.begin() + from);
    };
    check(same(alone->tokens, together.tokens, token), "tokens alone");
    check(same(alone->scores, together.scores, hypothesis), "scores alone");
    token += alone->tokens.size(), hypothesis += alone->lengths.size();
    search_delete(alone);
  }
}

// Ids that each sentence may emit, the end among them but for mistakes.
Texts shortlists(int n, int eos, int size, Random& random) {
  Texts made;
  made.ids.reserve(1);  // null would be no lists
  for (int i = 0; i < n; i++) {
    const int odd = rarely(random) ? number(random, 0, size) : -1;
    const size_t before = made.ids.size();
    for (int id = 0; id < size; id++) {
      if (id == odd) made.ids.push_back(number(random, 0, size));
      if (random.below(3) == 0 || (id == eos && id != odd)) made.ids.push_back(id);
    }
    made.lengths.push_back((int)(made.ids.size() - before));
  }
  return made;
}

void check_inside(const Texts& lists, const Results& found) {
  const int32_t *length = found.lengths.data(), *token = found.tokens.data();
  for (int i = 0; i < lists.n(); i++) {
    const Texts mine = lists.only(i);
    for (int count = found.counts[i]; count > 0; count--) {
      for (int left = *length++; left > 0; left--, token++) {
        check(std::binary_search(mine.ids.begin(), mine.ids.end(), *token), "a token of the list");
      }
    }
  }
}

void searches(const Model& model, const Texts& sources, Random& random) {
  SearchOptions o;
  o.spoken = {};
  o.beam = number(random, 1, 5), o.n_best = number(random, 1, 5);
  if (o.beam > 5 && o.beam <= 1000000) o.beam = 6;  // allowed, and slow
  o.length_penalty = number(random, NO_PENALTY, GNMT), o.stop = number(random, FIRST, PRESENT);
  o.free_end = random.below(2), o.ends_at_limit = random.below(2), o.threads = number(random, 1, 3);
  o.eos = number(random, 0, 3);
  o.window = random.below(3) ? 0 : number(random, 2, 9), o.kept = number(random, 1, 4);
  const int32_t forbidden[] = {number(random, 0, 3), number(random, 0, 3)};
  o.n_forbidden = random.below(3), o.forbidden = forbidden, o.extra_length = random.below(3);
  o.alpha = rarely(random) ? any_real(random) : 0.6;
  const Texts prompts = texts(sources.n(), model.shape.target_size, random);
  std::vector<double> uniforms;
  o.sampling = {};
  if (random.below(2)) {
    o.sampling = sampling_options(random, sources.n() * std::clamp(o.beam, 0, 6), uniforms);
  }
  std::vector<int32_t> limits, least;
  const Texts lists = shortlists(prompts.n(), o.eos, model.shape.target_size, random);
  const bool restricted = random.below(2);
  o.shortlists = restricted ? lists.ids.data() : nullptr, o.shortlist_lengths = lists.lengths.data();
  for (int i = 0; i < prompts.n(); i++) {
    limits.push_back(rarely(random) ? random.from_to(-2, 40) : random.from_to(0, 9));
    least.push_back(number(random, 0, 4));
  }
  const bool cut = random.below(4) == 0;
  Results* found = search(&model, sources, prompts, limits, least, o, cut ? sometimes : nullptr);
  if (!found) return;
  if (found->not_a_number < 0) {
    check((int)found->counts.size() == prompts.n(), "a list for each sentence");
    for (int count : found->counts) check(count >= 0 && count <= o.n_best, "n_best");
    for (int token : found->tokens) check(token >= 0 && token < model.shape.target_size, "ids");
    for (int length : found->lengths) check(length >= 0 && length <= 40, "lengths");
    if (restricted) check_inside(lists, *found);
    if (!cut) check_alone(model, sources, prompts, limits, least, o, *found);
  }
  search_delete(found);
}

void once(uint64_t seed) {
  Random random(seed);
  Loaded loaded(model_shape(random));
  if (!loaded.model || !is_small(*loaded.model)) return;
  const bool complete = load(loaded, random);
  for (int i = 0; i < 3; i++) {
    draws(random);
    const int size = std::max(1, loaded.model->shape.source_size);
    const Texts sources = texts(random.from_to(1, 6), size, random);
    if (complete && loaded.model->shape.bins) {
      listens(*loaded.model, random);
    } else if (complete && !loaded.model->has_decoder()) {
      check(!state_new(loaded.model, sources.ids.data(), sources.lengths.data(), sources.n()),
            "a state of an encoder alone");
      encodes(*loaded.model, sources, random);
    } else if (!complete) {
      check(!state_new(loaded.model, sources.ids.data(), sources.lengths.data(), sources.n()),
            "a state without all weights");
    } else {
      steps(*loaded.model, sources, random);
      searches(*loaded.model, sources, random);
    }
  }
}

}  // namespace

static uint64_t seed;

int main(int count, char** arguments) {
  const double seconds = count > 1 ? atof(arguments[1]) : 10;
  seed = count > 2 ? strtoull(arguments[2], nullptr, 10) : 1;
  signal(SIGABRT, [](int) { fprintf(stderr, "seed %llu\n", (unsigned long long)seed); });
  uint64_t models = 0;
  do {
    once(seed);
    models++, seed++;
  } while (clock() < seconds * CLOCKS_PER_SEC);
  printf("%llu models, to seed %llu\n", (unsigned long long)models, (unsigned long long)seed - 1);
}
