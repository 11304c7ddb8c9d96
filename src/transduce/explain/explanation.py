"""An input on its way through a model as plain data, alone, beside other runs, or over a film of
learning.

`Explanation.as_dict` is the JSON layout of docs/explain.md.
"""

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from transduce.explain.page import (
    frame_of,
    packed,
    page_of,
    place_of,
    shown_attention,
    visible_weights,
)
from transduce.explain.parts import (
    Array,
    Attention,
    Credit,
    Feature,
    Guess,
    HeadVectors,
    Hidden,
    PatternName,
    Picture,
    SearchTree,
    Span,
    Stack,
    Step,
)

PATTERNS = get_args(PatternName)
MAX_FILM_WEIGHTS = 160_000
"""Attention weights of a film in a page, a character each; layers in between are left out beyond
it."""
DIGITS = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
"""Characters of the numbers 0 to 63, which stand for weights from 0 to 1."""


@dataclass(frozen=True)
class FilmScene:
    """An input at all points of training.

    tokens: sequences by name.  attention: of each point, as in an explanation.
    """

    text: str
    tokens: Mapping[str, Sequence[str]]
    attention: tuple[tuple[Attention, ...], ...]


@dataclass(frozen=True)
class Film:
    """A training seen by its attention.

    points: optimizer steps made at each, and the share of the budget that was spent.
    """

    points: tuple[tuple[int, float], ...]
    scenes: tuple[FilmScene, ...]

    def packed(self) -> dict[str, Any]:
        """The same for a page: weights of 6 bits, a character each."""
        room = MAX_FILM_WEIGHTS // max(1, len(self.points) * len(self.scenes))
        scenes = [_packed(scene, room) for scene in self.scenes]
        points = [[step, round(share, 5)] for step, share in self.points]
        return {"points": points, "patterns": PATTERNS, "scenes": scenes}


def _packed(scene: FilmScene, room: int) -> dict[str, Any]:
    last = scene.attention[-1]
    numbers = shown_attention(last, (), room)
    return {
        "text": scene.text,
        "sequences": scene.tokens,
        "attention": [_frames(number, scene) for number in numbers],
        "leftOut": len(last) - len(numbers),
    }


def _frames(number: int, scene: FilmScene) -> dict[str, Any]:
    """An attention at all points; of each pattern two characters, its number and its value."""
    all_points = [point[number] for point in scene.attention]
    patterns = [
        [x for name, value in at.patterns for x in (PATTERNS.index(name) / 63, value)]
        for at in all_points
    ]
    return {
        **place_of(all_points[-1]),
        "frames": [_explanation_text(visible_weights(at)) for at in all_points],
        "patterns": [_explanation_text(np.array(at)) for at in patterns],
    }


def _explanation_text(shares: Any) -> str:
    """Numbers from 0 to 1 as a character each."""
    numbers = (np.asarray(shares) * 63).round().clip(0, 63).astype(int)
    return bytes(DIGITS[numbers.ravel()]).decode()


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
    credit: tuple[Credit, ...] = ()
    """Exact shares of each choice: of a step, a label, a mask, a start and end; of Transformers."""
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


LEAST = 1e-38
"""Probability below which a step counts as this much, so that logarithms are finite."""


@dataclass(frozen=True)
class ComparedRun:
    """The explanation of a run, with its size and its speed.

    parameters: of the model.  seconds: of one `predict` of the input, after an earlier `predict`.
    """

    explanation: Explanation
    parameters: int
    seconds: float

    @property
    def log_prob(self) -> float | None:
        """Natural log-probability of the steps together; None without steps."""
        steps = self.explanation.steps
        return sum(math.log(max(step.probability, LEAST)) for step in steps) if steps else None

    @property
    def score(self) -> float | None:
        """Score of the winner in the run's own search; None without a search."""
        search = self.explanation.search
        won = (node.score for node in search.nodes if node.fate == "won") if search else iter(())
        return next(won, None)

    def figures(self) -> dict[str, Any]:
        """Fields beside the explanation in JSON and in a page."""
        return {
            "parameters": self.parameters,
            "seconds": self.seconds,
            "log_prob": self.log_prob,
            "score": self.score,
        }


@dataclass(frozen=True)
class SideBySide:
    """An input on its way through several models, in the order of their runs."""

    runs: tuple[ComparedRun, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON layout of docs/explain.md."""
        first = self.runs[0].explanation
        runs = [{**run.explanation.as_dict(), **as_plain(run.figures())} for run in self.runs]
        return {"format": FORMAT, "task": first.task, "inputs": dict(first.inputs), "runs": runs}

    def __repr__(self) -> str:
        names = ", ".join(run.explanation.run for run in self.runs)
        return f"<SideBySide of {len(self.runs)} explanations: {names}>"

    def packed(self, text: int = 0) -> list[dict[str, Any]]:
        """An explanation for each run, for a page.  text: number of the input in the page."""
        return [
            {**run.explanation.packed(), **as_plain(run.figures()), "text": text}
            for run in self.runs
        ]

    def page(self) -> str:
        """The self-contained HTML page."""
        return page_of(self.packed())

    def _repr_html_(self) -> str:
        """The page in a frame, for a notebook."""
        return frame_of(self.page())
