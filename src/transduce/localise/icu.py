"""Messages of ICU with a text for each number or word: `{n, plural, one {# dog} other {…}}`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.inline import parts_of
from transduce.localise.plurals import CATEGORY_NAMES, origins

HEAD = re.compile(
    r"\{\s*(?P<argument>\w+)\s*,\s*(?P<kind>plural|select|selectordinal|choice)\s*,\s*(?P<offset>offset\s*:\s*[0-9]+\s*)?"
)
LIMIT = re.compile(r"\s*[-+]?(?:[0-9][0-9.,Ee]*|\u221e)\s*[#<\u2264]")
"""Beginning of a text of Java's choices: its least number."""
BAR = re.compile(r"(?P<quoted>''|'[^']*')|[{}|]")
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
        if self.kind == "choice":
            rows = "|".join(f"{selector}{_quoted(text)}" for selector, text in parts.values())
        else:
            rows = "".join(f"{selector}{text}}}" for selector, text in parts.values())
        return f"{self.text}{rows}{self.end}"


def has_choice(text: str, tags: Sequence[str]) -> bool:
    """True for a text with a choice outside of its tags."""
    return any(HEAD.search(part) for is_tag, part in parts_of(text, tags) if not is_tag)


def _outermost(text: str) -> str:
    """A text without braces with their content, and without tags."""
    text = re.sub("<[^<>]*>", "", text)
    for _ in range(2 * DEEPEST):
        text = re.sub(r"\{[^{}]*\}", "", text)
    return text


def parse_message(text: str, depth: int = 0, number: str = "") -> Message:
    """A message as a tree; words around a choice go into each of its texts.

    number: the argument that `#` stands for, of the plural around the text.

    Raises DataError for unbalanced braces, too many texts, and a number sign beside a choice.
    """
    head = HEAD.search(text)
    if head is None:
        return Message(text)
    if depth > DEEPEST:
        raise DataError(f"the message has choices in more than {DEEPEST} others")
    start = head.end()
    bodies: list[tuple[str, str, str]] = []
    if head["kind"] == "choice":
        end = _closing(text, start)
        bodies, start = _choices(text, start, end), end
    while head["kind"] != "choice" and (selector := SELECTOR.match(text, start)):
        end = _closing(text, selector.end())
        bodies.append((selector[0], selector["name"], text[selector.end() : end]))
        start = end + 1
    closing = re.compile(r"\s*\}").match(text, start)
    if closing is None or not bodies:
        raise DataError("the braces of the message do not match")
    before, after = text[: head.start()], text[closing.end() :]
    outside = _outermost(before + after)
    inside = ("", "")
    if any(map(str.isalnum, outside)) or HEAD.search(after):
        if "#" in outside and head["kind"] in ("plural", "selectordinal") and number:
            before, after = _with_number(before, number), _with_number(after, number)
        elif "#" in outside and not number:
            raise DataError("the message has # outside of its choice; write it in each text")
        inside, before, after = (before, after), "", ""
    if head["kind"] in ("plural", "selectordinal"):
        number = "" if head["offset"] else head["argument"]
    branches = tuple(
        Branch(selector, name, parse_message(f"{inside[0]}{body}{inside[1]}", depth + 1, number))
        for selector, name, body in bodies
    )
    message = Message(before + head[0], head["kind"], branches, closing[0] + after)
    if sum(1 for _ in message.texts()) > MOST:
        raise DataError(f"the message has more than {MOST} texts")
    return message


def _with_number(text: str, number: str) -> str:
    """A text with an argument in place of each `#` outside of its braces."""
    depth, parts = 0, []
    for part in re.split("([{}#])", text):
        depth += (part == "{") - (part == "}")
        parts.append(f"{{{number}, number}}" if part == "#" and depth == 0 else part)
    return "".join(parts)


def _choices(text: str, start: int, end: int) -> list[tuple[str, str, str]]:
    """Texts of a choice of Java, in the span of its body; one with arguments is read twice."""
    cuts, depth = [start - 1], 0
    for sign in BAR.finditer(text, start, end):
        if sign["quoted"] is None:
            depth += (sign[0] == "{") - (sign[0] == "}")
            cuts += [sign.start()] * (sign[0] == "|" and depth == 0)
    bodies = []
    for before, after in itertools.pairwise([*cuts, end]):
        limit = LIMIT.match(text, before + 1, after)
        if limit is None:
            raise DataError("a text of the choice has no limit before it, such as 0#")
        body = text[limit.end() : after]
        bodies.append((limit[0], limit[0], body.replace("''", "'") if "{" in body else body))
    return bodies


def _quoted(text: str) -> str:
    if "|" in text:
        raise DataError("a translation has the | that ends a text of the choice")
    return text.replace("'", "''") if "{" in text else text


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
