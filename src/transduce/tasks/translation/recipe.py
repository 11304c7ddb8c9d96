"""Recipe of translation and every other task from text to text, its languages and tags."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from transduce.data.pairs import FilterConfig, PairsConfig, ParallelFiles, read_pairs, without_marks
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, RunError, SettingError
from transduce.models.config import PRESETS, EncoderDecoderConfig, check_tie
from transduce.nn.stack_configs import cross_attention_heads, max_sequence_length
from transduce.settings.sections import merge_settings, section
from transduce.tasks.recipe import (
    Recipe,
    Split,
    SplitsConfig,
    base_settings,
    check_r_drop,
    check_recompute,
    check_selection,
    named_base,
    read_split,
)
from transduce.text import SubwordConfig, Tokenizer, TokenizerConfig
from transduce.text.imported import ImportedTokenizer
from transduce.text.languages import canonical, known_code
from transduce.text.subword import Alpha, check_sampling
from transduce.text.tokenizer import CharacterTokenizer, OutputUnits, leading_tags, mark
from transduce.training.config import FineTuneConfig, GuidedTrainingConfig, check_head

logger = logging.getLogger("transduce")

NAMED_TAGS = 40
"""Limit on the tags listed in a message."""


class CorpusTags(NamedTuple):
    """Tags of a corpus of training data: the same for all of it, and from columns of its rows."""

    tag: str
    from_columns: bool


def expected_tags(corpora: Sequence[CorpusTags], source: Tokenizer) -> ExpectedTags | None:
    """The tags of sources, as in the training data; None where these have none."""
    return ExpectedTags(corpora, source) if any(map(any, corpora)) else None


class ExpectedTags:
    """Warns once if a source has no tag, or an unknown tag, which may be a typo."""

    def __init__(self, corpora: Sequence[CorpusTags], source: Tokenizer) -> None:
        """corpora: the training data. Tags are expected if all of it has them."""
        self._expected = bool(corpora) and all(map(any, corpora))
        self._normalize = source.normalizer.apply
        self._known: list[str] = []
        """Known tags; empty if they are not recorded."""
        if isinstance(source, CharacterTokenizer):
            self._known = sorted(source.tags)
        elif not any(corpus.from_columns for corpus in corpora):
            self._known = sorted({self._normalize(mark(corpus.tag)) for corpus in corpora})

    def check(self, texts: Iterable[str], first: int = 0) -> None:
        """Warn of the first text with a wrong beginning, if none was warned of before.

        first: number of the first text in a longer input.
        """
        if not self._expected:
            return
        for line, text in enumerate(texts, first + 1):
            problem = self._problem(text) if text.strip() else ""
            if problem:
                logger.warning("line %d %s; further lines are not reported", line, problem)
                self._expected = False
                return

    def _problem(self, text: str) -> str:
        tags = leading_tags(self._normalize(text))
        named = ", ".join(tag.strip() for tag in self._known[:NAMED_TAGS])
        if len(self._known) > NAMED_TAGS:
            named += ", ..."
        if not tags:
            such = f": {named}" if named else ""
            return f"has no tag, but this model was trained with tags{such}"
        unknown = [tag.strip() for tag in tags if self._known and tag not in self._known]
        return f"has the unknown tag {unknown[0]}; known are {named}" if unknown else ""


LANGUAGE_CODE = re.compile("[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")
Weight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


@section
class Corpus:
    """Further pairs to train on."""

    pairs: PairsConfig
    weight: Weight = 1.0
    """Repetitions per epoch; 0 excludes it."""


@section
class DataConfig(SplitsConfig):
    """Pairs for training, validation and test."""

    train: PairsConfig | None = None
    train_weight: Weight = 1.0
    """Repetitions of `train` per epoch: 2 is twice, 0.25 a quarter, another in the next epoch.
    With 0 it serves only to hold out `hold_out` of it."""
    mix: tuple[Corpus, ...] = ()
    """Further corpora, mixed with `train` in every batch; held-out sources are removed."""
    valid: PairsConfig | None = None
    test: PairsConfig | None = None
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.02
    """Share of the sources to hold out, with all their targets, for each split without a file; by a
    hash of the source, independent of the order of the file."""
    filters: FilterConfig = FilterConfig()

    def __post_init__(self) -> None:
        if not self.train_weight and not any(corpus.weight for corpus in self.mix):
            raise SettingError(
                "data.train_weight and all weights in data.mix are 0; raise one of them"
            )

    def corpora(self) -> list[tuple[DataConfig, float]]:
        """Training corpora: a copy of this section with a single corpus, and its weight.

        Other settings are the same, so held-out sources are removed from each.
        """
        mixed = [(corpus.pairs, corpus.weight) for corpus in self.mix]
        return [
            (dataclasses.replace(self, train=pairs, train_weight=1.0, mix=()), weight)
            for pairs, weight in [(self.train, self.train_weight), *mixed]
            if weight
        ]

    def tags(self) -> list[CorpusTags]:
        """Tags of the training pairs, for each corpus."""
        trained = [part.train for part, _ in self.corpora() if part.train is not None]
        return [
            CorpusTags(pairs.tag, not isinstance(pairs, ParallelFiles) and bool(pairs.tag_columns))
            for pairs in trained
        ]

    @property
    def tag_names(self) -> list[str]:
        """Tags before the sources; those of columns are in the vocabulary."""
        tags = self.tags()
        names = {corpus.tag for corpus in tags} | {"of columns" for c in tags if c.from_columns}
        return sorted(names - {""})

    def files(self) -> list[Path]:
        """Files of the training pairs, of all corpora."""
        root = Path(self.root)
        trained = [part.train for part, _ in self.corpora() if part.train is not None]
        return [file for pairs in trained for file in pairs.files(root)]


@section
class TextConfig:
    """Tokenizers of source and target."""

    source: TokenizerConfig = SubwordConfig()
    """Tokenizer of the source."""
    target: TokenizerConfig | None = None
    """Target tokenizer; without it, source and target share a joint vocabulary as set by
    `source`."""
    source_sampling: Alpha = 0.0
    """Subword regularisation, a new segmentation of each source at every use in training: the
    dropout probability of merges for BPE, the exponent of probabilities for a unigram model; 0 for
    none."""
    target_sampling: Alpha = 0.0
    """The same of targets."""

    def __post_init__(self) -> None:
        target = self.target or self.source
        check_sampling("text.source_sampling", self.source_sampling, self.source.kind)
        check_sampling("text.target_sampling", self.target_sampling, target.kind)

    def without_sampling(self) -> TextConfig:
        """Settings that determine the tokenizers."""
        return dataclasses.replace(self, source_sampling=0.0, target_sampling=0.0)


@section
class LanguagesConfig:
    """Languages of the texts, for servers, `transduce info` and metrics."""

    source: str | tuple[str, ...] = ()
    """Code of the source language, such as "de" or "pt-BR", or a list of several."""
    target: str | tuple[str, ...] = ()
    """Target language.  With several, a tag with the code selects the language: `<de> ` and `<fr> `
    before the source for ["de", "fr"]."""
    tags: Literal["target", "pair"] = "target"
    """Tags before a source that select languages: that of the target (target), or those of source
    and target, as "<en> <de> ", whose tokens the model reads before the texts of both (pair), as
    imported NLLB models do; without the source's, it is the first of `source`."""

    def __post_init__(self) -> None:
        for side, codes in (("source", self.sources), ("target", self.targets)):
            for code in codes:
                if not LANGUAGE_CODE.fullmatch(code):
                    raise SettingError(
                        f"languages.{side}: {code!r} is not a language code like 'de', 'zh-Hant' "
                        "or 'pt-BR'"
                    )

    @property
    def sources(self) -> tuple[str, ...]:
        """Codes of all source languages."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def targets(self) -> tuple[str, ...]:
        """Codes of all target languages."""
        return (self.target,) if isinstance(self.target, str) else self.target


@section
class EvaluationConfig:
    """Evaluation settings."""

    target_language: str = ""
    """Code of the target language, such as "de" or "zh"; some metrics need it.  By default that
    of `languages.target`."""
    metrics: tuple[str, ...] = ()
    """Metrics; by default BLEU, chrF and TER for text, WER, PER and accuracy for symbols, and
    accuracy, CER and chrF for characters."""
    validation_metrics: tuple[str, ...] = ()
    """Metrics measured by decoding at each validation; by default the first two of `metrics`.
    References are normalised as by the target vocabulary, e.g. lower-cased."""
    validation_pairs: Annotated[int, Field(ge=0)] = 500
    """Pairs decoded at each validation, a fixed sample of the validation set; 0 to validate by loss
    alone."""
    validation_beam_size: Annotated[int, Field(ge=1)] = 1
    """Beam size of that decoding."""

    def __post_init__(self) -> None:
        for name in (*self.metrics, *self.validation_metrics):
            from transduce.metrics.measure import check_metric

            check_metric(name)

    def validated(self, units: OutputUnits) -> tuple[str, ...]:
        """Metrics measured by decoding at each validation.  units: of the targets."""
        if not self.validation_pairs:
            return ()
        return self.validation_metrics or DEFAULT_METRICS[units][:2]


DEFAULT_METRICS: dict[OutputUnits, tuple[str, ...]] = {
    "text": ("bleu", "chrf", "ter"),
    "symbols": ("wer", "per", "accuracy"),
    "characters": ("accuracy", "cer", "chrf"),
}
"""Metrics by the units of the outputs.  BLEU counts runs of four words, of which a model of
characters may write none."""


@section
class TranslationRecipe(Recipe):
    """Recipe of a translation model."""

    presets = PRESETS
    bases = ("translation",)
    inherited = ("languages",)

    task: Literal["translation"] = "translation"
    data: DataConfig
    text: TextConfig = TextConfig()
    model: EncoderDecoderConfig = EncoderDecoderConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run for fine-tuning; its `model`, `text` and `languages` are the defaults."""
    training: GuidedTrainingConfig = GuidedTrainingConfig()
    decoding: DecodingOptions = DecodingOptions()
    evaluation: EvaluationConfig = EvaluationConfig()
    languages: LanguagesConfig = LanguagesConfig()

    def __post_init__(self) -> None:
        """Check sections against each other before any long work."""
        check_tie(self.model, joint=self.text.target is None)
        limit = self.data.filters.max_length
        for stack in (self.model.encoder, self.model.decoder):
            room = max_sequence_length(stack)
            if room is not None and room < limit + 2:
                raise SettingError(
                    f"data.filters.max_length = {limit} needs {limit + 2} learned positions, "
                    f"but there are {room}; lower it, or raise max_positions"
                )
        check_r_drop(self.training, self.model)
        check_recompute(self.training, self.model.encoder, self.model.decoder)
        self._check_selection()
        self._check_languages()
        if self.training.alignment is not None:
            check_head(self.training.alignment, *cross_attention_heads(self.model.decoder))
            _check_guided(self)

    @classmethod
    def with_base(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings with model and text of the base run; a text section without a tokenizer
        modifies the base run's."""
        settings = super().with_base(settings)
        base, text = named_base(settings), settings.get("text", {})
        if base is None or not isinstance(text, Mapping) or {"source", "target"} & set(text):
            return settings
        return {**settings, "text": merge_settings(base_settings(base).get("text", {}), text)}

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Codes of the possible output languages; empty if the recipe names none."""
        measured = self.evaluation.target_language
        return self.languages.targets or ((measured,) if measured else ())

    @property
    def target_language(self) -> str:
        """Code of the output language in evaluation; empty unless there is exactly one."""
        languages = self.target_languages if len(self.target_languages) == 1 else ("",)
        return self.evaluation.target_language or languages[0]

    def _check_languages(self) -> None:
        measured, named = self.evaluation.target_language, self.languages.targets
        if measured and named and measured not in named:
            raise SettingError(
                f"evaluation.target_language = {measured!r} is not in languages.target = "
                f"{', '.join(named)}; remove it or add it there"
            )

    def _check_selection(self) -> None:
        chosen, evaluation = self.training.select_by, self.evaluation
        if chosen != "loss":
            from transduce.metrics.measure import check_metric

            check_metric(chosen)
        kind = (self.text.target or self.text.source).kind
        if kind == "file" and evaluation.validation_pairs and not evaluation.validation_metrics:
            return  # the default metrics depend on the contents of the file
        units: OutputUnits = kind if kind in ("symbols", "characters") else "text"
        check_selection(chosen, ("loss", *evaluation.validated(units)))


def _check_guided(recipe: TranslationRecipe) -> None:
    if recipe.text.source_sampling or recipe.text.target_sampling:
        raise SettingError(
            "training.alignment needs the same tokens in every epoch; remove "
            "text.source_sampling and text.target_sampling"
        )
    for name in ("compile", "recompute"):
        if getattr(recipe.training, name):
            raise SettingError(
                f"training.alignment needs the attention weights; turn off training.{name}"
            )
    aligned = recipe.training.alignment
    if aligned is not None and aligned.links is not None and not recipe.data.train_weight:
        raise SettingError("training.alignment.links needs data.train, but train_weight is 0")


def read_pairs_of(config: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    """Stream the pairs of a split; all targets of a source are in the same split, whatever their
    tags.

    Training pairs come from all corpora, each once, regardless of weights. Raises DataError if
    reading fails.
    """
    parts = [part for part, _ in config.corpora()] if split == "train" else [config]
    return itertools.chain.from_iterable(
        read_split(part, split, read_pairs, lambda pair: without_marks(pair[0])) for part in parts
    )


Pair = tuple[str, str]
"""Codes of the languages of source and target."""
NAMED_LANGUAGES = 12
"""Limit on the languages listed in a message."""


class LanguageTokens(NamedTuple):
    """Tokens of languages that stand before a source and begin its output.

    sources: codes, the first where a source has no tag.  targets: codes; a text needs a tag of one
    if there are several.
    """

    source: ImportedTokenizer
    target: ImportedTokenizer
    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def separate(self, lines: Sequence[str]) -> tuple[list[str], list[Pair]]:
        """Lines of a text without their tags, and the languages of each; a line without tags has
        those of the line before it.  Raises DataError where none names the target."""
        source, target = self.sources[0], self.targets[0] if len(self.targets) == 1 else ""
        bare, pairs = [], []
        for line in lines:
            tags = [tag for tag in leading_tags(line)[:2] if known_code(tag[1:-2], self._codes)]
            if tags and line.startswith("".join(tags)):
                line = line.removeprefix("".join(tags))
                *before, target = (self._code(tag) for tag in tags)
                source = before[0] if before else source
            if line.strip() and not target:
                raise DataError(
                    f"no target language; give --target-language, or begin it with a tag such as "
                    f"<{source}> <{next(t for t in self.targets if t != source)}>"
                )
            bare.append(line)
            pairs.append((source, target))
        return bare, pairs

    @property
    def _codes(self) -> frozenset[str]:
        return frozenset((*self.sources, *self.targets))

    def _code(self, tag: str) -> str:
        return known_code(tag[1:-2], self._codes) or ""


def language_tokens(
    config: LanguagesConfig, source: Tokenizer, target: Tokenizer
) -> LanguageTokens | None:
    """Tokens of the languages that a recipe names; None if it has none.  Raises RunError.

    config: section `languages`.  source, target: tokenizers.
    """
    if config.tags != "pair":
        return None
    sides = (source, config.sources), (target, config.targets)
    for tokenizer, codes in sides:
        known = tokenizer.numbering.languages if isinstance(tokenizer, ImportedTokenizer) else {}
        if not codes or not known.keys() >= {*map(canonical, codes)}:
            raise RunError('languages.tags = "pair" needs a tokenizer with all its languages')
    assert isinstance(source, ImportedTokenizer) and isinstance(target, ImportedTokenizer)
    first, second = (tuple(map(canonical, codes)) for _, codes in sides)
    return LanguageTokens(source, target, first, second)


def opened_tokenizers(
    config: LanguagesConfig, source: Tokenizer, target: Tokenizer
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of a recipe's languages, if they have tokens: of the first source language,
    and of the target language if there is only one."""
    tokens = language_tokens(config, source, target)
    if tokens is None:
        return source, target
    if len(tokens.targets) > 1:
        return tokens.source.opened(tokens.sources[0]), target
    return tokens.source.opened(tokens.sources[0]), tokens.target.opened(tokens.targets[0])


def chosen(code: str, codes: Sequence[str], side: str) -> str:
    """A code among a run's languages.  Raises SettingError.

    codes: of the run's languages.  side: "source" or "target", for the message.
    """
    by_code = {canonical(known): known for known in codes}
    if (known := known_code(code, by_code)) is not None:
        return by_code[known]
    named = ", ".join(codes[:NAMED_LANGUAGES]) + (", ..." if len(codes) > NAMED_LANGUAGES else "")
    raise SettingError(
        f"{code!r} is not a {side} language of this run; "
        + (f"choose {named}" if codes else "its recipe names none")
    )
