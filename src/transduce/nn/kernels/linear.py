"""Linear layers of a model replaced by layers in reduced precision, for inference."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.kernels.precision import Precision as Precision


def replace_linear(model: nn.Module, make: Callable[[Tensor, Tensor | None], nn.Module]) -> None:
    """Replace each linear layer and each vocabulary head by make(weight, bias)."""
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, nn.Linear | VocabularyHead):
                product = make(part.weight, part.bias)
                if isinstance(part, VocabularyHead):  # a shortlist picks some of its rows
                    product.weight = part.weight
                setattr(module, name, product)
