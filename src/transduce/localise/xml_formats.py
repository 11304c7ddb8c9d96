"""Formats that are XML, by their root elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from transduce.errors import DataError
from transduce.localise.android import read_android
from transduce.localise.document import DecodedText, Document, Reading
from transduce.localise.qt import read_qt
from transduce.localise.resx import read_resx
from transduce.localise.stringsdict import read_plist
from transduce.localise.tmx import read_tmx
from transduce.localise.xliff import read_xliff
from transduce.localise.xml import Element, read_xml

ROOTS: Mapping[str, Callable[[DecodedText, Element, Reading], Document]] = {
    "xliff": read_xliff,
    "resources": read_android,
    "plist": read_plist,
    "TS": read_qt,
    "tmx": read_tmx,
    "root": read_resx,
}
"""Readers by the name of the root element."""


def read_xml_document(content: bytes, reading: Reading) -> Document:
    """Read a document in the format of its root element."""
    decoded, root = read_xml(content, reading)
    if root.local_name not in ROOTS:
        raise DataError(f"no format for <{root.local_name}>; use {', '.join(ROOTS)}")
    return ROOTS[root.local_name](decoded, root, reading)
