"""A pass of a model, recorded from outside by hooks: attention, layers, logits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from transduce.explain.parts import Array, Stack, Vectors
from transduce.nn.attention import CrossAttention, SelfAttention, StepContext, record_attention
from transduce.nn.convolution import (
    BytenetDecoder,
    BytenetEncoder,
    ConvolutionDecoder,
    ConvolutionEncoder,
    TextCnnEncoder,
)
from transduce.nn.heads.label import PoolingHead
from transduce.nn.memory_network import MemoryDecoder, MemoryEncoder
from transduce.nn.positions import (
    AlibiPositions,
    LearnedPositions,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    rotate,
)
from transduce.nn.recurrent import AdditiveScore, GeneralScore, RecurrentDecoder, RecurrentEncoder
from transduce.nn.residual import PreNorm
from transduce.nn.transformer import SsruDecoder, TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded

WITH_POSITIONS = (
    TransformerEncoder,
    TransformerDecoder,
    ConvolutionEncoder,
    ConvolutionDecoder,
    SsruDecoder,
)
WAVES = 48
WAVE_PAIRS = 64
"""Positions whose vectors are shown, and pairs of dimensions of these."""


@dataclass
class HeadInput:
    """Query (h, t, d), key and value (h, s, d) of an attention, and its bias (h, t, s)."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None

    def vectors(self, head: int) -> Vectors:
        """Query, key and value of a head."""
        return Vectors(*(as_array(x[head]) for x in (self.query, self.key, self.value)))

    def after(self, first: int) -> HeadInput:
        """Without the positions before `first`."""
        bias = None if self.bias is None else self.bias[..., first:, first:]
        query, key, value = (x[:, first:] for x in (self.query, self.key, self.value))
        return HeadInput(query, key, value, bias)

    def bias_of(self, head: int) -> Array | None:
        """The bias (t, s) of a head, if any."""
        if self.bias is None:
            return None
        t, s = self.query.shape[1], self.key.shape[1]
        return as_array(self.bias.expand(len(self.query), t, s)[head])


@dataclass
class PassRecording:
    """Records of the hooks in a pass over a row.

    attention: (h, t, s) by name.  layers: (t, m) after each layer, by the name of the stack.
    shapes: of each module's output.  heads: by name of the attention.
    """

    attention: dict[str, Tensor] = field(default_factory=dict)
    layers: dict[str, list[Tensor]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    heads: dict[str, HeadInput] = field(default_factory=dict)


@contextmanager
def record_pass(model: nn.Module) -> Iterator[PassRecording]:
    """Record the pass over a row that happens inside; results do not change."""
    recording = PassRecording()
    with ExitStack() as stack:
        maps = stack.enter_context(record_attention(model))
        for name, module in model.named_modules():
            if name:
                stack.callback(_note_shape(name, module, recording).remove)
            if isinstance(module, SelfAttention | CrossAttention):
                stack.callback(_note_heads(name, module, recording).remove)
        for name, stacked in stacks_of(model).items():
            for layer in layers_of(stacked):
                stack.callback(_note_layer(name, layer, recording).remove)
        yield recording
        for name, recorded in maps.items():
            if recorded:
                recording.attention[name] = recorded[0][0].float().cpu()


@contextmanager
def without_positions(model: nn.Module) -> Iterator[bool]:
    """Leave all positions out while the context lasts; False where there are none to leave out."""
    there = [
        module
        for module in model.modules()
        if isinstance(getattr(module, "positions", None), Positions)
        and type(module.positions) is not Positions
    ]
    originals: list[Any] = [module.positions for module in there]
    try:
        for module in there:
            module.positions = Positions()
        yield bool(there)
    finally:
        for module, positions in zip(there, originals, strict=True):
            module.positions = positions


def stacks_of(model: nn.Module) -> dict[str, nn.Module]:
    """The encoder and the decoder that a model has."""
    named = ((name, getattr(model, name, None)) for name in ("encoder", "decoder"))
    return {name: stack for name, stack in named if isinstance(stack, nn.Module)}


def describe_stack(stack: nn.Module, sequence: str, d_model: int) -> Stack:
    """Facts of an encoder or decoder, with the waves of its positions.

    stack: encoder or decoder.  sequence: name of the sequence it reads.  d_model: width of the
    model.
    """
    layers: Sequence[Any] = layers_of(stack)
    facts = Stack(sequence, type(stack).__name__, len(layers), d_model)
    if isinstance(stack, WITH_POSITIONS):
        kind, waves = _waves(stack.positions, d_model)
        facts = replace(facts, positions=kind, waves=waves)
    match stack:
        case TransformerEncoder() | TransformerDecoder():
            heads, is_pre = layers[0].self_attention, layers[0].feed_forward_residual
            return replace(
                facts,
                kind="transformer",
                n_heads=heads.n_heads,
                d_head=heads.width // heads.n_heads,
                pre_norm=isinstance(is_pre, PreNorm),
            )
        case ConvolutionEncoder() | ConvolutionDecoder():
            n_heads = int(isinstance(stack, ConvolutionDecoder) and stack.looks)
            return replace(facts, kind="convolution", n_heads=n_heads, pre_norm=True)
        case BytenetEncoder() | BytenetDecoder():
            return replace(facts, kind="bytenet", pre_norm=True)
        case TextCnnEncoder():
            return replace(facts, kind="text-cnn", n_layers=1)
        case MemoryEncoder() | MemoryDecoder():
            return replace(facts, kind="memory-network", n_heads=1)
        case SsruDecoder():
            return replace(facts, kind="recurrent", n_heads=stack.n_heads)
        case RecurrentEncoder():
            return replace(facts, kind="recurrent", n_layers=stack.layers.cells.num_layers)
        case RecurrentDecoder():
            context = _context(stack)
            n_heads = int(context not in ("", "fixed"))
            facts = replace(facts, kind="recurrent", n_layers=stack.n_layers)
            return replace(facts, n_heads=n_heads, context=context)
    return facts


def as_array(x: Tensor) -> Array:
    """A tensor as a float32 array."""
    array: Array = x.detach().float().cpu().numpy()
    return array


def layers_of(stack: nn.Module) -> Sequence[nn.Module]:
    """Modules whose outputs are the layers of a stack; none where PyTorch keeps them inside."""
    layers = getattr(stack, "residuals", None) or getattr(stack, "layers", None)
    return list(layers) if isinstance(layers, nn.ModuleList) else []


def _note_shape(name: str, module: nn.Module, recording: PassRecording) -> Any:
    def note(module: nn.Module, args: Any, output: Any) -> None:
        value = output.values if isinstance(output, Padded) else output
        if isinstance(value, Tensor):
            recording.shapes.setdefault(name, tuple(value.shape))

    return module.register_forward_hook(note)


def _note_layer(name: str, layer: nn.Module, recording: PassRecording) -> Any:
    def note(module: nn.Module, args: Any, output: Tensor) -> None:
        recording.layers.setdefault(name, []).append(output.detach().flatten(0, -2))

    return layer.register_forward_hook(note)


def _note_heads(name: str, module: nn.Module, recording: PassRecording) -> Any:
    def note(module: Any, args: tuple[Any, ...], output: Any) -> None:
        context: StepContext = args[1]
        bias = None
        if isinstance(module, SelfAttention):
            query, key, value = module.heads(module.query_key_value(args[0]), 3)
            if context.angles is not None:
                query, key = rotate(query, context.angles), rotate(key, context.angles)
            bias = context.mask.bias
        else:
            (query,) = module.heads(module.query(args[0]), 1)
            key, value = args[2]
        if bias is not None and bias.dim() > 3:
            bias = bias[0]
        recording.heads[name] = HeadInput(query[0], key[0], value[0], bias)

    return module.register_forward_hook(note)


def _waves(positions: nn.Module, d_model: int) -> tuple[str, Array | None]:
    """The kind of positions, and a matrix that shows them."""
    at = torch.arange(WAVES)
    match positions:
        case SinusoidalPositions() | LearnedPositions():
            kind = "sinusoidal" if isinstance(positions, SinusoidalPositions) else "learned"
            if isinstance(positions, LearnedPositions):
                at = at[: positions.table.num_embeddings].to(positions.table.weight.device)
            zeros = torch.zeros(1, len(at), d_model, device=at.device)
            return kind, _spaced(as_array(positions.embed(zeros, at)[0]))
        case RotaryPositions():
            cosines = positions.angles(at, torch.float32).cos
            return "rotary", as_array(cosines[:, : positions.d_head // 2])
        case AlibiPositions() | RelativePositions():
            kind = "alibi" if isinstance(positions, AlibiPositions) else "relative"
            where = at.to(next(itertools.chain(positions.parameters(), positions.buffers())).device)
            bias = positions.bias(where, where)
            return kind, np.zeros((0, 0), np.float32) if bias is None else as_array(bias[0])
    return "none", None


def _spaced(waves: Array) -> Array:
    """The columns, or of many the pairs that lie evenly among them."""
    pairs = waves.shape[1] // 2
    if pairs <= WAVE_PAIRS:
        return waves
    chosen = np.linspace(0, pairs - 1, WAVE_PAIRS).round().astype(int)
    return waves[:, np.stack([2 * chosen, 2 * chosen + 1], 1).ravel()]


def _context(decoder: RecurrentDecoder) -> str:
    if not decoder.looks:
        return ""
    if decoder.cross_attention is None:
        return "fixed"
    score = decoder.cross_attention.score
    if isinstance(score, AdditiveScore):
        return "additive"
    return "general" if isinstance(score, GeneralScore) else "dot"


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
