"""Live pages of stacks beside the Transformer: every number of `explain --json`, for each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.live_page import differences, live_explanations, live_of, needs_node
from helpers.random_predictors import random_classifier, random_generator
from helpers.random_translator import CONVOLUTION, MEMORY, untrained
from helpers.random_translator import RECURRENT as LSTM
from transduce.explain.tasks import (
    explain_classification,
    explain_generation,
    explain_translation,
)

pytestmark = [pytest.mark.system, needs_node]

GRU: dict[str, Any] = {**LSTM, "cell": "gru"}


def context(kind: str, **settings: Any) -> dict[str, Any]:
    return {"context": {"kind": kind, **settings}}


TRANSLATORS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Sutskever": (
        {**LSTM, "n_layers": 2, "bidirectional": False},
        {**LSTM, **context("fixed", every_step=False), "n_layers": 2, "summary": "last"},
    ),
    "Cho": ({**GRU, "bidirectional": False}, {**GRU, **context("fixed"), "summary": "last"}),
    "Bahdanau": (
        GRU,
        {**GRU, **context("additive", input_feeding="context"), "summary": "both-ends"},
    ),
    "Luong": (
        {**LSTM, "n_layers": 2},
        {**LSTM, **context("general", input_feeding="attentional"), "n_layers": 2},
    ),
    "dot, behind the recurrence": (LSTM, {**GRU, **context("dot")}),
    "additive and narrow, behind the recurrence": (GRU, {**LSTM, **context("additive", width=5)}),
    "ConvS2S": (
        {**CONVOLUTION, "positions": "learned", "max_positions": 30},
        {**CONVOLUTION, "max_positions": 40},
    ),
    "dilated, sinusoids": (
        {**CONVOLUTION, "dilation_growth": 2, "n_layers": 3, "positions": "sinusoidal"},
        {**CONVOLUTION, "width": 2, "positions": "none"},
    ),
    "convolutions under a Transformer": (CONVOLUTION, {}),
    "a Transformer under an LSTM": ({}, LSTM),
}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translations(name: str, tmp_path: Path) -> None:
    translator = untrained(*TRANSLATORS[name], beam_size=3)
    texts = [("w3 w1 w4 w1 w5 w9",), ("w7",), ("unknown w2 w2",), (" ",)]
    shown = live_explanations(tmp_path, live_of(translator, ""), texts)
    for text, page in zip(texts, shown, strict=True):
        assert differences(explain_translation(translator, text), page) == []


@pytest.mark.parametrize(
    "decoder",
    [LSTM, GRU, {**CONVOLUTION, "width": 4}, {**MEMORY, "max_age": 4}, {**MEMORY, "window": 1}],
    ids=lambda decoder: f"{decoder['kind']} {len(decoder)}",
)
def test_continuations(decoder: dict[str, Any], tmp_path: Path) -> None:
    generator = random_generator(decoder)
    texts = [("the cat sat on",), ("",), ("a bird sang in the tree",)]
    shown = live_explanations(tmp_path, live_of(generator, ""), texts)
    for text, page in zip(texts, shown, strict=True):
        assert differences(explain_generation(generator, text), page) == []


@pytest.mark.parametrize(
    "encoder",
    [LSTM, {**CONVOLUTION, "positions": "none"}, MEMORY, {**MEMORY, "max_age": 2}],
    ids=lambda encoder: f"{encoder['kind']} {len(encoder)}",
)
def test_labels(encoder: dict[str, Any], tmp_path: Path) -> None:
    classifier = random_classifier(("good", "bad", "none"), encoder=encoder, pooling="first")
    texts = [("the cat sat on the mat",), ("a",), ("cats unknown ten a bird",)]
    shown = live_explanations(tmp_path, live_of(classifier, ""), texts)
    for text, page in zip(texts, shown, strict=True):
        assert differences(explain_classification(classifier, text), page) == []
