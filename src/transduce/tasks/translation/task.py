"""Translation and every other task from text to text: training and evaluation."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transduce.data.batches import PairBatch, ShiftedPairs, pair_batches
from transduce.data.encoded import EncodedPairs
from transduce.data.mixture import MixedPairs
from transduce.data.sampling import sampled_pairs
from transduce.decoding.shortlist import Shortlist
from transduce.decoding.step_search import EncoderDecoderSearch, padded_ids
from transduce.errors import SettingError
from transduce.metrics.measure import measure, numeric_scores
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.settings.sections import to_dict
from transduce.tasks.common import cache_of, with_weights
from transduce.tasks.provenance import record_provenance
from transduce.tasks.recipe import Split
from transduce.tasks.recipe_settings import check_decoding, check_selection
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.splits import sampled
from transduce.tasks.translation.data import encoded_pairs, vocabularies
from transduce.tasks.translation.evaluation import as_written, references_by_source
from transduce.tasks.translation.guided_alignment import AlignmentGuide, training_links
from transduce.tasks.translation.languages import opened
from transduce.tasks.translation.recipe import TranslationRecipe, read_pairs_of
from transduce.tasks.translation.shortlist import load_shortlist
from transduce.tasks.translation.translator import Translator, config_of
from transduce.tasks.validation import warn_of_few
from transduce.tasks.vocabularies import saved_vocabularies
from transduce.text import Tokenizer, token_names
from transduce.text.sampling import sampler_for
from transduce.training.film import Scene
from transduce.training.film_scenes import nearest, pair_scene
from transduce.training.loss import LossSums
from transduce.training.r_drop import twice
from transduce.training.token_loss import token_loss

logger = logging.getLogger("transduce")


class TranslationTraining(SequenceTraining[Translator]):
    """Pairs, model and loss for the training loop."""

    has_targets = True

    def __init__(
        self,
        translator: Translator,
        data: dict[Split, EncodedPairs | MixedPairs],
        guide: AlignmentGuide | None = None,
    ) -> None:
        super().__init__(translator)
        self.recipe = recipe = translator.recipe
        self.guide = guide
        tokens = recipe.training.batch_tokens
        text = recipe.text
        self.batches = sampled_pairs(
            pair_batches(data["train"], tokens, recipe.seed, translator.source.ends_sources),
            sampler_for("text.source_sampling", text.source_sampling, translator.source),
            sampler_for("text.target_sampling", text.target_sampling, translator.target),
            recipe.data.filters.max_length,
        )
        self._valid = pair_batches(
            data["valid"], tokens, recipe.seed, translator.source.ends_sources
        )
        evaluation = recipe.evaluation
        valid = read_pairs_of(recipe.data, "valid")
        pairs = sampled(valid, evaluation.validation_pairs, lambda pair: pair[0])
        sources, references = references_by_source(pairs, translator.target)
        # A model without capitals is not to be chosen by those that happen to be right.
        self._examples = sources, as_written(references, translator.target)
        self._decoding = dataclasses.replace(
            recipe.decoding,
            beam_size=evaluation.validation_beam_size,
            n_best=1,
            beam_groups=1,  # need not divide this beam
            shortlist=False,  # is learnt once training has ended
        )
        if sources:
            translator.check(self._decoding)
            self._warn_of_length(sources)
            quiet = dataclasses.replace(translator.config, warn_of_length=False)
            self.predictor = dataclasses.replace(translator, config=quiet)
        self._metrics = evaluation.validated(translator.target.outputs)
        measured = ("loss", *self._metrics) if sources else ("loss",)
        check_selection(recipe.training.select_by, measured)

    def _warn_of_length(self, sources: Sequence[str]) -> None:
        translator = self.predictor
        max_source_length = translator.config.max_source_length
        n_long = sum(
            len(ids) > max_source_length for ids in translator.source.encode_batch(sources)
        )
        if n_long:
            logger.warning(
                "%d of the %d sources decoded at each validation have more than %d tokens and are "
                "translated in pieces",
                n_long,
                len(sources),
                max_source_length,
            )

    def pack(self, batch: PairBatch) -> ShiftedPairs:
        """The pairs in two rows of one shape."""
        return batch.shifted().packed(self.shape)

    def packed_loss(self, pairs: ShiftedPairs) -> LossSums:
        """As `loss`, of packed pairs."""
        training = self.recipe.training
        return pair_loss(self.model, pairs, training.label_smoothing, training.r_drop)

    def padding_reason(self) -> str:
        """Reason for which batches stay padded; empty for none."""
        return "training.alignment reads weights of attention" if self.guide else ""

    def loss(self, batch: PairBatch) -> LossSums:
        """Cross-entropy of every target token given the source and the tokens before it."""
        batch, training = batch.to(self.device), self.recipe.training
        loss = functools.partial(
            pair_loss, self.model, batch, training.label_smoothing, training.r_drop
        )
        return loss() if self.guide is None else self.guide.loss(batch, loss)

    def validate(self) -> dict[str, float]:
        """Loss in nats per token on the validation pairs; scores of decoding some of them."""
        batches = (batch.to(self.device) for batch in self._valid.in_order())
        loss = self.mean_loss(pair_loss(self.model, batch, 0.0) for batch in batches)
        scores = {"loss": loss}
        sources, references = self._examples
        if sources and math.isfinite(scores["loss"]):  # else there is nothing to decode with
            outputs = [t.text for t in self.predictor.translate_lines(sources, self._decoding)]
            language = self.recipe.target_language
            measured = measure(self._metrics, outputs, references, language)
            scores |= numeric_scores(measured)
        return scores

    def scenes(self) -> list[Scene]:
        """Validation pairs for the film of learning."""
        source, target = self.predictor.source, self.predictor.target
        names = token_names(source), token_names(target)
        parts = []
        for i in nearest(*self._valid.widths):
            pair = self._valid.assemble(np.array([i]))
            ids, written = (side.values[0].tolist() for side in (pair.source, pair.target))
            text = f"{source.decode(ids[:-1])} → {target.decode(written[1:-1])}"
            parts.append(pair_scene(self.model, pair.source, pair.target, names, text))
        return parts

    def behind(self, score: str) -> Sequence[Any]:
        """Pairs that are decoded, and how."""
        language = self.recipe.evaluation.target_language
        decoded = (*self._examples, to_dict(self._decoding), language)
        return () if score == "loss" else decoded


def pair_loss(
    model: EncoderDecoder, batch: PairBatch | ShiftedPairs, smoothing: float, r_drop: float = 0.0
) -> LossSums:
    """Cross-entropy of every target token given the source and the tokens before it."""
    pairs = batch.shifted() if isinstance(batch, PairBatch) else batch
    source, inputs, counted = pairs.source, pairs.inputs, pairs.inputs.real
    if r_drop:
        source, inputs = twice(source), twice(inputs)
    hidden = model.advance(inputs, model.start(source))
    count = pairs.target_tokens
    return token_loss(model.head, hidden, pairs.labels, counted, count, smoothing, r_drop)


BuildModel = Callable[[TranslationRecipe, Tokenizer, Tokenizer], EncoderDecoder]
"""Recipe, tokenizers of source and target -> model with first weights."""


def build_model(recipe: TranslationRecipe, source: Tokenizer, target: Tokenizer) -> EncoderDecoder:
    """The model that a recipe describes, with first weights."""
    joint = recipe.text.target is None
    return build_encoder_decoder(recipe.model, source.size, target.size, joint)


def prepare_translation(
    recipe: TranslationRecipe,
    run: Path,
    *,
    training: type[TranslationTraining] = TranslationTraining,
    build: BuildModel = build_model,
) -> TranslationTraining:
    """Data, model and loss of a recipe, for training into the directory `run`.

    training: class with the loss and the validation.  build: makes the model; `load_translation`
    needs the same.
    """
    check_decoding(recipe.decoding, "translation")
    record_provenance(recipe.data.files(), run)
    if recipe.languages.tags == "pair" and len(recipe.languages.targets) > 1:
        raise SettingError(
            "a model of many languages is fine-tuned for a pair; set languages.source and "
            "languages.target to a code each"
        )
    source, target = opened(recipe.languages, *vocabularies(recipe, run))
    cache = cache_of(run)
    data = encoded_pairs(recipe, source, target, cache)
    translator = new_translator(recipe, source, target, build=build)
    guide = None
    if recipe.training.alignment is not None:
        links = training_links(recipe, source, target, data["train"], cache)
        guide = AlignmentGuide(translator.model, recipe.training.alignment, links)
    warn_of_few(recipe.data, len(data["valid"]), "pairs")
    return training(translator, data, guide)


def new_translator(
    recipe: TranslationRecipe,
    source: Tokenizer,
    target: Tokenizer,
    shortlist: Shortlist | None = None,
    build: BuildModel = build_model,
) -> Translator:
    """A translator as a recipe describes it, with first weights."""
    model = build(recipe, source, target)
    config = config_of(recipe, source, target)
    search = EncoderDecoderSearch(model, padded_ids, config.max_target_length, shortlist=shortlist)
    return Translator(
        options=recipe.decoding,
        backend=search,
        source=source,
        target=target,
        config=config,
        network=lambda: model,
        recipe=recipe,
    )


def load_translation(
    recipe: TranslationRecipe, run: Path, device: str, *, build: BuildModel = build_model
) -> Translator:
    """Trained model of a run directory. Raises RunError if a file is missing or damaged.

    build: as in `prepare_translation`.
    """
    source, target = saved_vocabularies(run)
    shortlist = load_shortlist(run, source, target)
    source, target = opened(recipe.languages, source, target)
    return with_weights(
        lambda: new_translator(recipe, source, target, shortlist, build), run, device
    )
