"""Evaluation of translations against references."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.metrics.measure import measure
from transduce.metrics.symbols import group_by_source
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.recipe import Split
from transduce.tasks.task import Example
from transduce.tasks.translation.recipe import DEFAULT_METRICS, TranslationRecipe, read_pairs_of
from transduce.tasks.translation.text_translator import TextTranslator
from transduce.text import Tokenizer

logger = logging.getLogger("transduce")

TRANSLATED_TOGETHER = 512
"""Texts of a test set that are sorted by length together."""


def evaluate_translator(
    translator: TextTranslator,
    recipe: TranslationRecipe,
    split: Split,
    examples: Iterable[Example] | None,
    options: DecodingOptions | None,
) -> Evaluation:
    """Translate held-out sources and measure the outputs against their references."""
    if examples is None:
        pairs = read_pairs_of(recipe.data, split)
    else:
        pairs = ((source, target) for (source,), target in examples)
    sources, references = references_by_source(pairs, translator.target)
    if not sources:
        raise DataError("no pairs to evaluate")
    hypotheses = [
        translation.text
        for first in range(0, len(sources), TRANSLATED_TOGETHER)
        for translation in translator.translate_lines(
            sources[first : first + TRANSLATED_TOGETHER], options, first
        )
    ]
    names = recipe.evaluation.metrics or DEFAULT_METRICS[translator.target.outputs]
    language = recipe.target_language
    scores = measure(names, hypotheses, references, language)
    written = as_written(references, translator.target)
    if written != references:
        other = measure(names, hypotheses, written, language)
        warn_of_writing(scores, other, references, written)
    return Evaluation(scores, sources, hypotheses, references, language)


def as_written(references: Sequence[Sequence[str]], target: Tokenizer) -> list[list[str]]:
    """References as the vocabulary of the target would write them, such as in lower case."""
    return [[target.normalizer.apply(text) for text in item] for item in references]


def warn_of_writing(
    scores: Mapping[str, float | str],
    other: Mapping[str, float | str],
    references: Sequence[Sequence[str]],
    written: Sequence[Sequence[str]],
) -> None:
    """Warn of references that the target vocabulary cannot produce.

    other: scores against `written`, the normalised references.
    """
    pairs = [
        f"{name} {value:.2f}"
        for name, value in other.items()
        if isinstance(value, float) and value != scores[name]
    ]
    if pairs:
        apart = sum(item != mine for item, mine in zip(references, written, strict=True))
        logger.warning(
            "%d of %d references contain characters that the target vocabulary cannot produce "
            "(see text.target); scores with normalised references: %s",
            apart,
            len(references),
            ", ".join(pairs),
        )


def references_by_source(
    pairs: Iterable[tuple[str, str]], target: Tokenizer
) -> tuple[list[str], list[list[str]]]:
    """Sources, and for each the list of its references.

    Symbols, such as the phones of a word, have several right answers, so equal sources are
    joined; sentences of text stay one by one, as published test sets count them.
    """
    if target.outputs != "symbols":
        listed = list(pairs)
        return [s for s, _ in listed], [[t] for _, t in listed]
    return group_by_source(pairs)
