"""Surface of a translation beside its source: blanks, marks, doubled words, length, capitals."""

import re
from collections.abc import Iterator

from transduce.text.scripts import is_unspaced

SURFACE_ENDS = {
    **dict.fromkeys(".。．।۔։።", "full stop"),
    **dict.fromkeys("?？؟;", "question mark"),
    **dict.fromkeys("!！", "exclamation mark"),
    **dict.fromkeys(":：", "colon"),
    **dict.fromkeys("…⋯", "ellipsis"),
    **dict.fromkeys(",，、،", "comma"),
}
"""Marks at the end of a text, by their characters in several scripts."""
DOTS = re.compile(r"\.{3,}|。{2,}|…+")
SURFACE_CLOSING = "\"'”’»›)）」』】]"
QUOTES = re.compile("[\"«»„“”‟「」『』″]|``|''")
SURFACE_BRACKETS = (("(（", ")）"), ("[［", "]］"), ("{", "}"))
ACCELERATOR = re.compile("[(（][&_\ufffc][^\\W_][)）]")
"""Behind a label in Chinese, Japanese and Korean."""
DOUBLED = re.compile(r"\b([^\W\d_]{2,})\s+\1\b")
STOPLESS = re.compile("[\u0e00-\u0eff]")
"""Letters of scripts without full stops."""
LEAST_LETTERS = 10
"""Minimum letters of a source whose length is compared."""
SHORTEST, SHORTEST_UNSPACED, LONGEST = 0.25, 0.08, 3.0
"""Least and largest shares of the letters of a source, the second in scripts without blanks."""


def surface_faults(source: str, target: str) -> Iterator[str]:
    """Differences between a source and its target, with marks in place of placeholders."""
    yield from _blank_faults(source, target)
    source, target = source.strip(), target.strip()
    ours, theirs = _end(source), _end(target)
    if ours != theirs and not (ours == "full stop" and STOPLESS.fullmatch(target[-1:])):
        yield f"the end is {_named(theirs)}, in the source {_named(ours)}"
    if len(DOTS.findall(source)) != len(DOTS.findall(target)) and "ellipsis" not in (ours, theirs):
        yield "the source has another number of ellipses"
    bare, translated = (ACCELERATOR.sub("", text) for text in (source, target))
    for opening, closing in SURFACE_BRACKETS:
        counts = [
            (sum(map(text.count, opening)), sum(map(text.count, closing)))
            for text in (bare, translated)
        ]
        if counts[0] != counts[1]:
            yield f"the source has another number of {opening[0]} or {closing[0]}"
    n_quotes = [len(QUOTES.findall(text)) for text in (source, target)]
    if n_quotes[0] != n_quotes[1]:
        yield "the source has another number of quotes"
    for word in DOUBLED.findall(target):
        if not DOUBLED.search(source):
            yield f"the word {word} is doubled"
    yield from _letter_faults(source, target)


def _blank_faults(source: str, target: str) -> Iterator[str]:
    for place, ours, theirs in (
        ("beginning", _leading(source), _leading(target)),
        ("end", _leading(source[::-1]), _leading(target[::-1])),
    ):
        if ("\n" in ours) != ("\n" in theirs):
            fault = "missing" if "\n" in ours else "not in the source"
            yield f"the line break at the {place} is {fault}"
        elif ours.replace("\n", "") != theirs.replace("\n", ""):
            yield f"the blanks at the {place} are others"
    if "  " in target.strip() and "  " not in source.strip():
        yield "a blank is doubled"
    if source.count("\t") != target.count("\t"):
        yield "the source has another number of tabs"


def _letter_faults(source: str, target: str) -> Iterator[str]:
    ours, theirs = (sum(map(str.isalpha, text)) for text in (source, target))
    words = re.findall(r"[^\W\d_]{3,}", source)
    if source == target and len(words) > 1:
        yield "it is a copy of the source"
    if ours >= LEAST_LETTERS:
        is_dense = any(map(is_unspaced, target)) and not any(map(is_unspaced, source))
        shortest = SHORTEST_UNSPACED if is_dense else SHORTEST
        if theirs < ours * shortest and not any(map(is_unspaced, source)):
            yield "it is far shorter than the source"
        if theirs > ours * LONGEST and not any(map(is_unspaced, source)):
            yield "it is far longer than the source"
    first, translated = source[:1], target[:1]
    if first.isupper() and translated.islower():
        yield "it begins with a small letter, the source with a capital"
    if first.islower() and translated.isupper() and not target[:2].isupper():
        yield "it begins with a capital, the source with a small letter"


def _leading(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _end(text: str) -> str:
    """Name of the mark at the end, quotes and brackets left out; "" for none."""
    text = text.rstrip(SURFACE_CLOSING + " \u00a0\u202f")
    if DOTS.search(text[-3:]) and text[-1:] in ".…。":
        return "ellipsis"
    return SURFACE_ENDS.get(text[-1:], "")


def _named(end: str) -> str:
    return f"{'an' if end[:1] == 'e' else 'a'} {end}" if end else "without a mark"
