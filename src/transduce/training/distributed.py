"""Training by several processes, as `torchrun` starts them: data-parallel, or fully sharded
(FSDP2).

Each rank has the whole model and a share of the batches of a step.  Gradients are sums, divided by
the tokens of all ranks before the reduction, so that every token has the same weight.  Decisions
are taken from shared numbers.  Collective calls raise TrainingError if another rank has ended.

A Transformer layer is gathered just before its forward and backward pass and released afterwards,
all other parameters for a whole batch.  A sharded tensor is a `DTensor` with the `shape` of the
whole.  On disk, each rank writes its own part; any number of ranks can read them.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from transduce.data.batches import DataState, RankDataState
from transduce.errors import RunError, SettingError, TrainingError, is_out_of_memory
from transduce.nn.attention import CrossAttention
from transduce.nn.transformer import DecoderLayer, EncoderLayer
from transduce.training.config import TrainingConfig
from transduce.training.loss import LossSums
from transduce.training.signals import watch
from transduce.training.task import TrainingTask

T = TypeVar("T")

PATIENCE = datetime.timedelta(days=1)
"""Timeout of ranks waiting for data preparation or validation; a rank's end is noticed at once."""
BUCKET = 1 << 24
"""Gradient elements per message: large enough for speed, small enough for memory."""


@dataclass(frozen=True)
class Ranks:
    """Processes of a training run: their number, and the own index, from 0."""

    rank: int = 0
    world: int = 1

    @staticmethod
    def present() -> Ranks:
        """Ranks joined by this process."""
        if not (dist.is_available() and dist.is_initialized()):
            return Ranks()
        return Ranks(dist.get_rank(), dist.get_world_size())

    @property
    def is_main(self) -> bool:
        """True for the process that writes the run directory and logs."""
        return self.rank == 0

    def data_state(self, state: DataState) -> DataState:
        """Batches of this rank, from a position in the data on."""
        if self.world == 1:
            return state
        return RankDataState(state.epoch, state.position, self.rank, self.world)

    def gather_step(self, tokens: int, after: DataState) -> tuple[int, DataState]:
        """Target tokens of a step over all ranks, and the position in the data after it."""
        if self.world == 1:
            return tokens, after
        reports = self.gather(tokens, after.epoch, after.position)
        _, epoch, position = reports[-1]  # whose turn was last
        return int(sum(count for count, *_ in reports)), DataState(int(epoch), int(position))

    def seed_rank(self, step: int = 0) -> None:
        """Give each rank its own random numbers; the main process keeps its own at step 0."""
        if self.rank or step:
            mixed = np.random.SeedSequence([torch.initial_seed(), step, self.rank])
            torch.manual_seed(int(mixed.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    def check_device(self, model: nn.Module) -> None:
        """Raises SettingError if two ranks of a machine would share a GPU."""
        device = next(model.parameters()).device
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if self.world > 1 and device.type == "cuda" and device.index != local:
            raise SettingError(
                f"local process {local} would share {device} with another process; set "
                f"training.device = 'auto' and start torchrun with --nproc-per-node "
                f"{torch.cuda.device_count()}"
            )

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.gather()

    def gather(self, *numbers: float) -> list[tuple[float, ...]]:
        """Gather the numbers of all ranks."""
        if self.world == 1:
            return [numbers]
        local = torch.tensor([*numbers, 0.0], dtype=torch.float64)  # never empty
        parts = [torch.empty_like(local) for _ in range(self.world)]
        with self._together():
            dist.all_gather(parts, local)
        return [tuple(part[:-1].tolist()) for part in parts]

    def all_reduce_sum(self, *numbers: float) -> list[float]:
        """Sum each number over the ranks."""
        return [sum(column) for column in zip(*self.gather(*numbers), strict=True)]

    def all_reduce_max(self, *numbers: float) -> list[float]:
        """Maximum of each number over the ranks."""
        return [max(column) for column in zip(*self.gather(*numbers), strict=True)]

    def gather_values(self, value: T) -> list[T]:
        """Gather a value of any kind from each rank."""
        values = [value] * self.world
        if self.world > 1:
            with self._together():
                dist.all_gather_object(values, value)
        return values

    def broadcast_from_main(self, make: Callable[[], T]) -> T:
        """Broadcast a value made by the main process; the others wait."""
        return self.gather_values(make() if self.is_main else None)[0]  # type: ignore[return-value]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients of all ranks, bitwise identical; none where no rank has any."""
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
        """Sum a tensor over all ranks; the results are bitwise identical."""
        if self.world > 1:
            with self._together():
                dist.all_reduce(tensor)
        return tensor

    def check_same(self, checksum: Callable[[], str]) -> None:
        """Raises TrainingError unless the checksums of weights agree on all ranks."""
        if self.world > 1 and len(set(self.gather_values(checksum()))) > 1:
            raise self.error_on_main(
                TrainingError(
                    "the weights of the training processes have diverged, probably by different "
                    "software versions or a hardware fault; continue with --resume"
                )
            )

    def error_on_main(self, error: Exception, code: int = 1) -> BaseException:
        """Exception to raise on all ranks, so that one message appears."""
        return error if self.is_main else SystemExit(code)

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
            with watch.call():
                yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise self.lost() from None

    def lost(self) -> BaseException:
        """Exception to raise if another rank has ended."""
        return self.error_on_main(
            TrainingError(
                "another training process has ended, so this one stops too; continue with --resume"
            )
        )


def restarts() -> int:
    """Number of restarts by torchrun after a process has died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def job_name() -> str:
    """Name of the torchrun job, which survives restarts: its own, or the launcher's process."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return f"{platform.node()} {os.getppid()}" if name == "none" else name


def restarts_can_follow() -> bool:
    """True under torchrun, which starts processes again after a death."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_main_process() -> bool:
    """True if this process may write to stdout: the first of torchrun's, or the only process."""
    return not _started_together() or os.environ["RANK"] == "0"


def check_single_process(work: str) -> None:
    """Raises SettingError, or exits but for the main process, under torchrun."""
    if _started_together():
        alone = SettingError(
            f"torchrun is only for `transduce train`: {work} without it, and continue an existing "
            "run with `torchrun ... -m -- transduce train RUN --run RUN --resume`"
        )
        raise alone if is_main_process() else SystemExit(alone.exit_code)


def _leave_for_torchrun(message: str | None) -> None:
    """Leave a message that torchrun prints at the end of its report if this process fails; None
    takes it back.  Without torchrun nothing happens."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    with contextlib.suppress(OSError):  # the report then lacks it
        if message is None:
            Path(file).unlink()
        else:
            more = {"py_callstack": message, "timestamp": str(int(time.time()))}
            report = {"message": {"message": message, "extraInfo": more}}
            Path(file).write_text(json.dumps(report), encoding="utf-8", newline="\n")


@contextlib.contextmanager
def process_group() -> Iterator[Ranks]:
    """Join the ranks started by torchrun within the context; without it, and for a single process,
    nothing is set up.  Raises TrainingError if they cannot connect."""
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
            f"the processes started by torchrun cannot connect: {error}; after a restart by "
            "--max-restarts, set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun"
        ) from None
    ranks = Ranks.present()
    logger = logging.getLogger("transduce")
    level = logger.level
    if not ranks.is_main:
        logger.setLevel(logging.ERROR)
    _leave_for_torchrun(
        f"transduce: process {ranks.rank} of training was killed; continue with --resume"
    )
    try:
        yield ranks
    except RuntimeError as error:  # in PyTorch's own collectives
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise ranks.lost() from None
        raise
    finally:
        _leave_for_torchrun(None)
        logger.setLevel(level)
    # After an error the process ends, and with it its connections, which tells the others.
    with ranks._together():
        dist.barrier()  # none hangs up while another may still be listening
    dist.destroy_process_group()


def _started_together() -> bool:
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return all(name in os.environ for name in names) and os.environ["WORLD_SIZE"] != "1"


class _Root(nn.Module):
    """Wrapper that runs every loss computation inside its `forward`, where weights are gathered."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[], T]) -> T:
        return compute()


class Shards:
    """Task with a model sharded over all ranks, which compute equally often."""

    def __init__(self, task: TrainingTask) -> None:
        """Shard the model in place; it is the same on all ranks, and without an optimizer."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        # Linear layers return views, which are never written to.
        warnings.filterwarnings("ignore", r"FSDP2-wrapped module .* returned a view tensor")
        self._task = task
        device = next(task.model.parameters()).device.type
        mesh = init_device_mesh(device, (Ranks.present().world,))
        self._root = _Root(task.model)
        for module in (*_units(task.model), self._root):
            fully_shard(module, mesh=mesh)
        self._parts = [m for m in self._root.modules() if isinstance(m, FSDPModule)]
        for part in self._parts:
            # Sums, not means: a loss is divided by the tokens of all ranks already.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
            # Parameters unused by one rank's batches may be used by another's.
            part.set_reduce_scatter_unused_params(True, recurse=False)
        with torch.no_grad():  # which tells all parts that this is the root
            self._root(lambda: None)
        self._parts[0].reset_iter_state()

    def loss(self, batch: Any) -> LossSums:
        """Loss of the task; backward gives each rank the summed gradient of its own part."""
        return self._root(lambda: self._task.loss(batch))  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Gather all weights on each rank within the context; they must not be changed."""
        for part in self._parts:
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        try:
            yield
        finally:
            for part in self._parts[1:]:  # the first is the root
                part.set_reshard_after_forward(True, recurse=False)
            self._parts[0].reset_iter_state()


def is_enabled(config: TrainingConfig) -> bool:
    """True for sharding over several ranks.  Raises SettingError for incompatible settings."""
    if config.sharding == "none" or Ranks.present().world == 1:
        return False
    from torch.distributed.fsdp import FSDPModule

    if not hasattr(FSDPModule, "reset_iter_state"):
        raise SettingError(
            f"training.sharding = 'full' needs a newer PyTorch than {torch.__version__}"
        )
    if config.compile:
        raise SettingError(
            "training.compile cannot be combined with training.sharding = 'full'; change one"
        )
    return True


def _units(model: nn.Module) -> list[nn.Module]:
    """Modules gathered as units, inner modules first. Each is used only through its `forward`."""
    modules = list(model.modules())
    # A memory is projected before the layers are run.
    projections = [m.key_value for m in modules if isinstance(m, CrossAttention)]
    layers = [m for m in modules if isinstance(m, EncoderLayer | DecoderLayer)]
    return [*projections, *layers]


def own_part(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor; all of it if not sharded."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def gathered(tensor: Tensor) -> Tensor:
    """Whole tensor; a collective call."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gathered_on_main(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors, on the main process only, in CPU memory if sharded."""
    first, on_cpu = Ranks.present().is_main, {}
    for name, tensor in tensors.items():
        whole = gathered(tensor)
        if first:
            on_cpu[name] = whole if whole is tensor else whole.cpu()
    return on_cpu


@torch.no_grad()
def assign(tensor: Tensor, value: Tensor) -> None:
    """Copy a whole value into a tensor, or this rank's part of it."""
    tensor.copy_(sharded_like(tensor, value))


def sharded_like(tensor: Tensor, value: Tensor) -> Tensor:
    """Shard a value, known to all ranks, like the tensor."""
    if not hasattr(tensor, "device_mesh") or hasattr(value, "device_mesh"):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(tensor, DTensor)
    whole, mesh = value.to(tensor.device), tensor.device_mesh
    return distribute_tensor(whole, mesh, tensor.placements, src_data_rank=None)


def is_sharded(tensors: Mapping[str, Tensor]) -> bool:
    """True if any tensor is sharded."""
    return any(hasattr(tensor, "device_mesh") for tensor in tensors.values())


def write_shards(directory: Path, tensors: Mapping[str, Tensor]) -> list[Path]:
    """Write own parts of tensors; returns their files.  Raises RunError on all ranks."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    writer = HuggingFaceStorageWriter(str(directory), save_distributed=True)
    with _as_run_error(directory, "written"):
        save(dict(tensors), storage_writer=writer)
    return sorted(directory.glob(f"shard-{Ranks.present().rank + 1:05d}-*"))


def shapes_of_shards(directory: Path) -> dict[str, Tensor]:
    """Whole tensors of a directory of shards, without values."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    with _as_run_error(directory, "read"):
        stored = HuggingFaceStorageReader(str(directory)).read_metadata().state_dict_metadata
    return {
        name: torch.empty(meta.size, dtype=meta.properties.dtype, device="meta")
        for name, meta in stored.items()
        if isinstance(meta, TensorStorageMetadata)  # there is nothing else
    }


def read_shards(directory: Path, into: Mapping[str, Tensor]) -> None:
    """Fill tensors, sharded or whole, from a directory of shards, written by any number of ranks; a
    collective call if any is sharded.  Raises RunError if reading fails."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    alone = not is_sharded(into)
    with _as_run_error(directory, "read"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        reader = HuggingFaceStorageReader(str(directory))
        load(dict(into), storage_reader=reader, no_dist=alone)


@contextlib.contextmanager
def _as_run_error(directory: Path, done: str) -> Iterator[None]:
    import safetensors
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        reason = next(iter(error.failures.values()))[0]
        raise RunError(f"{directory} cannot be {done}: {_reason(reason)}") from None
    except (OSError, safetensors.SafetensorError) as error:
        raise RunError(f"{directory} cannot be {done}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
