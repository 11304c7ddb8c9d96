"""Logits, hidden states and attention of a model as tensors, recorded while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from transduce.explain.recording import layers_of, stacks_of
from transduce.nn.attention import record_attention
from transduce.nn.heads.label import PoolingHead
from transduce.sequence import Padded


@dataclass
class RecordedTensors:
    """Tensors of all calls of a model, in order, without gradient, on its device.

    Logits and hidden states are copies that a probe can be trained on.

    logits: output of the head at each call: (b, t, v) of a vocabulary, (b, labels) of a classifier,
    (b, t, 2) of a span.  hidden: outputs (b, t, m) of a whole stack, `encoder` or `decoder`, and of
    each of its layers, such as `decoder.layers.0`, which the last norm of the stack follows; those
    of layers are (n, m) in a batch with padding, with its n real positions.  attention: by name,
    the weights (b, h, t, s), as from `record_attention`.
    """

    logits: list[Tensor] = field(default_factory=list)
    hidden: dict[str, list[Tensor]] = field(default_factory=dict)
    attention: dict[str, list[Tensor]] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = {"logits": self.logits, **self.hidden, **self.attention}
        sizes = (f"{name} {len(calls)}" for name, calls in parts.items() if calls)
        return f"<RecordedTensors, calls of each: {', '.join(sizes) or 'none'}>"


@contextmanager
def record_tensors(model: nn.Module) -> Iterator[RecordedTensors]:
    """Record logits, hidden states and attention within the context.

    model: a network, such as `run.model`.  A call reads a whole text, or in decoding another
    token of each hypothesis.  Results change by rounding at most.  Nothing is recorded of engines
    other than PyTorch, and no logits where a shortlist takes the place of the head.
    """
    with ExitStack() as stack:
        recorded = RecordedTensors(attention=stack.enter_context(record_attention(model)))
        head = getattr(model, "head", None)
        if isinstance(head, nn.Module) and not isinstance(head, PoolingHead):
            stack.callback(_record(head, recorded.logits).remove)
        for name, stacked in stacks_of(model).items():
            parts = {name: stacked}
            parts |= {f"{name}.layers.{i}": layer for i, layer in enumerate(layers_of(stacked))}
            for part, module in parts.items():
                stack.callback(_record(module, recorded.hidden.setdefault(part, [])).remove)
        yield recorded


def _record(module: nn.Module, calls: list[Tensor]) -> RemovableHandle:
    def note(module: nn.Module, args: Any, output: Tensor | Padded) -> None:
        values = output.values if isinstance(output, Padded) else output
        with torch.inference_mode(False):  # autograd refuses tensors of inference mode
            calls.append(values.detach().clone())

    return module.register_forward_hook(note)
