"""Losses: cross-entropy with label smoothing, in chunks of positions, and the divergence of two
dropout passes (R-Drop).

With P and Q for the two distributions of a token, and ℓ for the loss without R-Drop, its loss is ½
(ℓ(P) + ℓ(Q)) + α/4 (KL(P ‖ Q) + KL(Q ‖ P)), half of the paper's sum over both passes: α has the
same meaning, and the gradient keeps its scale.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.sequence import Borders, Padded, real_values

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
        time.

        context: of the autograd function.  of_slice: loss and gradients of a slice of logits.
        """
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


# Logits of both passes made at a time, as in `training.loss`.
_DIVERGENCE_CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 26}


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
    the mean of both.

    alpha: weight of the divergence of both passes.  smoothing: of labels, from 0 to 1.
    """
    assert len(hidden) == 2 * len(targets), (hidden.shape, targets.shape)
    hidden, weight = factors_of_logits(hidden, weight, bias)
    two = hidden.view(2, len(targets), -1)
    chunk = max(
        32, _DIVERGENCE_CHUNK_ELEMENTS.get(hidden.device.type, 1 << 24) // (2 * len(weight))
    )
    of_slice = functools.partial(_r_drop_of_slice, smoothing, alpha)
    total, nll = LinearLoss.apply(two, weight, targets, chunk, of_slice)  # type: ignore[no-untyped-call]
    return LossSums(total, nll, len(targets) if count is None else count)


def r_drop_of_scores(
    scores: Tensor, labels: Tensor, alpha: float, smoothing: float = 0.0
) -> LossSums:
    """R-Drop loss for few labels: scores (2b, n_labels) of both passes, labels (b,) numbers,
    perhaps IGNORED.

    alpha: weight of the divergence of both passes.  smoothing: of labels, from 0 to 1.
    """
    both = labels.to(scores.device).repeat(2)
    p, q = log_probs = scores.float().log_softmax(-1).view(2, len(labels), -1)
    rows = log_probs.flatten(0, 1)
    cross_entropy = functools.partial(F.cross_entropy, ignore_index=IGNORED, reduction="sum")
    total = cross_entropy(rows, both, label_smoothing=smoothing)
    nll = cross_entropy(rows.detach(), both)
    counted = both[: len(labels), None] != IGNORED
    apart = (counted * (p.exp() - q.exp()) * (p - q)).sum()
    return LossSums(total / 2 + alpha / 4 * apart, nll / 2, len(labels))


def token_loss(
    head: VocabularyHead,
    hidden: Padded,
    labels: Tensor,
    counted: Tensor,
    count: int,
    smoothing: float = 0.0,
    r_drop: float = 0.0,
) -> LossSums:
    """Cross-entropy of `count` predictions.

    hidden: vectors (b, t, m) below the head; with R-Drop (2b, t, m), of both passes.
    labels: (b, t) ids to predict.  counted: (b, t) bool, True for predictions that count.
    r_drop: weight α.
    """
    if hidden.borders is not None:  # of one shape, whatever counts
        vectors, targets = hidden.values.flatten(0, 1), labels.masked_fill(~counted, IGNORED)
    elif count == counted.numel():
        vectors, targets = hidden.values.flatten(0, 1), labels
    else:
        both = counted.repeat(2, 1) if r_drop else counted
        vectors = real_values(hidden.values, both, 2 * count if r_drop else count)
        targets = real_values(labels, counted, count)
    targets = targets.flatten()
    if r_drop:
        return r_drop_cross_entropy(
            vectors, head.weight, targets, r_drop, smoothing, head.bias, count
        )
    return cross_entropy(vectors, head.weight, targets, smoothing, head.bias, count)
