"""ASS and SSA subtitles: the text of each line of dialogue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Reading, Segment, Span, Tag
from transduce.localise.inline import check_tags, core, parts_of
from transduce.localise.languages import code_page
from transduce.localise.units import BREAK, check_control, framed

ASS_LINE = re.compile(
    r"(?<![^\r\n])(?:(?P<kind>Format|Dialogue):[ \t]*(?P<rest>[^\r\n]*)|\[(?P<part>[^\]\r\n]*)\])"
)
OVERRIDE = re.compile(r"\{[^{}]*\}")
DRAWING = re.compile(r"\\p[1-9]")
ASS_BREAKS = {"\\N": "\n", "\\n": "\n", "\\h": "\xa0"}


def read_ass(content: bytes, reading: Reading) -> Document:
    """Read the dialogue; styles, times, overrides such as `{\\i1}` and drawings stay."""
    decoded = reading.decode(content, fallback=code_page(reading.source))
    segments: list[Segment] = []
    frames: dict[str, tuple[str, str]] = {}
    n_fields, part = 10, ""
    for line in ASS_LINE.finditer(decoded.text):
        reading.check()
        part = (line["part"] or part).lower()
        if part != "events" or line["kind"] is None:
            continue
        fields = line["rest"].split(",", n_fields - 1)
        if line["kind"] == "Format":
            n_fields = line["rest"].count(",") + 1
        elif len(fields) == n_fields and not DRAWING.search(fields[-1]):
            start = line.end() - len(fields[-1])
            key = f"dialogue {len(segments) + 1}"
            _add_dialogue(fields[-1], key, start, segments, frames)

    by_key = {segment.key: segment for segment in segments}

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        for key, target in targets.items():
            segment = by_key[key]
            check_control(key, target)
            check_tags(key, segment.tags, target)
            texts = (part for is_tag, part in parts_of(target, segment.tags) if not is_tag)
            if sign := re.search(r"[{}]|\\[Nnh]", "\0".join(texts)):
                raise DataError(f"{key}: {sign[0]} in the translation would be a sign of ASS")
            text = _raw(BREAK.sub("\n", target))
            yield Edit(segment.spans[0], f"{frames[key][0]}{text}{frames[key][1]}")

    return Document(segments, decoded, render)


def _add_dialogue(
    raw: str, key: str, start: int, segments: list[Segment], frames: dict[str, tuple[str, str]]
) -> None:
    """Add the segment of a line, and the overrides around it."""
    text = re.sub(r"\\[Nnh]", lambda sign: ASS_BREAKS[sign[0]], raw)
    tags: list[Tag] = []
    end = 0
    for override in OVERRIDE.finditer(text):
        tags.append(Tag("text", "", Span(end, override.start())))
        tags.append(Tag("void", "", Span(*override.span())))
        end = override.end()
    tags.append(Tag("text", "", Span(end, len(text))))
    tags = [tag for tag in tags if tag.span.start < tag.span.end]
    first, last = core(tags, text)
    if first < last:
        inner = tags[first:last]
        outer, source, behind = framed(text[inner[0].span.start : inner[-1].span.end])
        before, after = text[: inner[0].span.start] + outer, behind + text[inner[-1].span.end :]
        names = tuple(text[slice(*tag.span)] for tag in inner if tag.kind == "void")
        frames[key] = _raw(before), _raw(after)
        segments.append(Segment(key, source, (Span(start, start + len(raw)),), names))


def _raw(text: str) -> str:
    """A text as the file has it."""
    return text.replace("\n", "\\N").replace("\xa0", "\\h")
