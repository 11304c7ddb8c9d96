"""Units that a file of lines lacks, put into it in lines of their own: elements, assignments, keys
of YAML and PHP."""

from __future__ import annotations

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Edit, Span
from transduce.localise.lock import Version

CLOSING = re.compile(r"</|[]})]|$")
"""Beginning of a line that ends what is before it."""
OPENING = re.compile(r"(?:[\[{(:]|<[^/<>]*[^/<>]>)\s*$")
"""End of a line that begins what is behind it."""
HEADER = re.compile(r"\s*(?P<name>\[\[?[^\[\]\n]+\]\]?)\s*(?:[;#].*)?$", re.S)
"""Line that begins a section."""
START_TAG = re.compile(r"<([^/<>\s]+)[^<>]*>")
COMMENT = re.compile(r"\s*[;#]")


class _Entry(NamedTuple):
    """Lines of a unit with what belongs to it: comments before it, ends of elements behind it.

    spans: places of its text, or of its element.  first: line of these.
    """

    name: str
    spans: tuple[Span, ...]
    start: int
    first: int
    end: int


class _Lines:
    """A version as lines: the entries of its units, in order, and the sections that they are in."""

    def __init__(self, version: Version, tables: Collection[str]) -> None:
        """tables: names of the sections that have units."""
        self.text = version.document.decoded.text
        self.lines = [*self.text.splitlines(keepends=True), ""]
        self.starts = [*itertools.accumulate(map(len, self.lines[:-1]), initial=0)]
        self.headers = self._headers(tables)
        self.header_lines = [*self.headers]
        self.objects = {  # with the number of the last unit of each
            name[: dot.start()]: i
            for i, name in enumerate(version.names)
            for dot in re.finditer(r"\.", name)
        }
        self.entries: list[_Entry] = []
        for name, unit in zip(version.names, version.units, strict=True):
            self.entries.append(self._entry(name, unit.spans))
        if self.entries:
            self.entries[0] = self._without_head()

    def _entry(self, name: str, spans: tuple[Span, ...]) -> _Entry:
        """The entry of a unit behind those before it."""
        first = self.line_at(spans[0].start)
        last = max(self.line_at(spans[-1].end - 1), first)
        start = min(self.entries[-1].end if self.entries else 0, first)
        while start < first and CLOSING.match(self.lines[start].strip()):
            start += 1
        start = max(start, self.header(first) + 1)
        indent = min(map(self.indent, range(start if self.entries else first, first + 1)))
        return _Entry(name, spans, start, first, self.closed(last + 1, indent))

    def _without_head(self) -> _Entry:
        """The first entry without what belongs to the file, but with the tags around it."""
        head, *others = self.entries
        indents = (self.indent(i) for e in others for i in range(e.start, e.first + 1))
        top = min(indents, default=self.indent(head.first))
        start = head.first
        while start and OPENING.search(self.lines[start - 1]) and self.indent(start - 1) >= top:
            start -= 1
        end = self.closed(head.end, min(self.indent(start), self.indent(head.first)))
        return head._replace(start=start, end=end)

    def _headers(self, tables: Collection[str]) -> dict[int, str]:
        """Names of sections by their lines, numbered where they are there again; none where no unit
        is in such."""
        headers, numbers = {}, Counter[str]()
        for i, line in enumerate(self.lines):
            if match := HEADER.match(line):
                name = "".join(match["name"].split())
                numbers[name] += 1
                headers[i] = f"{name} {numbers[name]}"
        is_in = any(name.rpartition(" ")[0].strip("[]") in tables for name in headers.values())
        return headers if is_in else {}

    def line_at(self, offset: int) -> int:
        """The line of a character."""
        return bisect.bisect_right(self.starts, offset) - 1

    def signatures(self, line: int, bare: str) -> Iterator[str]:
        """Signatures of the line of a unit without a text: with its section, with the line before.

        bare: the line as of `_bare`.
        """
        yield f"in {self.section(line)}\n{bare}"
        yield f"behind {self.lines[line - 1].strip() if line else ''}\n{bare}"

    def bare(self, entry: _Entry) -> str:
        """The line of a unit as if it had no text; "" unless that is on one line."""
        line, start = self.lines[entry.first], self.starts[entry.first]
        text = Span(*(offset - start for offset in entry.spans[0]))
        is_line = len(entry.spans) == 1 and line[text.start] != "<" and text.end <= len(line)
        return _bare(line[: text.start] + line[text.end :]) if is_line else ""

    def header(self, line: int) -> int:
        """The line that begins the section of a line; -1 without one."""
        number = bisect.bisect_right(self.header_lines, line)
        return self.header_lines[number - 1] if number else -1

    def section(self, line: int) -> str:
        """Name of the section of a line."""
        return self.headers.get(self.header(line), "")

    def commented(self, line: int) -> int:
        """The first line of the comments right before a line; without those of the file."""
        start = line
        while start and COMMENT.match(self.lines[start - 1]):
            start -= 1
        return start or line

    def indent(self, line: int) -> int:
        """Blanks before a line; of a blank line many."""
        text = self.lines[line]
        return len(text) - len(text.lstrip()) if text.strip() else 10_000

    def closed(self, line: int, indent: int) -> int:
        """The line behind blank ones and those that end what is indented as far."""
        while line < len(self.lines) - 1:
            text = self.lines[line].strip()
            if text and not (CLOSING.match(text) and self.indent(line) >= indent):
                break
            line += 1
        return line

    def parent(self, name: str) -> str:
        """The innermost object with entries that a unit is in, by their names; empty for none."""
        while name:
            name = name.rpartition(".")[0]
            if name in self.objects:
                return name
        return ""

    def inner(self, entry: _Entry) -> int:
        """The first line of an entry without those that begin what is around it."""
        line = entry.start
        while line < entry.first and self.indent(line) < self.indent(entry.first):
            line += 1
        return line

    def written(self, line: int) -> int:
        """The line behind the last one with text before a line."""
        while line and not self.lines[line - 1].strip():
            line -= 1
        return line


def _bare(line: str) -> str:
    """A line without blanks and quotes of an empty text."""
    return re.sub(r"\"\"|''", "", "".join(line.split()))


def _filled_lines(
    new: _Lines, old: _Lines, lacking: Sequence[_Entry]
) -> Iterator[tuple[str, Edit]]:
    """Edits of lines of an older version that have a key and no text, with the names of units.

    lacking: entries of the newer version that the older one has not.
    """
    lines: dict[str, list[int]] = {}
    for i, line in enumerate(old.lines):
        for signature in old.signatures(i, _bare(line)) if line.strip() else ():
            lines.setdefault(signature, []).append(i)
    bare = ((entry, new.bare(entry)) for entry in lacking)
    signatures = {e: [*new.signatures(e.first, line)] for e, line in bare if line}
    counts = Counter(itertools.chain(*signatures.values()))
    for entry, several in signatures.items():
        unique = (s for s in several if counts[s] == 1 == len(lines.get(s, ())))
        if signature := next(unique, ""):
            number = lines[signature][0]
            line, start = old.lines[number].rstrip("\r\n"), old.starts[number]
            span = Span(start + old.indent(number), start + len(line))
            yield entry.name, Edit(span, new.lines[entry.first].strip())


def _filled_elements(
    new: _Lines, old: _Lines, lacking: Sequence[_Entry]
) -> Iterator[tuple[str, Edit]]:
    """Edits of elements of an older version without a text, with the names of units.

    lacking: as of `_filled_lines`.
    """
    tags: dict[str, list[re.Match[str]]] = {}
    for tag in START_TAG.finditer(old.text):
        tags.setdefault("".join(tag[0].split()), []).append(tag)
    for entry in lacking:
        element = new.text[slice(*entry.spans[0])]
        start, close, _ = element.partition(">")
        present = tags.get("".join(start.split()) + close, [])
        if element[:1] == "<" and len(present) == 1:
            name, inner = present[0][1], present[0].end()
            end = old.text.find(f"</{name}>", inner)
            if end > 0 and not re.sub("<[^<>]*>", "", old.text[inner:end]).strip():
                span = Span(present[0].start(), end + len(f"</{name}>"))
                yield entry.name, Edit(span, element)


def inserted_lines(newer: Version, older: Version) -> Iterator[Edit]:
    """Edits that add the units that an older version lacks, each run of one section or object
    behind the unit before.  Raises DataError where such have no lines of their own."""
    tables = {unit.key.rpartition(".")[0] for unit in (*newer.units, *older.units)}
    new, old = _Lines(newer, tables), _Lines(older, tables)
    known = {entry.name: entry for entry in old.entries}
    lacking = [entry for entry in new.entries if entry.name not in known]
    if {e.first for e in lacking} & {e.first for e in new.entries if e.name in known}:
        raise DataError("several units are on one line")
    filled = dict([*_filled_lines(new, old, lacking), *_filled_elements(new, old, lacking)])
    yield from filled.values()
    following: dict[str, _Entry | None] = {}
    after: _Entry | None = None
    for entry in reversed(new.entries):
        following[entry.name] = after = known.get(entry.name, after)

    def group_of(entry: _Entry) -> tuple[bool, str]:
        is_there = entry.name in known or entry.name in filled
        return is_there, new.section(entry.first) if new.headers else old.parent(entry.name)

    blocks: dict[int, list[tuple[int, str]]] = {}
    before: _Entry | None = None
    for (is_there, parent), run in itertools.groupby(new.entries, key=group_of):
        entries = [*run]
        if is_there:
            before = next((known[e.name] for e in reversed(entries) if e.name in known), before)
            continue
        if new.headers:
            line, block = _in_section(new, old, entries, before)
        else:
            around = before, following[entries[-1].name]
            line, block = _between(new, old, entries, around, parent)
        depth = 0 if new.headers or not parent else parent.count(".") + 1
        blocks.setdefault(line, []).append((-depth, _ended(block, old, line)))
    for line, texts in blocks.items():  # at the end of an object first what belongs to it
        text = "".join(text for _, text in sorted(texts, key=lambda block: block[0]))
        yield Edit(Span(old.starts[line], old.starts[line]), text)


def _in_section(
    new: _Lines, old: _Lines, run: Sequence[_Entry], before: _Entry | None
) -> tuple[int, str]:
    """Line and text of entries of one section of a newer version."""
    section, end = new.section(run[0].first), new.written(run[-1].end)
    lines = {name: line for line, name in old.headers.items()}
    if section in lines or not section:
        block = "".join(new.lines[run[0].start : end])
        if before and old.section(before.first) == section:
            return old.written(before.end), block
        return lines[section] + 1 if section else old.commented(min(old.headers, default=0)), block
    start = new.commented(new.header(run[0].first))
    block = "".join(new.lines[start:end])
    number = bisect.bisect_right(old.header_lines, before.first if before else -1)
    is_last = number == len(old.header_lines)
    line = len(old.lines) - 1 if is_last else old.commented(old.header_lines[number])
    before_it = "\n" if line and old.lines[line - 1].strip() else ""
    behind_it = "\n" if line < len(old.lines) - 1 else ""
    return line, f"{before_it}{block.rstrip()}\n{behind_it}"


def _between(
    new: _Lines,
    old: _Lines,
    run: Sequence[_Entry],
    around: tuple[_Entry | None, _Entry | None],
    parent: str,
) -> tuple[int, str]:
    """Line and text of entries of a newer version, between two of the older one.

    parent: name of the object of both that has them; empty for none.
    """
    before, following = (entry if entry and _is_in(entry, parent) else None for entry in around)
    if before is None and following is None and old.entries:
        before = old.entries[old.objects[parent] if parent else -1]
    entry = run[0]
    start = new.inner(entry) if parent else entry.start
    indent = min(map(new.indent, range(start, entry.first + 1)))
    block = "".join(new.lines[start : new.closed(run[-1].end, indent)])
    if before is None:
        line = len(old.lines) - 1
        if following:
            line = old.inner(following) if parent else following.start
    else:
        line = old.closed(before.end, indent)
    return line, block


def _is_in(entry: _Entry, parent: str) -> bool:
    return not parent or entry.name.startswith(f"{parent}.")


def _ended(block: str, old: _Lines, line: int) -> str:
    """A block that begins and ends on lines of its own before a line."""
    if line and not old.lines[line - 1].endswith("\n"):
        return f"\n{block.rstrip()}"
    return block if block.endswith("\n") else f"{block}\n"
