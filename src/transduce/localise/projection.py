"""Detag and project: a text without its placeholders, and their places in the translation.

A piece is a tag of a pair around words, or a unit: placeholders beside each other with what moves
with them: quotes and brackets around them, marks and blanks between them, pairs without words.

Each tag goes to the words that the alignment links to the words behind it, a pair around all words
of its content (compare Hanneman and Dinu 2020, "How should markup tags be translated?").  From a
word on, marks and blanks that the translation shares with the source are passed over in turn, so
that a translation of the same shape has its tags in the same places.
"""

from __future__ import annotations

import bisect
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import RAISED, Span, is_break
from transduce.localise.placeholders import Protected
from transduce.text.scripts import is_of_word, is_unspaced, units, visible

CLOSING = ".,;:!?)]}…»”’"
"""Marks without a space before them."""
OPENING = "([{«„“‘¿¡"
"""Marks without a space behind them."""
DETAGGING_QUOTES = frozenset(
    (
        *("()", "[]", "{}", "<>", "«»", "»«", "„“", "„”", "“”", "‘’", "‚‘", "‹›", "''", '""', "`'"),
        *("``", "（）", "「」", "『』", "【】", "《》", "〈〉"),
    )
)
"""Pairs of quotes and brackets that move with what they enclose."""
BETWEEN = " ,:;/=|+*&.…–—-"
"""Marks that join two units, or a unit with an end of the text."""
ACCELERATOR_SIGNS = ("&", "_")
"""Placeholders within a word."""
MAX_BETWEEN = 3
"""Maximum number of such marks between two units."""


class ProjectedPiece(NamedTuple):
    """Marks, with what moves with them.

    offset:  in the text without them.
    origin:  in the text with marks.
    is_unit: False for a tag of a pair around words.
    is_gap:  True if a blank stands in its place, as it is all that parts two words.
    """

    text: str
    offset: int
    origin: int
    is_unit: bool
    is_gap: bool = False


class Detagged(NamedTuple):
    """A text without placeholders, and its pieces in order."""

    text: str
    pieces: tuple[ProjectedPiece, ...]


def detagged(source: Protected) -> Detagged:
    """The text of a protected text without its marks and the spaces that then are needless."""
    text = source.text
    before, after = _visible(source)
    plain: list[str] = []
    pieces: list[ProjectedPiece] = []
    start = 0
    for unit in (*_units(source), Span(len(text), len(text))):
        for i in range(start, unit.start):
            if text[i] in source.names:
                pieces.append(ProjectedPiece(text[i], len(plain), i, False))
            else:
                plain.append(text[i])
        if not unit.start < (start := unit.end):
            break
        moved, following = text[unit.start : unit.end], text[start : start + 1]
        if following == " " and (not plain or plain[-1] == " "):
            moved, start = moved + " ", start + 1
        elif text[unit.start - 1 : unit.start] == " " and (after[start] or ".") in CLOSING:
            moved = plain.pop() + moved
        parts_words = is_of_word(before[unit.start]) and is_of_word(after[unit.end])
        words = [source.names[c] for c in moved if source.kinds.get(c) == "text"]
        is_gap = parts_words and any(name not in ACCELERATOR_SIGNS for name in words)
        if any(is_break(source.names[c]) for c in moved if source.kinds.get(c) == "void"):
            is_gap = _parts(before[unit.start], after[unit.end])
        pieces.append(ProjectedPiece(moved, len(plain), unit.start, True, is_gap))
        plain += " " * is_gap
    return Detagged("".join(plain), tuple(pieces))


def _parts(before: str, after: str) -> bool:
    """True if a break between two characters is a blank."""
    if not before or not after or after in CLOSING or (before + after).strip() != before + after:
        return False
    return not (is_unspaced(before) and is_unspaced(after))


def _visible(source: Protected) -> tuple[list[str], list[str]]:
    """The last character before each place that is no mark, and the first from it on; or ""."""
    text = source.text

    def passing(characters: Iterable[str]) -> list[str]:
        return list(
            itertools.accumulate(
                characters, lambda last, c: last if c in source.names else c, initial=""
            )
        )

    return passing(text), passing(reversed(text))[::-1]


def _units(source: Protected) -> list[Span]:
    """Units of a protected text, in order, each with all that moves with it."""
    text, moves = source.text, _moving(source)
    units: list[Span] = []
    for moving, run in itertools.groupby(range(len(text)), moves.__getitem__):
        if not moving:
            continue
        places = list(run)
        limit = units[-1].end if units else 0
        unit = _widened(text, Span(places[0], places[-1] + 1), limit, moves)
        between = text[limit : unit.start]
        if units and len(between) <= MAX_BETWEEN and all(c in BETWEEN for c in between):
            joined = Span(units.pop().start, unit.end)
            unit = _widened(text, joined, units[-1].end if units else 0, moves)
        units.append(unit)
    return _with_ends(source, units)


def _moving(source: Protected) -> list[bool]:
    """True for each character of a placeholder alone, or of a pair of tags that moves as a
    whole."""
    text, pairs = source.text, source.partners(source.text)
    index = {c: i for i, c in enumerate(text) if c in source.names}
    marks = list(index.values())
    before, after = _visible(source)
    others = {index[a]: index[b] for pair in pairs.items() for a, b in (pair, pair[::-1])}

    def numbers(is_counted: Callable[[str], bool]) -> list[int]:
        return list(itertools.accumulate(map(is_counted, text), initial=0))

    words = numbers(lambda c: c not in source.names and c.isalnum())
    letters = numbers(lambda c: c not in source.names and c.isalpha())
    blanks = numbers(str.isspace)
    reach = [others.get(i, i) for i in marks]
    changes = [0] * (len(text) + 1)
    for start, end in pairs.items():
        first, last = index[start], index[end]
        inside = reach[bisect.bisect_right(marks, first) : bisect.bisect_left(marks, last)]
        if inside and not first < min(inside) <= max(inside) < last:
            continue  # another pair crosses its ends
        n_words, n_letters, n_blanks = (
            counts[last] - counts[first + 1] for counts in (words, letters, blanks)
        )
        if n_words:
            beside, is_raised = before[first], source.element(start) in RAISED
            is_sign = is_raised or not (n_letters or is_unspaced(beside))
            moves = is_sign and beside.isalnum() and not (after[last].isalnum() or n_blanks)
        else:
            moves = bool(inside) or first + 1 == last
        changes[first] += moves
        changes[last + 1] -= moves
    depths = itertools.accumulate(changes)
    return [
        depth > 0 or (c in source.names and i not in others)
        for i, (depth, c) in enumerate(zip(depths, text, strict=False))
    ]


def _widened(text: str, unit: Span, limit: int, moves: Sequence[bool]) -> Span:
    """A unit with the quotes and brackets around it, after the end `limit` of the unit before."""
    start, end = unit
    while limit < start and end < len(text) and not moves[end]:
        if text[start - 1] + text[end] not in DETAGGING_QUOTES:
            break
        start, end = start - 1, end + 1
    return Span(start, end)


def _with_ends(source: Protected, units: list[Span]) -> list[Span]:
    """Units, with the marks between them and the ends of the text that no word is beside."""
    text = source.text
    if not units:
        return units
    while all(c in BETWEEN for c in text[: units[0].start]):
        end = units[0].end
        while end < len(text) and text[end] in BETWEEN:
            end += 1
        if len(units) == 1 or end < units[1].start:
            units[0] = Span(0, end)
            break
        units[:2] = [Span(0, units[1].end)]
    start, end = units[-1]
    before = "".join(c for c in text[:start] if c not in source.names).rstrip()
    if not before[-1:].isalnum() and not any(c.isalnum() or c in source.names for c in text[end:]):
        units[-1] = Span(start, len(text))
    return units


Links = Sequence[tuple[Span, Span]]
"""Pairs of characters that belong together: of the source and of its translation."""
PROJECTION_QUOTES = "\"'«»‹›“”„‟‘’‚‛"


@dataclass
class _Pair:
    opening: ProjectedPiece
    closing: ProjectedPiece
    content: Span
    start: int
    end: int
    parent: _Pair | None

    def widen(self, start: int, end: int) -> None:
        self.start, self.end = min(self.start, start), max(self.end, end)

    def rank_of(self, offset: int) -> int:
        """Order of something in this pair among all at a place: ends, then beginnings."""
        if self.start < self.end:
            return {self.end: 0, self.start: 2}.get(offset, 1)
        return self.parent.rank_of(offset) if self.parent else 1


def projected(source: Protected, plain: Detagged, output: str, links: Links) -> str:
    """The output with the marks of the source, by links between the text of `plain` and the output.
    Raises DataError if no word of the output is linked to the words of a placeholder."""
    alignment = _Alignment(plain.text, output, links)
    partner = source.partners(source.text)
    tags = {piece.text: piece for piece in plain.pieces if not piece.is_unit}
    pairs: dict[str, _Pair] = {}
    units: list[tuple[ProjectedPiece, int, _Pair | None]] = []
    inner: _Pair | None = None
    for piece in plain.pieces:
        if piece.is_unit:
            offset = alignment.place_of(piece, inner.content if inner else None)
            units.append((piece, offset, inner))
            if inner:
                inner.widen(offset, offset)
        elif piece.text in partner:
            closing = tags[partner[piece.text]]
            content = Span(piece.offset, closing.offset)
            span = alignment.around(content)
            if span is None:
                raise DataError(f"no word is linked to the content of {source.names[piece.text]}")
            inner = pairs[closing.text] = _Pair(piece, closing, content, *span, inner)
        else:
            inner = _closed(pairs[piece.text], inner)
    placed = [
        (offset, pair.rank_of(offset) if pair else 1, piece.origin, piece)
        for piece, offset, pair in units
    ]
    for pair in pairs.values():
        for tag, offset, rank in ((pair.opening, pair.start, 2), (pair.closing, pair.end, 0)):
            rank = rank if pair.start < pair.end else pair.rank_of(offset)
            placed.append((offset, rank, tag.origin, tag))
    return _joined(source, plain.text, output, sorted(placed))


def _closed(pair: _Pair, inner: _Pair | None) -> _Pair | None:
    """The innermost pair after the end of a pair; pairs that it crosses are in its parent."""
    if pair.parent:
        pair.parent.widen(pair.start, pair.end)
    if inner is pair:
        return pair.parent
    crossing = inner
    while crossing and crossing.parent is not pair:
        crossing = crossing.parent
    if crossing:
        crossing.parent = pair.parent
    return inner


def _joined(
    source: Protected,
    plain: str,
    output: str,
    placed: Iterable[tuple[int, int, int, ProjectedPiece]],
) -> str:
    parts: list[str] = []
    start, before = 0, ""
    for offset, _, _, piece in placed:
        if start < offset:
            parts.append(output[start:offset])
            start, before = offset, output[offset - 1]
        if not piece.is_unit:
            parts.append(piece.text)
            continue
        start += piece.is_gap and output[start : start + 1] == " "
        parts.append(_spaced(source, plain, piece, before, output[start : start + 1]))
        before = parts[-1][-1]
    return "".join([*parts, output[start:]])


def _spaced(source: Protected, plain: str, piece: ProjectedPiece, before: str, after: str) -> str:
    """A unit with its blanks, or those that other neighbours than in the source need."""
    unit = piece.text
    left, _ = _sides(plain, piece.offset)
    _, right = _sides(plain, piece.offset + piece.is_gap)
    if _follows(source, piece.origin, before):
        left = before
    if _class(before) != _class(left):
        unit = " " * _needs_blank(before, left, unit[0], OPENING) + unit.lstrip(" ")
    if _class(after) != _class(right):
        unit = unit.rstrip(" ") + " " * _needs_blank(after, right, unit[-1], CLOSING)
    return unit


def _sides(text: str, offset: int) -> tuple[str, str]:
    return text[max(offset - 1, 0) : offset], text[offset : offset + 1]


def _follows(source: Protected, offset: int, character: str) -> bool:
    """True if a character is before a place in the source, with tags at most between them."""
    while offset and source.text[offset - 1] != character:
        if source.kinds.get(source.text[offset - 1]) not in ("open", "close"):
            return False
        offset -= 1
    return offset > 0


def _class(character: str) -> str:
    """A letter, a character of a script without spaces, a blank, or the character itself."""
    if is_of_word(character):
        return "letter"
    return "unspaced" if character and is_unspaced(character) else character


def _needs_blank(beside: str, in_source: str, end: str, marks: str) -> bool:
    """True if a unit that ends in `end` needs a blank before the character beside it, which in the
    source is `in_source`.  marks: without a blank on this side."""
    if not beside or beside.isspace() or is_unspaced(beside) or beside in marks:
        return False
    return " " in (end, in_source) or (beside.isalnum() and not is_of_word(in_source))


class _Anchor(NamedTuple):
    word: Span
    image: Span

    def offset(self, offset: int) -> int | None:
        """Place in the image of a place in the word, if both have as many characters."""
        same = self.word.end - self.word.start == self.image.end - self.image.start
        return self.image.start + offset - self.word.start if same else None


class _Alignment:
    """Places in an output, by those in the text that it translates."""

    def __init__(self, text: str, output: str, links: Links) -> None:
        self._text, self._output = text, output
        self._anchors = list(_anchors(text, output, links))
        self._starts = [anchor.word.start for anchor in self._anchors]
        self._ends = [anchor.word.end for anchor in self._anchors]
        self._image_starts = [
            self._edge(word.start, image.start, -1) for word, image in self._anchors
        ]
        self._image_ends = [self._edge(word.end, image.end, 1) for word, image in self._anchors]
        self._n_words = [0, *itertools.accumulate(map(str.isalnum, text))]
        self._passed_gaps: dict[tuple[int, int, int], int] = {}

    def place_of(self, unit: ProjectedPiece, bounds: Span | None) -> int:
        """Place of a unit: at an end of the text, if there, and not glued to a word.  bounds:
        content of the pair around it."""
        text, is_free = self._text, bounds is None
        if is_free and unit.offset == 0 and not _is_glued(unit.text[-1], text[:1]):
            return 0
        if is_free and unit.offset == len(text) and not _is_glued(unit.text[0], text[-1:]):
            return len(self._output)
        return self.offset(unit.offset, bounds or Span(0, len(text)))

    def offset(self, offset: int, bounds: Span) -> int:
        """Place in the output: beside the word, within `bounds`, that is nearest to it in the
        text."""
        last = bisect.bisect_right(self._ends, offset) - 1
        first = last + 1
        if first < len(self._anchors) and self._starts[first] < offset:  # within a word
            inside = self._anchors[first].offset(offset)
            return self._image_ends[first] if inside is None else inside
        near: list[tuple[int, int, int]] = []
        if first < len(self._anchors) and self._starts[first] < bounds.end:
            length = self._starts[first] - offset
            start = self._passed(self._image_starts[first], offset, first, -1)
            near.append((length - (self._image_starts[first] - start), length, start))
        if last >= 0 and self._ends[last] > bounds.start:
            length = offset - self._ends[last]
            end = self._passed(self._image_ends[last], offset, last, 1)
            near.append((length - (end - self._image_ends[last]), length, end))
        if not near:
            raise DataError("no word is linked to the words beside a placeholder")
        return min(near, key=lambda side: side[:2])[2]

    def around(self, content: Span) -> Span | None:
        """The images of all words of a content; None if none of them is linked."""
        start, end = content
        if self._n_words[start] == self._n_words[end]:
            everywhere = Span(0, len(self._text))
            first = self.offset(start, everywhere)
            return Span(first, max(self.offset(end, everywhere), first))
        first = bisect.bisect_right(self._ends, start)
        last = bisect.bisect_left(self._starts, end) - 1
        if first > last:
            return None
        starts, ends = (
            images[first : last + 1] for images in (self._image_starts, self._image_ends)
        )
        if self._starts[first] < start:
            anchor = self._anchors[first]
            starts[0] = anchor.offset(start) or anchor.image.start
        if self._ends[last] > end:
            anchor = self._anchors[last]
            ends[-1] = anchor.offset(end) or anchor.image.end
        left = self._passed(min(starts), start, first, -1)
        right = self._passed(max(ends), end, last, 1)
        if not self._text[start].isspace():
            while left < right and self._output[left].isspace():
                left += 1
        if not self._text[end - 1].isspace():
            while left < right and self._output[right - 1].isspace():
                right -= 1
        return Span(left, right)

    def _passed(self, offset: int, until: int, anchor: int, step: int) -> int:
        """A place beside the image of an anchor, moved over what also stands beside its word, up to
        `until` in the text.  step: 1 behind the word, -1 before it."""
        edge = (self._ends if step == 1 else self._starts)[anchor]
        key = offset, anchor, step
        if key not in self._passed_gaps:
            neighbour = anchor + step
            limit = len(self._text) if step == 1 else 0
            if 0 <= neighbour < len(self._anchors):
                limit = (self._starts if step == 1 else self._ends)[neighbour]
            side = (step + 1) // 2
            passed = 0
            for at in range(edge, limit, step):
                following = _sides(self._output, offset + passed)[side]
                if not following or not _is_same(following, _sides(self._text, at)[side]):
                    break
                passed += step
            self._passed_gaps[key] = passed
        gap = max((until - edge) * step, 0)
        return offset + step * min(gap, self._passed_gaps[key] * step)

    def _edge(self, offset: int, image: int, step: int) -> int:
        """An end of an image; of its whole word, if the word in the text is whole.  step: 1 for
        ends."""
        inside, beside = _sides(self._text, offset)[::step]
        if _kind_of(beside) == _kind_of(inside):
            return image
        while _goes_on(*_sides(self._output, image), bool(_kind_of(beside))):
            image += step
        return image


def _is_glued(mark: str, beside: str) -> bool:
    return unicodedata.category(mark) == "Co" and is_of_word(beside)


def _anchors(text: str, output: str, links: Links) -> Iterator[_Anchor]:
    """The linked words of a text, in order, and none in another."""
    images: dict[Span, Span] = {}
    for link in links:
        for word, image in _words(text, output, *link):
            images[word] = _together(images.get(word, image), image)
    last: _Anchor | None = None
    for anchor in sorted(itertools.starmap(_Anchor, images.items())):
        if last and anchor.word.start < last.word.end:
            last = _Anchor(*map(_together, last, anchor))
            continue
        if last:
            yield last
        last = anchor
    if last:
        yield last


def _together(a: Span, b: Span) -> Span:
    return Span(min(a.start, b.start), max(a.end, b.end))


def _words(text: str, output: str, span: Span, image: Span) -> Iterator[tuple[Span, Span]]:
    """A link word by word, if both sides have the same shape, else without marks and blanks at its
    ends."""
    runs, images = list(_runs(text, span)), list(_runs(output, image))
    if [_shape(text, run) for run in runs] == [_shape(output, run) for run in images]:
        yield from (
            pair for pair in zip(runs, images, strict=True) if _kind_of(text[pair[0].start])
        )
        return
    runs = [run for run in runs if _kind_of(text[run.start])]
    images = [run for run in images if _kind_of(output[run.start])]
    if runs and images:
        yield _together(runs[0], runs[-1]), _together(images[0], images[-1])


def _runs(text: str, span: Span) -> Iterator[Span]:
    """Letters beside each other, digits beside each other, and other characters alone."""
    for _, run in itertools.groupby(range(*span), key=lambda i: _kind_of(text[i]) or i):
        places = list(run)
        yield Span(places[0], places[-1] + 1)


def _shape(text: str, run: Span) -> str:
    return _kind_of(text[run.start]) or text[run.start]


def _kind_of(character: str) -> str:
    """ "letter", with the signs that combine with some; "digit"; empty for others."""
    if not character:
        return ""
    if character.isalpha() or unicodedata.category(character)[0] == "M":
        return "letter"
    return "digit" if character.isalnum() else ""


def _goes_on(a: str, b: str, is_strict: bool) -> bool:
    """True if a word goes on between two characters; if strict, not from letters to digits."""
    if not _kind_of(a) or not _kind_of(b) or is_unspaced(a) or is_unspaced(b):
        return False
    return not is_strict or _kind_of(a) == _kind_of(b)


def _is_same(a: str, b: str) -> bool:
    """True for the same mark, or a quote and another, or a blank and another."""
    if (
        a == b
        or (a in PROJECTION_QUOTES and b in PROJECTION_QUOTES)
        or (a.isspace() and b.isspace())
    ):
        return True
    return unicodedata.normalize("NFKC", a) == unicodedata.normalize("NFKC", b)


def cut_by_links(text: str, links: Links, borders: Sequence[int], length: int) -> list[str]:
    """A text cut where the fewest links cross, for each border in its source of this length; else
    nearest to its share of the characters.  [] for blank parts."""
    parts = list(units(text))
    ends = list(itertools.accumulate(len(visible(part)) for part in parts))
    cuts = [0]
    for border in borders:
        crossing = sum(source.start < border for source, _ in links)
        ordered = iter(sorted((target.start, source.start < border) for source, target in links))
        counts, following = [], next(ordered, None)
        for end in ends[:-1]:
            while following is not None and following[0] < end:
                crossing += -1 if following[1] else 1
                following = next(ordered, None)
            counts.append(crossing)
        least = min(counts, default=0)
        best = [i for i, count in enumerate(counts) if count == least]
        ideal = border * ends[-1] / length if ends else 0.0
        cuts.append(min((abs(ends[i] - ideal), i + 1) for i in best)[1] if best else 0)
    texts = ["".join(parts[a:b]).strip(" ") for a, b in itertools.pairwise([*cuts, len(parts)])]
    return texts if all(map(visible, texts)) else []
