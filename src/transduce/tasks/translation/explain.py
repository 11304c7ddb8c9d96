"""Explanations of translations."""

from __future__ import annotations

from dataclasses import replace

import torch

from transduce.inspect.explanation import Explanation
from transduce.sequence import Padded
from transduce.tasks.explained_output import OutputPass, hooks_of, search_of
from transduce.tasks.explained_pass import logger, token_names
from transduce.tasks.search_watch import SearchWatch
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD


def explain_translation(translator: Translator, parts: tuple[str, ...]) -> Explanation:
    """A source text, its translation, and all between.  Of a text in pieces, the first."""
    translator.check_alone()
    translator.check_own_search()
    translation = translator.predict([parts])[0]
    bare = Explanation("translation", "", {"source": parts[0]}, translation.text)
    if not translation.candidates:
        return bare
    pieces = translator.source_pieces(parts[0])
    if not pieces:
        return bare
    if len(pieces) > 1:
        logger.warning("the text is translated in %d pieces; the first is explained", len(pieces))
    source = [*pieces[0], EOS]
    batch = Padded.from_rows([source], PAD).to(translator.device)
    limits = translator.options.max_lengths(torch.tensor([len(pieces[0])]))
    most = translator.config.max_target_length
    names = token_names(translator.target)
    least = translator.options.min_length_for(len(pieces[0]))
    watch = SearchWatch(translator.options, (BOS, PAD), names, least)
    tree = watch.tree(
        search_of(
            watch.step(translator.model.step),
            translator.model,
            batch,
            limits if most is None else limits.clamp(max=most),
            translator.options,
            hooks_of(translator, translator.options, len(pieces[0])),
        )
    )
    written = translation.candidates[0].parts[0]
    shown = token_names(translator.source)(source)
    pair = OutputPass(translator.model, batch, ("source", shown), written, names)
    return pair.explain(replace(bare, search=tree))
