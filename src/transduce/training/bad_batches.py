"""Batches whose loss or gradient was not finite, kept as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.sequence import Padded
from transduce.training.weights import write_text

DIRECTORY = "non_finite"
MAX_FILES = 100
"""Limit on saved files, to protect the disk."""
MAX_NUMBERS = 100_000
"""Limit on the numbers of a tensor; larger tensors, such as images, are summarised in words."""


def save_batches(run: Path, step: int, what: str, batches: Sequence[tuple[str, Any]]) -> str:
    """Write the batches of a step, each with its description, as JSON; returns the path in the run,
    empty once the limit of files is reached.  Raises RunError if writing fails."""
    path = run / DIRECTORY / f"step-{step:08d}.json"
    if path.parent.is_dir() and len(list(path.parent.glob("*.json"))) >= MAX_FILES:
        return ""
    path.parent.mkdir(exist_ok=True)
    content = {
        "step": step,
        "what": what,
        "batches": [
            {"description": description, "content": as_json(batch)}
            for description, batch in batches
        ],
    }
    write_text(path, json.dumps(content, ensure_ascii=False) + "\n")
    return f"{DIRECTORY}/{path.name}"


def as_json(value: Any) -> Any:
    """Convert the contents of a batch to JSON; non-finite numbers become words."""
    if isinstance(value, Padded):
        rows = zip(value.values, value.real, strict=True)
        return [as_json(values[real]) for values, real in rows]
    if isinstance(value, np.ndarray):
        return as_json(torch.from_numpy(np.ascontiguousarray(value)))
    if isinstance(value, Tensor):
        return _tensor_as_json(value.detach().cpu())
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_json(part) for name, part in value._asdict().items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: as_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | str | None) else str(value)


def _tensor_as_json(tensor: Tensor) -> Any:
    if tensor.numel() <= MAX_NUMBERS:
        return as_json(tensor.tolist())
    wide = tensor.double()
    return {
        "shape": list(tensor.shape),
        "finite": bool(wide.isfinite().all()),
        "smallest": as_json(wide.min().item()),
        "largest": as_json(wide.max().item()),
    }
