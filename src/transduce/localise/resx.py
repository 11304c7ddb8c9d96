"""RESX and RESW of .NET: strings by their names."""

from __future__ import annotations

import functools

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Reading, Segment
from transduce.localise.inline import from_markup
from transduce.localise.units import Member, document_of, shortened, unit_in_place
from transduce.localise.xml import Element, text_of

FLAGS = frozenset(("python-brace-format",))


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
        if text.has_words:
            segment = Segment(name, text.source, (element.span,), text.tags, True, flags=FLAGS)
            raw = functools.partial(text.written, name, decoded=decoded)
            units.append(unit_in_place({"": Member(segment, raw, content.with_content)}))
    return document_of(decoded, units)
