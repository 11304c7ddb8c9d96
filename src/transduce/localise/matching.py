"""Matching of the units of two versions of a document, by their texts, neighbours and keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Named(NamedTuple):
    """A unit of a version: its key, and its text as it is compared."""

    key: str
    text: str


def matched(before: Sequence[Named], after: Sequence[Named]) -> list[int | None]:
    """For each unit of a version the number of that with the same text in an earlier one, or None.

    A text that is there once in both is the same.  Others are found by their keys, where these and
    those of the neighbours are there still, else beside a neighbour that is found, else in order.
    """
    there, here = _by_text(before), _by_text(after)
    links: list[int | None] = [None] * len(after)
    free = [True] * len(before)

    def link(i: int, j: int) -> None:
        is_free = 0 <= j < len(before) and links[i] is None and free[j]
        if is_free and after[i].text == before[j].text:
            links[i], free[j] = j, False

    for text, numbers in here.items():
        if len(numbers) == 1 == len(there.get(text, ())):
            link(numbers[0], there[text][0])
    keys = {unit.key: j for j, unit in enumerate(before)}
    stable = [j is None or before[j].key == unit.key for j, unit in zip(links, after, strict=True)]
    sure = [j is not None for j in links]
    near = list(zip(_last(sure, stable), _next(sure, stable), strict=True))
    for text, numbers in here.items():
        old, new = {before[j].key for j in there.get(text, ())}, {after[i].key for i in numbers}
        for i in numbers if old <= new or new <= old else ():
            if all(near[i]):
                link(i, keys.get(after[i].key, -1))
    for step, order in ((-1, range(len(after))), (1, reversed(range(len(after))))):
        for i in order:
            if 0 <= i + step < len(after) and (j := links[i + step]) is not None:
                link(i, j - step)
    for text, numbers in here.items():
        rest = [j for j in there.get(text, ()) if free[j]]
        for i, j in zip((i for i in numbers if links[i] is None), rest, strict=False):
            link(i, j)
    return links


def changed(
    before: Sequence[Named],
    after: Sequence[Named],
    links: Sequence[int | None],
    *,
    by_key: bool,
) -> list[int | None]:
    """Links that also find units whose texts have changed.

    by_key: keys are names, which stay; else such a unit is found between the same neighbours, if
    as many units of both versions are there.
    """
    complete = list(links)
    free = set(range(len(before))) - {j for j in links if j is not None}
    if by_key:
        keys = {before[j].key: j for j in free}
        for i, unit in enumerate(after):
            if links[i] is None:
                complete[i] = keys.get(unit.key)
        return complete
    start, last = 0, -1
    for end, j in [
        *((i, j) for i, j in enumerate(links) if j is not None),
        (len(after), len(before)),
    ]:
        between = range(last + 1, j)
        if end - start == len(between) and free.issuperset(between):
            complete[start:end] = between
        start, last = end + 1, j
    return complete


def _by_text(units: Iterable[Named]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for number, unit in enumerate(units):
        numbers.setdefault(unit.text, []).append(number)
    return numbers


def _last(sure: Sequence[bool], stable: Sequence[bool]) -> list[bool]:
    """For each unit, whether the last sure one before it has its key still; True without one."""
    states = itertools.accumulate(
        zip(sure, stable, strict=True), lambda last, now: now[1] if now[0] else last, initial=True
    )
    return list(states)[:-1]


def _next(sure: Sequence[bool], stable: Sequence[bool]) -> list[bool]:
    return _last(sure[::-1], stable[::-1])[::-1]
