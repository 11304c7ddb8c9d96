"""TMX: units of a translation memory, whose variants are by language."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span
from transduce.localise.units import Unit, document_of
from transduce.localise.xml import Element, blank_before, text_of

OPAQUE = ("bpt", "ept", "ph", "it", "ut")


def read_tmx(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read the variants of the source language; those of the target language are their targets."""
    language = reading.language
    if language is None:
        raise DataError("the target language is not known; give --target-language de")
    header = root.child("header")
    references: dict[str, str] = {}
    units = []
    for number, element in enumerate((e for e in root.descendants() if e.name == "tu"), 1):
        reading.check()
        origin = element.get("srclang") or (header.get("srclang") if header else "")
        origin = reading.source or origin
        unit = _unit(decoded, element, f"unit {number}", origin, language, references)
        units += [unit] if unit else []
    return document_of(decoded, units)


def _variant(unit: Element, language: str) -> Element | None:
    """The variant of a language, else of one that begins so: `de-DE` for `de`."""
    variants = [(_language(e), e) for e in unit.children if e.name == "tuv"]
    code = language.lower()
    exact = [e for name, e in variants if name == code]
    alike = [e for name, e in variants if re.split("[-_]", name)[0] == re.split("[-_]", code)[0]]
    return next(iter((*exact, *alike)), None)


def _language(variant: Element) -> str:
    return (variant.get("xml:lang") or variant.get("lang")).lower()


def _unit(
    decoded: DecodedText,
    unit: Element,
    key: str,
    origin: str,
    language: str,
    references: dict[str, str],
) -> Unit | None:
    source, target = _variant(unit, origin), _variant(unit, language)
    content = source.child("seg") if source else None
    if source is None or content is None or source is target:
        return None
    text = text_of(content, OPAQUE, references)
    there = target.child("seg") if target else None
    if not text.has_words or (target is not None and there is None):
        return None
    known = text_of(there, OPAQUE, {}).source if there else ""
    segment = Segment(
        key,
        text.source,
        (unit.span,),
        text.tags,
        True,
        target=known,
        state="translated" if known else "missing",
    )

    def write(targets: Mapping[str, str]) -> Iterator[Edit]:
        (translation,) = targets.values()
        raw = text.written(key, translation, decoded)
        if there is not None:
            yield there.with_content(raw)
            return
        name = "xml:lang" if source.attribute("xml:lang") else "lang"
        inner = f"{blank_before(content)}<seg>{raw}</seg>"
        end = decoded.text[content.span.end : source.span.end]
        new = f'{blank_before(source)}<tuv {name}="{language}">{inner}{end}'
        yield Edit(Span(source.span.end, source.span.end), new)

    return Unit([segment], write)
