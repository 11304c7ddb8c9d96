"""Columns of a table: chosen by names of languages and of sides, and by their contents."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from transduce.errors import DataError, SettingError
from transduce.localise.plain import SOURCES, TARGETS
from transduce.text.languages import language_of, languages_of_texts
from transduce.text.scripts import script_of

LANGUAGE = re.compile(r"[a-z]{2}(?:[-_][a-z]{2,4})?")
MAX_LABELS = 100
MOSTLY = 0.9
"""Share of the cells of a column, at least, that are of its kind."""
RELATED, ABOUT = 0.3, 0.15
"""Correlation of the lengths of two sides, at least, and its distance from the best pair of columns
up to which a pair further left is chosen."""
MANY = 20
"""Rows, at least, that tell a header from a row."""
MARKS = "\u200b\u200e\u200f\u2066\u2067\u2068\u2069\ufeff"
"""Invisible marks around a heading, mostly of direction."""
SPELT = 40
"""Different words, at least, of texts that do not spell out numbers or dates."""
SOURCE_NAMES = (
    *(*SOURCES, "text", "sentence", "word", "src", "input", "question"),
    *("原文", "源文", "源语言", "文本", "句子", "问题", "المصدر", "النص", "النص الأصلي", "السؤال"),
    *("स्रोत", "मूल", "मूल पाठ", "पाठ", "वाक्य", "प्रश्न"),
)
TARGET_NAMES = (
    *(*TARGETS, "tgt", "output", "label", "class", "category", "answer"),
    *("译文", "翻译", "目标语言", "标签", "类别", "答案", "अनुवाद", "लक्ष्य", "लेबल", "श्रेणी", "उत्तर"),
    *("الترجمة", "الهدف", "التصنيف", "الفئة", "الجواب"),
)
IDS = frozenset(
    (
        *(
            "id",
            "ids",
            "no",
            "nr",
            "num",
            "number",
            "#",
            "key",
            "keys",
            "index",
            "idx",
            "row",
            "line",
        ),
        *("uid", "uuid", "guid", "identifier", "string_id", "msgctxt", "name", "date", "time"),
        *("timestamp", "created", "modified", "updated", "year", "score", "author", "reviewer"),
        *("user", "translator", "status", "state", "comment", "comments", "note", "notes"),
        *("remark", "remarks", "context", "file", "url", "link", "license", "licence"),
        *("attribution", "编号", "序号", "日期", "备注"),
    )
)
"""Names of columns that are no side of a pair."""

ColumnKind = Literal["text", "label", "code", "features", "number", "date", "key", "constant"]
Cells = list[str]

_FEATURES = re.compile(r"[A-Z0-9][A-Za-z0-9()+,./:_-]*(;[A-Z0-9][A-Za-z0-9()+,./:_-]*)*")
_CODE = re.compile(r"[a-z]{2,3}([_-][a-z]{2,8})?")
_NUMBER = re.compile(r"[+\-−]?[$€£]?\d[\d.,'’_]*([eE][+-]?\d+)?\s?[%€$]?")
_DATE = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}"
    r"([T ]\d{1,2}:\d{2}(:\d{2})?([.,]\d+)?\s?(Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}:\d{2}(:\d{2})?([.,]\d+)?"
)
_KEY = re.compile(
    r"(?=.*[A-Za-z])(?=.*([\d._/:#@\\]|[a-z][A-Z]))[\w.:/#@\\~?=&%+\-\[\]]+", re.ASCII
)
_WORD = re.compile(r"[^\W\d_]+")
MEANINGS: dict[ColumnKind, str] = {
    "text": "texts",
    "label": "labels",
    "code": "codes",
    "features": "features",
    "number": "numbers",
    "date": "dates",
    "key": "keys",
    "constant": "one text alone, or nothing",
}


class Columns(NamedTuple):
    """Columns of a table: source, target, and tags before the source; rows of the header.

    languages: codes of source and target, empty where the header names none.  named: the columns
    chosen and the others, in words.
    """

    source: int
    target: int
    tags: tuple[int, ...]
    header: int
    languages: tuple[str, str] = ("", "")
    named: str = ""


class _Table:
    """Sample of a table: its header, and the cells and kinds of its columns."""

    def __init__(self, rows: Sequence[Cells]) -> None:
        width = Counter(map(len, rows[1:] or rows)).most_common(1)[0][0] if rows else 0
        every = [row for row in rows if len(row) == width]
        body = every[1:] if every and every[0] is rows[0] and len(every) > 1 else every
        self.cells = [[row[at] for row in body] for at in range(width)]
        self.kinds = [kind_of_column(column) for column in self.cells]
        self.head = [_heading(cell) for cell in rows[0]] if rows else []
        self.header = int(len(self.head) == width and self._has_header())
        if not self.header:
            self.cells = [[row[at] for row in every] for at in range(width)]
            self.kinds = [kind_of_column(column) for column in self.cells]
            self.head = []
        lowered = [cell.casefold() for cell in self.head] or [""] * width
        self.lowered = lowered
        self.languages = [language_of(cell) or "" for cell in self.head] or [""] * width

    def take_header(self, names: Sequence[str]) -> None:
        """Take the first row for a header that has all of some names."""
        first = [_heading(column[0]) for column in self.cells if column]
        if (
            not names
            or self.header
            or not {*map(str.casefold, names)} <= {*map(str.casefold, first)}
        ):
            return
        self.head, self.header = first, 1
        self.cells = [column[1:] for column in self.cells]
        self.kinds = [kind_of_column(column) for column in self.cells]
        self.lowered = [cell.casefold() for cell in first]
        self.languages = [language_of(cell) or "" for cell in first]

    def detect_languages(self) -> None:
        """Detect the languages of texts whose heading names none."""
        unknown = [
            at
            for at, kind in enumerate(self.kinds)
            if kind == "text" and not self.languages[at] and self.lowered[at] not in IDS
        ]
        for at, code in zip(
            unknown, languages_of_texts([self.cells[at] for at in unknown]), strict=True
        ):
            self.languages[at] = code

    def _has_header(self) -> bool:
        """True for a first row of names, or of cells of another kind than those below."""
        lowered = [cell.casefold() for cell in self.head]
        columns = list(zip(lowered, self.cells, self.kinds, strict=True))
        if any(cell and cell in map(str.casefold, below) for cell, below, _ in columns):
            return False
        names = {*SOURCE_NAMES, *TARGET_NAMES}
        codes = [bool(LANGUAGE.fullmatch(cell)) for cell in lowered]
        languages = sum(language_of(cell) is not None for cell in self.head)
        unlike = any(
            kind_of_cell(cell) != kind
            if kind in ("number", "date", "key")
            else (kind in ("label", "code", "constant") and any(map(str.strip, below)))
            or (kind == "text" and _is_of_other_script(cell, below))
            for cell, below, kind in columns
            if cell and len(below) >= MANY
        )
        known = sum(cell in names or cell in IDS for cell in lowered)
        some = len(columns) > 1 and languages + known > 1
        codes_alone = len(lowered) > 1 and len({*lowered}) == len(lowered) and all(codes)
        return unlike or some or codes_alone or any(cell in names for cell in lowered)

    def name(self, at: int) -> str:
        """Name of a column in messages, with its number from 1."""
        return f"{at + 1} ({self.head[at]})" if self.head and self.head[at] else str(at + 1)

    def named(self, names: Sequence[str], language: str = "") -> int | None:
        """First column with one of some names, or a language."""
        for at, cell in enumerate(self.lowered):
            if cell in names or (language and language in (cell, self.languages[at])):
                return at
        return None

    def relation(self, source: int, target: int) -> float:
        """Correlation of the logarithms of the lengths of two columns; zero if too often blank."""
        both = [
            (len(s), len(t))
            for s, t in zip(self.cells[source], self.cells[target], strict=True)
            if s.strip() and t.strip()
        ]
        if len(both) < max(2, len(self.cells[source]) // 2):
            return -1.0
        lengths = np.log1p(np.array(both, float)).T
        if min(lengths.std(axis=1)) < 1e-9:
            return 0.0
        return float(np.corrcoef(lengths)[0, 1])

    def spells_out(self, number: int, text: int) -> bool:
        """True for texts that write whole numbers or dates in words: they have few words, and more
        of them for more digits."""
        numbers, texts = self.cells[number], self.cells[text]
        words = {word.casefold() for cell in texts for word in _WORD.findall(cell)}
        if len(words) > max(SPELT, len(texts) // 2):
            return False
        if 2 * sum("." in cell for cell in numbers) > len(numbers):
            return False
        return len({*map(len, numbers)}) == 1 or self.relation(number, text) >= RELATED


def columns_of(
    rows: Sequence[Cells], name: str, language: str = "", chosen: Sequence[str] = ()
) -> Columns:
    """Columns of source and target: by the header if there is one, else by their contents.

    rows: the first of a table.  name: of the table, in messages.  language: code of the target
    language.  chosen: names or numbers, from 1, of source and target.  Raises DataError for a table
    without two columns of texts, or of texts and labels, with the kind of each column, and
    SettingError for a chosen column that there is not.
    """
    table = _Table(rows)
    if chosen:
        table.take_header([column for column in chosen if not column.isdecimal()])
        source, target = (_chosen(table, column, name) for column in chosen)
        if source == target:
            raise SettingError(f"--columns {' '.join(chosen)}: {name} has one such column, not two")
        pair: tuple[int, int, tuple[int, ...]] | None = (source, target, ())
    else:
        is_named = None not in (table.named(SOURCE_NAMES), table.named(TARGET_NAMES))
        if language and language not in table.languages and not is_named:
            table.detect_languages()
        pair = _by_names(table, language) or _by_content(table)
    if pair is None:
        contents = "; ".join(
            f"column {table.name(at)}: {MEANINGS[kind]}" for at, kind in enumerate(table.kinds)
        )
        raise DataError(
            f"{name}: no two columns of texts, or of texts and labels ({contents or 'no rows'}); "
            "name them source and target in a first row"
        )
    source, target, tags = pair
    sides = table.languages[source], table.languages[target]
    if not chosen and language and language == sides[0] != sides[1]:
        source, target = target, source
    others = [at for at in range(len(table.kinds)) if at not in (source, target, *tags)]
    named = f"column {table.name(source)} -> column {table.name(target)}"
    if tags:
        named += f", tags of {', '.join(map(table.name, tags))}"
    if others:
        left = (f"{table.name(at)}: {MEANINGS[table.kinds[at]]}" for at in others)
        named += f"; not read: {', '.join(left)}"
    languages = table.languages[source], table.languages[target]
    return Columns(source, target, tags, table.header, languages, named)


def _chosen(table: _Table, column: str, name: str) -> int:
    """Number of a column by its name or language, or its number from 1.  Raises SettingError."""
    at = table.named([column.casefold()], language_of(column) or "")
    if at is None and column.isdecimal() and 1 <= int(column) <= len(table.kinds):
        at = int(column) - 1
    if at is None:
        every = ", ".join(map(table.name, range(len(table.kinds)))) or "none"
        raise SettingError(f"--columns {column}: {name} has no such column; its columns: {every}")
    return at


def _by_names(table: _Table, language: str) -> tuple[int, int, tuple[int, ...]] | None:
    """Columns named source and target, or by languages."""
    if not any((table.header, *table.languages)):
        return None
    source, target = table.named(SOURCE_NAMES), table.named(TARGET_NAMES)
    spoken = [
        at
        for at, code in enumerate(table.languages)
        if code and table.kinds[at] in ("text", "label", "features")
    ]
    if language:
        target = next((at for at in spoken if table.languages[at] == language), target)
    if source is not None and target is not None and source != target:
        return source, target, ()
    side = target if source is None else source
    others = [at for at in spoken if at != side]
    if side is not None and others:
        return (side, others[0], ()) if target is None else (others[0], side, ())
    if side is None and len(spoken) > 1:
        return spoken[0], spoken[1], ()
    return None


def _by_content(table: _Table) -> tuple[int, int, tuple[int, ...]] | None:
    """Columns by their kinds, and by the relation of their lengths."""
    kinds, lowered = table.kinds, table.lowered
    texts = [at for at, kind in enumerate(kinds) if kind == "text" and lowered[at] not in IDS]
    if len(texts) < 2:
        texts = [at for at, kind in enumerate(kinds) if kind == "text"]
    texts = texts or [at for at, kind in enumerate(kinds) if kind == "key"]
    labels = [at for at, kind in enumerate(kinds) if kind in ("label", "code")]
    labels = [at for at in labels if lowered[at] not in IDS] or labels
    tags = tuple(at for at, kind in enumerate(kinds) if kind in ("features", "code"))
    side = table.named(TARGET_NAMES)
    pairs = [pair for pair in itertools.combinations(texts, 2) if side not in texts or side in pair]
    if pairs:
        relations = [table.relation(*pair) for pair in pairs]
        best = max(relations)
        chosen = next(pair for pair, r in zip(pairs, relations, strict=True) if r >= best - ABOUT)
        if best >= RELATED or not labels or len(labels) > 1:
            source, target = chosen if chosen[0] != side else chosen[::-1]
            return source, target, tags
        longest = max(texts, key=lambda at: sum(map(len, table.cells[at])))
        return longest, labels[0], ()
    if texts and labels:
        return texts[0], labels[0], ()
    for at, kind in enumerate(kinds):
        if len(texts) != 1 or lowered[at] in IDS:
            continue
        spelt = kind in ("number", "date") and table.spells_out(at, texts[0])
        if spelt or (kind == "key" and table.relation(at, texts[0]) >= RELATED):
            return min(at, texts[0]), max(at, texts[0]), ()
    few = all(len(column) < 2 * SPELT for column in table.cells)
    if len(kinds) == 2 and few and {*kinds} <= {"text", "label", "code", "constant", "key"}:
        return 0, 1, ()
    return None


def are_labels(different: int, count: int) -> bool:
    """True for answers so few, for their count, that they are labels."""
    return different <= min(MAX_LABELS, max(count // 20, 2))


def _heading(cell: str) -> str:
    return cell.strip().strip(MARKS).strip()


def _is_of_other_script(cell: str, below: Sequence[str]) -> bool:
    """True for letters of no script of the cells below, as in a Chinese heading of English."""
    scripts = {script_of(letter) for letter in cell if letter.isalpha()}
    return bool(scripts) and not any(
        script_of(letter) in scripts for text in below for letter in text if letter.isalpha()
    )


def kind_of_column(cells: Sequence[str]) -> ColumnKind:
    """Kind of a column by its cells that are not blank."""
    filled = [cell.strip() for cell in cells if cell.strip()]
    different = set(filled)
    if len(different) < 2:
        return "constant"
    marked = sum(";" in cell for cell in filled) * 2 > len(filled)
    if marked and all(map(_FEATURES.fullmatch, different)):
        return "features"
    kinds = Counter(map(kind_of_cell, filled))
    for kind in ("date", "key", "number"):
        if kinds[kind] >= MOSTLY * len(filled) and not _are_grades(kind, different, len(filled)):
            return kind
    if are_labels(len(different), len(filled)):
        return "code" if all(map(_CODE.fullmatch, different)) else "label"
    return "text"


def _are_grades(kind: str, different: Iterable[str], count: int) -> bool:
    """True for numbers or keys so few that they are labels, such as stars."""
    names = list(different)
    whole = kind == "key" or all(map(str.isdecimal, names))
    return kind != "date" and whole and len(names) <= 10 and are_labels(len(names), count)


def kind_of_cell(cell: str) -> ColumnKind:
    """Kind of a cell by itself: a date, a number, a key or a text."""
    if _NUMBER.fullmatch(cell):
        return "number"
    if _DATE.fullmatch(cell):
        return "date"
    return "key" if _KEY.fullmatch(cell) else "text"
