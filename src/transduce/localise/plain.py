"""Plain text, a segment a line, and CSV and TSV with a column of sources and a column of
targets."""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Reading, Segment, Span, State
from transduce.localise.languages import LANGUAGES, base_of, is_same_language
from transduce.localise.units import Unit, document_of, framed
from transduce.text.languages import canonical


def read_plain(content: bytes, reading: Reading) -> Document:
    """Read a text; segments exclude white space at the ends of lines."""
    decoded = reading.decode(content)
    segments: list[Segment] = []
    offset = 0
    for number, line in enumerate(decoded.text.splitlines(keepends=True), start=1):
        reading.check()
        if core := line.strip():
            start = offset + len(line) - len(line.lstrip())
            segments.append(Segment(f"line {number}", core, (Span(start, start + len(core)),)))
        offset += len(line)
    spans = {segment.key: segment.spans[0] for segment in segments}

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        for key, text in targets.items():
            if len(text.splitlines()) != 1:
                raise DataError(f"{key}: the translation has a line break; write one line")
            yield Edit(spans[key], text)

    return Document(segments, decoded, render)


SOURCES = ("source", "source text", "original", "msgid")
TARGETS = ("target", "target text", "translation", "msgstr")
TEXTS = ("text", "texts", "value", "string", "message", "sentence")
"""Names of a column of texts without a language."""
NO_LANGUAGE = ("id", "no", "key", "name", "text")
"""Names of columns that are no languages, although codes of some are alike."""


class Cell(NamedTuple):
    """A cell: its place with its quotes, and its text."""

    span: Span
    text: str
    is_quoted: bool


def read_csv(content: bytes, reading: Reading) -> Document:
    """Read the rows of a file whose header names the columns: source and target, two languages, of
    which one is the target language, or texts of one language, which are replaced."""
    decoded = reading.decode(content)
    header = decoded.text.partition("\n")[0]
    delimiter = max(",;\t", key=header.count)
    rows = _plain_rows(decoded.text, delimiter, reading)
    columns = _columns([cell.text.strip().lower() for cell in next(rows, [])], reading)
    units = []
    for number, row in enumerate(rows, 2):
        if len(row) > max(columns):
            unit = _plain_unit(row[columns[0]], row[columns[1]], f"row {number}", delimiter)
            units += [unit] if unit else []
    return document_of(decoded, units)


def _columns(names: Sequence[str], reading: Reading) -> tuple[int, int]:
    """Columns of source and target."""

    def column_of(language: str | None, codes: Sequence[int]) -> int | None:
        """The column of a language, else of one of its regions."""
        exact = (i for i in codes if language and canonical(names[i]) == canonical(language))
        alike = (i for i in codes if language and is_same_language(names[i], language))
        return next(itertools.chain(exact, alike), None)

    source = next((i for i, name in enumerate(names) if name in SOURCES), None)
    target = next((i for i, name in enumerate(names) if name in TARGETS), None)
    asked = [code.lower() for code in (reading.source, reading.language) if code]
    codes = [
        i
        for i, name in enumerate(names)
        if base_of(name) in LANGUAGES and (name not in NO_LANGUAGE or name in asked)
    ]
    target = column_of(reading.language, codes) if target is None else target
    if source is None:
        others = [i for i in codes if i != target]
        source = others[0] if len(others) == 1 else column_of(reading.source, others)
    if source is not None and target is None and reading.language:
        raise DataError(
            f"the first row names no column of {reading.language}; add an empty one of that name"
        )
    texts = [i for i, name in enumerate(names) if name in TEXTS]
    if source is None and target is None and not codes and len(texts) == 1:
        return texts[0], texts[0]
    if source is None or target is None:
        languages = f" ({', '.join(names[i] for i in codes)})" if codes else ""
        raise DataError(
            f"the first row does not name the columns{languages}; call two of them source and "
            "target, or give --source-language and --target-language"
        )
    return source, target


def _plain_rows(text: str, delimiter: str, reading: Reading) -> Iterator[list[Cell]]:
    cell = re.compile(
        rf'(?:"(?P<quoted>(?:[^"]|"")*+)"(?=[{delimiter}\r\n]|\Z)|(?P<plain>[^{delimiter}\r\n]*+))'
        rf"(?P<end>{delimiter}|\r\n|\r|\n|\Z)"
    )
    row: list[Cell] = []
    start = 0
    while start <= len(text):
        reading.check()
        match = cell.match(text, start)
        if match is None:
            raise DataError(f"line {text.count(chr(10), 0, start) + 1} is not CSV")
        quoted = match["quoted"] is not None
        content = match["quoted"].replace('""', '"') if quoted else match["plain"]
        row.append(Cell(Span(start, match.start("end")), content, quoted))
        if match["end"] != delimiter:
            yield row
            row = []
            if not match["end"]:
                return
        start = match.end()


def _plain_unit(source: Cell, target: Cell, key: str, delimiter: str) -> Unit | None:
    before, core, after = framed(source.text)
    if not any(map(str.isalnum, core)):
        return None
    known = "" if source is target else target.text.strip()
    state: State = "translated" if known else "missing"
    segment = Segment(key, core, (target.span,), target=known, state=state)
    return Unit([segment], functools.partial(_plain_edits, target, before, after, delimiter))


def _plain_edits(
    cell: Cell, before: str, after: str, delimiter: str, targets: Mapping[str, str]
) -> Iterator[Edit]:
    for target in targets.values():
        text = before + target + after
        if cell.is_quoted or re.search(rf'["\r\n{delimiter}]', text):
            text = '"{}"'.format(text.replace('"', '""'))
        yield Edit(cell.span, text)
