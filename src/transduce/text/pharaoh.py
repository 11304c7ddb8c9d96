"""Word alignments in Pharaoh's format: `0-0 1-2 2-1`, source and target from 0.

Manual alignments may mark sure and possible links, as `1-2S` and `1-2P`, or as `1-2` and `1p2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import NamedTuple

from transduce.errors import DataError

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
    """Raises DataError if a link is out of range for texts with this many units."""
    for source, target in links:
        if source >= n_source or target >= n_target:
            raise DataError(
                f"{where}: the link {source}-{target} is out of range for texts of {n_source} and "
                f"{n_target} units, counted from 0"
            )
