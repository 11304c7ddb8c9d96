"""Stacks compiled for losses that are not traced whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def compile_stacks(model: nn.Module, **options: Any) -> None:
    """Compile encoder and decoder, as functions to tensors: tuples that PyTorch 2.11 compiles may
    have lost their parts.  options: as of `torch.compile`."""
    for name, stack in model.named_children():
        if name in ("encoder", "decoder"):
            _compile(stack, options)


def _compile(stack: nn.Module, options: dict[str, Any]) -> None:
    forward = stack.forward
    values = torch.compile(lambda *inputs: forward(*inputs).values, **options)
    stack.forward = lambda x, *rest: x.with_values(values(x, *rest))
