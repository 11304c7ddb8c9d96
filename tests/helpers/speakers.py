"""A file of an encoder of speakers."""

from pathlib import Path

import torch

from transduce.interop.speaker_encoder import WIDTHS


def weights_file(path: Path, **changed: torch.Tensor) -> Path:
    """A file as of Resemblyzer, with random weights."""
    torch.manual_seed(0)
    state = {name: torch.randn(shape) / shape[-1] ** 0.5 for name, shape in WIDTHS.items()}
    state["linear.bias"] = torch.zeros(256)
    extra = {"similarity_weight": torch.ones(1)}
    torch.save({"model_state": state | extra | changed, "step": 1}, path)
    return path
