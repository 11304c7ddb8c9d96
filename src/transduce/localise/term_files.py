"""Glossaries of two languages: TBX, and CSV whose first row names languages."""

from __future__ import annotations

from collections.abc import Iterator

from transduce.errors import DataError
from transduce.localise.checks import csv_rows
from transduce.localise.document import Reading
from transduce.localise.languages import LANGUAGES, base_of, is_same_language
from transduce.localise.xml import Element, read_xml, xml_text

ENTRIES = frozenset(("termEntry", "conceptEntry"))
SECTIONS = frozenset(("langSet", "langSec"))
UNUSED = ("deprecatedTerm-admn-sts", "supersededTerm-admn-sts", "deprecated", "superseded")
"""Statuses of terms that no translation has."""


def read_tbx(content: bytes, source: str | None, target: str | None) -> dict[str, str]:
    """Entries of a TBX file (ISO 30042, both versions): terms of a concept are forms, but of the
    target the deprecated ones.  Raises DataError unless the languages are known and there."""
    if not (source and target):
        raise DataError("TBX has terms of languages; give --source-language and --target-language")
    _, root = read_xml(content, Reading())
    entries: dict[str, str] = {}
    for entry in root.descendants():
        if entry.local_name in ENTRIES:
            forms = ["|".join(_forms(entry, code, code == target)) for code in (source, target)]
            if all(forms):
                entries.setdefault(*forms)
    if not entries:
        raise DataError(f"it has no terms of both {source} and {target}")
    return entries


def _forms(entry: Element, language: str, is_target: bool) -> Iterator[str]:
    """Terms of a concept in a language."""
    for section in entry.children:
        if section.local_name in SECTIONS and is_same_language(section.get("xml:lang"), language):
            for group in section.children:
                elements = list(group.descendants())
                is_unused = any(e.raw in UNUSED for e in elements if e.local_name == "termNote")
                for term in elements:
                    text = xml_text(term, (), {}).source if term.local_name == "term" else ""
                    if text and not (is_target and is_unused):
                        yield text.replace("|", " ")


def in_columns(text: str, source: str | None, target: str | None) -> dict[str, str]:
    """Entries of a CSV table whose first row names both languages; none of another table.

    source, target: codes; None for the first column and the second.  Raises DataError without
    columns or entries of both.
    """
    rows = list(csv_rows(text))
    names = [name.strip() for name in rows[0]] if rows else []
    if len(names) < 2 or any(base_of(name) not in LANGUAGES for name in names[:2]):
        return {}
    columns = [0, 1]
    for side, code in enumerate((source, target)):
        if code is not None:
            columns[side] = next((i for i, n in enumerate(names) if is_same_language(n, code)), -1)
            if columns[side] < 0:
                shown = ", ".join(names)
                raise DataError(f"the glossary has no column {code}; its first row names {shown}")
    first, second = columns
    entries: dict[str, str] = {}
    for number, row in enumerate(rows[1:], 2):
        term, translation = ((row[i].strip() if i < len(row) else "") for i in columns)
        if term and translation and entries.setdefault(term, translation) != translation:
            raise DataError(
                f"row {number} of the glossary has another translation of {term!r}; join both by |"
            )
    if not entries:
        raise DataError(f"the glossary has no terms of both {names[first]} and {names[second]}")
    return entries
