"""RESX and RESW of .NET: strings by their names."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Mapping, Sequence

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Reading, Segment
from transduce.localise.inline import escaped, from_markup, parts_of
from transduce.localise.units import Member, document_of, shortened, unit_in_place
from transduce.localise.xml import Element, Text, text_of

FLAGS = frozenset(("python-brace-format",))
LOCKED = re.compile(r"\{Locked\s*=((?:\s*,?\s*(?:\"[^\"]+\"|'[^']+'))+)\s*\}")
"""Phrases of a comment that are not translated."""


def read_resx(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read the strings of a file; other resources, names of controls (`>>a.Name`) and strings whose
    comment says `{Locked}` are left."""
    if root.child("resheader") is None:
        raise DataError("no format for <root>; a file of .NET has a <resheader>")
    references: dict[str, str] = {}
    units = []
    for element in root.children:
        reading.check()
        name, content = shortened(from_markup(element.get("name"))), element.child("value")
        comment = element.child("comment")
        is_string = not (element.attribute("type") or element.attribute("mimetype"))
        is_locked = name.startswith(">>") or (comment is not None and "{Locked}" in comment.raw)
        if element.local_name != "data" or content is None or not is_string or is_locked:
            continue
        text = text_of(content, (), references)
        text, phrases = _locked(text, _phrases(comment))
        if text.has_words:
            segment = Segment(name, text.source, (element.span,), text.tags, True, flags=FLAGS)
            raw = functools.partial(_written, text, phrases, name, decoded)
            units.append(unit_in_place({"": Member(segment, raw, content.with_content)}))
    return document_of(decoded, units)


def _phrases(comment: Element | None) -> Sequence[str]:
    """Phrases that a comment locks, in markup form, longest first."""
    raw = from_markup(html.unescape(comment.raw)) if comment else ""
    lists = (match[1] for match in LOCKED.finditer(raw))
    phrases = {a or b for names in lists for a, b in re.findall("\"([^\"]+)\"|'([^']+)'", names)}
    return sorted(map(escaped, phrases), key=len, reverse=True)


def _locked(text: Text, phrases: Sequence[str]) -> tuple[Text, Mapping[str, str]]:
    """A text with tags in place of some phrases, and the phrases of the tags."""
    pattern = re.compile("|".join(map(re.escape, phrases)) or "(?!)")
    named = {f'<locked of="{html.escape(phrase)}"/>': phrase for phrase in phrases}
    tag_of = {phrase: tag for tag, phrase in named.items()}
    parts: list[str] = []
    tags: list[str] = []
    for is_tag, part in parts_of(text.source, text.tags):
        parts.append(part if is_tag else pattern.sub(lambda match: tag_of[match[0]], part))
        tags += [part] if is_tag else (tag_of[match[0]] for match in pattern.finditer(part))
    return text._replace(source="".join(parts), tags=tuple(tags)), named


def _written(
    text: Text, phrases: Mapping[str, str], key: str, decoded: DecodedText, target: str
) -> str:
    """A target as content, with the phrases of its tags."""
    raw = text.written(key, target, decoded)
    return "".join(phrases.get(part, part) for _, part in parts_of(raw, tuple(phrases)))
