"""Plain text: each line that is not blank is a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Reading, Segment, Span


def read_plain(content: bytes, reading: Reading) -> Document:
    """Read a text; segments exclude white space at the ends of lines."""
    decoded = reading.decode(content)
    segments: list[Segment] = []
    offset = 0
    for number, line in enumerate(decoded.text.splitlines(keepends=True), start=1):
        reading.check()
        if core := line.strip():
            start = offset + len(line) - len(line.lstrip())
            segments.append(Segment(f"line {number}", core, (Span(start, start + len(core)),)))
        offset += len(line)
    spans = {segment.key: segment.spans[0] for segment in segments}

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        for key, text in targets.items():
            if len(text.splitlines()) != 1:
                raise DataError(f"{key}: the translation has a line break; write one line")
            yield Edit(spans[key], text)

    return Document(segments, decoded, render)
