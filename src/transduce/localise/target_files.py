"""Target files: the file of a language that people keep beside a base file, and the keys that it
lacks.

Both have the same keys.  The base gives the texts to translate; the lines of the target stay, with
their order and comments, and those of new and changed keys come in between.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Span, spliced
from transduce.localise.json_targets import held_otherwise, inserted_members
from transduce.localise.lock import Lock, Version, unit_names
from transduce.localise.units import REPEATED, digest

logger = logging.getLogger("transduce")
Parse = Callable[[bytes], Document]
"""The document in some bytes of the format of a target."""
CLOSING = re.compile(r"</|[]})]|$")
"""Beginning of a line that ends what is before it."""
PHP_END = re.compile(r"(['\"\])])([ \t]*\r?\n(?=\s*['\"][^'\"\n]*['\"]\s*=>))")
"""Value of an array before another, without a comma."""
OPENING = re.compile(r"(?:[\[{(:]|<[^/<>]*[^/<>]>)\s*$")
"""End of a line that begins what is behind it."""


def target_path(pattern: Path, language: str | None) -> Path:
    """The path of a target, with the code of the language for `{lang}`, as Android writes it in a
    directory of values.  Raises DataError where the language is not known."""
    parts = [
        part.replace("{lang}", _android(language) if part.startswith("values") else language or "")
        for part in pattern.parts
    ]
    if language is None and "{lang}" in str(pattern):
        raise DataError(f"{pattern}: the target language is not known; give --target-language de")
    return Path(*parts)


def _android(language: str | None) -> str:
    """A code as the name of a directory of Android: pt-rBR, b+zh+Hant."""
    base, _, region = (language or "").partition("-")
    if not region:
        return base
    return f"{base}-r{region}" if len(region) == 2 else f"b+{base}+{region.replace('-', '+')}"


def with_gaps(base: Document, target: Version, lock: Lock | None, parse: Parse) -> Document:
    """The base with the segments alone that a target lacks, or whose source has changed since the
    translation; segments with the source of a text of the target have that as their match."""
    if target.has_sources or not target.document.is_keyed:
        raise DataError("--target is for files of keys in one language; leave it out")
    as_sources = base.with_targets({segment.key: segment.source for segment in base.segments})
    names = set(target.names)
    lacking = Version(parse(as_sources))
    base_names = unit_names(base.segments)
    known_names = names.union(base_names)
    forms = {
        unit.source
        for name, unit in zip(lacking.names, lacking.units, strict=True)
        if name not in known_names
    }
    by_machine = {unit.key: unit for unit in (lock.units if lock else ()) if not unit.is_by_hand}
    machine: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, unit in zip(target.names, target.units, strict=True):
        texts[name] = unit.source
        written = by_machine.get(unit.key)
        if written and written.form == target.form(unit):
            machine[name] = written.source
    segments, known = [], {}
    held = _held_otherwise(base.decoded.text, target)
    if others := [s.key for s in base.segments if s.spans[0] in held]:
        logger.warning("%d texts of the target have another form: %s", len(others), others[0])
    for name, segment in zip(base_names, base.segments, strict=True):
        if segment.spans[0] in held:
            continue
        is_stale = machine.get(name, "") not in ("", digest(segment.source))
        if name not in names or segment.source in forms or is_stale:
            segments.append(segment)
            continue
        known[segment.source] = dataclasses.replace(segment, target=texts[name], state="translated")
        if name in machine:
            segments.append(dataclasses.replace(segment, match=texts[name]))
    return dataclasses.replace(base, segments=segments, confirmed=[*known.values()])


def merged_target(new: Version, old: Version, parse: Parse) -> bytes | None:
    """A target with the units of a newer version in the lines of the older one, or of JSON among
    its members; None where such is not read again with the texts of both."""
    raw = {name: old.raw(unit) for name, unit in zip(old.names, old.units, strict=True)}
    decoded, newer = old.document.decoded, new.document.decoded
    held = _held_otherwise(newer.text, old)
    units = {n: u for n, u in zip(new.names, new.units, strict=True) if u.spans[0] not in held}
    expected = raw | {name: new.raw(unit) for name, unit in units.items()}
    if decoded.text.lstrip()[:1] == "{":
        lacking = (unit.spans[0] for name, unit in units.items() if name not in raw)
        edits = [*inserted_members(newer.text, decoded.text, lacking)]
    else:
        tables = {unit.key.rpartition(".")[0] for unit in (*new.units, *old.units)}
        try:
            edits = [*_inserted(_Lines(new, tables), _Lines(old, tables))]
        except DataError:
            return None
    for name, unit in zip(old.names, old.units, strict=True):
        if raw[name] != expected[name]:
            edits += map(Edit, unit.spans, expected[name].split("\0"))
    text = re.sub("\r?\n", decoded.newline, spliced(decoded.text, Span(0, -1), sorted(edits)))
    if decoded.text.lstrip().startswith("<?"):
        text = PHP_END.sub(r"\1,\2", text)
    try:
        content = decoded.bom + text.encode(decoded.encoding)
        again = Version(parse(content))
    except (DataError, UnicodeEncodeError):
        return None
    merged = {name: again.raw(unit) for name, unit in zip(again.names, again.units, strict=True)}
    is_whole = _plain(merged) == _plain(expected) and _repeated(again) == _repeated(old)
    return content if is_whole else None


def _held_otherwise(text: str, old: Version) -> Container[Span]:
    """Places of a newer text of JSON for which an older version holds no text."""
    older = old.document.decoded.text
    return (
        set(held_otherwise(text, older)) if older.lstrip()[:1] == text.lstrip()[:1] == "{" else ()
    )


def _repeated(version: Version) -> int:
    return sum(record.reason == REPEATED for record in version.document.unread)


def _plain(raw: Mapping[str, str]) -> dict[str, str]:
    """Units with line breaks of one kind."""
    return {name: text.replace("\r\n", "\n") for name, text in raw.items()}


HEADER = re.compile(r"\s*(?P<name>\[\[?[^\[\]\n]+\]\]?)\s*(?:[;#].*)?$", re.S)
"""Line that begins a section."""
COMMENT = re.compile(r"\s*[;#]")


class _Entry(NamedTuple):
    """Lines of a unit with what belongs to it: comments before it, ends of elements behind it.

    first: line of the unit itself.  empty: how that would be without a text, if that is all of it.
    element: the unit, where it is an element.
    """

    name: str
    start: int
    first: int
    end: int
    empty: str = ""
    element: str = ""


class _Lines:
    """A version as lines: the entries of its units, in order, and the sections that they are in."""

    def __init__(self, version: Version, tables: Collection[str]) -> None:
        """tables: names of the sections that have units."""
        text = version.document.decoded.text
        self.text = text
        self.lines = [*text.splitlines(keepends=True), ""]
        self.starts = [*itertools.accumulate(map(len, self.lines[:-1]), initial=0)]
        self.headers = self._headers(tables)
        self.places = [*self.headers]
        self.objects = {  # with the number of the last unit of each
            name[: dot.start()]: i
            for i, name in enumerate(version.names)
            for dot in re.finditer(r"\.", name)
        }
        self.entries: list[_Entry] = []
        start = 0
        for name, unit in zip(version.names, version.units, strict=True):
            places = unit.spans[0].start, max(unit.spans[-1].end - 1, unit.spans[0].start)
            first, last = (bisect.bisect_right(self.starts, place) - 1 for place in places)
            start = min(start, first)
            while start < first and CLOSING.match(self.lines[start].strip()):
                start += 1
            start = max(start, self.header(first) + 1)
            indent = min(map(self.indent, range(start, first + 1)))
            end = self.closed(last + 1, indent if self.entries else self.indent(first))
            line = self.lines[first]
            at = [place - self.starts[first] for place in unit.spans[0]]
            empty = _bare(line[: at[0]] + line[at[1] :]) if len(unit.spans) == 1 else ""
            whole = text[slice(*unit.spans[0])]
            element, empty = (whole, "") if whole[:1] == "<" else ("", empty)
            empty = empty if first == last else ""
            self.entries.append(_Entry(name, start, first, end, empty, element))
            start = end
        if self.entries:  # what is before it belongs to the file, but for the tags around it
            head, *others = self.entries
            indents = (self.indent(i) for e in others for i in range(e.start, e.first + 1))
            top = min(indents, default=self.indent(head.first))
            start = head.first
            while start and OPENING.search(self.lines[start - 1]) and self.indent(start - 1) >= top:
                start -= 1
            end = self.closed(head.end, min(self.indent(start), self.indent(head.first)))
            self.entries[0] = head._replace(start=start, end=end)

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

    def signatures(self, line: int, empty: str) -> Iterator[str]:
        """What tells the line of a unit without a text from others."""
        yield f"in {self.section(line)}\n{empty}"
        yield f"behind {self.lines[line - 1].strip() if line else ''}\n{empty}"

    def header(self, line: int) -> int:
        """The line that begins the section of a line; -1 without one."""
        number = bisect.bisect_right(self.places, line)
        return self.places[number - 1] if number else -1

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
        """The line behind the last one before a line that is not blank."""
        while line and not self.lines[line - 1].strip():
            line -= 1
        return line


def _bare(line: str) -> str:
    """A line without blanks and quotes of an empty text."""
    return re.sub(r"\"\"|''", "", "".join(line.split()))


def _filled(new: _Lines, old: _Lines, known: Collection[str]) -> dict[str, Edit]:
    """Edits of lines of an older version that have a key and no text, by the names of units."""
    lines: dict[str, list[int]] = {}
    for i, line in enumerate(old.lines):
        for signature in old.signatures(i, _bare(line)) if line.strip() else ():
            lines.setdefault(signature, []).append(i)
    signatures = {
        entry.name: [*new.signatures(entry.first, entry.empty)]
        for entry in new.entries
        if entry.name not in known and entry.empty
    }
    counts = Counter(itertools.chain(*signatures.values()))
    edits = {}
    tags: dict[str, list[re.Match[str]]] = {}
    for tag in re.finditer(r"<([^/<>\s]+)[^<>]*>", old.text):
        tags.setdefault("".join(tag[0].split()), []).append(tag)
    for entry in new.entries:
        there = tags.get("".join(entry.element.partition(">")[0].split()) + ">", [])
        if entry.element and entry.name not in known and len(there) == 1:
            end = old.text.find(f"</{there[0][1]}>", there[0].end())
            if end > 0 and not re.sub("<[^<>]*>", "", old.text[there[0].end() : end]).strip():
                span = Span(there[0].start(), end + len(there[0][1]) + 3)
                edits[entry.name] = Edit(span, entry.element)
        for signature in signatures.get(entry.name, ()):
            if counts[signature] == 1 == len(places := lines.get(signature, [])):
                line, start = old.lines[places[0]], old.starts[places[0]]
                indent = len(line) - len(line.lstrip())
                span = Span(start + indent, start + len(line.rstrip("\r\n")))
                edits[entry.name] = Edit(span, new.lines[entry.first].strip())
                break
    return edits


def _inserted(new: _Lines, old: _Lines) -> Iterator[Edit]:
    """Edits that add the entries that an older version lacks, each run of one section or object
    behind the entry before.  Raises DataError where such have no lines of their own."""
    known = {entry.name: entry for entry in old.entries}
    if {e.first for e in new.entries if e.name in known} & {
        e.first for e in new.entries if e.name not in known
    }:
        raise DataError("several units are on one line")
    blocks: dict[int, list[tuple[int, str]]] = {}
    following: list[_Entry | None] = [None]
    for entry in reversed(new.entries):
        following.append(known.get(entry.name) or following[-1])
    filled = _filled(new, old, known)
    yield from filled.values()
    parents = [new.section(e.first) if new.headers else old.parent(e.name) for e in new.entries]
    before: _Entry | None = None
    numbers, there = range(len(new.entries)), {*known, *filled}
    for (is_there, parent), run in itertools.groupby(
        numbers, key=lambda i: (new.entries[i].name in there, parents[i])
    ):
        places = [*run]
        entries = [new.entries[i] for i in places]
        if is_there:
            before = next((known[e.name] for e in reversed(entries) if e.name in known), before)
            continue
        if new.headers:
            line, block = _in_section(new, old, entries, before)
        else:
            behind = following[len(new.entries) - 1 - places[-1]]
            line, block = _between(new, old, entries, (before, behind), parent)
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
    number = bisect.bisect_right(old.places, before.first if before else -1)
    is_last = number == len(old.places)
    line = len(old.lines) - 1 if is_last else old.commented(old.places[number])
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
    start = entry.start
    if parent:
        start = new.inner(entry)
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
