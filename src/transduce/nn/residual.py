"""Residual connection, layer norm and dropout around a sublayer: the only place they meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from transduce.nn.dropout import Dropout
from transduce.nn.transformer_config import NormKind
from transduce.nn.transformer_config import NormOrder as NormOrder

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
    """A pre-norm residual for each layer."""
    return nn.ModuleList(PreNorm(d_model, dropout) for _ in range(n_layers))


RESIDUALS: dict[NormOrder, type[PostNorm | PreNorm]] = {"post": PostNorm, "pre": PreNorm}


def final_norm(
    order: NormOrder, d_model: int, epsilon: float = 1e-5, norm: NormKind = "layer"
) -> nn.Module:
    """Norm on top of a stack: one for pre-norm, none for post-norm."""
    return NORMS[norm](d_model, epsilon) if order == "pre" else nn.Identity()
