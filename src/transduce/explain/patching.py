"""Activation patching: vectors put in place of those that a pass computes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.explain.credit import Choice
from transduce.explain.knock_out import head_of
from transduce.explain.recording import record_tensors
from transduce.sequence import Padded

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
        row = model(*call)[0, choice.row].float()
    return float(row[choice.written] - row[choice.rival]), recorded.hidden
