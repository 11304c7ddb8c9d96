"""Translator: a trained model with its tokenizers, and its evaluation against references."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from transduce.decoding.backend import NO_AUXILIARY, AuxiliaryModels, NativeSearch, smallest_limit
from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.metrics.error_rates import group_by_source
from transduce.metrics.measure import measure, numeric_scores
from transduce.nn.stack_configs import max_sequence_length
from transduce.support.work import chunks
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.predictors import MEASURED_TOGETHER, EvaluationSet, MeasuredPredictor
from transduce.tasks.recipe import Split
from transduce.tasks.task import Example, OnDevice
from transduce.tasks.translation.recipe import (
    DEFAULT_METRICS,
    TranslationRecipe,
    chosen,
    expected_tags,
    language_tokens,
    read_pairs_of,
)
from transduce.tasks.translation.text_translator import (
    Alignment,
    TextTranslator,
    Translation,
    TranslatorConfig,
)
from transduce.tasks.vocabularies import UnknownTokens
from transduce.text import BOS, Tokenizer
from transduce.text.imported import ImportedTokenizer
from transduce.text.languages import canonical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from transduce.decoding.step_search import EncoderDecoderSearch
    from transduce.models.encoder_decoder import EncoderDecoder


logger = logging.getLogger("transduce")


def as_written(references: Sequence[Sequence[str]], target: Tokenizer) -> list[list[str]]:
    """References as the vocabulary of the target would write them, such as in lower case."""
    return [[target.normalizer.apply(text) for text in item] for item in references]


def warn_of_writing(evaluation: Evaluation, metrics: Sequence[str], target: Tokenizer) -> None:
    """Warn of references that the target vocabulary cannot produce.

    evaluation: with its references and scores.  metrics: names.
    """
    references = evaluation.references
    written = as_written(references, target)
    apart = sum(item != list(texts) for item, texts in zip(written, references, strict=True))
    if not apart:
        return
    other = measure(metrics, evaluation.hypotheses, written, evaluation.language)
    pairs = [
        f"{name} {score:.2f}"
        for name, score in numeric_scores(other).items()
        if score != evaluation.scores[name]
    ]
    if pairs:
        logger.warning(
            "%d of %d references contain characters that the target vocabulary cannot produce "
            "(see text.target); scores with normalised references: %s",
            apart,
            len(references),
            ", ".join(pairs),
        )


def references_by_source(
    pairs: Iterable[tuple[str, str]], target: Tokenizer
) -> tuple[list[str], list[list[str]]]:
    """Sources, and for each the list of its references.

    Symbols, such as the phones of a word, have several right answers, so equal sources are
    joined; sentences of text stay apart, as published test sets count them.
    """
    if target.outputs != "symbols":
        listed = list(pairs)
        return [s for s, _ in listed], [[t] for _, t in listed]
    return group_by_source(pairs)


@dataclass(eq=False, kw_only=True, repr=False)
class Translator(OnDevice, TextTranslator, MeasuredPredictor):
    """Turns source texts into target texts, by the search of its backend.

    recipe: of the training, with its data and metrics.  network: the model in PyTorch, which
    scores and alignments need; the native engine translates without it.
    """

    items = "pairs"

    recipe: TranslationRecipe
    network: Callable[[], EncoderDecoder]

    @property
    def model(self) -> EncoderDecoder:  # type: ignore[override]
        """The model in PyTorch."""
        return self.network()

    @property
    def steps(self) -> EncoderDecoderSearch:
        """The search of Python, which takes auxiliary models."""
        search = self.backend.step_search("auxiliary models")
        from transduce.decoding.step_search import EncoderDecoderSearch

        assert isinstance(search, EncoderDecoderSearch)
        return search

    @property
    def metrics(self) -> Sequence[str]:
        """Metrics of the recipe, or those of the units of the targets."""
        return self.recipe.evaluation.metrics or DEFAULT_METRICS[self.target.outputs]

    def held_out(self, split: Split) -> EvaluationSet:
        """The pairs of a split."""
        return self.examples(((s,), t) for s, t in read_pairs_of(self.recipe.data, split))

    def examples(self, examples: Iterable[Example]) -> EvaluationSet:
        """Sources, with the references of equal sources together where they are symbols."""
        pairs = ((source, target) for (source,), target in examples)
        sources, references = references_by_source(pairs, self.target)
        return EvaluationSet(sources, references, [(source,) for source in sources])

    def predictions(
        self, data: EvaluationSet, options: DecodingOptions | None
    ) -> list[Translation]:
        """Translations of the sources."""
        translations: list[Translation] = []
        for chunk in chunks(data.sources, MEASURED_TOGETHER):
            translations += self.translate_lines(chunk, options, len(translations))
        return translations

    def completed(
        self, evaluation: Evaluation, data: EvaluationSet, predictions: Sequence[Translation]
    ) -> Evaluation:
        """With a warning of references that the target vocabulary cannot produce.

        evaluation: to complete.  data: unused.  predictions: unused.
        """
        warn_of_writing(evaluation, self.metrics, self.target)
        return evaluation

    def facts(self) -> dict[str, Any]:
        """Languages, and sizes of the vocabularies."""
        return {
            "source_languages": list(self.recipe.languages.sources),
            "target_languages": list(self.recipe.target_languages),
            "source_vocabulary": self.source.size,
            "target_vocabulary": self.target.size,
        }

    @functools.cached_property
    def _unknown_targets(self) -> UnknownTokens:
        return UnknownTokens(self.target)

    def with_models(self, auxiliary: AuxiliaryModels) -> Self:
        """Translator that decodes with auxiliary models, within the limits of all.

        Raises SettingError if it decodes with others already.
        """
        self.check_alone()
        steps, config = self.steps, self.config
        source = smallest_limit(config.max_source_length, auxiliary.max_source_length)
        target = smallest_limit(config.max_target_length, auxiliary.max_target_length)
        assert source is not None
        from transduce.decoding.step_search import EncoderDecoderSearch, padded_ids

        return dataclasses.replace(
            self,
            config=dataclasses.replace(config, max_source_length=source, max_target_length=target),
            backend=EncoderDecoderSearch(
                steps.model, padded_ids, target, auxiliary, steps.shortlist
            ),
        )

    def between(self, source: str | None, target: str | None) -> Self:
        """This translator between two of its languages; None for what its texts say.

        Raises SettingError for others.
        """
        recipe, config = self.recipe, self.config
        sources, targets = recipe.languages.sources, recipe.target_languages
        near = None if source is None else chosen(source, sources, "source")
        far = None if target is None else chosen(target, targets, "target")
        if config.languages is not None:
            mine = config.languages
            near = mine.sources[0] if near is None else canonical(near)
            if far is not None:
                return dataclasses.replace(
                    self,
                    source=mine.source.opened(near),
                    target=mine.target.opened(canonical(far)),
                    config=dataclasses.replace(config, languages=None),
                )
            mine = mine._replace(sources=(near, *mine.sources))
            return dataclasses.replace(self, config=dataclasses.replace(config, languages=mine))
        if far is None or len(targets) == 1:
            return self
        return dataclasses.replace(self, config=dataclasses.replace(config, tag=f"<{far}> "))

    def check_alone(self) -> None:
        """Raises SettingError if it already has auxiliary models."""
        if self.backend.auxiliary is not NO_AUXILIARY:
            raise SettingError(
                "this run already has auxiliary models; pass all of them in one call of with_models"
            )

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """Natural log-probability of each target text, end included, given its source.

        Pairs beyond `scoring.max_scored_length` tokens get nan and a warning.
        """
        model = self.model
        from transduce.tasks.translation.scoring import score_pairs

        return score_pairs(model, self.source, self.target, pairs, self.check_pairs)

    def align(self, source: str, target: str | None = None, layer: int = -1) -> Alignment:
        """Attention of each target token, and the end, to the source tokens in a layer.

        Both are read as a line.  target: by default the model's own translation.  Raises RunError
        for a model without cross-attention, SettingError for a missing layer.
        """
        if target is None:
            target = self.translate_lines([source])[0].text
        source_ids = self.source.as_source(self.source.encode(source))
        target_ids = [BOS, *self.target.encode(target)]
        self.check_pairs([(source, target)], [source_ids], [target_ids], 0)
        model = self.model
        from transduce.decoding.step_search import padded_ids
        from transduce.tasks.translation.scoring import attended, cross_attentions, layer_of

        source_batch, target_batch = (
            padded_ids([ids]).to(self.device) for ids in (source_ids, target_ids)
        )
        attention = layer_of(cross_attentions(model), layer)
        (weights,) = attended(model, attention, source_batch, target_batch).mean(1)
        return Alignment(
            tuple(self.source.tokens(source_ids)),
            (*self.target.tokens(target_ids[1:]), "</s>"),
            weights.float().cpu(),
        )

    def attention(self, source: str, target: str, layer: int = -1) -> NDArray[np.float32]:
        """Weights (t, s) of the attention in a layer, as in `align`.

        source: text.  target: text of its translation.
        """
        if layer == -1 and isinstance(self.backend, NativeSearch):
            source_ids = self.source.as_source(self.source.encode(source))
            return self.backend.model.attention(source_ids, [BOS, *self.target.encode(target)])
        return self.align(source, target, layer).weights.numpy()

    def check_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        first: int,
    ) -> None:
        """Warn of the first pair with tokens that are unknown on a side, given the ids of both.

        pairs: (source, target) texts.  sources, targets: ids of both sides.  first: number of the
        first pair in a longer sequence, from 0.
        """
        sides = (self.config.unknown_tokens, sources), (self._unknown_targets, targets)
        for side, (unknown, rows) in enumerate(sides):
            if unknown is not None:
                names = (f"pair {number}" for number in itertools.count(first + 1))
                unknown.check(([pair[side]] for pair in pairs), rows, names)


def config_of(recipe: TranslationRecipe, source: Tokenizer, target: Tokenizer) -> TranslatorConfig:
    """Limits and warnings as a recipe describes them.  source, target: vocabularies."""
    positions = max_sequence_length(recipe.model.decoder)
    numbering = target.numbering if isinstance(target, ImportedTokenizer) else None
    begun = 1  # with BOS
    if numbering is not None and (numbering.languages or numbering.opening is not None):
        begun = 2
    taught = recipe.training.alignment
    return TranslatorConfig(
        max_source_length=recipe.data.filters.max_length,
        max_target_length=None if positions is None else positions - begun,
        target_language=recipe.target_language,
        alignment_head=(-1, None) if taught is None else (taught.layer, taught.head),
        expected_tags=expected_tags(recipe.data.tags(), source),
        unknown_tokens=UnknownTokens(source),
        languages=language_tokens(recipe.languages, source, target),
    )
