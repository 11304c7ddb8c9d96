"""R-Drop: a loss on the divergence of two dropout passes (Liang et al. 2021).

With P and Q for the two distributions of a token, and ℓ for the loss without R-Drop, its loss is

    ½ (ℓ(P) + ℓ(Q)) + α/4 (KL(P ‖ Q) + KL(Q ‖ P)),

half of the paper's, which sums over both passes: α has the same meaning, and the gradient keeps the
scale of training without R-Drop.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.sequence import Padded
from transduce.training.loss import LossSums, add_product, factors_of_logits, parts

# Logits of both passes made at a time, as in `training.loss`.
_CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 26}


def twice(batch: Padded) -> Padded:
    """Rows of a batch, repeated once, as input for R-Drop."""
    n = len(batch.values)
    return batch.select(torch.arange(n, device=batch.values.device).repeat(2))


class _LinearRDrop(torch.autograd.Function):
    """R-Drop loss of the logits hidden Wᵀ, a slice of tokens at a time.

    As in `training.loss`, the gradient is computed at once, so that (n, v) tensors never exist.
    """

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        alpha: float,
    ) -> tuple[Tensor, Tensor]:
        """hidden (2, n, m), weight (v, m), targets (n,)."""
        n, v = len(targets), len(weight)
        wants_hidden, wants_weight = context.needs_input_grad[:2]
        chunk = max(32, _CHUNK_ELEMENTS.get(hidden.device.type, 1 << 24) // (2 * v))
        hidden_gradient = torch.empty_like(hidden) if wants_hidden else None
        weight_gradient = torch.zeros_like(weight) if wants_weight else None
        total, nll = weight.new_zeros(()), weight.new_zeros(())
        narrow_weight = weight.to(hidden.dtype)
        # Buffers for logits and their derivatives: newly mapped memory is slow.
        made = hidden.new_empty(2, min(chunk, n), v)
        other = weight.new_empty(made.shape)
        for rows in parts(hidden, n, chunk):
            here, target = hidden[:, rows], targets[rows]
            c = len(target)
            for i in range(2):
                torch.mm(here[i], narrow_weight.t(), out=made[i, :c])
            logits = made[:, :c].to(weight.dtype)
            of_chunk, nll_of_chunk = _loss_and_gradient(
                logits, other[:, :c], target, smoothing, alpha
            )
            total += of_chunk
            nll += nll_of_chunk
            for i, gradient in enumerate(logits):
                narrow = gradient.to(hidden.dtype)
                if hidden_gradient is not None:
                    torch.mm(narrow, narrow_weight, out=hidden_gradient[i, rows])
                if weight_gradient is not None:
                    add_product(weight_gradient, narrow.t(), here[i])
        context.save_for_backward(hidden_gradient, weight_gradient)
        context.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        formed = context.saved_tensors
        scaled = (None if g is None else g * scale.to(g.dtype) for g in formed)
        return (*scaled, None, None, None)


def _loss_and_gradient(
    logits: Tensor, room: Tensor, targets: Tensor, smoothing: float, alpha: float
) -> tuple[Tensor, Tensor]:
    """R-Drop loss and negative log-likelihood of a slice of tokens.

    logits (2, c, v), overwritten by their gradient; a buffer of the same size; targets (c,).
    """
    v = logits.shape[-1]
    at = targets[None, :, None].expand(2, -1, 1)
    largest = logits.amax(-1, keepdim=True)
    mean, at_target = logits.mean(-1, keepdim=True), logits.gather(-1, at)
    p, q = probs = torch.exp(logits.sub_(largest), out=room)
    sums = probs.sum(-1, keepdim=True)
    probs.div_(sums)
    log_sums = sums.log()
    log_normaliser = largest + log_sums
    # log P/Q is `apart`, which all tokens of the vocabulary have their own of, less `shift`.
    first, apart = logits
    torch.sub(first, apart, out=apart)
    shift = log_sums[0] - log_sums[1]
    kl_pq = torch.mul(p, apart, out=first).sum(-1, keepdim=True) - shift
    kl_qp = shift - torch.mul(q, apart, out=first).sum(-1, keepdim=True)
    nll = (log_normaliser - at_target).sum() / 2
    smoothed = (log_normaliser - (1 - smoothing) * at_target - smoothing * mean).sum() / 2
    total = smoothed + alpha / 4 * (kl_pq.sum() + kl_qp.sum())
    # Of KL(P ‖ Q) at the logits of P: P (log P/Q - KL(P ‖ Q)); of KL(Q ‖ P) there: P - Q.
    agree = alpha / 4
    torch.add(0.5 + agree * (1 - shift - kl_pq), apart, alpha=agree, out=first)
    first.mul_(p).sub_(q, alpha=agree)
    torch.add(0.5 + agree * (1 + shift - kl_qp), apart, alpha=-agree, out=apart)
    apart.mul_(q).sub_(p, alpha=agree)
    logits.sub_(smoothing / (2 * v))
    logits.scatter_add_(-1, at, logits.new_full(at.shape, (smoothing - 1) / 2))
    return total, nll


def r_drop_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    alpha: float,
    smoothing: float = 0.0,
    bias: Tensor | None = None,
) -> LossSums:
    """Loss of the vocabulary head on the hidden vectors of two passes.

    hidden (2n, m): first pass, then second; weight (v, m) and bias (v,)
    of the head, targets (n,) ids.  The negative log-likelihood is the mean of both passes.
    """
    assert len(hidden) == 2 * len(targets), (hidden.shape, targets.shape)
    hidden, weight = factors_of_logits(hidden, weight, bias)
    two = hidden.view(2, len(targets), -1)
    total, nll = _LinearRDrop.apply(two, weight, targets, smoothing, alpha)  # type: ignore[no-untyped-call]
    return LossSums(total, nll, len(targets))


def r_drop_of_scores(
    scores: Tensor, labels: Tensor, alpha: float, smoothing: float = 0.0
) -> LossSums:
    """R-Drop loss for few labels, whose scores fit in memory.

    scores (2b, n_labels) of both passes, labels (b,) numbers.
    """
    both = labels.to(scores.device).repeat(2)
    p, q = log_probs = scores.float().log_softmax(-1).view(2, len(labels), -1)
    total = F.cross_entropy(
        log_probs.flatten(0, 1), both, reduction="sum", label_smoothing=smoothing
    )
    nll = F.nll_loss(log_probs.detach().flatten(0, 1), both, reduction="sum")
    apart = ((p.exp() - q.exp()) * (p - q)).sum()
    return LossSums(total / 2 + alpha / 4 * apart, nll / 2, len(labels))
