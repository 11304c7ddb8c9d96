"""The part of a run's recipe that translation in the native engine needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transduce.config import load_toml, parse
from transduce.config_paths import literal
from transduce.data.filter_config import FilterConfig
from transduce.decoding.options import DecodingOptions
from transduce.errors import RunError
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.tasks.run_files import check_files
from transduce.tasks.translation.tags import CorpusTags


class RunSettings(NamedTuple):
    """Settings of a translation run with Transformers on both sides.

    max_source_length: tokens of the longest source in training.  tags: of its corpora.
    target_language: its code, where there is one.
    """

    model: EncoderDecoderConfig
    decoding: DecodingOptions
    max_source_length: int
    tags: Sequence[CorpusTags]
    target_language: str


def read_settings(run: Path) -> RunSettings:
    """The settings that a run keeps.

    Raises RunError for a directory that is not such a run, SettingError for invalid settings.
    """
    if not (run / "recipe.toml").is_file():
        raise RunError(f"{run} has no recipe.toml, so it is not a run directory")
    check_files(run)
    settings = literal(load_toml(run / "recipe.toml"))
    if settings.get("task") != "translation":
        raise RunError(f"{run} is a run of the task {settings.get('task')!r}")
    model, data = _section(settings, "model"), _section(settings, "data")
    for side in ("encoder", "decoder"):
        kind = _section(model, side).get("kind", "transformer")
        if kind != "transformer":
            raise RunError(f"{run}: the native engine has no model.{side}.kind = {kind!r}")
    where = str(run / "recipe.toml")
    return RunSettings(
        parse(EncoderDecoderConfig, model, where),
        parse(DecodingOptions, _section(settings, "decoding"), where),
        parse(FilterConfig, _section(data, "filters"), where).max_length,
        list(_tags(data)),
        _target_language(settings),
    )


def _section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name, {})
    if not isinstance(found, Mapping):
        raise RunError(f"{name} must be a section of settings, not {found!r}")
    return found


def _tags(data: Mapping[str, Any]) -> Iterator[CorpusTags]:
    """Tags of each training corpus; the same as `DataConfig.tags`."""
    own = {"pairs": data.get("train"), "weight": data.get("train_weight", 1)}
    for corpus in (own, *data.get("mix", ())):
        pairs = corpus.get("pairs")
        if isinstance(pairs, Mapping) and corpus.get("weight", 1):
            yield CorpusTags(str(pairs.get("tag", "")), bool(pairs.get("tag_columns")))


def _target_language(settings: Mapping[str, Any]) -> str:
    """The same as `TranslationRecipe.target_language`."""
    measured = str(_section(settings, "evaluation").get("target_language", ""))
    named = _section(settings, "languages").get("target", ())
    codes = [named] if isinstance(named, str) else list(named)
    return measured or (str(codes[0]) if len(codes) == 1 else "")
