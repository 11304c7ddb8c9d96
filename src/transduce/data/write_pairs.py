"""Pairs from Python, written as a file that recipes can name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from transduce.errors import DataError, writing


def write_pairs(pairs: Iterable[tuple[str, str]], path: str | os.PathLike[str]) -> Path:
    """Write (source, target) pairs, read once, as JSON lines, the format `jsonl` of a recipe's
    data.

    The file appears complete or not at all.  Raises DataError if there are no pairs, for a pair
    that is not two texts, or if the file cannot be written.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    empty = True
    try:
        with writing(path):
            file = aside.open("w", encoding="utf-8", newline="\n")
        with file:
            for line in _lines(pairs):
                empty = False
                with writing(path):
                    file.write(line)
            with writing(path):
                file.flush()
                os.fsync(file.fileno())
        if empty:
            raise DataError(f"there are no pairs to write to {path}")
        with writing(path):
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def _lines(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for number, pair in enumerate(pairs, start=1):
        texts = tuple(pair) if isinstance(pair, tuple | list) else ()
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise DataError(f"pair {number} is not two texts, source and target: {pair!a:.80}")
        line = json.dumps(dict(zip(("source", "target"), texts, strict=True)), ensure_ascii=False)
        try:
            line.encode()
        except UnicodeEncodeError:
            raise DataError(f"pair {number} is not valid Unicode: {pair!a:.80}") from None
        yield line + "\n"
