"""Labels of a classifier before and in training."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from transduce.errors import DataError
from transduce.tasks.labels import FILE, load_labels, logger
from transduce.tasks.recipe import Split
from transduce.training.checkpoint_paths import checkpoints_of
from transduce.training.config import FineTuneConfig
from transduce.training.distributed import Ranks
from transduce.training.loss import IGNORED, LossSums
from transduce.training.weights import write_text

NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def label_loss(scores: Tensor, labels: Tensor, smoothing: float) -> LossSums:
    """Cross-entropy of the right labels (b,), perhaps IGNORED, given the scores (b, n_labels) of
    all."""
    labels, scores = labels.to(scores.device), scores.float()
    cross_entropy = functools.partial(F.cross_entropy, ignore_index=IGNORED, reduction="sum")
    total = cross_entropy(scores, labels, label_smoothing=smoothing)
    nll = cross_entropy(scores.detach(), labels)
    return LossSums(total, nll, len(labels))


def save_labels(run: Path, labels: tuple[str, ...]) -> None:
    """Write the labels into a run directory.  Raises RunError when that cannot be done."""
    if not Ranks.present().is_main:
        return
    lines = ",\n  ".join(json.dumps(label, ensure_ascii=False) for label in labels)
    write_text(run / FILE, f"[\n  {lines}\n]\n")


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels in the order of the alphabet, or of size if all of them are numbers."""
    names = tuple(labels)
    if all(NUMBER.fullmatch(label) for label in names):
        return tuple(sorted(names, key=lambda label: (Decimal(label), label)))
    return tuple(sorted(names))


def _labels_of_base(fine_tune: FineTuneConfig | None) -> tuple[str, ...]:
    if fine_tune is None or not (Path(fine_tune.run) / FILE).is_file():
        return ()
    return load_labels(Path(fine_tune.run))


def new_head(labels: tuple[str, ...], fine_tune: FineTuneConfig | None) -> tuple[str, ...]:
    """Head weights that cannot come from the base run: `reinit` of `train`.

    labels: labels of the head; () for spans, if both runs have span heads.
    """
    return () if labels == _labels_of_base(fine_tune) else ("head.output.",)


def check_unknown(unknown: int, total: int, split: Split, kind: str, labels: Sequence[str]) -> None:
    """Warn of `unknown` of the `total` items of a split, texts or images by `kind`, that have none
    of the training's labels.  Raises DataError if all have, or if they are of training."""
    if unknown and split == "train":
        raise DataError(f"the labels of the training {kind}s have changed; start a new run")
    if unknown == total:
        raise DataError(f"no {split} {kind} has a label of the training {kind}s ({labels[0]!r}, …)")
    if unknown:
        message = "%d of %d %s %ss have labels that no training %s has; they count as wrong"
        logger.warning(message, unknown, total, split, kind, kind)


def labels_for(
    run: Path,
    training_labels: Iterable[str],
    order: Sequence[str] | None = None,
    fine_tune: FineTuneConfig | None = None,
) -> tuple[str, ...]:
    """Labels of a run before training: existing labels, or else those found in the data.

    training_labels: of every training example; read only when the run has none yet.  order: all
    possible labels, in order; by default the order of `in_order`. fine_tune: base run, whose order
    is kept if it has the same labels.  Raises DataError for a blank label and for fewer than two,
    RunError if the run's labels are missing.
    """
    if (run / FILE).is_file() or checkpoints_of(run):  # their weights are of those very labels
        return load_labels(run)
    counts = Counter(training_labels)
    labels = in_order(counts)
    if not labels:
        raise DataError(
            "no training examples: data.train is empty, or data.hold_out takes all of it"
        )
    if len(labels) < 2:
        raise DataError(
            f"all {counts.total()} training examples have the label {labels[0]!r}; a classifier "
            "needs two or more (is data.train.label the right column?)"
        )
    if len(labels) > 100 and 2 * len(labels) > counts.total():
        message = "%d training examples have %d labels; is data.train.label the right column?"
        logger.warning(message, counts.total(), len(labels))
    labels = labels if order is None else tuple(order)
    if "" in labels:
        raise DataError(
            f"{counts['']} of {counts.total()} training examples have a blank label; name it "
            "or remove them"
        )
    theirs = _labels_of_base(fine_tune)
    if set(theirs) == set(labels):  # the rows of its head are in its order
        labels = theirs
    save_labels(run, labels)
    return labels
