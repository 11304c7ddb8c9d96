"""Weights on disk, as safetensors files that are complete or absent, and their moving average in
training."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from transduce.errors import RunError
from transduce.training.distributed import assign, own_part
from transduce.training.weight_files import (
    DIVISOR,
    FORMAT,
    LOW_RANK,
    SUM,
    StoredTensor,
    check_sum,
    divisor_of,
    names_today,
    opened_weights,
    weights_checksum,
)


def weights_of(model: nn.Module, detached: bool = True) -> dict[str, Tensor]:
    """Parameters and persistent buffers by first name; detached, or the model's own."""
    identities: set[int] = set()
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in identities:
            identities.add(id(tensor))
            weights[name] = tensor.detach() if detached else tensor
    return weights


def as_tensor(stored: StoredTensor) -> Tensor:
    """A tensor of a file, in place."""
    dtype = getattr(torch, stored.dtype)
    if not stored.bytes:
        return torch.empty(stored.shape, dtype=dtype)
    return torch.frombuffer(stored.bytes, dtype=torch.uint8).view(dtype).view(stored.shape)


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Copy weights into the model. Raises RunError unless names and shapes match exactly."""
    model_weights = weights_of(model)
    check_weights(model_weights, weights, where)
    for name, tensor in model_weights.items():
        assign(tensor, weights[name])


def check_weights(
    model_weights: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: str
) -> None:
    """Raises RunError unless `weights` match the names and shapes of `own`.

    model_weights: tensors of the model.  where: named in messages.
    """
    for name, tensor in model_weights.items():
        if name not in weights:
            raise RunError(f"{where}: the weights lack {name!r}; they belong to another model")
        shape, expected = tuple(weights[name].shape), tuple(tensor.shape)
        if shape != expected:
            raise RunError(f"{where}: {name!r} has shape {shape}, expected {expected}")
    for name in weights:
        if name not in model_weights:
            raise RunError(f"{where}: the weights have {name!r}, unknown to this model")


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Merge every low-rank update into its matrix, for serving."""
    plain = {}
    for name, tensor in weights.items():
        module, _, part = name.rpartition(".")
        if part in LOW_RANK:
            continue
        if part == "weight" and f"{module}.lora_a" in weights:
            a, b, scale = (weights[f"{module}.{part}"].double() for part in LOW_RANK)
            tensor = (tensor.double() + scale * (b @ a)).to(tensor.dtype)
        plain[name] = tensor
    return plain


def write_weights(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors with a checksum in the header.

    path: of the file.  metadata: further texts in the header.
    """
    write_tensors(path, tensors, {**(metadata or {}), SUM: checksum(tensors)})


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values, independent of the order of tensors."""
    return weights_checksum(_stored(tensors))


def _stored(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Sequence[int], Any]]:
    """Name, type, shape and bytes of each tensor, sorted by name."""
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        values = tensor.flatten().view(torch.uint8).numpy().data if tensor.numel() else b""
        yield name, str(tensor.dtype), tensor.shape, values


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file aside, flush and rename it.  Raises RunError if that fails.

    path: of the file.  tensors: by name.  metadata: texts for the header.
    """
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    head = {**(metadata or {}), "transduce_format": str(FORMAT)}
    try:
        with _written_aside(path) as aside:
            aside.touch()
            mode = aside.stat().st_mode
            safetensors.torch.save_file(contiguous, aside, head)
            aside.chmod(mode)  # safetensors shuts out all but the owner
            sort_header(aside)
    except (OSError, safetensors.SafetensorError) as error:
        raise RunError(f"{path} cannot be written: {_write_reason(error)}") from None


def sort_header(path: Path) -> None:
    """Sort the header texts, which safetensors writes in random order."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(size))
        head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
        text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= size, path
        file.seek(8)
        file.write(text.ljust(size))


def _write_reason(error: Exception) -> str:
    """System error message, without the wrapping of libraries."""
    text = error.strerror if isinstance(error, OSError) else None
    match = re.search(r'message: "([^"]+)"', str(error))
    return text or (match[1] if match else str(error))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file. Raises RunError if it is missing, damaged or of a newer format."""
    return read_with_metadata(path)[0]


def read_with_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file with its header texts; int8 weights come as float32."""
    with opened_weights(path) as (file, metadata):
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    check_sum(path, metadata, lambda: checksum(tensors))
    tensors = {today: tensors[name] for name, today in names_today(tensors).items()}
    return {
        name: divided(tensor, tensors.get(divisor_of(name)))
        for name, tensor in tensors.items()
        if not name.endswith(f".{DIVISOR}")
    }, metadata


def divided(tensor: Tensor, divisors: Tensor | None) -> Tensor:
    """A stored weight: levels (rows, columns) by the divisors (rows,) of an int8 matrix."""
    return tensor if divisors is None or tensor.dtype != torch.int8 else tensor / divisors[:, None]


def in_levels(weights: Mapping[str, Tensor], divisors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights, those with divisors as int8 matrices beside them."""
    levels = {name: (weights[name] * by[:, None]).round().char() for name, by in divisors.items()}
    return {**weights, **levels, **{divisor_of(name): by for name, by in divisors.items()}}


def read_divisors(path: Path) -> dict[str, Tensor]:
    """Divisors of the int8 matrices of a weights file, by the names of the matrices."""
    with opened_weights(path) as (file, _):
        names = names_today(file.keys())
        stored = {names[name]: name for name in names if name.endswith(f".{DIVISOR}")}
        return {
            f"{name.removesuffix(DIVISOR)}weight": file.get_tensor(there)
            for name, there in stored.items()
        }


def sha256_of(path: Path) -> str:
    """SHA-256 checksum of a file. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a text file aside, flush and rename it.  Raises RunError if that fails."""
    try:
        with _written_aside(path) as aside:
            aside.write_text(text, encoding="utf-8", newline="\n")
    except UnicodeEncodeError as error:
        name = text[: error.end].rpartition("\n")[2][-80:]
        raise RunError(
            f"{path} cannot be written: the name {name!a} is not valid UTF-8; rename the file or "
            "directory"
        ) from None
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _written_aside(path: Path) -> Iterator[Path]:
    """Path of a file to write, then flushed and renamed to `path`; removed after an error."""
    aside = path.with_name(path.name + ".tmp")
    try:
        yield aside
        flush(aside)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Flush the content of a file to disk."""
    with path.open("r+b") as file:  # Windows flushes only files open for writing
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Flush a directory's entries to disk."""
    if os.name == "posix":
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def average(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Mean of the merged weights of several models.  Raises RunError if they differ."""
    return mean(map(merged, parts))


def mean(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Mean of tensors by name. Raises RunError if names or shapes differ."""
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for weights in parts:
        count += 1
        if total and {k: v.shape for k, v in weights.items()} != {
            k: v.shape for k, v in total.items()
        }:
            raise RunError("cannot average runs of different models")
        for name, tensor in weights.items():
            if name in total:
                total[name] += tensor
            else:
                dtypes[name] = tensor.dtype
                total[name] = tensor.to(torch.float64, copy=True)
    assert count, "nothing to average"
    # One by one, as all of them twice may be more than there is memory for.
    return {name: total.pop(name).div_(count).to(dtype) for name, dtype in dtypes.items()}


class MovingAverage:
    """Exponential moving average: average ← decay · average + (1 - decay) · weights.  At step n the
    decay is at most (1 + n) / (10 + n), so that the initial weights lose their influence."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}
        self._pairs: tuple[list[Tensor], list[Tensor]] | None = None

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Update the averages with the weights after `step`; takes the same model each time."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages, weights = self._pairs or self._pair_up(model)
        torch._foreach_lerp_(averages, weights, 1 - decay)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Use the averaged weights in the model within the context."""
        weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}
        load_weights(model, self.weights, "the moving average")
        try:
            yield
        finally:
            load_weights(model, weights, "the model")

    def _pair_up(self, model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
        """Averages and trained parameters, cached since traversing a deep model is slow."""
        live = weights_of(model, detached=False)
        moving = [
            name
            for name, tensor in live.items()
            if tensor.requires_grad or not isinstance(tensor, nn.Parameter)
        ]
        self._pairs = (
            [own_part(self.weights[name]) for name in moving],
            [own_part(live[name]) for name in moving],
        )
        return self._pairs


def averaged_weights(model: nn.Module, ema: MovingAverage | None) -> dict[str, Tensor]:
    """Weights to serve now: the average, if there is any."""
    return weights_of(model) if ema is None else ema.weights
