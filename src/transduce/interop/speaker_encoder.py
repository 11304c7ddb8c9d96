"""File of an encoder of speakers, as Resemblyzer distributes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transduce.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

SPEAKERS = "speakers.safetensors"
BINS, WIDTH, LAYERS = 40, 256, 3
WIDTHS: dict[str, tuple[int, ...]] = {
    "linear.weight": (WIDTH, WIDTH),
    "linear.bias": (WIDTH,),
    **{f"lstm.weight_ih_l{i}": (4 * WIDTH, WIDTH if i else BINS) for i in range(LAYERS)},
    **{f"lstm.weight_hh_l{i}": (4 * WIDTH, WIDTH) for i in range(LAYERS)},
    **{f"lstm.bias_{side}_l{i}": (4 * WIDTH,) for i in range(LAYERS) for side in ("ih", "hh")},
}
"""Shapes of its weights, by name."""


def read_speaker_encoder(source: Path) -> dict[str, Tensor] | None:
    """Weights of an encoder by name; None for another file.  Raises DataError for other shapes."""
    import torch

    try:
        stored = torch.load(source, "cpu", weights_only=True)["model_state"]
        weights = {name: stored[name].float() for name in WIDTHS}
    except Exception:  # errors of pickles have no common class
        return None
    for name, tensor in weights.items():
        if tuple(tensor.shape) != WIDTHS[name]:
            raise DataError(f"{source}: {name} has shape {tuple(tensor.shape)}, not {WIDTHS[name]}")
    return weights
