"""Parts of a Transformer under Marian's own names, those of its `.npz` and `.bin` files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SETTINGS = "special:model.yml"
"""Name of the settings among the tensors."""
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
"""Names in Marian."""
EPSILON = 1e-6
"""Of every layer norm there."""


class Linear(NamedTuple):
    """A linear layer here, and its matrices (inputs, outputs) and biases there, side by side."""

    ours: str
    weights: tuple[str, ...]
    biases: tuple[str, ...]


class Norm(NamedTuple):
    """A layer norm here; there, a scale and a bias of this prefix."""

    ours: str
    theirs: str


def layer_parts(side: str, number: int, recurrent: bool) -> Iterator[Linear | Norm]:
    """Parts of a layer, from 0, of the encoder or decoder.  recurrent: of a decoder with SSRU."""
    ours, theirs = f"{side}.layers.{number}.", f"{side}_l{number + 1}_"
    if recurrent and side == "decoder":
        yield Linear(f"{ours}recurrence.candidate", (f"{theirs}rnn_W",), ())
        yield _linear(f"{ours}recurrence.forget", f"{theirs}rnn_", "f")
        yield Norm(f"{ours}recurrence_residual.norm", f"{theirs}rnn_ffn_ln")
    else:
        yield _linear(f"{ours}self_attention.query_key_value", f"{theirs}self_", "q", "k", "v")
        yield _linear(f"{ours}self_attention.output", f"{theirs}self_", "o")
        yield Norm(f"{ours}self_attention_residual.norm", f"{theirs}self_Wo_ln")
    if side == "decoder":
        yield _linear(f"{ours}cross_attention.query", f"{theirs}context_", "q")
        yield _linear(f"{ours}cross_attention.key_value", f"{theirs}context_", "k", "v")
        yield _linear(f"{ours}cross_attention.output", f"{theirs}context_", "o")
        yield Norm(f"{ours}cross_attention_residual.norm", f"{theirs}context_Wo_ln")
    yield _linear(f"{ours}feed_forward.inner", f"{theirs}ffn_", "1")
    yield _linear(f"{ours}feed_forward.outer", f"{theirs}ffn_", "2")
    yield Norm(f"{ours}feed_forward_residual.norm", f"{theirs}ffn_ffn_ln")


def _linear(ours: str, prefix: str, *names: str) -> Linear:
    return Linear(
        ours,
        tuple(f"{prefix}W{name}" for name in names),
        tuple(f"{prefix}b{name}" for name in names),
    )
