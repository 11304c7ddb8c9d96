"""Inputs beyond the first chunk of a stream: their numbers, in messages and in random streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import transduce
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce import DecodingOptions, Run
from transduce.errors import InputError
from transduce.runs import run as run_module

TEXTS = ["abc", "edcba", "aa", "", "ce", "bbbd", "dcab"] * 2
SAMPLED = DecodingOptions(method="sample", temperature=3.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("streams")
    data = write_tsv(directory / "a.tsv", reversal_pairs(60))
    path, _ = train_tiny(data, directory / "run", "training.steps=2")
    return transduce.load(path, device="cpu")


@pytest.fixture
def in_threes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "STREAM_TEXTS", 3)


@pytest.mark.usefixtures("in_threes")
def test_samples_do_not_depend_on_chunks(run: Run) -> None:
    whole = [p.text for p in run.predictor.predict([(text,) for text in TEXTS], SAMPLED, 0)]
    assert len(set(whole[::7])) > 1, "equal inputs have their own random streams"
    assert [p.text for p in run.predict(TEXTS, SAMPLED)] == whole
    assert [p.text for p in run.translate(iter(TEXTS), SAMPLED)] == whole


Call = Callable[[Run, Iterator[str]], Iterator[object]]
CALLS: dict[str, Call] = {
    "predict": lambda run, texts: run.predict(texts),
    "translate": lambda run, texts: run.translate(texts),
}


@pytest.mark.usefixtures("in_threes")
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_input_is_named_by_its_number(run: Run, call: str) -> None:
    mixed: list[object] = [*TEXTS[:7], 5]
    with pytest.raises(InputError, match="input 8: "):
        list(CALLS[call](run, iter(mixed)))  # type: ignore[arg-type]
