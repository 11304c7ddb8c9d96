"""Evaluation: outputs of a model on a test set, with their scores."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from transduce.errors import DataError
from transduce.metrics.measure import make_metric, measure
from transduce.metrics.metric import (
    Comparison,
    Metric,
    TooLongError,
    bootstrap_interval,
    few_items,
    paired_bootstrap,
)
from transduce.support.tables import html_table

logger = logging.getLogger("transduce")


@dataclass(frozen=True)
class Evaluation:
    """Outputs of a model on a test set, with their scores."""

    scores: Mapping[str, float | str]
    """Scores by name, signatures beside them; percentages, unless the name says otherwise."""
    sources: Sequence[str]
    """Inputs, a line each."""
    inputs: Sequence[tuple[str, ...]] = field(default=(), repr=False, kw_only=True)
    """Inputs of the model, if `sources` differ from them: several texts, or texts of several
    lines."""
    by_name: bool = field(default=False, kw_only=True)
    """True if `sources` are only names of the inputs, such as images that are not files."""
    hypotheses: Sequence[str] = field(default=(), repr=False)
    """Answers; empty if only probabilities are scored."""
    references: Sequence[Sequence[str]] = field(default=(), repr=False)
    """Reference answers of each input."""
    language: str = ""
    """Language code of the answers, required by some metrics."""
    other_scores: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """Scores of outputs beside the answers, such as the transcripts of translated speech; they have
    no intervals and no comparison."""

    def __repr__(self) -> str:
        numbers = [
            f"{name} {value:.4g}" for name, value in self.scores.items() if isinstance(value, float)
        ]
        return f"<Evaluation of {len(self.sources):,} items: {', '.join(numbers) or 'no scores'}>"

    def measured_by(self, metrics: Sequence[str]) -> Evaluation:
        """The same outputs, scored by these keys of `METRICS`.

        Raises DataError for a task without outputs, SettingError for an unknown name.
        """
        if not self.hypotheses:
            raise DataError("this task has no outputs to measure by other metrics; leave them out")
        scores = measure(metrics, self.hypotheses, self.references, self.language)
        return replace(self, scores=scores, other_scores={})

    def _repr_html_(self) -> str:
        """The scores as a table, for a notebook."""
        rows = [("items", len(self.sources)), *self.scores.items(), *self.other_scores.items()]
        return html_table(["score", ""], rows)

    def against(self, other: Sequence[str]) -> dict[str, Comparison]:
        """Paired bootstrap of these outputs over `other` outputs for the same sources, by metric.

        Empty for a single item.  A metric for which an output in `other` is too long is skipped
        with a warning.
        """
        if not self.hypotheses:
            raise DataError("this task has no outputs to compare line by line")
        if len(other) != len(self.hypotheses):
            raise DataError(
                f"cannot compare {len(other)} outputs with {len(self.hypotheses)} evaluated ones; "
                "give one line per item"
            )
        result: dict[str, Comparison] = {}
        if len(self.hypotheses) < 2:
            return result  # one item has no spread
        for name, metric in self._metrics().items():
            try:
                result[name] = paired_bootstrap(metric, other, self.hypotheses, self.references)
            except TooLongError as error:
                logger.warning("%s; skipping it", error)
        return result

    @property
    def few(self) -> str:
        """Warning that these are too few items for reliable scores; empty if they are enough, or if
        only probabilities were measured."""
        return few_items(len(self.hypotheses))

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % confidence interval of each score; empty for fewer than two answers."""
        if len(self.hypotheses) < 2:
            return {}
        return {
            name: bootstrap_interval(metric, self.hypotheses, self.references)
            for name, metric in self._metrics().items()
        }

    def _metrics(self) -> dict[str, Metric]:
        names = [name for name, value in self.scores.items() if isinstance(value, float)]
        return {name: make_metric(name, self.language) for name in names}
