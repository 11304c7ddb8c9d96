"""Ray actors that translate the shards of a plan, on a machine or many.

Ray schedules whole shards and retries a shard if its worker or machine dies.  Translating it twice
gives the same file, and renaming puts a single copy in place, so Ray's "at least once" becomes
"exactly once".  (Ray Data splits blocks itself, without regard to shards, and fails if an actor
of a pool cannot restart.)
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from transduce.bulk.plan import BulkPlan, Shard, TranslatorSpec, fingerprint, translate_shard
from transduce.errors import (
    DataError,
    RunError,
    SettingError,
    TransduceError,
    extra_module,
    first_line,
)
from transduce.loading import Run
from transduce.training.log import ProgressCounter

logger = logging.getLogger("transduce")

ADDRESS = "RAY_ADDRESS"
"""Ray's variable for the address of a cluster; if unset, a cluster is started on this machine."""
RETRIES = 3
"""Retries of a shard after its worker has died."""
MAX_FAILURES = 10
"""Failed shards before the job is aborted."""
MAX_MESSAGES = 10
"""Warnings shown per shard."""
OBJECT_STORE_BYTES = 80 * 2**20
"""Size of Ray's object store.  Small, as workers read and write their shards themselves."""


@dataclass
class Report:
    """Outcome of a shard, or of loading the model, in a worker."""

    lines: int = 0
    error: str = ""
    """The user's error; empty on success."""
    messages: Sequence[tuple[int, str]] = ()
    """Level and text of log messages."""


@dataclass
class Totals:
    """Progress so far."""

    shards: int = 0
    lines: int = 0
    seconds: float = 0.0
    workers: int = 0
    failures: int = 0

    @property
    def lines_per_second(self) -> float:
        """Speed of all workers together, including loading."""
        return self.lines / self.seconds if self.seconds else 0.0


class ShardWorker:
    """Load a model and translate shards in turn; run as a Ray actor."""

    def __init__(self, plan: BulkPlan) -> None:
        """plan: the plan without its shards."""
        self._plan = plan
        self._run: Run | None = None

    def ready(self) -> Report:
        """Load the model and compare it with the plan."""
        return self._reported(lambda: 0)

    def translate(self, shard: Shard) -> Report:
        """Write a shard."""
        options = self._plan.spec.options
        return self._reported(lambda: translate_shard(self._loaded(), options, shard))

    def _reported(self, work: Callable[[], int]) -> Report:
        messages = _Messages()
        ours = logging.getLogger("transduce")
        before = ours.propagate
        ours.addHandler(messages)
        ours.propagate = False
        try:
            self._loaded()
            return Report(lines=work(), messages=messages.all())
        except TransduceError as error:
            return Report(error=str(error), messages=messages.all())
        finally:
            ours.removeHandler(messages)
            ours.propagate = before

    def _loaded(self) -> Run:
        # Not at construction: Ray reports errors there as a death.  A restarted actor is new.
        if self._run is None:
            for run, known in zip(self._plan.spec.runs, self._plan.fingerprints, strict=True):
                if fingerprint(run) != known:
                    raise RunError(
                        f"{run} is missing on {socket.gethostname()} or differs from the run on "
                        "the first machine; put it on storage shared by all machines"
                    )
            self._run = self._plan.spec.load()
        return self._run


class _Messages(logging.Handler):
    """Collect the first log messages, to be logged by another process."""

    def __init__(self) -> None:
        super().__init__()
        self._said: list[tuple[int, str]] = []
        self._more = 0

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._said) < MAX_MESSAGES:
            self._said.append((record.levelno, record.getMessage()))
        else:
            self._more += 1

    def all(self) -> list[tuple[int, str]]:
        more = [(logging.WARNING, f"... and {self._more} more messages")]
        return self._said + more[: self._more]


def translate_plan(plan: BulkPlan, workers: int | None = None) -> Totals:
    """Write the remaining shards with this many workers, by default as many as fit.

    Unreadable shards are skipped and raise DataError at the end.  Raises SettingError or RunError
    if no worker can start.
    """
    if not plan.todo:  # Ray takes long to start
        return Totals()
    ray = extra_module("ray", "--ray", "scale", SettingError)
    with _connected(ray):
        pool = _Pool(ray, plan, workers)
        with ProgressCounter("translating shards", len(plan.todo)) as shown:
            return pool.work(shown)


class _Pool:
    """Actors and the shard assigned to each."""

    def __init__(self, ray: Any, plan: BulkPlan, workers: int | None) -> None:
        self._ray = ray
        self._plan = plan
        self._waiting = deque(plan.todo)
        self._totals = Totals()
        self._first_error = ""
        spec = _placed(plan.spec, ray.cluster_resources())
        gpus = int(spec.device != "cpu")
        room = _room(ray.cluster_resources(), spec.threads, gpus)
        count = min(workers or room, len(plan.todo))
        if not count:
            raise SettingError(f"no machine has room for a worker with {spec.threads} threads")
        if count > room:
            logger.info("room for %d of %d workers; the others wait", room, count)
        actor = ray.remote(ShardWorker).options(
            num_cpus=spec.threads, num_gpus=gpus, max_restarts=-1, max_task_retries=RETRIES
        )
        bare = replace(plan, spec=spec, shards=(), todo=())
        actors = [actor.remote(bare) for _ in range(count)]
        # A shard is given to an actor that has begun, never to one that waits for room.
        self._busy: dict[Any, tuple[Any, Shard | None]] = {
            actor.ready.remote(): (actor, None) for actor in actors
        }
        self._left = len(plan.todo)

    def work(self, shown: ProgressCounter) -> Totals:
        begin = time.monotonic()
        while self._left:
            (done,), _ = self._ray.wait(list(self._busy), num_returns=1)
            actor, shard = self._busy.pop(done)
            report = self._outcome(done, shard)
            for level, message in report.messages:
                logger.log(level, "%s", message)
            if shard is None:
                if report.error:
                    raise RunError(report.error)
                self._totals.workers += 1
            else:
                self._settle(shard, report)
                shown.to(len(self._plan.todo) - self._left)
            if self._waiting:
                following = self._waiting.popleft()
                self._busy[actor.translate.remote(following)] = (actor, following)
            else:
                self._ray.kill(actor)  # a restarted one may wait for its resources
            self._totals.seconds = time.monotonic() - begin
        if self._first_error:
            raise DataError(
                f"{self._totals.failures} of {len(self._plan.todo)} shards failed, the others are "
                f"complete; first error: {self._first_error}"
            )
        return self._totals

    def _outcome(self, done: Any, shard: Shard | None) -> Report:
        errors = self._ray.exceptions
        try:
            report: Report = self._ray.get(done)
            return report
        except errors.RayTaskError:
            raise  # a bug of ours, with its traceback
        except errors.RayError as error:
            what = "the model cannot be loaded" if shard is None else shard.source
            died = f"the worker died {RETRIES + 1} times"
            return Report(error=f"{what}: {died}; {first_line(error)}")

    def _settle(self, shard: Shard, report: Report) -> None:
        self._left -= 1
        if not report.error:
            self._totals.shards += 1
            self._totals.lines += report.lines
            return
        self._totals.failures += 1
        named = shard.source in report.error
        error = report.error if named else f"{shard.source}: {report.error}"
        self._first_error = self._first_error or error
        logger.error("%s", error)
        if self._totals.failures >= MAX_FAILURES:
            raise DataError(f"stopped after {MAX_FAILURES} failed shards; last error: {error}")


def _placed(spec: TranslatorSpec, resources: dict[str, float]) -> TranslatorSpec:
    """The translator with a device chosen: a GPU if the cluster has any."""
    if spec.device == "auto":
        return replace(spec, device="cuda" if resources.get("GPU") else "cpu")
    if spec.device != "cpu" and not resources.get("GPU"):
        raise SettingError(f"--device {spec.device}: no machine in the cluster has a GPU")
    # Of its machine's GPUs a worker sees only that which Ray gives it.
    return replace(spec, device=spec.device.partition(":")[0])


def _room(resources: dict[str, float], threads: int, gpus: int) -> int:
    by_cores = int(resources.get("CPU", 0) // threads)
    return min(by_cores, int(resources.get("GPU", 0) // gpus)) if gpus else by_cores


@contextmanager
def _connected(ray: Any) -> Iterator[None]:
    """Connect to the cluster in RAY_ADDRESS, or to a new cluster for this job."""
    # What Ray will do by default: leave CUDA_VISIBLE_DEVICES alone where no GPU is asked for.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    settings = {"logging_level": logging.ERROR, "log_to_driver": False}
    address = os.environ.get(ADDRESS, "local")
    try:
        if address == "local":
            ray.init(
                "local",
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **settings,
            )
        else:
            ray.init(address, **settings)
    except Exception as error:
        # Ray raises bare exceptions where a machine is too busy for it to start in time.
        ray.shutdown()  # for everything started so far
        where = f"{ADDRESS}={address}"
        raise RunError(f"cannot start or reach Ray ({where}): {first_line(error)}") from None
    # Ray's own handler ends the process with the code 15.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # where Ray tells of workers that died
            yield
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)
