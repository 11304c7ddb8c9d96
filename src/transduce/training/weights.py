"""Weights on disk, as safetensors files: complete or absent."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from transduce.errors import RunError
from transduce.training.sharding import assign
from transduce.training.weight_names import names_today

FORMAT = 2
"""Version of the run directory's layout; a reader refuses a newer one."""

SUM = "transduce_sha256"
"""In the head of a file of weights: checksum of its tensors."""

LOW_RANK = ("lora_a", "lora_b", "lora_scale")
"""Beside a `weight`: the parts A, B and scale of its low-rank update scale · B·A."""


def weights_of(model: nn.Module, detached: bool = True) -> dict[str, Tensor]:
    """Parameters and kept buffers by name; tied ones once, under their first name.

    detached: cut off from the graph; else the model's own objects.
    """
    seen: set[int] = set()
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor.detach() if detached else tensor
    return weights


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Copy weights into the model.  Raises RunError unless names and shapes are just its own."""
    own = weights_of(model)
    check_weights(own, weights, where)
    for name, tensor in own.items():
        assign(tensor, weights[name])


def check_weights(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: str) -> None:
    """Raises RunError unless `weights` have the names and shapes of `own`."""
    for name, tensor in own.items():
        if name not in weights:
            raise RunError(f"{where}: the weights lack {name!r}; they belong to another model")
        found, wanted = tuple(weights[name].shape), tuple(tensor.shape)
        if found != wanted:
            raise RunError(f"{where}: {name!r} has shape {found}, but this model's is {wanted}")
    for name in weights:
        if name not in own:
            raise RunError(f"{where}: the weights hold {name!r}, which this model does not have")


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights with every low-rank update added to its matrix, as they are served."""
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
    """The same as `write_tensors`, with a checksum in the file's head that readers check."""
    write_tensors(path, tensors, {**(metadata or {}), SUM: checksum(tensors)})


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values, whatever the order of the tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        if tensor.numel():
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file aside, flush it, and rename it into place.

    metadata: texts to keep in the file's head.  Raises RunError when it cannot be written.
    """
    aside = path.with_name(path.name + ".tmp")
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        aside.touch()
        mode = aside.stat().st_mode
        head = {**(metadata or {}), "transduce_format": str(FORMAT)}
        safetensors.torch.save_file(contiguous, aside, head)
        aside.chmod(mode)  # safetensors shuts out all but the owner
        sort_header(aside)
        flush(aside)
        aside.replace(path)
    except (OSError, safetensors.SafetensorError) as error:
        aside.unlink(missing_ok=True)
        raise RunError(f"{path} cannot be written: {_reason(error)}") from None


def sort_header(path: Path) -> None:
    """Put the texts in a file's head in their order, for safetensors writes them in one that is
    random: equal weights are to be equal files."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(size))
        head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
        text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= size, path
        file.seek(8)
        file.write(text.ljust(size))


def _reason(error: Exception) -> str:
    """What the system said, without what the libraries in between wrap around it."""
    text = error.strerror if isinstance(error, OSError) else None
    found = re.search(r'message: "([^"]+)"', str(error))
    return text or (found[1] if found else str(error))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.  Raises RunError when it is missing, damaged or newer than this."""
    return read_with_metadata(path)[0]


def read_with_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same, with the texts in the file's head."""
    with opened(path) as (file, metadata):
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if SUM in metadata and metadata[SUM] != checksum(tensors):
        raise RunError(f"{path} is damaged: its checksum is wrong; copy or train it again")
    return {today: tensors[name] for name, today in names_today(tensors).items()}, metadata


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """A safetensors file, and the texts in its head.

    Raises RunError when it is missing, damaged or newer than this.
    """
    if not path.is_file():
        raise RunError(f"{path}: no such file; is this a finished run directory?")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            texts = dict(file.metadata() or {})
            version = texts.get("transduce_format", "1")
            if not version.isdecimal() or len(version) > 9 or int(version) > FORMAT:
                raise RunError(
                    f"{path} is of format {version}, newer than this version of transduce "
                    f"(format {FORMAT}); upgrade transduce"
                )
            yield file, texts
    except (OSError, safetensors.SafetensorError) as error:
        raise RunError(
            f"{path} is not a whole safetensors file ({error}); copy or train it again"
        ) from None


def sha256_of(path: Path) -> str:
    """The checksum of a file.  Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a text file aside, flush it, and rename it into place.

    Raises RunError when it cannot be written.
    """
    aside = path.with_name(path.name + ".tmp")
    try:
        aside.write_text(text, encoding="utf-8")
        flush(aside)
        aside.replace(path)
    except UnicodeEncodeError as error:
        aside.unlink(missing_ok=True)
        name = text[: error.end].rpartition("\n")[2][-80:]
        raise RunError(
            f"{path} cannot be written: it would hold a name that is not UTF-8, {name!a}; rename "
            "the file or directory"
        ) from None
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RunError(f"{path} cannot be written: {error.strerror}") from None


def flush(path: Path) -> None:
    """Ask the system to put a file's content on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Ask the system to put the names in a directory on the disk."""
    if os.name == "posix":
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def average(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models' weights as they are served, each with its updates merged.

    Raises RunError where the models differ.
    """
    return mean(map(merged, parts))


def mean(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of tensors, name by name.  Raises RunError where they differ."""
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for weights in parts:
        count += 1
        if total and {k: v.shape for k, v in weights.items()} != {
            k: v.shape for k, v in total.items()
        }:
            raise RunError("these runs have different models; only equal ones can be averaged")
        for name, tensor in weights.items():
            if name in total:
                total[name] += tensor
            else:
                dtypes[name] = tensor.dtype
                total[name] = tensor.to(torch.float64, copy=True)
    assert count, "nothing to average"
    # One by one, as all of them twice may be more than there is memory for.
    return {name: total.pop(name).div_(count).to(dtype) for name, dtype in dtypes.items()}
