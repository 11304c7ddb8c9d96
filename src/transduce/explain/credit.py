"""Credit: exact shares of a difference of logits, by token, position, bias, sublayer and head.

Attention patterns, scales of norms and gates of activations are held as a pass has them; all else
is linear, so that the shares add up to the difference (the idea of TensorLens, arXiv 2601.17958).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.explain.parts import Credit
from transduce.explain.recording import stacks_of
from transduce.nn.attention import MultiHeadAttention
from transduce.nn.feed_forward import FeedForward, GatedFeedForward
from transduce.nn.transformer import (
    SimpleRecurrentUnit,
    SsruDecoder,
    TransformerDecoder,
    TransformerEncoder,
)
from transduce.sequence import Padded

LINEAR_STACKS = (TransformerEncoder, TransformerDecoder, SsruDecoder)
SUBLAYERS = (MultiHeadAttention, FeedForward, GatedFeedForward, SimpleRecurrentUnit)


class Choice(NamedTuple):
    """A row of the decoder's logits, and two ids: the token written and its rival."""

    row: int
    written: int
    rival: int


@dataclass
class _Leaves:
    """Inputs of the linear map, by name: vectors (t, m) of tokens, of positions and, where the
    sublayers are cut, of their outputs; all biases.

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
    read, read_positions = tokens["decoder"], positions["decoder"]
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
            gradient = _rows(gradients[name])[choice.row]
            weight, bias = attention.output.weight.detach(), attention.output.bias.detach()
            shares_of_width = (gradient @ weight) * _rows(mixed)[choice.row]
            by_head = shares_of_width.view(attention.n_heads, -1).sum(-1)
            heads[name] = (*by_head.tolist(), float(gradient @ bias))
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
    found = torch.autograd.grad(
        difference,
        list(leaves.values()),
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    gradients = dict(zip(leaves, found, strict=True))
    shares = {
        name: (leaf.detach() * gradients[name]).float().sum(-1).flatten().tolist()
        for name, leaf in leaves.items()
    }
    return shares, gradients


@contextmanager
def _held(model: nn.Module, cut: bool) -> Iterator[_Leaves]:
    """Hold patterns, scales and gates of passes in the context; the leaves of the last pass.

    cut: sublayers of the decoder are leaves as well, so that nothing goes through them.
    """
    leaves = _Leaves()
    with ExitStack() as stack:
        for name, parameter in model.named_parameters():
            stack.callback(parameter.requires_grad_, parameter.requires_grad)
            parameter.requires_grad_(name.endswith("bias"))
            if name.endswith("bias"):
                leaves.biases[name] = parameter
        for name, module in model.named_modules():
            for hook in _hooks(name, module):
                stack.callback(module.register_forward_hook(hook).remove)
            if isinstance(module, FeedForward | GatedFeedForward):
                stack.callback(setattr, module, "activation", module.activation)
                module.activation = _gated(module.activation, isinstance(module, FeedForward))
            if isinstance(module, MultiHeadAttention) and name.startswith("decoder"):
                note = _noting(leaves.mixed, name)
                stack.callback(module.output.register_forward_pre_hook(note).remove)
            if cut and isinstance(module, SUBLAYERS) and name.startswith("decoder"):
                stack.callback(module.register_forward_hook(_leaf(leaves.sublayers, name)).remove)
        for side, stacked in stacks_of(model).items():
            modules = dict(model.named_children())
            front = modules["front_end"]
            if side == "decoder":
                front = modules.get("target_front_end", front)
            stack.callback(front.register_forward_hook(_leaf(leaves.tokens, side)).remove)
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
