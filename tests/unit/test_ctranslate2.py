"""What CTranslate2 cannot do is refused by name; the rest of a translator stays as it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from helpers.random_translator import random_translator, some_lines
from transduce import DecodingOptions, RunError, SettingError, TransduceError
from transduce.decoding.auxiliary_models import AuxiliaryModels, DraftModel
from transduce.decoding.ensemble import LanguageModel
from transduce.interop import ctranslate2 as interop
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.tasks.translation.ctranslate2 import positions_for, with_ctranslate2
from transduce.tasks.translation.task import TrainedTranslator
from transduce.text import SPECIAL_TOKENS

pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
CLASSIFIER = RUN.parent / "classification"
REFUSED: dict[str, dict[str, Any]] = {
    "method = 'sample'": {"method": "sample"},
    "stop = 'exact'": {"stop": "exact"},
    "stop = 'present'": {"stop": "present"},
    "constraints": {"constraints": ("w1",)},
    "avoid": {"avoid": ("w1",)},
    "coverage_penalty": {"coverage_penalty": 0.2},
    "beam_groups": {"beam_size": 4, "beam_groups": 2},
    "repetition_penalty": {"repetition_penalty": 1.2},
    "shortlist": {"shortlist": True},
    "alpha above 1 with a beam": {"alpha": 1.5},
    "prefix with a beam": {"prefix": "w1"},
    "min_length with a beam": {"min_length": 2},
    "min_length_ratio with a beam": {"min_length_ratio": 0.5},
    "no_repeat_ngram with a beam": {"no_repeat_ngram": 3},
}


@pytest.fixture(scope="module")
def translator() -> TrainedTranslator:
    return with_ctranslate2(random_translator())


@pytest.mark.parametrize("name", REFUSED)
def test_every_option_that_it_lacks_is_named(translator: TrainedTranslator, name: str) -> None:
    options = DecodingOptions(**REFUSED[name])
    for act in (
        lambda: translator.check(options),
        lambda: translator.translate(["w1 w2"], options),
        lambda: translator.translate(["w1", "w2"], [DecodingOptions(), options]),
    ):
        with pytest.raises(SettingError) as caught:
            act()
        said = f"engine 'ctranslate2' does not support {name}; remove --engine"
        assert str(caught.value).endswith(said)


def test_all_that_it_lacks_is_named_at_once(translator: TrainedTranslator) -> None:
    options = DecodingOptions(avoid=("w1",), min_length=2, coverage_penalty=0.1)
    with pytest.raises(SettingError, match="avoid, coverage_penalty, min_length with a beam;"):
        translator.check(options)


def test_no_streaming_no_ensemble_no_language_model(translator: TrainedTranslator) -> None:
    with pytest.raises(SettingError, match=r"streaming.*remove --engine"):
        translator.stream("w1 w2")
    model = random_translator().model
    config = DecoderOnlyConfig(d_model=8)
    language_model = LanguageModel(build_decoder_only(config, translator.target.size), 16)
    for auxiliary in (
        AuxiliaryModels([model]),
        AuxiliaryModels(language_model=language_model),
        AuxiliaryModels(draft=DraftModel(model, None)),
    ):
        with pytest.raises(SettingError, match=r"language model or draft.*remove --engine"):
            translator.with_models(auxiliary)


@pytest.mark.parametrize(
    ("stacks", "named"),
    [
        ({"encoder": {"kind": "recurrent"}}, "model.encoder.kind = 'recurrent'"),
        ({"encoder": {"kind": "convolution"}}, "model.encoder.kind = 'convolution'"),
        ({"encoder": {"kind": "text-cnn"}}, "model.encoder.kind = 'text-cnn'"),
        ({"decoder": {"kind": "recurrent"}}, "model.decoder.kind = 'recurrent'"),
        ({"encoder": {"positions": "alibi"}}, "model.encoder.positions = 'alibi'"),
        ({"decoder": {"positions": "alibi"}}, "model.decoder.positions = 'alibi'"),
        ({"decoder": {"d_head": 3}}, "model.decoder.d_head = 3"),
        ({"encoder": {"norm_epsilon": 1e-6}}, "norm_epsilon"),
    ],
)
def test_models_that_it_cannot_express(stacks: dict[str, Any], named: str) -> None:
    made = random_translator(**stacks, trained=False)
    with pytest.raises(RunError) as caught:
        with_ctranslate2(made)
    assert named in str(caught.value) and str(caught.value).endswith("remove --engine")
    assert made.config.engine is None


def test_another_stopping_rule_of_the_recipe_is_told(caplog: pytest.LogCaptureFixture) -> None:
    made = random_translator(decoding={"stop": "present"})
    made = with_ctranslate2(made)
    assert "decoding.stop = 'first'" in caplog.text and "'present'" in caplog.text
    assert made.translate(["w1 w2"])[0].candidates


def test_positions_are_enough_but_not_without_end() -> None:
    assert positions_for(random_translator()) == 1024
    long = random_translator(decoding={"max_length_extra": 1_000_000})
    assert positions_for(long) == 1 << 14
    long = with_ctranslate2(long)
    assert long.config.max_target_length == (1 << 14) - 1
    learned = random_translator(decoder={"positions": "learned"})
    learned = with_ctranslate2(learned)
    assert learned.config.max_target_length == 63


def test_lengths_up_to_the_last_position() -> None:
    ours = random_translator(decoder={"positions": "learned", "max_positions": 14})
    theirs = with_ctranslate2(ours)
    options = DecodingOptions(beam_size=1, min_length=100, max_length_extra=100)
    lines = some_lines()[:8]
    found = theirs.translate(lines, options)
    assert [t.tokens for t in found] == [t.tokens for t in ours.translate(lines, options)]
    assert {len(t.tokens) for t in found} == {13}


def test_weights_stay_as_they_are() -> None:
    made = random_translator()
    before = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    made = with_ctranslate2(made, "int8")
    for name, tensor in made.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_a_run_with_the_engine() -> None:
    lines = ["dog", "a good hat", "", "Zürich", "the cat and the red dog"]
    ours, theirs = transduce.load(RUN, "cpu"), transduce.load(RUN, engine="ctranslate2")
    right, found = ours.translate_batch(lines), theirs.translate_batch(lines)
    assert [t.text for t in found] == [t.text for t in right]
    assert [t.score for t in found] == pytest.approx([t.score for t in right], abs=1e-4)
    pairs = [("dog", "dog"), ("a good hat", "hat")]
    assert list(theirs.score(pairs)) == list(ours.score(pairs))
    own, other = ours.align("a dog", "dog a"), theirs.align("a dog", "dog a")
    assert torch.equal(own.weights, other.weights)
    scores = theirs.evaluate(examples=[("dog", "dog"), ("a hat", "hat a")]).scores
    assert scores == ours.evaluate(examples=[("dog", "dog"), ("a hat", "hat a")]).scores


def test_runs_and_devices_that_cannot_be() -> None:
    with pytest.raises(RunError, match=r"task 'classification'.*remove --engine"):
        transduce.load(CLASSIFIER, engine="ctranslate2")
    with pytest.raises(SettingError, match=r"runs on a CPU only, not on 'cuda'; remove one"):
        transduce.load(RUN, "cuda", engine="ctranslate2")


def test_nothing_is_written_into_the_run() -> None:
    before = sorted((path.name, path.stat().st_mtime_ns) for path in RUN.iterdir())
    transduce.load(RUN, engine="ctranslate2").translate("dog")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in RUN.iterdir()) == before


def test_threads_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    real = interop.library("").Translator

    def spied(directory: str, **settings: Any) -> Any:
        asked.update(settings)
        return real(directory, **settings)

    monkeypatch.setattr(interop.library(""), "Translator", spied)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    with_ctranslate2(random_translator(), "int8")
    assert asked == {"compute_type": "int8", "inter_threads": 1, "intra_threads": 3}


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(SettingError, match="needs the extra 'ctranslate2'"):
        transduce.load(RUN, engine="ctranslate2")


def test_scores_that_are_no_numbers() -> None:
    made = random_translator()
    with torch.no_grad():
        made.model.head.weight.mul_(1e38)
    made = with_ctranslate2(made)
    with pytest.raises(TransduceError, match="are NaN"):
        made.translate(["w1 w2"])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_outputs_at_the_limit_are_scored_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, beam_size: int
) -> None:
    made = random_translator()
    made = with_ctranslate2(made)
    options = DecodingOptions(beam_size=beam_size, max_length_ratio=0.0, max_length_extra=6)
    right = made.translate(some_lines(), options)
    sizes = []
    engine: Any = made.config.engine
    real = engine._model

    class Watched:
        translate_batch = real.translate_batch

        def score_batch(self, sources: Any, targets: Any, **settings: Any) -> Any:
            sizes.append(sum(len(target) + 1 for target in targets))
            return real.score_batch(sources, targets, **settings)

    engine._model = Watched()
    monkeypatch.setattr("transduce.tasks.translation.ctranslate2.SCORED_TOKENS", 20)
    found = made.translate(some_lines(), options)
    assert max(sizes) <= 20 < sum(sizes)
    assert [t.tokens for t in found] == [t.tokens for t in right]
    assert [t.score for t in found] == pytest.approx([t.score for t in right], abs=1e-4)


def test_special_tokens_have_their_places(translator: TrainedTranslator) -> None:
    engine: Any = translator.config.engine
    assert tuple(engine._target[:4]) == SPECIAL_TOKENS
    assert len(set(engine._target)) == translator.target.size
