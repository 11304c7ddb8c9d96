"""USFM: texts of the Bible by verse, with headings, notes and captions."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from transduce.localise.document import Document, Kind, Reading, Span, Tag
from transduce.localise.marked import MarkedTexts

_NOTES = r"(?:ef|fe|f|x|fig|va|vp|ca|rq|xt|ior|pro)(?![\w*])"
USFM_MARK = re.compile(
    r"\\[\w-]+\s*(?:\|[^\\]*)?\\\*"
    rf"|\\\+?(?P<note>(?={_NOTES})[a-z]+)(?:[^\\]++|\\(?!\+?(?P=note)(?!\w)|[cv]\s))*+"
    r"\\\+?(?P=note)\*"
    r"|(?:\|[^\\|]*+)?\\\+?(?P<close>[A-Za-z]+[0-9]*)\*"
    rf"|(?:(?<!\s)\s++)?\\\+?(?P<open>(?!{_NOTES})[A-Za-z]+[0-9]*(?:-[0-9]+)?)(?![\w*-])\s*"
    r"|(?:(?<!\s)\s++)?//\s*|\\\S*"
)
"""A mark: milestone, note or reference, end of characters, beginning of them or of a block."""
FLOW = re.compile(r"(?:p|m|po|pr|cls|pmo|pm|pmc|pmr|pi|mi|nb|pc|ph|b|q|qr|qc|qm|li|lim)[0-9]?")
"""Paragraphs that a verse goes on in."""
STAYING = frozenset(
    (
        *("id", "ide", "usfm", "sts", "rem", "toc3", "toca1", "toca2", "toca3", "cp", "c", "v"),
        *("r", "mr", "sr"),
    )
)
"""Blocks of codes, numbers, references and comments; a verse has its text behind its number."""
NUMBER = re.compile(r"\s*(\S+)[ \t]*")
OF_NOTES = re.compile(r"\\\+?(?:fr|xo|fv|rq|xt|ior)(?![\w*])[^\\]*(?:\\\+?\w+\*)?")
"""References in a note."""


def read_usfm(content: bytes, reading: Reading) -> Document:
    """Read the verses of a book, with the paragraphs in them as tags, headings, cells, notes and
    captions; codes, numbers and references stay."""
    decoded = reading.decode(content)
    text, texts = decoded.text, MarkedTexts(decoded, reading.check)
    closed = {match[1] for match in re.finditer(r"\\\+?([A-Za-z]+[0-9]*)\*", text)}
    parse = functools.partial(_usfm_parts, closed=closed)
    book, chapter, verse, name = "", "0", "0", "text"
    start = 0

    def add(end: int) -> None:
        if name not in STAYING:
            key = f"{book} {chapter}:{verse}".lstrip()
            texts.add(key if name == "" else f"{key}, {name}", Span(start, end), parse)

    for mark in USFM_MARK.finditer(text):
        reading.check()
        opened = mark["open"]
        if mark["note"] and (inside := _inside_note(mark, text)):
            texts.add(f"{book} {chapter}:{verse}, {mark['note']}".lstrip(), inside, parse)
        if opened is None or opened in closed or (name == "" and FLOW.fullmatch(opened)):
            continue
        add(mark.start())
        start, name = mark.end(), opened
        number = NUMBER.match(text, start)
        if number and opened == "id":
            book = number[1]
        elif number and opened == "c":
            chapter, verse = number[1], "0"
        elif number and opened == "v":
            verse, start, name = number[1], number.end(), ""
        elif FLOW.fullmatch(opened) and verse != "0":
            name = ""
    add(len(text))
    return texts.document(is_keyed=True)


def _inside_note(mark: re.Match[str], text: str) -> Span | None:
    """The text of a note behind its caller, or the caption of a figure; None for a reference."""
    begin = re.compile(r"\\\+?\w+[ \t]*").match(text, mark.start())
    end = text.rindex("\\", mark.start(), mark.end())
    start = begin.end() if begin else mark.start()
    if mark["note"] == "fig":
        fields = text[start:end].split("|")
        old = len(fields) > 6 and "=" not in text[start:end]
        first = start + sum(len(field) + 1 for field in fields[:5]) if old else start
        return Span(first, first + len(fields[5 if old else 0]))
    if mark["note"] not in ("f", "fe", "ef"):
        return None
    caller = NUMBER.match(text, start, end)
    return Span(caller.end() if caller else start, end)


def _usfm_parts(text: str, span: Span, closed: set[str]) -> Iterator[Tag]:
    """Marks; those without an end are breaks, which keep their order."""
    copied = span.start
    while mark := USFM_MARK.search(text, copied, span.end):
        kind: Kind = "void"
        start, end = mark.span()
        name = mark["open"] or mark["close"] or ("br" if "//" in mark[0] else "x")
        if reference := OF_NOTES.match(text, start, span.end):
            end = reference.end()
        elif mark["open"] and name in closed:
            start, kind = text.index("\\", start), "open"
            end = min(end, text.index(name, start) + len(name) + 1)
        elif mark["close"]:
            kind = "close"
        elif mark["open"]:
            name = "br"
        yield Tag("text", "", Span(copied, start))
        yield Tag(kind, name, Span(start, end))
        copied = end
    yield Tag("text", "", Span(copied, span.end))
