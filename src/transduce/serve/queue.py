"""Queue of a run: a worker thread, which answers batches of the waiting texts, in turn and
bounded in work.

Under load a request contributes at most `SHARE` texts to a batch, so that a short request beside a
long one waits for little; alone it fills `BATCH_TEXTS`.  A batch is bounded by its work, too: the
characters of its texts times the beam.

A batch takes the texts that are waiting, and never waits for more.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transduce.errors import TORCH_LATER, CancelledError, TorchNeededError, TransduceError
from transduce.serve.calls import Call, RequestError, busy, fault_of, place_of, unavailable
from transduce.serve.metrics import Metrics
from transduce.serve.worker import Answer, Input, ToTranscribe, Worker
from transduce.support.memory import release_memory

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


logger = logging.getLogger("transduce")

PATIENCE = 30.0
"""Seconds for the last batch, when the server ends."""
ROOM_SECONDS = 10.0
"""Time that a request waits for room in the queue, before it is refused."""
MOST_OUTSIDE = 64
"""Requests that wait for room."""


class Queue:
    """Texts waiting for a run, and the thread that answers them.

    load: makes the run; called in the thread.  failed: called in the thread with the error of a run
    that cannot be loaded.  lazy: load it when a request first needs it; it may `leave`, and a
    failure to load is answered to the requests.  turn: held while the run is loaded and entered
    here, so that another that loads counts it.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Worker],
        metrics: Metrics,
        max_waiting: int = 2000,
        failed: Callable[[BaseException], None] = lambda error: None,
        lazy: bool = False,
        turn: contextlib.AbstractContextManager[Any] | None = None,
    ) -> None:
        self.name = name
        self.run: Worker | None = None
        self.inputs: tuple[str, ...] | None = None
        """Names of the texts of an input; None before the run was first loaded."""
        self.options: DecodingOptions | None = None
        """Of the recipe, once it was first loaded."""
        self.used = 0.0
        """Time of the last batch."""
        self.is_lazy = lazy
        self._wanted = self._leaving = self._has_answered = False
        self._n_failures = 0  # to load
        self._load = load
        self._turn = turn or contextlib.nullcontext()
        self._metrics = metrics
        self._max_waiting = max_waiting
        self._failed = failed
        self._jobs: deque[Job] = deque()
        self._postponed: list[Job] = []  # until PyTorch is loaded
        self._n_waiting = 0  # texts in both at most, those of ended calls too
        self._outside: dict[Job, asyncio.Future[None]] = {}  # jobs without room, by arrival
        self._changed = threading.Condition()
        self._closed = False
        self._shared = False  # two requests at the time of the last batch
        self._thread = threading.Thread(target=self._work, name=f"serve-{name}", daemon=True)

    def start(self) -> None:
        """Start loading."""
        self._thread.start()

    def loaded_run(self) -> Worker:
        """The run; waits for a lazy one, in a thread that may.  Raises RequestError 503 while it is
        loading, 500 where it cannot be loaded."""
        with self._changed:
            n_failures = self._n_failures

            def is_settled() -> bool:
                if self.run is not None or self._n_failures > n_failures or self._closed:
                    return True
                if not self._wanted:  # not yet, or the run has left again meanwhile
                    self._wanted = True
                    self._changed.notify_all()
                return False

            if self.is_lazy:
                self._changed.wait_for(is_settled, ROOM_SECONDS)
            run, has_failed = self.run, self._n_failures > n_failures
        if run is None and has_failed:
            raise self._unloadable()
        if run is None:
            raise unavailable("the server is loading")
        return run

    async def present(self, call: Call) -> None:
        """Wait until a lazy run was loaded once.  Raises RequestError as `submit`, 503 for another
        run that is loading."""
        if self.inputs is None and self.is_lazy:
            await self.observe([""], lambda run, _: None, call)
        elif self.inputs is None:
            raise unavailable("the server is loading")

    def leave(self) -> None:
        """Let a lazy run go after its present batch, and wait until it is gone."""
        with self._changed:
            self._leaving = self.run is not None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.run is None or self._closed)

    def close(self) -> None:
        """End the thread after its current batch."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self.run is not None:
            self._thread.join(PATIENCE)

    async def submit(
        self,
        inputs: Sequence[Input],
        options: DecodingOptions | Sequence[DecodingOptions | None] | None,
        call: Call,
    ) -> list[Answer]:
        """Answers in order; a TransduceError in place of an answer that is impossible.

        options: of all inputs, or of each.  Raises RequestError: 429 where too many wait, 503 at
        the deadline, 499 for a client gone.
        """
        return await self._answers(Job(inputs, _of_each(options, inputs), call))

    async def observe(
        self, inputs: Sequence[Any], look: Callable[[Worker, Any], Answer], call: Call
    ) -> list[Answer]:
        """Results of `look` for inputs, in order; a TransduceError in place of a result that fails.

        look: called in the thread with the run and an input.  Raises as `submit`.
        """
        return await self._answers(Job(inputs, (), call, lambda run, i: look(run, inputs[i])))

    def stream(
        self,
        inputs: Sequence[Input],
        options: DecodingOptions | Sequence[DecodingOptions | None] | None,
        call: Call,
    ) -> AsyncIterator[tuple[int, str | None]]:
        """Answers in parts, as (index of the input, part), with None at the end of each.

        options: of all inputs, or of each.  Raises as `submit`, and the error of an input.
        """
        settings = _of_each(options, inputs)
        return self._parts(
            inputs, lambda run, i: run.stream(inputs[i], settings[i], i, call.over), call
        )

    def transcribe(
        self, recording: ToTranscribe, options: DecodingOptions | None, call: Call
    ) -> AsyncIterator[tuple[int, Any]]:
        """Segments of a recording as they come, each as (0, segment), then its length in seconds,
        then None.

        options: of decoding; by default the recipe's.  call: of the request.

        Raises as `stream`.
        """
        return self._parts(
            [recording.audio], lambda run, _: run.transcribe(recording, call.over, options), call
        )

    async def _parts(
        self, inputs: Sequence[Any], begin: Callable[[Worker, int], Iterator[Any]], call: Call
    ) -> AsyncIterator[tuple[int, Any]]:
        """Parts of the answer to each input, which `begin` gives in the thread."""
        if not inputs:
            return
        loop = asyncio.get_running_loop()
        parts: asyncio.Queue[tuple[int, Any] | None] = asyncio.Queue()

        def emit(run: Worker, index: int) -> None:
            for part in itertools.chain(begin(run, index), [None]):
                _call_soon(loop, parts.put_nowait, (index, part))

        job = Job(inputs, (), call, emit, most=1)
        job.future.add_done_callback(lambda _: parts.put_nowait(None))
        await self._enter(job)
        answered = asyncio.ensure_future(self._answer_of(job))
        answered.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while (part := await parts.get()) is not None:
                yield part
            for answer in await answered:
                if isinstance(answer, TransduceError):
                    raise answer
        finally:
            if not job.future.done() or job.future.cancelled():
                self._metrics.count("cancelled_total")
            call.end()
            answered.cancel()

    async def _answers(self, job: Job) -> list[Answer]:
        if not job.inputs:
            return []
        await self._enter(job)
        return await self._answer_of(job)

    async def _answer_of(self, job: Job) -> list[Answer]:
        answers = await job.call.outcome(job.future)
        if any(isinstance(answer, CancelledError) for answer in answers):
            raise job.call.given_up()
        return answers

    async def _enter(self, job: Job) -> None:
        """Add a job, if need be once there is room.

        Raises RequestError: 429 after `ROOM_SECONDS`, or where `MOST_OUTSIDE` wait already.
        """
        entered = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._closed:
                raise unavailable("the server is stopping")
            if self._add(job):
                return
            if len(self._outside) >= MOST_OUTSIDE:
                raise busy("too many texts are waiting")
            self._outside[job] = entered
        job.call.attach(entered)
        try:
            await asyncio.wait([entered], timeout=min(ROOM_SECONDS, job.call.remaining))
        finally:
            with self._changed:
                has_no_room = self._outside.pop(job, None) is not None
        if job.call.over():
            raise job.call.given_up()
        if has_no_room:
            raise busy("too many texts are waiting")

    def _add(self, job: Job) -> bool:
        """Add a job, under the lock; False if too many texts wait before its last."""
        if self._n_waiting >= self._max_waiting:
            self._drop_ended()
            most = max(job.left, SHARE)
            waiting = (min(other.left, most) for other in (*self._jobs, *self._postponed))
            if sum(waiting) >= self._max_waiting:
                return False
        self._jobs.append(job)
        self._note_waiting(self._n_waiting + job.left)
        self._changed.notify_all()
        return True

    def _let_in(self) -> None:
        """Add the jobs that there is room for now, under the lock."""
        for job, entered in list(self._outside.items()):
            if self._add(job):
                del self._outside[job]
                _settle((entered, None))

    def _drop_ended(self) -> None:
        self._jobs = deque(job for job in self._jobs if not job.call.over())
        self._count_waiting()

    def _count_waiting(self) -> None:
        self._note_waiting(sum(job.left for job in (*self._jobs, *self._postponed)))

    def _note_waiting(self, count: int) -> None:
        self._n_waiting = count
        self._metrics.set("waiting", count, run=self.name)

    def _work(self) -> None:
        while self._is_needed():
            try:
                with self._turn:
                    self.run = run = self._load()
            except BaseException as error:
                if not (self.is_lazy and isinstance(error, Exception)):
                    self._failed(error)
                    return
                self._refuse(error)
                continue
            self.inputs, self.options = run.inputs, run.options
            with self._changed:
                self._wanted = self._has_answered = False
                self._changed.notify_all()
            with _without_texts(), _torch_later():
                while batch := self._next_batch():
                    self._metrics.set("running", len(batch), run=self.name)
                    self._metrics.observe("batch_texts", len(batch))
                    self.used = time.monotonic()
                    self._answer(run, batch)
                    self._has_answered = True
                    self._metrics.set("running", 0, run=self.name)
            if self._closed:
                return
            del run, batch
            self.run = None
            release_memory()  # a run has cycles of references
            with self._changed:
                self._leaving = False
                self._changed.notify_all()

    def _is_needed(self) -> bool:
        """Wait until a lazy run is needed; False at the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or not self.is_lazy or self._wanted or bool(self._jobs)
            )
            return bool(self._jobs) or not (self._closed and self.is_lazy)

    def _refuse(self, error: Exception) -> None:
        """Answer the waiting requests with the error of a run that cannot be loaded."""
        known = isinstance(error, TransduceError)
        logger.error("%s: %s", self.name, error if known else place_of(error))
        with self._changed:
            jobs, self._wanted = [*self._jobs], False
            self._n_failures += 1
            self._jobs.clear()
            self._count_waiting()
            self._changed.notify_all()
        _settle(*((job.future, self._unloadable()) for job in jobs))

    def _unloadable(self) -> RequestError:
        return RequestError(500, f"run {self.name} cannot be loaded", "load")

    def _next_batch(self) -> Batch:
        """The next texts to answer; waits until there are some; empty at the end, and for a run
        that is to leave after a batch."""
        with self._changed:
            while True:
                self._drop_ended()
                self._let_in()
                if self._leaving and not self._postponed and (self._has_answered or not self._jobs):
                    return []
                if self._jobs:
                    break
                if self._closed:
                    return []
                self._changed.wait()
            shared = len(self._jobs) > 1
            batch = take_batch(self._jobs, self._shared)
            self._shared = shared
            self._count_waiting()
        for job, index in batch:
            if index == 0:
                self._metrics.observe("queue_seconds", time.monotonic() - job.queued)
        return batch

    def _answer(self, run: Worker, batch: Batch) -> None:
        """Answer a batch; where that fails, each of its requests alone."""
        observe = batch[0][0].observe
        try:
            if observe is None:
                answers = self._attempt(run, batch)
            else:
                answers = [_result(observe, run, index) for _, index in batch]
        except Exception as error:
            jobs = list(dict.fromkeys(job for job, _ in batch))
            if len(jobs) > 1:
                for job in jobs:
                    self._answer(run, [(other, index) for other, index in batch if other is job])
                return
            if isinstance(error, TorchNeededError):
                self._postpone(run, jobs[0], batch[0][1])
                return
            jobs[0].taken = len(jobs[0].inputs)
            _settle((jobs[0].future, fault_of(error, self.name)))
            return
        settled: list[Settled] = []
        for (job, index), answer in zip(batch, answers, strict=True):
            job.answers[index] = answer
            if job.is_complete:
                results = [job.answers[i] for i in range(len(job.inputs))]
                settled.append((job.future, results))
        _settle(*settled)

    def _postpone(self, run: Worker, job: Job, index: int) -> None:
        """Answer a job from an input on once PyTorch is loaded, and others meanwhile."""

        def load() -> None:
            run.load_torch()
            with self._changed:
                TORCH_LATER.discard(self._thread.ident)
                self._jobs.extendleft(reversed(self._postponed))
                self._postponed.clear()
                self._changed.notify_all()

        job.taken = index
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
            self._postponed.append(job)
            self._count_waiting()
            if len(self._postponed) == 1:
                threading.Thread(target=load, name="serve-torch", daemon=True).start()

    def _attempt(self, run: Worker, batch: Batch) -> Sequence[Answer]:
        inputs = [job.inputs[index] for job, index in batch]
        options = [job.options[index] for job, index in batch]
        first = batch[0][1] if batch[0][0].alone else 0
        answers = run.attempt(inputs, options, first, lambda i: batch[i][0].call.over())
        read, written = run.n_tokens(inputs, answers)
        self._metrics.count("tokens_total", read, side="source")
        self._metrics.count("tokens_total", written, side="target")
        return answers


@contextmanager
def _torch_later() -> Iterator[None]:
    """Let this thread not wait for PyTorch, until it is discarded from `TORCH_LATER`."""
    thread = threading.get_ident()
    TORCH_LATER.add(thread)
    try:
        yield
    finally:
        TORCH_LATER.discard(thread)


@contextmanager
def _without_texts() -> Iterator[None]:
    """Drop the warnings of this thread, which name lines of a file or quote a text."""
    thread = threading.get_ident()

    def may_log(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno >= logging.ERROR

    logger.addFilter(may_log)
    try:
        yield
    finally:
        logger.removeFilter(may_log)


def check_answers(answers: Sequence[Answer]) -> None:
    """Raise the first error among answers."""
    for answer in answers:
        if isinstance(answer, TransduceError):
            raise RequestError(400, str(answer))


def _of_each(
    options: DecodingOptions | Sequence[DecodingOptions | None] | None, inputs: Sequence[Input]
) -> Sequence[DecodingOptions | None]:
    """Options of all inputs, or of each, as those of each."""
    return options if isinstance(options, Sequence) else [options] * len(inputs)


def _result(observe: Callable[[Worker, int], Answer], run: Worker, index: int) -> Answer:
    try:
        return observe(run, index)
    except TransduceError as error:
        return error


Settled = tuple[asyncio.Future[Any], object]
"""A future and its result, or the error of a request."""


def _settle(*settled: Settled) -> None:
    """Hand results to the event loop, all at once: waking it costs more than a result."""

    def settle() -> None:
        for future, result in settled:
            if future.done():
                continue
            if isinstance(result, RequestError):
                future.set_exception(result)
            else:
                future.set_result(result)

    if settled:
        _call_soon(settled[0][0].get_loop(), settle)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> None:
    """Call a function in the event loop, if that still runs."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:  # closed meanwhile
        logger.debug("an answer came after the end of the server")
