"""The protocol of front ends: raw input to vectors, below the first stack of every model."""

from typing import Any, Protocol

from transduce.sequence import Padded


class FrontEnd(Protocol):
    """Raw input as vectors; positions belong to the stack.  Token ids are `Padded` (b, t), with
    segments (b, t, 2); frames `Padded` (b, t, bins); images a tensor (b, c, h, w)."""

    def __call__(self, x: Any) -> Padded:
        """Raw input -> vectors (b, t, m)."""
