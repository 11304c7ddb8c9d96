"""Mistakes in calls from Python are answered in one line, as on the command line."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from transduce import Alignment, DecodingOptions, InputError, Run, TransduceError, Translation

CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda run: transduce.load(run.path, engine="nativ"), "did you mean 'native'?"),
    (lambda run: transduce.load(run.path, precision="fp16"), "did you mean 'bf16'?"),
    (lambda run: transduce.load(5), "5 is not the path of a run directory"),
    (lambda run: transduce.train(5), "a recipe is a file or a dictionary of settings, not 5"),
    (lambda run: run.evaluate("tset"), "split 'tset' is not one of train, valid, test; did you"),
    (lambda run: run.evaluate(examples=[("a",)]), "input 1: an example is an input and its answer"),
    (lambda run: run.evaluate(examples=[("a", 5)]), "input 1: answer is of type int, not a text"),
    (lambda run: run(5), "the input is of type int, not an iterable of texts"),
    (lambda run: run(None), "the input is None, not an iterable of texts"),
    (lambda run: run(b"a"), "the input is of type bytes, not an iterable of texts"),
    (lambda run: list(run(["a", None])), "input 2: source is None, not a text"),
    (lambda run: list(run(iter(["a"] * 600 + [b"a"]))), "input 601: source is of type bytes"),
    (lambda run: run.translate_batch("abc"), "the input is of type str, not an iterable of texts"),
    (lambda run: run("a", beam_sise=2), "beam_sise is not a setting; did you mean 'beam_size'?"),
    (lambda run: run("a", beam_size="x"), "beam_size should be a valid integer"),
    (lambda run: run("a", 5), "options is of type int; give settings by name"),
    (lambda run: run.predict("abc"), "the input is of type str, not an iterable of texts"),
    (lambda run: list(run.predict([("a", "b")])), "input 1: needs source, but has 2 parts"),
    (lambda run: run.explain(5), "input 1: source is of type int, not a text"),
    (lambda run: run.explain("a", beam_sise=2), "did you mean 'beam_size'?"),
    (lambda run: run.stream(5), "the text is of type int, not a text"),
    (lambda run: run.align(["a"]), "the source is of type list, not a text"),
    (lambda run: run.align("a", ["b"]), "the target is of type list, not a text"),
    (lambda run: run.align("a", layer="x"), "layer must be a number, not 'x'"),
    (
        lambda run: list(run.score([("a", "b"), ("a",)])),
        "input 2: needs source and target, but has",
    ),
    (lambda run: run.score("ab"), "the input is of type str, not an iterable of texts"),
    (lambda run: run.with_models([5]), "5 is not a loaded run"),
]


@pytest.fixture(scope="module")
def run(run_path: Path) -> Run:
    return transduce.load(run_path, device="cpu")


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_a_mistake_is_one_line(run: Run, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TransduceError, match=re.escape(message)) as mistake:
        call(run)
    assert "\n" not in str(mistake.value)


def test_decoding_settings_are_given_by_name(run: Run) -> None:
    greedy = DecodingOptions(beam_size=1, length_penalty="none")
    one = run("edcba", beam_size=1)  # the other settings are the recipe's
    assert one == run("edcba", greedy) == run("edcba", {"beam_size": 1})
    assert list(run(["edcba"], beam_size=1)) == list(run.predict(["edcba"], beam_size=1)) == [one]
    assert len(run("edcba", greedy, n_best=3).candidates) == 3
    assert run.explain("edcba", beam_size=1).answer == one.text
    scores = run.evaluate(examples=[("edcba", one.text)], beam_size=1).scores
    assert scores["accuracy"] == 100


def test_a_wrong_input_leaves_the_others_alone(run: Run) -> None:
    inputs: Any = ["edcba", None, "abc"]
    first, wrong, last = run.attempt(inputs)
    assert isinstance(first, Translation) and isinstance(last, Translation)
    assert [first.text, last.text] == [run("edcba").text, run("abc").text]
    assert isinstance(wrong, InputError) and wrong.number == 1


def test_alignment_shows_itself_as_a_picture() -> None:
    weights = torch.tensor([[1.0, 0.0], [0.0, 0.5], [0.0, 0.25]])
    alignment = Alignment(("a", "b"), ("x", "<y", "</s>"), weights)
    assert repr(alignment).splitlines() == ["     a b", "   x██  ", "  <y  ▒▒", "</s>  ··"]
    page = alignment._repr_html_()
    assert page.count("<tr>") == 4 and "<th>&lt;y</th>" in page
    assert 'title="0.25" style="background: rgba(31, 119, 180, 0.25)"' in page
