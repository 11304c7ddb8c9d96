"""Placeholders and tags in a text: found, replaced by one mark each, put back, checked.

A protected text has one private character for each placeholder. Sentences are split, words moved
and spaces counted in that form, in which no placeholder can be split.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import DataError
from transduce.localise.document import Span
from transduce.localise.inline import Kind, Token, escaped, from_markup, partners, parts_of
from transduce.text.scripts import is_unspaced

PLANES = (0xF0000, 0x100000)
"""First characters of the two private planes."""
SIGNS = "<>[]{}%$@\\"
"""Characters of placeholders that a translation does not add."""
BRACKETS = "<>{}\\"
"""Those of them that a text without placeholders does not get: "fünf Prozent" may become "5 %"."""
MOST = 1000
"""Maximum number of placeholders in a text."""

_NAME = r"[A-Za-z_][\w.:-]*"
PLACEHOLDER = re.compile(
    "|".join(
        (
            rf"<(?P<empty>{_NAME})(?:\s[^<>]*)?></(?P=empty)>",  # <x id="6"></x>
            rf"</?{_NAME}(?:\s[^<>]*|/)?>|<!--[^<>]*-->",
            r"\[X[0-9]+X\]",  # Weblate
            r"(?:https?://|www\.)[^\s<>\"']*[^\s<>\"'.,;:!?)\]}。，）]",
            r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+",
            r"\{\{[^{}\n]*\}\}|[$%#]?\{[^{}\s]*\}|\{\w+, ?\w+(?:, ?[^{}\n]*)?\}",
            rf"%\({_NAME}\)[-+#0]*[0-9]*(?:\.[0-9]+)?[a-zA-Z]",
            r"(?<![0-9%])%(?:[0-9]+\$)?[-+#0]*(?:[0-9]+|\*)?(?:\.(?:[0-9]+|\*))?"
            r"(?:hh|h|ll|l|L|z|j|t|q)?[diouxXeEfFgGaAcsp@](?![A-Za-z])|%%",
            r"\$[A-Za-z_]\w*|@:[\w.]+",
            r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);",
            r"(?<!\S)--[A-Za-z][\w-]*",
        )
    ),
    re.ASCII,
)
TAG = re.compile(rf"<(?P<close>/)?(?P<name>{_NAME})(?:\s[^<>]*?)?(?P<empty>/)?>|<[^<>]*>", re.ASCII)


@dataclass(frozen=True)
class Protected:
    """A text with marks in place of its placeholders.

    text:    with one private character, its mark, for each placeholder.
    names:   the placeholder of each mark.
    kinds:   of each mark: of a tag, or "text" for all that stands for words.
    tags:    marks of tags of the format.
    markup:  True if the text was in markup form; here it is as a reader sees it.
    """

    text: str
    names: Mapping[str, str]
    kinds: Mapping[str, Kind]
    tags: frozenset[str]
    markup: bool

    @property
    def marks(self) -> str:
        """The marks in the order of the text."""
        return "".join(c for c in self.text if c in self.names)

    def partners(self, text: str) -> dict[str, str]:
        """Marks of end tags, by the marks of their start tags, of a text with marks."""
        marks = [c for c in text if c in self.names]
        tokens = [Token(Span(0, 0), self.kinds[m], _element(self.names[m])) for m in marks]
        return {marks[i]: marks[j] for i, j in partners(tokens).items() if i < j}

    def shown(self, text: str) -> str:
        """A text with marks, with the placeholders as they are."""
        return "".join(self.names.get(character, character) for character in text)

    def restored(self, text: str) -> str:
        """A text with marks in the form of the source."""
        if not self.markup:
            return self.shown(text)
        return "".join(
            self.names[c] if c in self.tags else escaped(self.names.get(c, c)) for c in text
        )

    def marked(self, text: str) -> str:
        """A text with placeholders as they are, with marks; equal ones in the order of the source.

        Raises DataError unless each comes exactly once.
        """
        free: dict[str, list[str]] = {}
        for mark in self.marks:
            free.setdefault(self.names[mark], []).append(mark)
        longest = sorted(free, key=len, reverse=True)

        def replaced(match: re.Match[str]) -> str:
            if not free[match[0]]:
                raise DataError(f"{match[0]} comes more often than in the source")
            return free[match[0]].pop(0)

        found = re.sub("|".join(map(re.escape, longest)) or "$^", replaced, text)
        for name, marks in free.items():
            if marks:
                raise DataError(f"{name} is missing")
        return found


def protect(text: str, tags: Sequence[str] = (), markup: bool = False) -> Protected:
    """Replace the placeholders of a text by marks.

    tags: of the format, in order.  markup: the text is in markup form.  Raises DataError for a text
    with characters of both private planes, too many placeholders, or a tag that it also quotes.
    """
    plane = next((p for p in PLANES if not any(p <= ord(c) < p + 0x10000 for c in text)), None)
    if plane is None:
        raise DataError("the text has characters of both private planes")
    names: dict[str, str] = {}

    def mark(name: str) -> str:
        if len(names) >= MOST:
            raise DataError(f"the text has more than {MOST} placeholders")
        character = chr(plane + len(names))
        names[character] = name
        return character

    parts = (mark(part) if is_tag else part for is_tag, part in parts_of(text, tags))
    text = "".join(parts)
    own = frozenset(names)
    text = from_markup(text) if markup else text
    while PLACEHOLDER.search(text):  # again: one may have been the edge of another
        text = PLACEHOLDER.sub(lambda match: mark(match[0]), text)
    for character, name in names.items():
        if character not in own and name in tags:
            raise DataError(f"the text quotes its own tag {name}")
    kinds = {character: _kind(name, character in own) for character, name in names.items()}
    return Protected(text, names, kinds, own, markup)


def check_placeholders(source: Protected, text: str) -> None:
    """Check a translation with marks.

    Raises DataError unless each mark comes once, pairs of tags are as in the source and around
    words where they were, placeholders that count by place (`%s`) are in their order, none has
    become part of a word, and no other is there, whole or in part.
    """
    marks = "".join(c for c in text if c in source.names)
    for mark in source.marks:
        if marks.count(mark) != 1:
            number = "is missing" if mark not in marks else "comes twice"
            raise DataError(f"{source.names[mark]} {number}")
    if invented := PLACEHOLDER.search(text):
        raise DataError(f"the translation has a placeholder of its own, {invented[0]}")
    signs = SIGNS if source.marks else BRACKETS
    if any(text.count(sign) > source.text.count(sign) for sign in signs):
        raise DataError("parts of a placeholder are left in the translation")
    if source.partners(text) != source.partners(source.text):
        raise DataError("the tags are not nested as in the source")
    for start, end in source.partners(source.text).items():
        if _has_words(source, source.text, start, end) and not _has_words(source, text, start, end):
            raise DataError(f"{source.names[start]} has lost its words")
    ordered = [m for m in source.marks if _is_positional(source.names[m])]
    if sorted(ordered, key=text.index) != ordered and len({source.names[m] for m in ordered}) > 1:
        raise DataError("placeholders without numbers are not in their order")
    for mark in marks:
        if (
            source.kinds[mark] == "text"
            and _is_glued(text, mark)
            and not _is_glued(source.text, mark)
        ):
            raise DataError(f"{source.names[mark]} is part of a word")


def _has_words(source: Protected, text: str, start: str, end: str) -> bool:
    inside = text[text.index(start) + 1 : text.index(end)]
    return any(c.isalnum() or source.kinds.get(c) in ("text", "void") for c in inside)


def _is_positional(name: str) -> bool:
    return name.startswith("%") and re.match(r"%(?:[0-9]+\$|[({%])", name) is None


def _is_glued(text: str, mark: str) -> bool:
    place = text.index(mark)
    beside = text[max(place - 1, 0) : place], text[place + 1 : place + 2]
    return any(one.isalnum() and not is_unspaced(one) for one in beside)


def _element(name: str) -> str:
    match = TAG.fullmatch(name)
    return (match["name"] or "").lower() if match else ""


def _kind(name: str, is_tag: bool) -> Kind:
    match = TAG.fullmatch(name)
    if match is None:
        return "void" if is_tag else "text"
    if match["close"]:
        return "close"
    return "void" if match["empty"] or not match["name"] else "open"
