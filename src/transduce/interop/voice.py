"""Files of a voice of Piper, VITS in ONNX."""

import json
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.support.files import read_json

WEIGHTS, CONFIG = "voice.onnx", "voice.json"
BEGIN, END, BETWEEN = "^", "$", "_"
"""Marks of Piper's sequences of phones."""


def read_voice(source: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Settings of a recipe, and files of its run, from a voice of Piper.

    source: the `.onnx` file, beside its `.onnx.json`.  Raises DataError for another.
    """
    file = source.with_name(f"{source.name}.json")
    try:
        config = read_json(file)
        ids, rate = config["phoneme_id_map"], config["audio"]["sample_rate"]
        voice = config["espeak"]["voice"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is no description of a Piper voice: {error!r}") from None
    kind = config.get("phoneme_type", "espeak")
    if kind != "espeak" or not {BEGIN, END, BETWEEN} <= set(ids):
        raise DataError(f"{file}: phoneme_type {kind!r} is not supported; voices of espeak are")
    recipe = {
        "task": "speech-synthesis",
        "data": {},
        "audio": {"rate": rate},
        "text": {"language": str(voice).split("-")[0]},
        "model": {"kind": "onnx"},
    }
    return recipe, {WEIGHTS: source.read_bytes(), CONFIG: json.dumps(config, indent=1).encode()}
