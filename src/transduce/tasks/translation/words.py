"""Words of a translation: their probability, and their attention to the words of the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.decoding.topk import topk
from transduce.errors import DataError
from transduce.nn.attention import record_attention
from transduce.sequence import Padded
from transduce.tasks.translation.scoring import max_scored_length
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD, UNK
from transduce.text.offsets import token_spans
from transduce.text.scripts import UNSPACED
from transduce.text.tokenizer import Tokenizer

Floats = NDArray[np.float64]
Span = tuple[int, int]

MAX_TOKENS = 512
"""Tokens of a sentence, or of its translation: the memory grows by the square."""
RIVALS = 8
"""Likeliest tokens in the place of each."""

_UNSPACED = "".join(f"{first}-{last}" for first, last in UNSPACED)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’-][^\W{_UNSPACED}]+)*|[^\w\s]")


@dataclass(frozen=True)
class TranslatedWords:
    """Words of a source and of its translation, as characters [start, end) of each."""

    source: tuple[Span, ...]
    target: tuple[Span, ...]
    probabilities: Floats = field(repr=False)
    """(t,): of each word of the target, given the source and the words before it."""
    attention: Floats | None = field(repr=False)
    """(t, s): mean over the heads of the last layer and the tokens of a word.  A row sums to at
    most 1; the rest lies on the end of the source.  None without cross-attention."""
    rivals: Callable[[int], list[tuple[str, float]]] = field(repr=False)
    """Number of a word -> (target up to it, with another token in place of its first; probability
    of that token), likeliest first."""


def word_spans(text: str) -> tuple[Span, ...]:
    """Words, marks of punctuation, and characters of scripts without spaces, each by itself."""
    return tuple(match.span() for match in _WORD.finditer(text))


@torch.inference_mode()
def translated_words(
    translator: Translator, source: str, target: str, tag: str = ""
) -> TranslatedWords:
    """Words of a sentence and of its translation, from a forced pass of the model.

    tag: text before the source that selects the target language, and is no word of it.  Raises
    DataError beyond `MAX_TOKENS`.
    """
    if tag and (languages := translator.config.languages) is not None:
        _, (pair,) = languages.separate([tag + source])
        translator, tag = translator.between(*pair), ""
    source_ids = translator.source.encode(tag + source)
    target_ids = translator.target.encode(target)
    rows = [translator.source.as_source(source_ids), [BOS, *target_ids]]
    limit = min(MAX_TOKENS, max_scored_length(translator.model))
    if max(map(len, rows)) > limit:
        raise DataError(f"the sentence or its translation has more than {limit} tokens")
    translator.model.eval()
    batches = [Padded.from_rows([row], PAD).to(translator.device) for row in rows]
    with record_attention(translator.model) as maps:
        logits = translator.model(*batches)[0].float()  # (t + 1, v)
    log_probs = logits.log_softmax(-1).cpu()
    of_tokens = [float(row[i]) for row, i in zip(log_probs, target_ids, strict=False)]
    likeliest, likeliest_ids = topk(log_probs, min(RIVALS, log_probs.shape[1]))
    spans = word_spans(source), word_spans(target)
    shifted = [(start + len(tag), end + len(tag)) for start, end in spans[0]]
    read = _members(translator.source, tag + source, source_ids, shifted)
    written = _members(translator.target, target, target_ids, spans[1])
    layers = [recorded for name, recorded in maps.items() if name.endswith("cross_attention")]
    attention = None
    if layers:
        weights = layers[-1][0].mean(1)[0].double().cpu().numpy()  # (b, h, t, s) -> (t, s)
        attention = _of_words(weights, written, read)
    probabilities = np.exp([sum(of_tokens[i] for i in tokens) for tokens in written])

    def rivals(word: int) -> list[tuple[str, float]]:
        first = written[word][0] if written[word] else 0
        probabilities = likeliest[first].exp().tolist(), likeliest_ids[first].tolist()
        return [
            (translator.target.decode([*target_ids[:first], token]), probability)
            for probability, token in zip(*probabilities, strict=True)
            if token not in (PAD, BOS, EOS, UNK, target_ids[first])
        ]

    return TranslatedWords(*spans, np.asarray(probabilities, np.float64), attention, rivals)


def _members(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], words: Sequence[Span]
) -> list[list[int]]:
    """Tokens of each word; a token across several words belongs to the first."""
    owner = [-1] * len(text)
    for number, (start, end) in enumerate(words):
        owner[start:end] = [number] * (end - start)
    members: list[list[int]] = [[] for _ in words]
    for token, (start, end) in enumerate(token_spans(tokenizer, text, ids)):
        owners = [owner[i] for i in range(start, end) if owner[i] >= 0]
        if owners:
            members[owners[0]].append(token)
    return members


def _of_words(weights: NDArray[Any], rows: list[list[int]], columns: list[list[int]]) -> Floats:
    """Weights (t, s) of tokens -> of words: the mean of their rows, the sum of their columns."""
    matrix = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            if row and column:
                matrix[i, j] = weights[np.ix_(row, column)].sum(1).mean()
    return matrix
