"""Whisper's guards: what is drawn again, and what is dropped."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from transduce.decoding.backend import Decoded
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.speech.guards import Attempt, Gains, best_of, compression, guarded, loops, outputs_of
from transduce.speech.segments import word_places

LOOP = "thank you, " * 20


def attempt(
    text: str, log_prob: float, no_speech: float = 0.0, temperature: float = 0.0
) -> Attempt:
    tokens = [*range(9)]
    hypothesis = Hypothesis(tokens, 10 * log_prob, log_prob, True)
    return Attempt(Decoded([hypothesis], no_speech=no_speech), text, temperature)


SPOKEN = Gains([*range(9)], [3.0] * 9, 1.0)
MADE_UP = Gains([*range(9)], [0.3] * 9, 1.0)


def outcome(*tries: Attempt, gains: Gains = SPOKEN) -> tuple[Attempt, list[DecodingOptions], int]:
    """The final attempt of these in a row, the options of each that was made, and the number of
    those that were judged."""
    made: list[DecodingOptions] = []
    judged: list[Attempt] = []

    def again(
        numbers: Sequence[int], options: DecodingOptions, temperature: float
    ) -> list[list[Attempt]]:
        assert list(numbers) == [0]
        made.append(options)
        return [[tries[min(len(made), len(tries)) - 1]]]

    def judge(i: int, text: Attempt) -> Gains:
        judged.append(text)
        return gains

    (final,) = guarded(1, DecodingOptions(beam_size=3), again, judge)
    return final, made, len(judged)


def test_a_good_text_is_searched_once_and_not_judged() -> None:
    final, made, judged = outcome(attempt("hello", -0.3, 0.05))
    assert final.text == "hello" and final.log_prob == pytest.approx(-0.3)
    assert [(o.method, o.n_best) for o in made] == [("beam", 3)] and not judged


@pytest.mark.parametrize("bad", [attempt("hmm", -1.2), attempt("x", -9.0)])
def test_an_improbable_text_is_drawn_until_it_is_good(bad: Attempt) -> None:
    good = attempt("hello", -0.4)
    final, made, _ = outcome(bad, bad, good, bad)
    assert final == good and [o.method for o in made] == ["beam", "sample", "sample"]
    assert 0 < made[1].temperature < made[2].temperature


def test_if_none_is_good_the_best_stays() -> None:
    final, made, _ = outcome(attempt("none", -3.0), attempt("one", -1.5), attempt("two", -1.2))
    assert final.text == "two" and len(made) == 4


def test_the_sound_decides_and_not_the_scores() -> None:
    """A doubtful text is kept if the sound bears it, and not drawn again if it does not."""
    for doubtful in (attempt("bye", -1.3, 0.7), attempt("bye", -0.1, 0.7), attempt(LOOP, -0.1)):
        final, made, judged = outcome(doubtful, gains=MADE_UP)
        assert final.is_made_up and len(made) == judged == 1
        final, _, _ = outcome(doubtful, attempt("bye", -0.9))
        assert not final.is_made_up
    said = outcome(attempt("no, " * 7, -0.3, 0.6))
    assert said[0].text == "no, " * 7 and len(said[1]) == 1


def test_what_is_said_again_has_little_gain_and_is_not_held_against_it() -> None:
    tokens = [5, 6] * 8
    assert not Gains(tokens, [8.0, 3.0, *[0.1] * 14]).are_low
    assert Gains(tokens, [0.8, 0.3, *[0.1] * 14]).are_low
    assert not Gains([], []).are_low


@pytest.mark.parametrize(
    ("gains", "end", "said"),
    [
        ([3, 1, 1, 0.2, 0.1], 2.0, 5),
        ([3, 1, 1, -0.2, -0.1], 0.0, 3),  # it has not ended
        ([3, 1, 1, -0.2, -0.1], 2.0, 5),  # the end makes up for it
        ([3, 1, 1, -0.2, -0.1], -1.0, 3),
        ([3, 0.5, -0.2, 4.0], 0.0, 4),
        ([], 0.0, 0),
    ],
)
def test_a_loop_ends_where_its_gain_does(gains: list[float], end: float, said: int) -> None:
    assert Gains([*range(len(gains))], gains, end).n_said == said


def test_of_repetitions_that_which_the_sound_bears_is_taken() -> None:
    def judge(text: Attempt) -> Gains:
        return Gains([1], [30.0 if "funny" in text.text else 2.0], 1.0)

    texts = ["ha, " * 9, "ha, " * 8 + "very funny", "ha, " * 7]
    best = best_of([attempt(text, -0.3 - i / 10) for i, text in enumerate(texts)], judge)
    assert best.text == texts[1] and best.gains is not None


def test_repetition_is_the_worse_fault() -> None:
    outputs = [Hypothesis([1], -0.1, 0, True), Hypothesis([2], -0.6, 0, True)]
    tried = outputs_of(Decoded(outputs), lambda h: LOOP if h.tokens == [1] else "hello", 0.2)
    best = best_of(tried, lambda text: SPOKEN)
    assert best.text == "hello" and best.temperature == 0.2
    assert compression(LOOP) > 2.4 > compression("This is a usual sentence of some words.")


@pytest.mark.parametrize(
    ("tokens", "is_loop"),
    [
        ([5] * 24, True),
        ([5] * 23, False),
        ([1, 2, 3] * 12, True),
        ([9, *[1, 2, 3] * 11], False),
        ([7, *range(12)] * 12, False),
        ([*range(12)] * 12, True),
        ([1, 2, 3] * 12 + [4], False),
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
