"""Fluent (FTL): messages, their attributes, and the variants of a choice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from transduce.localise.document import DecodedText, Document, Edit, Reading, Span
from transduce.localise.inline import parts_of
from transduce.localise.plurals import CATEGORY_NAMES
from transduce.localise.record import Record
from transduce.localise.units import Member, Unit, document_of, member_at, shortened, unit_in_place

ENTRY = re.compile(r"^(?:(?P<key>-?[A-Za-z][\w-]*)|[ ]+\.(?P<name>[A-Za-z][\w-]*))[ ]*=[ ]*", re.M)
FURTHER = re.compile(r"\r?\n(?:[ ]*+\r?\n)*+[ ]++(?=[^\s.\[*}])")
"""Line break and indentation before a further line of a text."""
CHOICE = re.compile(r"\{[^{}]*->(?P<variants>.*)\}", re.DOTALL)
VARIANT = re.compile(r"^[ ]*(?P<head>\*?\[[ ]*(?P<name>[\w.-]+)[ ]*\])", re.M)
STRING = r'"(?:[^"\\\n]|\\.)*+"'
TOKEN = re.compile(rf"\{{[ ]*{STRING}[ ]*\}}|[{{}}\n]")
PLACEABLE = re.compile(rf'\{{(?:[^{{}}"-]|-(?!>)|{STRING})*+\}}')
LITERAL = re.compile(r'\{[ ]*"([^\\\n])"[ ]*\}')
"""A placeable that is a character of the text."""
BRACES = str.maketrans({"{": '{"{"}', "}": '{"}"}'})
FLAGS = frozenset(("fluent",))


def read_fluent(content: bytes, reading: Reading) -> Document:
    """Read messages; terms (`-brand`) are left, and a choice that is only a part of a text."""
    decoded = reading.decode(content)
    units: list[Unit] = []
    unread: list[Record] = []
    key, start = "", 0
    while entry := ENTRY.search(decoded.text, start):
        reading.check()
        key = shortened(entry["key"] or key)
        name = shortened(f"{key}.{entry['name']}" if entry["name"] else key)
        span = _pattern(decoded.text, entry.end())
        start = max(span.end, entry.end())
        raw = decoded.text[slice(*span)]
        spans = _variants(raw, span.start) if CHOICE.fullmatch(raw) else {"": span}
        texts = [decoded.text[slice(*each)] for each in spans.values()]
        if key.startswith("-") or not raw:
            continue
        if any(re.search("[{}]", PLACEABLE.sub("", text)) for text in texts):
            unread.append(
                Record(name, raw, raw, "unread", "it has nested braces or a choice in it")
            )
        else:
            units += _units(decoded, name, spans, reading.language)
    return document_of(decoded, units, unread=unread)


def _pattern(text: str, start: int) -> Span:
    """The text from a place on: lines with blanks before them, and all that is in braces."""
    first = FURTHER.match(text, start)
    start = end = first.end() if first else start
    depth = 0
    while token := TOKEN.search(text, end):
        depth = max(depth + {"{": 1, "}": -1}.get(token[0], 0), 0)
        further = FURTHER.match(text, token.start())
        if token[0] == "\n" and not depth and further is None:
            break
        end = further.end() if further else token.end()
    end = token.start() if token else len(text)
    return Span(start, start + len(text[start:end].rstrip()))


def _variants(choice: str, start: int) -> dict[str, Span]:
    """Places of the texts of a choice, which itself is at `start`, by their names."""
    heads = list(VARIANT.finditer(choice))
    ends = [*(head.start() for head in heads[1:]), len(choice) - 1]
    spans = {}
    for head, end in zip(heads, ends, strict=False):
        text = choice[head.end() : end].strip()
        begin = start + choice.index(text, head.end())
        spans[head["name"]] = Span(begin, begin + len(text))
    return spans


def _units(
    decoded: DecodedText, name: str, spans: Mapping[str, Span], language: str | None
) -> Iterator[Unit]:
    """The unit of a text, or those of the texts of a choice."""
    members = {
        variant: member
        for variant, span in spans.items()
        if (member := _member(decoded, f"{name}[{variant}]" if variant else name, span))
    }

    def add(category: str, raw: str) -> Edit:
        text = decoded.text
        start = text.rindex("[", 0, spans["other"].start)
        start -= text[start - 1] == "*"
        blank = decoded.newline + text[text.rindex("\n", 0, start) + 1 : start]
        return Edit(Span(start, start), f"[{category}] {raw}{blank}")

    if "other" in members and members.keys() <= set(CATEGORY_NAMES):
        yield unit_in_place(members, language, add)
    else:
        yield from (unit_in_place({"": member}) for member in members.values())


def _member(decoded: DecodedText, key: str, span: Span) -> Member | None:
    """A text; None for one without words."""
    line = decoded.text.rfind("\n", 0, span.start) + 1
    before = decoded.text[line : span.start]
    indent = " " * (len(before) - len(before.lstrip(" ")) + 4 * bool(before.strip(" ")))
    rows = decoded.text[slice(*span)].split("\n")
    raw = "\n".join(row.strip(" \r") for row in rows)
    placeables = PLACEABLE.findall(raw)
    text = LITERAL.sub(r"\1", raw)
    if not any(map(str.isalnum, PLACEABLE.sub("", text))):
        return None

    def written(whole: str) -> str:
        parts = parts_of(whole, placeables)
        text = "".join(part if is_tag else part.translate(BRACES) for is_tag, part in parts)
        text = re.sub(r"^[ \t.\[*]|[ ]$", r'{"\g<0>"}', text, flags=re.M)
        return text.replace("\n", decoded.newline + indent)

    return member_at(span, key, text, written, FLAGS)
