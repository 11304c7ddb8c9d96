"""Table of elements (void, raw, opaque, blocks), and the parser of tags of every format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from transduce.localise.document import Span

Kind = Literal["text", "open", "close", "void"]

VOID = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta"),
        *("param", "source", "track", "wbr"),
    )
)
"""Elements without content, with or without a slash."""
RAW = frozenset(("iframe", "script", "style", "textarea", "title", "xmp"))
"""Elements with raw text, without tags."""
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        """address article aside base blockquote body br button caption center col colgroup dd
        details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3
        h4 h5 h6 head header hgroup hr html legend li link main menu meta nav noframes noscript
        object ol optgroup option p pre script section select source style summary table tbody td
        template textarea tfoot th thead title tr track ul video audio""",
    )
)
"""Elements of HTML at whose tags a segment ends; all others are inline."""
RUBY = ("rt", "rp", "rtc")
"""Readings of a text, beside it, which often have no end tag."""
OPAQUE = frozenset(
    (
        *("canvas", "code", "iframe", "kbd", "math", "pre", "samp", "script", "style", "svg"),
        *("template", "textarea", "var", "xmp", *RUBY),
    )
)
"""Elements kept unchanged with all their content."""
RAISED = frozenset(("sub", "sup"))
"""Elements whose content belongs to the word before it."""
INLINE = frozenset(
    re.findall(
        r"\w+",
        """a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q rp rt ruby s
        small span strike strong time tt u""",
    )
)
"""Other inline elements of HTML."""

NAME = r"(?:[A-Za-z_][\w:-]*+|[0-9]++(?=[\s/>]))"
"""Name of an element; classes of WebVTT (`c.red`) are none of it."""
REST = r"""(?:[^>=]++|=\s*+(?:"[^"]*"|'[^']*'|(?!["'])))*+>"""
"""Rest of a start tag: a `>` in quotes is part of an attribute."""
TAG = re.compile(rf"<(?P<close>/)?(?P<name>{NAME}){REST}", re.ASCII)


BREAK = re.compile(
    r"<(?:br|cr|hr|img|tab)[0-9]*(?=[\s/>])|\b(?:ctype|type)=[\"'](?:lb|image|x-(?:html-)?br|x-lb)[\"']"
    r"|&lt;(?:br|img)\b",
    re.IGNORECASE,
)


def is_break(tag: str) -> bool:
    """True for a tag of a line break, a tabulator or a picture, which parts words as a blank."""
    return BREAK.search(tag) is not None


class Tag(NamedTuple):
    """A tag or a text: its kind, the name of its element in lower case, its characters; void
    without a name is no element."""

    kind: Kind
    name: str = ""
    span: Span = Span(0, 0)


def parsed(text: str) -> Tag:
    """The tag that a text is; void for others, such as a comment or a whole element."""
    match = TAG.fullmatch(text)
    if match is None:
        return Tag("void")
    name = match["name"].lower()
    if match["close"]:
        return Tag("close", name)
    return Tag("void" if name in VOID or text.endswith("/>") else "open", name)


def partners(tags: Sequence[Tag]) -> dict[int, int]:
    """Index of the end tag of each start tag, and the reverse; tags without partner are absent."""
    pairs: dict[int, int] = {}
    opened: dict[str, list[int]] = {}
    for i, tag in enumerate(tags):
        if tag.kind == "open":
            opened.setdefault(tag.name, []).append(i)
        elif tag.kind == "close" and opened.get(tag.name):
            pairs[i] = opened[tag.name].pop()
            pairs[pairs[i]] = i
    return pairs
