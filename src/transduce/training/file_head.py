"""What a file of weights says of itself before any of it is read, or memory is taken for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import safetensors

from transduce.errors import RunError
from transduce.training.weights import FORMAT


class FileHead(NamedTuple):
    """shapes: of the tensors, by name.  texts: what stands beside them."""

    shapes: Mapping[str, tuple[int, ...]]
    texts: Mapping[str, str]


def head_of(path: Path) -> FileHead:
    """The head of a safetensors file, whose sizes are those that the file has room for.

    Raises RunError when it is missing, damaged or of a newer format than this version reads.
    """
    if not path.is_file():
        raise RunError(f"{path}: no such file; is this a finished run directory?")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            texts = dict(file.metadata() or {})
            names = file.keys()
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except (OSError, safetensors.SafetensorError) as error:
        raise RunError(
            f"{path} is not a whole safetensors file ({error}); copy or train it again"
        ) from None
    version = texts.get("transduce_format", "1")
    if not version.isdecimal() or len(version) > 9 or int(version) > FORMAT:
        raise RunError(
            f"{path} is of format {version}, newer than this version of transduce "
            f"(format {FORMAT}); upgrade transduce"
        )
    return FileHead(shapes, texts)
