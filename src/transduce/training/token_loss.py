"""Loss of the tokens that a decoder predicts, after each position."""

from __future__ import annotations

from torch import Tensor

from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.sequence import Padded, real_values
from transduce.training.loss import IGNORED, LossSums, cross_entropy
from transduce.training.r_drop import r_drop_cross_entropy


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
