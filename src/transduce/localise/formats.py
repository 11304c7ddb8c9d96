"""Table of document formats: `FORMATS`, and the reader of a file by its name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import PurePath

from transduce.errors import DataError
from transduce.localise.document import Check, Document, unchecked
from transduce.localise.html import read_html
from transduce.localise.plain import read_plain
from transduce.localise.subtitles import read_subtitles

Reader = Callable[[bytes, str | None, Check], Document]
"""Document in some bytes, given their encoding or None.  Raises DataError, and what the check
does."""

FORMATS: Mapping[str, Reader] = {
    ".txt": read_plain,
    ".srt": functools.partial(read_subtitles, "srt"),
    ".vtt": functools.partial(read_subtitles, "vtt"),
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
}
"""Readers by suffix."""


def read_document(
    name: str, content: bytes, encoding: str | None = None, check: Check = unchecked
) -> Document:
    """Read a document in the format of its suffix.

    encoding: of bytes without a byte order mark; by default as declared, else UTF-8.  Raises
    DataError for another format, and for bytes that are not in the encoding.
    """
    suffix = PurePath(name).suffix.lower()
    if suffix == ".pdf":
        raise DataError(f"{name}: PDF cannot be edited; translate the document it was made from")
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise DataError(f"{name}: no format for {suffix or 'a name without suffix'}; use {known}")
    try:
        return FORMATS[suffix](content, encoding, check)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
