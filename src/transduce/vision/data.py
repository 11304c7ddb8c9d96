"""Images with labels or captions: read from common data set formats, and their pixels on disk.

    DIRECTORY/
        images-HASH.u8   the pixels of all images in a row, each (c, size, size) bytes
        images.json      fingerprint, name and shape of that file, and the labels

Both are written aside and then renamed, the manifest last: it names a complete file or none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.sources import FilePath, file_stamp, stamp_of_many
from transduce.data.tables import (
    Column,
    encoded_file,
    open_parquet,
    parquet_files,
    parquet_records,
    tsv_rows,
)
from transduce.errors import DataError, writing
from transduce.settings.sections import ByKind, did_you_mean, section
from transduce.support.files import IMAGE_LIMIT, SURROGATES, from_json, whole_file
from transduce.support.work import available_cores, chunks
from transduce.vision.images import (
    IMAGE_SUFFIXES,
    Channels,
    ImageConfig,
    fit_square,
    read_idx,
    read_image,
)

CHUNK_IMAGES = 64  # rows of Parquet taken at once; few, for images are large


@section
class ImageFolder:
    """A directory, or a `.zip` of it, with one folder of images for each class."""

    kind: Literal["folder"] = "folder"
    path: FilePath
    """The directory or archive; one enclosing folder makes no difference."""
    labels: tuple[str, ...] | None = None
    """The classes in order; by default the sorted names of the folders."""


@section
class IdxFiles:
    """Two IDX files, plain or compressed: the format of MNIST."""

    kind: Literal["idx"] = "idx"
    images: FilePath
    """File of images: bytes, one grey image after the other."""
    labels: FilePath
    """File of labels: one whole number per image."""


@section
class ParquetImages:
    """A Parquet file, or a directory of them, with encoded images (needs the extra `parquet`)."""

    kind: Literal["parquet"] = "parquet"
    path: FilePath
    """The file or directory."""
    image: str = "image"
    """Column of images: file bytes, or the struct written by `datasets`."""
    label: str = "label"
    """Column of labels: text, or whole numbers, replaced by their names if known."""


@section
class ImageTable:
    """A tab-separated file with the path and the label or caption of each image."""

    kind: Literal["table"] = "table"
    path: FilePath
    """The table; image paths are relative to its directory."""
    image: Column = 0
    """Column of the image file: a number from 0, or a name from the header line."""
    label: Column = 1
    """Column of the label or caption: a number from 0, or a name from the header line."""


ImagesConfig = Annotated[ImageFolder | IdxFiles | ParquetImages | ImageTable, ByKind()]


class LabelledImage(NamedTuple):
    """An undecoded image: its path, bytes, or grey pixels (h, w), and its class or caption."""

    image: Path | bytes | NDArray[np.uint8]
    label: str
    location: str

    def decode(self, channels: Channels) -> Tensor:
        """Pixels, uint8 (c, h, w).  Raises DataError for a broken file."""
        if isinstance(self.image, np.ndarray):
            return torch.from_numpy(self.image.copy()).expand(channels, -1, -1)
        return read_image(self.image, channels, self.location)


def read_images(config: ImagesConfig, root: Path) -> Iterator[LabelledImage]:
    """Stream all images in the order of the input, or of the sorted folders."""
    any_image = False
    for image in _images(config, root):
        any_image = True
        yield image
    if not any_image:
        raise DataError(f"{inputs_of(config, root)[0]} contains no images")


def inputs_of(config: ImagesConfig, root: Path) -> list[Path]:
    """Files and directories in the settings, and the shards of a Parquet directory."""
    if isinstance(config, IdxFiles):
        return [root / config.images, root / config.labels]
    path = root / config.path
    return parquet_files(path) if isinstance(config, ParquetImages) else [path]


def fingerprint(config: ImagesConfig, root: Path) -> str:
    """Hash of the settings and of the place, size and dates of all inputs, but images named in
    Parquet."""
    inputs = inputs_of(config, root)
    return stamp_of_many(config, _stamps(config, inputs), inputs[0])


def _stamps(config: ImagesConfig, inputs: list[Path]) -> Iterator[bytes]:
    for path in inputs:
        yield os.fsencode(path.resolve())
        yield from map(file_stamp, _files_behind(config, path))


def _files_behind(config: ImagesConfig, path: Path) -> Iterator[str]:
    match config:
        case ImageFolder() if path.is_dir():
            yield from (os.path.join(path, name) for name in _names_below(path))  # noqa: PTH118
        case ImageTable():
            yield str(path)
            for image, _ in tsv_rows(path, (config.image, config.label)):
                yield os.path.join(path.parent, image)  # noqa: PTH118
        case _:
            yield str(path)


def _images(config: ImagesConfig, root: Path) -> Iterator[LabelledImage]:
    match config:
        case ImageFolder():
            read = _from_folder if (root / config.path).is_dir() else _from_zip
            return read(root / config.path, config.labels)
        case IdxFiles():
            return _from_idx(root / config.images, root / config.labels)
        case ParquetImages():
            return _from_parquet(inputs_of(config, root), config)
        case ImageTable():
            return _from_table(root / config.path, config)


def _from_folder(path: Path, labels: tuple[str, ...] | None) -> Iterator[LabelledImage]:
    try:
        names = _names_below(path)
    except OSError as error:
        raise DataError(f"{error.filename or path} cannot be read: {error.strerror}") from None
    for label, name in _by_class(names, labels, path):
        yield LabelledImage(path / name, label, str(path / name))


def _from_zip(path: Path, labels: tuple[str, ...] | None) -> Iterator[LabelledImage]:
    name = ""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if _is_image(name)]
            for label, name in _by_class(names, labels, path):
                size = archive.getinfo(name).file_size
                if size > IMAGE_LIMIT.most() << 20:
                    raise DataError(
                        f"{path}: {name} would unpack to {size >> 20} MiB; {IMAGE_LIMIT.remedy()}"
                    )
                yield LabelledImage(archive.read(name), label, f"{path}: {name}")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file or directory") from None
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        location = f"{path}: {name}" if name else f"{path}"
        raise DataError(
            f"{location} is a damaged zip archive ({error}); download it again"
        ) from None
    except (OSError, RuntimeError, NotImplementedError, UnicodeDecodeError) as error:
        # encryption, odd compression, names that are no text
        raise DataError(
            f"{path} cannot be read: {error}; unpack it and use the directory"
        ) from None


def _from_idx(images_path: Path, labels_path: Path) -> Iterator[LabelledImage]:
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise DataError(
            f"{images_path} has {images.ndim} dimensions of {images.dtype}; "
            "images need 3 of uint8: image, row, column"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(f"{labels_path} must contain labels: one dimension of whole numbers")
    if len(images) != len(labels):
        raise DataError(
            f"{images_path} has {len(images)} images but {labels_path} has {len(labels)} labels"
        )
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        yield LabelledImage(image, str(label), f"{images_path}: image {i}")


def _from_parquet(files: list[Path], config: ParquetImages) -> Iterator[LabelledImage]:
    for path in files:
        names = _names_of_labels(path, config.label)
        for record in parquet_records(path, (config.image, config.label), CHUNK_IMAGES):
            location = record.location
            image = encoded_file(record.value(config.image), path.parent)
            if image is None:
                raise DataError(
                    f"{location} has no image; expected the bytes of a file or its path"
                )
            label = _parquet_label(record.value(config.label), names, location)
            yield LabelledImage(image, label, location)


def _parquet_label(value: Any, names: list[str], location: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"{location}: the label must be text or a whole number, not {value!r}")
    if names and not 0 <= value < len(names):
        raise DataError(
            f"{location}: label {value} is out of range; the classes are 0 to {len(names) - 1}"
        )
    return names[value] if names else str(value)


def _names_of_labels(path: Path, column: str) -> list[str]:
    """Label names of an integer column, as recorded in the file by the `datasets` library."""
    with open_parquet(path) as file:
        metadata = file.schema_arrow.metadata or {}
    try:
        noted = from_json(metadata[b"huggingface"])
        names = noted["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _from_table(path: Path, config: ImageTable) -> Iterator[LabelledImage]:
    header = isinstance(config.image, str) or isinstance(config.label, str)
    rows = tsv_rows(path, (config.image, config.label))
    for number, (image, label) in enumerate(rows, 2 if header else 1):
        if not image:
            raise DataError(f"{path}: line {number} has no image path")
        file = path.parent / image
        yield LabelledImage(file, label, f"{file} (line {number} of {path.name})")


def _names_below(path: Path) -> list[str]:
    """Relative names of images in a directory, at any depth, with / between folders."""

    def fail(error: OSError) -> None:
        raise error

    names: list[str] = []
    for directory, folders, files in os.walk(path, onerror=fail, followlinks=True):
        folders[:] = [
            folder
            for folder in folders
            if not folder.startswith(".") and not _leads_back(Path(directory) / folder, path)
        ]
        inside = Path(directory).relative_to(path).as_posix()
        before = "" if inside == "." else f"{inside}/"
        names += [before + file for file in files if _is_image(before + file)]
    return sorted(names)


def _leads_back(folder: Path, top: Path) -> bool:
    """True if a link leads to a folder above it, which would never end."""
    if not folder.is_symlink():
        return False
    way = [folder.parent, *folder.parent.parents][: len(folder.relative_to(top).parts)]
    target = folder.resolve()
    return any(passed.resolve().is_relative_to(target) for passed in way)


def _is_image(name: str) -> bool:
    parts = name.split("/")
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts)
    return not hidden and PurePosixPath(parts[-1]).suffix.lower() in IMAGE_SUFFIXES


def _by_class(
    names: list[str], labels: tuple[str, ...] | None, path: Path
) -> Iterator[tuple[str, str]]:
    """(class, name) sorted by class, for names like `cat/17.jpg` or `train/cat/17.jpg`."""
    split = sorted(name.split("/") for name in names)
    outer = 0  # folders around those of the classes
    while split and all(len(p) > outer + 2 and p[outer] == split[0][outer] for p in split):
        if labels is not None and split[0][outer] in labels:
            break
        outer += 1
    for parts in split:
        if len(parts) < outer + 2:
            raise DataError(
                f"{path}: {'/'.join(parts)} is outside the class folders; move it into one"
            )
        if SURROGATES.search(parts[outer]):
            raise DataError(f"{path}: folder name {parts[outer]!a} is not valid UTF-8; rename it")
        if labels is not None and parts[outer] not in labels:
            hint = did_you_mean(parts[outer], labels)
            raise DataError(f"{path}: folder {parts[outer]!r} is not listed in `labels`{hint}")
    if labels is not None:
        rank = {label: i for i, label in enumerate(labels)}
        split.sort(key=lambda parts: rank[parts[outer]])  # stable: sorted within a class
    for parts in split:
        yield parts[outer], "/".join(parts)


VERSION = 1
MANIFEST = "images.json"
MAX_THREADS = 16
ABANDONED_SECONDS = 24 * 3600


@dataclasses.dataclass(frozen=True)
class ImageStore:
    """Images (n, c, h, w) of one size, read-only in a memory-mapped file, with n classes or
    captions."""

    images: NDArray[np.uint8]
    labels: list[str]

    @staticmethod
    def open(directory: Path, fingerprint: str) -> ImageStore | None:
        """Open the images; None if absent, incomplete, or with another fingerprint."""
        try:
            manifest = from_json((directory / MANIFEST).read_bytes())
            if manifest["version"] != VERSION or manifest["fingerprint"] != fingerprint:
                return None
            path, shape = directory / manifest["file"], tuple(manifest["shape"])
            labels = manifest["labels"]
            if path.stat().st_size != math.prod(shape) or len(labels) != shape[0]:
                return None
            # A plain array over the mapping: indexing it costs less.
            return ImageStore(np.asarray(np.memmap(path, np.uint8, "r", shape=shape)), labels)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __len__(self) -> int:
        return len(self.labels)


def cached_images(
    config: ImagesConfig,
    root: Path,
    shape: ImageConfig,
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None = None,
) -> ImageStore:
    """Open decoded images, or decode them now with a thread per processor.

    config: the section of the recipe.  root: directory of its relative paths.  shape: supplies
    size, channels and fit.  fingerprint: identifies the inputs.  progress: called now and then with
    the number of images so far.  Raises DataError for the first unreadable image, and for a
    directory that cannot be written.
    """
    facts = [fingerprint, shape.size, shape.channels, shape.fit]
    whole = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    store = ImageStore.open(directory, whole)
    if store is not None:
        return store
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        _write(read_images(config, root), shape, directory, whole, progress)
    store = ImageStore.open(directory, whole)
    assert store is not None, directory
    return store


def _write(
    images: Iterable[LabelledImage],
    shape: ImageConfig,
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None,
) -> None:
    name = f"images-{fingerprint[:16]}.u8"
    labels: list[str] = []
    with whole_file(directory / name) as file:
        for pixels, label in _decoded(images, shape):
            file.write(pixels)
            labels += label
            if progress is not None:
                progress(len(labels))
    manifest = {
        "version": VERSION,
        "fingerprint": fingerprint,
        "file": name,
        "shape": [len(labels), shape.channels, shape.size, shape.size],
        "labels": labels,
    }
    with whole_file(directory / MANIFEST) as file:
        file.write(json.dumps(manifest).encode() + b"\n")
    _remove_old(directory, name)


def _decoded(
    images: Iterable[LabelledImage], shape: ImageConfig
) -> Iterator[tuple[bytes, list[str]]]:
    """Pixels of a chunk of images, concatenated, and their labels."""

    def decode(image: LabelledImage) -> bytes:
        pixels = fit_square(image.decode(shape.channels), shape.size, shape.fit)
        return pixels.contiguous().numpy().tobytes()

    with ThreadPoolExecutor(min(available_cores(), MAX_THREADS)) as pool:
        for chunk in chunks(images, CHUNK_IMAGES):
            yield b"".join(pool.map(decode, chunk)), [image.label for image in chunk]


def _remove_old(directory: Path, current: str) -> None:
    with contextlib.suppress(OSError):
        for path in directory.glob("images-*.u8"):
            if path.name != current:
                path.unlink()
        for path in directory.glob(".images*.partial"):
            if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                path.unlink()
