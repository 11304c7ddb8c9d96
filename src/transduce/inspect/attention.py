"""Attention weights of a model, recorded while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from transduce.nn.attention import record_into


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Record the weights of every attention within the context; results do not change.

    Yields a dict from the attention's name, such as `decoder.layers.0.cross_attention`, to a list
    with one tensor (b, h, t, s) per call.  In beam search, cross-attention has the k hypotheses of
    a sentence in one row: (n, h, k·t, s).
    """
    try:
        yield record_into(model, on=True)
    finally:
        record_into(model, on=False)
