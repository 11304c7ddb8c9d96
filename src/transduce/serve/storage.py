"""Documents, files and glossaries of clients, in memory until fetched."""

import asyncio
import dataclasses
import datetime
import functools
import hmac
import json
import secrets
import threading
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from starlette.responses import Response

from transduce.errors import DataError, reading, writing
from transduce.localise.checks import Terms
from transduce.localise.document import LocalisedDocument
from transduce.serve.calls import SHORTER_DOCUMENT, Call, RequestError, busy, fault_of, unavailable
from transduce.serve.metrics import State
from transduce.serve.translator import Left, left_of_records
from transduce.support.files import whole_file

SECONDS = 600.0
"""Time that a document is kept."""
MOST_DOCUMENTS = 100
MOST_BYTES = 50_000_000
"""Size of all documents."""


@dataclass(eq=False)
class BackgroundDocument:
    """A document with its translation, once `content` is there, or the error.

    left: what the translation leaves as it was.  worker: number of the process that has it.
    """

    name: str
    size: int
    n_characters: int
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    identity: str = field(default_factory=lambda: secrets.token_hex(16))
    created: float = field(default_factory=time.monotonic)
    begun: bool = False
    content: bytes | None = None
    left: Left = ()
    error: str = ""
    worker: int = 0

    @property
    def status(self) -> str:
        """queued, translating, done or error."""
        if self.error:
            return "error"
        if self.content is not None:
            return "done"
        return "translating" if self.begun else "queued"

    @property
    def n_bytes(self) -> int:
        """Memory that it takes."""
        return self.size if self.content is None else len(self.content)


class Documents:
    """Documents by identity and key; each is deleted once fetched, or after a time."""

    def __init__(self) -> None:
        self._all: dict[str, BackgroundDocument] = {}
        self._lock = threading.RLock()

    def add(self, document: BackgroundDocument) -> None:
        """Keep a document.  Raises RequestError 429 if too many are kept."""
        with self._lock:
            self._drop_old()
            size = sum(waiting.n_bytes for waiting in (*self._all.values(), document))
            if len(self._all) >= MOST_DOCUMENTS or size > MOST_BYTES:
                raise busy("too many documents are waiting")
            self._all[document.identity] = document

    def begin(self, identity: str) -> None:
        """Note that the translation of a document begins."""
        with self._lock:
            if (document := self._all.get(identity)) is not None:
                document.begun = True

    def end(self, identity: str, content: bytes | None, left: Left = (), error: str = "") -> None:
        """Keep the translation of a document, or the error; nothing happens once it is deleted.

        content: bytes of the translation; None for an error.  left: what it leaves as it was.
        """
        with self._lock:
            if (document := self._all.get(identity)) is not None:
                document.content, document.left, document.error = content, left, error

    def lose(self, worker: int) -> None:
        """Fail the documents that a worker, which has died, was translating."""
        with self._lock:
            for document in self._all.values():
                if document.worker == worker and document.content is None and not document.error:
                    document.error = "the translation was interrupted; send the document again"

    def get(self, identity: str, key: str) -> BackgroundDocument:
        """A document, without the bytes of its translation, which other processes need not copy.
        Raises RequestError 404."""
        document = self._known(identity, key)
        return dataclasses.replace(document, content=document.content and b"")

    def _known(self, identity: str, key: str) -> BackgroundDocument:
        with self._lock:
            self._drop_old()
            document = self._all.get(identity)
        if document is None or not hmac.compare_digest(document.key.encode(), key.encode()):
            raise RequestError(404, "there is no such document, or no longer", "not_found")
        return document

    def take(self, identity: str, key: str) -> BackgroundDocument:
        """A document with its translation, then deleted.

        Raises RequestError: 503 while it is not translated, 400 where it cannot be.
        """
        with self._lock:
            document = self._known(identity, key)
            if document.error:
                raise RequestError(400, document.error, "document")
            if document.content is None:
                raise unavailable("the document is not translated yet")
            del self._all[identity]
            return document

    def _drop_old(self) -> None:
        oldest = time.monotonic() - SECONDS
        self._all = {i: document for i, document in self._all.items() if document.created > oldest}


def translated_later(
    documents: Documents,
    document: BackgroundDocument,
    seconds: float,
    translate: Callable[[Call], Awaitable[LocalisedDocument]],
) -> asyncio.Task[None]:
    """Translate a document in the background; the task is to be kept until it ends.

    documents: get the document, its translation or error.  seconds: until the deadline.
    Raises RequestError as `Documents.add`.
    """
    documents.add(document)

    async def work() -> None:
        documents.begin(document.identity)
        try:
            translated = await translate(Call(min(seconds, SECONDS), SHORTER_DOCUMENT))
            left = left_of_records(translated.records)
            documents.end(document.identity, translated.content, left)
        except Exception as error:
            documents.end(document.identity, None, error=fault_of(error, "a document").message)

    return asyncio.create_task(work())


class FileStore:
    """Files by the name of their address.  The names are random, and no path is ever opened."""

    def __init__(self, seconds: float = SECONDS, most_bytes: int = MOST_BYTES) -> None:
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._files: dict[str, tuple[float, bytes]] = {}
        self._lock = threading.RLock()

    def add(self, name: str, content: bytes) -> str:
        """Keep a file; the name of its address."""
        address = f"{uuid.uuid4()}.{name}"
        with self._lock:
            self._drop_old()
            self._files[address] = (time.monotonic(), content)
            while sum(len(content) for _, content in self._files.values()) > self._most_bytes:
                del self._files[next(iter(self._files))]
        return address

    def get(self, address: str) -> bytes | None:
        """A file; None once deleted."""
        with self._lock:
            self._drop_old()
            _, content = self._files.get(address, (0.0, None))
        return content

    def _drop_old(self) -> None:
        oldest = time.monotonic() - self._seconds
        self._files = {name: file for name, file in self._files.items() if file[0] > oldest}


def translated_name(name: str, target: str) -> str:
    """Name of a translated file: "a/menu.txt" for "en" -> "menu_en.txt"."""
    path = PurePosixPath("".join(c for c in name.replace("\\", "/") if c.isprintable()))
    return f"{path.stem[:100] or 'file'}_{target}{path.suffix}"


def attachment(name: str, content: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that a browser saves as a file of this name.

    content: bytes of the file.  headers: further headers of the answer.
    """
    return Response(
        content,
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(name)}",
            **(headers or {}),
        },
    )


MOST_GLOSSARIES = 1000
MOST_CHARACTERS = 5_000_000
"""Characters of all glossaries together."""


@dataclass(frozen=True)
class StoredGlossary:
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
    """Glossaries by their identity; with a path they are those of a file, which follows them.

    `add` and `delete` are for threads: with many entries they take seconds.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._all: dict[str, StoredGlossary] = {}
        self._lock = threading.Lock()
        if path is not None and path.exists():
            try:
                with reading(path):
                    for fields in json.loads(path.read_text(encoding="utf-8")):
                        created = datetime.datetime.fromisoformat(fields.pop("created"))
                        self._all[fields["identity"]] = StoredGlossary(**fields, created=created)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise DataError(f"{path} is no file of glossaries; name another") from None

    def _write(self) -> None:
        if self._path is not None:
            rows = [dataclasses.asdict(glossary) for glossary in self.all()]
            with writing(self._path), whole_file(self._path) as file:
                file.write(json.dumps(rows, default=str, ensure_ascii=False).encode())

    def all(self) -> list[StoredGlossary]:
        """All glossaries, oldest first."""
        return list(self._all.values())

    def has(self, identity: str) -> bool:
        """True for a glossary that is kept."""
        return identity in self._all

    def add(self, glossary: StoredGlossary) -> None:
        """Keep a glossary.  Raises RequestError 456 beyond `MOST_GLOSSARIES` or
        `MOST_CHARACTERS`."""
        with self._lock:
            characters = sum(other.n_characters for other in (*self.all(), glossary))
            if len(self._all) >= MOST_GLOSSARIES or characters > MOST_CHARACTERS:
                raise RequestError(
                    456,
                    f"the server keeps {MOST_GLOSSARIES} glossaries of {MOST_CHARACTERS} "
                    "characters together; delete one",
                    "quota",
                )
            self._all[glossary.identity] = glossary
            self._write()

    def get(self, identity: str) -> StoredGlossary:
        """A glossary.  Raises RequestError 404."""
        if identity not in self._all:
            raise RequestError(404, "there is no such glossary", "not_found")
        return self._all[identity]

    def delete(self, identity: str) -> None:
        """Forget a glossary.  Raises RequestError 404."""
        with self._lock:
            del self._all[self.get(identity).identity]
            self._write()


@dataclass(frozen=True)
class Stores:
    """State of a server that outlasts a request, in memory; several workers share one.

    billed: characters that each key has had translated.  metrics: states of `Metrics` by worker.
    status: number of workers, and of those that are ready; empty for a single process.
    """

    glossaries: Glossaries
    files: FileStore = field(default_factory=FileStore)
    documents: Documents = field(default_factory=Documents)
    billed: Counter[str] = field(default_factory=Counter)
    metrics: dict[int, State] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)


def as_tsv(entries: Mapping[str, str]) -> str:
    """Entries as lines of source and target with a tab between them."""
    return "\n".join(f"{source}\t{target}" for source, target in entries.items())
