"""Lines of documents as token ids, packed into rows, or in pairs of consecutive ones."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

READ_TOGETHER = 256
"""Documents that are made tokens of together."""


class EncodedLines:
    """The lines of documents as token ids, in memory, side by side.

    tokens:    (k,) ids of all lines.
    offsets:   (n + 1,) line i is tokens offsets[i] to offsets[i + 1]; no line is empty.
    documents: (n,) number of the document that a line is from; they do not fall.
    """

    def __init__(
        self,
        texts: Iterable[str],
        encode: Callable[[Sequence[str]], list[list[int]]],
        max_length: int,
    ) -> None:
        """texts: documents.  max_length: tokens of a line; what is longer makes several."""
        tokens, ends, documents = array("i"), array("q", [0]), array("q")
        rest = enumerate(texts)
        while chunk := list(itertools.islice(rest, READ_TOGETHER)):
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
        """(r, 2) first line and the one after the last of rows of at most `max_length` tokens.

        A row is filled with the lines of one document while they fit.
        """
        rows: list[tuple[int, int]] = []
        begin = 0
        for i in range(1, len(self) + 1):
            ends = i == len(self) or self.documents[i] != self.documents[begin]
            if ends or self.offsets[i + 1] - self.offsets[begin] > max_length:
                rows.append((begin, i))
                begin = i
        return np.array(rows, np.int64).reshape(-1, 2)

    def pairs(self) -> NDArray[np.int64]:
        """(p,) lines that another line of their document follows."""
        return np.flatnonzero(self.documents[:-1] == self.documents[1:])

    def elsewhere(self, line: int, chance: float) -> int:
        """A line of another document than that of `line`; each is as likely, for a `chance` that
        is drawn evenly from [0, 1).  There must be another document."""
        document = self.documents[line]
        first = int(np.searchsorted(self.documents, document))
        end = int(np.searchsorted(self.documents, document, side="right"))
        i = int(chance * (len(self) - (end - first)))
        return i if i < first else i + end - first

    @property
    def n_documents(self) -> int:
        """Documents that have any line."""
        return len(np.unique(self.documents))


def lengths_of(lines: EncodedLines, rows: NDArray[Any]) -> NDArray[np.int64]:
    """(r,) tokens of each row, given as `EncodedLines.packed` does."""
    lengths: NDArray[np.int64] = lines.offsets[rows[:, 1]] - lines.offsets[rows[:, 0]]
    return lengths
