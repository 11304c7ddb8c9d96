"""Explanations of an input by several runs of a task, side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from transduce.explain.explanation import FORMAT, Explanation, as_plain
from transduce.explain.page import frame_of, page_of

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
