"""Decoder-only model: GPT and its kin, and the recurrent language model before it."""

from torch import Tensor, nn

from transduce.models.stacks import Decoder, build_decoder
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.initialise import initialise
from transduce.nn.stack_configs import (
    BASE_STACK,
    SMALL_STACK,
    Count,
    LanguageDecoderConfig,
    check_stack,
)
from transduce.nn.state import State
from transduce.sequence import Padded
from transduce.settings.sections import section


@section
class DecoderOnlyConfig:
    """A decoder without a memory; the defaults are GPT-2's shape at a size for one machine."""

    d_model: Count = 128
    """Width of the model, everywhere."""
    decoder: LanguageDecoderConfig = SMALL_STACK(positions="rotary")
    tie: bool = True
    """The output matrix is the embedding's."""
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model, as in the paper; GPT-2 does not."""
    output_bias: bool = False
    """Bias on the logits; imported models ban tokens with it."""

    def __post_init__(self) -> None:
        check_stack(self.decoder, self.d_model)


# Radford et al. 2019, the smallest GPT-2: 124.44 million parameters with 50,257 tokens.
GPT2 = DecoderOnlyConfig(
    d_model=768,
    decoder=BASE_STACK(activation="gelu-tanh", norm_order="pre", attention_dropout=0.1),
    scale_embeddings=False,
)
DECODER_PRESETS = {"gpt2": GPT2}
"""Presets of language models."""


class DecoderOnly(nn.Module):
    """Front end, decoder, head: the target half of an encoder-decoder, without a memory."""

    def __init__(self, front_end: FrontEnd, decoder: Decoder, head: VocabularyHead) -> None:
        super().__init__()
        self.front_end = front_end
        self.decoder = decoder
        self.head = head

    def start(self) -> State:
        """The state before the first token."""
        return self.decoder.start()

    def advance(self, target: Padded, state: State) -> Padded:
        """Decoder outputs (r, t, m) below the head, for `target` ids (r, t)."""
        return self.decoder(self.front_end(target), state)

    def step(self, target: Padded, state: State) -> Tensor:
        """Logits (r, t, v) after each of `target` (r, t); `state` advances by t."""
        return self.head(self.advance(target, state).values)  # type: ignore[no-any-return]

    def last_logits(self, target: Padded, state: State) -> Tensor:
        """Logits (r, 1, v) of the next token after `target` (r, t), padded on the left alone."""
        return self.head(self.advance(target, state).values[:, -1:])  # type: ignore[no-any-return]

    def forward(self, target: Padded) -> Tensor:
        """Logits (b, t, v) of the next token after each position."""
        return self.step(target, self.start())


def build_decoder_only(config: DecoderOnlyConfig, vocabulary_size: int) -> DecoderOnly:
    """A freshly initialised model for a vocabulary of this size."""
    d_model = config.d_model
    front_end = TextFrontEnd(vocabulary_size, d_model, config.scale_embeddings)
    model = DecoderOnly(
        front_end,
        build_decoder(config.decoder, d_model, cross_attention=False),
        VocabularyHead(d_model, vocabulary_size, config.output_bias),
    )
    initialise(model, d_model)
    if config.tie:
        model.head.weight = front_end.embedding.weight
    else:
        nn.init.normal_(model.head.weight, std=d_model**-0.5)
    return model
