"""Repeated lines of any number, in flat memory: keys sorted on disk, a bucket at a time."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BUCKETS = 256
"""Files of keys.  One is sorted at a time: of 20 million lines 80,000 keys, 1.3 MB."""
PENDING = 1 << 16
"""Keys in memory before they are written."""
NO_KEY = 0
_RECORD = np.dtype([("key", "<u8"), ("line", "<i8")])


class Repeats:
    """First line with the same 64-bit key, for each line.

    Takes 24 bytes a line on disk, in `directory`.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._keys: list[int] = []
        self._lines = 0

    def add(self, key: int) -> None:
        """Key of the next line; lines with `NO_KEY` equal none."""
        self._keys.append(key)
        if len(self._keys) == PENDING:
            self._write()

    def firsts(self) -> NDArray[np.int64]:
        """(lines,) Number of the first line with the same key, in a file mapped to memory."""
        self._write()
        path = self._directory / f"{self._name}.firsts"
        firsts = np.memmap(path, np.int64, "w+", shape=max(self._lines, 1))
        for at in range(0, len(firsts), PENDING):
            firsts[at : at + PENDING] = np.arange(at, min(at + PENDING, len(firsts)))
        for bucket in range(BUCKETS):
            if not (path := self._bucket(bucket)).exists():
                continue
            records = np.fromfile(path, _RECORD)
            path.unlink()
            records = records[np.argsort(records["key"], kind="stable")]
            _, begin, group = np.unique(records["key"], return_index=True, return_inverse=True)
            firsts[records["line"]] = records["line"][begin][group]
        return firsts

    def _bucket(self, number: int) -> Path:
        return self._directory / f"{self._name}.{number}"

    def _write(self) -> None:
        records = np.empty(len(self._keys), _RECORD)
        records["key"] = np.array(self._keys, np.uint64)
        records["line"] = np.arange(self._lines, self._lines + len(records))
        self._lines += len(records)
        self._keys = []
        records = records[records["key"] != NO_KEY]
        buckets = records["key"] >> np.uint64(56)
        for bucket in np.unique(buckets):
            with self._bucket(int(bucket)).open("ab") as file:
                records[buckets == bucket].tofile(file)


class _Folded(dict[int, int | None]):
    """Table of `str.translate` without punctuation, blanks and control characters."""

    def __missing__(self, code: int) -> int | None:
        dropped = unicodedata.category(chr(code))[0] in "PZC"
        self[code] = None if dropped else code
        return self[code]


_FOLDED = _Folded()


def folded(text: str) -> str:
    """A text without case, punctuation and blanks; unchanged if nothing else is in it."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_FOLDED) or text.strip()
