"""Documents translated in the background, in memory until fetched."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from transduce.localise.document import LocalisedDocument
from transduce.serve.calls import SHORTER_DOCUMENT, Call
from transduce.serve.errors import RequestError, busy, fault_of, unavailable
from transduce.serve.untranslated import Left, left_of_records

SECONDS = 600.0
"""Time that a document is kept."""
MOST_DOCUMENTS = 100
MOST_BYTES = 50_000_000
"""Size of all documents."""


@dataclass(eq=False)
class BackgroundDocument:
    """A document with its translation, once `content` is there, or the error.

    left: what the translation leaves as it was.
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
    task: asyncio.Task[None] | None = None

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
    """Documents by identity and key; each is deleted once fetched, or after a time.

    seconds: until the deadline of a translation.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._all: dict[str, BackgroundDocument] = {}

    def start(
        self,
        document: BackgroundDocument,
        translate: Callable[[Call], Awaitable[LocalisedDocument]],
    ) -> None:
        """Begin to translate a document.  Raises RequestError 429 if too many are kept."""
        self._drop_old()
        size = sum(waiting.n_bytes for waiting in (*self._all.values(), document))
        if len(self._all) >= MOST_DOCUMENTS or size > MOST_BYTES:
            raise busy("too many documents are waiting")
        self._all[document.identity] = document

        async def work() -> None:
            document.begun = True
            try:
                translated = await translate(Call(self._seconds, SHORTER_DOCUMENT))
                document.content = translated.content
                document.left = left_of_records(translated.records)
            except Exception as error:
                document.error = fault_of(error, "a document").message

        document.task = asyncio.create_task(work())

    def get(self, identity: str, key: str) -> BackgroundDocument:
        """A document.  Raises RequestError 404."""
        self._drop_old()
        document = self._all.get(identity)
        if document is None or not hmac.compare_digest(document.key.encode(), key.encode()):
            raise RequestError(404, "there is no such document, or no longer", "not_found")
        return document

    def take(self, identity: str, key: str) -> BackgroundDocument:
        """A document with its translation, then deleted.

        Raises RequestError: 503 while it is not translated, 400 where it cannot be.
        """
        document = self.get(identity, key)
        if document.error:
            raise RequestError(400, document.error, "document")
        if document.content is None:
            raise unavailable("the document is not translated yet")
        del self._all[identity]
        return document

    def _drop_old(self) -> None:
        oldest = time.monotonic() - SECONDS
        for identity, document in list(self._all.items()):
            if document.created <= oldest:
                del self._all[identity]
                if document.task is not None:
                    document.task.cancel()
