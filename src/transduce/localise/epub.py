"""EPUB: its pages as HTML, its navigation, title and language."""

import dataclasses
from collections.abc import Iterator, Mapping

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Edit, Reading, Span
from transduce.localise.html import html_document
from transduce.localise.languages import is_right_to_left
from transduce.localise.runs import Keys, OfficeTexts, attribute_value, content_value
from transduce.localise.units import shortened
from transduce.localise.xml import Element, read_archive

DESCRIBED = frozenset(("dc:title", "dc:description", "dc:subject"))


def read_epub(content: bytes, reading: Reading) -> Document:
    """Read the pages of a book, its tables of contents, its title and description."""
    archive, roots = read_archive(content, reading, r"(?i:.*\.(?:opf|ncx))", r"(?i:.*\.x?html?)")
    texts = OfficeTexts()
    language: list[Edit] = []
    is_from_right = is_right_to_left(reading.language or "")
    for name, root in roots.items():
        keys = Keys(shortened(name))
        has_direction = not root.get("version").startswith("2")  # EPUB 2 has none
        for element in root.descendants():
            _add_text(element, keys, texts)
            if reading.language and element.name == "dc:language":
                language.append(element.with_content(reading.language))
            elif element.local_name == "spine" and has_direction and is_from_right:
                language.append(element.with_attribute("page-progression-direction", "rtl"))
    book = texts.document(archive, ())
    segments, unread = [*book.segments], [*book.unread]
    names = {span.start: shortened(name) for name, span in archive.members.items()}
    pages: dict[str, tuple[Document, str, int]] = {}
    for name, span in archive.members.items():
        if name in roots:
            continue
        page = html_document(DecodedText(archive.text[slice(*span)], "utf-8"), reading)
        language += (_moved(edit, span.start) for edit in page.language)
        for record in page.unread:
            unread.append(dataclasses.replace(record, key=f"{shortened(name)}, {record.key}"))
        for segment in page.segments:
            key = f"{shortened(name)}, {segment.key}"
            pages[key] = page, segment.key, span.start
            (inner,) = segment.spans
            spans = (Span(inner.start + span.start, inner.end + span.start),)
            segments.append(dataclasses.replace(segment, key=key, spans=spans))

    sources = {segment.key: segment.source for segment in segments}

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        yield from book.render({key: t for key, t in targets.items() if key not in pages})
        by_page: dict[int, tuple[Document, dict[str, str]]] = {}
        for key, target in targets.items():
            if key in pages and target != sources[key]:
                page, page_key, start = pages[key]
                by_page.setdefault(start, (page, {}))[1][page_key] = target
        for start, (page, own_targets) in by_page.items():
            try:
                edits = [*page.render(own_targets)]
            except DataError as error:
                raise DataError(f"{names[start]}, {error}") from None
            yield from (_moved(edit, start) for edit in edits)

    return Document(segments, archive, render, language=language, unread=unread)


def _add_text(element: Element, keys: Keys, texts: OfficeTexts) -> None:
    """Add what describes a book, and a label of its navigation."""
    if element.name in DESCRIBED or element.local_name == "text":
        for value in content_value(element, keys):
            texts.add(value)
    elif element.local_name == "reference":
        for value in attribute_value(element, "title", keys):
            texts.add(value)


def _moved(edit: Edit, start: int) -> Edit:
    return Edit(Span(edit.span.start + start, edit.span.end + start), edit.text)
