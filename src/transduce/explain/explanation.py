"""An input on its way through a model, as plain data: tokens, attention, steps, search, shapes.

`Explanation.as_dict` is the JSON layout of docs/explain.md.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transduce.explain.film import Film
from transduce.explain.page import frame_of, packed, page_of
from transduce.explain.parts import (
    Array,
    Attention,
    Feature,
    Guess,
    HeadVectors,
    Hidden,
    Picture,
    SearchTree,
    Span,
    Stack,
    Step,
)

FORMAT = 1
"""Version of the JSON layout."""


@dataclass(frozen=True)
class Explanation:
    """An input on its way through a model.  Parts that the task lacks are empty."""

    task: str
    run: str
    inputs: Mapping[str, str]
    answer: str
    """The answer, exactly as `predict` gives it."""
    sequences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Tokens by name: "source", "read" and "written" of an encoder-decoder, "read" and "written"
    of a decoder, "text" or "image" of an encoder.  "audio" has times of positions."""
    attention: tuple[Attention, ...] = ()
    steps: tuple[Step, ...] = ()
    first_step: int = 0
    """Position in "read" of the first step; tokens before it were given."""
    search: SearchTree | None = None
    layers: tuple[tuple[tuple[Guess, ...], ...], ...] = ()
    """Likeliest tokens or labels after each layer, for each position, or for labels at once."""
    layers_of: str = ""
    """The sequence that `layers` are about; "" for labels."""
    by_hand: tuple[HeadVectors, ...] = ()
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shape of the output of each module, by name."""
    ctc: tuple[tuple[Guess, ...], ...] = ()
    """Likeliest tokens of a CTC head at each position of the source; `<pad>` is the blank."""
    labels: tuple[Guess, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    span: Span | None = None
    features: tuple[Feature, ...] = ()
    picture: Picture | None = None
    vectors: Mapping[str, Array] = field(default_factory=dict)
    """Single vectors: "context", the fixed vector of a recurrent decoder; "embedding"."""
    film: Film | None = field(default=None, repr=False)
    """Film of the run's training, for the page; JSON leaves it out."""

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}={text!r:.60}" for name, text in self.inputs.items())
        return f"<Explanation of {self.task} run {self.run!r}: {inputs} -> {self.answer!r:.60}>"

    def as_dict(self) -> dict[str, Any]:
        """The JSON layout: plain data, numbers rounded to 5 digits."""
        plain = as_plain(dataclasses.replace(self, film=None))
        return {"format": FORMAT, **{k: v for k, v in plain.items() if k != "film"}}

    def packed(self) -> dict[str, Any]:
        """The same for a page: arrays as text of few bytes, layers left out where they are many."""
        stacks = {k: dataclasses.replace(v, waves=None) for k, v in self.stacks.items()}
        small = dataclasses.replace(self, attention=(), by_hand=(), stacks=stacks, vectors={})
        content = packed(small.as_dict(), self.attention, self.by_hand, self.stacks, self.vectors)
        return {**content, "film": None if self.film is None else self.film.packed()}

    def page(self) -> str:
        """The self-contained HTML page."""
        return page_of([self.packed()])

    def _repr_html_(self) -> str:
        """The page in a frame, for a notebook."""
        return frame_of(self.page())


def as_plain(value: Any) -> Any:
    """Plain data of JSON: lists, dictionaries, and numbers rounded to 5 digits."""
    match value:
        case np.ndarray():
            return as_plain(value.tolist())
        case float():
            return float(f"{value:.5g}")
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {key: as_plain(part) for key, part in value.items()}
        case list() | tuple():
            return [as_plain(part) for part in value]
        case _ if dataclasses.is_dataclass(value):
            names = (field.name for field in dataclasses.fields(value))
            return {name: as_plain(getattr(value, name)) for name in names}
    return value
