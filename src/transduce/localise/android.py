"""Resources of Android: strings, arrays and plurals."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span
from transduce.localise.inline import parts_of
from transduce.localise.units import Member, Unit, document_of, shortened, unit_in_place
from transduce.localise.xml import Element, Text, blank_before, text_of

ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)|(\")|([ \t\r\n]+)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t"}
ESCAPES = {"'": "\\'", '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
FLAGS = frozenset(("objc-format", "python-brace-format"))
"""Formats of placeholders: `%1$s`, `{name}`."""


class String(NamedTuple):
    """A string: its element, its text, and the segment of that."""

    element: Element
    text: Text
    segment: Segment

    def written(self, target: str, decoded: DecodedText) -> str:
        """A target as content, escaped."""
        parts = parts_of(target, self.text.tags)
        spaced = "".join(
            part if is_tag else re.sub("(?<= ) ", "\ue000", part) for is_tag, part in parts
        )
        raw = self.text.written(self.segment.key, spaced, decoded).replace("\ue000", "\\u0020")
        return re.sub(r"^((?:\s|<!\[CDATA\[)*)(?=[@?])", r"\1\\", raw)


def read_android(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read a file of resources."""
    references: dict[str, str] = dict(ESCAPES)
    units: list[Unit] = []
    for element in root.children:
        reading.check()
        if element.get("translatable") == "false" or element.get("translate") == "no":
            continue
        name = shortened(f"{element.local_name} {element.get('name')}")
        if element.local_name == "string":
            members = {"": element}
        elif element.local_name == "string-array":
            members = {str(i): item for i, item in enumerate(element.children, 1)}
        elif element.local_name == "plurals":
            members = {item.get("quantity"): item for item in element.children}
        else:
            continue
        strings = {
            part: string
            for part, item in members.items()
            if (string := _string(item, f"{name}, {part}" if part else name, references))
        }
        if element.local_name == "plurals" and "other" in strings:
            items = {part: _member(string, decoded) for part, string in strings.items()}
            add = functools.partial(_added, strings["other"].element)
            units.append(unit_in_place(items, reading.language, add))
        else:
            units += [unit_in_place({"": _member(s, decoded)}) for s in strings.values()]
    return document_of(decoded, units)


def _string(element: Element, key: str, references: dict[str, str]) -> String | None:
    raw = text_of(element, ("g",), references)
    references |= ESCAPES
    if re.match(r"[@?](?:\+?\w+[:/]|null$)", raw.source) or not raw.has_words:
        return None
    quoted = False

    def unescaped(match: re.Match[str]) -> str:
        nonlocal quoted
        code, character, quote, _ = match.groups()
        if code:
            character = chr(int(code, 16))
            if character not in "<>& '\"\\" and not "\ud800" <= character <= "\udfff":
                references[character] = match[0]
            return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(character, character)
        if character:
            return ESCAPED.get(character, character)
        if quote:
            quoted = not quoted
            return ""
        return match[0] if quoted else " "

    parts = parts_of(raw.source, raw.tags)
    whole = "".join(p if is_tag else ESCAPE.sub(unescaped, p) for is_tag, p in parts)
    core = whole.strip()
    if not core or any("\ud800" <= c <= "\udfff" for c in core):
        return None
    start = whole.index(core)
    ends = [
        "".join("\\u0020" if c == " " else references.get(c, c) for c in end)
        for end in (whole[:start], whole[start + len(core) :])
    ]
    text = raw._replace(before=raw.before + ends[0], source=core, after=ends[1] + raw.after)
    segment = Segment(shortened(key), core, (element.span,), raw.tags, True, flags=FLAGS)
    return String(element, text, segment)


def _member(string: String, decoded: DecodedText) -> Member:
    return Member(
        string.segment,
        lambda target: string.written(target, decoded),
        string.element.with_content,
    )


def _added(last: Element, name: str, raw: str) -> Edit:
    """Edit that adds an item before the last of a plural."""
    item = last.text[slice(*last.start)]
    item = re.sub(r"""(quantity\s*=\s*["'])other""", rf"\g<1>{name}", item)
    insertion = Span(last.span.start, last.span.start)
    return Edit(insertion, f"{item}{raw}</{last.name}>{blank_before(last)}")
