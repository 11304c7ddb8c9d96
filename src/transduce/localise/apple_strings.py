"""Strings files of Apple: `"key" = "value";`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Reading, Span
from transduce.localise.units import Member, document_of, member_at, unit_in_place
from transduce.localise.xml_formats import read_xml_document

QUOTED = r'"(?:[^"\\]|\\[\s\S])*+"'
GAP = r"(?:\s|/\*(?:[^*]|\*(?!/))*+\*/|//[^\r\n]*+)*+"
ENTRY = re.compile(
    rf"(?P<key>{QUOTED}|[\w.$-]+){GAP}(?:={GAP}(?P<text>{QUOTED}|[\w.$-]+){GAP})?;{GAP}"
)
ESCAPE = re.compile(r"\\(?:[Uu]([0-9a-fA-F]{4})|([\s\S]))")
ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})
FLAGS = frozenset(("objc-format",))


def read_strings(content: bytes, reading: Reading) -> Document:
    """Read the values of a file, a property list or text."""
    if content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<?xml"):
        return read_xml_document(content, reading)
    decoded = reading.decode(content)
    members = {member.segment.key: member for member in _members(decoded, reading)}
    return document_of(decoded, [unit_in_place({"": member}) for member in members.values()])


def _members(decoded: DecodedText, reading: Reading) -> Iterator[Member]:
    text = decoded.text
    gap = re.compile(GAP).match(text)
    start = gap.end() if gap else 0
    while start < len(text):
        reading.check()
        entry = ENTRY.match(text, start)
        if entry is None:
            line = text.count("\n", 0, start) + 1
            raise DataError(f'line {line} is not "key" = "value";')
        start = entry.end()
        raw = entry["text"]
        if raw is None or not raw.startswith('"'):
            continue
        whole = ESCAPE.sub(_unescaped, raw[1:-1])
        whole = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        key = " ".join(entry["key"].strip('"').split()) or "a string"
        if member := member_at(Span(*entry.span("text")), key, whole, _quoted, FLAGS):
            yield member


def _unescaped(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else ESCAPED.get(character, character)


def _quoted(text: str) -> str:
    return f'"{text.translate(ESCAPES)}"'
