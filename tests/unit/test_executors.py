"""Every value of every literal setting: each executor follows it, or refuses it by name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import transduce
import transduce.explain.live as live
import transduce.interop.ctranslate2 as ctranslate2
from helpers.native import needs_native
from helpers.tiny_run import reversal_pairs, stack, tiny_settings, write_tsv
from transduce.decoding.backend import search_numbers
from transduce.decoding.options import (
    DecodingOptions,
    Exports,
    Facts,
    facts_of_options,
    not_followed,
    not_native,
)
from transduce.engine.pair_shape import EncoderHead, encoder_shape, model_shape
from transduce.engine.pair_shape import unsupported_settings as natively_refused
from transduce.errors import RunError, SettingError
from transduce.explain.tasks import _decoding
from transduce.interop.argos import check_settings
from transduce.interop.marian_export import IN_MARIAN, IN_TRANSFORMERS, _settings
from transduce.models.config import EncoderDecoderConfig, EncoderOnlyConfig
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.nn.stack_configs import SsruDecoderConfig, TransformerConfig
from transduce.rows.text_encoder import _row
from transduce.speech.model_config import SpeechConfig
from transduce.tasks.table import TASKS
from transduce.tasks.text_encoder.predictor import Answerer
from transduce.tasks.text_encoder.recipes import QuestionAnsweringRecipe
from transduce.vision.vit import VisionConfig

UNKNOWN = "stranger"
TRAINING = ("init",)
"""Settings of training alone, which nothing that decodes reads."""


def literals(section: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Names and values of the literal settings of a section, its kind left out."""
    for name, hint in get_type_hints(section).items():
        values = get_args(hint) if get_origin(hint) is Literal else ()
        if name not in ("kind", *TRAINING) and values:
            yield name, values


def with_setting(section: Any, name: str, value: Any) -> Any:
    """A copy of a section with a value that its own check might refuse."""
    changed = copy.copy(section)
    object.__setattr__(changed, name, value)
    return changed


STACKS = [
    (section, name, value)
    for section in (TransformerConfig, SsruDecoderConfig)
    for name, values in literals(section)
    for value in (*values, UNKNOWN)
]
MODELS = [
    (section, name, value)
    for section in (
        EncoderDecoderConfig,
        DecoderOnlyConfig,
        EncoderOnlyConfig,
        SpeechConfig,
        VisionConfig,
    )
    for name, values in literals(section)
    for value in (*values, UNKNOWN)
]
OPTIONS = [
    (name, value) for name, values in literals(DecodingOptions) for value in (*values, UNKNOWN)
]


def by_marian(config: EncoderDecoderConfig) -> None:
    check_settings("Marian", _settings(config, IN_TRANSFORMERS))


def by_bergamot(config: EncoderDecoderConfig) -> None:
    check_settings("Marian", _settings(config, IN_MARIAN))


def natively(config: Any) -> None:
    for setting in natively_refused(config):
        raise SettingError(f"no {setting}")
    model_shape(config, 9, 9, "float32")


def on_page(config: EncoderDecoderConfig) -> None:
    live.check_settings(config, "model", live.IN_MODELS)
    for side in ("encoder", "decoder"):
        live.stack_facts(side, getattr(config, side), config.d_model)


EXECUTORS: dict[str, Callable[[Any], None]] = {
    "native": natively,
    "page": on_page,
    "ctranslate2": ctranslate2.check_ctranslate2_expressible,
    "marian": by_marian,
    "bergamot": by_bergamot,
}


def refusal(executor: Callable[[Any], None], config: Any) -> str | None:
    try:
        executor(config)
    except (RunError, SettingError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("section", "name", "value"), STACKS)
def test_settings_of_stacks(executor: str, section: Any, name: str, value: Any) -> None:
    usual: Any = (
        {"positions": "sinusoidal-marian", "norm_epsilon": 1e-6} if executor == "bergamot" else {}
    )
    encoder, decoder = TransformerConfig(**usual), with_setting(section(**usual), name, value)
    config = with_setting(EncoderDecoderConfig(encoder=encoder), "decoder", decoder)
    reason = refusal(EXECUTORS[executor], config)
    if value == UNKNOWN:
        kinds = reason is not None and "model.decoder.kind" in reason  # no such stack at all
        assert kinds or (reason is not None and f"model.decoder.{name}" in reason)
    else:
        assert reason is None or "model." in reason


@pytest.mark.parametrize(("section", "name", "value"), MODELS)
def test_settings_of_models(section: Any, name: str, value: Any) -> None:
    config = with_setting(section(), name, value)
    natively_no = next(natively_refused(config), None)
    page_no = refusal(lambda c: live.check_settings(c, "model", live.IN_MODELS), config)
    refusals = [natively_no, page_no]
    if section is EncoderDecoderConfig:
        refusals += [refusal(EXECUTORS[form], config) for form in Exports._fields]
    if value == UNKNOWN:
        assert all(reason is not None and f"model.{name}" in reason for reason in refusals)
    else:
        assert refusals[:2] == [None, None]


@pytest.mark.parametrize(("name", "value"), OPTIONS)
def test_options_of_decoding(name: str, value: Any) -> None:
    others = {"n_best": 1, "beam_groups": 1}
    options = with_setting(DecodingOptions(**others), name, value)
    is_followed = name not in not_native(options)
    facts = facts_of_options()[name]
    if value == UNKNOWN:
        assert facts.needs or not is_followed
        if not facts.needs:
            with pytest.raises(SettingError, match=f"decoding.{name} = '{UNKNOWN}'"):
                _decoding(options)
            for form in Exports._fields:
                assert (name, value) in ignored(options, form)
    elif is_followed:
        search_numbers(options)
    else:
        assert name in not_native(options)


def ignored(options: DecodingOptions, form: str) -> list[tuple[str, Any]]:
    def followed(facts: Facts) -> Any:
        return getattr(facts.exports, form)

    return list(not_followed(options, followed))


@pytest.mark.parametrize("name", [name for name, _ in literals(DecodingOptions)])
def test_values_of_a_literal_are_listed_one_by_one(name: str) -> None:
    facts = facts_of_options()[name]
    values = [facts.native, facts.page, *facts.exports]
    assert True not in [value for value in values if isinstance(value, bool)]


def test_what_exports_do_not_follow() -> None:
    plain = DecodingOptions(length_penalty="none", min_length=2)
    assert ignored(plain, "ctranslate2") == [("length_penalty", "none"), ("min_length", 2)]
    assert ignored(plain, "marian") == [("min_length", 2)]
    assert ignored(DecodingOptions(length_penalty="mean", seed=3, alpha=1.0), "marian") == []
    assert ignored(DecodingOptions(), "bergamot") == [("length_penalty", "gnmt")]


def test_the_pooling_of_a_stranger_is_refused() -> None:
    for pooling in get_args(get_type_hints(EncoderOnlyConfig)["pooling"]):
        encoder_shape(EncoderOnlyConfig(), 9, EncoderHead(pooling), "float32")
    config = with_setting(EncoderOnlyConfig(), "pooling", UNKNOWN)
    assert list(natively_refused(config)) == ["model.pooling = 'stranger'"]


@needs_native
def test_auto_takes_pytorch_where_the_engine_cannot_be_built(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_tsv(tmp_path / "data.tsv", reversal_pairs(60))
    heads = {"n_heads": 1001, "d_head": 1}  # more than the engine takes
    settings = tiny_settings(data, "training.steps=1", "training.validate_every=1")
    settings["model"] |= {"encoder": stack(**heads), "decoder": stack(**heads)}
    run, _ = transduce.train(settings, tmp_path / "run")
    with pytest.raises(SettingError, match="the native engine does not support a model of these"):
        transduce.load(run, "cpu", engine="native")
    loaded = transduce.load(run, "cpu", engine="auto")
    assert loaded.engine == "pytorch" and "model of these sizes" in caplog.text
    assert list(loaded.translate(["abc"]))


def test_a_task_without_explanation_or_page_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_tsv(tmp_path / "data.tsv", reversal_pairs(60))
    settings = tiny_settings(data, "training.steps=1", "training.validate_every=1")
    run = transduce.load(transduce.train(settings, tmp_path / "run")[0], "cpu")
    row = TASKS["translation"]._replace(explain=None, live=None)
    monkeypatch.setitem(TASKS.data, "translation", row)
    with pytest.raises(SettingError, match="the task 'translation' has no explanation"):
        run.explain("abc")
    with pytest.raises(SettingError, match="does not compute the task 'translation'"):
        run.live_model()
    own = _row(QuestionAnsweringRecipe, Answerer, row.prepare)
    assert (own.explain, own.live) == (None, None)
