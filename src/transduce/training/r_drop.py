"""R-Drop: a loss on the divergence of two dropout passes (Liang et al. 2021).

With P and Q for the two distributions of a token, and ℓ for the loss without R-Drop, its loss is ½
(ℓ(P) + ℓ(Q)) + α/4 (KL(P ‖ Q) + KL(Q ‖ P)), half of the paper's sum over both passes: α has the
same meaning, and the gradient keeps its scale.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.sequence import Borders, Padded
from transduce.training.loss import IGNORED, LinearLoss, LossSums, factors_of_logits

# Logits of both passes made at a time, as in `training.loss`.
_CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 26}


def twice(batch: Padded) -> Padded:
    """Rows of a batch, repeated once, as input for R-Drop."""
    n = len(batch.values)
    both = batch.select(torch.arange(n, device=batch.values.device).repeat(2))
    if batch.borders is None:
        return both
    starts, longest = batch.borders
    again = starts[1:] + batch.real.numel()
    return both._replace(borders=Borders(torch.cat([starts, again]), longest))


def _r_drop_of_slice(
    smoothing: float,
    alpha: float,
    logits: Tensor,
    targets: Tensor,
    scratch: Tensor | None,
    with_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """A `SliceLoss` of two passes, always with the gradient."""
    v = logits.shape[-1]
    at = targets[None, :, None].clamp(min=0).expand(2, -1, 1)
    counts = (targets != IGNORED).to(logits.dtype)[:, None]
    largest = logits.amax(-1, keepdim=True)
    mean, at_target = logits.mean(-1, keepdim=True), logits.gather(-1, at)
    p, q = probs = torch.exp(logits.sub_(largest), out=scratch)
    sums = probs.sum(-1, keepdim=True)
    probs.div_(sums / counts)  # zero where nothing counts
    log_sums = sums.log()
    log_normaliser = largest + log_sums
    # log P/Q is `apart`, which all tokens of the vocabulary have their own of, less `shift`.
    first, apart = logits
    torch.sub(first, apart, out=apart)
    shift = log_sums[0] - log_sums[1]
    kl_pq = torch.mul(p, apart, out=first).sum(-1, keepdim=True) - shift
    kl_qp = shift - torch.mul(q, apart, out=first).sum(-1, keepdim=True)
    nll = (counts * (log_normaliser - at_target)).sum() / 2
    smoothed = log_normaliser - (1 - smoothing) * at_target - smoothing * mean
    total = (counts * smoothed).sum() / 2 + alpha / 4 * (counts * (kl_pq + kl_qp)).sum()
    # Of KL(P ‖ Q) at the logits of P: P (log P/Q - KL(P ‖ Q)); of KL(Q ‖ P) there: P - Q.
    agree = alpha / 4
    torch.add(0.5 + agree * (1 - shift - kl_pq), apart, alpha=agree, out=first)
    first.mul_(p).sub_(q, alpha=agree)
    torch.add(0.5 + agree * (1 + shift - kl_qp), apart, alpha=-agree, out=apart)
    apart.mul_(q).sub_(p, alpha=agree)
    logits.sub_(counts, alpha=smoothing / (2 * v))
    logits.scatter_add_(-1, at, (counts * ((smoothing - 1) / 2)).expand(at.shape))
    return total, nll


def r_drop_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    alpha: float,
    smoothing: float = 0.0,
    bias: Tensor | None = None,
    count: int | None = None,
) -> LossSums:
    """Loss of the vocabulary head, weight (v, m) and bias (v,), on hidden (2n, m), one pass after
    the other, for targets (n,), IGNORED in all but `count` of them.  The negative log-likelihood is
    the mean of both."""
    assert len(hidden) == 2 * len(targets), (hidden.shape, targets.shape)
    hidden, weight = factors_of_logits(hidden, weight, bias)
    two = hidden.view(2, len(targets), -1)
    chunk = max(32, _CHUNK_ELEMENTS.get(hidden.device.type, 1 << 24) // (2 * len(weight)))
    of_slice = functools.partial(_r_drop_of_slice, smoothing, alpha)
    total, nll = LinearLoss.apply(two, weight, targets, chunk, of_slice)  # type: ignore[no-untyped-call]
    return LossSums(total, nll, len(targets) if count is None else count)


def r_drop_of_scores(
    scores: Tensor, labels: Tensor, alpha: float, smoothing: float = 0.0
) -> LossSums:
    """R-Drop loss for few labels: scores (2b, n_labels) of both passes, labels (b,) numbers,
    perhaps IGNORED."""
    both = labels.to(scores.device).repeat(2)
    p, q = log_probs = scores.float().log_softmax(-1).view(2, len(labels), -1)
    rows = log_probs.flatten(0, 1)
    cross_entropy = functools.partial(F.cross_entropy, ignore_index=IGNORED, reduction="sum")
    total = cross_entropy(rows, both, label_smoothing=smoothing)
    nll = cross_entropy(rows.detach(), both)
    counted = both[: len(labels), None] != IGNORED
    apart = (counted * (p.exp() - q.exp()) * (p - q)).sum()
    return LossSums(total / 2 + alpha / 4 * apart, nll / 2, len(labels))
