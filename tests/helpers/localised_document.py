"""A document translated by a function, as `transduce localise` does it."""

from __future__ import annotations

from transduce.decoding.options import DecodingOptions
from transduce.localise.document import Document
from transduce.localise.translate import Align, Translate, document_with, localised


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
