"""Live pages of stacks beside the Transformer: every number of `explain --json`, for each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.live_page import differences, live_explanations, live_of, needs_node
from helpers.random_predictors import random_classifier, random_generator
from helpers.random_translator import random_translator
from transduce.explain.tasks import (
    explain_classification,
    explain_generation,
    explain_translation,
)

pytestmark = [pytest.mark.system, needs_node]

LSTM: dict[str, Any] = {"kind": "recurrent", "dropout": 0.0}
GRU: dict[str, Any] = {**LSTM, "cell": "gru"}
CONVOLUTION: dict[str, Any] = {"kind": "convolution", "n_layers": 2, "dropout": 0.0}
MEMORY: dict[str, Any] = {"kind": "memory-network", "window": 3, "hops": 2, "dropout": 0.0}


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
    translator = random_translator(*TRANSLATORS[name], trained=False, decoding=SHORT)
    texts = [("w3 w1 w4 w1 w5 w9",), ("w7",), ("unknown w2 w2",), (" ",)]
    shown = live_explanations(tmp_path, live_of(translator, ""), texts)
    for text, page in zip(texts, shown, strict=True):
        assert differences(explain_translation(translator, text), page) == []


SHORT = {"max_length_ratio": 1.0, "max_length_extra": 3, "beam_size": 3}
"""Of untrained models, which hardly end."""


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
