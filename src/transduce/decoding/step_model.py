"""The interface of a model to decoding, independent of the engine of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.nn.heads.vocabulary import VocabularyHead
    from transduce.sequence import Padded


class StepModel(Protocol):
    """Encoder-decoder that decodes step by step: `EncoderDecoder`, or the native engine's."""

    head: VocabularyHead

    def eval(self) -> Self:
        """The model without dropout."""

    @property
    def has_cross_attention(self) -> bool:
        """True if attention of the target to the source can be read."""

    def start(self, source: Padded) -> Any:
        """Encode the source ids (b, s); returns the initial state."""

    def advance(self, target: Padded, state: Any) -> Padded:
        """Decoder outputs (r, t, m) below the head, for `target` ids (r, t)."""

    def step(self, target: Padded, state: Any) -> Tensor:
        """Logits (r, t, v) after each of `target` (r, t); `state` advances by t."""

    def step_attended(self, target: Padded, state: Any) -> tuple[Tensor, Tensor]:
        """Logits, and the last cross-attention (r, t, s), the mean of its heads."""


class NextTokenModel(Protocol):
    """Decoder alone that decodes step by step: `DecoderOnly`, or the native engine's."""

    head: VocabularyHead

    def eval(self) -> Self:
        """The model without dropout."""

    def start(self) -> Any:
        """The state before the first token."""

    def last_logits(self, target: Padded, state: Any) -> Tensor:
        """Logits (r, 1, v) of the next token after `target` (r, t), padded on the left alone."""
