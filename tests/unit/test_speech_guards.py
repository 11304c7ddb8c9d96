"""Whisper's guards: what is drawn again, and what is dropped."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from transduce.decoding.backend import Decoded
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.speech.guards import Attempt, best_of, compression, guarded, loops
from transduce.speech.segments import word_places

LOOP = "thank you, " * 20


def attempt(
    text: str, log_prob: float, no_speech: float = 0.0, temperature: float = 0.0
) -> Attempt:
    tokens = [*range(9)]
    hypothesis = Hypothesis(tokens, 10 * log_prob, log_prob, True)
    return Attempt(Decoded([hypothesis], no_speech=no_speech), text, temperature)


def outcome(*tries: Attempt) -> tuple[Attempt | None, list[DecodingOptions]]:
    """The final attempt of these in a row, and the options of each that was made."""
    made: list[DecodingOptions] = []

    def again(
        numbers: Sequence[int], options: DecodingOptions, temperature: float
    ) -> list[Attempt]:
        assert list(numbers) == [0]
        made.append(options)
        return [tries[min(len(made), len(tries)) - 1]]

    (final,) = guarded(1, DecodingOptions(beam_size=3), again)
    return final, made


def test_a_good_text_is_searched_once() -> None:
    final, made = outcome(attempt("hello", -0.3, 0.9))
    assert final is not None and final.log_prob == pytest.approx(-0.3)
    assert [(o.method, o.n_best) for o in made] == [("beam", 3)]


@pytest.mark.parametrize("bad", [attempt("hmm", -1.2), attempt(LOOP, -0.1), attempt("x", -9.0)])
def test_a_suspicious_one_is_drawn_until_it_is_good(bad: Attempt) -> None:
    good = attempt("hello", -0.5)
    final, made = outcome(bad, bad, good, bad)
    assert final == good and [o.method for o in made] == ["beam", "sample", "sample"]
    assert 0 < made[1].temperature < made[2].temperature


def test_if_none_is_good_the_best_stays() -> None:
    final, made = outcome(attempt(LOOP, -0.1), attempt("one", -1.5), attempt("two", -1.2))
    assert final is not None and final.text == "two" and len(made) == 4


def test_what_nobody_said_is_dropped() -> None:
    for made_up in (attempt("bye", -1.1, 0.7), attempt(LOOP, -0.1, 0.7)):
        final, made = outcome(made_up)
        assert final is None and len(made) == 1
    assert outcome(attempt("bye", -1.1, 0.2))[0] is None  # doubtful, and no attempt is good
    assert outcome(attempt("hello", -0.4, 0.7))[0] is not None


def test_repetition_is_the_worse_fault() -> None:
    outputs = [Hypothesis([1], -0.1, 0, True), Hypothesis([2], -3.0, 0, True)]
    best = best_of(Decoded(outputs), lambda h: LOOP if h.tokens == [1] else "hello", 0.2)
    assert best.text == "hello" and best.temperature == 0.2
    assert compression(LOOP) > 2.4 > compression("This is a usual sentence of some words.")


@pytest.mark.parametrize(
    ("tokens", "is_loop"),
    [
        ([5] * 16, True),
        ([5] * 15, False),
        ([1, 2, 3] * 8, True),
        ([9, *[1, 2, 3] * 7], False),
        ([7, *range(12)] * 8, False),
        ([*range(12)] * 8, True),
        ([1, 2, 3] * 8 + [4], False),
    ],
)
def test_outputs_in_circles(tokens: list[int], is_loop: bool) -> None:
    assert loops(tokens) == is_loop


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" It's  so, well.", ["It's", "so,", "well."]),
        ("你好，世界。", ["你", "好，", "世", "界。"]),
        ("用 GPU 吗？", ["用", "GPU", "吗？"]),
        ("", []),
    ],
)
def test_words_of_texts(text: str, words: list[str]) -> None:
    assert [text[a:b] for a, b in word_places(text)] == words
