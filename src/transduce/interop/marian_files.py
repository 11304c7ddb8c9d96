"""Marian's files: tensors as `.npz` or `.bin`, the lexical shortlist, and the names of their
parts.

A `.bin` has a table of headers, names and shapes, then the data of each tensor, padded to 256
bytes.  An int8 matrix is there transposed, but an embedding is not; its scale follows.
"""

import contextlib
import io
import math
import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError
from transduce.interop.layers import Parts, layer_parts
from transduce.interop.model_names import HEADER, TENSOR, VERSION

SETTINGS = "special:model.yml"
"""Name of the settings among the tensors."""
MARIAN_FILE_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
"""Names in Marian."""
EPSILON = 1e-6
"""Of every layer norm there."""


_ATTENTION = "{0}_q {0}_k {0}_v {0}_o {0}_Wo_ln"
_FEED_FORWARD = "ffn_1 ffn_2 ffn_ffn_ln"


def marian_parts(side: str, recurrent: bool) -> Parts:
    """Parts of a layer of the encoder or decoder.  recurrent: of a decoder with SSRU."""
    if side == "encoder":
        return layer_parts(_ATTENTION.format("self"), _FEED_FORWARD)
    parts = layer_parts(_ATTENTION.format("self"), _FEED_FORWARD, _ATTENTION.format("context"))
    if not recurrent:
        return parts
    return {
        "recurrence.candidate": ["rnn_"],
        "recurrence.forget": ["rnn_f"],
        "recurrence_residual.norm": ["rnn_ffn_ln"],
        **{part: names for part, names in parts.items() if not part.startswith("self_attention")},
    }


def layer_name(side: str, number: int) -> str:
    """Text before the names of the parts of a layer, whose number is from 0."""
    return f"{side}_l{number + 1}_"


def tensor_name(name: str, kind: str) -> str:
    """Name of the tensor of a part: of its "weight" or its "bias"."""
    if name.endswith("_ln"):
        return f"{name}_{'scale' if kind == 'weight' else 'bias'}"
    prefix, _, letter = name.rpartition("_")
    return f"{prefix}_{'W' if kind == 'weight' else 'b'}{letter}"


Arrays = Mapping[str, NDArray[Any]]
BLOCK = 256
"""Bytes; the data of a tensor begin at a multiple of them."""
INT8, FLOAT32, INTGEMM8 = 0x101, 0x404, 0x4101
"""Numbers of types; the last is an int8 matrix, before it is laid out for a processor."""
INTGEMM8_KINDS = (INTGEMM8, 0x10001)
"""The second is newer, of Marian itself."""
LEVELS = 127
EMBEDDING = "Wemb"
"""In the names of embeddings."""
SHORTLIST_MAGIC = 0xF11A48D5013417F5
_WORD = (1 << 64) - 1


def npz_file(arrays: Arrays, settings: str) -> bytes:
    """The `.npz` of a model."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **{**arrays, SETTINGS: _text(settings)})
    return file.getvalue()


def bin_file(arrays: Arrays, settings: str, divisors: Mapping[str, float] = {}) -> bytes:
    """The `.bin` of a model, its matrices in int8.  divisors: of matrices that were in int8.

    arrays: tensors by name.  settings: of the model, as YAML.
    """
    tensors = [_tensor(name, array, divisors.get(name)) for name, array in arrays.items()]
    text = _text(settings)
    tensors.append((SETTINGS, INT8, text.shape, text.tobytes()))
    contents = [content + bytes(-len(content) % BLOCK) for *_, content in tensors]
    file = bytearray(HEADER.pack(VERSION, len(tensors)))
    for (name, kind, shape, _), content in zip(tensors, contents, strict=True):
        file += TENSOR.pack(len(name) + 1, kind, len(shape), len(content))
    for name, *_ in tensors:
        file += name.encode() + b"\0"
    for _, _, shape, _ in tensors:
        file += struct.pack(f"<{len(shape)}i", *shape)
    file += struct.pack("<Q", padding := BLOCK - (len(file) + 8) % BLOCK) + bytes(padding)
    return bytes(file) + b"".join(contents)


def _text(settings: str) -> NDArray[np.int8]:
    return np.frombuffer(settings.encode() + b"\0", np.int8)


def _tensor(
    name: str, array: NDArray[Any], divisor: float | None
) -> tuple[str, int, tuple[int, ...], bytes]:
    if 1 in array.shape and divisor is None:  # a bias, or of a norm
        return name, FLOAT32, array.shape, array.astype("<f4").tobytes()
    scale = np.float32(divisor or LEVELS / max(float(np.abs(array).max()), 1e-9))
    levels = np.clip(np.rint(array * scale), -LEVELS, LEVELS).astype(np.int8)
    content = levels if EMBEDDING in name else levels.T
    return name, INTGEMM8, array.shape, content.tobytes() + struct.pack("<f", scale)


def shortlist_file(lists: Sequence[Iterable[int]], first: int) -> bytes:
    """The binary shortlist: target ids of each source id, besides the `first` ids of all."""
    rows = [sorted(set(row)) for row in lists]
    ends = np.cumsum([0, *map(len, rows)])
    ids = [token for row in rows for token in row]
    body = struct.pack("<4Q", first, max(map(len, rows), default=0), len(ends), len(ids))
    body += ends.astype("<u8").tobytes() + np.array(ids, "<u4").tobytes()
    return struct.pack("<QQ", SHORTLIST_MAGIC, _checksum(body)) + body


def _checksum(body: bytes) -> int:
    """Marian's, over whole words of 64 bits."""
    total = 0
    for (word,) in struct.iter_unpack("<Q", body[: len(body) // 8 * 8]):
        total ^= (word + 0x9E3779B9 + (total << 6) + (total >> 2)) & _WORD
    return total


class MarianShortlist(NamedTuple):
    """A binary shortlist: the `first` target ids of all sources, and the target ids of each source
    id, those from `ends[i]` to `ends[i + 1]`."""

    first: int
    ends: NDArray[np.uint64]
    ids: NDArray[np.uint32]


def read_shortlist(path: Path, source_size: int, target_size: int) -> MarianShortlist:
    """The shortlist of a file, for vocabularies of these sizes.  Raises DataError for another.

    path: of the file.  source_size, target_size: tokens of each vocabulary.
    """
    content = path.read_bytes()
    try:
        magic, checksum, first, _, n, count = struct.unpack_from("<6Q", content)
        ends = np.frombuffer(content, "<u8", n, 48)
        ids = np.frombuffer(content, "<u4", count, 48 + 8 * n)
    except (struct.error, ValueError, OverflowError) as error:
        raise DataError(f"{path} is not a complete binary shortlist ({error})") from None
    if magic != SHORTLIST_MAGIC or checksum != _checksum(content[16:]):
        raise DataError(f"{path} is not a binary shortlist, or damaged; copy it again")
    fits = n == source_size + 1 and not ends[0] and ends[-1] == count
    if not fits or (np.diff(ends.astype(np.int64)) < 0).any() or (ids >= target_size).any():
        raise DataError(
            f"{path} is of other vocabularies than {source_size} and {target_size} tokens"
        )
    return MarianShortlist(min(first, target_size), ends, ids)


class MarianModel(NamedTuple):
    """Tensors of a model file, and its settings.  divisors: of int8 matrices, by their names."""

    arrays: dict[str, NDArray[np.float32]]
    settings: dict[str, Any]
    divisors: dict[str, float]


def read_model(path: Path) -> MarianModel:
    """The model of a `.npz` or `.bin` file, int8 as float32.  Raises DataError for another."""
    divisors: dict[str, float] = {}
    try:
        if path.suffix == ".npz":
            arrays = _read_npz(path)
        else:
            arrays, divisors = _read_bin(bytearray(path.read_bytes()))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, struct.error, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a whole model of Marian ({error})") from None
    if SETTINGS not in arrays:
        raise DataError(f"{path} has no {SETTINGS}, the settings of a model of Marian")
    text = arrays.pop(SETTINGS).tobytes().rstrip(b"\0").decode(errors="replace")
    return MarianModel(arrays, read_settings(text), divisors)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(path) as members:
        if any(member.compress_type for member in members.infolist()):
            raise ValueError("compressed; save it with numpy.savez")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: _floats(name, arrays[name]) for name in arrays.files}


def _floats(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if name == SETTINGS:
        return array
    if array.dtype not in (np.float32, np.float16):
        raise ValueError(f"{name} has numbers of {array.dtype}")
    return array.astype(np.float32)


def _read_bin(content: bytearray) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    version, n = HEADER.unpack_from(content)
    if version != VERSION or n * TENSOR.size > len(content):
        raise ValueError(f"version {version}, {n} tensors")
    at, names, shapes = HEADER.size + TENSOR.size * n, [], []
    headers = [*TENSOR.iter_unpack(content[HEADER.size : at])]
    for length, *_ in headers:
        names.append(content[at : at + length - 1].decode())
        at += length
    for _, _, rank, _ in headers:
        shapes.append(struct.unpack_from(f"<{min(rank, len(content))}i", content, at))
        at += 4 * rank
    at += 8 + struct.unpack_from("<Q", content, at)[0]
    arrays, divisors = {}, {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        arrays[name] = _array(name, kind, shape, content[at : at + size])
        if kind in INTGEMM8_KINDS:
            (divisors[name],) = struct.unpack_from("<f", content, at + math.prod(shape))
        at += size
    return arrays, divisors


def _array(name: str, kind: int, shape: tuple[int, ...], content: bytearray) -> NDArray[Any]:
    count = math.prod(shape)
    if min(shape, default=0) < 1:
        raise ValueError(f"{name} has shape {shape}")
    if kind == INT8:
        return np.frombuffer(content, np.int8, count)
    if kind == FLOAT32:
        return np.frombuffer(content, "<f4", count).reshape(shape)
    if kind not in INTGEMM8_KINDS or len(shape) != 2:
        raise ValueError(f"{name} has type {kind:#x}")
    (scale,) = struct.unpack_from("<f", content, count)
    levels = np.frombuffer(content, np.int8, count).astype(np.float32) / np.float32(scale)
    return levels.reshape(shape) if EMBEDDING in name else levels.reshape(shape[::-1]).T


def read_settings(text: str) -> dict[str, Any]:
    """Settings of a flat YAML, as Marian writes it: `name: value`, or `  - value` in lists."""
    settings: dict[str, Any] = {}
    name = ""
    for line in text.splitlines():
        if (entry := line.strip()).startswith("- ") and isinstance(settings.get(name), list):
            settings[name].append(_parsed(entry[2:]))
        elif ":" in line and not line.startswith((" ", "#")):
            name, _, entry = line.partition(":")
            settings[name] = _parsed(entry) if entry.strip() else []
    return settings


def _parsed(text: str) -> Any:
    text = text.strip()
    if text == "[]":
        return []
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text.strip("\"'")
