"""Times among the words of an output: rules while writing, and segments of what is written."""

from __future__ import annotations

import math

import torch

from transduce.decoding.hypotheses import ActiveHypotheses
from transduce.speech.prompt import TimedTokens, timed_tokens, timestamp_rules

EOS, FIRST, SIZE = 3, 20, 120
TIMES = range(FIRST, SIZE)


def sampled(seed: int, steps: int = 30) -> list[int]:
    """An output of random probabilities under the rules."""
    generator = torch.Generator().manual_seed(seed)
    rules, tokens = timestamp_rules(TIMES, EOS), list[int]()
    for _ in range(steps):
        log_probs = torch.randn(1, 1, SIZE, generator=generator) * 3
        log_probs[..., :FIRST] += 4 * torch.rand(1, generator=generator)
        log_probs = log_probs.log_softmax(2)
        written = torch.tensor(tokens, dtype=torch.long).view(1, 1, -1)
        active = ActiveHypotheses([0], [steps], torch.zeros(1, 1), written)
        rules(log_probs, active)
        assert log_probs.max() > -math.inf
        token = int(torch.multinomial(log_probs[0, 0].exp(), 1, generator=generator))
        if token == EOS:
            return tokens
        tokens.append(token)
    return tokens


def test_times_rise_in_pairs_around_words() -> None:
    lengths = []
    for seed in range(40):
        tokens = sampled(seed)
        assert tokens[0] in TIMES and tokens[0] <= FIRST + 50
        times = [token for token in tokens if token in TIMES]
        assert times == sorted(times)
        result = timed_tokens(tokens, TIMES)
        lengths.append(len(result))
        assert all(part.tokens and part.start < part.end for part in result)
        for i in range(1, len(tokens) - 1):  # of three running, not all are times, nor one alone
            assert sum(token in TIMES for token in tokens[i - 1 : i + 2]) < 3
            if tokens[i] in TIMES:
                assert (tokens[i - 1] in TIMES) != (tokens[i + 1] in TIMES)
    assert max(lengths) > 2


def test_times_are_taken_where_they_are_likelier_than_any_word() -> None:
    log_probs = torch.full((1, 1, SIZE), -2.0)
    log_probs[..., 7] = 0.0  # the best word, below 70 times together
    written = torch.tensor([[[FIRST + 30, 8]]])
    active = ActiveHypotheses([0], [9], torch.zeros(1, 1), written)
    timestamp_rules(TIMES, EOS)(log_probs, active)
    assert (log_probs[0, 0] > -math.inf).nonzero()[:, 0].tolist() == [*range(FIRST + 31, SIZE)]


def test_segments_of_an_output() -> None:
    at = [FIRST + i for i in range(100)]
    tokens = [at[0], 5, 6, at[50], at[60], 7, at[80], at[90], 8]
    assert timed_tokens(tokens, TIMES) == [
        TimedTokens(0.0, 1.0, [5, 6]),
        TimedTokens(1.2, 1.6, [7]),
        TimedTokens(1.8, math.inf, [8]),
    ]
    assert timed_tokens([5, 6], range(0)) == [TimedTokens(0.0, math.inf, [5, 6])]
    assert timed_tokens([], TIMES) == timed_tokens([at[3]], TIMES) == []
