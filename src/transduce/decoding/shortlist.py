"""Vocabulary shortlists: restrict the output to likely target tokens of a source.

The output layer and all operations on its logits become cheaper in proportion.  The probabilities
of a sentence are over its own list, so that results do not depend on the batch.  Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.text.tokenizer import EOS, SPECIAL_TOKENS

Ints = NDArray[np.integer[Any]]
N_SPECIAL = len(SPECIAL_TOKENS)


class Shortlist(NamedTuple):
    """Likely target tokens (source vocabulary, k) of each source token, -1 where there are fewer;
    frequent tokens (n,) of every sentence; `joint` if a source's own tokens may be copied; `size`
    of the target vocabulary."""

    likely: Ints
    frequent: Ints
    joint: bool
    size: int

    def of(self, source: Sequence[int]) -> Ints:
        """(u,) target ids allowed for a source, ascending, including the special ones."""
        ids = np.array([EOS, *source])
        allowed = np.zeros(self.size + 1, bool)  # the last is -1
        allowed[:N_SPECIAL] = allowed[self.frequent] = allowed[self.likely[ids]] = True
        if self.joint:
            allowed[ids] = True
        return np.flatnonzero(allowed[:-1])
