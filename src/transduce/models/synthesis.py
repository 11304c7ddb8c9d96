"""Encoder-decoder from text to frames of speech (Li et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from transduce.models.encoder_decoder import EncoderDecoderBase
from transduce.nn.attention import weights_with_gradient
from transduce.nn.front_ends.frames import FramesFrontEnd, FramesFrontEndConfig
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.frames import FrameGroups, FramesHead
from transduce.nn.initialise import initialise
from transduce.nn.postnet import Postnet, PostnetConfig
from transduce.nn.state import State
from transduce.nn.transformer import DecoderLayer, TransformerDecoder, TransformerEncoder
from transduce.nn.transformer_config import Count, TransformerConfig, check_heads
from transduce.sequence import Padded
from transduce.settings.sections import section

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
        """Output as of `step`, and the cross-attention (r, t, s), the mean of the guided heads."""
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
