"""Vectors to one score per entry of the vocabulary."""

from __future__ import annotations

from torch import Tensor, nn


class VocabularyHead(nn.Module):
    """The linear layer under the softmax (section 3.4), without a bias so that it can be tied."""

    def __init__(self, d_model: int, vocabulary_size: int) -> None:
        super().__init__()
        self.weight = nn.Linear(d_model, vocabulary_size, bias=False).weight

    def forward(self, x: Tensor) -> Tensor:
        """(…, m) -> logits (…, v)."""
        return nn.functional.linear(x, self.weight)
