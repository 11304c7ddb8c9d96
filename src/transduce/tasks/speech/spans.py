"""Positions of the tokens of a transcript: by CTC, or by the attention of an imported Whisper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.decoding import ctc, monotonic
from transduce.decoding.ctc import TokenSpan
from transduce.models.speech import SpeechModel
from transduce.nn.attention import record_into
from transduce.nn.transformer import DecoderLayer, TransformerDecoder
from transduce.sequence import Padded
from transduce.text import EOS

SMOOTHED = 7
"""Positions of the median filter over attention."""


def spoken_spans(scored: Tensor, tokens: Sequence[int]) -> list[TokenSpan]:
    """Positions of tokens on CTC's most probable path, by its log-probabilities (t, v); none
    without room."""
    return ctc.align(scored, tokens) if ctc.positions_needed(tokens) <= len(scored) else []


@torch.inference_mode()
def attended_spans(
    model: SpeechModel,
    memory: Tensor | NDArray[np.float32],
    before: Sequence[int],
    tokens: Sequence[int],
    heads: Sequence[tuple[int, int]],
    positions: int,
) -> list[TokenSpan]:
    """Positions of tokens by cross-attention, on the best monotonic path; none without room.

    Weights are normalised over the tokens, smoothed, and averaged (Radford et al. 2022, the
    published code).  memory: (t, m), of which the first `positions` have sound.  before: ids before
    the tokens.  heads: layer and head of each that follows the words; empty for all of the upper
    half of the layers.
    """
    if not tokens or positions < len(tokens) + 1:
        return []
    memory = torch.as_tensor(memory)
    decoder = cast(TransformerDecoder, model.decoder)
    layers = [cast(DecoderLayer, layer).cross_attention for layer in decoder.layers]
    upper = range(len(layers) // 2, len(layers))
    heads = heads or [(i, head) for i in upper for head in range(layers[i].n_heads)]
    chosen = sorted({layer for layer, _ in heads})
    state = decoder.start(Padded.unpadded(memory[None]))
    recorded = {i: record_into(layers[i], on=True)[""] for i in chosen}
    try:
        ids = torch.tensor([[*before, *tokens]], device=memory.device)
        logits = model.step(Padded.unpadded(ids), state)[0, len(before) - 1 :]
    finally:
        for i in chosen:
            record_into(layers[i], on=False)
    # A token is written while the one before it is read; the last row is of the end.
    weights = torch.stack([recorded[i][0][0, head] for i, head in heads]).float()
    weights = weights[:, len(before) - 1 :, :positions]  # (heads, n + 1, t)
    deviation, mean = torch.std_mean(weights, 1, keepdim=True, correction=0)
    weights = (weights - mean) / (deviation + 1e-6)
    padded = torch.nn.functional.pad(weights, (SMOOTHED // 2, SMOOTHED // 2), mode="reflect")
    smooth = padded.unfold(2, SMOOTHED, 1).median(3).values.mean(0)
    scores = smooth.cpu().numpy()[None].astype(np.float32)
    lengths = monotonic.durations(scores, [len(tokens) + 1], [positions])[0]
    ends = lengths.cumsum().tolist()
    written = torch.tensor([*tokens, EOS], device=memory.device)
    log_probs = logits.float().log_softmax(-1).gather(1, written[:, None])[:, 0].tolist()
    starts = [0, *ends]
    return [
        TokenSpan(token, start, end, log_prob)
        for token, start, end, log_prob in zip(tokens, starts, ends, log_probs, strict=False)
    ]
