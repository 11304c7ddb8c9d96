"""Encoder-only model under a head: BERT, ViT, convolution over text."""

from __future__ import annotations

from torch import Tensor, nn

from transduce.models.stacks import build_encoder
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.label import LabelHead, PoolerActivation, Pooling, SpanHead
from transduce.nn.heads.vocabulary import MaskedTokenHead
from transduce.nn.initialise import initialise
from transduce.nn.stack_configs import EncoderConfig, check_stack
from transduce.nn.transformer_config import Count, TransformerConfig
from transduce.sequence import Padded
from transduce.settings.sections import section


@section
class EncoderOnlyConfig:
    """An encoder over text; the defaults are BERT's shape at a size for one machine."""

    d_model: Count = 128
    """Width of the model, everywhere."""
    encoder: EncoderConfig = TransformerConfig(
        n_layers=4,
        n_heads=4,
        d_ff=512,
        activation="gelu",
        norm_order="pre",
        positions="learned",
        max_positions=512,
    )
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model, as in the paper; BERT does not."""
    segments: bool = False
    """Add segment embeddings to distinguish the two texts of a pair, as in BERT."""
    pooling: Pooling = "mean"
    """Pooling over positions: the first vector, or the mean or maximum of all."""
    pooler: bool = False
    """A dense layer and an activation over the pooled vector before the labels, as in BERT."""
    pooler_activation: PoolerActivation = "tanh"
    """Activation after the dense layer of the pooler; "relu" for DistilBERT."""

    def __post_init__(self) -> None:
        check_stack(self.encoder, self.d_model)


class EncoderOnly(nn.Module):
    """Front end, encoder, head.  Input and output are the front end's and the head's."""

    def __init__(
        self, front_end: FrontEnd, encoder: nn.Module, head: LabelHead | SpanHead | MaskedTokenHead
    ) -> None:
        super().__init__()
        self.front_end = front_end
        self.encoder = encoder
        self.head = head

    def encode(self, x: Padded | Tensor) -> Padded:
        """Encoder outputs (b, t, m) below the head."""
        return self.encoder(self.front_end(x))  # type: ignore[no-any-return]

    def forward(self, x: Padded | Tensor) -> Tensor:
        """The head's scores."""
        return self.head(self.encode(x))  # type: ignore[no-any-return]


def text_encoder(config: EncoderOnlyConfig, vocabulary_size: int) -> tuple[TextFrontEnd, nn.Module]:
    """Front end and encoder over token ids, with values that are still to be initialised."""
    n_segments = 2 if config.segments else 0
    front_end = TextFrontEnd(vocabulary_size, config.d_model, config.scale_embeddings, n_segments)
    return front_end, build_encoder(config.encoder, config.d_model)


def build_text_encoder(
    config: EncoderOnlyConfig, vocabulary_size: int, head: LabelHead | SpanHead | MaskedTokenHead
) -> EncoderOnly:
    """A freshly initialised encoder of token ids; a masked-token head shares its embedding."""
    front_end, encoder = text_encoder(config, vocabulary_size)
    model = EncoderOnly(front_end, encoder, head)
    initialise(model, config.d_model)
    if isinstance(head, MaskedTokenHead):
        head.vocabulary.weight = front_end.embedding.weight
    return model
