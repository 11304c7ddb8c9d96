"""Settings of the server: limits, keys, paths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transduce.errors import DataError, reading

FORM_BYTES = 1_000_000
"""Bytes of a request body beyond its text."""
BYTES_PER_CHARACTER = 12
"""Maximum bytes of a character: two JSON escapes, or four percent escapes in a URL."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Limits and switches of a server."""

    max_chars: int = 20_000
    """Characters of one request."""
    max_texts: int = 1000
    """Texts of one request."""
    max_alternatives: int = 8
    """Alternative outputs per text."""
    max_waiting: int = 2000
    """Sentences that wait for a run; beyond, a request is refused with status 429."""
    timeout: float = 120.0
    """Seconds after which a request is given up with status 503."""
    api_keys: frozenset[str] = frozenset()
    """Accepted keys; empty to accept every request."""
    allowed_origins: frozenset[str] = frozenset()
    """Origins of pages that may write, besides the server's own; with keys every page may."""
    pivots: tuple[str, ...] = ()
    """Languages through which two runs may be chained."""
    url_prefix: str = ""
    """Path before all routes, such as "/mt"."""
    pass_through: bool = False
    """Answer pairs that no run translates with the text itself, named untranslated."""
    files: bool = True
    """Translate files."""
    max_file_bytes: int = 2_000_000
    """Size of a file to translate."""
    max_audio_bytes: int = 25_000_000
    """Size of a recording to transcribe."""
    metrics: bool = False
    """Serve /metrics."""
    suggestions: Path | None = None
    """JSON Lines file to which suggested translations are added."""

    @property
    def max_body_bytes(self) -> int:
        """Bytes of a request body without files."""
        return FORM_BYTES + BYTES_PER_CHARACTER * self.max_chars

    @property
    def max_head_bytes(self) -> int:
        """Bytes of a request line with its headers; clients put texts into the URL."""
        return 2**16 + BYTES_PER_CHARACTER * self.max_chars


def read_api_keys(path: Path) -> frozenset[str]:
    """Keys of a file, one per line; blank lines and lines that begin with # are skipped.

    Raises DataError for a file without keys.
    """
    with reading(path):
        text = path.read_text(encoding="utf-8", errors="replace")
    lines = (line.strip() for line in text.splitlines())
    keys = frozenset(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise DataError(f"{path} has no keys; write one per line")
    return keys
