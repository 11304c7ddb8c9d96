"""Header of a safetensors file, checked before weights are read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import safetensors

from transduce.errors import RunError
from transduce.training.weight_names import names_today

FORMAT = 2
"""Format version of the run directory; newer formats are refused."""

SUM = "transduce_sha256"
"""Header key of a weights file: checksum of its tensors."""

LOW_RANK = ("lora_a", "lora_b", "lora_scale")
"""Names beside a `weight`: the parts A, B and scale of its low-rank update scale · B·A."""

ORIGIN = "transduce_origin"
"""Header key of a run's weights: their origin, a step or a mean."""


def step_origin(step: int) -> str:
    """Origin of the weights after a step."""
    return f"of step {step}"


def mean_origin(count: int) -> str:
    """Origin of the mean of several checkpoints."""
    return f"a mean of {count} checkpoints"


def count_in_mean(origin: str) -> int:
    """Number of checkpoints averaged in weights of this origin; 0 for a single step."""
    match = re.fullmatch(r"a mean of (\d+) checkpoints", origin)
    return int(match[1]) if match else 0


class WeightsHeader(NamedTuple):
    """Header of a weights file. shapes: of the tensors, by name. texts: metadata."""

    shapes: Mapping[str, tuple[int, ...]]
    texts: Mapping[str, str]


def read_header(path: Path) -> WeightsHeader:
    """Header of a safetensors file.  Raises RunError if missing, damaged or newer."""
    with opened(path, "np") as (file, texts):
        names = names_today(file.keys())
        shapes = {names[name]: tuple(file.get_slice(name).get_shape()) for name in names}
        return WeightsHeader(shapes, texts)


@contextmanager
def opened(
    path: Path, framework: Literal["pt", "np"] = "pt"
) -> Iterator[tuple[Any, dict[str, str]]]:
    """Open a safetensors file, with tensors of PyTorch or NumPy; yields it with its header texts.
    Raises RunError if it is missing, damaged or of a newer format."""
    with checked_file(path), safetensors.safe_open(path, framework=framework) as file:
        texts = dict(file.metadata() or {})
        check_format(path, texts)
        yield file, texts


@contextmanager
def checked_file(path: Path) -> Iterator[None]:
    """Raises RunError where the file is missing, or reading it fails."""
    if not path.is_file():
        raise RunError(f"{path}: no such file; is this a finished run directory?")
    try:
        yield
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise RunError(
            f"{path} is not a complete safetensors file ({error}); copy or train it again"
        ) from None


def check_format(path: Path, texts: Mapping[str, str]) -> None:
    """Raises RunError for a file of a newer format.  texts: of its header."""
    version = texts.get("transduce_format", "1")
    if not version.isdecimal() or len(version) > 9 or int(version) > FORMAT:
        raise RunError(
            f"{path} has format {version}, but this version of transduce reads formats up "
            f"to {FORMAT}; upgrade transduce"
        )


def checksum_of(tensors: Iterable[tuple[str, str, Sequence[int], Any]]) -> str:
    """SHA-256 of (name, type such as torch.float32, shape, values) of tensors, by name."""
    digest = hashlib.sha256()
    for name, dtype, shape, values in tensors:
        digest.update(f"{name} {dtype} {list(shape)}\n".encode())
        digest.update(values)
    return digest.hexdigest()


def check_sum(path: Path, texts: Mapping[str, str], checksum: Callable[[], str]) -> None:
    """Raises RunError if the checksum of the tensors differs from the header's, if any."""
    if SUM in texts and texts[SUM] != checksum():
        raise RunError(f"{path} is damaged (checksum mismatch); copy or train it again")
