"""Heads with a score per entry of the vocabulary."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.sequence import Padded


class VocabularyHead(nn.Module):
    """The linear layer under the softmax (section 3.4), its matrix perhaps an embedding's."""

    def __init__(self, d_model: int, vocabulary_size: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Linear(d_model, vocabulary_size, bias=False).weight
        self.bias = nn.Parameter(torch.zeros(vocabulary_size)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(…, m) -> logits (…, v)."""
        return F.linear(x, self.weight, self.bias)


class MaskedTokenHead(nn.Module):
    """BERT's head over masked positions: dense, GELU, layer norm, then the vocabulary.  `hidden` is
    the input of the last matrix, so that a loss need not hold all logits."""

    def __init__(self, d_model: int, vocabulary_size: int, norm_epsilon: float = 1e-5) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.activation = F.gelu
        self.norm = nn.LayerNorm(d_model, norm_epsilon)
        self.vocabulary = VocabularyHead(d_model, vocabulary_size, bias=True)

    def hidden(self, x: Tensor) -> Tensor:
        """(…, m) -> (…, m)."""
        return self.norm(self.activation(self.dense(x)))  # type: ignore[no-any-return]

    def forward(self, x: Padded | Tensor) -> Tensor:
        """(…, m) -> logits (…, v)."""
        vectors = x.values if isinstance(x, Padded) else x
        return self.vocabulary(self.hidden(vectors))  # type: ignore[no-any-return]
