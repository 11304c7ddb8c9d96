"""Units: parts of a document that are written together, of formats made of messages."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import (
    DecodedText,
    Document,
    Edit,
    Record,
    Segment,
    Span,
    form_key,
)
from transduce.localise.plurals import categories, origins

BREAK = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CLASS = "(?:fa[bdlrst]?|mdi|bi|ti|icon|btn|glyphicon)"
IDENTIFIER = re.compile(
    r"[a-z0-9]+(?:_[a-z0-9]+)+|[A-Z0-9]+(?:_[A-Z0-9]+)+|#(?:[0-9a-fA-F]{3,4}){1,2}"
    rf"|(?:{_CLASS} )?{_CLASS}(?:-[a-z0-9]+)+(?: {_CLASS}(?:-[a-z0-9]+)+)*"
)
"""Names for programs, which are no text: `main_menu`, `#ff0000`, `fa-home`, `btn btn-primary`."""
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffe\uffff]")
REPEATED = "its key is there before"
"""Reason of a unit that is not read."""
LONGEST_KEY = 200
"""Maximum characters of a key."""


def digest(text: str) -> str:
    """A text as 16 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_control(key: str, target: str) -> None:
    """Raise DataError for a control character in the translation of a segment."""
    if control := CONTROL.search(target):
        raise DataError(f"{key}: the file cannot hold {control[0]!r}; remove it")


def shortened(key: str) -> str:
    """A key; of one longer than 200 characters the beginning, and a digest of the whole, so that a
    long name does not stand in the keys of all that is in it."""
    if len(key) <= LONGEST_KEY:
        return key
    end = f"… {digest(key)}"
    return key[: LONGEST_KEY - len(end)] + end


class Unit(NamedTuple):
    """Segments that are written together: the forms of a plural, the sentences of a message.

    write: edits for the targets of some of them, by key.  Raises DataError.
    """

    segments: Sequence[Segment]
    write: Callable[[Mapping[str, str]], Iterable[Edit]]


def document_of(
    decoded: DecodedText,
    units: Sequence[Unit],
    language: Sequence[Edit] = (),
    unread: Sequence[Record] = (),
    confirmed: Sequence[Segment] = (),
    is_keyed: bool = True,
) -> Document:
    """The document of some units, of equal keys the first, with records of the others.  Line breaks
    of targets become `\\n`; control characters are refused.

    decoded: text of the file.  language: edits that name the target language.  unread: records of
    what is left.  confirmed: segments that stay as they are.  is_keyed: keys are names, which stay
    when other segments come and go.
    """
    unit_of: dict[str, Unit] = {}
    unique, repeated = [], []
    for unit in sorted(units, key=lambda unit: unit.segments[0].spans):
        if unit_of.keys().isdisjoint(segment.key for segment in unit.segments):
            unit_of |= dict.fromkeys((segment.key for segment in unit.segments), unit)
            unique.append(unit)
        else:
            repeated += [
                Record(s.key, s.source, s.source, "unread", REPEATED) for s in unit.segments
            ]

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        by_unit: dict[int, tuple[Unit, dict[str, str]]] = {}
        for key, target in targets.items():
            check_control(key, target)
            unit = unit_of[key.partition("\0")[0]]
            by_unit.setdefault(id(unit), (unit, {}))[1][key] = BREAK.sub("\n", target)
        for unit, texts in by_unit.values():
            yield from unit.write(texts)

    segments = [segment for unit in unique for segment in unit.segments]
    return Document(
        segments,
        decoded,
        render,
        language=language,
        unread=[*unread, *repeated],
        confirmed=confirmed,
        is_keyed=is_keyed,
    )


class Member(NamedTuple):
    """A string in the place of its source: of a plural, or alone.

    raw: a target as the file has it; raises DataError.  put: edit that writes such at its place.
    """

    segment: Segment
    raw: Callable[[str], str]
    put: Callable[[str], Edit]


def member_at(
    span: Span,
    key: str,
    text: str,
    raw: Callable[[str], str],
    flags: frozenset[str] = frozenset(),
) -> Member | None:
    """The text at a place; its outer white space stays.  None for a text without words.

    span: place of the text.  key: of its segment.  raw: makes the text of the file from a target.
    flags: of the segment.
    """
    before, core, after = framed(text)
    if not any(map(str.isalnum, core)) or IDENTIFIER.fullmatch(core):
        return None
    segment = Segment(shortened(key), core, (span,), flags=flags)
    return Member(segment, lambda target: raw(before + target + after), partial(Edit, span))


def unit_in_place(
    members: Mapping[str, Member],
    language: str | None = None,
    add: Callable[[str, str], Edit] | None = None,
) -> Unit:
    """A unit of the forms of a plural by category, or of a string that has none.

    add: edit that adds a category with a raw target, for a language that has it.  What equals its
    source is not written.
    """
    sources = {name: member.segment.source for name, member in members.items()}
    made = origins(sources, language if add else None)

    def write(targets: Mapping[str, str]) -> Iterator[Edit]:
        for name, origin in made.items():
            member = members[origin]
            key = member.segment.key
            target = targets.get(form_key(key, name), targets.get(key))
            if target is None or (name == origin and target == member.segment.source):
                continue
            if name in members:
                yield members[name].put(member.raw(target))
            elif add:
                yield add(name, member.raw(target))

    forms = categories(language) if add else {}
    used = [
        member.segment.with_forms(
            (name, forms[name].sample) for name, o in made.items() if o == origin and name in forms
        )
        for origin, member in members.items()
        if origin in made.values()
    ]
    return Unit(used, write)


def framed(text: str) -> tuple[str, str, str]:
    """A text without its outer white space, which is before and after it."""
    core = text.strip()
    start = text.index(core)
    return text[:start], core, text[start + len(core) :]
