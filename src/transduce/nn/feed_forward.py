"""The position-wise feed-forward network (section 3.3, equation 2) and its later variants."""

import functools
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.residual import Dropout
from transduce.nn.stack_configs import Activation

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": functools.partial(F.gelu, approximate="tanh"),  # GPT-2
    "silu": F.silu,
}
_GATES = {"swiglu": _FUNCTIONS["silu"], "geglu": _FUNCTIONS["gelu-tanh"]}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, or with another function for the maximum."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.activation = _FUNCTIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, m) -> (b, t, m)."""
        return self.outer(self.dropout(self.activation(self.inner(x))))  # type: ignore[no-any-return]


class GatedFeedForward(nn.Module):
    """SwiGLU (Shazeer 2020): (silu(x W_g) * x W_1) W_2, three matrices without biases; GEGLU with
    gelu, by its tanh, as in T5."""

    def __init__(
        self, d_model: int, d_ff: int, dropout: float, activation: Activation = "swiglu"
    ) -> None:
        super().__init__()
        self.activation = _GATES[activation]
        self.gate_inner = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.outer = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, m) -> (b, t, m)."""
        gate, inner = self.gate_inner(x).chunk(2, -1)
        return self.outer(self.dropout(self.activation(gate) * inner))  # type: ignore[no-any-return]


def build_feed_forward(
    d_model: int, d_ff: int, activation: Activation, dropout: float
) -> FeedForward | GatedFeedForward:
    """The feed-forward network with that activation.

    d_model: width of input and output.  d_ff: inner width.  dropout: probability.
    """
    if activation in _GATES:
        return GatedFeedForward(d_model, d_ff, dropout, activation)
    return FeedForward(d_model, d_ff, activation, dropout)
