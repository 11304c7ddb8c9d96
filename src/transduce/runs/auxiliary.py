"""Models beside a run in decoding: ensemble, language model, draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transduce.decoding.auxiliary_models import AuxiliaryModels, DraftModel, smallest_limit
from transduce.decoding.session import SequencePredictor
from transduce.errors import RunError, SettingError
from transduce.runs.calls import RunCalls
from transduce.runs.capabilities import CanContinue
from transduce.tasks.task import Predictor
from transduce.tasks.translation.translator import Translator
from transduce.text import Tokenizer


def with_auxiliary(
    run: RunCalls,
    ensemble: Sequence[RunCalls],
    language_model: RunCalls | None,
    draft: RunCalls | None,
) -> Predictor:
    """The predictor of a run, decoding with other models, as `Run.with_models`."""
    if isinstance(run.predictor, SequencePredictor) and run.predictor.kind == "speech":
        if ensemble or draft is not None or language_model is None:
            raise SettingError("recordings are decoded with a language model alone; remove others")
        recogniser: Any = run.predictor
        scorer = _scorer(run, language_model, recogniser.tokenizer)
        together: Predictor = recogniser.with_models(AuxiliaryModels(language_model=scorer))
        return together
    translator = run.translator
    for other in [*ensemble, *([draft] if draft else [])]:
        theirs = other.translator
        theirs.check_alone()
        for side in ("source", "target"):
            if getattr(translator, side).to_bytes() != getattr(theirs, side).to_bytes():
                raise RunError(
                    f"{other.path} has another {side} vocabulary than {run.path}; models "
                    "decode together over one vocabulary: train it with the tokenizers of that "
                    'run (kind = "file")'
                )
    others = [other.translator for other in ensemble]
    auxiliary = AuxiliaryModels(
        [other.steps.model for other in others],
        None if language_model is None else _scorer(run, language_model, translator.target),
        None if draft is None else _draft(draft.translator),
        smallest_limit(*(other.config.max_source_length for other in others)),
        smallest_limit(*(other.config.max_target_length for other in others)),
    )
    return translator.with_models(auxiliary)


def _scorer(run: RunCalls, language_model: RunCalls, target: Tokenizer) -> Any:
    """The model of a run of language modelling.  Raises RunError for another vocabulary."""
    predictor, task = language_model.predictor, language_model.recipe.task
    if task != "language-model" or not isinstance(predictor, CanContinue):
        raise RunError(
            f"{language_model.path} is a run of the task {task!r}; a language model is needed here"
        )
    if predictor.tokenizer.to_bytes() != target.to_bytes():
        raise RunError(
            f"{language_model.path} has another vocabulary than the target of {run.path}; train it "
            'with text.tokenizer = { kind = "file", path = ... }, the file of that run'
        )
    from transduce.decoding.ensemble import LanguageModel

    search: Any = predictor.backend.step_search("a language model")
    return LanguageModel(search.model, search.window)


def _draft(translator: Translator) -> DraftModel:
    return DraftModel(translator.steps.model, translator.config.max_target_length)
