"""Results of a translator: translations, candidates, alignments."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from transduce.decoding.mbr import expected_utilities
from transduce.decoding.options import DecodingOptions
from transduce.errors import RunError, SettingError
from transduce.inspect.attention import record_attention
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.sequence import Padded


@dataclass(frozen=True)
class Candidate:
    """One possible output."""

    text: str
    tokens: tuple[str, ...] = field(repr=False)
    """Pieces as the model made them."""
    score: float
    """Ranking score of candidates: log-probability after the length penalty."""
    log_prob: float
    """Natural logarithm of the probability of the tokens and the end."""
    parts: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)
    """Ids of the tokens, for each piece of the source."""


@dataclass(frozen=True)
class Translation:
    """The best output for one input, and the other candidates that were asked for."""

    text: str
    tokens: tuple[str, ...] = field(default=(), repr=False)
    score: float = 0.0
    log_prob: float = 0.0
    candidates: tuple[Candidate, ...] = field(default=(), repr=False)
    """The n best, best first; the first is this translation itself."""

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        return {"translation": self.text, "score": self.score, "tokens": self.tokens}


@dataclass(frozen=True)
class Alignment:
    """Cross-attention between target and source."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Tensor = field(repr=False)
    """(len(target), len(source)): each row sums to one; mean over the heads of a layer."""


def check_layer(layer: int, n_layers: int) -> None:
    """Raises RunError for a model without cross-attention, SettingError for a missing layer."""
    if not n_layers:
        raise RunError(
            "alignment needs cross-attention, but this model's decoder has a fixed context; train "
            "one with another model.decoder.context.kind, such as 'general'"
        )
    if not -n_layers <= layer < n_layers:
        raise SettingError(
            f"alignment layer {layer} is out of range: this model has layers 0 to "
            f"{n_layers - 1}, or -1 to {-n_layers} counted from the last"
        )


@torch.inference_mode()
def attended(model: EncoderDecoder, source: Padded, target: Padded, layer: int) -> Tensor:
    """Weights (b, t, s) of the cross-attention of one layer, the mean of its heads.

    Raises as `check_layer` does.
    """
    with record_attention(model) as maps:
        layers = [seen for name, seen in maps.items() if name.endswith("cross_attention")]
        check_layer(layer, len(layers))
        model(source, target)
    return layers[layer][0].mean(1)  # (b, h, t, s) -> (b, t, s)


def mbr_rerank(
    candidates: Sequence[Candidate], options: DecodingOptions, language: str
) -> list[Candidate]:
    """The `n_best` candidates that are most like all of them, with their expected utility.

    Samples count alike, since the likelier come more often; outputs of a beam count by their
    probabilities.
    """
    weights = [1.0] * len(candidates)
    if options.method == "beam":
        best = max(candidate.log_prob for candidate in candidates)
        weights = [math.exp(candidate.log_prob - best) for candidate in candidates]
    texts = [candidate.text for candidate in candidates]
    assert options.minimum_risk != "none"
    scores = expected_utilities(texts, weights, options.minimum_risk, language)
    chosen: dict[str, Candidate] = {}
    for candidate, score in zip(candidates, scores, strict=True):
        chosen.setdefault(candidate.text, dataclasses.replace(candidate, score=score))
    ranked = sorted(chosen.values(), key=lambda candidate: -candidate.score)
    return ranked[: options.n_best]
