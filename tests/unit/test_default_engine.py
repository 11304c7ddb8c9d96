"""`transduce.load` without a name of an engine: natively, and the network where it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import transduce
from helpers.native import needs_native
from transduce import Run
from transduce.explain.parts import KnockOut

RUNS = Path(__file__).parents[1] / "runs" / "0.1.0"
TEXT = "abcde"

pytestmark = needs_native


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("transduce.runs.arguments.GPUS", ())
    loaded = transduce.load(RUNS / "translation")
    assert loaded.engine == "native"
    return loaded


@pytest.mark.parametrize("task", ["translation", "classification"])
def test_answers_of_both_engines_are_alike(task: str) -> None:
    native = transduce.load(RUNS / task, "cpu")
    assert native.engine == "native"
    network = transduce.load(RUNS / task, "cpu", engine="pytorch")
    texts = ["ab", "bca", "abcde"]
    one, other = ([a.fields() for a in loaded.predict(texts)] for loaded in (native, network))
    for a, b in zip(one, other, strict=True):
        numbers = {name: value for name, value in b.items() if isinstance(value, float)}
        assert a.keys() == b.keys()
        assert {name: a[name] for name in numbers} == pytest.approx(numbers, abs=1e-4)


def test_an_explanation_is_that_of_the_network(run: Run) -> None:
    network = transduce.load(run.path, "cpu", engine="pytorch")
    ours, theirs = run.explain(TEXT), network.explain(TEXT)
    assert ours.answer == theirs.answer
    assert (ours.steps, len(ours.attention)) == (theirs.steps, len(theirs.attention))
    without = KnockOut(heads=("encoder.layers.0.self_attention:1",))
    assert run.explain(TEXT, without=without).steps == network.explain(TEXT, without=without).steps
    assert run.engine == "native"


def test_the_network_computes_once_it_is_asked_for(run: Run) -> None:
    before = run.translate(TEXT)
    with transduce.record_tensors(run.model) as seen:
        recorded = run.translate(TEXT)
    assert run.engine == "pytorch" and seen.logits and seen.attention
    assert recorded.text == before.text
    assert recorded.log_prob == pytest.approx(before.log_prob, abs=1e-4)
    with torch.no_grad():
        run.model.get_parameter("decoder.layers.0.self_attention.output.weight").zero_()
    assert run.translate(TEXT).log_prob != pytest.approx(before.log_prob, abs=1e-4)


def test_an_engine_asked_for_by_name_stays() -> None:
    run = transduce.load(RUNS / "translation", "cpu", engine="native")
    assert isinstance(run.model, torch.nn.Module) and run.engine == "native"


def test_models_beside_it_come_along(run: Run) -> None:
    both = run.with_models([transduce.load(run.path, "cpu")])
    before = both.translate(TEXT)
    assert before.text == run.translate(TEXT).text
    with transduce.record_tensors(both.model) as seen:
        after = both.translate(TEXT)
    assert seen.logits and after.log_prob == pytest.approx(before.log_prob, abs=1e-4)
    assert run.engine == "native"
