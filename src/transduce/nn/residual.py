"""Residual connection, layer norm and dropout around a sublayer."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.stack_configs import NormKind, NormOrder

LARGEST = 1 - 2**-7
"""Largest share whose kept part 16 random bits represent within a relative error of 0.001."""


class Dropout(nn.Module):
    """Zeroes a share `p` of the elements in training and scales the others by 1 / (1 - p).

    PyTorch draws a number for each element, on a CPU a tenth of a small model's training step.
    Here 64 random bits decide for four elements, each kept when its 16 bits are at least p · 2^16:
    the share is p within 2^-17.  Where that is a large part of 1 - p, PyTorch draws.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape; in evaluation, returns the input without a module call."""
        return super().__call__(x) if self.training else x

    def forward(self, x: Tensor) -> Tensor:
        """As `__call__`, in training."""
        if self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling() or self.p > LARGEST:
            return F.dropout(x, self.p)
        return x * _kept(x, self.p)

    def extra_repr(self) -> str:
        """Settings in PyTorch's description."""
        return f"p={self.p}"


def _kept(x: Tensor, p: float) -> Tensor:
    """Zero with probability p, else 1 / (1 - p), for each element of x."""
    n = x.numel()
    bits = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    sixteen = bits.view(torch.int16)[:n].view(x.shape)
    mask = torch.empty_like(x, memory_format=torch.contiguous_format)
    torch.ge(sixteen, round(p * (1 << 16)) - (1 << 15), out=mask)
    return mask.mul_(1 / (1 - p))


NORMS: dict[NormKind, type[nn.LayerNorm | nn.RMSNorm]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


class Residual(nn.Module):
    """Base of residual connections, with their norm and dropout."""

    def __init__(
        self, d_model: int, dropout: float, epsilon: float = 1e-5, norm: NormKind = "layer"
    ) -> None:
        super().__init__()
        self.norm = NORMS[norm](d_model, epsilon)
        self.dropout = Dropout(dropout)


class PostNorm(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))): as the paper draws it (section 3.1 and 5.4)."""

    def forward(self, x: Tensor, sublayer: Callable[..., Tensor], *context: Any) -> Tensor:
        """(b, t, m) -> (b, t, m).  context: of the sublayer, beside its input."""
        return self.norm(x + self.dropout(sublayer(x, *context)))  # type: ignore[no-any-return]


class PreNorm(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))): trains deep stacks without warm-up troubles; a stack of
    these ends with another norm of the sum (Wang et al. 2019, Xiong et al. 2020)."""

    def forward(self, x: Tensor, sublayer: Callable[..., Tensor], *context: Any) -> Tensor:
        """(b, t, m) -> (b, t, m).  context: of the sublayer, beside its input."""
        return x + self.dropout(sublayer(self.norm(x), *context))


def pre_norms(n_layers: int, d_model: int, dropout: float) -> nn.ModuleList:
    """A pre-norm residual for each layer.

    n_layers: number of residuals.  d_model: width.  dropout: probability.
    """
    return nn.ModuleList(PreNorm(d_model, dropout) for _ in range(n_layers))


RESIDUALS: dict[NormOrder, type[PostNorm | PreNorm]] = {"post": PostNorm, "pre": PreNorm}


def final_norm(
    order: NormOrder, d_model: int, epsilon: float = 1e-5, norm: NormKind = "layer"
) -> nn.Module:
    """Norm on top of a stack: one for pre-norm, none for post-norm.

    order: "pre" or "post".  d_model: width.  epsilon: added to the variance.  norm: kind of norm.
    """
    return NORMS[norm](d_model, epsilon) if order == "pre" else nn.Identity()
