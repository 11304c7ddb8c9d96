"""Encoder-decoder model, wired as in Figure 1."""

import torch
from torch import Tensor, nn

from transduce.models.config import EncoderDecoderConfig, check_tie
from transduce.models.stacks import Decoder, Encoder, build_decoder, build_encoder
from transduce.nn.attention import record_attention
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.initialise import embedding_, initialise
from transduce.nn.state import State
from transduce.sequence import Padded


class EncoderDecoderBase(nn.Module):
    """Two front ends and two stacks, under any head."""

    def __init__(
        self, front_end: FrontEnd, encoder: Encoder, target_front_end: FrontEnd, decoder: Decoder
    ) -> None:
        super().__init__()
        self.front_end = front_end
        self.encoder = encoder
        self.target_front_end = target_front_end
        self.decoder = decoder

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def over(self, memory: Padded) -> State:
        """Initial decoder state over a memory (b, s, m)."""
        return self.decoder.start(memory)

    def encode(self, source: Padded | Tensor) -> Padded:
        """The memory (b, s, m) of the source, as accepted by the front end."""
        return self.encoder(self.front_end(source))

    @property
    def has_cross_attention(self) -> bool:
        """True if attention of the target to the source can be read."""
        return any(name.endswith("cross_attention") for name, _ in self.named_modules())

    def start(self, source: Padded | Tensor) -> State:
        """Encode the source; returns the initial decoder state."""
        return self.over(self.encode(source))

    def advance(self, target: Padded, state: State) -> Padded:
        """Decoder outputs (r, t, m) below the head, for `target` as its front end reads it."""
        return self.decoder(self.target_front_end(target), state)


class EncoderDecoder(EncoderDecoderBase):
    """Two front ends, two stacks, a vocabulary head."""

    def __init__(
        self,
        front_end: FrontEnd,
        encoder: Encoder,
        target_front_end: FrontEnd,
        decoder: Decoder,
        head: VocabularyHead,
    ) -> None:
        super().__init__(front_end, encoder, target_front_end, decoder)
        self.head = head

    def step(self, target: Padded, state: State) -> Tensor:
        """Logits (r, t, v) after each of `target` (r, t); `state` advances by t."""
        return self.head(self.advance(target, state).values)  # type: ignore[no-any-return]

    def step_attended(self, target: Padded, state: State) -> tuple[Tensor, Tensor]:
        """Logits, and the last cross-attention (r, t, s), the mean of its heads."""
        with record_attention(self) as maps:
            logits = self.step(target, state)
        layers = [attention for name, attention in maps.items() if name.endswith("cross_attention")]
        weights = layers[-1][0].float().mean(1)  # (n, h, k·t, s) -> (n, k·t, s)
        return logits, weights.reshape(*target.real.shape, -1)

    def forward(self, source: Padded | Tensor, target: Padded) -> Tensor:
        """Logits (b, t, v) of the next token after each target position, given the source."""
        return self.step(target, self.start(source))


def build_encoder_decoder(
    config: EncoderDecoderConfig, source_size: int, target_size: int, joint: bool
) -> EncoderDecoder:
    """A freshly initialised model for vocabularies of these sizes, whose ids mean the same tokens
    if `joint`.  Raises SettingError if the settings contradict each other.

    config: settings of the model.  source_size, target_size: tokens of each vocabulary.
    """
    check_tie(config, joint)
    d_model = config.d_model
    front_end = TextFrontEnd(source_size, d_model, config.scale_embeddings)
    encoder = build_encoder(config.encoder, d_model)  # first: random numbers follow the order
    target_front_end = TextFrontEnd(target_size, d_model, config.scale_embeddings)
    model = EncoderDecoder(
        front_end,
        encoder,
        target_front_end,
        build_decoder(config.decoder, d_model),
        VocabularyHead(d_model, target_size, config.output_bias),
    )
    initialise(model, d_model, config.init)
    if config.tie != "none":
        model.head.weight = target_front_end.embedding.weight
    else:
        embedding_(model.head.weight, d_model, config.init)
    if config.tie == "three-way":
        front_end.embedding = target_front_end.embedding
    return model
