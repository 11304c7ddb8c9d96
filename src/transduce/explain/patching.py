"""Activation patching: vectors put in place of those that a pass computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.explain.knock_out import head_of
from transduce.sequence import Padded


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
