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
    """Settings in the files, with defaults for missing files."""

    pooling: str = "mean"
    normalize: bool = True
    """Scale vectors to length 1."""
    max_length: int | None = None
    """Maximum tokens of a text; None for the limit of the model."""
    lower_case: bool = False
    """Lower-case texts before tokenization."""
    prefix: str = ""
    """Put before every text."""


def read_sentence_settings(directory: Path) -> SentenceSettings:
    """Settings of a sentence-transformers model, or the defaults for other models.  Raises
    DataError."""
    path = directory / "modules.json"
    if not path.is_file():
        return SentenceSettings()
    modules: dict[str, list[dict[str, Any]]] = {"Transformer": [], "Pooling": [], "Normalize": []}
    for module in read_json(path, list):
        kind = str(module.get("type", "") if isinstance(module, dict) else "").rpartition(".")[2]
        if kind not in modules:
            raise DataError(f"{path}: module {kind!r} is not supported")
        modules[kind].append(module)
    if (count := len(modules["Pooling"])) != 1:
        raise DataError(
            f"{path} lists {count} Pooling modules instead of one; remove modules.json to use mean "
            "pooling"
        )
    if any(module.get("path") not in (None, "", ".") for module in modules["Transformer"]):
        raise DataError(f"{path}: the Transformer module must be in the directory itself")
    files = [directory / name for name in _SETTINGS if (directory / name).is_file()]
    settings = read_json(files[0]) if files else {}
    max_length = settings.get("max_seq_length")
    return SentenceSettings(
        pooling=_pooling(directory, modules["Pooling"][0].get("path", "1_Pooling"), path),
        normalize=bool(modules["Normalize"]),
        max_length=max_length if isinstance(max_length, int) and max_length > 0 else None,
        lower_case=settings.get("do_lower_case") is True,
        prefix=_prefix(directory / "config_sentence_transformers.json"),
    )


def _pooling(directory: Path, location: Any, modules: Path) -> str:
    parts = location.split("/") if isinstance(location, str) else [""]
    if {"", ".", ".."} & set(parts) or "\\" in location or Path(location).is_absolute():
        raise DataError(
            f"{modules}: the Pooling path {location!r} is not a directory beside this file"
        )
    path = directory / location / "config.json"
    settings = read_json(path)
    if settings.get("include_prompt") is False:
        raise DataError(f"{path}: include_prompt = false is not supported")
    if "pooling_mode" in settings:  # one setting in newer files, in older ones one for each way
        mode = settings["pooling_mode"]
        chosen = mode if isinstance(mode, list) else [mode]
    else:
        prefix = "pooling_mode_"
        on = [name for name, value in settings.items() if name.startswith(prefix) and value is True]
        chosen = [_OLDER.get(name, name.removeprefix(prefix)) for name in on]
    if len(chosen) != 1 or chosen[0] not in tuple(_POOLING):
        raise DataError(
            f"{path}: pooling by {' and '.join(map(repr, chosen)) or 'nothing'} is not "
            f"supported; use one of {', '.join(map(repr, _POOLING))}"
        )
    return _POOLING[chosen[0]]


def _prefix(path: Path) -> str:
    """The default prompt; others are told, as one prefix stands before all texts of a run."""
    settings = read_json(path) if path.is_file() else {}
    prompts, name = settings.get("prompts"), settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        return ""
    prefix = prompts.get(name, "") if isinstance(name, str) else ""
    if others := sorted({text for text in prompts.values() if text not in ("", prefix)}):
        message = "%s: for texts with another prompt (%s) import it again, with --set text.prefix=…"
        logger.warning(message, path, ", ".join(map(repr, others)))
    return str(prefix)
