"""Calls of a loaded run that look inside it.  Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import SequencePredictor
from transduce.errors import SettingError
from transduce.runs.arguments import input_parts
from transduce.runs.run import LoadedRun
from transduce.tasks.predictors import GivenOptions
from transduce.tasks.table import TASKS

if TYPE_CHECKING:
    from transduce.explain.explanation import Explanation, Film
    from transduce.explain.live import LiveModel
    from transduce.explain.parts import KnockOut


class ExplainCalls(LoadedRun):
    """Explanations, pages that compute, and the film of learning."""

    def explain(
        self,
        text: str | Sequence[str],
        options: GivenOptions = None,
        without: KnockOut | None = None,
        first: int = 0,
        **settings: Any,
    ) -> Explanation:
        """An input on its way through the model: tokens, attention, steps, search, layers.

        text: a text or the path of an image, or for a task with several texts an input a tuple of
        them.  The answer is that of `predict`, a vector to rounding.  options: for decoding; by
        default the recipe's.
        without: heads and source tokens to leave out, for this answer alone.  first: number of the
        input in a longer sequence, as in `predict`.  settings: of decoding that differ from the
        options.  Computed by PyTorch.  Raises DataError for another number of
        texts, SettingError for a run beside others, for options that cannot be followed, and for
        parts that the model does not have.

        >>> explanation = run.explain("A text.")
        >>> html = explanation.page()
        """
        from transduce.explain.knock_out import explain_without
        from transduce.explain.parts import NOTHING

        parts = input_parts(text, self.predictor.inputs, first)
        run = self.in_pytorch
        predictor = run._decoding_with(run._decoding(options, settings))
        explain: Callable[..., Explanation] | None = TASKS[self.recipe.task].explain
        if explain is None:
            raise SettingError(f"the task {self.recipe.task!r} has no explanation")
        explanation = explain_without(explain, predictor, parts, without or NOTHING, first)
        name = self.path.resolve().name
        if without:
            return dataclasses.replace(explanation, run=f"{name} without {without}")
        return dataclasses.replace(explanation, run=name, film=self.film)

    def live_model(self, options: GivenOptions = None) -> LiveModel:
        """The model for a page that computes explanations itself.

        options: for decoding; by default the recipe's.  Raises SettingError, with the setting, for
        a model that the page cannot compute.

        >>> from transduce.explain.page import page_of
        >>> explanation = run.explain("A text.").packed()
        >>> page = page_of([explanation], run.live_model().packed())
        """
        live: Callable[[Any, str], LiveModel] | None = TASKS[self.recipe.task].live
        if live is None:
            raise SettingError(
                f"a live page does not compute the task {self.recipe.task!r}; leave out --live"
            )
        from transduce.training.weights import read_divisors

        run = self.in_pytorch
        model = live(run._decoding_with(run._decoding(options, {})), self.path.resolve().name)
        return dataclasses.replace(model, divisors=read_divisors(self.path / "weights.safetensors"))

    def _decoding_with(self, options: DecodingOptions | None) -> Any:
        """The predictor with other options.  Raises SettingError where nothing is decoded."""
        if options is None:
            return self.predictor
        if not isinstance(self.predictor, SequencePredictor):
            raise SettingError("this model does not decode; remove the decoding options")
        return dataclasses.replace(self.predictor, options=options)

    @functools.cached_property
    def film(self) -> Film | None:
        """Film of learning (`training.film`); None if the run has none.  Raises RunError for a
        damaged file."""
        from transduce.explain.recorded_pass import film_of

        return film_of(self.path)
