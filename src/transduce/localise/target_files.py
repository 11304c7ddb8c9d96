"""Target files: the file of a language that people keep beside a base file, and the keys that it
lacks.

Both have the same keys.  The base gives the texts to translate; the lines of the target stay, with
their order and comments, and those of new and changed keys come in between.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Span, spliced
from transduce.localise.lock import Lock, Version, unit_names
from transduce.localise.units import digest

Parse = Callable[[bytes], Document]
"""The document in some bytes of the format of a target."""
CLOSING = re.compile(r"</|[]})]|$")
"""Beginning of a line that ends what is before it."""
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
    for name, segment in zip(base_names, base.segments, strict=True):
        is_stale = machine.get(name, "") not in ("", digest(segment.source))
        if name not in names or segment.source in forms or is_stale:
            segments.append(segment)
            continue
        known[segment.source] = dataclasses.replace(segment, target=texts[name], state="translated")
        if name in machine:
            segments.append(dataclasses.replace(segment, match=texts[name]))
    return dataclasses.replace(base, segments=segments, confirmed=[*known.values()])


def merged_target(new: Version, old: Version, parse: Parse) -> bytes | None:
    """A target with the units of a newer version in the lines of the older one; None where such is
    not read again with the texts of both."""
    raw = {name: old.raw(unit) for name, unit in zip(old.names, old.units, strict=True)}
    expected = raw | {n: new.raw(unit) for n, unit in zip(new.names, new.units, strict=True)}
    decoded = old.document.decoded
    edits = [*_inserted(_Lines(new), _Lines(old), raw.keys())]
    for name, unit in zip(old.names, old.units, strict=True):
        if raw[name] != expected[name]:
            edits += map(Edit, unit.spans, expected[name].split("\0"))
    text = re.sub("\r?\n", decoded.newline, spliced(decoded.text, Span(0, -1), sorted(edits)))
    if decoded.text.lstrip()[:1] == "{":
        text = _with_commas(text)
    try:
        content = decoded.bom + text.encode(decoded.encoding)
        again = Version(parse(content))
    except (DataError, UnicodeEncodeError):
        return None
    merged = {name: again.raw(unit) for name, unit in zip(again.names, again.units, strict=True)}
    return content if _plain(merged) == _plain(expected) else None


def _plain(raw: Mapping[str, str]) -> dict[str, str]:
    """Units with line breaks of one kind."""
    return {name: text.replace("\r\n", "\n") for name, text in raw.items()}


class _Entry(NamedTuple):
    """Lines of a unit with what belongs to it: comments before it, ends of elements behind it.

    first: line of the unit itself.
    """

    name: str
    start: int
    first: int
    end: int


class _Lines:
    """A version as lines: the entries of its units, in order."""

    def __init__(self, version: Version) -> None:
        text = version.document.decoded.text
        self.lines = [*text.splitlines(keepends=True), ""]
        self.starts = [*itertools.accumulate(map(len, self.lines[:-1]), initial=0)]
        self.entries: list[_Entry] = []
        start = 0
        for name, unit in zip(version.names, version.units, strict=True):
            places = unit.spans[0].start, max(unit.spans[-1].end - 1, unit.spans[0].start)
            first, last = (bisect.bisect_right(self.starts, place) - 1 for place in places)
            start = min(start, first)
            while start < first and CLOSING.match(self.lines[start].strip()):
                start += 1
            indent = min(map(self.indent, range(start, first + 1)))
            end = self.closed(last + 1, indent if self.entries else self.indent(first))
            self.entries.append(_Entry(name, start, first, end))
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


def _inserted(new: _Lines, old: _Lines, known: Collection[str]) -> Iterator[Edit]:
    """Edits that add the entries that an older version lacks, each run behind the entry before."""
    entries = {entry.name: entry for entry in old.entries}
    before: _Entry | None = None
    position = 0
    while position < len(new.entries):
        entry = new.entries[position]
        if entry.name in known:
            before = entries[entry.name]
            position += 1
            continue
        last = position
        while last + 1 < len(new.entries) and new.entries[last + 1].name not in known:
            last += 1
        following = new.entries[last + 1] if last + 1 < len(new.entries) else None
        start, parent = entry.start, entry.name.rpartition(".")[0]
        is_shared = following and parent and following.name.startswith(f"{parent}.")
        if is_shared:  # it is the first of an object that is there
            while start < entry.first and new.indent(start) < new.indent(entry.first):
                start += 1
        indent = min(map(new.indent, range(start, entry.first + 1)))
        block = "".join(new.lines[start : new.closed(new.entries[last].end, indent)])
        if before is None or (is_shared and start != entry.start):
            line = entries[following.name].start if following else len(old.lines) - 1
        else:
            line = old.closed(before.end, indent)
        yield Edit(Span(old.starts[line], old.starts[line]), _ended(block, old, line))
        position = last + 1


def _ended(block: str, old: _Lines, line: int) -> str:
    """A block that begins and ends on lines of its own before a line."""
    if line and not old.lines[line - 1].endswith("\n"):
        return f"\n{block.rstrip()}"
    return block if block.endswith("\n") else f"{block}\n"


def _with_commas(text: str) -> str:
    """JSON of lines with commas between members alone."""
    lines = text.splitlines(keepends=True)
    written = [i for i, line in enumerate(lines) if line.strip()]
    for i, following in itertools.pairwise(written):
        line = lines[i].rstrip()
        is_last = lines[following].lstrip()[:1] in "}]"
        bare = line.removesuffix(",")
        if is_last or bare[-1:] not in "{[":
            lines[i] = f"{bare}{'' if is_last else ','}{lines[i][len(line) :]}"
    return "".join(lines)
