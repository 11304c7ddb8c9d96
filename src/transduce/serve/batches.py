"""Batches: texts of waiting requests in turn, bounded in number and work.

Under load a request contributes at most `SHARE` texts to a batch, so that a short request beside a
long one waits for little; alone it fills `BATCH_TEXTS`.  A batch is bounded by its work, too: the
characters of its texts times the beam.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transduce.serve.calls import Call
from transduce.serve.worker import Answer, Worker

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions

BATCH_TEXTS = 64
SHARE = 16
BATCH_WORK = 100_000
"""Characters times hypotheses."""


def _new_future() -> asyncio.Future[list[Answer]]:
    return asyncio.get_running_loop().create_future()


@dataclass(eq=False)
class Job:
    """Inputs of a request, and the answers so far.

    inputs: texts, texts of an input, or bytes.  options: of each text to predict; empty with
    `observe`, which answers the input of an index in a batch that no other request shares.
    """

    inputs: Sequence[Any]
    options: Sequence[DecodingOptions | None]
    call: Call
    observe: Callable[[Worker, int], Answer] | None = None
    most: int = BATCH_TEXTS
    """Inputs in a batch."""
    taken: int = 0
    queued: float = field(default_factory=time.monotonic)
    answers: dict[int, Answer] = field(default_factory=dict)
    future: asyncio.Future[list[Answer]] = field(default_factory=_new_future)

    def __post_init__(self) -> None:
        """Random streams of sampling depend on the place in a batch: no other request may share
        it."""
        sampled = any(options and options.method == "sample" for options in self.options)
        self.alone = sampled or self.observe is not None

    @property
    def left(self) -> int:
        """Texts not yet in a batch."""
        return len(self.inputs) - self.taken

    @property
    def is_complete(self) -> bool:
        """True once each text has its answer."""
        return len(self.answers) == len(self.inputs)

    def work(self) -> int:
        """Work of the next text."""
        text = self.inputs[self.taken]
        options = self.options[self.taken] if self.options else None
        characters = len(text) if isinstance(text, str | bytes) else sum(map(len, text))
        return (characters + 1) * (options.width if options else 1)

    def take(self) -> tuple[Job, int]:
        """The next text, by its index."""
        self.taken += 1
        return self, self.taken - 1


Batch = list[tuple[Job, int]]


def take_batch(jobs: deque[Job], shared_before: bool) -> Batch:
    """Take the next batch from waiting jobs; those with texts left go behind the others.

    shared_before: True if several jobs waited for the batch before, so that more may come.
    """
    first = jobs[0]
    together = [first] if first.alone else [job for job in jobs if not job.alone]
    share = SHARE if shared_before or len(jobs) > 1 else BATCH_TEXTS
    batch = _filled(together, min(share, first.most))
    served = {job for job, _ in batch}
    waiting = [job for job in jobs if job not in served]
    unfinished = [job for job in jobs if job in served and job.left]
    jobs.clear()
    jobs.extend([*waiting, *unfinished])
    return batch


def _filled(jobs: Sequence[Job], share: int) -> Batch:
    """At most `share` texts of each job, taken in turn, within the bounds of a batch."""
    batch: Batch = []
    work = 0
    for _ in range(share):
        jobs = [job for job in jobs if job.left]
        for job in jobs:
            work += job.work()
            if batch and (work > BATCH_WORK or len(batch) == BATCH_TEXTS):
                return batch
            batch.append(job.take())
        if not jobs:
            break
    return batch
