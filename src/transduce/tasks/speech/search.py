"""Search for the text of recordings: prompts, and detection of the language.  Imports no torch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from transduce.audio.features import Frames
from transduce.decoding.backend import SearchBackend
from transduce.tasks.speech.prompt import Prompt
from transduce.text import BOS

if TYPE_CHECKING:
    from torch import Tensor

DETECTED_TOGETHER = 4
"""Number of recordings used to detect their common language."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A recording that the encoder has read: its memory (t', m), with sound in the first
    `positions`."""

    memory: Tensor | NDArray[np.float32]
    positions: int


Source = Frames | Encoded
"""A recording: frames (t, f), not normalised, or its memory."""


@dataclass(eq=False, kw_only=True)
class RecordingSearch(SearchBackend):
    """Search for the texts of recordings."""

    prompt: Prompt

    @abstractmethod
    def encode(self, recordings: Sequence[Frames], positions: Sequence[int]) -> list[Encoded]:
        """The memory of windows of one length, from their frames (t, f), not normalised.

        positions: with sound, of each.
        """

    @abstractmethod
    def memory_of(self, recordings: Sequence[Source]) -> Any:
        """The memory of recordings, as the model reads it."""

    @abstractmethod
    def logits_after(self, token: int, memory: Any) -> NDArray[np.float32]:
        """Logits (b, v) after one token alone, of recordings in a memory."""

    def languages_of(self, memory: Any, n: int) -> list[str]:
        """Codes of the spoken languages, given or detected, of n recordings in a memory."""
        if not self.prompt.languages:
            return [self.prompt.language] * n
        codes = [*self.prompt.languages]
        return [codes[i] for i in self._languages(memory).argmax(1)]

    def listening_to(self, recordings: Sequence[Source]) -> Self:
        """The search with the language detected in the first recordings, if it is to be
        detected."""
        rows = [source for source in recordings if isinstance(source, Encoded) or len(source)]
        if not self.prompt.languages or not rows:
            return self
        sums = self._languages(self.memory_of(rows[:DETECTED_TOGETHER])).sum(0)
        detected = [*self.prompt.languages][int(sums.argmax())]
        return replace(self, prompt=self.prompt.speaking(detected))

    def _languages(self, memory: Any) -> NDArray[np.float32]:
        """(b, k) log-probabilities of the languages to detect, after BOS alone."""
        logits = self.logits_after(BOS, memory)[:, [*self.prompt.languages.values()]]
        logits = logits - logits.max(1, keepdims=True)
        log_probs: NDArray[np.float32] = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return log_probs
