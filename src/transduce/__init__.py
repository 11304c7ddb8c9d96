"""Train a Transformer on your own pairs, look inside it, and put it to work.

    import transduce

    path, outcome = transduce.train("recipe.toml")
    run = transduce.load(path)
    print(run("ein kleiner Hund").text)

PyTorch is imported when a name that needs it is first used, not before.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from transduce.errors import (
    DataError,
    InputError,
    MemoryLimitError,
    RunError,
    SettingError,
    TrainingError,
    TransduceError,
)

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.inspect.attention import record_attention
    from transduce.run import Run, load, train
    from transduce.tasks.task import Evaluation
    from transduce.tasks.translations import Alignment, Candidate, Translation

__version__ = "0.1.0"

__all__ = [
    "Alignment",
    "Candidate",
    "DataError",
    "DecodingOptions",
    "Evaluation",
    "InputError",
    "MemoryLimitError",
    "Run",
    "RunError",
    "SettingError",
    "TrainingError",
    "TransduceError",
    "Translation",
    "__version__",
    "load",
    "record_attention",
    "train",
]

_HOMES = {
    "Alignment": "transduce.tasks.translations",
    "Candidate": "transduce.tasks.translations",
    "DecodingOptions": "transduce.decoding.options",
    "Evaluation": "transduce.tasks.task",
    "Run": "transduce.run",
    "Translation": "transduce.tasks.translations",
    "load": "transduce.run",
    "record_attention": "transduce.inspect.attention",
    "train": "transduce.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
