"""Inline tags and entities of a segment, in HTML and in subtitles.

Text in markup form has the tags of its file, and of entities only `&amp;`, `&lt;` and `&gt;`, so
that a `<b>` that a reader sees (`&lt;b&gt;`) differs from a tag.
"""

import html
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from transduce.errors import DataError
from transduce.localise.document import Span, Tag, parsed, partners
from transduce.text.scripts import joined_lines

REFERENCE = re.compile(r"(&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);?)")
NO_BREAKS = ("&nbsp;", "&#160;", "&#xa0;", "&#xA0;")
INLINE_BLANKS = re.compile(f"(?:\\s|{'|'.join(NO_BREAKS)})+")
WHITE = re.compile("[ \t-\r\x1c-\x1f\x85\u2028\u2029]+")
"""White space that no reader sees; a no-break space is seen."""
LONGEST_NUMBER = 40
"""Characters of a reference by number; a longer reference means none."""
KEPT = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
ENTITIES = str.maketrans(KEPT)
KEPT_REFERENCE = re.compile("&(?:amp|lt|gt);")


def core(tags: Sequence[Tag], text: str) -> tuple[int, int]:
    """First and last (exclusive) part of the content without its frame: spaces, void tags, pairs
    around all of it, and tags without partner at the ends."""
    pairs = partners(tags)
    first, last = 0, len(tags)
    blank = [
        tag.kind == "void"
        or (tag.kind == "text" and INLINE_BLANKS.fullmatch(text, *tag.span) is not None)
        for tag in tags
    ]
    n_solid = [0, *itertools.accumulate(not is_empty for is_empty in blank)]

    while first < last:
        end, start = pairs.get(first), pairs.get(last - 1)
        if blank[first] or (tags[first].kind != "text" and end is None):
            first += 1
        elif blank[last - 1] or (tags[last - 1].kind != "text" and start is None):
            last -= 1
        elif end is not None and end == last - 1:
            first, last = first + 1, last - 1
        elif end is not None and n_solid[end] == n_solid[first + 1]:
            first = end + 1  # an element without text
        elif start is not None and n_solid[last - 1] == n_solid[start + 1]:
            last = start
        else:
            break
    return first, last


def trimmed(text: str, span: Span) -> Span:
    """A span without the white space at its ends; it is not blank."""
    before = INLINE_BLANKS.match(text, span.start, span.end)
    start, end = before.end() if before else span.start, span.end
    while True:
        if text[end - 1].isspace():
            end -= 1
        elif entity := next((e for e in NO_BREAKS if text.endswith(e, start, end)), None):
            end -= len(entity)
        else:
            return Span(start, end)


def in_one_line(text: str) -> str:
    """A text on a line, without double spaces; a break becomes a space only in scripts with
    spaces."""
    return joined_lines(
        [" ".join(WHITE.split(line)).strip(" ") for line in text.splitlines()]
    ).strip()


def to_markup(raw: str, references: dict[str, str]) -> str:
    """Raw text of a file in markup form; entities go into `references`, by their character."""

    def decoded(reference: str) -> str:
        long = len(reference) > LONGEST_NUMBER and reference[1] == "#"
        character = "\ufffd" if long else html.unescape(reference)
        if len(character) == 1 and reference.endswith(";") and character not in KEPT:
            references[character] = reference
        return escaped(character)

    if "&" not in raw:
        return escaped(raw)
    parts = REFERENCE.split(raw)
    return "".join(decoded(part) if i % 2 else escaped(part) for i, part in enumerate(parts))


def from_markup(text: str) -> str:
    """Text in markup form without tags, as a reader sees it."""
    return KEPT_REFERENCE.sub(lambda match: html.unescape(match[0]), text)


def parts_of(text: str, tags: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """A text in parts, each with True for one of the tags, which begin with `<`, `{` or
    `&`."""
    known = set(tags)
    end = 0
    if known:
        lengths: dict[str, list[int]] = {"<": [], "{": [], "&": []}
        for length, sign in sorted({(len(tag), tag[0]) for tag in known}, reverse=True):
            lengths[sign].append(length)
        for match in re.finditer("[<{&]", text):
            start = match.start()
            length = next((n for n in lengths[match[0]] if text[start : start + n] in known), 0)
            if length and start >= end:
                yield False, text[end:start]
                end = start + length
                yield True, text[start:end]
    yield False, text[end:]


def with_tags(
    text: str, tags: Sequence[str], others: Sequence[str], write: Callable[[str], str]
) -> str:
    """A text whose tags are replaced by others, equal ones in the order of the source, and whose
    text is written anew."""
    new: dict[str, list[str]] = {}
    for tag, other in zip(tags, others, strict=True):
        new.setdefault(tag, []).append(other)
    return "".join(
        (new[part].pop(0) if len(new[part]) > 1 else new[part][0]) if is_tag else write(part)
        for is_tag, part in parts_of(text, tags)
    )


def to_file(
    text: str, tags: Sequence[str], references: Mapping[str, str]
) -> Iterator[tuple[bool, str]]:
    """A text in markup form as `parts_of`, escaped: all but its tags, and entities as before."""
    for is_tag, part in parts_of(text, tags):
        if not is_tag:
            part = from_markup(part)
            if references.keys().isdisjoint(part):
                part = escaped(part)
            else:
                part = "".join(KEPT.get(c) or references.get(c, c) for c in part)
        yield is_tag, part


def check_tags(key: str, tags: Sequence[str], text: str) -> None:
    """Raises DataError unless each tag of a source is in its translation, in a sensible order.

    key: of the segment, for messages.  tags: of the source, in order.  text: the translation.
    """
    translated = tuple(part for is_tag, part in parts_of(text, tags) if is_tag)
    if translated == tuple(tags):
        return
    for tag, count in (Counter(tags) - Counter(translated)).items():
        raise DataError(f"{key}: the translation lacks {tag}" + (f" {count} times" * (count > 1)))
    for tag in Counter(translated) - Counter(tags):
        raise DataError(f"{key}: the translation has {tag} more often than the source")
    if _nesting(translated) != _nesting(tags):
        raise DataError(f"{key}: the tags of the translation are not nested as in the source")


def _nesting(tags: Sequence[str]) -> Counter[tuple[str, str]]:
    pairs = partners([parsed(tag) for tag in tags])
    return Counter((tags[i], tags[j]) for i, j in pairs.items() if i < j)


def escaped(text: str) -> str:
    """Text as a reader sees it in markup form."""
    return text.translate(ENTITIES)
