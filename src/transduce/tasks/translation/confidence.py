"""Confidence of a translator, by token and by line.

The outputs are scored again by forced decoding, so that the values are model probabilities over the
whole vocabulary, independent of the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from transduce.tasks.translation.scoring import target_log_probs
from transduce.tasks.translation.translations import Translation
from transduce.tasks.translation.translator import Translator


class Confidence(NamedTuple):
    """Model probabilities of an output.

    token_log_probs: natural logarithm of each token's probability, given all before it.
    end_log_probs:   log-probabilities of the end, for each translated piece of the source.
    source_length:   tokens of the source.
    """

    token_log_probs: tuple[float, ...]
    end_log_probs: tuple[float, ...]
    source_length: int

    @property
    def mean_log_prob(self) -> float:
        """Over all tokens, the ends included."""
        every = (*self.token_log_probs, *self.end_log_probs)
        return sum(every) / len(every)

    @property
    def mean(self) -> float:
        """The geometric mean of the probabilities of all tokens, the ends included."""
        return math.exp(self.mean_log_prob)

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        rounded = [round(log_prob, 6) for log_prob in self.token_log_probs]
        return {"confidence": round(self.mean, 6), "token_log_probs": rounded}


def confidences(
    translator: Translator, texts: Sequence[str], translations: Sequence[Translation]
) -> list[Confidence | None]:
    """Confidence of each translation of a text, in order; None for blank texts."""
    pieces: list[tuple[int, list[int], list[int]]] = []  # (text, source ids, target ids)
    openings: list[int] = []  # ids before the target
    lengths = [len(ids) for ids in translator.source.encode_batch(list(texts))]
    for i, (text, translation) in enumerate(zip(texts, translations, strict=True)):
        if translation.candidates:
            targets = translation.candidates[0].parts
            for (source, opening), target in zip(
                translator.opened_pieces(text), targets, strict=True
            ):
                pieces.append((i, translator.source.as_source(source), [*opening, *target]))
                openings.append(len(opening))
    log_probs = target_log_probs(
        translator.model, [(source, target) for _, source, target in pieces]
    )
    by_text: dict[int, list[list[float]]] = {}
    for (i, _, _), before, of_piece in zip(pieces, openings, log_probs, strict=True):
        by_text.setdefault(i, []).append(of_piece[before:])
    return [_joined(by_text.get(i), length) for i, length in enumerate(lengths)]


def _joined(parts: list[list[float]] | None, source_length: int) -> Confidence | None:
    if parts is None:
        return None
    tokens = tuple(log_prob for part in parts for log_prob in part[:-1])
    return Confidence(tokens, tuple(part[-1] for part in parts), source_length)
