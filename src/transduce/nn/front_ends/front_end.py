"""The protocol of front ends: raw input to vectors, below the first stack of every model.

The wirings in `models/` depend on this protocol alone.  A new front end is a file here, named in
the function that builds a model with it.
"""

from __future__ import annotations

from typing import Any, Protocol

from transduce.sequence import Padded


class FrontEnd(Protocol):
    """Raw input as vectors, one for each position.  Positions themselves belong to the stack.

    Token ids are `Padded` (b, t), with segments (b, t, 2); frames are `Padded` (b, t, bins); images
    are a tensor (b, c, h, w).
    """

    def __call__(self, x: Any) -> Padded:
        """Raw input -> vectors (b, t, m)."""
