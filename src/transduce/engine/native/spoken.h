// Rules of the outputs of an imported Whisper: those of tasks/speech (prompt.py, timestamps.py,
// guards.py), the same outputs as there.
#pragma once
#include "choice.h"

// As the caller gives them, zero for outputs of other models; the same fields in `library.py`.
//
// memory: (positions, width) of all recordings, which stand for the sources.  forbidden_first: ids
// that no output begins with.  first_time, end_time: range of the ids of times, none if it is empty;
// latest_start: number of the last one that an output may begin with.  is_renormalised:
// probabilities are divided by their sum over the tokens that may come.  no_speech: id whose
// probability after the token `no_speech_at` of each prompt is wanted, 0 for none.  period, loops,
// looped: most tokens of a phrase, and fewest of its occurrences in a row and of their tokens, with
// which an output ends; 0 for never.
struct Spoken {
  const float* memory;
  const int32_t* forbidden_first;
  int32_t n_forbidden_first, first_time, end_time, latest_start, is_renormalised;
  int32_t no_speech, no_speech_at, period, loops, looped;

  bool is_time(int token) const { return first_time <= token && token < end_time; }

  // Leave what may follow these tokens.
  void apply(const std::vector<int>& tokens, int eos, Row& row) const {
    for (int i = 0; tokens.empty() && i < n_forbidden_first; i++) {
      row.logits[forbidden_first[i]] = DEAD;
    }
    if (first_time < end_time) keep_times_in_order(tokens, eos, row);
    if (is_renormalised) row = Row(row.logits, row.n);
  }

  // True for tokens that end with many occurrences of a phrase, times aside.
  bool is_in_circles(const std::vector<int>& tokens) const {
    std::vector<int> words;
    for (int token : tokens) {
      if (!is_time(token)) words.push_back(token);
    }
    for (int phrase = 1; phrase <= period; phrase++) {
      const int n = std::max(phrase * loops, looped);
      if ((int)words.size() < n) continue;
      if (std::equal(words.end() - n, words.end() - phrase, words.end() - n + phrase)) return true;
    }
    return false;
  }

 private:
  // Words between pairs of increasing times; see `timestamp_rules`.
  void keep_times_in_order(const std::vector<int>& tokens, int eos, Row& row) const {
    float* logits = row.logits;
    const auto forbid = [&](int from, int to) {
      std::fill(logits + from, logits + std::max(from, to), DEAD);
    };
    const auto forbid_words = [&] { forbid(0, first_time), forbid(end_time, row.n); };
    if (tokens.empty()) {
      forbid_words();
      return forbid(std::min(first_time + latest_start + 1, end_time), end_time);
    }
    const bool last = is_time(tokens.back());
    const bool pair = last && (tokens.size() == 1 || is_time(tokens[tokens.size() - 2]));
    const bool closed = last && !pair;
    int newest = first_time - 1;
    for (int token : tokens) newest = is_time(token) ? std::max(newest, token) : newest;
    forbid(first_time, pair ? end_time : newest + !closed);
    if (closed) {
      const float end = logits[eos];
      forbid_words();
      logits[eos] = end;
    }
    const Row times(logits + first_time, end_time - first_time);
    const float word = std::max(largest(logits, first_time),
                                largest(logits + end_time, row.n - end_time));
    if (times.top > DEAD && times.top + times.log_sum > word) forbid_words();
  }
};
