"""Credit: exact shares of a difference of logits, by token, position, bias, sublayer and head.

Attention patterns, scales of norms and gates of activations are held as a pass has them; all else
is linear, so that the shares add up to the difference (the idea of TensorLens, arXiv 2601.17958).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.explain.knock_out import head_of
from transduce.explain.parts import Credit
from transduce.explain.recording import record_tensors, stacks_of
from transduce.nn.attention import MultiHeadAttention
from transduce.nn.feed_forward import FeedForward, GatedFeedForward
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.label import LabelHead
from transduce.nn.heads.vocabulary import MaskedTokenHead
from transduce.nn.transformer import (
    SimpleRecurrentUnit,
    SsruDecoder,
    TransformerDecoder,
    TransformerEncoder,
)
from transduce.sequence import Padded

LINEAR_STACKS = (TransformerEncoder, TransformerDecoder, SsruDecoder)
SEGMENTS = "segments"
ACTIVATED = (FeedForward, GatedFeedForward, LabelHead, MaskedTokenHead)
SUBLAYERS = (MultiHeadAttention, FeedForward, GatedFeedForward, SimpleRecurrentUnit)


class Choice(NamedTuple):
    """A row of the logits, and two ids: the token (or label) written and its rival."""

    row: int
    written: int
    rival: int


@dataclass
class _Leaves:
    """Inputs of the linear map, by name: vectors (t, m) of tokens, of positions and segments and,
    where the sublayers are cut, of their outputs; all biases.

    mixed: inputs of the output matrices of attentions.
    """

    tokens: dict[str, Tensor] = field(default_factory=dict)
    positions: dict[str, Tensor] = field(default_factory=dict)
    sublayers: dict[str, Tensor] = field(default_factory=dict)
    biases: dict[str, Tensor] = field(default_factory=dict)
    mixed: dict[str, Tensor] = field(default_factory=dict)


def nonlinear_stacks(model: nn.Module) -> dict[str, str]:
    """Stacks that are not linear where their patterns are held, or whose matrices are reduced for
    inference and have no gradients: names and kinds."""
    if not any(isinstance(part, nn.Linear) for part in model.modules()):
        return {"model": "network in reduced precision"}
    return {
        name: type(stack).__name__
        for name, stack in stacks_of(model).items()
        if not isinstance(stack, LINEAR_STACKS)
    }


def credit_of(
    model: nn.Module,
    run: Callable[[], Tensor],
    choices: Sequence[Choice],
    names: Callable[[Sequence[int]], list[str]],
    first: int = 0,
) -> tuple[Credit, ...]:
    """Credit of each choice in a pass over one row.

    model: the network.  choices: tokens to explain.  run: the pass, which gives logits (1, t, v).
    names: of the ids of rivals.  first: positions of the decoder that are not shown.  Raises
    SettingError for a stack of `nonlinear_stacks`.
    """
    for name, kind in nonlinear_stacks(model).items():
        raise SettingError(f"credit is of Transformers and SSRU decoders; the {name} is a {kind}")
    with torch.inference_mode(False), torch.enable_grad():
        with _held(model, cut=False) as whole:
            logits = run()
        with _held(model, cut=True) as straight:
            cut_logits = run()
        return tuple(
            _credit(model, (logits, whole), (cut_logits, straight), choice, names, first)
            for choice in choices
        )


def _credit(
    model: nn.Module,
    whole: tuple[Tensor, _Leaves],
    straight: tuple[Tensor, _Leaves],
    choice: Choice,
    names: Callable[[Sequence[int]], list[str]],
    first: int,
) -> Credit:
    difference = _difference(whole[0], choice)
    tokens, positions, biases = (
        _shares(difference, leaves)[0]
        for leaves in (whole[1].tokens, whole[1].positions, whole[1].biases)
    )
    if segments := positions.get(SEGMENTS):
        positions["encoder"] = list(map(sum, zip(positions["encoder"], segments, strict=True)))
    read, read_positions = tokens.get("decoder", []), positions.get("decoder", [])
    writes, heads = _writes(model, *straight, choice)
    return Credit(
        rival=names([choice.rival])[0],
        difference=difference.item(),
        source=tuple(tokens.get("encoder", ())),
        source_positions=tuple(positions.get("encoder", ())),
        read=tuple(read[first:]),
        read_positions=tuple(read_positions[first:]),
        earlier=sum(read[:first]) + sum(read_positions[:first]),
        biases=sum(map(sum, biases.values())),
        writes=writes,
        heads=heads,
    )


def _writes(
    model: nn.Module, logits: Tensor, leaves: _Leaves, choice: Choice
) -> tuple[dict[str, float], dict[str, tuple[float, ...]]]:
    """Shares of what is written straight to the logits, by writer, and of attentions by head."""
    difference = _difference(logits, choice)
    tokens, positions, biases = (
        sum(map(sum, _shares(difference, of)[0].values()))
        for of in (leaves.tokens, leaves.positions, leaves.biases)
    )
    shares, gradients = _shares(difference, leaves.sublayers)
    writes = {"embedding": tokens, "positions": positions}
    writes |= {name: sum(share) for name, share in shares.items()} | {"biases": biases}
    heads = {}
    for name, mixed in leaves.mixed.items():
        if name in gradients:
            attention: Any = model.get_submodule(name)
            gradient = _rows(gradients[name])
            weight, bias = attention.output.weight.detach(), attention.output.bias.detach()
            shares_of_width = ((gradient @ weight) * _rows(mixed)).sum(0)
            by_head = shares_of_width.view(attention.n_heads, -1).sum(-1)
            heads[name] = (*by_head.tolist(), float(gradient.sum(0) @ bias))
    return writes, heads


def _rows(x: Tensor) -> Tensor:
    """Vectors (1, t, m) or (t, m) -> (t, m)."""
    return x.reshape(-1, x.shape[-1])


def _difference(logits: Tensor, choice: Choice) -> Tensor:
    row = logits[0, choice.row].float()
    return row[choice.written] - row[choice.rival]


def _shares(
    difference: Tensor, leaves: Mapping[str, Tensor]
) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    """Value times gradient of each leaf, summed over the last dimension, and the gradients."""
    if not leaves:
        return {}, {}
    tensors = torch.autograd.grad(
        difference,
        list(leaves.values()),
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    gradients = dict(zip(leaves, tensors, strict=True))
    shares = {
        name: (leaf.detach() * gradients[name]).float().sum(-1).flatten().tolist()
        for name, leaf in leaves.items()
    }
    return shares, gradients


@contextmanager
def _held(model: nn.Module, cut: bool) -> Iterator[_Leaves]:
    """Hold patterns, scales and gates of passes in the context; the leaves of the last pass.

    cut: sublayers of the last stack are leaves as well, so that nothing goes through them.
    """
    leaves, last = _Leaves(), list(stacks_of(model))[-1]
    with ExitStack() as stack:
        for name, parameter in model.named_parameters():
            stack.callback(parameter.requires_grad_, parameter.requires_grad)
            parameter.requires_grad_(name.endswith("bias"))
            if name.endswith("bias"):
                leaves.biases[name] = parameter
        for name, module in model.named_modules():
            for hook in _hooks(name, module):
                stack.callback(module.register_forward_hook(hook).remove)
            if isinstance(module, ACTIVATED):
                stack.callback(setattr, module, "activation", module.activation)
                multiplied = not isinstance(module, GatedFeedForward)
                module.activation = _gated(module.activation, multiplied)
            if isinstance(module, MultiHeadAttention) and name.startswith(last):
                note = _noting(leaves.mixed, name)
                stack.callback(module.output.register_forward_pre_hook(note).remove)
            if cut and isinstance(module, SUBLAYERS) and name.startswith(last):
                stack.callback(module.register_forward_hook(_leaf(leaves.sublayers, name)).remove)
        for side, stacked in stacks_of(model).items():
            modules = dict(model.named_children())
            front = modules["front_end"]
            if side == "decoder":
                front = modules.get("target_front_end", front)
            hook = _leaf(leaves.tokens, side)
            if isinstance(front, TextFrontEnd) and front.segments is not None:
                hook = _with_segments(leaves, side)
            stack.callback(front.register_forward_hook(hook).remove)
            positions: Any = stacked.positions
            stack.callback(positions.__dict__.pop, "embed")
            positions.embed = _embedding(positions.embed, leaves.positions, side)
        yield leaves


def _hooks(name: str, module: nn.Module) -> Iterator[Callable[..., Any]]:
    """Hooks that hold what a module multiplies by."""
    match module:
        case nn.LayerNorm():
            yield _layer_norm
        case nn.RMSNorm():
            yield _rms_norm
    if name.endswith(".query_key_value"):
        yield lambda _, args, output: _without_gradient(output, 2 * output.shape[-1] // 3)
    if name.endswith(".key_value"):
        yield lambda _, args, output: _without_gradient(output, output.shape[-1] // 2)
    if name.endswith((".cross_attention.query", ".recurrence.forget")):
        yield lambda _, args, output: output.detach()


def _without_gradient(x: Tensor, width: int) -> Tensor:
    """x (…, m), the first `width` dimensions without gradient: of queries and keys."""
    return torch.cat([x[..., :width].detach(), x[..., width:]], -1)


def _layer_norm(norm: nn.LayerNorm, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    centred = args[0] - args[0].mean(-1, keepdim=True)
    scale = (args[0].var(-1, keepdim=True, correction=0) + norm.eps).rsqrt().detach()
    scaled = centred * scale * norm.weight
    return scaled if norm.bias is None else scaled + norm.bias


def _rms_norm(norm: nn.RMSNorm, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    square = args[0].square().mean(-1, keepdim=True)
    return args[0] * (square + (norm.eps or 0.0)).rsqrt().detach() * norm.weight


def _gated(activation: Callable[[Tensor], Tensor], multiplied: bool) -> Callable[[Tensor], Tensor]:
    """An activation with its gate held: act(v) / v where it is `multiplied` by v, else act(v)."""

    def held(x: Tensor) -> Tensor:
        value = activation(x).detach()
        if not multiplied:
            return value
        return x * torch.where(x == 0, 0.0, value / torch.where(x == 0, 1.0, x)).detach()

    return held


def _as_leaf(leaves: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    leaves[name] = x.detach().clone().requires_grad_()
    return leaves[name]


def _leaf(leaves: dict[str, Tensor], name: str) -> Callable[..., Any]:
    """A hook that makes the output of a module a leaf."""

    def hook(module: nn.Module, args: Any, output: Tensor | Padded) -> Tensor | Padded:
        if isinstance(output, Padded):
            return output.with_values(_as_leaf(leaves, name, output.values))
        return _as_leaf(leaves, name, output)

    return hook


def _with_segments(leaves: _Leaves, side: str) -> Callable[..., Padded]:
    """A hook that makes embeddings of tokens and of segments leaves."""

    def hook(front: TextFrontEnd, args: tuple[Padded], output: Padded) -> Padded:
        ids = args[0].values
        tokens = front.embedding(ids if ids.dim() == 2 else ids[..., 0]) * front.scale
        segments = _as_leaf(leaves.positions, SEGMENTS, output.values - tokens)
        return output.with_values(_as_leaf(leaves.tokens, side, tokens) + segments)

    return hook


def _noting(mixed: dict[str, Tensor], name: str) -> Callable[..., None]:
    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        mixed[name] = args[0].detach()

    return note


def _embedding(
    embed: Callable[..., Tensor], leaves: dict[str, Tensor], side: str
) -> Callable[..., Tensor]:
    """`Positions.embed` with the vectors that it adds as a leaf."""

    def embedded(x: Tensor, *args: Any) -> Tensor:
        return x + _as_leaf(leaves, side, embed(x, *args) - x)

    return embedded


DRAWS = 2000
"""Samples of the bootstrap."""


@dataclass(frozen=True)
class Patch:
    """A vector in place of the output of a module, or of a head, at a position.

    name: of a module, such as `encoder.layers.2`, or `NAME:HEAD`, from 1, for the output of a head.
    position: from 0, of a row.  vector: (m,), or (d,) of a head.
    """

    name: str
    position: int
    vector: Tensor


@contextmanager
def patched(model: nn.Module, patches: Sequence[Patch]) -> Iterator[None]:
    """Patch passes over one whole row within the context; vectors come from `record_tensors`.

    Raises SettingError for a module or a head that the model does not have, and in the pass for a
    position or a width that the output does not have.
    """
    modules = dict(model.named_modules())
    with ExitStack() as stack:
        for patch in patches:
            if ":" in patch.name:
                attention, head = head_of(model, patch.name)
                d = attention.width // attention.n_heads
                put = _put(patch, head * d, d)
                hook = attention.output.register_forward_pre_hook(
                    lambda module, args, put=put: put(args[0])
                )
            elif patch.name in modules:
                put = _put(patch, 0, None)
                hook = modules[patch.name].register_forward_hook(
                    lambda module, args, output, put=put: put(output)
                )
            else:
                raise SettingError(f"patch {patch.name!r}: the model has no such module")
            stack.callback(hook.remove)
        yield


def _put(patch: Patch, start: int, width: int | None) -> Callable[[Any], Any]:
    """A function that puts the vector into `width` dimensions from `start` on, or into all."""

    def put(output: Tensor | Padded) -> Tensor | Padded:
        if isinstance(output, Padded):
            return output.with_values(put_into(output.values))
        return put_into(output)

    def put_into(x: Tensor) -> Tensor:
        count, whole = x.shape[-2], x.shape[-1]
        room = whole if width is None else width
        if not 0 <= patch.position < count or patch.vector.shape != (room,):
            raise SettingError(
                f"patch {patch.name!r}: a vector {tuple(patch.vector.shape)} at position "
                f"{patch.position}; there are {count} positions of width {room}"
            )
        y = x.clone()
        y[..., patch.position, start : start + room] = patch.vector.to(y)
        return y

    return put


Way = Literal["zero", "mean", "noise"]
"""A way to take a vector out; the page's names."""
NOISE_SEED = 1


def substitute(states: Tensor, position: int, way: Way) -> Tensor:
    """A vector (m,) in place of one of `states` (t, m), as the page has it.

    way: zero, the mean over positions, or the vector and Gaussian noise of its own size.
    """
    vector = states[position]
    match way:
        case "zero":
            return torch.zeros_like(vector)
        case "mean":
            return states.mean(0)
    entropy = np.random.SeedSequence([NOISE_SEED + position, 0, 0])
    draws = np.random.Generator(np.random.PCG64(entropy)).random((len(vector), 2))
    noise = np.sqrt(-2 * np.log(1 - draws[:, 0])) * np.cos(2 * np.pi * draws[:, 1])
    return vector + vector.square().mean().sqrt() * torch.from_numpy(noise).to(vector)


@torch.inference_mode()
def head_path(
    model: nn.Module, run: Callable[[], Tensor], sender: str, receiver: str, choice: Choice
) -> float:
    """Change of a difference of logits where head `receiver` alone reads without head `sender`.

    All other heads are held as the plain pass has them, feed-forward layers follow: path patching
    (Wang et al. 2023, arXiv 2211.00593).  run: the pass, which gives logits (1, t, v).  sender,
    receiver: as `NAME:HEAD`.  Raises SettingError for heads that the model does not have.
    """
    (giver, out), (taker, into) = (head_of(model, name) for name in (sender, receiver))
    attentions = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    clean: dict[MultiHeadAttention, Tensor] = {}
    heard: list[Tensor] = []

    def pass_with(mix: Callable[[MultiHeadAttention, Tensor], Tensor]) -> float:
        with ExitStack() as stack:
            for part in attentions:
                hook = part.output.register_forward_pre_hook(
                    lambda module, args, part=part: mix(part, args[0])
                )
                stack.callback(hook.remove)
            return float(_difference(run(), choice))

    def note(part: MultiHeadAttention, mixed: Tensor) -> Tensor:
        clean[part] = mixed
        return mixed

    def hold(part: MultiHeadAttention, mixed: Tensor) -> Tensor:
        if part is taker:
            heard.append(_of_head(part, mixed, into).clone())
        held = clean[part].clone()
        if part is giver:
            _of_head(part, held, out).zero_()
        return held

    def tell(part: MultiHeadAttention, mixed: Tensor) -> Tensor:
        if part is taker:
            mixed = mixed.clone()
            _of_head(part, mixed, into).copy_(heard[0])
        return mixed

    before = pass_with(note)
    pass_with(hold)
    return pass_with(tell) - before


def _of_head(attention: MultiHeadAttention, mixed: Tensor, head: int) -> Tensor:
    """The outputs (…, d) of a head within those of all, (…, h·d)."""
    d = attention.width // attention.n_heads
    return mixed[..., head * d : (head + 1) * d]


class Pair(NamedTuple):
    """Two inputs of a model that differ, as arguments of its call, and a choice of the clean one.

    position: of the vector that moves from the clean pass to the corrupt one.
    """

    clean: tuple[Any, ...]
    corrupt: tuple[Any, ...]
    choice: Choice
    position: int


class Recovery(NamedTuple):
    """Shares of differences of logits that come with a vector: mean, 95 % interval, each pair's."""

    mean: float
    low: float
    high: float
    shares: tuple[float, ...]


@torch.inference_mode()
def recovered(model: nn.Module, name: str, pairs: Sequence[Pair], seed: int = 0) -> Recovery:
    """(d_patched - d_corrupt) / (d_clean - d_corrupt) over pairs, d of `Choice`; 1 is all of it.

    name: of a hidden state of `record_tensors`.  seed: of the bootstrap over pairs.  Raises
    SettingError without pairs, for an unknown name, and for a pair with equal differences.
    """
    shares = [_share(model, name, pair) for pair in pairs]
    if not shares:
        raise SettingError("recovery needs one pair or more")
    draws = np.random.default_rng(seed).choice(shares, (DRAWS, len(shares))).mean(1)
    low, high = np.percentile(draws, (2.5, 97.5))
    return Recovery(float(np.mean(shares)), float(low), float(high), tuple(shares))


def _share(model: nn.Module, name: str, pair: Pair) -> float:
    clean, hidden = _apart(model, pair.clean, pair.choice)
    corrupt, _ = _apart(model, pair.corrupt, pair.choice)
    if name not in hidden:
        raise SettingError(f"{name!r} is no hidden state; they are {', '.join(hidden)}")
    if clean == corrupt:
        raise SettingError("a pair has the same difference of logits in both passes; leave it out")
    states = hidden[name][0]
    vector = states.reshape(-1, states.shape[-1])[pair.position]
    with patched(model, [Patch(name, pair.position, vector)]):
        now, _ = _apart(model, pair.corrupt, pair.choice)
    return (now - corrupt) / (clean - corrupt)


def _apart(
    model: nn.Module, call: tuple[Any, ...], choice: Choice
) -> tuple[float, dict[str, list[Tensor]]]:
    """The difference of logits of a pass, and its hidden states."""
    with record_tensors(model) as recorded:
        difference = _difference(model(*call), choice)
    return float(difference), recorded.hidden
