"""Explanations of translations."""

from __future__ import annotations

from dataclasses import replace

from transduce.decoding.search import search_steps
from transduce.decoding.shortlist import ShortlistedModel
from transduce.inspect.explanation import Explanation
from transduce.sequence import Padded
from transduce.tasks.explained_output import OutputPass, hooks_of
from transduce.tasks.explained_pass import logger, token_names
from transduce.tasks.search_watch import Names, SearchWatch
from transduce.tasks.translation.translator import Translator
from transduce.tasks.translation.translator_config import SourceSegment
from transduce.text import EOS, PAD


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
    ids, options = pieces[0], translator.options
    constraints = hooks_of(translator, options, len(ids)).sentence_constraints[0]
    segment = SourceSegment(0, 0, ids, 0, constraints)
    shortlisted = translator.shortlisted([ids], options)
    request = translator.search_request([segment], options, shortlisted)
    names = token_names(translator.target)
    searched = names if shortlisted is None else _renumbered(names, shortlisted)
    watch = SearchWatch(options, request.forbidden, searched, constraints.min_length)
    tree = watch.tree(search_steps(watch.watched(request)))
    source = [*ids, EOS]
    batch = Padded.from_rows([source], PAD).to(translator.device)
    written = translation.candidates[0].parts[0]
    shown = token_names(translator.source)(source)
    pair = OutputPass(translator.model, batch, ("source", shown), written, names)
    return pair.explain(replace(bare, search=tree))


def _renumbered(names: Names, shortlisted: ShortlistedModel) -> Names:
    """Names of ids in the numbering of a shortlist."""
    return lambda ids: names(shortlisted.ids[list(ids)].tolist())
