"""Properties of Java."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

from transduce.localise.document import DecodedText, Document, Reading, Span
from transduce.localise.message_format import message_at, to_message
from transduce.localise.units import Member, document_of, member_at, unit_in_place

ENTRY = re.compile(
    r"[ \t\f]*+(?P<key>(?:[^\\:=\s#!]|\\.)(?:[^\\:=\s]|\\(?:\r\n|.))*+)[ \t\f]*+(?:[:=][ \t\f]*+)?"
    r"(?P<text>(?:[^\\\r\n]|\\(?:\r\n|[\s\S]|\Z))*+)"
    r"|[^\r\n]*+",
)
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(?:\r\n|\r|\n)[ \t\f]*+|(.)|\Z)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
ARGUMENT = re.compile(r"\{[0-9]+[,}]")
"""A sign of MessageFormat."""


def read_properties(content: bytes, reading: Reading) -> Document:
    """Read the values of a file, in the encoding given, else as UTF-8, else as ISO-8859-1."""
    decoded = reading.decode(content, fallback="latin-1")
    members = {m.segment.key: m for m in _members(decoded, reading)}  # the last of equal keys holds
    return document_of(decoded, [unit_in_place({"": member}) for member in members.values()])


def _members(decoded: DecodedText, reading: Reading) -> Iterator[Member]:
    for entry in ENTRY.finditer(decoded.text):
        reading.check()
        if entry["key"] is None:
            continue
        text = ESCAPE.sub(_unescaped, entry["text"])
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        span, raw = Span(*entry.span("text")), functools.partial(_raw, decoded)
        if ARGUMENT.search(text):
            member = message_at(span, entry["key"], text, raw, everywhere=True)
        else:
            member = member_at(span, entry["key"], text, functools.partial(_plain, raw))
        if member:
            yield member


def _unescaped(match: re.Match[str]) -> str:
    code, character = match.groups()
    if code:
        return chr(int(code, 16))
    return ESCAPED.get(character, character) if character else ""


def _plain(raw: Callable[[str], str], text: str) -> str:
    """A text that was no message; with arguments it is one."""
    return raw(to_message(text, ()) if ARGUMENT.search(text) else text)


def _raw(decoded: DecodedText, text: str) -> str:
    """A text escaped; of a file in ASCII, other characters by their numbers."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    text = text.replace("\r", "\\r").replace("\f", "\\f")
    text = re.sub("^[ =:]", r"\\\g<0>", text)
    is_ascii = decoded.text.isascii()
    return "".join(c if _fits(c, is_ascii, decoded.encoding) else _numbers(c) for c in text)


def _fits(character: str, is_ascii: bool, encoding: str) -> bool:
    return character < "\x80" or (not is_ascii and (encoding != "latin-1" or character < "\u0100"))


def _numbers(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))
