"""How sure a translator is of what it said, token by token and line by line.

The outputs are read once more by forced scoring, so that the figures are the model's own
probabilities over its whole vocabulary, however the outputs were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from transduce.sequence import Padded
from transduce.tasks.translator import SCORED_TOKENS, Translation, Translator, in_batches
from transduce.text import BOS, EOS, PAD


class Confidence(NamedTuple):
    """What the model thinks of one output.

    token_log_probs: natural logarithm of each token's probability, given all before it.
    end_log_probs:   those of the end, one for each piece that the source was translated in.
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
        """What goes into a JSON record."""
        rounded = [round(log_prob, 6) for log_prob in self.token_log_probs]
        return {"confidence": round(self.mean, 6), "token_log_probs": rounded}


def confidences(
    translator: Translator, texts: Sequence[str], translations: Sequence[Translation]
) -> list[Confidence | None]:
    """One for each translation of a text, in order; None for what was blank."""
    pieces: list[tuple[int, list[int], list[int]]] = []  # (text, source ids, target ids)
    ids_of = translator.source.encode_batch(list(texts))
    for i, (ids, translation) in enumerate(zip(ids_of, translations, strict=True)):
        if translation.candidates:
            targets = translation.candidates[0].parts
            sources = list(translator.in_pieces(ids))
            pieces += ((i, s, list(t)) for s, t in zip(sources, targets, strict=True))
    lengths = [1 + max(len(source), len(target)) for _, source, target in pieces]
    order = sorted(range(len(pieces)), key=lengths.__getitem__, reverse=True)
    log_probs: list[list[float]] = [[] for _ in pieces]
    for rows in in_batches(order, lengths, SCORED_TOKENS):
        batch = [pieces[i][1] for i in rows], [pieces[i][2] for i in rows]
        for i, found in zip(rows, _forced(translator, *batch), strict=True):
            log_probs[i] = found
    by_text: dict[int, list[list[float]]] = {}
    for (i, _, _), found in zip(pieces, log_probs, strict=True):
        by_text.setdefault(i, []).append(found)
    return [_joined(by_text.get(i), len(ids)) for i, ids in enumerate(ids_of)]


def _joined(parts: list[list[float]] | None, source_length: int) -> Confidence | None:
    if parts is None:
        return None
    tokens = tuple(log_prob for part in parts for log_prob in part[:-1])
    return Confidence(tokens, tuple(part[-1] for part in parts), source_length)


@torch.inference_mode()
def _forced(
    translator: Translator, sources: list[list[int]], targets: list[list[int]]
) -> list[list[float]]:
    """Log-probabilities of each target's tokens and its end."""
    model, device = translator.model.eval(), translator.device
    source = Padded.from_rows([[*ids, EOS] for ids in sources], PAD).to(device)
    given = Padded.from_rows([[BOS, *ids] for ids in targets], PAD).to(device)
    wanted = Padded.from_rows([[*ids, EOS] for ids in targets], PAD).to(device)
    log_probs = model(source, given).float().log_softmax(-1)  # (b, t, v)
    at_target = log_probs.gather(-1, wanted.values[..., None])[..., 0].tolist()
    return [row[: len(ids) + 1] for row, ids in zip(at_target, targets, strict=True)]
