"""Choice of packed batches, the way of a GPU, where a task and its model allow them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from transduce.nn.attention import MultiHeadAttention
from transduce.nn.kernels import packed_attention
from transduce.nn.positions import Positions
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.training.config import TrainingConfig
from transduce.training.task import PackedTask, TrainingTask


def packer_of(
    task: TrainingTask, config: TrainingConfig, log: Callable[[str], None]
) -> PackedTask | None:
    """The task, if its batches are to be packed: on a GPU, wherever its kernel can.

    log: writes the line that names the reason for padding, on a GPU.
    """
    device = next(task.model.parameters()).device
    if device.type != "cuda":
        return None
    if isinstance(task, PackedTask):
        dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        reason = _own_loss(type(task)) or task.padding_reason()
        reason = reason or padding_reason(task.model, device, dtype)
        if not reason:
            return task
    else:
        reason = f"{type(task).__name__} has no packed loss"
    log(f"batches are padded instead of packed, which is slower on a GPU: {reason}")
    return None


def _own_loss(kind: type) -> str:
    """Reason for padding if a subclass of a task that packs computes another loss."""
    first = next(c for c in kind.__mro__ if {"loss", "packed_loss"} & vars(c).keys())
    return "" if "packed_loss" in vars(first) else f"{first.__name__} computes its own loss"


def padding_reason(model: nn.Module, device: torch.device, dtype: torch.dtype) -> str:
    """Setting of a model for which its batches have to stay padded; empty for none."""
    for name in ("encoder", "decoder"):
        stack = getattr(model, name, None)
        if stack is None:
            continue
        if not isinstance(stack, TransformerEncoder | TransformerDecoder):
            return f'model.{name}.kind is not "transformer"'
        if type(stack.positions).bias is not Positions.bias:
            return f"model.{name}.positions add a bias to the scores of attention"
        for attention in stack.modules():
            if isinstance(attention, MultiHeadAttention):
                if attention.dropout:
                    return f"model.{name}.attention_dropout is not 0"
                d_head = attention.width // attention.n_heads
                if refusal := packed_attention.refusal(device, d_head, dtype):
                    return refusal
    return ""
