"""Encode lines of documents, packed into rows or paired with the next line."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.support.work import chunks

READ_TOGETHER = 256
"""Documents tokenised together."""


class EncodedLines:
    """Lines of documents as token ids in memory.

    tokens:    (k,) ids of all lines.
    offsets:   (n + 1,) line i is tokens offsets[i] to offsets[i + 1]; no line is empty.
    documents: (n,) document number of each line, never falling.
    """

    def __init__(
        self,
        texts: Iterable[str],
        encode: Callable[[Sequence[str]], list[list[int]]],
        max_length: int,
    ) -> None:
        """texts: documents.  max_length: maximum tokens of a line; longer lines are split."""
        tokens, ends, documents = array("i"), array("q", [0]), array("q")
        for chunk in chunks(enumerate(texts), READ_TOGETHER):
            lines = [(i, line) for i, text in chunk for line in text.split("\n") if line.strip()]
            rows = encode([line.removesuffix("\r") for _, line in lines])
            for (i, _), ids in zip(lines, rows, strict=True):
                for begin in range(0, len(ids), max_length):
                    tokens.extend(ids[begin : begin + max_length])
                    ends.append(len(tokens))
                    documents.append(i)
        self.tokens = np.frombuffer(tokens, np.int32)
        self.offsets = np.frombuffer(ends, np.int64)
        self.documents = np.frombuffer(documents, np.int64)

    def __len__(self) -> int:
        return len(self.documents)

    def line(self, i: int) -> NDArray[np.int32]:
        """The ids of a line."""
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    def packed(self, max_length: int) -> NDArray[np.int64]:
        """(r, 2) first line and end of rows of lines of a document, as many as
        fit."""
        rows: list[tuple[int, int]] = []
        begin = 0
        for i in range(1, len(self) + 1):
            ends = i == len(self) or self.documents[i] != self.documents[begin]
            if ends or self.offsets[i + 1] - self.offsets[begin] > max_length:
                rows.append((begin, i))
                begin = i
        return np.array(rows, np.int64).reshape(-1, 2)

    def pairs(self) -> NDArray[np.int64]:
        """(p,) lines followed by another line of the same document."""
        return np.flatnonzero(self.documents[:-1] == self.documents[1:])

    def elsewhere(self, line: int, chance: float) -> int:
        """A line of another document than `line`, uniform for a `chance` uniform in [0, 1)."""
        document = self.documents[line]
        first = int(np.searchsorted(self.documents, document))
        end = int(np.searchsorted(self.documents, document, side="right"))
        i = int(chance * (len(self) - (end - first)))
        return i if i < first else i + end - first

    @property
    def n_documents(self) -> int:
        """Number of documents with lines."""
        return len(np.unique(self.documents))


def lengths_of(lines: EncodedLines, rows: NDArray[Any]) -> NDArray[np.int64]:
    """(r,) tokens of each row from `EncodedLines.packed`."""
    lengths: NDArray[np.int64] = lines.offsets[rows[:, 1]] - lines.offsets[rows[:, 0]]
    return lengths
