"""Models of speech synthesis: by durations, or with attention (Li et al. 2019), and the frames
that they decode.

Monotonic alignment search (Kim et al. 2020, Glow-TTS) finds the durations in training; a predictor
learns them (Ren et al. 2019, FastSpeech).  There is no attention to fail, and no end to find.

Shapes: b rows, s tokens, t steps of k frames.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated, Literal, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from transduce.models.encoder_decoder import EncoderDecoderBase
from transduce.nn.attention import weights_with_gradient
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.initialise import initialise
from transduce.nn.stack_configs import Count, TransformerConfig, check_heads, check_middle
from transduce.nn.state import State
from transduce.nn.transformer import DecoderLayer, TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded
from transduce.settings.sections import section


@section
class FramesFrontEndConfig:
    """Two layers over the last frame of each step (the pre-net of Shen et al. 2018)."""

    width: Count = 256
    """Width of the first layer; the second has the model's width."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Dropout after each layer, in training and in synthesis: without it a decoder copies the
    previous frame and ignores the text."""


class FramesFrontEnd(nn.Module):
    """Two linear layers, each followed by ReLU and dropout: drawn in training, and in use off
    unless masks are given, since synthesis needs it and must be repeatable."""

    def __init__(self, config: FramesFrontEndConfig, bins: int, d_model: int) -> None:
        """bins: features of a frame."""
        super().__init__()
        self.share = config.dropout
        self.widths = [config.width, d_model]
        """Units of each layer, which a mask keeps or drops."""
        self.first = nn.Linear(bins, config.width)
        self.second = nn.Linear(config.width, d_model)

    def forward(self, frames: Padded, mask: Tensor | None = None) -> Padded:
        """Frames (r, t, bins) -> vectors (r, t, m).  mask: (r, t, u) of both layers, True if
        kept."""
        first, second = (None, None) if mask is None else mask.split_with_sizes(self.widths, -1)
        hidden = self._dropped(F.relu(self.first(frames.values)), first)
        vectors = self._dropped(F.relu(self.second(hidden)), second)
        return frames.with_values(vectors)

    def _dropped(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return F.dropout(x, self.share, self.training)
        return torch.where(mask, x / (1 - self.share), 0.0)


class FrameGroups(NamedTuple):
    """Frames (r, t·k, bins) of steps that give k each, and logits (r, t) of the end."""

    frames: Tensor
    stop: Tensor


class FramesHead(nn.Module):
    """Two linear layers side by side: the frames of a step, and the logit of the end."""

    def __init__(self, d_model: int, bins: int, frames_per_step: int) -> None:
        super().__init__()
        self.bins = bins
        self.frames = nn.Linear(d_model, frames_per_step * bins)
        self.stop = nn.Linear(d_model, 1)

    def forward(self, x: Tensor) -> FrameGroups:
        """(r, t, m) -> frames (r, t·k, bins) and stop (r, t)."""
        frames = self.frames(x).view(x.shape[0], -1, self.bins)
        return FrameGroups(frames, self.stop(x)[..., 0])


@section
class PostnetConfig:
    """Convolutions over the frames of a whole recording (Shen et al. 2018)."""

    n_layers: Count = 4
    """Number of convolutions."""
    width: Count = 5
    """Frames that a convolution spans; odd, so that it has a middle."""
    channels: Count = 192
    """Width between the convolutions."""

    def __post_init__(self) -> None:
        check_middle(self.width)


class Postnet(nn.Module):
    """Convolutions with tanh between, the last of which is added to the frames.  Padding is set to
    zero before each, so that a row gives the same frames in any batch."""

    def __init__(self, config: PostnetConfig, bins: int) -> None:
        super().__init__()
        widths = [bins, *[config.channels] * (config.n_layers - 1), bins]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, config.width, padding=config.width // 2)
            for before, after in itertools.pairwise(widths)
        )

    def forward(self, frames: Padded) -> Tensor:
        """Frames (r, t, bins) -> frames of the same shape, arbitrary at padding."""
        values = frames.values.transpose(1, 2)
        for number, convolution in enumerate(self.convolutions):
            if number:
                values = torch.tanh(values)
            if frames.padding != "none":
                values = values.masked_fill(~frames.real[:, None], 0.0)
            values = convolution(values)
        return frames.values + values.transpose(1, 2)


GUIDED_LAYERS, GUIDED_HEADS = 2, 2
"""Last layers of the decoder, and heads of each, whose cross-attention follows the text."""


@section
class SynthesisConfig:
    """A model of speech synthesis; the defaults suit a few hours of speech and one machine."""

    kind: Literal["attention"] = "attention"
    d_model: Count = 192
    """Width of the model, everywhere."""
    frames_per_step: Annotated[int, Field(ge=1, le=16)] = 4
    """Frames of 12.5 ms that a step of the decoder gives; with one alone, attention is hard to
    learn."""
    front_end: FramesFrontEndConfig = FramesFrontEndConfig()
    encoder: TransformerConfig = TransformerConfig(
        n_layers=3, n_heads=4, d_ff=768, norm_order="pre", dropout=0.1
    )
    decoder: TransformerConfig = TransformerConfig(
        n_layers=3, n_heads=4, d_ff=768, norm_order="pre", dropout=0.1
    )
    postnet: PostnetConfig = PostnetConfig()

    def __post_init__(self) -> None:
        check_heads(self.encoder, self.d_model)
        check_heads(self.decoder, self.d_model)


class SynthesisModel(EncoderDecoderBase):
    """Text front end and encoder; frames front end, decoder and frames head; a postnet.

    A step reads the last frame of the step before, zeros at the first, and gives `frames_per_step`.
    """

    target_front_end: FramesFrontEnd
    decoder: TransformerDecoder

    def __init__(
        self, config: SynthesisConfig, bins: int, vocabulary_size: int, n_speakers: int = 0
    ) -> None:
        """bins: features of a frame.  n_speakers: each with a vector that is added to the tokens';
        0 for a single voice."""
        d_model = config.d_model
        super().__init__(
            TextFrontEnd(vocabulary_size, d_model, n_segments=n_speakers),
            TransformerEncoder(config.encoder, d_model),
            FramesFrontEnd(config.front_end, bins, d_model),
            TransformerDecoder(config.decoder, d_model),
        )
        self.bins = bins
        self.frames_per_step = config.frames_per_step
        self.head = FramesHead(d_model, bins, config.frames_per_step)
        self.postnet = Postnet(config.postnet, bins)
        initialise(self, d_model)

    def step(self, target: Padded, state: State, dropout_mask: Tensor | None = None) -> FrameGroups:
        """Frames (r, t·k, bins) after each of the frames read (r, t, bins), before the postnet;
        `state` advances by t.  dropout_mask: of the front end, as in `FramesFrontEnd`."""
        hidden = self.decoder(self.target_front_end(target, dropout_mask), state)
        return self.head(hidden.values)  # type: ignore[no-any-return]

    def step_attended(
        self, target: Padded, state: State, dropout_mask: Tensor | None = None
    ) -> tuple[FrameGroups, Tensor]:
        """Output as of `step`, and the cross-attention (r, t, s), the mean of the guided heads.

        target: frames (r, t, bins) that are read.  state: of the decoder, changed in place.
        dropout_mask: as in `step`.
        """
        with self.guided_weights() as recorded:
            groups = self.step(target, state, dropout_mask)
        return groups, torch.stack([weights.mean(1) for weights in guided_heads(recorded)]).mean(0)

    @contextmanager
    def guided_weights(self) -> Iterator[list[list[Tensor]]]:
        """Weights (r, h, t, s) of each call in the context, by guided layer, with gradient."""
        layers = (cast(DecoderLayer, layer) for layer in self.decoder.layers[-GUIDED_LAYERS:])
        with ExitStack() as stack:
            yield [
                stack.enter_context(weights_with_gradient(layer.cross_attention))
                for layer in layers
            ]

    def forward(self, source: Padded, target: Padded) -> FrameGroups:
        """The frames after each input frame, given the text."""
        return self.step(target, self.start(source))


def guided_heads(recorded: list[list[Tensor]]) -> list[Tensor]:
    """Weights (r, heads, t, s) of the guided heads of a call, by layer."""
    return [weights[:, :GUIDED_HEADS] for (weights,) in recorded]


def frames_read(frames: Padded, k: int) -> Padded:
    """Inputs (b, t, bins) of steps for frames (b, t·k, bins): each last frame before a step."""
    last = frames.values[:, k - 1 :: k]
    read = torch.cat([torch.zeros_like(last[:, :1]), last[:, :-1]], 1)
    return Padded(read, frames.real[:, ::k], frames.padding)


PLACES = 4
"""Numbers that say where in its token a step is."""
SHARPNESS = 8.0
"""Divisor of the distances of frames, in the search for an alignment."""


@section
class VoiceConfig:
    """An imported voice, in `voice.onnx` of the run; it cannot be trained."""

    kind: Literal["onnx"] = "onnx"


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

        log_durations: (b, s), natural logarithms of steps.  text: ids (b, s).  speed: divisor of
        the durations.
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

    encoded: means and hidden vectors of the texts.  groups: frames of each step.  n_steps: (b,)
    real steps of each row.  diagonal: weight of a penalty for distance from even pace, which early
    means need.
    """
    means, groups = encoded.means.float(), groups.float()
    scores = means @ groups.transpose(1, 2) - means.square().sum(2, keepdim=True) / 2
    tokens, steps = (
        torch.arange(n, device=means.device) / lengths[:, None]
        for n, lengths in ((means.shape[1], encoded.hidden.lengths), (groups.shape[1], n_steps))
    )
    off = (tokens[:, :, None] - steps[:, None]).square()
    return scores / SHARPNESS - diagonal * off


FrameStep = Callable[[Padded, State, Tensor | None], tuple[FrameGroups, Tensor]]
"""The last frames (r, 1, bins), the state, masks of dropout (r, 1, u) -> frames (r, k, bins), stop
(r, 1), attention (r, 1, s)."""


class SpokenFrames(NamedTuple):
    """Frames (t·k, bins) of a row, `stopped` before its limit, and attention (t, s)."""

    frames: Tensor
    stopped: bool
    attention: Tensor


class DropoutMasks:
    """Masks of dropout drawn from a seed, the row's ids and the step, alike in any batch."""

    def __init__(
        self, seed: int, rows: Sequence[Sequence[int]], n_units: int, share: float
    ) -> None:
        """rows: the ids of each row.  n_units: units of a mask.  share: dropped of them."""
        self._n_units = n_units
        self._share = share
        self._draws = [
            np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _number(ids)))))
            for ids in rows
        ]

    def draw(self, rows: Sequence[int]) -> Tensor | None:
        """Masks (r, 1, u) of the next step of these rows, True if kept; None without dropout."""
        if not self._share:
            return None
        drawn = [self._draws[i].random(self._n_units, np.float32) for i in rows]
        return torch.from_numpy(np.stack(drawn) >= self._share)[:, None]


@torch.inference_mode()
def decode_frames(
    step: FrameStep,
    state: State,
    limits: Sequence[int],
    bins: int,
    masks: DropoutMasks,
    threshold: float = 0.5,
    device: torch.device | str = "cpu",
) -> list[SpokenFrames]:
    """Frames of each row of a fresh state, before the postnet, with dropout masks, of at most
    `limits` (n,) steps.  threshold: probability of the end of a row, which then leaves the batch by
    `state.select`.

    step: computes the next frames.  bins: values of a frame.  device: of the model.
    """
    frames: list[list[Tensor]] = [[] for _ in limits]
    attention: list[list[Tensor]] = [[] for _ in limits]
    stopped = [False] * len(limits)
    rows, length = list(range(len(limits))), 0
    read = torch.zeros(len(limits), 1, bins, device=device)
    while rows:
        dropout_mask = masks.draw(rows)
        outputs, weights = step(
            Padded.unpadded(read), state, None if dropout_mask is None else dropout_mask.to(device)
        )
        ends = (outputs.stop[:, 0].float().sigmoid() > threshold).tolist()
        length += 1
        staying = []
        for position, row in enumerate(rows):
            frames[row].append(outputs.frames[position])
            attention[row].append(weights[position])
            stopped[row] = ends[position]
            if not ends[position] and length < limits[row]:
                staying.append(position)
        read = outputs.frames[:, -1:]
        if len(staying) < len(rows):
            chosen = torch.tensor(staying, dtype=torch.long, device=device)
            rows, read = [rows[position] for position in staying], read[chosen]
            if rows:
                state.select(chosen)
    return [
        SpokenFrames(torch.cat(parts), stopped[row], torch.cat(attention[row]))
        for row, parts in enumerate(frames)
    ]


@torch.inference_mode()
def frames_by_durations(
    model: MonotonicSynthesis, text: Padded, speed: float
) -> list[SpokenFrames]:
    """Frames of texts (n, s), all at once, with durations as attention: 1 for the token of a step.

    model: with durations.  text: ids (n, s).  speed: divisor of the durations.
    """
    encoded = model.encode(text)
    durations = model.steps(encoded.log_durations, text, speed)
    frames = model.decode(encoded.hidden, durations)
    spoken = []
    for row, steps, length in zip(frames.values, durations, text.lengths.tolist(), strict=True):
        path = torch.eye(length, device=row.device).repeat_interleave(steps[:length], 0)
        spoken.append(SpokenFrames(row[: len(path) * model.frames_per_step], True, path))
    return spoken


def _number(ids: Sequence[int]) -> int:
    digest = hashlib.blake2b(np.asarray(ids, "<i8").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
