"""JSON: places of its parts, i18next and other catalogues of strings, ARB, messages of Chrome,
string catalogues of Xcode."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transduce.errors import DataError
from transduce.localise.document import (
    DecodedText,
    Document,
    Edit,
    Reading,
    Record,
    Segment,
    Span,
    State,
    form_key,
)
from transduce.localise.languages import of_other_languages
from transduce.localise.message_format import message_at
from transduce.localise.plurals import CATEGORY_NAMES, HEAD, categories, origins
from transduce.localise.units import (
    Member,
    Unit,
    document_of,
    framed,
    member_at,
    shortened,
    unit_in_place,
)

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
DEEPEST = 200


@dataclass
class JsonNode:
    """A part: an object, an array (whose members have numbers as names), a string or another.

    kind: its first character.  key: place of its name, of a member of an object.
    """

    kind: str
    span: Span
    key: Span
    members: dict[str, JsonNode] = field(default_factory=dict)
    raw: str = ""

    @functools.cached_property
    def string(self) -> str:
        """The string; "" for one with half a surrogate pair, and for another part."""
        text = json.loads(self.raw or '""', strict=False)
        return "" if any("\ud800" <= c <= "\udfff" for c in text) else text

    def blank(self, text: str) -> str:
        """White space before its name."""
        start = self.key.start
        while start and text[start - 1].isspace():
            start -= 1
        return text[start : self.key.start]


def read_tree(text: str, reading: Reading) -> JsonNode:
    """The root of a text.  Raises DataError unless it is JSON, at most 200 deep."""
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the file is not JSON: {error}") from None
    root = JsonNode("", Span(0, 0), Span(0, 0))
    open_nodes = [root]
    key: tuple[str, Span] | None = None
    for token in TOKEN.finditer(text):
        reading.check()
        raw, span, parent = token[0], Span(*token.span()), open_nodes[-1]
        if raw in ",:":
            continue
        if raw in "}]":
            parent.span = Span(parent.span.start, span.end)
            open_nodes.pop()
        elif parent.kind == "{" and key is None:
            key = json.loads(raw, strict=False), span
        else:
            name, key_span = key or (str(len(parent.members) + 1), span)
            key = None
            node = JsonNode(raw[0], span, key_span, raw=raw if raw[0] == '"' else "")
            parent.members[name] = node
            if raw in "{[":
                open_nodes.append(node)
                if len(open_nodes) > DEEPEST:
                    raise DataError(f"the parts are deeper than {DEEPEST}")
    return root.members["1"]


def json_literal(text: str, decoded: DecodedText) -> str:
    """A string in quotes, escaped as those of the file."""
    is_ascii = r"\u" in decoded.habits and decoded.text.isascii()
    raw = json.dumps(text, ensure_ascii=is_ascii)
    return raw.replace("/", r"\/") if r"\/" in decoded.habits else raw


FLAGS = frozenset(("objc-format",))
KINDS = ("variations", "plural", "device", "substitutions", "stringUnit")
"""Names of the parts of a localisation."""


def read_xcstrings(decoded: DecodedText, root: JsonNode, reading: Reading) -> Document:
    """Read the strings of the source language, and those of the target language as targets.

    A new translation has the state needs_review.

    decoded: text of the file.  root: its JSON.  reading: languages and encoding.
    """
    language = reading.language
    if language is None:
        raise DataError("the target language is not known; give --target-language CODE")
    units: list[Unit] = []
    source = root.members["sourceLanguage"].string
    if unread := of_other_languages(reading, source):
        return document_of(decoded, [], unread=unread)
    for name, entry in root.members["strings"].members.items():
        reading.check()
        flag = entry.members.get("shouldTranslate")
        if entry.kind == "{" and not (flag and flag.kind == "f"):
            layout = _JsonLayout(decoded, name, entry, source, language)
            if segments := layout.segments(unread):
                units.append(Unit(segments, layout.edits))
    return document_of(decoded, units, unread=unread)


def _at(node: JsonNode | None, *path: str) -> JsonNode | None:
    for name in path:
        node = node.members.get(name) if node else None
    return node


class _Group(NamedTuple):
    """Texts of one string, of a device or a variable: places in a localisation, by category, ""
    without a plural, with their sources; and the source category of each of the translation."""

    path: tuple[str, ...]
    sources: Mapping[str, str]
    made: Mapping[str, str]

    def place(self, category: str) -> tuple[str, ...]:
        """Names of the nodes around the text of a category."""
        return (*self.path, category) if category else self.path


def _groups(node: JsonNode | None, language: str, path: tuple[str, ...] = ()) -> Iterator[_Group]:
    """All texts of a localisation: its own, those of its variables, devices and plurals."""
    if value := _at(node, "stringUnit", "value"):
        yield _Group(path, {"": value.string}, {"": ""})
    for kind in (("substitutions",), ("variations", "device")):
        holder = _at(node, *kind)
        for name, part in holder.members.items() if holder else ():
            yield from _groups(part, language, (*path, *kind, name))
    if plural := _at(node, "variations", "plural"):
        inner = (*path, "variations", "plural")
        sources = {}
        for category, part in plural.members.items():
            if value := _at(part, "stringUnit", "value"):
                sources[category] = value.string
            else:
                yield from _groups(part, language, (*inner, category))
        if "other" in sources:
            yield _Group(inner, sources, origins(sources, language))


class _JsonLayout:
    """An entry: the texts of its source, and how those of a translation are written."""

    def __init__(
        self, decoded: DecodedText, name: str, entry: JsonNode, source: str, language: str
    ) -> None:
        self.decoded = decoded
        self.name = shortened(name)
        self.entry = entry
        self.language = language
        self.localizations = _at(entry, "localizations")
        self.target = _at(self.localizations, language)
        self.origin = _at(self.localizations, source)
        self.groups = list(_groups(self.origin, language))
        if self.origin is None:
            self.groups = [_Group((), {"": name}, {"": ""})]

    def key(self, group: _Group, category: str) -> str:
        """Name of the segment of a category."""
        names = [name for name in group.path if name not in KINDS]
        return shortened(", ".join((self.name, *names, *([category] if category else []))))

    def unit(self, group: _Group, category: str) -> JsonNode | None:
        """The stringUnit of the target."""
        return _at(self.target, *group.place(category), "stringUnit")

    def segments(self, unread: list[Record]) -> list[Segment]:
        """A segment for each source that a category is made from."""
        known = (any(self.unit(group, name) for name in group.made) for group in self.groups)
        if not self.groups or (self.target and not all(known)):
            if self.groups or _at(self.origin, "variations") or _at(self.origin, "substitutions"):
                reason = "its translation is varied in another way, or it has no text"
                unread.append(Record(self.name, self.name, self.name, "unread", reason))
            return []
        return [
            self._segment(group, origin)
            for group in self.groups
            for origin in dict.fromkeys(group.made.values())
            if any(map(str.isalnum, group.sources[origin]))
        ]

    def _segment(self, group: _Group, origin: str) -> Segment:
        units = [self.unit(group, name) for name, made in group.made.items() if made == origin]
        states = [mark.string if (mark := _at(unit, "state")) else "" for unit in units]
        values = [value.string if (value := _at(unit, "value")) else "" for unit in units]
        texts = ["" if mark == "new" else text for mark, text in zip(states, values, strict=True)]
        state: State = "translated" if set(states) == {"translated"} else "fuzzy"
        return Segment(
            self.key(group, origin),
            group.sources[origin].strip(),
            (self.entry.span,),
            flags=FLAGS,
            target=texts[0].strip(),
            state=state if all(texts) else "missing",
        ).with_forms(
            (name, form.sample)
            for name, form in categories(self.language).items()
            if group.made.get(name) == origin
        )

    def edits(self, targets: Mapping[str, str]) -> Iterator[Edit]:
        """Edits of values and states, or of a new part for the language, in which texts without a
        translation are their sources."""
        new: dict[str, Any] = {}
        for group in self.groups:
            for name, origin in group.made.items():
                key = self.key(group, origin)
                target = targets.get(form_key(key, name), targets.get(key))
                before, core, after = framed(group.sources[origin])
                raw = json_literal(before + (target or core) + after, self.decoded)
                mark = '"new"' if target is None else '"needs_review"'
                self._put(new, (*group.place(name), "stringUnit"), {"state": mark, "value": raw})
                unit = self.unit(group, name)
                state, value = _at(unit, "state"), _at(unit, "value")
                if state and value and target is not None:
                    yield Edit(value.span, raw)
                    yield Edit(state.span, mark)
        if self.target is None:
            yield self._new(new)

    def _put(self, tree: dict[str, Any], path: Sequence[str], part: object) -> None:
        """Set a part of a tree; a variable gets the settings of its source."""
        node = self.origin
        text = self.decoded.text
        for before, name in zip(("", *path), path[:-1], strict=False):
            node = _at(node, name)
            is_variable = before == "substitutions" and name not in tree
            settings = node.members if node and is_variable else {}
            tree = tree.setdefault(
                name,
                {n: text[slice(*m.span)] for n, m in settings.items() if n not in KINDS},
            )
        tree[path[-1]] = part

    def _new(self, new: Mapping[str, Any]) -> Edit:
        """Edit that adds the language, in the order of languages."""
        text = self.decoded.text
        newline = self.decoded.newline
        indent = self.entry.blank(text).rpartition("\n")[2]
        if self.localizations is None or not self.localizations.members:
            part = f'"localizations" : {_pretty({self.language: new}, indent + "  ")}'
            if self.localizations is not None:
                return Edit(
                    Span(self.localizations.key.start, self.localizations.span.end),
                    part.replace("\n", newline),
                )
            return self._into(self.entry, part, indent + "  ", newline, None)
        part = f"{json.dumps(self.language)} : {_pretty(new, indent + '    ')}"
        following = min((n for n in self.localizations.members if n > self.language), default=None)
        return self._into(self.localizations, part, indent + "    ", newline, following)

    def _into(
        self, parent: JsonNode, part: str, indent: str, newline: str, following: str | None
    ) -> Edit:
        """Edit that adds a member before another, else as the last."""
        part = part.replace("\n", newline)
        if not parent.members:
            return Edit(parent.span, f"{{{newline}{indent}{part}{newline}{indent[:-2]}}}")
        if following is not None:
            insertion = parent.members[following].key.start
            return Edit(Span(insertion, insertion), f"{part},{newline}{indent}")
        insertion = max(node.span.end for node in parent.members.values())
        return Edit(Span(insertion, insertion), f",{newline}{indent}{part}")


def _pretty(tree: object, indent: str) -> str:
    """A tree as Xcode writes it; its strings are raw."""
    if not isinstance(tree, Mapping):
        return str(tree)
    rows = [f'{indent}  "{name}" : {_pretty(part, indent + "  ")}' for name, part in tree.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


JSON_PLURAL = re.compile(rf"(?P<name>.+)_(?P<category>{'|'.join(CATEGORY_NAMES)})")


def read_json_document(content: bytes, reading: Reading) -> Document:
    """Read the strings of a file; of ARB no metadata, of Chrome's messages only the message."""
    decoded = reading.decode(content)
    root = read_tree(decoded.text, reading)
    members = root.members
    if "sourceLanguage" in members and "strings" in members:
        return read_xcstrings(decoded, root, reading)
    is_arb = any(key.startswith("@") for key in members)
    locale = members.get("@@locale")
    code = reading.language
    language = [Edit(locale.span, json_literal(code, decoded))] if locale and code else []
    is_icu = not is_arb and HEAD.search(decoded.text) is not None
    units = _json_units(decoded, root, "", is_arb, is_icu, reading)
    return document_of(decoded, list(units), language=language)


def _json_units(
    decoded: DecodedText, parent: JsonNode, path: str, is_arb: bool, is_icu: bool, reading: Reading
) -> Iterator[Unit]:
    """Units of all strings below a node; in a file with choices of ICU all are its messages."""
    plurals: dict[str, dict[str, Member]] = {}
    members: dict[str, Member] = {}
    names = parent.members
    raw = functools.partial(json_literal, decoded=decoded)
    is_message = "message" in names and names.keys() <= {"message", "description", "placeholders"}
    for name, node in names.items():
        reading.check()
        if (is_arb and name.startswith("@")) or (is_message and name != "message"):
            continue
        key = shortened(f"{path}.{name}" if path else name)
        if node.kind in "{[":
            yield from _json_units(decoded, node, key, is_arb, is_icu, reading)
        elif node.kind == '"' and (member := _json_member(node, key, raw, is_icu)):
            match = JSON_PLURAL.fullmatch(name)
            if match and f"{match['name']}_other" in names:
                plurals.setdefault(match["name"], {})[match["category"]] = member
            else:
                members[name] = member
    for name, forms in plurals.items():
        if "other" in forms:
            add = functools.partial(_json_added, decoded, parent, name)
            yield unit_in_place(forms, reading.language, add)
        else:
            yield from (unit_in_place({"": member}) for member in forms.values())
    yield from (unit_in_place({"": member}) for member in members.values())


def _json_member(
    node: JsonNode, key: str, raw: Callable[[str], str], is_icu: bool
) -> Member | None:
    """A string; of ICU with its apostrophes, which choices have in their texts."""
    if is_icu and not HEAD.search(node.string):
        return message_at(node.span, key, node.string, raw, everywhere=False)
    return member_at(node.span, key, node.string, raw)


def _json_added(decoded: DecodedText, parent: JsonNode, name: str, category: str, raw: str) -> Edit:
    """Edit that adds a category behind `other`."""
    node = parent.members[f"{name}_other"]
    key = json_literal(f"{name}_{category}", decoded)
    between = decoded.text[node.key.end : node.span.start]
    insertion = Span(node.span.end, node.span.end)
    return Edit(insertion, f",{node.blank(decoded.text)}{key}{between}{raw}")
