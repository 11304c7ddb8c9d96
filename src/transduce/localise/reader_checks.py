"""Placeholders of a translation by people, checked as the program does that reads the file.

Such a program reads arguments in another order by their numbers, an accelerator anywhere, a plural
form of few numbers without the number, and whatever stands beside a placeholder.  What it does not
read at all (addresses, code, options of commands) gives warnings alone.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Segment
from transduce.localise.inline import parts_of
from transduce.localise.placeholders import (
    ACCELERATORS,
    DATE,
    ESCAPES,
    PLACEHOLDER_FORMATS,
    SOFT,
    SYNTAXES,
    Protected,
    placeholder_pattern,
    protect,
)
from transduce.localise.plurals import HEAD, has_choice, parse_message

ARGUMENT = re.compile(
    r"(?:0[xX])?%(?:(?P<number>[0-9]+)\$)?(?P<flags>[-+ #0I']*)(?P<width>\*(?:[0-9]+\$)?|[0-9]+)?"
    r"(?:\.(?P<precision>\*(?:[0-9]+\$)?|[0-9]+)?)?(?P<length>hh|h|ll|l|L|I64|[zjtqw])?"
    r"(?P<type>[A-Za-z@])(?:[kKMG]?i?B)?"
)
TYPES = {c: kind for kind in ("di", "ouxX", "aefgAEFG", "cC", "sS") for c in kind}
"""Types of arguments that are read alike."""
WITHOUT_NUMBERS = frozenset(("python-format", "lua-format", "sh-format"))
"""Flags of formats that do not know `%1$s`."""
NAMED = re.compile(r"%\(\w+\)|[$%#@]?\{+\s*[^{}:!,|\s]*")
"""Beginning of a placeholder with a name, behind which only its form is given."""
FIELD = re.compile(
    r"[$%#@]?\{+[%#/!-]?\s*(?:[\w.$/-]|\[\w+\])*\s*"
    r"(?:[!:|].*|,\s*(?:-?[0-9]+|number|date|time|choice|spellout|ordinal|duration|list)\b.*)?\}+",
    re.DOTALL,
)
"""A placeholder in braces; others are lists or quantifiers."""
ICU_NAME = re.compile(r"\{\s*(\w+)\s*[,}]")
READER_SIGNS = ("&", "_")
"""Signs of accelerators."""


class Fault(NamedTuple):
    """A fault of a translation; only a fatal one keeps it from being taken."""

    text: str
    is_fatal: bool = True


def placeholder_faults(segment: Segment, target: str, is_rare: bool) -> Iterator[Fault]:
    """Faults of the placeholders and tags of a target.

    is_rare: it is a plural form of few numbers, which may leave placeholders out.
    """
    try:
        if has_choice(segment.source, segment.tags):
            yield from _icu_faults(segment.source, target)
            return
        source, translated = protected_pair(segment, target)
    except DataError as error:
        yield Fault(str(error))
        return
    is_date = any(DATE.search(text) for text in (segment.source, target))
    is_date = is_date and not segment.flags & PLACEHOLDER_FORMATS.keys()
    ours = _Names(source, segment.flags, is_date)
    theirs = _Names(translated, segment.flags, is_date, {tag for tag, _ in ours.tags})
    yield from _argument_faults(ours.arguments, theirs.arguments, is_rare, segment.flags)
    yield from _tag_faults(ours, theirs)
    for lost in _more(ours.hard, theirs.hard, _key):
        if not is_rare:
            yield Fault(f"{lost} is missing")
    known = {_key(name) for name in ours.hard}
    for added in _more(theirs.hard, ours.hard, _key):
        if _key(added) in known:
            yield Fault(f"{added} comes more often than in the source", _key(added) == "{")
        else:
            yield Fault(f"the translation has a placeholder of its own, {added}")
    yield from (Fault(f"{name} is missing", False) for name in _more(ours.soft, theirs.soft))
    for name in _more(theirs.soft, ours.soft):
        yield Fault(f"{name} comes more often than in the source", False)
    for name in _more((name for _, name in ours.tags), (name for _, name in theirs.tags)):
        yield Fault(f"{name} is missing", False)
    for sign in READER_SIGNS:
        letters = re.compile(rf"(?<!{sign}){sign}(?=[^\W_])")
        n_signs = len(letters.findall(theirs.text))
        if len(letters.findall(ours.text)) == 1 != n_signs:
            fault = "comes more than once" if n_signs else "is missing"
            yield Fault(f"the accelerator {sign} {fault}", False)


def protected_pair(segment: Segment, target: str) -> tuple[Protected, Protected]:
    """The source of a segment and a target with marks, each by itself.  Raises DataError."""
    tags = tuple(part for is_tag, part in parts_of(target, segment.tags) if is_tag)
    return (
        protect(segment.source, segment.tags, segment.markup, segment.flags),
        protect(target, tags, segment.markup, segment.flags),
    )


class _Names:
    """Placeholders of a text by the way in which a program reads them."""

    def __init__(
        self,
        text: Protected,
        flags: frozenset[str],
        is_date: bool,
        known_tags: Collection[str] = (),
    ) -> None:
        self.arguments: list[str] = []
        self.tags: list[tuple[str, str]] = []
        self.hard: list[str] = []
        self.soft: list[str] = []
        pairs = text.partners(text.text)
        paired = {*pairs, *pairs.values(), *text.tags}
        self.pairs = Counter((_element(text, a), _element(text, b)) for a, b in pairs.items())
        self.text = "".join(
            c if c not in text.names else text.names[c] if text.names[c] in READER_SIGNS else " "
            for c in text.text
        )
        for mark in text.marks:
            name, element = text.names[mark], _element(text, mark)
            if name in READER_SIGNS:
                continue
            if mark in paired or _is_tag(name) or element in known_tags:
                self.tags.append((element, name))
            elif text.kinds[mark] != "text" or name == "%%" or _is_soft(name, flags, is_date):
                self.soft.append(name)
            elif _argument(name):
                self.arguments.append(name)
            else:
                self.hard.append(name)


def _is_tag(name: str) -> bool:
    return name.startswith("</") or (name.startswith("<") and name.endswith("/>"))


def _element(text: Protected, mark: str) -> str:
    """A tag of the format as it is, another without its attributes."""
    element = text.element(mark)
    return text.names[mark] if mark in text.tags or not element else f"{text.kinds[mark]} {element}"


def _is_soft(name: str, flags: frozenset[str], is_date: bool) -> bool:
    """True for a placeholder that no program reads in a message with some flags, or in a date."""
    if is_date and name.startswith("%"):
        return True
    known = [part for f in flags & PLACEHOLDER_FORMATS.keys() for part in PLACEHOLDER_FORMATS[f]]
    known += [part for f in flags & SYNTAXES.keys() for part in SYNTAXES[f]]
    hard = tuple(part for part in known if part not in (*ACCELERATORS, *ESCAPES))
    if hard and _reader_joined(hard).fullmatch(name):
        return False
    if "{" in name and not known and not FIELD.fullmatch(name):
        return True
    return bool(SOFT.fullmatch(name)) or not placeholder_pattern(flags).fullmatch(name)


@functools.cache
def _reader_joined(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(dict.fromkeys(patterns)), re.ASCII)


def _more(
    names: Iterable[str], others: Iterable[str], key: Callable[[str], str] = str
) -> Iterator[str]:
    """Names that come more often than in others, each once."""
    there = list(names)
    extra = Counter(map(key, there)) - Counter(map(key, others))
    return (next(name for name in there if key(name) == kind) for kind in extra)


def _key(name: str) -> str:
    """A placeholder without its form, but with the type of Python's."""
    match = NAMED.match(name)
    if match is None:
        return name
    return match[0] + TYPES.get(name[-1], name[-1]) if name.startswith("%(") else match[0]


def _argument(name: str) -> re.Match[str] | None:
    """The parts of a placeholder of printf."""
    match = ARGUMENT.match(name)
    return match if match and (match.end() == len(name) or " " in match["flags"]) else None


def _read(names: Iterable[str]) -> tuple[dict[int, str], dict[int, str]]:
    """Types and placeholders of the arguments, by their places."""
    types: dict[int, str] = {}
    by_place: dict[int, str] = {}
    following = 1
    for name in names:
        match = _argument(name)
        assert match is not None
        for star in (match["width"] or "", match["precision"] or ""):
            if star.startswith("*"):
                index = int(star[1:-1] or following)
                following += index == following
                types[index], by_place[index] = "di", name
        index = int(match["number"] or following)
        following += match["number"] is None
        if match["type"] != "m":
            kind = TYPES.get(match["type"], match["type"])
            types[index], by_place[index] = (match["length"] or "") + kind, name
        else:
            following -= match["number"] is None
    return types, by_place


def _argument_faults(
    ours: list[str], theirs: list[str], is_rare: bool, flags: frozenset[str]
) -> Iterator[Fault]:
    (types, names), (new_types, new_names) = _read(ours), _read(theirs)
    numbered = [name for name in theirs if "$" in name]
    if numbered and flags & WITHOUT_NUMBERS and not any("$" in name for name in ours):
        yield Fault(f"{numbered[0]} has a number, which the format does not know")
    elif types == new_types:
        if len(theirs) > len(ours):
            repeated = next(name for name in theirs if theirs.count(name) > 1)
            yield Fault(f"{repeated} comes more often than in the source", False)
    elif Counter(ours) == Counter(theirs):
        yield Fault("placeholders without numbers are not in their order")
    elif new_types.items() <= types.items() and is_rare:
        return
    elif lost := names.keys() - new_names.keys():
        missing = next(_more(ours, theirs), names[min(lost)])
        yield Fault(f"{missing} is missing")
    elif added := new_names.keys() - names.keys():
        extra = next(_more(theirs, ours), new_names[min(added)])
        own_fault = f"the translation has a placeholder of its own, {extra}"
        yield Fault(f"{extra} comes more often than in the source" if extra in ours else own_fault)
    else:
        index = min(i for i in types if types[i] != new_types[i])
        yield Fault(f"{new_names[index]} stands for {names[index]}")


def _tag_faults(ours: _Names, theirs: _Names) -> Iterator[Fault]:
    before, after = dict(ours.tags), dict(theirs.tags)
    elements, translated = (Counter(tag for tag, _ in side.tags) for side in (ours, theirs))
    yield from (Fault(f"{before[tag]} is missing") for tag in elements - translated)
    for tag in translated - elements:
        if tag in before:
            yield Fault(f"{after[tag]} comes more often than in the source")
        else:
            yield Fault(f"the translation has a placeholder of its own, {after[tag]}")
    if elements == translated and ours.pairs != theirs.pairs:
        yield Fault("the tags are not nested as in the source")


def _icu_faults(source: str, target: str) -> Iterator[Fault]:
    """Faults of the names of a message with a text for each case.  Raises DataError."""
    names: Mapping[bool, set[str]] = {
        is_target: {name for text in _leaves(message) for name in ICU_NAME.findall(text)}
        for is_target, message in ((False, source), (True, target))
    }
    yield from (Fault(f"{{{name}}} is missing") for name in sorted(names[False] - names[True]))
    for name in sorted(names[True] - names[False]):
        yield Fault(f"the translation has a placeholder of its own, {{{name}}}")


def _leaves(message: str) -> Iterator[str]:
    """The texts of a message, and the beginnings of its choices.  Raises DataError."""
    yield from parse_message(message).texts()
    yield from (head[0] for head in HEAD.finditer(message))
