"""Translation and every other task from text to text: vocabularies, encoded pairs, training and
evaluation."""

import dataclasses
import functools
import itertools
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transduce.data.batches import PairBatch, ShiftedPairs, pair_batches
from transduce.data.encoded import EncodedPairs, MixedPairs, NoPairsError, cached_pairs
from transduce.data.pairs import about_how_many, without_marks
from transduce.data.ragged_rows import Side
from transduce.data.sampling import sampled_pairs
from transduce.decoding.shortlist import Shortlist
from transduce.decoding.step_search import EncoderDecoderSearch, padded_ids
from transduce.errors import DataError, SettingError
from transduce.metrics.measure import measure, numeric_scores
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.settings.sections import parse, to_dict
from transduce.support.work import available_cores
from transduce.tasks.provenance import record_provenance
from transduce.tasks.recipe import (
    Split,
    base_settings,
    bounds_of,
    check_decoding,
    check_selection,
    digest_of,
    own_section,
    remedy_for_nothing_held_out,
    sampled,
    split_fingerprint,
    warn_of_few,
)
from transduce.tasks.training import SequenceTraining, cached_tokenizer, with_weights
from transduce.tasks.translation.alignment import AlignmentGuide, training_links
from transduce.tasks.translation.recipe import (
    DataConfig,
    TextConfig,
    TranslationRecipe,
    opened_tokenizers,
    read_pairs_of,
)
from transduce.tasks.translation.shortlist import load_shortlist
from transduce.tasks.translation.translator import (
    Translator,
    as_written,
    config_of,
    references_by_source,
)
from transduce.tasks.vocabularies import (
    digest_of_tokenizer,
    missing_tokenizers,
    saved_tokenizers,
    saved_vocabularies,
    tell_of_training_texts,
)
from transduce.text import AnyTokenizer, FileConfig, Tokenizer, token_names, train_tokenizer
from transduce.text.subword import sampler_for
from transduce.training.film import Scene, nearest_lengths, pair_scene
from transduce.training.log import ProgressCounter
from transduce.training.loss import LossSums, token_loss, twice
from transduce.training.weight_files import cache_of, checkpoints_of

logger = logging.getLogger("transduce")


def vocabularies(recipe: TranslationRecipe, run: Path) -> tuple[Tokenizer, Tokenizer]:
    """Vocabularies of the run directory, or else learnt from the training pairs."""
    if (saved := saved_tokenizers(run)) is not None:
        return saved
    if checkpoints_of(run):  # their weights are of those very tokenizers
        raise missing_tokenizers(run)
    if recipe.fine_tune is not None:
        return _base_vocabularies(recipe, Path(recipe.fine_tune.run), run)
    corpora = [split_fingerprint(part, "train") for part, _ in recipe.data.corpora()]

    def learnt(config: AnyTokenizer, side: slice) -> Tokenizer:
        if isinstance(config, FileConfig):  # nothing to learn, and nothing to keep for later
            return train_tokenizer(config, ())

        def make() -> Tokenizer:
            total = _about_how_many(recipe.data, "train")
            with ProgressCounter("reading pairs for the vocabulary", total) as count:
                pairs = count.each(read_pairs_of(recipe.data, "train"), "learning the vocabulary")
                texts = itertools.chain.from_iterable(pair[side] for pair in pairs)
                return train_tokenizer(config, texts)

        facts = [corpora, to_dict(config), [side.start, side.stop]]
        return cached_tokenizer(cache_of(run), facts, make)

    if recipe.text.target is None:
        source = target = learnt(recipe.text.source, slice(0, 2))
    else:
        source = learnt(recipe.text.source, slice(0, 1))
        target = learnt(recipe.text.target, slice(1, 2))
    _save(source, target, run)
    return source, target


def _base_vocabularies(
    recipe: TranslationRecipe, base: Path, run: Path
) -> tuple[Tokenizer, Tokenizer]:
    """Vocabularies of the base run, copied into this run's directory.

    Raises RunError if there are none, SettingError if the recipe sets others.
    """
    source, target = saved_vocabularies(base)
    text = parse(TextConfig, base_settings(base).get("text", {}))
    if text.without_sampling() != recipe.text.without_sampling():
        raise SettingError(
            f"the text section differs from {base}, but its weights need the same vocabulary; "
            "remove it"
        )
    _save(source, target, run)
    for tokenizer, side in ((source, 0), (target, 1)):
        pairs = read_pairs_of(recipe.data, "train")
        tell_of_training_texts(tokenizer, (pair[side] for pair in pairs))
    return source, target


def _save(source: Tokenizer, target: Tokenizer, run: Path) -> None:
    if source is target:
        source.save(run / f"tokenizer{source.suffix}")
    else:
        source.save(run / f"source_tokenizer{source.suffix}")
        target.save(run / f"target_tokenizer{target.suffix}")


def encoded_pairs(
    recipe: TranslationRecipe, source: Tokenizer, target: Tokenizer, cache: Path
) -> dict[Split, EncodedPairs | MixedPairs]:
    """Training and validation pairs as token ids on disk, made now unless they are there.

    recipe: with the data.  source, target: tokenizers.  cache: directory of the encoded pairs.
    """
    train = training_pairs(recipe, source, target, cache)
    try:
        valid = _encoded_split(recipe, "valid", source, target, cache)
    except NoPairsError as error:
        if recipe.data.valid is not None:
            raise
        raise DataError(
            f"no validation data: holding out {recipe.data.hold_out:g} of the sources of "
            f"{len(train)} training pairs leaves no pair{_remedy(recipe.data)}"
        ) from error
    return {"train": train, "valid": valid}


def _remedy(data: DataConfig) -> str:
    alone = dataclasses.replace(data, train_weight=1.0, mix=())
    sources = (without_marks(source) for source, _ in read_pairs_of(alone, "train"))
    return remedy_for_nothing_held_out(data, "valid", sources)


def training_pairs(
    recipe: TranslationRecipe, source: Tokenizer, target: Tokenizer, cache: Path
) -> EncodedPairs | MixedPairs:
    """Training data as token ids on disk, created if missing.

    Corpora are encoded separately, so that a change of weights or corpora does not repeat the
    others.

    recipe: with the data.  source, target: tokenizers.  cache: directory of the encoded pairs.
    """
    parts, weights = [], []
    corpora = recipe.data.corpora()
    for data, weight in corpora:
        alone = dataclasses.replace(recipe, data=data)
        name = (
            str(data.train.location(Path())) if len(corpora) > 1 and data.train is not None else ""
        )
        parts.append(_encoded_split(alone, "train", source, target, cache, name))
        weights.append(weight)
    return parts[0] if weights == [1.0] else MixedPairs(parts, weights)


def _encoded_split(
    recipe: TranslationRecipe,
    split: Split,
    source: Tokenizer,
    target: Tokenizer,
    cache: Path,
    corpus: str = "",
) -> EncodedPairs:
    """corpus: its name for messages, where the split has several."""
    location = f"{split}, {corpus}" if corpus else split
    filters = recipe.data.filters
    if split == "valid":  # validation is not for us to thin out
        filters = dataclasses.replace(filters, max_ratio=0.0, drop_duplicates=False)
    facts = [
        split_fingerprint(recipe.data, split),
        digest_of_tokenizer(source),
        digest_of_tokenizer(target),
        to_dict(filters),
    ]
    name = digest_of(facts)
    with ProgressCounter(f"encoding {split} pairs", _about_how_many(recipe.data, split)) as count:
        try:
            pairs = cached_pairs(
                functools.partial(read_pairs_of, recipe.data, split),
                Side(source.encode_batch, source.size),
                Side(target.encode_batch, target.size),
                filters,
                cache / name[:16],
                name,
                count.to,
                recipe.training.threads or available_cores(),
            )
        except NoPairsError as error:
            raise NoPairsError(f"{location}: {error}") from error
    logger.info("%s: %s", location, pairs.report)
    return pairs


def _about_how_many(config: DataConfig, split: Split) -> int | None:
    """Pairs of a split, for a bar; None if nothing is known without reading them."""
    named, root = own_section(config, split), config.root
    if named is not None:
        return about_how_many(named, Path(root))
    parts = [part.train for part, _ in config.corpora()] if split == "train" else [config.train]
    counts = [about_how_many(part, Path(root)) for part in parts if part is not None]
    low, high = bounds_of(config, split)
    return round(sum(n or 0 for n in counts) * (high - low)) if all(counts) else None


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
        for i in nearest_lengths(*self._valid.widths):
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
    """Cross-entropy of every target token given the source and the tokens before it.

    model: an encoder-decoder.  batch: of pairs.  smoothing: of labels, from 0 to 1.  r_drop: weight
    of the divergence of two passes; 0 for a single pass.
    """
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
    """The model that a recipe describes, with first weights.

    source, target: tokenizers, for the sizes of the embeddings.
    """
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
    source, target = opened_tokenizers(recipe.languages, *vocabularies(recipe, run))
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
    """A translator as a recipe describes it, with first weights.

    source, target: tokenizers.  shortlist: of the run; None without.  build: makes the model.
    """
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

    recipe: of the run.  device: name, such as "cpu".  build: as in `prepare_translation`.
    """
    source, target = saved_vocabularies(run)
    shortlist = load_shortlist(run, source, target)
    source, target = opened_tokenizers(recipe.languages, source, target)
    return with_weights(
        lambda: new_translator(recipe, source, target, shortlist, build), run, device
    )
