"""A document translated by a function, as `transduce localise` does it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from transduce.decoding.options import DecodingOptions
from transduce.localise.document import Document, Span, document_with
from transduce.localise.projection import Links
from transduce.localise.translate import Align, Translate, localised


class Output(NamedTuple):
    """Translation of a made-up translator."""

    text: str
    finished: bool = True


def word_by_word(pattern: str) -> Callable[[Sequence[tuple[str, str]]], list[Links]]:
    """An aligner of the matches of a pattern in the source to the same places in the output."""

    def align(pairs: Sequence[tuple[str, str]]) -> list[Links]:
        spans = [[Span(*match.span()) for match in re.finditer(pattern, a)] for a, _ in pairs]
        return [[(span, span) for span in words] for words in spans]

    return align


def localised_document(
    document: Document,
    language: str,
    translate: Translate,
    options: DecodingOptions,
    align: Align | None = None,
) -> bytes:
    """Translate a document; segments that cannot be translated stay as they are.

    Raises DataError if there are segments and none is translated.
    """
    records = localised(document.segments, language, translate, options, align)
    translated = document_with(document, records)
    translated.check()
    return translated.content
