"""Evaluation of translations against references."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from transduce.metrics.measure import measure, numeric_scores
from transduce.metrics.symbols import group_by_source
from transduce.tasks.evaluation import Evaluation
from transduce.text import Tokenizer

logger = logging.getLogger("transduce")


def as_written(references: Sequence[Sequence[str]], target: Tokenizer) -> list[list[str]]:
    """References as the vocabulary of the target would write them, such as in lower case."""
    return [[target.normalizer.apply(text) for text in item] for item in references]


def warn_of_writing(evaluation: Evaluation, metrics: Sequence[str], target: Tokenizer) -> None:
    """Warn of references that the target vocabulary cannot produce."""
    references = evaluation.references
    written = as_written(references, target)
    apart = sum(item != list(texts) for item, texts in zip(written, references, strict=True))
    if not apart:
        return
    other = measure(metrics, evaluation.hypotheses, written, evaluation.language)
    pairs = [
        f"{name} {score:.2f}"
        for name, score in numeric_scores(other).items()
        if score != evaluation.scores[name]
    ]
    if pairs:
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
    joined; sentences of text stay apart, as published test sets count them.
    """
    if target.outputs != "symbols":
        listed = list(pairs)
        return [s for s, _ in listed], [[t] for _, t in listed]
    return group_by_source(pairs)
