"""Messages of ICU with a text for each number or word: `{n, plural, one {# dog} other {…}}`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.plurals import CATEGORY_NAMES, origins

HEAD = re.compile(
    r"\{\s*\w+\s*,\s*(?P<kind>plural|select|selectordinal)\s*,\s*(?:offset\s*:\s*[0-9]+\s*)?"
)
SELECTOR = re.compile(r"\s*(?P<name>=[0-9]+|\w+)\s*\{")
SIGN = re.compile(r"(?P<quoted>''|'[{}#|][^']*+')|[{}]")
MOST = 64
"""Maximum number of texts of a message."""
DEEPEST = 6


class Branch(NamedTuple):
    """A text of a message, with what is before it, up to its brace."""

    selector: str
    name: str
    text: Message


class Message(NamedTuple):
    """A text, or a choice between branches: then `text` is what is before the first of them.

    end: what is behind the last branch.
    """

    text: str
    kind: str = ""
    branches: tuple[Branch, ...] = ()
    end: str = ""

    def texts(self) -> Iterator[str]:
        """All texts, in order."""
        if not self.kind:
            yield self.text
        for branch in self.branches:
            yield from branch.text.texts()

    def with_texts(self, texts: Iterator[str], language: str | None) -> str:
        """The message with other texts in their places, and the categories of a language."""
        if not self.kind:
            return next(texts)
        parts = {b.name: (b.selector, b.text.with_texts(texts, language)) for b in self.branches}
        cases = {
            b.name: " ".join(b.text.texts()).replace("#", "%1")
            for b in self.branches
            if b.name in CATEGORY_NAMES
        }
        made = origins(cases, language if self.kind == "plural" and "other" in cases else None)
        new = {
            name: (parts[origin][0].replace(origin, name, 1), parts[origin][1])
            for name, origin in made.items()
            if origin != name and not (name == "one" and "=1" in parts)
        }
        other = parts.pop("other", None)
        parts |= new | ({"other": other} if other else {})
        rows = "".join(f"{selector}{text}}}" for selector, text in parts.values())
        return f"{self.text}{rows}{self.end}"


def parse_message(text: str, depth: int = 0) -> Message:
    """A message as a tree; words around a choice go into each of its texts.

    Raises DataError for unbalanced braces, too many texts, and a number sign beside a choice.
    """
    head = HEAD.search(text)
    if head is None:
        return Message(text)
    if depth > DEEPEST:
        raise DataError(f"the message has choices in more than {DEEPEST} others")
    start = head.end()
    bodies: list[tuple[str, str, str]] = []
    while selector := SELECTOR.match(text, start):
        end = _closing(text, selector.end())
        bodies.append((selector[0], selector["name"], text[selector.end() : end]))
        start = end + 1
    closing = re.compile(r"\s*\}").match(text, start)
    if closing is None or not bodies:
        raise DataError("the braces of the message do not match")
    before, after = text[: head.start()], text[closing.end() :]
    outside = re.sub(r"\{[^{}]*\}|<[^<>]*>", "", before + after)
    inside = ("", "")
    if any(map(str.isalnum, outside)):
        if "#" in outside:
            raise DataError("the message has # outside of its choice; write it in each text")
        inside, before, after = (before, after), "", ""
    branches = tuple(
        Branch(selector, name, parse_message(f"{inside[0]}{body}{inside[1]}", depth + 1))
        for selector, name, body in bodies
    )
    message = Message(before + head[0], head["kind"], branches, closing[0] + after)
    if sum(1 for _ in message.texts()) > MOST:
        raise DataError(f"the message has more than {MOST} texts")
    return message


def _closing(text: str, start: int) -> int:
    """Place of the brace that closes the one before a place; quoted braces do not count."""
    depth = 1
    while sign := SIGN.search(text, start):
        start = sign.end()
        if sign["quoted"] is None:
            depth += (sign[0] == "{") - (sign[0] == "}")
            if depth == 0:
                return sign.start()
    raise DataError("the braces of the message do not match")
