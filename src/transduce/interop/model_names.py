"""Models of Marian, Firefox and Argos in directories, and their languages, without PyTorch and
without a conversion."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.errors import DataError, reading
from transduce.interop.argos import argos_languages
from transduce.interop.packed import packed_files
from transduce.support.files import read_json_object
from transduce.text.languages import NAMES, canonical

MODEL = "model.bin"
"""File of CTranslate2."""
VERSION, HEADER, TENSOR = 1, struct.Struct("<QQ"), struct.Struct("<4Q")
"""Beginning of a `.bin` of Marian: version and number of tensors; then of each the length of its
name, kind, rank and bytes."""


def model_folder(directory: Path) -> Path | None:
    """Folder of `model.bin`: the directory, or that in a package of Argos; None without one."""
    for folder in (directory, directory / "model"):
        if (folder / MODEL).is_file() and any(folder.glob("*vocabulary.*")):
            return folder
    return None


def marian_model_file(directory: Path) -> Path | None:
    """The model file of a directory, or None.  Raises DataError for several."""
    files = [
        file
        for file in sorted([*directory.glob("*.npz"), *directory.glob("*.bin")])
        if not file.name.startswith(("lex", "pytorch_model")) and ".optimizer." not in file.name
    ]
    npz = [file for file in files if file.suffix == ".npz"]
    files = npz or files
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise DataError(f"{directory} has several models ({names}); leave one")
    return files[0] if files and any(directory.glob("*.spm")) else None


def named_languages(directory: Path) -> tuple[str, str] | None:
    """Languages of a model, by the names of its files and its metadata; None if they do not say.
    Raises DataError for a model that is damaged at its beginning."""
    if (folder := model_folder(directory)) is not None:
        languages = argos_languages(folder)
        return (languages["source"], languages["target"]) if languages else None
    packed = [file.with_suffix("") for file in packed_files(directory) if ".bin" in file.suffixes]
    if (file := marian_model_file(directory)) is not None:
        _check_beginning(file)
    models = [file] if file is not None else [f for f in packed if not f.name.startswith("lex")]
    return marian_languages(directory, models[0]) if models else None


def _check_beginning(file: Path) -> None:
    """Raises DataError for a `.bin` that is shorter than the sizes of its tensors."""
    if file.suffix != ".bin":
        return
    with reading(file), file.open("rb") as content:
        beginning = content.read(HEADER.size)
        version, n = HEADER.unpack(beginning) if len(beginning) == HEADER.size else (0, 0)
        tensors = content.read(TENSOR.size * n) if n < 1 << 16 else b""
        is_whole = version == VERSION and len(tensors) == TENSOR.size * n
        sizes = [size for *_, size in TENSOR.iter_unpack(tensors)] if is_whole else []
        if not is_whole or sum(sizes) > file.stat().st_size:
            raise DataError(f"{file} is not a whole model of Marian; copy it again")


def marian_languages(directory: Path, file: Path) -> tuple[str, str] | None:
    """Languages of a model: of its registry or metadata, or in names as "enpt" or "en-pt"."""
    for name in ("registry.json", "metadata.json"):
        for path in (directory / name, directory.absolute().parent / name):
            content = read_json_object(path) if path.is_file() else {}
            if (pair := _listed_pair(content, file.name)) is not None:
                return pair
    names = [file.name, *(path.name for path in sorted(directory.glob("*.spm")))]
    parts = [part for name in names for part in name.split(".")]
    return next(filter(None, map(pair_of, [*parts, directory.resolve().name])), None)


def _listed_pair(content: Mapping[str, Any], model: str) -> tuple[str, str] | None:
    metadata = content.get("sourceLanguage"), content.get("targetLanguage")
    if all(isinstance(code, str) for code in metadata):
        return canonical(str(metadata[0])), canonical(str(metadata[1]))
    keys = [key for key, files in content.items() if json.dumps(model) in json.dumps(files)]
    return pair_of(keys[0]) if len(keys) == 1 else None


def pair_of(name: str) -> tuple[str, str] | None:
    """Canonical codes of two languages that a name consists of, with or without a hyphen."""
    cuts = [(name[:i], name[i:].removeprefix("-")) for i in range(2, len(name) - 1)]
    pairs = ((canonical(source), canonical(target)) for source, target in cuts)
    known = [pair for pair in pairs if set(pair) <= {*NAMES} and pair[0] != pair[1]]
    return known[0] if known and name.islower() else None
