"""A recipe of labels for small images, which a tiny model learns in seconds."""

from __future__ import annotations

from typing import Any

from helpers.tiny_run import training
from transduce.settings.sections import apply_overrides

STACK = {
    "n_layers": 1,
    "n_heads": 2,
    "d_ff": 32,
    "activation": "gelu",
    "norm_order": "pre",
    "positions": "learned",
    "dropout": 0.0,
}
MODEL = {"d_model": 24, "patch_size": 4, "encoder": STACK}


def settings(train: dict[str, Any], /, *overrides: str, **sections: Any) -> dict[str, Any]:
    """A recipe for the images that a section names."""
    recipe = {
        "task": "image-classification",
        "data": {"train": train, "hold_out": 0.1},
        "image": {"size": 8},
        "model": MODEL,
        "training": training(8, 128, 1e-2, validate_every=4, label_smoothing=0.0),
        **sections,
    }
    return apply_overrides(recipe, overrides)
