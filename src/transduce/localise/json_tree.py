"""Places of all parts of a JSON text."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, field

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Reading, Span

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
DEEPEST = 200


@dataclass
class Node:
    """A part: an object, an array (whose members have numbers as names), a string or another.

    kind: its first character.  key: place of its name, of a member of an object.
    """

    kind: str
    span: Span
    key: Span
    members: dict[str, Node] = field(default_factory=dict)
    raw: str = ""

    @functools.cached_property
    def string(self) -> str:
        """The string; "" for one with half a surrogate pair."""
        text = json.loads(self.raw, strict=False)
        return "" if any("\ud800" <= c <= "\udfff" for c in text) else text

    def blank(self, text: str) -> str:
        """White space before its name."""
        start = self.key.start
        while start and text[start - 1].isspace():
            start -= 1
        return text[start : self.key.start]


def read_tree(text: str, reading: Reading) -> Node:
    """The root of a text.  Raises DataError unless it is JSON, at most 200 deep."""
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the file is not JSON: {error}") from None
    root = Node("", Span(0, 0), Span(0, 0))
    open_nodes = [root]
    key: tuple[str, Span] | None = None
    for token in TOKEN.finditer(text):
        reading.check()
        raw, span, parent = token[0], Span(*token.span()), open_nodes[-1]
        if raw in ",:":
            continue
        if raw in "}]":
            parent.span = Span(parent.span.start, span.end)
            open_nodes.pop()
        elif parent.kind == "{" and key is None:
            key = json.loads(raw, strict=False), span
        else:
            name, key_span = key or (str(len(parent.members) + 1), span)
            key = None
            node = Node(raw[0], span, key_span, raw=raw if raw[0] == '"' else "")
            parent.members[name] = node
            if raw in "{[":
                open_nodes.append(node)
                if len(open_nodes) > DEEPEST:
                    raise DataError(f"the parts are deeper than {DEEPEST}")
    return root.members["1"]


def literal(text: str, decoded: DecodedText) -> str:
    """A string in quotes, escaped as those of the file."""
    is_ascii = r"\u" in decoded.habits and decoded.text.isascii()
    raw = json.dumps(text, ensure_ascii=is_ascii)
    return raw.replace("/", r"\/") if r"\/" in decoded.habits else raw
