"""Data-parallel training by several processes, as `torchrun` starts them.

Data parallel: each rank has the whole model and its own share of the batches of a step.  Gradients
are of sums over tokens, divided by the tokens of all ranks before they are added up, so a token
weighs the same wherever it was.  What ranks decide they decide together: the same numbers are
handed round, and each comes to the same conclusion.  The main process alone writes and logs.

Raises, from everything that is done together, TrainingError where another rank has ended.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from transduce.data.batches import DataState, RankDataState
from transduce.errors import SettingError, TrainingError, is_out_of_memory

T = TypeVar("T")

PATIENCE = datetime.timedelta(days=1)
"""For the others while one prepares data or validates; a rank that ends is noticed at once."""
BUCKET = 1 << 24
"""Elements of the gradient that are sent together: many enough to be fast, few enough to hold."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a training: how many there are, and which of them this one is, from 0."""

    rank: int = 0
    world: int = 1

    @staticmethod
    def present() -> Ranks:
        """Those that this process has joined."""
        if not (dist.is_available() and dist.is_initialized()):
            return Ranks()
        return Ranks(dist.get_rank(), dist.get_world_size())

    @property
    def is_main(self) -> bool:
        """Whether this process writes the run directory and logs."""
        return self.rank == 0

    def data_state(self, state: DataState) -> DataState:
        """From a place in the data on, those batches that fall to this rank."""
        if self.world == 1:
            return state
        return RankDataState(state.epoch, state.position, self.rank, self.world)

    def gather_step(self, tokens: int, after: DataState) -> tuple[int, DataState]:
        """Target tokens of all ranks in a step, and the place in the data after all its batches.

        tokens, after: those of this rank.
        """
        if self.world == 1:
            return tokens, after
        found = self.gather(tokens, after.epoch, after.position)
        _, epoch, position = found[-1]  # whose turn was last
        return int(sum(count for count, *_ in found)), DataState(int(epoch), int(position))

    def seed_rank(self, step: int = 0) -> None:
        """Go on with random numbers that no other rank has; the first keeps its own at step 0."""
        if self.rank or step:
            mixed = np.random.SeedSequence([torch.initial_seed(), step, self.rank])
            torch.manual_seed(int(mixed.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    def check_device(self, model: nn.Module) -> None:
        """Raises SettingError where two ranks of a machine would share a GPU."""
        device = next(model.parameters()).device
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if self.world > 1 and device.type == "cuda" and device.index != local:
            raise SettingError(
                f"process {local} of this machine would train on {device}, which is another's; "
                f"leave training.device at 'auto' and give torchrun --nproc-per-node "
                f"{torch.cuda.device_count()}"
            )

    def barrier(self) -> None:
        """Until all ranks are here."""
        self.gather()

    def gather(self, *numbers: float) -> list[tuple[float, ...]]:
        """The numbers of each rank."""
        if self.world == 1:
            return [numbers]
        own = torch.tensor([*numbers, 0.0], dtype=torch.float64)  # never empty
        return [tuple(part[:-1].tolist()) for part in self._parts(own)]

    def all_reduce_sum(self, *numbers: float) -> list[float]:
        """Each number summed over the ranks."""
        return [sum(column) for column in zip(*self.gather(*numbers), strict=True)]

    def all_reduce_max(self, *numbers: float) -> list[float]:
        """The largest that any rank has of each number."""
        return [max(column) for column in zip(*self.gather(*numbers), strict=True)]

    def gather_bytes(self, own: Tensor) -> list[Tensor]:
        """The bytes of each rank: tensors (n,) uint8, whose lengths may differ."""
        if self.world == 1:
            return [own]
        sizes = [int(size) for (size,) in self.gather(len(own))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(own)] = own
        parts = self._parts(padded)
        return [part[:size] for part, size in zip(parts, sizes, strict=True)]

    def gather_values(self, value: T) -> list[T]:
        """What each rank has, made of what JSON has."""
        if self.world == 1:
            return [value]
        own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        return [json.loads(part.numpy().tobytes()) for part in self.gather_bytes(own)]

    def broadcast_from_main(self, make: Callable[[], T]) -> T:
        """What the first rank makes, of what JSON has; the others wait for it."""
        return self.gather_values(make() if self.is_main else None)[0]  # type: ignore[return-value]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of all ranks; each has the same sums, to the last bit.

        A parameter is left without a gradient where no rank has one.
        """
        if self.world == 1:
            return
        bucket: list[nn.Parameter] = []
        for parameter in parameters:
            if not parameter.requires_grad:
                continue
            if bucket and sum(p.numel() for p in bucket) + parameter.numel() > BUCKET:
                self._sum_bucket(bucket)
                bucket = []
            bucket.append(parameter)
        if bucket:
            self._sum_bucket(bucket)

    def sum_into(self, tensor: Tensor) -> Tensor:
        """The tensor, with those of all ranks added; each has the same sums, to the last bit."""
        if self.world > 1:
            with self._together():
                dist.all_reduce(tensor)
        return tensor

    def check_same(self, checksum: Callable[[], str]) -> None:
        """Raises TrainingError unless all ranks have weights of one checksum.

        It is made only where there are several.
        """
        if self.world > 1 and len(set(self.gather_values(checksum()))) > 1:
            raise self.error_on_main(
                TrainingError(
                    "the processes of this training no longer have the same weights, which points "
                    "to different software or a fault of one machine; go on with --resume"
                )
            )

    def error_on_main(self, error: Exception, code: int = 1) -> BaseException:
        """The exception to raise where all ranks stop alike, so that one message appears."""
        return error if self.is_main else SystemExit(code)

    def _parts(self, own: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(own) for _ in range(self.world)]
        with self._together():
            dist.all_gather(parts, own)
        return parts

    @torch.no_grad()
    def _sum_bucket(self, parameters: list[nn.Parameter]) -> None:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        there = gradients[0].new_tensor([float(p.grad is not None) for p in parameters])
        flat = torch.cat([*(g.reshape(-1) for g in gradients), there])
        self.sum_into(flat)
        sizes = [*(g.numel() for g in gradients), len(parameters)]
        *sums, there = torch.split(flat, sizes)
        for parameter, total, ranks in zip(parameters, sums, there.tolist(), strict=True):
            if ranks:
                parameter.grad = total.view_as(parameter)

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise self.lost() from None

    def lost(self) -> BaseException:
        """What to raise where another rank has ended."""
        return self.error_on_main(
            TrainingError(
                "another process of this training has ended, so this one ends too; go on with "
                "--resume"
            )
        )


def restarts() -> int:
    """How often torchrun has started this training again, after one of its processes died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def job_name() -> str:
    """What torchrun keeps through all restarts: the name of the job, or its own process."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return f"{os.uname().nodename} {os.getppid()}" if name == "none" else name


def is_main_process() -> bool:
    """Whether this process may write to stdout: the first of those of torchrun, or the only one."""
    return not _started_together() or os.environ["RANK"] == "0"


def check_single_process(work: str) -> None:
    """Raises SettingError under torchrun, of whose processes each would do all of this work.

    That is said by the first one; the others end.
    """
    if _started_together():
        alone = SettingError(
            f"torchrun is for `transduce train`: {work} without it; a run that has begun can then "
            "be gone on with by `torchrun ... -m -- transduce train RUN --run RUN --resume`"
        )
        raise alone if is_main_process() else SystemExit(alone.exit_code)


@contextlib.contextmanager
def process_group() -> Iterator[Ranks]:
    """The ranks that torchrun started, joined for as long as the context lasts.

    Without torchrun, and for one process, nothing is set up.  Raises TrainingError where they do
    not reach each other.
    """
    if not _started_together() or Ranks.present().world > 1:
        yield Ranks.present()
        return
    backend = "gloo"
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(min(local, torch.cuda.device_count() - 1))
    try:
        dist.init_process_group(backend, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"the processes that torchrun started do not reach each other: {error}; if this is a "
            "restart by --max-restarts, set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun"
        ) from None
    ranks = Ranks.present()
    logger = logging.getLogger("transduce")
    level = logger.level
    if not ranks.is_main:
        logger.setLevel(logging.ERROR)
    try:
        yield ranks
    except RuntimeError as error:  # in what PyTorch's own parts do together
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise ranks.lost() from None
        raise
    finally:
        logger.setLevel(level)
    # After an error the process ends, and with it its connections, which tells the others.
    with ranks._together():
        dist.barrier()  # none hangs up while another may still be listening
    dist.destroy_process_group()


def _started_together() -> bool:
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return all(name in os.environ for name in names) and os.environ["WORLD_SIZE"] != "1"
