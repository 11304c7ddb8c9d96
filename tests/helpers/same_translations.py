"""Two engines with the same weights: model shapes to try, and the comparison of their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from transduce import Translation

SHORT = {"max_length_ratio": 1.0, "max_length_extra": 3}


def both(**stack: Any) -> dict[str, Any]:
    """The same settings for encoder and decoder."""
    return {"encoder": stack, "decoder": stack}


SHAPES: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "pre-norm": both(norm_order="pre"),
    "marian": {**both(positions="sinusoidal-halves", activation="silu"), "output_bias": True},
    "two-way, learned": {**both(positions="learned", activation="gelu"), "tie": "two-way"},
    "untied, unscaled": {
        **both(activation="gelu-tanh", norm_order="pre"),
        "tie": "none",
        "scale_embeddings": False,
    },
    "rotary, gated": both(positions="rotary", activation="swiglu", norm_order="pre"),
    "unlike sides": {
        "encoder": {"n_layers": 3, "n_heads": 4, "norm_order": "pre", "positions": "learned"},
        "decoder": {"n_layers": 1, "activation": "swiglu", "d_ff": 32, "positions": "rotary"},
    },
}


def assert_same(ours: Sequence[Translation], theirs: Sequence[Translation]) -> None:
    """The same tokens and texts; log-probabilities and scores to 1e-4."""
    for own, other in zip(ours, theirs, strict=True):
        assert [c.parts for c in other.candidates] == [c.parts for c in own.candidates]
        assert other.text == own.text
        for a, b in zip(own.candidates, other.candidates, strict=True):
            assert b.log_prob == pytest.approx(a.log_prob, abs=1e-4)
            assert b.score == pytest.approx(a.score, abs=1e-4)
