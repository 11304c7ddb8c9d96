"""The recipe of a task from text to text: one TOML file, one experiment."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from transduce.config import did_you_mean, merge, parse, section, to_dict
from transduce.data.filters import FilterConfig
from transduce.data.pairs import PairsConfig, fingerprint, nameable, read_pairs
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, SettingError
from transduce.metrics.measure import check_metric
from transduce.models.encoder_decoder import EncoderDecoderConfig, check_tie
from transduce.models.presets import PRESETS
from transduce.text import SubwordConfig, TokenizerConfig
from transduce.training.config import TrainingConfig

Split = Literal["train", "valid", "test"]

PLACE_VERSION = 2
"""Goes up when `_place` changes, so that pairs encoded before are not taken for those now."""


@section
class DataConfig:
    """Which pairs to train on, to validate with, and to test on."""

    root: Annotated[str, AfterValidator(nameable)] = "."
    """Directory that relative paths start from; may hold `~` and `$VARIABLE`.  A relative root
    starts from the current directory."""
    train: PairsConfig
    valid: PairsConfig | None = None
    """Without it, `hold_out` of the training pairs are set aside."""
    test: PairsConfig | None = None
    """Without it and without `valid`, another `hold_out` of the training pairs is set aside."""
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.02
    """Share of the sources that is set aside, with all their targets, where no file is given."""
    filters: FilterConfig = FilterConfig()


@section
class TextConfig:
    """How texts become tokens."""

    source: TokenizerConfig = SubwordConfig()
    target: TokenizerConfig | None = None
    """Without it, source and target share one joint vocabulary, made as `source` says."""


@section
class EvaluationConfig:
    """What is measured."""

    target_language: str = ""
    """Code of the target language, such as "de" or "zh"; some metrics need it."""
    metrics: tuple[str, ...] = ()
    """By default BLEU, chrF and TER for text; WER, PER and accuracy for symbols."""
    validation_metrics: tuple[str, ...] = ()
    """What each validation during training measures by decoding; by default BLEU and chrF, or
    WER and PER."""
    validation_pairs: Annotated[int, Field(ge=0)] = 500
    """How many pairs each validation decodes; 0 to validate by loss alone."""
    validation_beam_size: Annotated[int, Field(ge=1)] = 1

    def __post_init__(self) -> None:
        for name in (*self.metrics, *self.validation_metrics):
            check_metric(name)


@section
class TranslationRecipe:
    """Everything that makes a run what it is."""

    task: Literal["translation"] = "translation"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Decides first weights, dropout and the order of the data."""
    data: DataConfig
    text: TextConfig = TextConfig()
    model: EncoderDecoderConfig = EncoderDecoderConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingOptions = DecodingOptions()
    evaluation: EvaluationConfig = EvaluationConfig()

    def __post_init__(self) -> None:
        """What the sections mean for each other, said before anything long has begun."""
        check_tie(self.model, joint=self.text.target is None)
        longest = self.data.filters.max_length
        for stack in (self.model.encoder, self.model.decoder):
            if stack.positions == "learned" and stack.max_positions < longest + 2:
                raise SettingError(
                    f"learned positions reach to {stack.max_positions}, but "
                    f"data.filters.max_length = {longest} needs {longest + 2}; set max_positions "
                    "or max_length accordingly"
                )


def parse_translation(settings: Mapping[str, Any], where: str) -> TranslationRecipe:
    """Settings of a file as a recipe, with `model.preset` spelled out and the root resolved."""
    model = settings.get("model")
    if isinstance(model, Mapping) and "preset" in model:
        rest = {key: value for key, value in model.items() if key != "preset"}
        settings = {**settings, "model": merge(_preset(model["preset"], where), rest)}
    recipe = parse(TranslationRecipe, settings, where)
    data = dataclasses.replace(recipe.data, root=str(_root(recipe.data.root)))
    return dataclasses.replace(recipe, data=data)


def _preset(name: Any, where: str) -> dict[str, Any]:
    if not isinstance(name, str) or name not in PRESETS:
        hint = did_you_mean(str(name), PRESETS) or f"; there are {', '.join(PRESETS)}"
        raise SettingError(f"{where}: model.preset {name!r} is not known{hint}")
    preset: dict[str, Any] = to_dict(PRESETS[name])
    return preset


def _root(text: str) -> Path:
    expanded = os.path.expandvars(os.path.expanduser(text))  # noqa: PTH111
    if unset := re.search(r"\$\{?(\w+)", expanded):
        raise SettingError(
            f"data.root names the variable {unset[1]}, which is not set; export it, or give "
            "--set data.root=DIRECTORY"
        )
    return Path(expanded).resolve()


def has_split(config: DataConfig, split: Split) -> bool:
    """Whether there are pairs for this split."""
    return split != "test" or config.test is not None or config.valid is None


def read_split(config: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    """The pairs of a split, streamed.  Raises DataError for what cannot be read.

    Where a split is set aside from the training pairs, the hash of the source decides, so that
    all targets of a source are in one split, whatever the order of the file.
    """
    root = Path(config.root)
    own = {"train": None, "valid": config.valid, "test": config.test}[split]
    if own is not None:
        yield from read_pairs(own, root)
        return
    if not has_split(config, split):
        raise DataError(
            "the recipe has no test pairs; name them as data.test, or --source and --reference"
        )
    begin = 0.0
    set_aside: dict[str, tuple[float, float]] = {}
    for name in ("valid", "test"):
        if getattr(config, name) is None and has_split(config, name):
            set_aside[name] = (begin, begin := begin + config.hold_out)
    low, high = set_aside.get(split, (begin, 1.0))
    for source, target in read_pairs(config.train, root):
        if low <= _place(source) < high:
            yield source, target


def split_fingerprint(config: DataConfig, split: Split) -> str:
    """Changes whenever the pairs of a split may have changed."""
    own = {"train": None, "valid": config.valid, "test": config.test}[split]
    source = own if own is not None else config.train
    made = [PLACE_VERSION, split, config.hold_out, config.valid is None, config.test is None]
    return f"{fingerprint(source, Path(config.root))} {made}"


def _place(source: str) -> float:
    """A number in [0, 1) that depends on the text alone, however its letters are written.

    "Dog" and "dog" are in one split, or a tokenizer that lowers case would see the test.
    """
    plain = unicodedata.normalize("NFKC", source).casefold().strip()
    digest = hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
