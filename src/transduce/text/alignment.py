"""Word alignments: their units, and Pharaoh's format `0-0 1-2 2-1`.

Manual alignments may mark sure and possible links, as `1-2S` and `1-2P`, or as `1-2` and `1p2`.
"""

import re
from collections.abc import Iterable, Sequence, Set
from typing import Literal, NamedTuple

from transduce.errors import DataError
from transduce.text.offsets import token_spans
from transduce.text.scripts import UNSPACED
from transduce.text.tokenizer import Tokenizer

Link = tuple[int, int]
"""Index of a source unit and of a target unit, both from 0."""
Links = Set[Link]

_LINK = re.compile(r"(\d{1,9})([-p])(\d{1,9})([SP]?)")


class GoldLinks(NamedTuple):
    """Manual links of a pair; every sure link is also possible."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse_gold(line: str, where: str) -> GoldLinks:
    """Parse the links of a line; unmarked links are sure.  Raises DataError naming the place."""
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise DataError(f"{where}: {word[:40]!r} is not a link; write 3-4, 3-4S or 3-4P")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-" and match[4] != "P":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


def parse_links(line: str, where: str) -> frozenset[Link]:
    """Parse the links of a line, sure and possible alike."""
    return parse_gold(line, where).possible


def format_links(links: Iterable[Link]) -> str:
    """Format links as a line, in the order of the target."""
    ordered = sorted(links, key=lambda link: (link[1], link[0]))
    return " ".join(f"{source}-{target}" for source, target in ordered)


def check_inside(links: Iterable[Link], n_source: int, n_target: int, where: str) -> None:
    """Raises DataError if a link is out of range for texts with this many units.

    links: (source, target) numbers, from 0.  n_source, n_target: units of the texts.  where: for
    messages.
    """
    for source, target in links:
        if source >= n_source or target >= n_target:
            raise DataError(
                f"{where}: the link {source}-{target} is out of range for texts of {n_source} and "
                f"{n_target} units, counted from 0"
            )


Unit = Literal["words", "characters", "tokens"]
"""words: text between spaces.  characters: the same, but each Chinese, Japanese or Thai character
is a word of its own.  tokens: the pieces of the model's tokenizer."""
WordUnit = Literal["words", "characters"]

_UNSPACED = "".join(f"{first}-{last}" for first, last in UNSPACED)
_UNITS = {
    "words": re.compile(r"\S+"),
    "characters": re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+"),
}


def unit_spans(text: str, unit: WordUnit) -> list[tuple[int, int]]:
    """Characters [start, end) of each unit of a text."""
    return [match.span() for match in _UNITS[unit].finditer(text)]


def units_of_tokens(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], unit: Unit
) -> tuple[int, list[list[int]]]:
    """Number of units in a text, and for each of its tokens `ids` the units it belongs to: none for
    a space token, several for a token across a space.

    tokenizer: of the ids.  unit: of the text; "tokens" for the tokens themselves.
    """
    if unit == "tokens":
        return len(ids), [[i] for i in range(len(ids))]
    spans = unit_spans(text, unit)
    owner = [-1] * len(text)
    for number, (start, end) in enumerate(spans):
        owner[start:end] = [number] * (end - start)
    parts = [
        sorted({owner[i] for i in range(start, end)} - {-1})
        for start, end in token_spans(tokenizer, text, ids)
    ]
    return len(spans), parts
