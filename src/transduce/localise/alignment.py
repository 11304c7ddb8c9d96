"""Links between the words of a text and of its translation, from a model's attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transduce.localise.document import Span
from transduce.text.offsets import token_spans

if TYPE_CHECKING:
    from transduce.localise.projection import Links
    from transduce.localise.translate import Align
    from transduce.tasks.translation.translator import Translator


def aligner(translator: Translator) -> Align:
    """Function that aligns pairs by the attention of the last layer of a translator; it raises
    RunError for a model without cross-attention."""
    return lambda pairs: [_links(translator, *pair) for pair in pairs]


def _links(translator: Translator, source: str, target: str) -> Links:
    """Each token of the target with the token of the source that it attends to most."""
    attended = translator.attention(source, target, -1)[:-1, :-1]
    if not source or not target or not attended.size:
        return []
    sides = ((translator.source, source), (translator.target, target))
    spans = [
        [Span(*span) for span in token_spans(tokenizer, text, tokenizer.encode(text))]
        for tokenizer, text in sides
    ]
    best: Sequence[int] = attended.argmax(1).tolist()
    return [
        (spans[0][source_token], target_span)
        for source_token, target_span in zip(best, spans[1], strict=True)
        if spans[0][source_token].start < spans[0][source_token].end
        and target_span.start < target_span.end
    ]
