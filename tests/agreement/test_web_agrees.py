"""The engine in WebAssembly gives the outputs of Python, in Node."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transduce
from helpers.native import needs_native
from helpers.random_translator import random_translator, some_lines
from helpers.web import COMPILING, needs_node, needs_wasm, translated
from transduce.web.page import model_file

pytestmark = [needs_node, needs_wasm, pytest.mark.system, pytest.mark.timeout(COMPILING)]

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
WORDS = ["dog", "hat", "cat", "red", "good", "fine", "film", "sad", "Zürich", "犬", "a", "🙂"]


def lines_of_words(count: int) -> list[str]:
    chance = random.Random(1)
    lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(count)]
    return [*lines, "", " ", "a dog\n\na red hat\r\nsad", " ".join(WORDS * 12)]


def test_lines_of_a_trained_run_are_those_of_python(tmp_path: Path) -> None:
    run = transduce.load(RUN, "cpu", engine="pytorch")
    lines = lines_of_words(200)
    options = dataclasses.replace(run.translator.options, n_best=3)
    python = run.translate_batch(lines, options)
    answers = translated(tmp_path, model_file(run.translator, "run", "float32"), lines, n_best=3)
    for answer, right in zip(answers, python, strict=True):
        assert answer["text"] == right.text
        assert answer["tokens"] == list(right.tokens)
        assert [c["text"] for c in answer["candidates"]] == [c.text for c in right.candidates]
        scores = [[c["score"], c["log_prob"]] for c in answer["candidates"]]
        expected = [[c.score, c.log_prob] for c in right.candidates]
        assert np.allclose(scores, expected, atol=1e-4)


def test_probabilities_and_attention_are_those_of_python(tmp_path: Path) -> None:
    translator = transduce.load(RUN, "cpu").translator
    lines = ["a good hat", "犬 dog"]
    for line, answer in zip(
        lines, translated(tmp_path, model_file(translator, "run", "float32"), lines), strict=True
    ):
        (piece,) = answer["attended"]
        probabilities, attention = zip(*piece, strict=True)
        log_probs = np.log(probabilities)
        assert sum(log_probs) == pytest.approx(answer["log_prob"], abs=1e-4)
        right = translator.attention(line, answer["text"])
        assert np.allclose(attention, right, atol=1e-4)


@needs_native
def test_int8_lines_are_those_of_the_native_engine(tmp_path: Path) -> None:
    lines = lines_of_words(200)
    native = transduce.load(RUN, engine="native", precision="int8").translate_batch(lines)
    file = model_file(transduce.load(RUN, "cpu").translator, "run", "int8")
    answers = translated(tmp_path, file, lines)
    assert [a["text"] for a in answers] == [b.text for b in native]
    assert [a["score"] for a in answers] == [b.score for b in native]


@pytest.mark.parametrize(
    ("encoder", "decoder", "model"),
    [
        ({"positions": "rotary", "norm_order": "pre"}, {"positions": "alibi"}, {}),
        ({"activation": "swiglu"}, {"activation": "gelu"}, {"tie": "none"}),
        ({"positions": "learned", "embedding_norm": True}, {"positions": "learned"}, {}),
        ({"activation": "gelu-tanh"}, {"activation": "silu", "norm_order": "pre"}, {}),
    ],
)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_every_kind_of_model(
    tmp_path: Path, encoder: Any, decoder: Any, model: Any, beam_size: int
) -> None:
    decoding = {"beam_size": beam_size, "max_length_extra": 10, "length_penalty": "mean"}
    translator = random_translator(encoder, decoder, decoding=decoding, **model)
    lines = some_lines()
    answers = translated(tmp_path, model_file(translator, "run", "float32"), lines)
    assert [answer["text"] for answer in answers] == [
        right.text for right in translator.translate(lines)
    ]
