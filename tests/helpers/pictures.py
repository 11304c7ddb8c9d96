"""Pictures that small models learn in seconds, and files of the formats that they come in."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]

KINDS = ("diagonal", "flat", "upright")
"""Which way stripes go."""
COLOURS = {"red": (220, 30, 30), "green": (30, 180, 30), "blue": (40, 40, 230)}
COUNTS = ("one", "two", "three")
SIZE = 8


def stripes(n: int, seed: int = 0) -> tuple[list[Pixels], list[str]]:
    """`n` pictures (8, 8, 3) of noisy stripes anywhere, and their kinds.

    A single pixel is uninformative: each kind has as many bright as dark ones.
    """
    chance = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    along = {"diagonal": rows + columns, "flat": rows, "upright": columns}
    pictures, labels = [], []
    for _ in range(n):
        kind = KINDS[chance.integers(3)]
        bright = (along[kind] + chance.integers(4)) % 4 < 2
        grey = 128 + 50 * np.where(bright, 1, -1)[..., None]
        noisy = grey + chance.normal(0, 20, (SIZE, SIZE, 1)) + chance.normal(0, 5, (SIZE, SIZE, 3))
        pictures.append(noisy.clip(0, 255).astype(np.uint8))
        labels.append(kind)
    return pictures, labels


def squares(n: int, seed: int = 0) -> tuple[list[Pixels], list[str]]:
    """`n` pictures (15, 15, 3) of one to three squares of one colour, and captions."""
    chance = random.Random(seed)
    pictures, captions = [], []
    for _ in range(n):
        count, colour = chance.randint(1, 3), chance.choice(sorted(COLOURS))
        picture = np.full((15, 15, 3), chance.randint(205, 255), np.uint8)
        for cell in chance.sample(range(9), count):
            top, left = 5 * (cell // 3), 5 * (cell % 3)
            picture[top + 1 : top + 4, left + 1 : left + 4] = COLOURS[colour]
        pictures.append(picture)
        begin, end = ("there is", "") if count == 1 else ("there are", "s")
        captions.append(f"{begin} {COUNTS[count - 1]} {colour} square{end}")
    return pictures, captions


def png(picture: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def write_folder(path: Path, pictures: Sequence[Pixels], labels: Sequence[str]) -> dict[str, Any]:
    """Settings of the section that reads the written files, as below."""
    for i, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        (path / label).mkdir(parents=True, exist_ok=True)
        (path / label / f"{i:04}.png").write_bytes(png(picture))
    return {"kind": "folder", "path": str(path)}


def write_zip(path: Path, pictures: Sequence[Pixels], labels: Sequence[str]) -> dict[str, Any]:
    path = path.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for i, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
            archive.writestr(f"pictures/{label}/{i:04}.png", png(picture))
    return {"kind": "folder", "path": str(path)}


def write_idx(path: Path, pictures: Sequence[Pixels], labels: Sequence[str]) -> dict[str, Any]:
    """In grey, with the kinds as numbers."""
    grey = np.stack([picture.mean(-1).astype(np.uint8) for picture in pictures])
    numbers = np.array([KINDS.index(label) for label in labels], np.uint8)
    result = {"kind": "idx"}
    for name, array in (("images", grey), ("labels", numbers)):
        file = path.with_suffix(f".{name}")
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        file.write_bytes(header + array.tobytes())
        result[name] = str(file)
    return result


def write_parquet(path: Path, pictures: Sequence[Pixels], labels: Sequence[str]) -> dict[str, Any]:
    import pyarrow
    from pyarrow import parquet

    path = path.with_suffix(".parquet")
    images = [{"bytes": png(picture), "path": None} for picture in pictures]
    parquet.write_table(pyarrow.table({"image": images, "label": list(labels)}), path)
    return {"kind": "parquet", "path": str(path)}


def write_table(path: Path, pictures: Sequence[Pixels], labels: Sequence[str]) -> dict[str, Any]:
    """A table with a header, `PATH.tsv`, beside a directory PATH of the pictures it names."""
    path.mkdir()
    lines = ["file\tsays"]
    for i, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        (path / f"{i:04}.png").write_bytes(png(picture))
        lines.append(f"{path.name}/{i:04}.png\t{label}")
    path.with_suffix(".tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {
        "kind": "table",
        "path": str(path.with_suffix(".tsv")),
        "image": "file",
        "label": "says",
    }
