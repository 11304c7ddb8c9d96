"""Ray actors that translate the shards of a plan, on a machine or many.

A shard whose worker dies goes back to the queue; its worker gets no other before Ray has started it
again.  Translating a shard twice gives the same file, and renaming puts a single copy in place.
(Ray Data splits blocks itself, without regard to shards, and fails if an actor of a pool cannot
restart.)
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter, defaultdict, deque
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
TOKENS = "RAY_AUTH_MODE"
"""Ray's variable for its authentication: "token", or "disabled"."""
DEATHS = 4
"""Deaths of its workers, on two machines if there are two, before a shard fails."""
MAX_DEATHS = 10
"""Deaths of its workers before a shard fails in any case."""
SILENCE = 60.0
"""Seconds without news before the log says what the job waits for."""
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
    machine: str = ""
    """Ray's name of the node, in brackets after the name of the machine."""


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
            return Report(work(), messages=messages.all(), machine=_machine())
        except TransduceError as error:
            return Report(error=str(error), messages=messages.all(), machine=_machine())
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


def _machine() -> str:
    import ray

    return f"{socket.gethostname()} ({ray.get_runtime_context().get_node_id()[:8]})"


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


@dataclass
class _Worker:
    """An actor, the machine that it last ran on, and its shard."""

    actor: Any
    machine: str = ""
    shard: Shard | None = None
    deaths: int = 0


class _Pool:
    """Workers, the shards that wait for one, and the deaths that each shard has seen."""

    def __init__(self, ray: Any, plan: BulkPlan, workers: int | None) -> None:
        self._ray = ray
        self._plan = plan
        self._waiting = deque(plan.todo)
        self._totals = Totals()
        self._first_error = ""
        self._deaths: defaultdict[str, Counter[str]] = defaultdict(Counter)  # of shards, by machine
        self._done: Counter[str] = Counter()  # shards, by machine
        spec = _placed(plan.spec, ray.cluster_resources())
        gpus = int(spec.device != "cpu")
        room = _room(ray.cluster_resources(), spec.threads, gpus)
        count = min(workers or room, len(plan.todo))
        if not count:
            raise SettingError(f"no machine has room for a worker with {spec.threads} threads")
        if count > room:
            logger.info("room for %d of %d workers; the others wait", room, count)
        actor = ray.remote(ShardWorker).options(
            num_cpus=spec.threads, num_gpus=gpus, max_restarts=-1, max_task_retries=0
        )
        bare = replace(plan, spec=spec, shards=(), todo=())
        self._idle: list[_Worker] = []
        self._busy: dict[Any, _Worker] = {}
        for _ in range(count):
            self._start(_Worker(actor.remote(bare)))
        self._left = len(plan.todo)

    def work(self, shown: ProgressCounter) -> Totals:
        """Translate all shards; `shown` counts those that are done."""
        begin = time.monotonic()
        while self._left:
            done, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=SILENCE)
            for call in done:
                self._ended(call, self._busy.pop(call))
            if not done and not any(worker.shard for worker in self._busy.values()):
                logger.info("waiting for a machine with room for a worker")
            self._assign()
            shown.to(len(self._plan.todo) - self._left)
            self._totals.seconds = time.monotonic() - begin
        died = sum(self._deaths.values(), Counter[str]())
        machines = sorted({*self._done, *died})
        for machine in machines if len(machines) > 1 or died else ():
            counts = self._done[machine], died[machine]
            logger.info("%s: %d shards, %d deaths of workers", machine, *counts)
        if self._first_error:
            raise DataError(
                f"{self._totals.failures} of {len(self._plan.todo)} shards failed, the others are "
                f"complete; first error: {self._first_error}"
            )
        return self._totals

    def _start(self, worker: _Worker) -> None:
        # A shard is given to an actor that has begun, never to one that waits for room.
        # Where the model has been loaded once, Ray repeats the call until the actor lives.
        retries = -1 if self._totals.workers else DEATHS - 1
        ready = worker.actor.ready.options(max_task_retries=retries)
        self._busy[ready.remote()] = worker

    def _assign(self) -> None:
        """Give waiting shards to idle workers, if possible where none died over the shard."""
        while self._waiting and self._idle:
            pairs = ((w, s) for w in self._idle for s in self._waiting)
            first = (self._idle[0], self._waiting[0])
            worker, shard = next(
                (pair for pair in pairs if not self._deaths[pair[1].source][pair[0].machine]), first
            )
            self._idle.remove(worker)
            self._waiting.remove(shard)
            worker.shard = shard
            self._busy[worker.actor.translate.remote(shard)] = worker

    def _ended(self, call: Any, worker: _Worker) -> None:
        """Take the outcome of a worker's call."""
        shard, worker.shard = worker.shard, None
        errors = self._ray.exceptions
        try:
            report: Report = self._ray.get(call)
        except errors.RayTaskError:
            raise  # a bug of ours, with its traceback
        except errors.RayError as error:
            self._died(worker, shard, first_line(error))
            return
        for level, message in report.messages:
            logger.log(level, "%s", message)
        worker.machine = report.machine
        self._idle.append(worker)
        if shard is not None:
            self._settle(shard, report)
        elif report.error:
            raise RunError(report.error)
        elif not worker.deaths:
            self._totals.workers += 1

    def _died(self, worker: _Worker, shard: Shard | None, error: str) -> None:
        worker.deaths += 1
        if shard is None:
            if not self._totals.workers:
                raise RunError(
                    f"the model cannot be loaded: the worker died {DEATHS} times; {error}"
                )
            self._start(worker)
            return
        deaths = self._deaths[shard.source]
        deaths[worker.machine] += 1
        logger.warning("%s: a worker died on %s", shard.source, worker.machine)
        machines = {each.machine for each in (*self._idle, *self._busy.values())} - {""}
        everywhere = len(deaths) >= min(2, len(machines | {worker.machine}))
        if deaths.total() >= MAX_DEATHS or (deaths.total() >= DEATHS and everywhere):
            where = ", ".join(deaths)
            self._settle(shard, Report(error=f"its worker died {deaths.total()} times on {where}"))
        else:
            self._waiting.appendleft(shard)
        self._start(worker)

    def _settle(self, shard: Shard, report: Report) -> None:
        self._left -= 1
        if not report.error:
            self._done[report.machine] += 1
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
        message = f"cannot start or reach Ray ({ADDRESS}={address}): {first_line(error)}"
        if address == "local":
            message += "; run it again when this machine is less busy, or without --ray"
        elif os.environ.get(TOKENS, "").lower() != "token":
            message += (
                f"; a cluster that asks for a token needs {TOKENS}=token here and on each machine, "
                "with the first machine's ~/.ray/auth_token (docs/scaling.md)"
            )
        raise RunError(message) from None
    # Ray's own handler ends the process with the code 15.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with contextlib.redirect_stdout(sys.stderr):  # where Ray tells of workers that died
        try:
            yield
        finally:
            ray.shutdown()
            signal.signal(signal.SIGTERM, before)
