"""Ray actors that translate the shards of a plan, on one machine or many.

A whole shard is what Ray runs and, when a worker or its machine dies, runs again: translating a
shard twice gives the same file twice, and renaming puts one of them there, so that Ray's promise
"at least once" becomes "exactly once".  (Ray Data cuts its blocks anew as it likes, and knows
nothing of shards; nor does it go on when an actor of a pool cannot come back.)
"""

from __future__ import annotations

import contextlib
import importlib
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

from transduce.bulk.plan import BulkPlan, fingerprint
from transduce.bulk.shards import Shard, TranslatorSpec, translate_shard
from transduce.errors import (
    DataError,
    RunError,
    SettingError,
    TransduceError,
    first_line,
    needs_extra,
)
from transduce.run import Run
from transduce.training.display import ProgressCounter

logger = logging.getLogger("transduce")

ADDRESS = "RAY_ADDRESS"
"""Ray's own variable: the cluster to work on; without it one is started on this machine."""
RETRIES = 3
"""How often a shard is begun again whose worker has died."""
MAX_FAILURES = 10
"""Shards that may fail before the work is given up."""
MAX_MESSAGES = 10
"""Warnings about one shard that are shown."""
OBJECT_STORE_BYTES = 80 * 2**20
"""Nothing large goes through Ray: workers read and write their shards themselves."""


@dataclass
class Report:
    """How a worker fared with a shard, or with loading its model."""

    lines: int = 0
    error: str = ""
    """What a user can mend; empty where all went well."""
    messages: Sequence[tuple[int, str]] = ()
    """Level and text of what was logged."""


@dataclass
class Totals:
    """What has been done."""

    shards: int = 0
    lines: int = 0
    seconds: float = 0.0
    workers: int = 0
    failures: int = 0

    @property
    def lines_per_second(self) -> float:
        """Of all workers together, loading included."""
        return self.lines / self.seconds if self.seconds else 0.0


class Worker:
    """Holds a model and translates one shard after the other; Ray makes an actor of it."""

    def __init__(self, plan: BulkPlan) -> None:
        """plan: without its shards."""
        self._plan = plan
        self._run: Run | None = None

    def ready(self) -> Report:
        """Load the model, which must be that of the plan, wherever this is."""
        return self._reported(lambda: 0)

    def translate(self, shard: Shard) -> Report:
        """Write one shard."""
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
        # Not at construction: what that raises, Ray tells as a death.  A restarted actor is new.
        if self._run is None:
            for run, known in zip(self._plan.spec.runs, self._plan.fingerprints, strict=True):
                if fingerprint(run) != known:
                    raise RunError(
                        f"{run} is missing on {socket.gethostname()}, or another model than where "
                        "the work was begun; put it where all machines see the same"
                    )
            self._run = self._plan.spec.load()
        return self._run


class _Messages(logging.Handler):
    """Keeps what is logged, the first of it, to be said by another process."""

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
        more = [(logging.WARNING, f"... and {self._more} more such messages")]
        return self._said + more[: self._more]


def translate_plan(plan: BulkPlan, workers: int | None = None) -> Totals:
    """Write the shards that are left, by so many workers: by default as many as there is room for.

    Goes on past shards that cannot be read, and raises DataError for them at the end.  Raises
    SettingError or RunError where no worker can begin.
    """
    if not plan.todo:  # Ray takes long to start
        return Totals()
    ray = _ray()
    with _connected(ray):
        pool = _Pool(ray, plan, workers)
        with ProgressCounter("translating shards", len(plan.todo)) as shown:
            return pool.work(shown)


class _Pool:
    """Actors, and which shard each is at."""

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
            raise SettingError(f"no machine has room for a worker of {spec.threads} threads")
        if count > room:
            logger.info("there is room for %d of %d workers; others wait for it", room, count)
        actor = ray.remote(Worker).options(
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
                self._ray.kill(actor)  # its room may be what a restarted one waits for
            self._totals.seconds = time.monotonic() - begin
        if self._first_error:
            raise DataError(
                f"{self._totals.failures} of {len(self._plan.todo)} shards failed, the others are "
                f"done; {self._first_error}"
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
            raise DataError(f"given up after {MAX_FAILURES} shards that failed; {error}")


def _placed(spec: TranslatorSpec, resources: dict[str, float]) -> TranslatorSpec:
    """The translator with its device chosen: a GPU where the cluster has any."""
    if spec.device == "auto":
        return replace(spec, device="cuda" if resources.get("GPU") else "cpu")
    if spec.device != "cpu" and not resources.get("GPU"):
        raise SettingError(f"--device {spec.device}: no machine of the cluster has a GPU")
    # Of its machine's GPUs a worker sees only that which Ray gives it.
    return replace(spec, device=spec.device.partition(":")[0])


def _room(resources: dict[str, float], threads: int, gpus: int) -> int:
    by_cores = int(resources.get("CPU", 0) // threads)
    return min(by_cores, int(resources.get("GPU", 0) // gpus)) if gpus else by_cores


@contextmanager
def _connected(ray: Any) -> Iterator[None]:
    """Ray at hand: the cluster that RAY_ADDRESS names, or one for this work alone."""
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
        ray.shutdown()  # of what was started so far
        where = f"{ADDRESS}={address}"
        raise RunError(f"Ray cannot be had ({where}): {first_line(error)}") from None
    # Ray's own handler ends the process with the code 15.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # where Ray tells of workers that died
            yield
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise SettingError(needs_extra("--ray", "scale")) from None
