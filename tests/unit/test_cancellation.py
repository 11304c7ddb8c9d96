"""A cancelled sentence leaves its batch; all others come out as they would have."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from helpers.predictors import generator_of
from helpers.reversing_run import counted, some_texts
from helpers.toy_search import ToyState, decode, toy
from transduce import CancelledError, DecodingOptions, Run, SettingError, Translation
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.tasks.language_model.dialogue import Conversation, DialogueRecipe, TrainedDialogue
from transduce.tasks.language_model.generator import Continuation, Generator
from transduce.tasks.predictors import attempt
from transduce.text import train_tokenizer
from transduce.text.tokenizer import CharactersConfig

OPTIONS: list[dict[str, Any]] = [
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 4},
    {"beam_size": 4, "beam_groups": 2, "n_best": 2},
    {"method": "sample", "n_best": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
@pytest.mark.parametrize("gone", [{0}, {1, 3}, {0, 1, 2, 3, 4}])
def test_the_others_of_a_search_are_unchanged(options: dict[str, Any], gone: set[int]) -> None:
    model = toy(5)
    whole = decode(model, range(5), 6, **options)
    n_rows = sum(model.rows_seen)
    asked: dict[int, int] = {}

    def cancelled(sentence: int) -> bool:
        asked[sentence] = asked.get(sentence, 0) + 1
        return sentence in gone and asked[sentence] == 2

    model.rows_seen.clear()
    found = decode(model, range(5), 6, cancelled=cancelled, **options)
    for i, (own, right) in enumerate(zip(found, whole, strict=True)):
        if i not in gone:
            assert own == right
        else:
            assert asked[i] <= 2
    assert sum(model.rows_seen) < n_rows


def test_a_hook_that_never_cancels_changes_nothing() -> None:
    whole, state = decode(toy(5), range(5), 6), ToyState(range(5))
    assert decode(toy(5), range(5), 6, state=state, cancelled=lambda sentence: False) == whole


# --- texts ---------------------------------------------------------------------------------------


class Clock:
    """Cancels some texts once it has been asked about them so often."""

    def __init__(self, after: dict[int, int]) -> None:
        self.after = after
        self.asked: dict[int, int] = {}

    def __call__(self, place: int) -> bool:
        self.asked[place] = self.asked.get(place, 0) + 1
        return self.asked[place] > self.after.get(place, 10**9)


@pytest.fixture(scope="module")
def run(on_each_engine: Run) -> Run:
    return on_each_engine


def generator() -> Generator:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(CharactersConfig(), ["abcdefgh ."])
    model = build_decoder_only(DecoderOnlyConfig(d_model=16), tokenizer.size).double().eval()
    return generator_of(model, tokenizer, DecodingOptions(beam_size=2, max_tokens=12), 64)


@pytest.mark.parametrize(
    "options",
    [DecodingOptions(beam_size=3, n_best=3), DecodingOptions(method="sample", n_best=2)],
    ids=["beam", "sample"],
)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_other_texts_are_as_if_nothing_had_been(
    run: Run, options: DecodingOptions, after: int
) -> None:
    texts = [*some_texts(24), "abcde" * 8, "", "abc\nab"]
    gone = [0, 7, 24, 26]
    whole = run.translate_batch(texts, options, 5)
    found = run.attempt(texts, options, 5, Clock(dict.fromkeys(gone, after)))
    for i, (answer, right) in enumerate(zip(found, whole, strict=True)):
        if isinstance(answer, CancelledError):
            assert i in gone
            continue
        assert isinstance(answer, Translation)
        assert [c.tokens for c in answer.candidates] == [c.tokens for c in right.candidates]
        assert answer.text == right.text
        assert answer.log_prob == pytest.approx(right.log_prob, abs=1e-5)
    assert isinstance(found[24], CancelledError)  # too long to have ended by then
    if not after:
        assert [i for i, one in enumerate(found) if isinstance(one, CancelledError)] == gone


def test_equal_texts_are_searched_for_until_all_are_cancelled(run: Run) -> None:
    first, second = run.attempt(["abcde", "abcde"], cancelled=lambda place: place == 0)
    assert isinstance(first, CancelledError)
    assert second == run.translate("abcde")


def test_cancelled_texts_save_their_steps(trained: Run) -> None:
    counting, read = counted(trained)
    found = counting.attempt(["abcdeabcde"], cancelled=Clock({0: 3}))
    assert isinstance(found[0], CancelledError) and len(read) == 3
    read.clear()
    counting.attempt(["abcdeabcde"], cancelled=lambda place: True)
    assert not read


def test_a_stream_ends_with_an_error(run: Run) -> None:
    asked = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 3

    whole = run.translate("abcdeabcde", DecodingOptions(beam_size=1)).text
    stream = run.stream("abcdeabcde", DecodingOptions(beam_size=1), cancelled=cancelled)
    said = ""
    with pytest.raises(CancelledError):
        for part in stream:
            said += part
    assert whole.startswith(said) and said != whole


def test_continuations() -> None:
    model, prompts = generator(), ["abc", "", "hgfedcba", "d"]
    options = [None, {"max_tokens": 5}, {"method": "sample", "top_k": 3}, {"beam_size": 0}]
    each = [model.options.with_settings(own) if own else model.options for own in options[:3]]
    right = [
        model.generate([p], o, i)[0] for i, (p, o) in enumerate(zip(prompts, each, strict=False))
    ]
    found = attempt(model, [(p,) for p in prompts], options, cancelled=Clock({0: 2}))
    assert isinstance(found[0], CancelledError) and isinstance(found[3], SettingError)
    for i in (1, 2):
        assert isinstance(found[i], Continuation)
        assert found[i] == dataclasses.replace(
            right[i], score=found[i].score, log_prob=found[i].log_prob
        )  # type: ignore
    with pytest.raises(CancelledError):
        list(model.stream("abc", cancelled=lambda: True))
    with pytest.raises(SettingError, match="TRANSDUCE_LIMIT_BEAM"):  # at the call, not when read
        model.stream("abc", DecodingOptions(beam_size=10_000))
    many = [DecodingOptions(max_tokens=5), DecodingOptions(max_tokens=90_000)]
    with pytest.raises(SettingError, match=r"^prompt 2: max_tokens.* TRANSDUCE_LIMIT_OUTPUT"):
        model.generate(["a", "b"], many)


def test_a_conversation_remembers_what_had_come() -> None:
    recipe = DialogueRecipe.parse(
        {"task": "dialogue", "data": {}, "model": {"d_model": 16}}, "recipe"
    )
    tokenizer = train_tokenizer(CharactersConfig(), ["abcdefgh ."])
    torch.manual_seed(0)
    model = TrainedDialogue.new(recipe, tokenizer)
    talk = Conversation(model, DecodingOptions(beam_size=1, max_tokens=30))
    asked = []
    with pytest.raises(CancelledError):
        for _ in talk.reply("abc", lambda: len(asked) > 6 or bool(asked.append(1))):  # type: ignore
            pass
    assert len(talk.turns) in (0, 2)
    (answer,) = model.attempt(["abc"], cancelled=lambda place: True)
    assert isinstance(answer, CancelledError)
    with pytest.raises(SettingError, match="TRANSDUCE_LIMIT_BEAM"):
        Conversation(model, DecodingOptions(beam_size=100_000))
