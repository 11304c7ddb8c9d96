"""Capabilities of predictors that only some tasks have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from transduce.decoding.backend import SearchBackend
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import TextStream
from transduce.text import Tokenizer

if TYPE_CHECKING:
    from transduce.audio.features import Mel
    from transduce.tasks.language_model.dialogue import Conversation
    from transduce.tasks.speech.spoken import Speech


@runtime_checkable
class CanConverse(Protocol):
    """Replies to the turns of a conversation."""

    def conversation(self, options: DecodingOptions | None) -> Conversation:
        """A new conversation."""


@runtime_checkable
class CanContinue(Protocol):
    """Continues a text, with a tokenizer for prompts and continuations alike."""

    tokenizer: Tokenizer
    options: DecodingOptions
    backend: SearchBackend
    window: int

    def stream(self, text: str, options: DecodingOptions | None) -> TextStream:
        """The continuation of a text in parts."""


@runtime_checkable
class CanTranslate(Protocol):
    """Turns texts into texts, with a tokenizer for each side."""

    source: Tokenizer
    target: Tokenizer


@runtime_checkable
class CanSpeak(Protocol):
    """Speaks texts."""

    features: Mel
    speakers: tuple[str, ...]

    def speak(self, texts: Iterable[str]) -> Iterator[Speech]:
        """The speech of each text."""

    def speaking(self, speed: float | None, speaker: str | None) -> CanSpeak:
        """This model with durations divided by `speed`, in the voice of a speaker."""
