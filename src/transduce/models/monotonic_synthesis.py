"""Synthesis by durations: every token spans some steps of frames, all computed at once.

Monotonic alignment search (Kim et al. 2020, Glow-TTS) finds the durations in training; a predictor
learns them (Ren et al. 2019, FastSpeech).  There is no attention to fail, and no end to find.

Shapes: b rows, s tokens, t steps of k frames.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.initialise import initialise
from transduce.nn.stack_configs import check_middle
from transduce.nn.transformer_config import Count
from transduce.sequence import Padded
from transduce.settings.sections import section

PLACES = 4
"""Numbers that say where in its token a step is."""
SHARPNESS = 8.0
"""Divisor of the distances of frames, in the search for an alignment."""


@section
class MonotonicSynthesisConfig:
    """A model of synthesis by durations; the defaults suit some hours of speech."""

    kind: Literal["monotonic"] = "monotonic"
    d_model: Count = 160
    """Width of the model, everywhere."""
    frames_per_step: Annotated[int, Field(ge=1, le=16)] = 2
    """Frames of 12.5 ms that a step gives, the unit of durations."""
    encoder_layers: Count = 4
    """Convolutions over the tokens."""
    decoder_layers: Count = 4
    """Convolutions over the steps."""
    duration_layers: Count = 2
    """Convolutions of the predictor of durations."""
    width: Count = 5
    """Tokens or steps that a convolution spans; odd, so that it has a middle."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout over the tokens; half of it over the steps."""

    def __post_init__(self) -> None:
        check_middle(self.width)


class EncodedText(NamedTuple):
    """Tokens of a text.

    hidden: (b, s, m).  means: (b, s, k·bins) mean frames of each token.  log_durations: (b, s)
    logarithms of predicted steps.
    """

    hidden: Padded
    means: Tensor
    log_durations: Tensor


class ResidualConvolution(nn.Module):
    """x + ReLU(conv(norm(x))), with zeros at padding."""

    def __init__(self, d_model: int, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.convolution = nn.Conv1d(d_model, d_model, width, padding=width // 2)
        self.dropout = dropout

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """(b, t, m), real (b, t, 1) -> (b, t, m)."""
        hidden = self.convolution((self.norm(x) * real).transpose(1, 2)).transpose(1, 2)
        return (x + F.dropout(F.relu(hidden), self.dropout, self.training)) * real


class MonotonicSynthesis(nn.Module):
    """Text front end and convolutions over tokens; durations; convolutions over steps."""

    def __init__(
        self, config: MonotonicSynthesisConfig, bins: int, vocabulary_size: int, n_speakers: int = 0
    ) -> None:
        """bins: features of a frame.  n_speakers: each with a vector that is added to the tokens';
        0 for a single voice."""
        super().__init__()
        m, self.frames_per_step = config.d_model, config.frames_per_step
        self.bins = bins

        def layers(count: int, width: int, dropout: float) -> nn.ModuleList:
            return nn.ModuleList(ResidualConvolution(m, width, dropout) for _ in range(count))

        self.front_end = TextFrontEnd(vocabulary_size, m, n_segments=n_speakers)
        self.encoder = layers(config.encoder_layers, config.width, config.dropout)
        self.norm = nn.LayerNorm(m)
        self.means = nn.Linear(m, config.frames_per_step * bins)
        self.predictor = layers(config.duration_layers, 3, config.dropout)
        self.duration = nn.Linear(m, 1)
        self.places = nn.Linear(PLACES, m)
        self.decoder = layers(config.decoder_layers, config.width, config.dropout / 2)
        self.decoder_norm = nn.LayerNorm(m)
        self.frames = nn.Linear(m, config.frames_per_step * bins)
        initialise(self, m)

    def encode(self, text: Padded) -> EncodedText:
        """Ids (b, s) of texts, or (b, s, 2) with the number of the speaker at each."""
        real = text.real[..., None].to(self.norm.weight.dtype)
        hidden = self.front_end(text).values * real
        for layer in self.encoder:
            hidden = layer(hidden, real)
        hidden = self.norm(hidden) * real
        durations = hidden.detach()  # the text is learnt from frames alone
        for layer in self.predictor:
            durations = layer(durations, real)
        log_durations = self.duration(durations)[..., 0]
        return EncodedText(text.with_values(hidden), self.means(hidden), log_durations)

    def decode(self, hidden: Padded, durations: Tensor) -> Padded:
        """Frames (b, t·k, bins) of tokens (b, s, m) that span these steps (b, s)."""
        rows, places = [], []
        for vectors, row in zip(hidden.values, durations, strict=True):
            steps = torch.repeat_interleave(row)
            within = torch.arange(len(steps), device=row.device) - (row.cumsum(0) - row)[steps]
            n = row[steps]
            share = [within / n, (n - 1 - within) / n, n.float().log() / 3, within == 0]
            rows.append(vectors[steps])
            places.append(torch.stack([part.to(vectors.dtype) for part in share], 1))
        x = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = durations.sum(1)
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        mask = real[..., None].to(x.dtype)
        x = (x + self.places(nn.utils.rnn.pad_sequence(places, batch_first=True))) * mask
        for layer in self.decoder:
            x = layer(x, mask)
        frames = self.frames(self.decoder_norm(x)).view(len(x), -1, self.bins)
        real = real.repeat_interleave(self.frames_per_step, 1)
        return Padded(frames, real, "none" if bool(real.all()) else "right")

    def steps(self, log_durations: Tensor, text: Padded, speed: float) -> Tensor:
        """Predicted durations (b, s), at least a step, and none of padding.

        Their sums are rounded, as rounding each would shorten the whole.
        """
        ends = (log_durations.float().exp() / speed).cumsum(1).round().long()
        steps = ends - F.pad(ends, (1, 0))[:, :-1]
        return steps.clamp(min=1).masked_fill(~text.real, 0)

    def forward(self, text: Padded, durations: Tensor) -> Padded:
        """Frames (b, t·k, bins) of texts whose tokens span these steps (b, s)."""
        return self.decode(self.encode(text).hidden, durations)


@torch.no_grad()
def scores_of(encoded: EncodedText, groups: Tensor, n_steps: Tensor, diagonal: float) -> Tensor:
    """Scores (b, s, t) of each token at each step of frames (b, t, k·bins), by its means.

    diagonal: weight of a penalty for distance from even pace, which early means need.
    """
    means, groups = encoded.means.float(), groups.float()
    scores = means @ groups.transpose(1, 2) - means.square().sum(2, keepdim=True) / 2
    tokens, steps = (
        torch.arange(n, device=means.device) / lengths[:, None]
        for n, lengths in ((means.shape[1], encoded.hidden.lengths), (groups.shape[1], n_steps))
    )
    off = (tokens[:, :, None] - steps[:, None]).square()
    return scores / SHARPNESS - diagonal * off
