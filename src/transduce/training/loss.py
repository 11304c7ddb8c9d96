"""Cross-entropy with label smoothing, in chunks of positions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Logits made at a time: large enough for fast products, small enough to stay in the cache.
_CHUNK_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 26}


IGNORED = -1
"""Target of rows without a prediction."""


class LossSums(NamedTuple):
    """Sums over real target tokens: differentiable smoothed loss, plain likelihood in nats."""

    total: Tensor
    nll: Tensor
    tokens: int


SliceLoss = Callable[[Tensor, Tensor, "Tensor | None", bool], tuple[Tensor, Tensor]]
"""Sums of loss and negative log-likelihood, from logits (k, c, v) of k passes, targets (c,), a
buffer like the logits for two passes, and True to overwrite the logits by their gradient."""


class LinearLoss(torch.autograd.Function):
    """Sum over rows of a loss of the logits hidden Wᵀ, some rows at a time.  The gradient follows
    in place: (n, v) tensors never exist, which makes large vocabularies cheap."""

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        chunk: int,
        of_slice: SliceLoss,
    ) -> tuple[Tensor, Tensor]:
        """hidden (k, n, m), weight (v, m), targets (n,), perhaps IGNORED; `chunk` rows at a
        time."""
        (passes, n, _), v = hidden.shape, len(weight)
        wants_hidden, wants_weight = context.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden) if wants_hidden else None
        weight_gradient = torch.zeros_like(weight) if wants_weight else None  # not if frozen
        total, nll = weight.new_zeros(()), weight.new_zeros(())
        narrow_weight = weight.to(hidden.dtype)
        # Buffers of the logits: fresh memory is slow memory.
        made = hidden.new_empty(passes, min(chunk, n), v)
        other = weight.new_empty(made.shape) if passes == 2 else None
        for rows in _slices(hidden, n, chunk):
            here, target = hidden[:, rows], targets[rows]
            c = len(target)
            for i in range(passes):
                torch.mm(here[i], narrow_weight.t(), out=made[i, :c])
            logits = made[:, :c].to(weight.dtype)
            scratch = None if other is None else other[:, :c]
            sums = of_slice(logits, target, scratch, wants_hidden or wants_weight)
            total += sums[0]
            nll += sums[1]
            for i, gradient in enumerate(logits):
                narrow = gradient.to(hidden.dtype)
                if hidden_gradient is not None:
                    torch.mm(narrow, narrow_weight, out=hidden_gradient[i, rows])
                if weight_gradient is not None:
                    _add_product(weight_gradient, narrow.t(), here[i])
        context.save_for_backward(hidden_gradient, weight_gradient)
        context.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of `forward`, scaled."""
        scale = gradients[0]
        formed = context.saved_tensors
        scaled = (None if g is None else g * scale.to(g.dtype) for g in formed)
        return (*scaled, None, None, None)


def factors_of_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Factors (n, m), narrow under autocast, and (v, m) of the product hidden Wᵀ + bias."""
    if bias is not None:  # one more column, which every hidden vector has a 1 for
        hidden = torch.cat([hidden, hidden.new_ones(len(hidden), 1)], 1)
        weight = torch.cat([weight, bias[:, None]], 1)
    # The type of a product: autocast itself cannot be asked for while PyTorch 2.11 compiles.
    return hidden.to((hidden[:1] @ hidden[:1].t()).dtype), weight


def _slices(hidden: Tensor, n: int, most: int) -> list[slice]:
    """Slices of at most `most` rows, in bfloat16 on a CPU of multiples of 32, compiled each."""
    step = 32 if hidden.dtype == torch.bfloat16 and hidden.device.type == "cpu" else 1
    most, whole = most - most % step, n - n % step
    cuts = [*range(0, whole, most), whole, n]
    return [slice(a, b) for a, b in itertools.pairwise(cuts) if a < b]


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if total.dtype == right.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    smoothing: float = 0.0,
    bias: Tensor | None = None,
    count: int | None = None,
) -> LossSums:
    """Loss of the vocabulary head, weight (v, m) and bias (v,), on hidden (n, m) for targets (n,).

    Targets are IGNORED in all but `count` of them.  The target distribution has 1 - smoothing on
    the correct token and `smoothing` spread evenly over all v (section 5.4; Szegedy et al. 2016),
    as in `torch.nn.functional.cross_entropy`.
    """
    hidden, weight = factors_of_logits(hidden, weight, bias)
    chunk = max(64, _CHUNK_ELEMENTS.get(hidden.device.type, 1 << 24) // len(weight))
    of_slice = functools.partial(_cross_entropy_of_slice, smoothing)
    total, nll = LinearLoss.apply(hidden[None], weight, targets, chunk, of_slice)  # type: ignore[no-untyped-call]
    return LossSums(total, nll, len(targets) if count is None else count)


def _cross_entropy_of_slice(
    smoothing: float, passes: Tensor, targets: Tensor, scratch: Tensor | None, with_gradient: bool
) -> tuple[Tensor, Tensor]:
    """A `SliceLoss` of a single pass."""
    logits, target = passes[0], targets[:, None].clamp(min=0)
    counted = (targets != IGNORED).to(logits.dtype)
    at_target = logits.gather(1, target)[:, 0]
    mean = logits.mean(1)
    largest = logits.amax(1, keepdim=True)
    probabilities = logits.sub_(largest).exp_()
    sums = probabilities.sum(1, keepdim=True)
    log_normaliser = (largest + sums.log())[:, 0]
    nll = (counted * (log_normaliser - at_target)).sum()
    # Smoothed target q: 1 - ε on the right token, and ε spread over the vocabulary.
    smoothed = log_normaliser - (1 - smoothing) * at_target - smoothing * mean
    total = (counted * smoothed).sum()
    if with_gradient:  # p - q, and zero where nothing counts
        counts = counted[:, None]
        gradient = probabilities.div_(sums / counts).sub_(counts, alpha=smoothing / logits.shape[1])
        gradient.scatter_add_(1, target, counts * (smoothing - 1))
    return total, nll
