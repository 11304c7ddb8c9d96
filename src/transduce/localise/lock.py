"""Lock of an output, by which the work of people in it is known and kept, and the units of two
versions matched.

An output is compared, unit by unit, with what was written: a unit that is another is by hand.
`updated` puts such units into a new output, in three ways: the lock is the base of both.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Record, Segment
from transduce.localise.languages import LANGUAGES, base_of
from transduce.localise.units import digest
from transduce.localise.xml import Archive


class Named(NamedTuple):
    """A unit of a version: its key, and its text as it is compared."""

    key: str
    text: str


def matched(before: Sequence[Named], after: Sequence[Named]) -> list[int | None]:
    """For each unit of a version the number of that with the same text in an earlier one, or None.

    A text that is there once in both is the same.  Others are found by their keys, where these and
    those of the neighbours are there still, else beside a neighbour that is found, else in order.
    """
    there, here = _by_text(before), _by_text(after)
    links: list[int | None] = [None] * len(after)
    free = [True] * len(before)

    def link(i: int, j: int) -> None:
        is_free = 0 <= j < len(before) and links[i] is None and free[j]
        if is_free and after[i].text == before[j].text:
            links[i], free[j] = j, False

    for text, numbers in here.items():
        if len(numbers) == 1 == len(there.get(text, ())):
            link(numbers[0], there[text][0])
    keys = {unit.key: j for j, unit in enumerate(before)}
    stable = [j is None or before[j].key == unit.key for j, unit in zip(links, after, strict=True)]
    sure = [j is not None for j in links]
    near = list(zip(_last(sure, stable), _next(sure, stable), strict=True))
    for text, numbers in here.items():
        old, new = {before[j].key for j in there.get(text, ())}, {after[i].key for i in numbers}
        for i in numbers if old <= new or new <= old else ():
            if all(near[i]):
                link(i, keys.get(after[i].key, -1))
    for step, order in ((-1, range(len(after))), (1, reversed(range(len(after))))):
        for i in order:
            if 0 <= i + step < len(after) and (j := links[i + step]) is not None:
                link(i, j - step)
    for text, numbers in here.items():
        rest = [j for j in there.get(text, ()) if free[j]]
        for i, j in zip((i for i in numbers if links[i] is None), rest, strict=False):
            link(i, j)
    return links


def changed(
    before: Sequence[Named], after: Sequence[Named], links: Sequence[int | None]
) -> list[int | None]:
    """Links that also find units whose texts have changed: between the same neighbours, if as many
    units of both versions are there.

    before, after: units of the older and the newer version.  links: for each unit of `after` its
    number in `before`, or None.
    """
    complete = list(links)
    free = set(range(len(before))) - {j for j in links if j is not None}
    start, last = 0, -1
    for end, j in [
        *((i, j) for i, j in enumerate(links) if j is not None),
        (len(after), len(before)),
    ]:
        between = range(last + 1, j)
        if end - start == len(between) and free.issuperset(between):
            complete[start:end] = between
        start, last = end + 1, j
    return complete


def _by_text(units: Iterable[Named]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for number, unit in enumerate(units):
        numbers.setdefault(unit.text, []).append(number)
    return numbers


def _last(sure: Sequence[bool], stable: Sequence[bool]) -> list[bool]:
    """For each unit, whether the last sure one before it has its key still; True without one."""
    states = itertools.accumulate(
        zip(sure, stable, strict=True), lambda last, now: now[1] if now[0] else last, initial=True
    )
    return list(states)[:-1]


def _next(sure: Sequence[bool], stable: Sequence[bool]) -> list[bool]:
    return _last(sure[::-1], stable[::-1])[::-1]


CHANGED = "kept as it was corrected by hand; its source has changed since"


class Written(NamedTuple):
    """A unit of an output: its key, and digests of its text, of its form in the file, which is its
    text or, with a source beside it, all of it, and of its source, "" where it is not known."""

    key: str
    text: str
    form: str
    source: str
    is_by_hand: bool


class Recalled(NamedTuple):
    """A translation by machine: the key and the digest of its source, the target, and those of
    plural forms."""

    key: str
    source: str
    target: str
    forms: Sequence[Sequence[str]] = ()

    def given_to(self, segment: Segment) -> Segment:
        """A segment with the translation as its match."""
        forms = tuple((name, target) for name, target in self.forms)
        return dataclasses.replace(segment, match=self.target, match_forms=forms)


class Lock(NamedTuple):
    """Record of an output; frame: digest of the text outside of the units, without blanks."""

    frame: str
    units: Sequence[Written]
    translations: Sequence[Recalled]

    def lines(self) -> Iterator[str]:
        """The lock as lines of JSON."""
        yield json.dumps({"frame": self.frame})
        for unit in self.units:
            yield json.dumps({"unit": unit}, ensure_ascii=False)
        for translation in self.translations:
            yield json.dumps({"translation": translation}, ensure_ascii=False)

    def recalled(self, document: Document) -> Document:
        """A document whose segments with the source of a translation have it as their match."""
        before = [Named(t.key, t.source) for t in self.translations]
        after = [Named(s.key, digest(s.source)) for s in document.segments]
        segments = [
            segment if link is None or segment.match else self.translations[link].given_to(segment)
            for segment, link in zip(document.segments, matched(before, after), strict=True)
        ]
        return dataclasses.replace(document, segments=segments)


def read_lock(text: str) -> Lock:
    """Read what `Lock.lines` has written.  Raises DataError for anything else."""
    frame, units, translations = "", [], []
    try:
        for line in text.splitlines():
            row = json.loads(line)
            frame = row.get("frame", frame)
            units += [Written(*row["unit"])] if "unit" in row else []
            translations += [Recalled(*row["translation"])] if "translation" in row else []
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"it is no lock of an output: {error}; delete it") from None
    return Lock(frame, units, translations)


def unit_names(units: Sequence[Segment]) -> list[str]:
    """Keys of units, without a language that all of them are in, as those of Rails are."""
    root = {unit.key.partition(".")[0] for unit in units}
    code = root.pop() if len(root) == 1 else ""
    prefix = f"{code}." if base_of(code) in LANGUAGES else ""
    return [unit.key.removeprefix(prefix) for unit in units]


class Version:
    """A version of an output, with its units: all segments in the order of the file."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.units = sorted((*document.segments, *document.confirmed), key=lambda s: s.spans)
        self.named = [Named(unit.key, digest(unit.source)) for unit in self.units]
        self.has_sources = any(unit.target for unit in self.units)

    @functools.cached_property
    def names(self) -> Sequence[str]:
        """The keys of the units without a language that all are in."""
        return unit_names(self.units)

    def raw(self, unit: Segment) -> str:
        """A unit as it stands in the file."""
        return "\0".join(self.document.decoded.text[slice(*span)] for span in unit.spans)

    def form(self, unit: Segment) -> str:
        """Digest of the parts of a unit that people may change."""
        return digest(self.raw(unit) if self.has_sources else unit.source)

    def frame(self) -> str:
        """The text outside of the units, without white space, as a digest."""
        parts, end = [], 0
        for span in sorted(span for unit in self.units for span in unit.spans):
            parts.append(self.document.decoded.text[end : span.start])
            end = max(end, span.end)
        return digest("".join("".join([*parts, self.document.decoded.text[end:]]).split()))

    def links(self, base: Sequence[Written]) -> list[int | None]:
        """For each unit the number of that of a base, or None."""
        before = [Named(unit.key, unit.text) for unit in base]
        if self.has_sources:
            return matched(before, self.named)
        if not self.document.is_keyed:
            return changed(before, self.named, matched(before, self.named))
        keys = {unit.key: j for j, unit in enumerate(base)}
        links = [keys.get(unit.key) for unit in self.units]
        rest = [i for i, j in enumerate(links) if j is None]
        free = sorted({*range(len(base))} - {j for j in links if j is not None})
        others = matched([before[j] for j in free], [self.named[i] for i in rest])
        for i, other in zip(rest, others, strict=True):
            links[i] = None if other is None else free[other]
        return links

    def origins(self, source: Document) -> list[Segment | None]:
        """For each unit the segment of a document that it is the translation of, or None."""
        segments = source.segments
        if self.has_sources:
            before = [Named(s.key, digest(s.source)) for s in segments]
            return [None if j is None else segments[j] for j in matched(before, self.named)]
        if len(segments) == len(self.units) and not self.document.is_keyed:
            return list(segments)
        named = dict(zip(unit_names(segments), segments, strict=True))
        return [named.get(name) for name in self.names]


class Updated(NamedTuple):
    """A new output with the units by hand of the last one, and what of that has no place in it."""

    content: bytes
    records: Sequence[Record]
    units: Mapping[int, Written]
    lost: Sequence[str]


def updated(source: Document, new: Version, old: Version, lock: Lock | None) -> Updated:
    """The output `new` of a document with the units of the last output that are by hand: those that
    are not as in the lock, and without one all whose places are known.

    source: the document.  old: the last output.
    """
    base = lock.units if lock else [_unknown(old, unit) for unit in old.units]
    is_known = lock is not None or old.has_sources or old.document.is_keyed
    lost = ["the text around its translations"] if lock and old.frame() != lock.frame else []
    places = {j: i for i, j in enumerate(new.links(base)) if j is not None and is_known}
    texts = {named.text for named in new.named}
    origins = new.origins(source)
    edits: set[Edit] = set()
    targets: dict[str, str] = {}
    records: list[Record] = []
    units: dict[int, Written] = {}
    for unit, named, link in zip(old.units, old.named, old.links(base), strict=True):
        last = _unknown(old, unit) if link is None else base[link]
        form = old.form(unit)
        if form == last.form and not last.is_by_hand:
            continue
        i = None if link is None else places.get(link)
        if i is None:
            lost += [] if named.text in texts and not new.has_sources else [unit.key]
            continue
        place, origin = new.units[i], origins[i]
        is_archive = isinstance(new.document.decoded, Archive)
        if len(place.spans) != len(unit.spans) or (is_archive and place.tags != unit.tags):
            lost.append(unit.key)
            continue
        if is_archive:
            targets[place.key] = unit.source
        else:
            raw = old.raw(unit).split("\0")
            edits |= set(map(Edit, place.spans, raw))
        now = digest(origin.source) if origin else ""
        is_changed = bool(now and last.source) and now != last.source
        is_changed = is_changed and not (last.is_by_hand and form != last.form)
        units[i] = Written(
            place.key, named.text, form, last.source if is_changed else now, is_by_hand=True
        )
        text = (unit.target or unit.source) if old.has_sources else unit.source
        key, was = (origin.key, origin.source) if origin else (unit.key, unit.source)
        records.append(Record(key, was, text, "kept", CHANGED if is_changed else ""))
    if targets:
        return Updated(new.document.with_targets(targets), records, units, lost)
    try:
        content = new.document.decoded.written(_lock_outermost(edits))
    except UnicodeEncodeError as error:
        raise DataError(
            f"{error.object[error.start]!r}, written by hand, is not in the encoding of the "
            f"document, {error.encoding}; convert that to UTF-8"
        ) from None
    return Updated(content, records, units, lost)


def _lock_outermost(edits: Iterable[Edit]) -> list[Edit]:
    """Edits in order, without those of parts of others."""
    outermost: list[Edit] = []
    for edit in sorted(edits, key=lambda edit: (edit.span.start, -edit.span.end)):
        if not outermost or edit.span.start >= outermost[-1].span.end:
            outermost.append(edit)
    return outermost


def _unknown(version: Version, unit: Segment) -> Written:
    """A unit of an output that has no lock."""
    return Written(unit.key, digest(unit.source), "", "", is_by_hand=True)


def lock_of(
    source: Document,
    records: Sequence[Record],
    content: Version,
    by_hand: Mapping[int, Written],
    n_units: int,
) -> Lock:
    """The lock of an output.

    source: the document.  content: the output.  records: those of the translation.  by_hand: units
    that people wrote, by their numbers among `n_units` of the translation.
    """
    texts = {unit.text: unit for unit in by_hand.values()}
    if len(content.units) != n_units:
        by_hand = {i: texts[n.text] for i, n in enumerate(content.named) if n.text in texts}
    units = []
    for i, (unit, origin) in enumerate(zip(content.units, content.origins(source), strict=True)):
        now = digest(origin.source) if origin else ""
        now = by_hand[i].source if i in by_hand else now
        form = content.form(unit)
        units.append(Written(unit.key, digest(unit.source), form, now, i in by_hand))
    translations = [
        Recalled(r.key, digest(r.source), r.target, r.forms)
        for r in records
        if r.state == "translated"
    ]
    return Lock(content.frame(), units, translations)
