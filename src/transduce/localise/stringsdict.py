"""Property lists of Apple: strings, and plurals of a stringsdict."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span
from transduce.localise.plurals import CATEGORY_NAMES, origins
from transduce.localise.units import Unit, document_of
from transduce.localise.xml import Element, Text, blank_before, text_of

FLAGS = frozenset(("objc-format",))
SETTINGS = ("NSStringFormatSpecTypeKey", "NSStringFormatValueTypeKey")


def read_plist(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read the strings of dictionaries; settings of plurals are left."""
    references: dict[str, str] = {}
    units: list[Unit] = []

    def walk(element: Element, path: str) -> None:
        reading.check()
        if element.local_name != "dict":
            return
        texts: dict[str, tuple[Element, Text]] = {}
        keys: dict[str, Element] = {}
        children = element.children
        for key, child in zip(children[::2], children[1::2], strict=False):
            name = text_of(key, (), {}).source
            walk(child, f"{path}, {name}" if path else name)
            text = text_of(child, (), references)
            if child.local_name == "string" and name not in (*SETTINGS, *texts) and text.has_words:
                texts[name], keys[name] = (child, text), key
        units.extend(_units(decoded, texts, keys, path, reading.language))

    for element in root.children:
        walk(element, "")
    return document_of(decoded, units)


def _units(
    decoded: DecodedText,
    texts: Mapping[str, tuple[Element, Text]],
    keys: Mapping[str, Element],
    path: str,
    language: str | None,
) -> Iterator[Unit]:
    """Units of a dictionary: its plural, and each other string."""
    sources = {name: text.source for name, (_, text) in texts.items()}
    plural = {name: source for name, source in sources.items() if name in CATEGORY_NAMES}
    if "other" not in plural:
        plural = {}
    names = {name: f"{path}, {name}" if path else name for name in texts}
    segments = {
        name: Segment(names[name], text.source, (e.span,), text.tags, True, flags=FLAGS)
        for name, (e, text) in texts.items()
    }

    def edits(made: Mapping[str, str], targets: Mapping[str, str]) -> Iterator[Edit]:
        for name, origin in made.items():
            if (target := targets.get(names[origin])) is None:
                continue
            raw = texts[origin][1].written(names[origin], target, decoded)
            if name not in texts:
                key, place = keys["other"], texts["other"][0].span.end
                new = f"{blank_before(key)}<key>{name}</key>{blank_before(texts['other'][0])}"
                yield Edit(Span(place, place), f"{new}<string>{raw}</string>")
            elif name != origin or target != sources[origin]:
                yield texts[name][0].with_content(raw)

    if plural:
        made = origins(plural, language)
        used = [segments[name] for name in plural if name in made.values()]
        yield Unit(used, functools.partial(edits, made))
    for name in texts:
        if name not in plural:
            yield Unit([segments[name]], functools.partial(edits, {name: name}))
