"""Translated files, in memory until fetched."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import quote

from starlette.responses import Response

SECONDS = 600.0
"""Time that a file can be fetched."""
MOST_BYTES = 50_000_000
"""Size of all files; beyond it, the oldest are deleted."""


class FileStore:
    """Files by the name of their address.  The names are random, and no path is ever opened."""

    def __init__(self, seconds: float = SECONDS, most_bytes: int = MOST_BYTES) -> None:
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._files: dict[str, tuple[float, bytes]] = {}

    def add(self, name: str, content: bytes) -> str:
        """Keep a file; the name of its address."""
        self._drop_old()
        address = f"{uuid.uuid4()}.{name}"
        self._files[address] = (time.monotonic(), content)
        while sum(len(content) for _, content in self._files.values()) > self._most_bytes:
            del self._files[next(iter(self._files))]
        return address

    def get(self, address: str) -> bytes | None:
        """A file; None once deleted."""
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
    """The answer that a browser saves as a file of this name."""
    return Response(
        content,
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(name)}",
            **(headers or {}),
        },
    )
