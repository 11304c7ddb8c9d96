"""Detag and project: placeholders put back into the translation of the text without them.

Each tag goes to the words that the alignment links to the words behind it, a pair around all words
of its content (compare Hanneman and Dinu 2020, "How should markup tags be translated?").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Span
from transduce.localise.placeholders import Protected
from transduce.text.scripts import is_unspaced

CLOSING = ".,;:!?)]}…"
"""Marks without a space before them."""
Links = Sequence[tuple[Span, Span]]
"""Pairs of characters that belong together: of the source and of its translation."""


class Detagged(NamedTuple):
    """A text without placeholders.  places: of each mark, in characters of the text."""

    text: str
    places: tuple[tuple[str, int], ...]


def detagged(source: Protected) -> Detagged:
    """The text of a protected one without its marks, and without spaces then doubled or before a
    closing mark."""
    text, previous = "", ""
    places: list[tuple[str, int]] = []
    for character in source.text:
        if character in source.names:
            places.append((character, len(text)))
        elif character != " " or not text.endswith(" "):
            if previous in source.names and character in CLOSING:
                text = text.removesuffix(" ")
                places = [(mark, min(place, len(text))) for mark, place in places]
            text += character
        previous = character
    return Detagged(text, tuple(places))


def projected(source: Protected, plain: Detagged, output: str, links: Links) -> str:
    """The output with the marks of the source.

    links: between the text of `plain` and the output.  Raises DataError if no word of the output
    is linked to the words of a placeholder.
    """
    places = dict(plain.places)
    inserted: list[tuple[int, int, str]] = []
    pairs = source.partners(source.text)
    paired = {mark for pair in pairs.items() for mark in pair}
    order = {mark: number for number, (mark, _) in enumerate(plain.places)}
    for start, end in pairs.items():
        if places[start] == places[end]:  # without content
            spot = _spot(plain, output, links, places[start])
            inserted += (spot, order[start], start), (spot, order[end], end)
            continue
        found = _image(links, Span(places[start], places[end]))
        if found is None:
            raise DataError(f"no word is linked to the content of {source.names[start]}")
        first, last = _whole_words(output, found)
        inserted += (first, order[start], start), (last, order[end] - len(order), end)
    for mark, place in plain.places:
        if mark not in paired:
            spot = _spot(plain, output, links, place)
            inserted.append((spot, order[mark], mark))
    return _with_marks(source, output, sorted(inserted))


def _image(links: Links, span: Span) -> Span | None:
    """The characters of the output that are linked to a span of the source."""
    found = [b for a, b in links if a.start < span.end and span.start < a.end]
    if not found:
        return None
    return Span(min(b.start for b in found), max(b.end for b in found))


def _whole_words(output: str, span: Span) -> Span:
    """A span widened to whole words, without blanks and marks at its ends."""
    start, end = span
    while start < end and not output[start].isalnum():
        start += 1
    while end > start and not output[end - 1].isalnum():
        end -= 1
    if start == end:
        return span
    while start > 0 and output[start - 1].isalnum() and not _is_cut(output, start):
        start -= 1
    while end < len(output) and output[end].isalnum() and not _is_cut(output, end):
        end += 1
    return Span(start, end)


def _is_cut(output: str, place: int) -> bool:
    """True between two characters of a script without spaces between words."""
    return is_unspaced(output[place - 1]) or is_unspaced(output[place])


def _spot(plain: Detagged, output: str, links: Links, place: int) -> int:
    """Place in the output of a placeholder without partner.

    Before the linked word behind it, or after the one before it, whichever is nearer in the source.
    """
    if not plain.text[:place].strip():
        return 0
    if not plain.text[place:].strip():
        return len(output)
    behind = min((a for a, _ in links if a.start >= place), default=None)
    before = max((a for a, _ in links if a.end <= place), default=None)
    if behind and not (before and place - before.end < behind.start - place):
        image = _image(links, behind)
        assert image is not None
        return _whole_words(output, image).start if output[image.start].isalnum() else image.start
    if before:
        image = _image(links, before)
        assert image is not None
        return _whole_words(output, image).end
    raise DataError("no word is linked to the words beside a placeholder")


def _with_marks(source: Protected, output: str, inserted: Sequence[tuple[int, int, str]]) -> str:
    """The output with marks at places; those that stand for words with blanks beside them."""
    text, last = "", 0
    for place, _, mark in inserted:
        text += output[last:place]
        last = place
        if source.kinds[mark] in ("open", "close"):
            text += mark
            continue
        at = source.text.index(mark)
        before, after = source.text[max(at - 1, 0) : at], source.text[at + 1 : at + 2]
        text += " " * _needs_blank(before, text[-1:]) + mark
        text += " " * _needs_blank(after, output[last : last + 1])
    return text + output[last:]


def _needs_blank(in_source: str, beside: str) -> bool:
    """True between a placeholder and the character beside it, given that beside it in the source.

    Scripts without spaces have blanks on neither side.
    """
    if not beside or beside.isspace() or is_unspaced(beside):
        return False
    return in_source.isspace() or (beside.isalnum() and (not in_source or is_unspaced(in_source)))
