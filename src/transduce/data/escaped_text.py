"""Detect escaped texts: HTML and Moses entities, quotation marks of spreadsheets.

Read unchanged, they would be learned as text; a warning names the setting that decodes them.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from transduce.data.lines import warn_once

ROWS_TO_JUDGE = 1000
"""Rows examined before the share of escaped rows is judged."""
QUOTED_SHARE = 0.9
MIN_QUOTED = 3
ENTITY_SHARE = 0.01
_QUOTED = re.compile('"(?:[^"]|"")*"')
_ENTITY = re.compile(r"&(?:\w+|#\d+|#[xX][0-9a-fA-F]+);")
_USUAL = re.compile(r"&(?:quot|apos|amp|lt|gt|nbsp|#\d{2,5}|#[xX][0-9a-fA-F]{2,4});")


def unescaped(text: str) -> str:
    """Decode entities such as `&quot;`; control characters, such as line ends, become spaces."""
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(entity: re.Match[str]) -> str:
    character = html.unescape(entity[0])
    return " " if len(character) == 1 and ord(character) < ord(" ") else character


class Entities:
    """Warn about entities in texts read unchanged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._escaped = 0
        self._rows = 0
        self._example = ""

    def look_at(self, *texts: str) -> None:
        """Record the texts of a row."""
        self._rows += 1
        if self._rows > ROWS_TO_JUDGE:
            return
        match = next((m for text in texts if "&" in text and (m := _USUAL.search(text))), None)
        if match is not None:
            self._escaped += 1
            self._example = match[0]
        if self._rows == ROWS_TO_JUDGE:
            self.look_back()

    def look_back(self) -> None:
        """Warn if many rows so far have entities."""
        rows = min(self._rows, ROWS_TO_JUDGE)
        if self._escaped and self._escaped >= ENTITY_SHARE * rows:
            warn_once(
                f"{self._name}: {self._escaped} of the first {rows} rows contain entities such as "
                f"{self._example}, kept as plain text; set unescape = true in this section of the "
                "recipe to decode them"
            )


class QuotedCells:
    """Warn about quoted cells in a file that is read without quoting."""

    def __init__(self, path: Path, columns: Sequence[int | str]) -> None:
        self._path = path
        self._columns = columns
        self._quoted = [0] * len(columns)
        self._rows = 0

    def look_at(self, row: Sequence[str], line: int) -> None:
        """Record the cells of a row; warn at once about doubled quotation marks."""
        self._rows += 1
        for i, cell in enumerate(row):
            if cell.startswith('"') and _QUOTED.fullmatch(cell):
                self._quoted[i] += 1
                if '""' in cell[1:-1]:
                    self._warn(i, f"such as {cell[:40]} in line {line}")
        if self._rows == ROWS_TO_JUDGE:
            self.look_back()

    def look_back(self) -> None:
        """Warn about columns with nearly all cells quoted so far."""
        for i, count in enumerate(self._quoted):
            if count >= MIN_QUOTED and count >= QUOTED_SHARE * self._rows:
                self._warn(i, f"{count} of the first {self._rows}")

    def _warn(self, i: int, cells: str) -> None:
        if self._quoted[i] < 0:
            return
        warn_once(
            f"{self._path}: column {self._columns[i]!r} has quoted cells ({cells}), and the "
            'quotation marks are kept; to remove them, use kind = "csv" with delimiter = "\\t"'
        )
        self._quoted[i] = -sys.maxsize  # enough of this column
