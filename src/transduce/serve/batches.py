"""Batches: texts of waiting requests in turn, bounded in number and work.

Under load a request contributes at most `SHARE` texts to a batch, so that a short one beside a long
one waits for little; alone it fills `BATCH_TEXTS`.  A batch is bounded by its work, too: the
characters of its texts times the beam.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from transduce.serve.calls import Call

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.inspect.parts import KnockOut

BATCH_TEXTS = 64
SHARE = 16
BATCH_WORK = 100_000
"""Characters times hypotheses."""

Input = str | Sequence[str]
Operation = Literal["attempt", "stream", "align", "transcribe", "words", "explain"]
STREAMED: tuple[Operation, ...] = ("stream", "transcribe")
"""Operations whose answers come in parts."""
Answer = Any
"""A `Prediction`, links of an alignment, `TranslatedWords` or a page, or the TransduceError of its
input."""


class ToTranscribe(NamedTuple):
    """A recording to transcribe, or to translate.

    language, prompt: as in `Run.transcriber`; of a model without a prompt they are ignored.
    """

    audio: bytes
    task: Literal["transcribe", "translate"] = "transcribe"
    language: str = ""
    prompt: str = ""


class ToExplain(NamedTuple):
    """An input to explain; without some heads and tokens, where `without` names any."""

    parts: Sequence[str]
    without: KnockOut


@dataclass(eq=False)
class Job:
    """Texts of one request, and the answers so far.

    inputs: each an `Input` or `ToExplain`, or the bytes of a recording.  options: of each input.
    emit: receives the parts of a streamed answer as (index of the input, part), and None as the
    part at the end of an input.
    """

    operation: Operation
    inputs: Sequence[Any]
    options: Sequence[DecodingOptions | None]
    call: Call
    future: asyncio.Future[list[Answer]]
    emit: Callable[[int, Any], None] = lambda index, part: None
    taken: int = 0
    queued: float = field(default_factory=time.monotonic)
    answers: dict[int, Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Random streams of sampling depend on the place in a batch: no other request may share
        it."""
        sampled = any(own is not None and own.method == "sample" for own in self.options)
        self.alone = sampled or self.operation != "attempt"

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
        text, own = self.inputs[self.taken], self.options[self.taken]
        text = text.parts if isinstance(text, ToExplain) else text
        characters = len(text) if isinstance(text, str | bytes) else sum(map(len, text))
        return (characters + 1) * (own.width if own else 1)

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
    single = first.operation in (*STREAMED, "explain")
    batch = _filled(together, 1 if single else share)
    served = {job for job, _ in batch}
    waiting = [job for job in jobs if job not in served]
    unfinished = [job for job in jobs if job in served and job.left]
    jobs.clear()
    jobs.extend([*waiting, *unfinished])
    return batch


def _filled(jobs: Sequence[Job], share: int) -> Batch:
    """At most `share` texts of each job, one of each in turn, within the bounds of a batch."""
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
