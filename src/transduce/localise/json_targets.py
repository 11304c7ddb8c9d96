"""Members that a JSON file lacks, put into it in its own layout."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence

from transduce.localise.document import Edit, Reading, Span
from transduce.localise.json_formats import JsonNode, read_tree


class Layout:
    """Text of a file with its root, and the indent of a level."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = read_tree(text, Reading())
        indent = re.search(r"\n([ \t]+)", text)
        self.unit = indent[1] if indent else "  "

    def before(self, node: JsonNode) -> str:
        """White space before the line of a node."""
        line = self.text[self.text.rfind("\n", 0, node.key.start) + 1 : node.key.start]
        return line[: len(line) - len(line.lstrip())]


def held_otherwise(new: Layout, old: Layout) -> list[Span]:
    """Places of a JSON file for which an older one holds something else than a text: an array for a
    string, a number."""

    def held(newer: JsonNode, older: JsonNode) -> Iterator[Span]:
        if newer.kind == older.kind and newer.kind in "{[":
            for name, node in newer.members.items():
                if name in older.members:
                    yield from held(node, older.members[name])
        elif not _is_gap(older) and (newer.kind != older.kind or not _is_text(older)):
            yield from _texts(newer)

    return [*held(new.root, old.root)]


def _texts(node: JsonNode) -> Iterator[Span]:
    """Places of the strings of a node."""
    if node.kind == '"':
        yield node.span
    for member in node.members.values():
        yield from _texts(member)


def _is_text(node: JsonNode) -> bool:
    return any(map(str.isalnum, node.string))


def _is_gap(node: JsonNode) -> bool:
    return node.kind == "n" or node.raw == '""'


def inserted_members(new: Layout, old: Layout, lacking: Iterable[Span]) -> Iterator[Edit]:
    """Edits of an older JSON file that add the members of a newer one that have some texts, each
    behind the one before it.

    lacking: places of these texts.
    """
    starts = sorted(span.start for span in lacking)
    if not old.root.members:
        yield Edit(old.root.span, new.text[slice(*new.root.span)])
    else:
        yield from _inserted(new, old, new.root, old.root, starts)


def _inserted(
    new: Layout, old: Layout, newer: JsonNode, older: JsonNode, starts: Sequence[int]
) -> Iterator[Edit]:
    """`inserted_members` of two objects or arrays.

    newer, older: parts of the files.  starts: of the texts that the older one lacks.
    """
    nodes = [*older.members.values()]
    blank, between = _blanks(old, older)
    before: JsonNode | None = None
    added: set[str] = set()
    runs: list[tuple[JsonNode | None, list[str]]] = []
    for name, node in newer.members.items():
        has_new = bisect.bisect_left(starts, node.span.start) < bisect.bisect_left(
            starts, node.span.end
        )
        if name in older.members:
            before = older.members[name]
            if has_new and node.kind == before.kind and node.kind in "{[":
                yield from _inserted(new, old, node, before, starts)
            elif has_new and _is_gap(before):
                yield Edit(before.span, _laid_out(new, old, node, blank))
        elif has_new or name.removeprefix("@") in added:
            added.add(name)
            text = _laid_out(new, old, node, blank)
            if newer.kind == "{":
                text = f"{new.text[slice(*node.key)]}{between}{text}"
            if not runs or runs[-1][0] is not before:
                runs.append((before, []))
            runs[-1][1].append(text)
    for before, texts in runs:
        if before is not None:
            end = before.span.end
            yield Edit(Span(end, end), "".join(f",{blank}{text}" for text in texts))
        elif nodes:
            start = nodes[0].key.start
            yield Edit(Span(start, start), "".join(f"{text},{blank}" for text in texts))
        else:
            closing = f"\n{old.before(older)}" if "\n" in blank else ""
            inside = Span(older.span.start + 1, older.span.end - 1)
            yield Edit(inside, f"{blank if closing else ''}{f',{blank}'.join(texts)}{closing}")


def _blanks(layout: Layout, parent: JsonNode) -> tuple[str, str]:
    """White space between the members of a part, and the colon between a name and its value."""
    nodes = [*parent.members.values()]
    first = nodes[0] if nodes else next(iter(layout.root.members.values()))
    colon = layout.text[first.key.end : first.span.start] if first.key != first.span else ": "
    if not nodes:
        line = f"\n{layout.before(parent)}{layout.unit}"
        return (line if "\n" in layout.text.strip() else " "), colon
    if len(nodes) > 1 or "\n" in nodes[0].blank(layout.text):
        return nodes[-1].blank(layout.text), colon
    return " " if colon[-1:].isspace() else "", colon


def _laid_out(new: Layout, old: Layout, node: JsonNode, blank: str) -> str:
    """The value of a node of a newer file, in the layout of the older one."""
    raw = new.text[slice(*node.span)]
    if "\n" not in blank:
        return re.sub(r"\s*\n\s*", "", re.sub(r",\s*\n\s*", f",{blank}", raw))
    if "\n" not in raw:
        return raw
    outer = new.before(node)
    first, *lines = raw.split("\n")
    rows = [first]
    for line in lines:
        text = line.lstrip()
        level = max(len(line) - len(text) - len(outer), 0) // len(new.unit)
        rows.append(f"{old.unit * level}{text}")
    return blank.join(rows)
