"""Predictions: the output of a model for one input, in every task."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

TextStream = Generator[str, None, None]
"""Parts of a text as they are decoded; closing it ends the search."""


class Prediction(Protocol):
    """Output of a model for one input."""

    @property
    def text(self) -> str:
        """Answer as one line; a translation has as many lines as its source."""

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON object: answer, probabilities, scores, other candidates."""
