"""Files of voices in ONNX: of Piper (VITS), and of Kokoro (StyleTTS 2)."""

import io
import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from transduce.errors import DataError
from transduce.support.files import read_json

WEIGHTS, CONFIG, STYLES = "voice.onnx", "voice.json", "styles.npz"
VOCABULARIES = ("vocab.json", "config.json")
"""Names of Kokoro's table of phones."""
KOKORO_RATE, WIDTH = 24_000, 256
"""Samples a second, and width of a style."""
BEGIN, END, BETWEEN = "^", "$", "_"
"""Marks of Piper's sequences of phones."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile)
"""Errors of damaged tables and archives."""


def read_voice(source: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Settings of a recipe, and files of its run, from a voice of Piper or Kokoro.

    source: the `.onnx` file, beside its `.onnx.json`, or beside the tables of Kokoro.  Raises
    DataError for another.
    """
    file = source.with_name(f"{source.name}.json")
    tables = [table for name in VOCABULARIES if (table := source.with_name(name)).exists()]
    if tables and not file.exists():
        return _read_kokoro(source, tables[0])
    try:
        config = read_json(file)
        ids, rate = config["phoneme_id_map"], config["audio"]["sample_rate"]
        voice = config["espeak"]["voice"]
    except UNREADABLE as error:
        raise DataError(f"{file} is no description of a Piper voice: {error!r}") from None
    kind = config.get("phoneme_type", "espeak")
    if kind != "espeak" or not {BEGIN, END, BETWEEN} <= set(ids):
        raise DataError(f"{file}: phoneme_type {kind!r} is not supported; voices of espeak are")
    recipe = _recipe(rate, str(voice).split("-")[0])
    return recipe, {WEIGHTS: source.read_bytes(), CONFIG: json.dumps(config, indent=1).encode()}


def _read_kokoro(source: Path, table: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """As `read_voice`.  table: the phones, beside one file of styles (n, 1, 256) by their names,
    `.npz` or NumPy's archive as `.bin`."""
    archives = sorted(file for file in table.parent.iterdir() if file.suffix in (".npz", ".bin"))
    if len(archives) != 1:
        raise DataError(
            f"{table.parent} has {len(archives)} files .npz or .bin; keep one of voices"
        )
    try:
        phones = {str(phone): [int(i)] for phone, i in read_json(table)["vocab"].items()}
        with np.load(archives[0]) as archive:
            styles = {name: archive[name].astype(np.float32) for name in sorted(archive.files)}
        shapes = {style.shape[1:] for style in styles.values()}
    except UNREADABLE as error:
        raise DataError(f"{table}, {archives[0]}: no tables of a Kokoro voice: {error!r}") from None
    if shapes != {(1, WIDTH)} or any(len(style) == 0 for style in styles.values()):
        raise DataError(f"{archives[0]}: styles are not of the shape (n, 1, {WIDTH})")
    config = {
        "phoneme_id_map": phones,
        "speaker_id_map": {name: i for i, name in enumerate(styles)},
    }
    file = io.BytesIO()
    np.savez(file, **styles)
    files = {WEIGHTS: source.read_bytes(), STYLES: file.getvalue()}
    return _recipe(KOKORO_RATE, ""), {**files, CONFIG: json.dumps(config, indent=1).encode()}


def _recipe(rate: int, language: str) -> dict[str, Any]:
    return {
        "task": "speech-synthesis",
        "data": {},
        "audio": {"rate": rate},
        "text": {"language": language},
        "model": {"kind": "onnx"},
    }
