"""JSON: i18next and other catalogues of strings, ARB, messages of Chrome, xcstrings."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

from transduce.localise.document import DecodedText, Document, Edit, Reading, Span
from transduce.localise.icu import HEAD
from transduce.localise.json_tree import Node, literal, read_tree
from transduce.localise.message_format import message_at
from transduce.localise.plurals import CATEGORY_NAMES
from transduce.localise.units import Member, Unit, document_of, member_at, shortened, unit_in_place
from transduce.localise.xcstrings import read_xcstrings

PLURAL = re.compile(rf"(?P<name>.+)_(?P<category>{'|'.join(CATEGORY_NAMES)})")


def read_json(content: bytes, reading: Reading) -> Document:
    """Read the strings of a file; of ARB no metadata, of Chrome's messages only the message."""
    decoded = reading.decode(content)
    root = read_tree(decoded.text, reading)
    members = root.members
    if "sourceLanguage" in members and "strings" in members:
        return read_xcstrings(decoded, root, reading)
    is_arb = any(key.startswith("@") for key in members)
    locale = members.get("@@locale")
    code = reading.language
    language = [Edit(locale.span, literal(code, decoded))] if locale and code else []
    is_icu = not is_arb and HEAD.search(decoded.text) is not None
    units = _units(decoded, root, "", is_arb, is_icu, reading)
    return document_of(decoded, list(units), language=language)


def _units(
    decoded: DecodedText, parent: Node, path: str, is_arb: bool, is_icu: bool, reading: Reading
) -> Iterator[Unit]:
    """Units of all strings below a node; in a file with choices of ICU all are its messages."""
    plurals: dict[str, dict[str, Member]] = {}
    members: dict[str, Member] = {}
    names = parent.members
    raw = functools.partial(literal, decoded=decoded)
    is_message = "message" in names and names.keys() <= {"message", "description", "placeholders"}
    for name, node in names.items():
        reading.check()
        if (is_arb and name.startswith("@")) or (is_message and name != "message"):
            continue
        key = shortened(f"{path}.{name}" if path else name)
        if node.kind in "{[":
            yield from _units(decoded, node, key, is_arb, is_icu, reading)
        elif node.kind == '"' and (member := _member(node, key, raw, is_icu)):
            match = PLURAL.fullmatch(name)
            if match and f"{match['name']}_other" in names:
                plurals.setdefault(match["name"], {})[match["category"]] = member
            else:
                members[name] = member
    for name, forms in plurals.items():
        if "other" in forms:
            add = functools.partial(_added, decoded, parent, name)
            yield unit_in_place(forms, reading.language, add)
        else:
            yield from (unit_in_place({"": member}) for member in forms.values())
    yield from (unit_in_place({"": member}) for member in members.values())


def _member(node: Node, key: str, raw: Callable[[str], str], is_icu: bool) -> Member | None:
    """A string; of ICU with its apostrophes, which choices have in their texts."""
    if is_icu and not HEAD.search(node.string):
        return message_at(node.span, key, node.string, raw, everywhere=False)
    return member_at(node.span, key, node.string, raw)


def _added(decoded: DecodedText, parent: Node, name: str, category: str, raw: str) -> Edit:
    """Edit that adds a category behind `other`."""
    node = parent.members[f"{name}_other"]
    key = literal(f"{name}_{category}", decoded)
    between = decoded.text[node.key.end : node.span.start]
    insertion = Span(node.span.end, node.span.end)
    return Edit(insertion, f",{node.blank(decoded.text)}{key}{between}{raw}")
