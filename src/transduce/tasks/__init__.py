"""Tasks: data, model, loss and metric, joined.  Their table is `transduce.tasks.table`.

Imports nothing by itself, so that a process without PyTorch can import the parts without it.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "TASKS":
        raise AttributeError(f"module 'transduce.tasks' has no attribute {name!r}")
    return getattr(importlib.import_module("transduce.tasks.table"), name)
