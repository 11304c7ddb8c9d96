"""Answers without some attention heads or source tokens."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.explain.explanation import Explanation
from transduce.explain.parts import KnockOut
from transduce.nn.attention import CrossAttention, MultiHeadAttention, SelfAttention, StepContext
from transduce.nn.masks import Mask
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder


@contextmanager
def knock_out(model: nn.Module, what: KnockOut) -> Iterator[None]:
    """Compute without some heads and source tokens inside the context; nothing stays behind.

    The output of a head is zero before the output projection, as in Michel et al. (2019).  A source
    token is hidden from every query of the encoder and of cross-attention; all positions stay as
    they are.  The numbers of the tokens apply to each row, so rows have no padding on the left.

    Raises SettingError for a head that the model does not have, and for tokens where the model is
    not a Transformer with an encoder and a decoder.
    """
    heads = [head_of(model, head) for head in what.heads]
    readers = _readers(model) if what.tokens else []
    with ExitStack() as stack:
        for attention, head in heads:
            hook = _silencer(attention, head)
            stack.callback(attention.output.register_forward_pre_hook(hook).remove)
        for reader in readers:
            hide = _hider(what.tokens)
            stack.callback(reader.register_forward_pre_hook(hide).remove)
        yield


def head_of(model: nn.Module, written: str) -> tuple[MultiHeadAttention, int]:
    """The attention and the index of a head `NAME:HEAD`."""
    attentions = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }
    if not attentions:
        raise SettingError(f"head {written!r}: the model has no attention with heads")
    name, _, number = written.rpartition(":")
    if not name or not number.isdecimal():
        example = f"{next(iter(attentions))}:1"
        raise SettingError(f"head {written!r} is not NAME:HEAD, such as {example}")
    if name not in attentions:
        (nearest,) = difflib.get_close_matches(name, attentions, 1, 0.0)
        raise SettingError(f"head {written!r}: the model has no such attention; try {nearest}")
    attention = attentions[name]
    if not 1 <= int(number) <= attention.n_heads:
        raise SettingError(f"head {written!r}: the heads of {name} are 1 to {attention.n_heads}")
    return attention, int(number) - 1


def _readers(model: nn.Module) -> Sequence[nn.Module]:
    """All attentions whose keys are positions of the source."""
    encoder, decoder = (getattr(model, side, None) for side in ("encoder", "decoder"))
    if not isinstance(encoder, TransformerEncoder) or not isinstance(decoder, TransformerDecoder):
        raise SettingError(
            "tokens can be left out where encoder and decoder are Transformers; leave out a head, "
            "or change the text"
        )
    within = [module for module in encoder.modules() if isinstance(module, SelfAttention)]
    return [
        *within,
        *(module for module in decoder.modules() if isinstance(module, CrossAttention)),
    ]


def _silencer(attention: MultiHeadAttention, head: int) -> Callable[..., Tensor]:
    """A hook that sets the output of a head to zero in the input of the output projection."""
    d = attention.width // attention.n_heads

    def silence(module: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        mixed = args[0].clone()  # (…, h·d)
        mixed[..., head * d : (head + 1) * d] = 0.0
        return mixed

    return silence


def _hider(tokens: Sequence[int]) -> Callable[..., Any]:
    """A hook that hides keys, by their numbers from 1, in the mask of an attention."""

    def hide(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        context: StepContext = args[1]
        if isinstance(module, CrossAttention):
            mask = _without_keys(context.memory_mask, tokens, args[2].key)
            return args[0], context._replace(memory_mask=mask), args[2]
        mask = _without_keys(context.mask, tokens, args[0])
        return args[0], context._replace(mask=mask), *args[2:]

    return hide


def _without_keys(mask: Mask, tokens: Sequence[int], keys: Tensor) -> Mask:
    """The mask of an encoder or of a memory, with some of the keys (…, s, d) hidden as well."""
    assert not mask.causal, "encoders see the future"
    n_keys = keys.shape[-2] if mask.allowed is None else mask.allowed.shape[-1]
    visible = torch.ones(n_keys, dtype=torch.bool, device=keys.device)
    visible[[number - 1 for number in tokens]] = False
    allowed = visible[None, None, None] if mask.allowed is None else mask.allowed & visible
    return mask._replace(allowed=allowed, sum=None)


@runtime_checkable
class TokenReader(Protocol):
    """A predictor with a source of tokens."""

    def source_pieces(self, text: str) -> list[list[int]]:
        """The source ids of a text, in the pieces that it is translated in."""


def explain_without(
    explain: Callable[[Any, tuple[str, ...], int], Explanation],
    predictor: Any,
    parts: tuple[str, ...],
    what: KnockOut,
    first: int = 0,
) -> Explanation:
    """The explanation of the answer without these heads and tokens.

    Without tokens there is no work by hand, which does not support hidden keys.  Raises
    SettingError for missing heads and tokens, and for tokens of another task than translation.

    explain: makes the explanation.  predictor: of the run.  parts: texts of the input.  what: heads
    and tokens to leave out.  first: number of the input in a longer sequence.
    """
    if not what:
        return explain(predictor, parts, first)
    if what.tokens:
        _check_tokens(predictor, parts, what.tokens)
    with knock_out(predictor.model, what):
        explanation = explain(predictor, parts, first)
    return replace(explanation, by_hand=()) if what.tokens else explanation


def _check_tokens(predictor: Any, parts: tuple[str, ...], tokens: tuple[int, ...]) -> None:
    """Raises SettingError for numbers of tokens that the piece of a source does not have."""
    if not isinstance(predictor, TokenReader):
        raise SettingError("tokens can be left out of the source of a translation only")
    pieces = predictor.source_pieces(parts[0])
    if len(pieces) > 1:
        raise SettingError(
            f"the text is translated in {len(pieces)} pieces; leave tokens out of a shorter text"
        )
    count = len(pieces[0]) + 1 if pieces else 0  # with the end
    for number in tokens:
        if not 1 <= number <= count:
            raise SettingError(f"token {number} is not one of the {count} tokens of the source")
    if len(set(tokens)) == count:
        raise SettingError("all tokens of the source are left out; keep one")
