"""Glossaries of clients, in memory while the server runs."""

from __future__ import annotations

import csv
import datetime
import io
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from transduce.serve.errors import RequestError, invalid

MOST_GLOSSARIES = 1000
MOST_CHARACTERS = 5_000_000
"""Characters of all glossaries together."""
MOST_OF_A_TERM = 1000
"""Characters of a term."""


@dataclass(frozen=True)
class Glossary:
    """Translations of terms between two languages."""

    name: str
    source: str
    target: str
    entries: Mapping[str, str]
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))

    @property
    def n_characters(self) -> int:
        """Size of the entries."""
        return sum(map(len, (*self.entries, *self.entries.values())))


class Glossaries:
    """Glossaries by their identity."""

    def __init__(self) -> None:
        self._all: dict[str, Glossary] = {}

    def __iter__(self) -> Iterator[Glossary]:
        return iter(self._all.values())

    def add(self, glossary: Glossary) -> None:
        """Keep a glossary.  Raises RequestError 456 beyond `MOST_GLOSSARIES` or
        `MOST_CHARACTERS`."""
        characters = sum(other.n_characters for other in (*self, glossary))
        if len(self._all) >= MOST_GLOSSARIES or characters > MOST_CHARACTERS:
            raise RequestError(
                456,
                f"the server keeps {MOST_GLOSSARIES} glossaries of {MOST_CHARACTERS} characters "
                "together; delete one",
                "quota",
            )
        self._all[glossary.identity] = glossary

    def get(self, identity: str) -> Glossary:
        """A glossary.  Raises RequestError 404."""
        if identity not in self._all:
            raise RequestError(404, "there is no such glossary", "not_found")
        return self._all[identity]

    def delete(self, identity: str) -> None:
        """Forget a glossary.  Raises RequestError 404."""
        del self._all[self.get(identity).identity]


def read_entries(text: str, is_csv: bool) -> dict[str, str]:
    """Entries from lines of source and target, between which is a tab, or in CSV a comma.

    Raises RequestError 400, with the number of the line.
    """
    entries: dict[str, str] = {}
    for number, (source, target) in enumerate(_rows(text, is_csv), 1):
        source, target = source.strip(), target.strip()
        if not source or not target:
            raise invalid(f"entry {number} of the glossary lacks a source or a target")
        if max(len(source), len(target)) > MOST_OF_A_TERM:
            raise invalid(f"entry {number} of the glossary exceeds {MOST_OF_A_TERM} characters")
        if source in entries:
            raise invalid(f"entry {number} of the glossary has the source of an earlier one")
        entries[source] = target
    if not entries:
        raise invalid("the glossary has no entries")
    return entries


def _rows(text: str, is_csv: bool) -> Iterator[tuple[str, str]]:
    if is_csv:
        rows: Iterator[list[str]] = csv.reader(io.StringIO(text))
    else:
        rows = (line.split("\t") for line in text.splitlines() if line.strip())
    try:
        for number, row in enumerate(filter(None, rows), 1):
            if len(row) < 2 or (len(row) > 2 and not is_csv):
                raise invalid(f"entry {number} of the glossary is not a source and a target")
            yield row[0], row[1]
    except csv.Error as error:
        raise invalid(f"the glossary is not CSV: {error}") from None


def as_tsv(entries: Mapping[str, str]) -> str:
    """Entries as lines of source and target with a tab between them."""
    return "\n".join(f"{source}\t{target}" for source, target in entries.items())
