"""String catalogues of Xcode: the strings of all languages in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span, State
from transduce.localise.json_tree import Node, literal
from transduce.localise.languages import of_other_languages
from transduce.localise.plurals import origins
from transduce.localise.record import Record
from transduce.localise.units import Unit, document_of, framed, shortened

FLAGS = frozenset(("objc-format",))
KINDS = ("variations", "plural", "device", "substitutions", "stringUnit")
"""Names of the parts of a localisation."""


def read_xcstrings(decoded: DecodedText, root: Node, reading: Reading) -> Document:
    """Read the strings of the source language, and those of the target language as targets.

    A new translation has the state needs_review.
    """
    language = reading.language
    if language is None:
        raise DataError("the target language is not known; give --target-language de")
    units: list[Unit] = []
    source = root.members["sourceLanguage"].string
    if unread := of_other_languages(reading, source):
        return document_of(decoded, [], unread=unread)
    for name, entry in root.members["strings"].members.items():
        reading.check()
        flag = entry.members.get("shouldTranslate")
        if entry.kind == "{" and not (flag and flag.kind == "f"):
            layout = _Layout(decoded, name, entry, source, language)
            if segments := layout.segments(unread):
                units.append(Unit(segments, layout.edits))
    return document_of(decoded, units, unread=unread)


def _at(node: Node | None, *path: str) -> Node | None:
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


def _groups(node: Node | None, language: str, path: tuple[str, ...] = ()) -> Iterator[_Group]:
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


class _Layout:
    """An entry: the texts of its source, and how those of a translation are written."""

    def __init__(
        self, decoded: DecodedText, name: str, entry: Node, source: str, language: str
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

    def unit(self, group: _Group, category: str) -> Node | None:
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
        )

    def edits(self, targets: Mapping[str, str]) -> Iterator[Edit]:
        """Edits of values and states, or of a new part for the language, in which texts without a
        translation are their sources."""
        new: dict[str, Any] = {}
        for group in self.groups:
            for name, origin in group.made.items():
                target = targets.get(self.key(group, origin))
                before, core, after = framed(group.sources[origin])
                raw = literal(before + (target or core) + after, self.decoded)
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
        self, parent: Node, part: str, indent: str, newline: str, following: str | None
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
