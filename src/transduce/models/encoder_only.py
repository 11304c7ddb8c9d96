"""Encoder-only model under a head: BERT, ViT, convolution over text."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.models.encoder_only_config import EncoderOnlyConfig
from transduce.models.stacks import build_encoder
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.label import LabelHead, SpanHead, pool
from transduce.nn.heads.vocabulary import MaskedTokenHead
from transduce.nn.initialise import initialise
from transduce.sequence import Padded


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


class TextEmbedding(nn.Module):
    """An encoder with nothing on it but pooling; weights are named as in `EncoderOnly`."""

    def __init__(self, config: EncoderOnlyConfig, vocabulary_size: int, normalize: bool) -> None:
        super().__init__()
        self.front_end, self.encoder = text_encoder(config, vocabulary_size)
        self.pooling = config.pooling
        self.normalize = normalize
        initialise(self, config.d_model)

    def forward(self, x: Padded) -> Tensor:
        """Ids (b, t), or with segments (b, t, 2) -> vectors (b, m)."""
        return self.pooled(self.encoder(self.front_end(x)))

    def pooled(self, x: Padded) -> Tensor:
        """Encoder outputs (b, t, m) -> vectors (b, m)."""
        vectors = pool(x, self.pooling)
        return F.normalize(vectors, dim=-1) if self.normalize else vectors
