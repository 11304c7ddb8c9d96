"""Files of sentence-transformers: pooling of the vectors of tokens."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.interop.read import read_json

logger = logging.getLogger("transduce")

_POOLING = {"mean": "mean", "cls": "first", "max": "max"}
_OLDER = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_SETTINGS = tuple(f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert"))


@dataclass(frozen=True)
class SentenceSettings:
    """What the files say; by default what is done without them."""

    pooling: str = "mean"
    normalize: bool = True
    """Whether vectors are scaled to length 1."""
    max_length: int | None = None
    """Tokens of a text that are read; None is as many as the model can."""
    lower_case: bool = False
    """Whether texts are put into small letters first, whatever the tokenizer does."""


def read_sentence_settings(directory: Path) -> SentenceSettings:
    """The settings of a sentence-transformers model, or the usual where it is none.

    Raises DataError for what we have not.
    """
    path = directory / "modules.json"
    if not path.is_file():
        return SentenceSettings()
    modules: dict[str, list[dict[str, Any]]] = {"Transformer": [], "Pooling": [], "Normalize": []}
    for module in read_json(path, list):
        kind = str(module.get("type", "") if isinstance(module, dict) else "").rpartition(".")[2]
        if kind not in modules:
            raise DataError(f"{path}: a module {kind!r} cannot be imported")
        modules[kind].append(module)
    if (count := len(modules["Pooling"])) != 1:
        raise DataError(
            f"{path} names {count} Pooling modules instead of one; without modules.json the mean "
            "of the tokens is taken"
        )
    if any(module.get("path") not in (None, "", ".") for module in modules["Transformer"]):
        raise DataError(f"{path}: the Transformer module must lie in the directory itself")
    _warn_of_prompt(directory / "config_sentence_transformers.json")
    files = [directory / name for name in _SETTINGS if (directory / name).is_file()]
    said = read_json(files[0]) if files else {}
    max_length = said.get("max_seq_length")
    return SentenceSettings(
        pooling=_pooling(directory, modules["Pooling"][0].get("path", "1_Pooling"), path),
        normalize=bool(modules["Normalize"]),
        max_length=max_length if isinstance(max_length, int) and max_length > 0 else None,
        lower_case=said.get("do_lower_case") is True,
    )


def _pooling(directory: Path, place: Any, modules: Path) -> str:
    """Our pooling for that of the Pooling module in `place`, which `modules` names."""
    parts = place.split("/") if isinstance(place, str) else [""]
    if {"", ".", ".."} & set(parts) or "\\" in place or Path(place).is_absolute():
        raise DataError(f"{modules}: the path {place!r} of Pooling is not a directory beside it")
    path = directory / place / "config.json"
    said = read_json(path)
    if "pooling_mode" in said:  # one setting in newer files, in older ones one for each way
        mode = said["pooling_mode"]
        chosen = mode if isinstance(mode, list) else [mode]
    else:
        prefix = "pooling_mode_"
        on = [name for name, value in said.items() if name.startswith(prefix) and value is True]
        chosen = [_OLDER.get(name, name.removeprefix(prefix)) for name in on]
    if len(chosen) != 1 or chosen[0] not in tuple(_POOLING):
        raise DataError(
            f"{path}: pooling by {' and '.join(map(repr, chosen)) or 'nothing'} cannot be "
            f"imported, only one of {', '.join(map(repr, _POOLING))}"
        )
    return _POOLING[chosen[0]]


def _warn_of_prompt(path: Path) -> None:
    """Says it where a text is put before every text by default, which we do not."""
    said = read_json(path) if path.is_file() else {}
    prompts, name = said.get("prompts"), said.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if prompt:
        message = "%s: the default prompt %r is not followed; write it before every text"
        logger.warning(message, path, prompt)
