"""MessageFormat of Java and ICU: apostrophes and quoted braces as a reader sees them.

In the text of a segment an apostrophe stands once, and a quoted text with braces, which no argument
is, in braces of its own: `It''s '{0}'` is `It's {'{0}'}`, in which `{'{0}'}` is a tag.
"""

import dataclasses
import functools
import re
from collections.abc import Callable

from transduce.localise.document import Span
from transduce.localise.inline import parts_of
from transduce.localise.units import Member, member_at

MESSAGE_FORMAT_FLAGS = frozenset(("message-format",))
"""Flag of a message whose apostrophes its format writes."""
SIMPLE = r"\{\s*[\w.]+\s*(?:,(?!\s*(?:choice|plural|select|selectordinal)\b)[^{}]*)?\}"
"""An argument without texts; its apostrophes are of its format."""
MESSAGE_FORMAT_TOKEN = re.compile(
    rf"(?P<argument>{SIMPLE})|''|(?P<quoted>'(?=[{{}}])(?:[^']|'')*+')"
)


def from_message(text: str) -> tuple[str, tuple[str, ...]]:
    """The text of a message as a segment has it, and its tags: quoted braces."""
    tags: list[str] = []

    def read(match: re.Match[str]) -> str:
        if match["argument"]:
            return match[0]
        if match["quoted"] is None:
            return "'"
        tags.append(f"{{{match[0]}}}")
        return tags[-1]

    return MESSAGE_FORMAT_TOKEN.sub(read, text), tuple(tags)


def to_message(text: str, tags: tuple[str, ...], everywhere: bool = True) -> str:
    """A text with tags as a message.

    everywhere: double each apostrophe, as Java needs it, not only those before braces, as ICU does.
    """
    parts = []
    for is_tag, part in parts_of(text, tags):
        if is_tag:
            parts.append(part[1:-1])
        else:
            write = functools.partial(_doubled, everywhere)
            parts.append(re.sub(f"({SIMPLE})|'(?=([{{}}])?)", write, part))
    return "".join(parts)


def _doubled(everywhere: bool, match: re.Match[str]) -> str:
    return match[1] or ("''" if everywhere or match[2] else "'")


def message_at(
    span: Span, key: str, text: str, raw: Callable[[str], str], everywhere: bool
) -> Member | None:
    """The message at a place, as `member_at`, with its quoted braces as tags.

    span: place of the message.  key: of its segment.  text: unescaped.  raw: escapes a text for the
    file.  everywhere: double each apostrophe, as in `to_message`.
    """
    text, tags = from_message(text)
    member = member_at(
        span,
        key,
        text,
        lambda target: raw(to_message(target, tags, everywhere)),
        MESSAGE_FORMAT_FLAGS,
    )
    return member and member._replace(segment=dataclasses.replace(member.segment, tags=tags))
