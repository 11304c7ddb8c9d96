"""Token ids to vectors."""

import math

from torch import nn

from transduce.sequence import Padded


class TextFrontEnd(nn.Module):
    """Embeddings, times √m if scaled (section 3.4); with 2 or more segments, those of the tokens'
    segment numbers are added unscaled (BERT; Devlin et al. 2019)."""

    def __init__(
        self, vocabulary_size: int, d_model: int, scaled: bool = True, n_segments: int = 0
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.embedding = nn.Embedding(vocabulary_size, d_model)
        self.segments = nn.Embedding(n_segments, d_model) if n_segments else None

    def forward(self, tokens: Padded) -> Padded:
        """Ids (b, t), or with segment numbers (b, t, 2), by default 0, -> vectors (b, t, m)."""
        ids = tokens.values if tokens.values.dim() == 2 else tokens.values[..., 0]
        vectors = self.embedding(ids) * self.scale
        if self.segments is not None:
            numbers = tokens.values[..., 1] if tokens.values.dim() == 3 else ids.new_zeros(())
            vectors = vectors + self.segments(numbers)
        return tokens.with_values(vectors)
