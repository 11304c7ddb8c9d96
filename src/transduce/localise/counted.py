"""Counted texts: a number in place of the placeholder of a plural, and the placeholder back."""

from __future__ import annotations

import dataclasses
import re

from transduce.errors import DataError
from transduce.localise.checks import checked
from transduce.localise.document import Segment
from transduce.localise.inline import escaped
from transduce.localise.placeholders import Protected, protect

COUNT = re.compile(
    r"%(?:[0-9]+\$)?(?:l|ll|z)?[diu]|%n|%(?:\(|\{|<)(?:n|num\w*|count)(?:\)[di]|\}|>[di])"
    r"|\{\{?\s*(?:[0-9]|n|num\w*|count)\s*\}?\}|#"
)
"""Placeholders of a number."""


def with_number(segment: Segment, number: str, argument: str | None = None) -> Segment | None:
    """A segment with a number in place of the placeholder that counts: the only one of its text, or
    the only one of a number.  None for another segment, or one that has such a number.

    argument: of the plural of ICU that has the segment, which alone counts, and `#`.
    """
    try:
        source = protect(segment.source, segment.tags, segment.markup, segment.flags)
    except DataError:
        return None
    mark = _counting(source, argument)
    if not mark or re.search(rf"(?<!\d){number}(?!\d)", segment.source):
        return None
    kept = {
        m: name if m in source.tags or not source.markup else escaped(name)
        for m, name in source.names.items()
    }
    kept[mark] = number
    text = "".join(kept.get(c, c) for c in source.text)
    return dataclasses.replace(segment, source=text, forms=())


def _counting(source: Protected, argument: str | None) -> str:
    marks = [mark for mark in source.marks if source.kinds[mark] == "text"]
    if argument is not None:
        count = re.compile(rf"#|\{{\s*{argument}\s*(?:,\s*number\s*)?\}}" if argument else "#")
        marks = [mark for mark in marks if count.fullmatch(source.names[mark])]
    elif len(marks) > 1:
        marks = [mark for mark in marks if COUNT.fullmatch(source.names[mark])]
    return marks[0] if len(marks) == 1 else ""


def without_number(segment: Segment, number: str, target: str, argument: str | None = None) -> str:
    """A translation of a text with a number, with the placeholder of its segment in its place; ""
    where the number is not there once, or the translation does not keep what the segment has."""
    source = protect(segment.source, segment.tags, segment.markup, segment.flags)
    name = source.names[_counting(source, argument)]
    text, n_numbers = re.subn(rf"(?<![\d.,]){number}(?![\d])", lambda _: name, target)
    if n_numbers != 1:
        return ""
    (record,) = checked([dataclasses.replace(segment, target=text)])
    return text if record.is_done else ""
