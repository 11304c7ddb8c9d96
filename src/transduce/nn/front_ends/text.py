"""Token ids to vectors."""

from __future__ import annotations

import math

from torch import nn

from transduce.sequence import Padded


class TextFrontEnd(nn.Module):
    """Embeddings times √m (section 3.4).  Positions belong to the stack above."""

    def __init__(self, vocabulary_size: int, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, d_model)

    def forward(self, tokens: Padded) -> Padded:
        """Ids (b, t) -> vectors (b, t, m)."""
        scale = math.sqrt(self.embedding.embedding_dim)
        return tokens.with_values(self.embedding(tokens.values) * scale)
