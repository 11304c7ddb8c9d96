"""Tables of a workbook: each column has the name in its cell, and no other column that name."""

import bisect
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from transduce.localise.document import Edit, Span
from transduce.localise.inline import escaped, from_markup, parts_of
from transduce.localise.runs import OfficeText, Paragraph, Value
from transduce.localise.xml import Attribute, Element

RELATIONS = r"(?i:xl/worksheets/_rels/[^/]+\.rels)"
CELL = re.compile(r"\$?([A-Za-z]{1,3})\$?([0-9]{1,7})")


class Column(NamedTuple):
    """A column of a table: its name, the text of that or of its cell, and the cell, if it has
    one."""

    name: Attribute
    text: OfficeText
    cell: Element | None


def _number(letters: str) -> int:
    """Number of a column by its letters, from 1."""
    number = 0
    for letter in letters.upper():
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def header_cells(roots: Mapping[str, Element]) -> dict[int, Element]:
    """The cell of each column of the tables, by the place of the column.

    roots: parts of the workbook, with the relations of its sheets.
    """
    cells: dict[int, Element] = {}
    for name, root in roots.items():  # of a sheet
        folder, _, file = name.rpartition("/_rels/")
        sheet = roots.get(f"{folder}/{file.removesuffix('.rels')}")
        if not (folder and sheet):
            continue
        tables = [
            table
            for relation in root.descendants()
            if relation.get("Type").endswith("/table")
            and (table := roots.get(_target(folder, relation.get("Target"))))
            and table.get("headerRowCount") != "0"
        ]
        cells |= _cells_of(tables, sheet)
    return cells


def _target(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join("/", folder, path)).lstrip("/")


def _cells_of(tables: Iterable[Element], sheet: Element) -> dict[int, Element]:
    """The cells of the columns of the tables of a sheet."""
    corners = [(table, match) for table in tables if (match := CELL.match(table.get("ref")))]
    headers = {corner[2] for _, corner in corners}
    cells = {
        (address[2], _number(address[1])): cell
        for row in (sheet.named("row") if headers else ())
        if row.get("r") in headers
        for cell in row.children
        if (address := CELL.fullmatch(cell.get("r")))
    }
    return {
        column.begin: cells[position]
        for table, corner in corners
        for i, column in enumerate(table.named("tableColumn"))
        if (position := (corner[2], _number(corner[1]) + i)) in cells
    }


def named_columns(
    tables: Sequence[Sequence[Column]],
    render: Callable[[Mapping[str, str]], Iterable[Edit]],
    targets: Mapping[str, str],
) -> list[Edit]:
    """Edits of a workbook with those of the names of columns: as in their cells, equal ones with a
    number, as Excel makes them.

    render: makes edits of all texts from translations by key.
    """
    edits: list[Edit] = []
    for columns in tables:
        shown = [_shown(column.text, targets) for column in columns]
        before = [_shown(column.text, {}) for column in columns]
        names = {a.lower() for a, b in zip(shown, before, strict=True) if a == b}
        numbers: dict[str, int] = {}  # the next one of each name
        for column, text, source in zip(columns, shown, before, strict=True):
            name, number = text, numbers.get(text.lower(), 2)
            while text != source and name.lower() in names:
                name, number = f"{text}{number}", number + 1
            names.add(name.lower())
            numbers[text.lower()] = number
            if text != source:
                raw = escaped(name).replace('"', "&quot;").replace("'", "&apos;")
                edits.append(Edit(column.name.span, raw.replace("\n", "_x000a_")))
            if name != text and column.cell:
                edits.append(_inline(column.cell, name))
    spans = sorted(edit.span for edit in edits)
    others = (edit for edit in render(targets) if not _is_within(edit.span.start, spans))
    return sorted([*others, *edits])


def _is_within(offset: int, spans: Sequence[Span]) -> bool:
    """True for an offset in one of some spans in order."""
    number = bisect.bisect_right(spans, offset, key=lambda span: span.start)
    return number > 0 and offset < spans[number - 1].end


def _shown(text: OfficeText, targets: Mapping[str, str]) -> str:
    """A text as readers see it, translated where it has a target."""
    segment = text.segment
    assert isinstance(text, (Paragraph, Value))
    whole = f"{text.frame[0]}{targets.get(segment.key, segment.source)}{text.frame[1]}"
    tags = text.tags if isinstance(text, Paragraph) else ()
    return from_markup("".join(part for is_tag, part in parts_of(whole, tags) if not is_tag))


def _inline(cell: Element, text: str) -> Edit:
    """A cell with a text of its own in place of a shared one."""
    prefix = cell.name[: -len(cell.local_name)]
    attributes = "".join(
        f' {name}="{cell.get(name)}"' for name in ("r", "s", "cm", "vm", "ph") if cell.get(name)
    )
    shown = f'<{prefix}is><{prefix}t xml:space="preserve">{escaped(text)}</{prefix}t></{prefix}is>'
    whole = f'<{cell.name}{attributes} t="inlineStr">{shown}</{cell.name}>'
    return Edit(Span(cell.begin, cell.end), whole)
