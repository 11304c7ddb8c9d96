"""Equal scores: the order that the docstrings promise, the same in every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.live_page import differences, live_explanations, live_of, needs_node
from helpers.native import needs_native
from helpers.predictors import natively
from helpers.random_translator import random_translator
from helpers.toy_search import EOS, SIZE, ToyModel, decode
from transduce import DecodingOptions
from transduce.decoding.hypotheses import FinishedHypotheses, Hypothesis
from transduce.decoding.strategies import keep_top_k, keep_top_p
from transduce.explain.tasks import explain_translation
from transduce.tasks.translation.translator import Translator

BEAM = {"beam_size": 3, "n_best": 3, "min_length": 2, "max_length_ratio": 0.0}
SAMPLE = {"method": "sample", "n_best": 3, "max_length_ratio": 0.0, "max_length_extra": 6}
TIED: list[dict[str, Any]] = [
    {**BEAM, "max_length_extra": 2},
    {**BEAM, "max_length_extra": 4, "stop": "exact"},
    {**BEAM, "max_length_extra": 4, "stop": "present", "length_penalty": "none"},
    {**BEAM, "max_length_extra": 3, "beam_size": 5, "n_best": 5, "length_penalty": "gnmt"},
    {**SAMPLE, "top_k": 3},
    {**SAMPLE, "top_p": 0.2},
    {**SAMPLE, "top_k": 7, "top_p": 0.5, "seed": 4},
]


def indifferent(decoding: dict[str, Any] | None = None) -> Translator:
    """A translator to which all tokens are alike: its logits are zero, whatever it has read."""
    made = random_translator(decoding=decoding, tie="none", output_bias=True, trained=False)
    model: Any = made.model
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    return made


def outputs(translator: Translator, options: dict[str, Any]) -> list[tuple[str, ...]]:
    (translation,) = translator.translate(["w3 w1"], DecodingOptions(**options))
    return [candidate.tokens for candidate in translation.candidates]


def test_a_beam_takes_the_lower_ids() -> None:
    first, *others = outputs(indifferent(), TIED[0])
    tokens = [first, *others]
    assert len(set(tokens)) == 3 and tokens == sorted(tokens)
    assert {row[0] for row in tokens} == {first[0]}, "ties go to the better parent"


@needs_native
@pytest.mark.parametrize("options", TIED, ids=str)
def test_both_engines_order_ties_alike(options: dict[str, Any]) -> None:
    ours = indifferent()
    assert outputs(natively(ours), options) == outputs(ours, options)


@needs_node
@pytest.mark.system
@pytest.mark.parametrize("options", TIED, ids=str)
def test_a_page_orders_ties_alike(options: dict[str, Any], tmp_path: Path) -> None:
    ours = indifferent({**options, "n_best": 1})
    (shown,) = live_explanations(tmp_path, live_of(ours, ""), [("w3 w1",)])
    assert differences(explain_translation(ours, ("w3 w1",)), shown) == []


def test_finished_ones_keep_their_order() -> None:
    finished = FinishedHypotheses(DecodingOptions(beam_size=4, n_best=4))
    for token, score in enumerate((-1.0, -0.5, -1.0, -0.5, -1.0, -1.0)):
        finished.add(Hypothesis([token], score, score, True))
    assert [h.tokens for h in finished.best] == [[1], [3], [0], [2]]


def test_filters_keep_the_lower_ids() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.0, 1.0, 1.0, 0.0]])
    kept = torch.isfinite(keep_top_k(logits, 2))
    assert kept.tolist() == [[False, True, False, True, False, False]]
    kept = torch.isfinite(keep_top_k(logits, 4))
    assert kept.tolist() == [[True, True, False, True, True, False]]
    kept = torch.isfinite(keep_top_p(torch.zeros(1, 8), 0.5))
    assert kept.tolist() == [[True] * 4 + [False] * 4]


def test_a_search_over_ties_is_that_of_lists() -> None:
    model = ToyModel(torch.zeros(1, 4, SIZE, SIZE))
    (result,) = decode(model, [0], 1, beam_size=2, n_best=2, min_length=1)
    assert EOS < 3 and [h.tokens for h in result] == [[3], [4]]
