"""Outputs of CTranslate2 with the weights of a translator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from transduce.decoding.options import DecodingOptions
from transduce.interop.ctranslate2 import library, write_ctranslate2
from transduce.nn.precision import Precision
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, PAD, SPECIAL_TOKENS

LEAST = 4
LONGEST = 30
"""Tokens of an output, at least and at most."""
POSITIONS = 1024


def ctranslate2_model(
    translator: Translator, directory: Path, precision: Precision = "float32"
) -> Any:
    """A `ctranslate2.Translator` whose tokens are named by their ids."""
    pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")
    directory.mkdir()
    write_ctranslate2(
        translator.model,
        translator.recipe.model,
        directory,
        _names(translator.source.size),
        _names(translator.target.size),
        POSITIONS,
        precision,
    )
    return library().Translator(str(directory), compute_type=precision, intra_threads=1)


def assert_same_outputs(model: Any, translator: Translator, lines: Sequence[str]) -> None:
    """Greedy outputs have the same tokens, those of a beam the same log-probability to 1e-4."""
    source, target = _names(translator.source.size), _names(translator.target.size)
    sources = [[source[i] for i in translator.source.encode(line)] for line in lines]
    translations = model.translate_batch(
        sources,
        beam_size=1,
        min_decoding_length=LEAST,
        max_decoding_length=LONGEST,
        suppress_sequences=[[SPECIAL_TOKENS[i]] for i in (PAD, BOS)],
    )
    greedy = DecodingOptions(
        beam_size=1, min_length=LEAST, max_length_ratio=0.0, max_length_extra=LONGEST
    )
    expected = [
        [target[i] for i in t.candidates[0].parts[0]] for t in translator.translate(lines, greedy)
    ]
    assert [result.hypotheses[0] for result in translations] == expected
    assert all(len(tokens) >= LEAST for tokens in expected)
    best = translator.translate(lines, DecodingOptions(beam_size=4, max_length_ratio=1.0))
    scores = model.score_batch(
        sources, [[target[i] for i in t.candidates[0].parts[0]] for t in best]
    )
    for translation, score in zip(best, scores, strict=True):
        assert sum(score.log_probs) == pytest.approx(translation.log_prob, abs=1e-4)


def _names(size: int) -> list[str]:
    return [*SPECIAL_TOKENS, *map(str, range(len(SPECIAL_TOKENS), size))]
