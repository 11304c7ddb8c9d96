"""Explanations of translations."""

from __future__ import annotations

from dataclasses import replace

from transduce.decoding.step_search import padded_ids
from transduce.explain.explanation import Explanation
from transduce.explain.recorded_output import OutputPass
from transduce.explain.recorded_pass import logger
from transduce.explain.search_watch import SearchWatch
from transduce.tasks.translation.text_translator import SourceText
from transduce.tasks.translation.translator import Translator
from transduce.text import token_names


def explain_translation(translator: Translator, parts: tuple[str, ...]) -> Explanation:
    """A source text, its translation, and all between.  Of a text in pieces, the first."""
    translator.check_alone()
    translation = translator.predict([parts])[0]
    bare = Explanation("translation", "", {"source": parts[0]}, translation.text)
    if not translation.candidates:
        return bare
    pieces = translator.source_pieces(parts[0])
    if not pieces:
        return bare
    if len(pieces) > 1:
        logger.warning("the text is translated in %d pieces; the first is explained", len(pieces))
    options = translator.options
    (source,) = translator.read(list(parts), 0)
    assert isinstance(source, SourceText), "translated above"
    piece = next(translator.pieces(source, options, 0, 0))
    request = translator.steps.request([piece], options)
    names = token_names(translator.target)
    watch = SearchWatch(
        request, lambda ids: names(request.original(list(ids))), piece.constraints.min_length
    )
    tree = watch.tree()
    batch = padded_ids([piece.source]).to(translator.device)
    written = [*piece.prompt[1:], *translation.candidates[0].parts[0]]
    shown = token_names(translator.source)(piece.source)
    pair = OutputPass(translator.model, batch, ("source", shown), written, names)
    return pair.explain(replace(bare, search=tree))
