"""Fully sharded training (FSDP2): ranks have parts of each weight, its gradient and optimizer
state.

A Transformer layer is gathered just before its forward and backward pass and released afterwards,
all other parameters for a whole batch.  A sharded tensor is a `DTensor` with the `shape` of the
whole.  On disk, each rank writes its own part; any number of ranks can read them.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from transduce.errors import RunError, SettingError
from transduce.nn.attention import CrossAttention
from transduce.nn.transformer import DecoderLayer, EncoderLayer
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.loss import LossSums
from transduce.training.task import TrainingTask

T = TypeVar("T")


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
