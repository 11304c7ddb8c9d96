"""Sample of a corpus of any length: evenly spread rows, at most so many, in one pass."""

from __future__ import annotations

from typing import Generic, TypeVar

PAIRS = 40_000
Row = TypeVar("Row")


class Sample(Generic[Row]):
    """Every row of a short corpus; of a longer one every second, fourth, ... row.

    Has between `most` and twice as many rows, unless the corpus has fewer.
    """

    def __init__(self, most: int = PAIRS) -> None:
        self.rows: list[Row] = []
        self._most = most
        self._step = 1
        self._read = 0

    def add(self, row: Row) -> None:
        """Keep the next row, or not."""
        if self._read % self._step == 0:
            self.rows.append(row)
            if len(self.rows) == 2 * self._most:
                del self.rows[1::2]
                self._step *= 2
        self._read += 1
