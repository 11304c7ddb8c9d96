"""Live pages of encoders and of decoders alone: every number of `explain --json`, by task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.live_page import differences, explained, live_explanations, live_of, needs_node
from helpers.random_predictors import (
    random_classifier,
    random_dialogue,
    random_embedder,
    random_filler,
    random_recommender,
)
from transduce.text import CharactersConfig, SubwordConfig, SymbolsConfig, TokenizerConfig

pytestmark = [pytest.mark.system, needs_node]


def differing(
    directory: Path, predictor: Any, texts: list[str], *uncounted: str
) -> list[list[str]]:
    """Differences of the page from Python, for each text; `uncounted`: fields left out."""
    model = live_of(predictor, "")
    shown = live_explanations(directory, model, [(text,) for text in texts])
    expected = [explained(predictor, text) for text in texts]
    return [
        differences(python, {**page, **{name: getattr(python, name) for name in uncounted}})
        for python, page in zip(expected, shown, strict=True)
    ]


@pytest.mark.parametrize(
    ("config", "segments"),
    [
        (SubwordConfig(kind="bpe", size=300), True),
        (SubwordConfig(kind="unigram", size=300), False),
        (CharactersConfig(), False),
        (SymbolsConfig(), False),
    ],
)
def test_masked_tokens(config: TokenizerConfig, segments: bool, tmp_path: Path) -> None:
    filler = random_filler(config, segments)
    texts = [
        "the <mask> sat on the mat",
        "<mask> <mask> in the tr<mask>ee",
        "the cat",
        "<mask>, and ran<mask>",
        "ten cats <mask>",
        " ",
    ]
    assert differing(tmp_path, filler, texts) == [[]] * len(texts)


@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_text_cnn(pooling: str, tmp_path: Path) -> None:
    encoder = {"kind": "text-cnn", "widths": [1, 2, 5]}
    classifier = random_classifier(
        ("good", "bad", "none"), encoder=encoder, pooling=pooling, pooler=False, d_model=50
    )
    texts = ["the cat sat on the mat", "a bird", "cats unknown ten a bird sang in the tree"]
    assert differing(tmp_path, classifier, texts) == [[]] * len(texts)
    (shown,) = live_explanations(tmp_path, live_of(classifier, ""), [(texts[0],)])
    assert len(shown["features"]) == (16 if pooling == "max" else 0)


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("first", False)])
def test_embeddings(pooling: str, normalize: bool, tmp_path: Path) -> None:
    embedder = random_embedder(SubwordConfig(size=300), pooling, normalize)
    # The answer has eight digits of a float32, which are not all alike; the vector is.
    texts = ["the cat sat", "ten birds"]
    assert differing(tmp_path, embedder, texts, "answer") == [[], []]


def test_replies(tmp_path: Path) -> None:
    texts = ["the cat", "a cat\nten dogs\nthe mat", "the tree sang in the mat, and in the tree", ""]
    assert differing(tmp_path, random_dialogue(), texts) == [[]] * len(texts)


def test_recommendations(tmp_path: Path) -> None:
    texts = ["the cat sat", "cats unknown ten a bird sang in the tree on", ""]
    recommender = random_recommender()
    assert differing(tmp_path, recommender, texts) == [[]] * len(texts)
