"""Initialisation of weights."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transduce.nn.attention import CrossAttention, SelfAttention
from transduce.nn.feed_forward import GatedFeedForward
from transduce.nn.stack_configs import InitMethod

NORMAL = 0.02
"""Standard deviation of first weights of the kind "normal"."""
DRAWING = {"normal_", "uniform_", "kaiming_uniform_"}
"""Functions that fill a tensor with random numbers, called by all other initialisers."""


class SkipInit(TorchFunctionMode):
    """Context that skips random initialisation, for models with weights read from a file.  For
    tensors without memory it also saves the import of PyTorch's compiler, two seconds."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        """Hook called by PyTorch in place of its own functions."""
        named = named or {}
        if getattr(function, "__name__", "") in DRAWING:
            return arguments[0] if arguments else named["tensor"]
        return function(*arguments, **named)


def initialise(model: nn.Module, d_model: int, kind: InitMethod = "xavier") -> None:
    """Initialise all matrices and embeddings; biases are zero.

    "xavier": Xavier (Glorot and Bengio 2010) for matrices, those that stand side by side each by
    itself; N(0, 1/m) for embeddings, which multiplied by √m have unit variance, and as the output
    matrix give logits of unit variance.  "normal": N(0, 0.02²) for all (Radford et al. 2018).

    model: changed in place.  d_model: m, the width of embeddings.  kind: "xavier" or "normal".
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            matrix_(module.weight, kind)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            embedding_(module.weight, d_model, kind)
    for module in model.modules():
        if isinstance(module, SelfAttention):
            side_by_side = module.query_key_value.weight.chunk(3)
        elif isinstance(module, CrossAttention):
            side_by_side = module.key_value.weight.chunk(2)
        elif isinstance(module, GatedFeedForward):
            side_by_side = module.gate_inner.weight.chunk(2)
        else:
            continue
        for part in side_by_side:
            matrix_(part, kind)


def matrix_(weight: Tensor, kind: InitMethod) -> None:
    """Fill a matrix."""
    if kind == "normal":
        nn.init.normal_(weight, std=NORMAL)
    else:
        nn.init.xavier_uniform_(weight)


def embedding_(weight: Tensor, d_model: int, kind: InitMethod) -> None:
    """Fill an embedding, or the matrix under the softmax, which is its transpose.

    weight: (v, m), changed in place.  d_model: m.  kind: as in `initialise`.
    """
    nn.init.normal_(weight, std=NORMAL if kind == "normal" else d_model**-0.5)
