// Beam search, greedy search and sampling, by the rules of transduce/decoding: the same outputs as
// there.
//
// The Python search follows every option; this one follows those that need only the logits of a
// step: length penalties, stopping rules, limits, a free end, the window of a decoder alone, limits
// of the distribution, rules of an imported Whisper.
#pragma once
#include "layers.h"
#include "sampling.h"
#include "spoken.h"

enum LengthPenalty { NO_PENALTY, MEAN, GNMT };
enum Stop { FIRST, EXACT, PRESENT };

// As the caller gives them; the same fields in `library.py`.
//
// beam: hypotheses of a sentence side by side; in sampling, samples, for which `stop` is FIRST.
// forbidden: ids that are never emitted.  ends_at_limit: a hypothesis of as many tokens as its limit
// ends there, without an end of sentence.  window: most positions of a hypothesis, 0 for no limit; a
// longer one is read again from its last `kept` tokens on.  extra_length: added in `penalty`.
// shortlists: ids that each sentence may emit, the end of sentence among them, ascending, one
// sentence after another, and the lengths (n) of the lists; null for all ids.
struct SearchOptions {
  int32_t beam, n_best, length_penalty, stop, free_end, ends_at_limit, eos, window, kept, threads;
  int32_t n_forbidden, extra_length;
  const int32_t* forbidden;
  double alpha;
  Sampling sampling;
  const int32_t *shortlists, *shortlist_lengths;
  Spoken spoken;
};

// What to search for: sources, unless the decoder is alone, or of recordings the memory (positions,
// width); the tokens that every hypothesis begins
// with, at least one; ids that may be emitted, unless all; tokens before the end, at most and at
// least.
struct Questions {
  Sentences sources, prompts, shortlists;
  const int32_t *limits, *min_lengths;
  const float* memory;

  int count() const { return prompts.count(); }
  Questions part(int from, int to, int width) const {
    const auto cut = [=](const Sentences& all) { return all.part(from, all.count() ? to : from); };
    const float* rest = memory ? memory + (size_t)sources.starts[from] * width : nullptr;
    return {cut(sources), cut(prompts), cut(shortlists), limits + from, min_lengths + from, rest};
  }
};
typedef int32_t (*Cancelled)(int32_t sentence);

struct Hypothesis {
  std::vector<int> tokens;
  float log_prob;
  double score;
  bool finished;
};
typedef std::vector<Hypothesis> Hypotheses;

static double penalty(const SearchOptions& options, int length) {
  length += options.extra_length;
  if (options.length_penalty == NO_PENALTY) return 1.0;
  if (options.length_penalty == MEAN) return std::max(length, 1);
  return power((5 + length) / 6.0, options.alpha);
}

// The best finished hypotheses of a sentence, best first; ties keep their order.
class Finished {
 public:
  int count = 0;
  Hypotheses ranked;

  explicit Finished(const SearchOptions& options) : kept_(std::max(options.n_best, options.beam)) {}
  void add(Hypothesis hypothesis) {
    count++;
    auto at = ranked.end();
    while (at != ranked.begin() && (at - 1)->score < hypothesis.score) --at;
    ranked.insert(at, std::move(hypothesis));
    if ((int)ranked.size() > kept_) ranked.pop_back();
  }
  double rank(int n) const { return (int)ranked.size() >= n ? ranked[n - 1].score : DEAD; }

 private:
  int kept_;
};

// A hypothesis that still grows.
struct Growing {
  float log_prob;
  int sample;
  std::vector<int> tokens;
};

// A sentence whose search goes on.
struct Beam {
  int sentence;
  std::vector<Growing> rows;
  float* logits = nullptr;  // (rows, ids that it may emit) of a step
};

class Search {
 public:
  // first: number of the first question, for `cancelled`.
  Search(const Model& model, Questions questions, const SearchOptions& options,
         Cancelled cancelled, int first)
      : questions_(std::move(questions)),
        state_(start(model, questions_)),
        options_(options),
        cancelled_(cancelled),
        first_(first),
        finished_(questions_.count(), Finished(options)) {
    for (int i = 0; i < questions_.count(); i++) beams_.push_back({i, {{0.0f, Draws::ALL, {}}}});
    const std::vector<int>& ids = questions_.shortlists.ids;
    if (ids.empty()) return;
    std::vector<int> all(ids);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    head_.pick(model.head, all.data(), (int)all.size());
    for (int id : ids) {
      outputs_.push_back(int(std::lower_bound(all.begin(), all.end(), id) - all.begin()));
    }
  }

  // Tokens after which scores were NaN, which ends the search; -1 in a whole search.
  int not_a_number = -1;
  std::vector<float> no_speech;  // probability for each question, if wanted

  std::vector<Finished>& run() {
    for (int length = 0; !beams_.empty() && not_a_number < 0; length++) {
      if (!only_free_ends(length)) step(length);
      extend(length);
    }
    return finished_;
  }

 private:
  Questions questions_;
  State state_;
  const SearchOptions& options_;
  Cancelled cancelled_;
  int first_;
  std::vector<Finished> finished_;
  Linear head_;               // of the ids of all shortlists, if there are any
  std::vector<int> outputs_;  // of `head_`, for each id of the shortlists
  std::vector<Beam> beams_;
  Buffer<float> logits_, listed_;
  Distribution distribution_;

  // True if all hypotheses can only end, at no cost, so that no step is needed.
  bool only_free_ends(int length) const {
    return options_.free_end && length > 0 &&
           std::all_of(beams_.begin(), beams_.end(),
                       [&](const Beam& beam) { return limit(beam) <= length; });
  }

  static State start(const Model& model, const Questions& questions) {
    if (questions.memory) return State(model, questions.sources, questions.memory);
    return model.has_encoder() ? State(model, questions.sources) : State(model);
  }

  int limit(const Beam& beam) const { return questions_.limits[beam.sentence]; }

  void step(int length) {
    Sentences given;
    for (const Beam& beam : beams_) {
      for (const Growing& row : beam.rows) read(beam.sentence, row.tokens, length, given);
    }
    const float* every = state_.step(given);
    if (!length && options_.spoken.no_speech) hear(given, every);
    const float* outputs = state_.last_outputs(given, every);
    const Linear& head = has_shortlists() ? head_ : state_.model.head;
    float* logits = logits_.at_least((size_t)given.count() * head.outputs);
    state_.logits(head, outputs, given.count(), logits);
    size_t size = 0;
    for (const Beam& beam : beams_) size += beam.rows.size() * outputs_of(beam.sentence);
    float* to = has_shortlists() ? listed_.at_least(size) : logits;
    for (Beam& beam : beams_) {
      beam.logits = to;
      if (!has_shortlists()) to += beam.rows.size() * head.outputs;
      for (size_t i = 0; i < beam.rows.size() && has_shortlists(); i++, logits += head.outputs) {
        const int* output = &outputs_[questions_.shortlists.starts[beam.sentence]];
        for (int j = outputs_of(beam.sentence); j > 0; j--) *to++ = logits[*output++];
      }
    }
  }

  // The probability of no speech, after a token of each prompt.
  void hear(const Sentences& given, const float* outputs) {
    const Linear& head = state_.model.head;
    float* logits = logits_.at_least(head.outputs);
    for (int i = 0; i < given.count(); i++) {
      const size_t at = given.starts[i] + options_.spoken.no_speech_at;
      state_.logits(head, outputs + at * head.inputs, 1, logits);
      const Row row(logits, head.outputs);
      no_speech.push_back(exponential(row.log_prob(logits[options_.spoken.no_speech])));
    }
  }

  bool has_shortlists() const { return questions_.shortlists.count() > 0; }

  // Logits of each hypothesis of a sentence.
  int outputs_of(int sentence) const {
    return has_shortlists() ? questions_.shortlists.length(sentence) : state_.model.head.outputs;
  }

  // Place of a token in a sentence's shortlist, or -1.
  int output_of(int sentence, int token) const {
    if (!has_shortlists()) return token;
    const Sentences& lists = questions_.shortlists;
    const auto first = lists.ids.begin() + lists.starts[sentence];
    const auto end = lists.ids.begin() + lists.starts[sentence + 1];
    const auto at = std::lower_bound(first, end, token);
    return at != end && *at == token ? (int)(at - first) : -1;
  }

  // Give the next hypothesis its tokens: the prompt, then its last one; or, beyond the window, the
  // last ones that are kept, to begin anew.
  void read(int sentence, const std::vector<int>& tokens, int length, Sentences& given) {
    const Sentences& prompts = questions_.prompts;
    const int n = prompts.length(sentence), all = n + length, r = given.count();
    const int held = length ? state_.length(r) : 0;
    int count = length ? 1 : n;
    if (options_.window && held + count > options_.window) {
      if (length) state_.forget(r);
      count = options_.kept;
    }
    for (int i = all - count; i < all; i++) {
      given.add(i < n ? prompts.ids[prompts.starts[sentence] + i] : tokens[i - n]);
    }
    given.end();
  }

  // Extend every hypothesis by a token; the state follows the beams that go on.
  void extend(int length) {
    std::vector<Beam> going;
    std::vector<int> parents;
    int first = 0;  // row of the beam in the state
    for (Beam& beam : beams_) {
      std::vector<Candidate> chosen = candidates(beam, length);
      for (Candidate& each : chosen) {
        const Sentences& lists = questions_.shortlists;
        if (has_shortlists()) each.token = lists.ids[lists.starts[beam.sentence] + each.token];
      }
      std::vector<Candidate> continuing;
      for (const Candidate& one : chosen) {
        if (one.token != options_.eos && (int)continuing.size() < options_.beam) {
          continuing.push_back(one);
        }
      }
      const bool full = options_.ends_at_limit && length + 1 >= limit(beam);
      const auto goes_on = [&](const Candidate& one) { return !full && !is_looping(beam, one); };
      const auto rest = std::stable_partition(continuing.begin(), continuing.end(), goes_on);
      cut_off(beam, length, {rest, continuing.end()});
      continuing.erase(rest, continuing.end());
      collect(beam, chosen, length);
      const bool done = is_done(beam.sentence, length, continuing);
      if (done && !finished_[beam.sentence].count) keep_unfinished(beam, length);
      if (!done && !(cancelled_ && cancelled_(first_ + beam.sentence))) {
        Beam next{beam.sentence, {}};
        for (const Candidate& one : continuing) {
          next.rows.push_back({one.log_prob, one.sample, beam.rows[one.parent].tokens});
          next.rows.back().tokens.push_back(one.token);
          parents.push_back(first + one.parent);
        }
        going.push_back(std::move(next));
      }
      first += (int)beam.rows.size();
    }
    state_.select(parents.data(), (int)parents.size());
    beams_.swap(going);
  }

  // The best 2 * beam continuations, of which at most `beam` end the sentence; in sampling, one for
  // each sample.
  std::vector<Candidate> candidates(const Beam& beam, int length) {
    const Sampling& sampling = options_.sampling;
    if (!sampling.uniforms) {
      Best best(2 * options_.beam);
      choose(beam, length, best);
      return std::move(best.chosen);
    }
    const size_t sample = (size_t)(first_ + beam.sentence) * options_.beam;
    const double* uniforms = sampling.uniforms + sample * sampling.steps + length;
    Draws draws(sampling, options_.beam, uniforms, distribution_);
    choose(beam, length, draws);
    return std::move(draws.chosen);
  }

  // Let every hypothesis of a beam have its continuations.
  template <class Choice>
  void choose(const Beam& beam, int length, Choice& choice) {
    const int size = outputs_of(beam.sentence), end = output_of(beam.sentence, options_.eos);
    const bool full = limit(beam) <= length;
    const bool too_short =
        length < std::min(questions_.min_lengths[beam.sentence], limit(beam));
    for (int i = 0; i < (int)beam.rows.size(); i++) {
      const Parent parent{i, beam.rows[i].log_prob, beam.rows[i].sample};
      if (full && options_.free_end) {
        choice.only(parent, end, 0.0f);
        continue;
      }
      Row row(beam.logits + (size_t)i * size, size);
      if (std::isnan(row.log_sum)) {
        not_a_number = length;
        return;
      }
      if (full) {
        choice.only(parent, end, row.log_prob(row.logits[end]));
        continue;
      }
      for (int j = 0; j < options_.n_forbidden; j++) {
        const int output = output_of(beam.sentence, options_.forbidden[j]);
        if (output >= 0) row.logits[output] = DEAD;
      }
      if (too_short) row.logits[end] = DEAD;
      options_.spoken.apply(beam.rows[i].tokens, options_.eos, row);
      choice.any(parent, row);
    }
  }

  // Ends of sentence among the first `beam` candidates finish; others continue.
  void collect(const Beam& beam, const std::vector<Candidate>& chosen, int length) {
    for (int i = 0; i < std::min((int)chosen.size(), options_.beam); i++) {
      const Candidate& one = chosen[i];
      if (one.token != options_.eos) continue;
      const double score = one.log_prob / penalty(options_, length + 1);
      finished_[beam.sentence].add({beam.rows[one.parent].tokens, one.log_prob, score, true});
    }
  }

  bool is_looping(const Beam& beam, const Candidate& one) const {
    if (!options_.spoken.period) return false;
    std::vector<int> tokens = beam.rows[one.parent].tokens;
    tokens.push_back(one.token);
    return options_.spoken.is_in_circles(tokens);
  }

  // Hypotheses that have as many tokens as they may, or go round in circles.
  void cut_off(const Beam& beam, int length, const std::vector<Candidate>& last) {
    for (const Candidate& one : last) {
      Hypothesis found{beam.rows[one.parent].tokens, one.log_prob,
                       one.log_prob / penalty(options_, length + 1), false};
      found.tokens.push_back(one.token);
      finished_[beam.sentence].add(std::move(found));
    }
  }

  // The rules of decoding/hypotheses.py, with the proof of the exact one.
  bool is_done(int sentence, int length, const std::vector<Candidate>& continuing) const {
    const Finished& finished = finished_[sentence];
    const float top = continuing.empty() ? DEAD : continuing[0].log_prob;
    const bool full = finished.count >= options_.beam;
    if (options_.stop == PRESENT) {
      const double now = top / penalty(options_, length + 1);
      return (full && now <= finished.rank(options_.beam)) || top == DEAD;
    }
    const double bound = top / penalty(options_, questions_.limits[sentence] + 1);
    return (options_.stop == FIRST && full) || bound <= finished.rank(options_.n_best);
  }

  void keep_unfinished(const Beam& beam, int length) {
    for (const Growing& row : beam.rows) {
      const double score = row.log_prob / penalty(options_, length);
      finished_[beam.sentence].add({row.tokens, row.log_prob, score, false});
    }
  }
};

// Hypotheses of all sentences, one after another, for the caller.
struct Results {
  std::vector<int32_t> counts;   // (n) hypotheses of each sentence
  std::vector<int32_t> lengths;  // of each hypothesis, and so on
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;
  std::vector<double> scores;
  std::vector<uint8_t> finished;
  std::vector<float> no_speech;  // (n) if wanted
  int not_a_number = -1;  // tokens after which scores were NaN

  void add(const Hypothesis& one) {
    lengths.push_back((int)one.tokens.size());
    tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
    log_probs.push_back(one.log_prob);
    scores.push_back(one.score);
    finished.push_back(one.finished);
  }
};

// Search for all sentences, a share of them on each thread; outputs do not depend on the shares.
static void search_all(const Model& model, const Questions& questions,
                       const SearchOptions& options, Cancelled cancelled, Results& results) {
  const int n = questions.count(), shares = std::max(1, std::min(options.threads, n));
  std::vector<std::vector<Finished>> finished(shares);
  std::vector<int> not_a_number(shares, -1);
  std::vector<std::vector<float>> no_speech(shares);
  on_threads(shares, [&](int share) {
    const int from = (int)((int64_t)n * share / shares);
    const int to = (int)((int64_t)n * (share + 1) / shares);
    Search search(model, questions.part(from, to, model.shape.width), options, cancelled, from);
    finished[share] = std::move(search.run());
    not_a_number[share] = search.not_a_number;
    no_speech[share] = std::move(search.no_speech);
  });
  for (int share = 0; share < shares; share++) {
    results.not_a_number = std::max(results.not_a_number, not_a_number[share]);
    results.no_speech.insert(results.no_speech.end(), no_speech[share].begin(),
                             no_speech[share].end());
    for (const Finished& of_sentence : finished[share]) {
      const int count = std::min((int)of_sentence.ranked.size(), options.n_best);
      results.counts.push_back(count);
      for (int i = 0; i < count; i++) results.add(of_sentence.ranked[i]);
    }
  }
}
