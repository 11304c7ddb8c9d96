"""Results of a translator: translations, candidates, alignments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transduce.support.html_table import html_shades

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Candidate:
    """A possible output."""

    text: str
    tokens: tuple[str, ...] = field(repr=False)
    """Pieces as the model made them."""
    score: float
    """Ranking score of candidates: log-probability after the length penalty."""
    log_prob: float
    """Natural logarithm of the probability of the tokens and the end."""
    parts: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)
    """Ids of the tokens, for each piece of the source."""
    finished: bool = True
    """False if a piece ended at its greatest length."""


@dataclass(frozen=True)
class Translation:
    """The best output for an input, and its other candidates for `n_best` > 1."""

    text: str
    tokens: tuple[str, ...] = field(default=(), repr=False)
    score: float = 0.0
    log_prob: float = 0.0
    candidates: tuple[Candidate, ...] = field(default=(), repr=False)
    """The n best, best first; the first is this translation itself."""

    @property
    def finished(self) -> bool:
        """False if a piece of the output ended at its greatest length."""
        return all(candidate.finished for candidate in self.candidates[:1])

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record; `finished` in that of an output that was cut off."""
        fields = {"translation": self.text, "score": self.score, "tokens": self.tokens}
        return fields if self.finished else {**fields, "finished": False}


@dataclass(frozen=True)
class Alignment:
    """Cross-attention between target and source."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Tensor = field(repr=False)
    """(len(target), len(source)): each row sums to 1; mean over the heads of a layer."""

    def __repr__(self) -> str:
        from transduce.explain.picture import attention_in_terminal

        return attention_in_terminal(self.source, self.target, self.weights.tolist())

    def _repr_html_(self) -> str:
        """The weights as shades, for a notebook."""
        return html_shades(self.source, self.target, self.weights.tolist())
