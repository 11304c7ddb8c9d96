"""A translator with others beside it: an ensemble, a language model."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from helpers.reversing_run import WORDS, forced, total, with_model
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce import DecodingOptions, Run, RunError, SettingError
from transduce.decoding.backend import AuxiliaryModels
from transduce.decoding.ensemble import LanguageModel
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.text import BOS


@pytest.fixture(scope="module")
def run(on_each_engine: Run) -> Run:
    return on_each_engine


@pytest.fixture(scope="module")
def other(run: Run) -> Run:
    """The same with other weights."""
    model = copy.deepcopy(run.model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return with_model(run, model)


def language_model(run: Run) -> LanguageModel:
    config = DecoderOnlyConfig(
        d_model=8, decoder=TransformerConfig(n_layers=1, n_heads=2, d_ff=8, dropout=0.0)
    )
    torch.manual_seed(3)
    return LanguageModel(build_decoder_only(config, run.translator.target.size).eval(), 64)


@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensemble_is_the_mean_of_its_models(run: Run, other: Run, mean: Any) -> None:
    options = DecodingOptions(beam_size=3, ensemble=mean)
    twice = run.with_models([run]).translate_batch(WORDS, options)
    assert [t.text for t in twice] == [t.text for t in run.translate_batch(WORDS, options)]
    for text in WORDS[:3]:
        (translation,) = run.with_models([other]).translate_batch([text], options)
        both = torch.stack([forced(one, text, translation.text) for one in (run, other)])
        joint = both.mean(0).log_softmax(1) if mean == "geometric" else both.exp().mean(0).log()
        assert translation.log_prob == pytest.approx(total(joint, run, translation.text), abs=1e-4)


def test_an_ensemble_goes_as_far_as_its_shortest_model(run: Run, other: Run) -> None:
    config = dataclasses.replace(other.translator.config, max_source_length=3, max_target_length=2)
    predictor: Any = dataclasses.replace(other.translator, config=config)
    short = dataclasses.replace(other, predictor=predictor)
    for together in (run.with_models([short]), short.with_models([run])):
        assert (
            together.translator.config.max_source_length,
            together.translator.config.max_target_length,
        ) == (3, 2)
        result = together.translate("abc").tokens
        assert len(result) <= 2
    assert run.translator.config.max_target_length is None


def test_a_language_model_has_its_say(run: Run) -> None:
    scorer = language_model(run)
    translator = run.translator.with_models(AuxiliaryModels(language_model=scorer))
    silent = DecodingOptions(language_model_weight=0.0)
    plain = run.translate_batch(WORDS, silent)
    assert [t.text for t in translator.translate(WORDS, silent)] == [t.text for t in plain]
    options = DecodingOptions(beam_size=3, length_penalty="mean", language_model_weight=2.0)
    translations = translator.translate(WORDS, options)
    assert [t.text for t in translations] != [t.text for t in plain]
    for text, translation in zip(WORDS[:3], translations, strict=False):
        own = total(forced(run, text, translation.text), run, translation.text)
        ids = [BOS, *run.translator.target.encode(translation.text)]
        with torch.inference_mode():
            state = scorer.model.start()
            hidden = scorer.model.advance(Padded.unpadded(torch.tensor([ids])), state).values
            message = scorer.model.head(hidden)[0].log_softmax(1)
        assert translation.log_prob == pytest.approx(own, abs=1e-4)
        score = (own + 2.0 * total(message, run, translation.text)) / len(ids)
        assert translation.score == pytest.approx(score, abs=1e-4)


def test_runs_of_other_vocabularies_are_refused(run: Run, tmp_path: Path) -> None:
    pairs = reversal_pairs(100, letters="xyz")
    stranger = transduce.load(
        train_tiny(write_tsv(tmp_path / "b.tsv", pairs), tmp_path / "run", "training.steps=1")[0]
    )
    with pytest.raises(RunError, match="another source vocabulary"):
        run.with_models([stranger])
    with pytest.raises(RunError, match="a language model is needed"):
        run.with_models(language_model=stranger)


def test_nobody_beside_a_run_is_forgotten(run: Run, other: Run) -> None:
    together = run.with_models([other])
    for joined in (lambda: together.with_models([run]), lambda: run.with_models([together])):
        with pytest.raises(SettingError, match="pass all of them in one call"):
            joined()
