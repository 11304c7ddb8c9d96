"""Scores and cross-attention of given targets."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from transduce.errors import RunError, SettingError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.attention import record_attention
from transduce.nn.positions import LearnedPositions
from transduce.sequence import Padded
from transduce.support.work import chunks, in_batches
from transduce.text import BOS, EOS, PAD, Tokenizer


def cross_attentions(model: nn.Module) -> list[nn.Module]:
    """Cross-attention of each layer.  Raises RunError for a model without any."""
    named = model.named_modules()
    layers = [module for name, module in named if name.endswith("cross_attention")]
    if not layers:
        raise RunError(
            "alignment needs cross-attention, but this model's decoder has none; train one with "
            "another model.decoder.kind or, if recurrent, context.kind, such as 'general'"
        )
    return layers


def layer_of(layers: list[nn.Module], layer: int) -> nn.Module:
    """A layer by number, from 0 or from the last on -1.  Raises SettingError for no such layer."""
    if not -len(layers) <= layer < len(layers):
        raise SettingError(
            f"alignment layer {layer} is out of range: this model has layers 0 to "
            f"{len(layers) - 1}, or -1 to {-len(layers)} counted from the last"
        )
    return layers[layer]


@torch.inference_mode()
def attended(model: EncoderDecoder, attention: nn.Module, source: Padded, target: Padded) -> Tensor:
    """Weights (b, h, t, s) of a cross-attention, when the model reads source and target."""
    with record_attention(attention) as maps:
        model.advance(target, model.start(source))
    (weights,) = next(iter(maps.values()))
    return weights


logger = logging.getLogger("transduce")

SCORED_TOGETHER = 512
"""Pairs that are read before they are scored."""
SCORED_TOKENS = 1024
"""Target tokens scored at once: their log-probabilities over the vocabulary are all held."""
MAX_LENGTH_SCORED = 8192

Ids = Sequence[int]
Pair = tuple[str, str]
CheckPairs = Callable[[Sequence[Pair], Sequence[Ids], Sequence[Ids], int], None]


def target_log_probs(model: EncoderDecoder, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
    """Log-probabilities of each target's tokens and its end, given its source.

    pairs: source ids as the model reads them, and target ids without BOS and EOS.
    Scored in batches of like lengths.
    """
    model.eval()
    lengths = [1 + max(len(source), len(target)) for source, target in pairs]
    by_pair: list[list[float]] = [[] for _ in pairs]
    for rows in in_batches(range(len(pairs)), lengths, SCORED_TOKENS):
        for i, log_probs in zip(rows, _together(model, [pairs[i] for i in rows]), strict=True):
            by_pair[i] = log_probs
    return by_pair


def max_scored_length(model: EncoderDecoder) -> int:
    """Tokens that either side of a pair may have: as many as the model has positions for."""
    tables = [part.table for part in model.modules() if isinstance(part, LearnedPositions)]
    return min([MAX_LENGTH_SCORED, *(table.num_embeddings for table in tables)])


def score_pairs(
    model: EncoderDecoder,
    source: Tokenizer,
    target: Tokenizer,
    pairs: Iterable[tuple[str, str]],
    check: CheckPairs,
) -> Iterator[float]:
    """Log-probability of each target text, end included, given its source text.

    Pairs beyond `max_scored_length` tokens get nan and a warning.  check: called with pairs, their
    ids, and the number of the first.
    """
    max_length = max_scored_length(model)
    first = 0
    for chunk in chunks(pairs, SCORED_TOGETHER):
        sources = source.encode_batch([text for text, _ in chunk])
        targets = target.encode_batch([text for _, text in chunk])
        check(chunk, sources, targets, first)
        scores = [math.nan] * len(chunk)
        short = []
        for i, (source_ids, target_ids) in enumerate(zip(sources, targets, strict=True)):
            length = 1 + max(len(source_ids), len(target_ids))
            if length > max_length:
                message = "pair %d has %d tokens on one side; scoring is limited to %d"
                logger.warning(message, first + i + 1, length, max_length)
            else:
                short.append(i)
        short_scores = target_log_probs(
            model, [(source.as_source(sources[i]), targets[i]) for i in short]
        )
        for i, log_probs in zip(short, short_scores, strict=True):
            scores[i] = sum(log_probs)
        yield from scores
        first += len(chunk)


@torch.inference_mode()
def _together(model: EncoderDecoder, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
    device = next(model.parameters()).device
    sources: dict[tuple[int, ...], int] = {}  # each is read once, however many targets it has
    rows = [sources.setdefault(tuple(ids), len(sources)) for ids, _ in pairs]
    state = model.start(Padded.from_rows([[*ids] for ids in sources], PAD).to(device))
    if len(sources) < len(pairs):
        state.select(torch.tensor(rows, device=device))
    inputs = Padded.from_rows([[BOS, *ids] for _, ids in pairs], PAD).to(device)
    labels = Padded.from_rows([[*ids, EOS] for _, ids in pairs], PAD).to(device)
    log_probs = model.step(inputs, state).float().log_softmax(-1)  # (b, t, v)
    at_target = log_probs.gather(-1, labels.values[..., None])[..., 0].tolist()
    return [row[: len(ids) + 1] for row, (_, ids) in zip(at_target, pairs, strict=True)]
