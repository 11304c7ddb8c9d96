"""Property lists of Apple: strings, and plurals of a stringsdict."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span
from transduce.localise.plurals import CATEGORY_NAMES
from transduce.localise.units import Member, Unit, document_of, shortened, unit_in_place
from transduce.localise.xml import Element, Text, blank_before, text_of

FLAGS = frozenset(("objc-format",))
SETTINGS = ("NSStringFormatSpecTypeKey", "NSStringFormatValueTypeKey")


def read_plist(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read the strings of dictionaries; settings of plurals are left."""
    references: dict[str, str] = {}
    units: list[Unit] = []

    def walk(element: Element, path: str) -> None:
        reading.check()
        if element.local_name != "dict":
            return
        texts: dict[str, tuple[Element, Text]] = {}
        keys: dict[str, Element] = {}
        children = element.children
        for key, child in zip(children[::2], children[1::2], strict=False):
            name = text_of(key, (), {}).source
            walk(child, shortened(f"{path}, {name}" if path else name))
            text = text_of(child, (), references)
            if child.local_name == "string" and name not in (*SETTINGS, *texts) and text.has_words:
                texts[name], keys[name] = (child, text), key
        units.extend(_units(decoded, texts, keys, path, reading.language))

    for element in root.children:
        walk(element, "")
    return document_of(decoded, units)


def _units(
    decoded: DecodedText,
    texts: Mapping[str, tuple[Element, Text]],
    keys: Mapping[str, Element],
    path: str,
    language: str | None,
) -> Iterator[Unit]:
    """Units of a dictionary: its plural, and each other string."""
    members = {}
    for name, (element, text) in texts.items():
        key = shortened(f"{path}, {name}" if path else name)
        segment = Segment(key, text.source, (element.span,), text.tags, True, flags=FLAGS)
        raw = functools.partial(text.written, key, decoded=decoded)
        members[name] = Member(segment, raw, element.with_content)
    plural = {name: member for name, member in members.items() if name in CATEGORY_NAMES}

    def add(name: str, raw: str) -> Edit:
        key, end = keys["other"], texts["other"][0].span.end
        new = f"{blank_before(key)}<key>{name}</key>{blank_before(texts['other'][0])}"
        return Edit(Span(end, end), f"{new}<string>{raw}</string>")

    if "other" in plural:
        yield unit_in_place(plural, language, add)
    else:
        plural = {}
    yield from (unit_in_place({"": members[name]}) for name in texts if name not in plural)
