"""Encoder-only model under a head: BERT, ViT, convolution over text."""

from torch import Tensor, nn

from transduce.models.config import EncoderOnlyConfig
from transduce.models.stacks import build_encoder
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.label import LabelHead, PoolingHead, SpanHead
from transduce.nn.heads.vocabulary import MaskedTokenHead
from transduce.nn.initialise import initialise
from transduce.sequence import Padded

Head = PoolingHead | LabelHead | SpanHead | MaskedTokenHead


class EncoderOnly(nn.Module):
    """Front end, encoder, head.  Input and output are the front end's and the head's."""

    def __init__(self, front_end: FrontEnd, encoder: nn.Module, head: Head) -> None:
        super().__init__()
        self.front_end = front_end
        self.encoder = encoder
        self.head = head

    def encode(self, x: Padded | Tensor) -> Padded:
        """Encoder outputs (b, t, m) below the head."""
        return self.encoder(self.front_end(x))  # type: ignore[no-any-return]

    def forward(self, x: Padded | Tensor) -> Tensor:
        """The head's scores or vectors."""
        return self.head(self.encode(x))  # type: ignore[no-any-return]


def build_text_encoder(config: EncoderOnlyConfig, vocabulary_size: int, head: Head) -> EncoderOnly:
    """A freshly initialised encoder of token ids; a masked-token head shares its embedding.

    config: settings of the model.  vocabulary_size: number of tokens.  head: on top of the encoder.
    """
    n_segments = 2 if config.segments else 0
    front_end = TextFrontEnd(vocabulary_size, config.d_model, config.scale_embeddings, n_segments)
    encoder = build_encoder(config.encoder, config.d_model)
    model = EncoderOnly(front_end, encoder, head)
    initialise(model, config.d_model)
    if isinstance(head, MaskedTokenHead):
        head.vocabulary.weight = front_end.embedding.weight
    return model
