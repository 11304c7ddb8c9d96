"""Vocabularies and encoded pairs of a translation recipe."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from pathlib import Path

from transduce.data.encoded import EncodedPairs, NoPairsError, cached_pairs
from transduce.data.mixture import MixedPairs
from transduce.data.pairs import PairsConfig, ParallelFiles, about_how_many, without_marks
from transduce.data.ragged_rows import Side
from transduce.errors import DataError, SettingError
from transduce.settings.sections import parse, to_dict
from transduce.support.work import available_cores
from transduce.tasks.common import cache_of, cached_tokenizer
from transduce.tasks.recipe import Split
from transduce.tasks.recipe_settings import base_settings
from transduce.tasks.splits import (
    bounds_of,
    own_section,
    remedy_for_nothing_held_out,
    split_fingerprint,
)
from transduce.tasks.translation.recipe import (
    DataConfig,
    TextConfig,
    TranslationRecipe,
    read_pairs_of,
)
from transduce.tasks.unknown_tokens import tell_of_training_texts
from transduce.tasks.validation import digest_of
from transduce.tasks.vocabularies import (
    digest_of_tokenizer,
    missing_tokenizers,
    saved_tokenizers,
    saved_vocabularies,
)
from transduce.text import AnyTokenizer, FileConfig, Tokenizer, train_tokenizer
from transduce.training.checkpoint_paths import checkpoints_of
from transduce.training.display import ProgressCounter

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
    """Training and validation pairs as token ids on disk, made now unless they are there."""
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
    """
    parts, weights = [], []
    corpora = recipe.data.corpora()
    for data, weight in corpora:
        alone = dataclasses.replace(recipe, data=data)
        name = _name_of(data.train) if len(corpora) > 1 and data.train is not None else ""
        parts.append(_encoded_split(alone, "train", source, target, cache, name))
        weights.append(weight)
    return parts[0] if weights == [1.0] else MixedPairs(parts, weights)


def _name_of(config: PairsConfig) -> str:
    return str(config.source if isinstance(config, ParallelFiles) else config.path)


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
