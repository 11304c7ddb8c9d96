"""Memory layout of weights for inference on a CPU."""

from __future__ import annotations

from torch import nn

from transduce.nn.heads.vocabulary import VocabularyHead


def pack_for_few_rows(model: nn.Module) -> None:
    """Let matrices that have more outputs than inputs lie in memory column by column.

    Shapes and values stay; a product of few rows, as each step of decoding has them, then runs
    along the memory: one row times the matrix under the softmax takes 0.35 to 0.4 of the time,
    and 32 rows 0.8 (docs/performance-decoding.md).  An embedding tied to such a matrix is read
    across the memory, which costs little beside it.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | VocabularyHead):
            n_outputs, n_inputs = module.weight.shape
            if n_outputs >= n_inputs:
                module.weight.data = module.weight.data.t().contiguous().t()
