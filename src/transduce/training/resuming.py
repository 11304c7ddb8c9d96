"""Differences between a resumed training and its beginning, beside the recipe's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from transduce.training.checkpoints import Progress


def taken_up(before: Progress, now: Progress) -> tuple[Progress, list[str]]:
    """Progress of a resumed training, from the checkpoint's and that of the present data, processes
    and validation, and a line for each difference.

    Scores of other validation data, settings or another `select_by` are not compared: the best is
    then unknown, and patience starts again.
    """
    lines = list(_differences(before, now))
    same_score = before.select_by in ("", now.select_by)
    best, since_best = before.best_scores.get(now.select_by), before.since_best
    if same_score and _differ(before.validation_checksum, now.validation_checksum):
        best = None
        lines.append(
            "validation data or settings have changed: earlier values of "
            f"{now.select_by} are not compared with new ones"
        )
    if not same_score or (before.best_scores and best is None):
        since_best = 0
    progress = dataclasses.replace(
        before,
        best=best,
        since_best=since_best,
        select_by=now.select_by,
        ranks=now.ranks,
        batches=now.batches,
        data_checksum=now.data_checksum,
        validation_checksum=now.validation_checksum,
    )
    return progress, lines


def _differences(before: Progress, now: Progress) -> Iterator[str]:
    if _differ(before.data_checksum, now.data_checksum):
        yield (
            "the training data have changed; training continues with the new data, at the same "
            "position of the epoch"
        )
    if before.ranks != now.ranks:
        yield (
            f"number of processes: {before.ranks} before, {now.ranks} now; random generators start "
            "afresh"
        )
    if before.batches not in (0, now.batches):
        yield (
            f"batches per step: {before.batches} before, {now.batches} now "
            "(training.accumulate times the number of processes)"
        )


def _differ(before: str, now: str) -> bool:
    """True if both are known and differ."""
    return "" not in (before, now) and before != now
