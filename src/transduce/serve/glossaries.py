"""Glossaries of clients, while the server runs, or in a file."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from transduce.errors import DataError, reading, writing
from transduce.localise.terms import Terms
from transduce.serve.errors import RequestError
from transduce.support.locks import whole_file

MOST_GLOSSARIES = 1000
MOST_CHARACTERS = 5_000_000
"""Characters of all glossaries together."""


@dataclass(frozen=True)
class Glossary:
    """Translations of terms between two languages."""

    name: str
    source: str
    target: str
    entries: Mapping[str, str]
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))

    @functools.cached_property
    def terms(self) -> Terms:
        """The entries, ready to be found."""
        return Terms(self.entries)

    @functools.cached_property
    def n_characters(self) -> int:
        """Size of the entries."""
        return sum(map(len, (*self.entries, *self.entries.values())))


class Glossaries:
    """Glossaries by their identity; with a path they are those of a file, which follows them."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._all: dict[str, Glossary] = {}
        if path is not None and path.exists():
            try:
                with reading(path):
                    for fields in json.loads(path.read_text(encoding="utf-8")):
                        created = datetime.datetime.fromisoformat(fields.pop("created"))
                        self._all[fields["identity"]] = Glossary(**fields, created=created)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise DataError(f"{path} is no file of glossaries; name another") from None

    def _write(self) -> None:
        if self._path is not None:
            rows = [dataclasses.asdict(glossary) for glossary in self]
            with writing(self._path), whole_file(self._path) as file:
                file.write(json.dumps(rows, default=str, ensure_ascii=False).encode())

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
        self._write()

    def get(self, identity: str) -> Glossary:
        """A glossary.  Raises RequestError 404."""
        if identity not in self._all:
            raise RequestError(404, "there is no such glossary", "not_found")
        return self._all[identity]

    def delete(self, identity: str) -> None:
        """Forget a glossary.  Raises RequestError 404."""
        del self._all[self.get(identity).identity]
        self._write()


def as_tsv(entries: Mapping[str, str]) -> str:
    """Entries as lines of source and target with a tab between them."""
    return "\n".join(f"{source}\t{target}" for source, target in entries.items())
