"""String catalogues of Xcode: the strings of all languages in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span, State
from transduce.localise.json_tree import Node, literal
from transduce.localise.languages import of_other_languages
from transduce.localise.plurals import origins
from transduce.localise.units import Unit, document_of, framed, shortened

FLAGS = frozenset(("objc-format",))


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
            if segments := layout.segments():
                units.append(Unit(segments, layout.edits))
    return document_of(decoded, units)


def _at(node: Node | None, *path: str) -> Node | None:
    for name in path:
        node = node.members.get(name) if node else None
    return node


class _Layout:
    """An entry: its sources by category, "" without a plural."""

    def __init__(
        self, decoded: DecodedText, name: str, entry: Node, source: str, language: str
    ) -> None:
        self.decoded = decoded
        self.name = shortened(name)
        self.entry = entry
        self.language = language
        self.localizations = _at(entry, "localizations")
        self.target = _at(self.localizations, language)
        origin = _at(self.localizations, source)
        plural = _at(origin, "variations", "plural")
        values = {
            category: value.string
            for category, node in (plural.members if plural else {"": origin}).items()
            if (value := _at(node, "stringUnit", "value"))
        }
        if not values and origin is None:
            values = {"": name}
        self.sources = {c: text for c, text in values.items() if any(map(str.isalnum, text))}
        if "" not in self.sources and "other" not in self.sources:
            self.sources = {}
        self.made = origins(self.sources, language if plural else None)

    def key(self, category: str) -> str:
        """Name of the segment of a category."""
        return shortened(f"{self.name}, {category}") if category else self.name

    def unit(self, category: str) -> Node | None:
        """The stringUnit of the target."""
        path = ("variations", "plural", category) if category else ()
        return _at(self.target, *path, "stringUnit")

    def segments(self) -> list[Segment]:
        """A segment for each source that a category is made from."""
        if self.target and not any(map(self.unit, self.made)):
            return []  # varied in another way
        segments = []
        for origin in dict.fromkeys(self.made.values()):
            units = [self.unit(name) for name, made in self.made.items() if made == origin]
            texts = [value.string if (value := _at(u, "value")) else "" for u in units]
            states = {mark.string if (mark := _at(u, "state")) else "" for u in units}
            state: State = "translated" if states == {"translated"} else "fuzzy"
            segments.append(
                Segment(
                    self.key(origin),
                    self.sources[origin].strip(),
                    (self.entry.span,),
                    flags=FLAGS,
                    target=texts[0].strip(),
                    state=state if all(texts) else "missing",
                )
            )
        return segments

    def edits(self, targets: Mapping[str, str]) -> Iterator[Edit]:
        """Edits of values and states, or of a new part for the language."""
        texts = {}
        for name, origin in self.made.items():
            if (target := targets.get(self.key(origin))) is not None:
                before, _, after = framed(self.sources[origin])
                texts[name] = literal(before + target + after, self.decoded)
        if self.target is None:
            yield self._new(texts)
            return
        for name, raw in texts.items():
            unit = self.unit(name)
            state, value = _at(unit, "state"), _at(unit, "value")
            if state and value:
                yield Edit(value.span, raw)
                yield Edit(state.span, '"needs_review"')

    def _new(self, texts: Mapping[str, str]) -> Edit:
        """Edit that adds the language, in the order of languages."""
        text = self.decoded.text
        newline = self.decoded.newline
        indent = self.entry.blank(text).rpartition("\n")[2]
        units = {
            name: {"stringUnit": {"state": "needs_review", "value": raw}}
            for name, raw in texts.items()
        }
        new: object = units.get("", {"variations": {"plural": units}})
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
    """A tree as Xcode writes it; its strings are raw, but for the state."""
    if not isinstance(tree, dict):
        return '"needs_review"' if tree == "needs_review" else str(tree)
    rows = [f'{indent}  "{name}" : {_pretty(part, indent + "  ")}' for name, part in tree.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
