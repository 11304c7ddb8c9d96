"""Vocabulary shortlists: restrict the output to likely target tokens of a source.

The output layer and all operations on its logits become cheaper in proportion.  The probabilities
of a sentence are over its own list, so that results do not depend on the batch.  Imports neither
torch nor NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.text.tokenizer import EOS, SPECIAL_TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.integer[Any]]

N_SPECIAL = len(SPECIAL_TOKENS)


class TokenRows:
    """Table of token ids (n, width) in a buffer of int32, which is read row by row."""

    def __init__(self, numbers: memoryview, width: int) -> None:
        self._numbers = numbers
        self._width = width

    def __len__(self) -> int:
        return len(self._numbers) // self._width

    def __getitem__(self, row: int) -> memoryview:
        return self._numbers[row * self._width : (row + 1) * self._width]


class Shortlist(NamedTuple):
    """Likely target tokens (source vocabulary, k) of each source token, -1 where there are fewer;
    frequent tokens (n,) of every sentence; `joint` if a source's own tokens may be copied; `size`
    of the target vocabulary."""

    likely: Ints | TokenRows
    frequent: Ints | memoryview
    joint: bool
    size: int

    def of(self, source: Sequence[int]) -> list[int]:
        """Target ids allowed for a source, ascending, including the special ones."""
        ids = {EOS, *source}
        allowed = {*range(N_SPECIAL), *self.frequent.tolist(), *(ids if self.joint else ())}
        for token in ids:
            allowed.update(self.likely[token].tolist())
        return sorted(allowed - {-1})

    def rows(self) -> list[list[int]]:
        """The likely tokens of every source token."""
        return [self.likely[token].tolist() for token in range(len(self.likely))]
