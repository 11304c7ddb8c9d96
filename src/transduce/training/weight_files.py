"""Weights of a run without PyTorch: names, header of the safetensors file, tensors read in
place.

The file is mapped into memory.  Its pages count for the process only from a reading of a tensor to
its release, after which they are read again where they are needed.
"""

import functools
import hashlib
import math
import mmap
import os
import re
import shutil
import stat
import struct
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import safetensors

from transduce.errors import RunError
from transduce.nn.precision import FloatWeight
from transduce.support.files import RUN_FILE_LIMIT, from_json, read_json


def names_today(stored: Collection[str]) -> dict[str, str]:
    """Name in a file -> current name, for the weights of a model or an adapter."""
    tops = {name.partition(".")[0] for name in stored}
    encodes = bool(tops & {"source", "encoder"}) or any("cross_attention" in n for n in stored)
    return _renamed(
        stored, {"source": "front_end", "target": "target_front_end" if encodes else "front_end"}
    )


def names_in_format_1(names: Collection[str]) -> dict[str, str]:
    """Current name -> name in a file of format 1, for the weights of a model."""
    tops = {name.partition(".")[0] for name in names}
    if not tops & {"decoder", "target_front_end"}:
        return {name: name for name in names}
    front_end = "source" if tops & {"encoder", "target_front_end"} else "target"
    return _renamed(names, {"front_end": front_end, "target_front_end": "target"})


def pattern_today(pattern: str, tops: Collection[str]) -> str:
    """Name pattern, perhaps of format 1, for a model with modules `tops`."""
    top, dot, rest = pattern.partition(".")
    for new in {"source": ("front_end",), "target": ("target_front_end", "front_end")}.get(top, ()):
        if new in tops:
            return f"{new}{dot}{rest}"
    return pattern


def _renamed(names: Collection[str], tops: dict[str, str]) -> dict[str, str]:
    renamed = {}
    for name in names:
        top, dot, rest = name.partition(".")
        renamed[name] = f"{tops.get(top, top)}{dot}{rest}"
    return renamed


FORMAT = 2
"""Format version of the run directory; newer formats are refused."""

SUM = "transduce_sha256"
"""Header key of a weights file: checksum of its tensors."""

LOW_RANK = ("lora_a", "lora_b", "lora_scale")
"""Names beside a `weight`: the parts A, B and scale of its low-rank update scale · B·A."""

DIVISOR = "divisor"
"""Name beside a `weight` in int8: the divisors (rows,) of its rows."""

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


def read_weights_header(path: Path) -> WeightsHeader:
    """Header of a safetensors file.  Raises RunError if missing, damaged or newer."""
    with opened_weights(path, "np") as (file, texts):
        names = names_today(file.keys())
        shapes = {
            names[name]: tuple(file.get_slice(name).get_shape())
            for name in names
            if not name.endswith(f".{DIVISOR}")
        }
        return WeightsHeader(shapes, texts)


def divisor_of(name: str) -> str:
    """Name of the divisors of an int8 weight."""
    return f"{name.rpartition('.')[0]}.{DIVISOR}"


@contextmanager
def opened_weights(
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


def weights_checksum(tensors: Iterable[tuple[str, str, Sequence[int], Any]]) -> str:
    """SHA-256 of (name, type such as torch.float32, shape, values) of tensors, by name."""
    digest = hashlib.sha256()
    for name, dtype, shape, values in tensors:
        digest.update(f"{name} {dtype} {list(shape)}\n".encode())
        digest.update(values)
    return digest.hexdigest()


def check_sum(path: Path, texts: Mapping[str, str], checksum: Callable[[], str]) -> None:
    """Raises RunError if the checksum of the tensors differs from the header's, if any.

    path: of the file.  texts: its header.  checksum: computes the checksum of the tensors.
    """
    if SUM in texts and texts[SUM] != checksum():
        raise RunError(f"{path} is damaged (checksum mismatch); copy or train it again")


TYPES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}
"""Types in PyTorch and bytes of a number, by the names of types in a safetensors file."""


class StoredTensor(NamedTuple):
    """A tensor of a file.  bytes: its place there, writable without an effect on the file.
    release: gives the memory back that reading it took."""

    dtype: str
    shape: tuple[int, ...]
    bytes: memoryview
    release: Callable[[], None]

    def floats(self) -> Any:
        """Buffer of the numbers in float32; in place if they have that type."""
        if self.dtype == "float32":
            return self.bytes
        if self.dtype == "bfloat16":  # the upper half of a float32
            wide = bytearray(2 * len(self.bytes))
            wide[2::4], wide[3::4] = self.bytes[::2], self.bytes[1::2]
            return wide
        form = "<d" if self.dtype == "float64" else "<e"
        return array("f", (number for (number,) in struct.iter_unpack(form, self.bytes)))


def stored_weights(path: Path) -> dict[str, StoredTensor]:
    """Weights of a file by their present names.  Raises RunError if it is missing, damaged or of a
    newer format, and for an unsupported type."""
    with checked_file(path), path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        start = 8 + int.from_bytes(mapped[:8], "little")
        if start > len(mapped):
            raise ValueError("its header")
        header = from_json(mapped[8:start])
        try:
            texts = dict(header.pop("__metadata__", {}))
            check_format(path, texts)
            stored = _mapped_tensors(path, header, mapped, start)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"of another form: {error!r}") from None
    check_sum(path, texts, lambda: weights_checksum(_in_order(stored)))
    return {new: stored[name] for name, new in names_today(stored).items()}


def _mapped_tensors(
    path: Path, header: dict[str, Any], mapped: mmap.mmap, start: int
) -> dict[str, StoredTensor]:
    """Tensors by name.  Raises ValueError unless they fill the file from `start`, without gaps."""
    stored, at = {}, start
    for name, tensor in sorted(header.items(), key=lambda entry: entry[1]["data_offsets"]):
        if (kind := TYPES.get(tensor["dtype"])) is None:
            raise RunError(f"{path}: {name!r} has the unsupported type {tensor['dtype']}")
        dtype, width = kind
        shape, (begin, end) = tuple(tensor["shape"]), tensor["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
            raise ValueError(f"sizes of {name!r}")
        if start + begin != at or end - begin != width * math.prod(shape):
            raise ValueError(f"place of {name!r}")
        at = start + end
        places = memoryview(mapped)[start + begin : at]
        stored[name] = StoredTensor(dtype, shape, places, _releasing(mapped, start + begin, at))
    if at != len(mapped):
        raise ValueError("its length")
    return stored


def read_plain_weights(path: Path) -> dict[str, FloatWeight]:
    """Weights in float32 by their present names.  Raises RunError as `stored_weights`, and for
    other types, or an adapter that is not merged."""
    stored = stored_weights(path)
    divisors = {name: stored.pop(name) for name in [*stored] if name.endswith(f".{DIVISOR}")}
    for name, tensor in stored.items():
        if "float" not in tensor.dtype and divisor_of(name) not in divisors:
            raise RunError(f"{path}: {name!r} has the unsupported type {tensor.dtype}")
        if name.rpartition(".")[2] in LOW_RANK:
            raise RunError(f"{path} has a low-rank adapter; merge it with transduce merge")
    return {
        name: FloatWeight(
            tensor.shape,
            functools.partial(_file_divided, tensor, divisors[divisor_of(name)])
            if tensor.dtype == "int8"
            else tensor.floats,
            tensor.release,
            functools.partial(_file_levels, tensor, divisors[divisor_of(name)])
            if tensor.dtype == "int8"
            else None,
        )
        for name, tensor in stored.items()
    }


def _file_levels(levels: StoredTensor, divisors: StoredTensor) -> tuple[Any, Any]:
    """Buffers of an int8 matrix and of its divisors."""
    return levels.bytes, array("f", divisors.bytes.tobytes())


def _file_divided(levels: StoredTensor, divisors: StoredTensor) -> Any:
    """Buffer of an int8 matrix in float32."""
    import numpy as np

    rows = np.frombuffer(levels.bytes, np.int8).reshape(levels.shape)
    return rows / np.frombuffer(divisors.bytes, np.float32)[:, None]


def _in_order(stored: dict[str, StoredTensor]) -> Any:
    """Parts of the checksum."""
    for name, tensor in sorted(stored.items()):
        yield name, f"torch.{tensor.dtype}", tensor.shape, tensor.bytes
        tensor.release()


def _releasing(mapped: mmap.mmap, begin: int, end: int) -> Callable[[], None]:
    """Function that drops the pages of a range."""
    begin -= begin % mmap.PAGESIZE

    def release() -> None:
        if hasattr(mmap, "MADV_DONTNEED") and end > begin:
            mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    return release


READ_WHOLE = (".toml", ".json", ".jsonl", ".model")
"""Recipes, vocabularies, logs and such; weights are checked by their own head."""


def cache_of(run: Path) -> Path:
    """Directory of encoded data, shared by the runs beside each other."""
    return run.parent / ".cache"


def check_name(run: Path) -> None:
    """Raises RunError for a directory in which files of weights can be neither read nor written."""
    try:
        str(run).encode()
    except UnicodeEncodeError:
        raise RunError(
            f"{run}: the path is not valid UTF-8, as safetensors requires; rename the directory "
            "or choose another"
        ) from None


def check_files(run: Path) -> None:
    """Raise RunError for links to files outside a run directory, and for special files in it.

    Subdirectories are not checked: no file in them is needed to use a run.
    """
    check_name(run)
    try:
        entries = list(os.scandir(run))
        home = run.resolve()
        for entry in entries:
            target = Path(entry.path).resolve()
            if entry.is_symlink() and not entry.is_dir() and not target.is_relative_to(home):
                raise RunError(
                    f"{entry.path} is a link to a file outside the run directory; if you trust it, "
                    f"copy the run with cp -rL"
                )
            if not entry.is_symlink() or target.exists():
                _check_kind(entry)
    except OSError as error:
        raise RunError(f"{error.filename or run} cannot be read: {error.strerror}") from None


def read_json_of(run: Path, name: str, kind: str) -> Any:
    """Content of a JSON file of a run.  Raises RunError if it is missing or damaged.

    kind: of the directory, for the message.
    """
    try:
        return read_json(run / name)
    except OSError:
        raise RunError(f"{run} has no {name}; is it a complete {kind}?") from None
    except ValueError as error:
        raise RunError(f"{run / name} is damaged ({error}); copy or train the run again") from None


def check_written_to(run: Path) -> None:
    """Raises RunError if writing into a run directory would write elsewhere.

    Training would also delete files below a link.
    """
    home = run.resolve()
    for directory, directories, files in os.walk(run):
        for name in (*directories, *files):
            entry = Path(directory, name)
            if entry.is_symlink() and not entry.resolve().is_relative_to(home):
                raise RunError(
                    f"{entry} links outside the run directory, where training would write and "
                    "delete; link the whole run directory instead"
                )


def _check_kind(entry: os.DirEntry[str]) -> None:
    status = entry.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise RunError(f"{entry.path} is neither a file nor a directory; delete it")
    if entry.name.endswith(READ_WHOLE) and status.st_size > RUN_FILE_LIMIT.most() << 20:
        raise RunError(
            f"{entry.path} has {status.st_size >> 20} MiB, which exceeds the limit for such files; "
            f"{RUN_FILE_LIMIT.remedy()}"
        )


def checkpoints_of(run: Path) -> list[Path]:
    """Checkpoints of a run, oldest first, without incomplete ones."""
    directories = (run / "checkpoints").glob("step-*")
    return sorted(path for path in directories if path.name[5:].isdecimal() and path.is_dir())


WHOLE, MOVING, GONE = ".replaced", ".replaced.moving", ".replaced.gone"


def back_up(run: Path, files: Sequence[Path]) -> None:
    """Move files and directories of a run aside, in order."""
    if files:
        (run / MOVING).mkdir()
        for file in files:
            file.rename(run / MOVING / file.name)
        (run / MOVING).rename(run / WHOLE)


def restore(run: Path, made: Callable[[Path], Iterable[Path]]) -> None:
    """Restore the backup; `made` files of the new run are deleted."""
    if (run / WHOLE).is_dir():
        for file in list(made(run)):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        (run / WHOLE).rename(run / MOVING)
    finish_restore(run)


def finish_restore(run: Path) -> None:
    """Finish a restoration that was interrupted."""
    if (run / MOVING).is_dir():
        # the recipe first: it makes a directory a run
        for file in sorted((run / MOVING).iterdir(), key=lambda file: file.name != "recipe.toml"):
            file.rename(run / file.name)
        (run / MOVING).rmdir()


def discard(run: Path) -> None:
    """Delete the backup."""
    if (run / WHOLE).is_dir():
        shutil.rmtree(run / GONE, ignore_errors=True)  # of a kill in the middle of the last line
        (run / WHOLE).rename(run / GONE)
    shutil.rmtree(run / GONE, ignore_errors=True)
