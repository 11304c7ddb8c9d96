"""One session for texts, prompts, images and recordings: batches, streams, cancellation, risk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.audio import encoded, saved
from helpers.pictures import png, squares
from helpers.predictors import generator_of
from helpers.random_translator import random_translator
from helpers.tunes import BINS, RATE, TONES, recognition_recipe, tune
from transduce import CancelledError, DecodingOptions, InputError, SettingError
from transduce.decoding.backend import Decoded
from transduce.decoding.mbr import expected_utilities
from transduce.decoding.session import Prepared, SequencePredictor
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.speech.normalisation import Normalisation
from transduce.speech.recipe import SpeechRecognitionRecipe
from transduce.speech.recogniser import new_recogniser
from transduce.text import CharactersConfig, SymbolsConfig, train_tokenizer
from transduce.vision.captioning import CaptioningRecipe, new_captioner

Predictor = SequencePredictor[Any, Any]
STACK = {"n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}


def texts(directory: Path) -> tuple[Predictor, list[str]]:
    return random_translator(), ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9", "w2 w2"]


def prompts(directory: Path) -> tuple[Predictor, list[str]]:
    tokenizer = train_tokenizer(CharactersConfig(), ["abcdefgh ."])
    model = build_decoder_only(DecoderOnlyConfig(d_model=16), tokenizer.size).double()
    return generator_of(model, tokenizer, DecodingOptions(), 64), ["abc", "", "hgfedc", "d"]


def images(directory: Path) -> tuple[Predictor, list[str]]:
    settings = {
        "task": "captioning",
        "data": {"train": {"kind": "table", "path": "none.tsv"}},
        "image": {"size": 15},
        "text": {"tokenizer": {"kind": "symbols"}, "max_length": 16},
        "model": {
            "vision": {"d_model": 16, "patch_size": 5, "encoder": STACK | {"positions": "learned"}},
            "decoder": STACK,
        },
    }
    pictures, captions = squares(4)
    files = [saved(directory / f"{i}.png", png(picture)) for i, picture in enumerate(pictures)]
    tokenizer = train_tokenizer(SymbolsConfig(), captions)
    captioner = new_captioner(CaptioningRecipe.parse(settings, "recipe"), tokenizer, directory)
    return captioner, [*map(str, files)]


def recordings(directory: Path) -> tuple[Predictor, list[str]]:
    recipe = SpeechRecognitionRecipe.parse(
        recognition_recipe({"kind": "manifest", "path": "none"}, 1), "r"
    )
    tokenizer = train_tokenizer(CharactersConfig(), [*TONES])
    files = [
        saved(directory / f"{i}.wav", encoded(tune(text, i), RATE))
        for i, text in enumerate(("abc", "e", "dacba", "bb"))
    ]
    recogniser = new_recogniser(
        recipe,
        tokenizer,
        Normalisation("utterance", torch.zeros(BINS), torch.ones(BINS)),
        directory,
    )
    return recogniser, [*map(str, files)]


KINDS = [texts, prompts, images, recordings]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Predictor, list[str]]:
    torch.manual_seed(3)
    predictor, inputs = request.param(tmp_path)
    model = getattr(predictor, "model")  # noqa: B009
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return predictor, inputs


SHORT: dict[str, Any] = {"max_tokens": 9, "max_length_ratio": 2.0, "max_length_extra": 4}
OPTIONS = {
    "greedy": DecodingOptions(beam_size=1, **SHORT),
    "beam": DecodingOptions(beam_size=3, **SHORT),
    "sample": DecodingOptions(method="sample", seed=5, **SHORT),
}


def singles(inputs: Sequence[str]) -> list[tuple[str, ...]]:
    return [(one,) for one in inputs]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_parts_of_a_stream_are_the_answer(
    case: tuple[Predictor, list[str]], options: DecodingOptions
) -> None:
    predictor, inputs = case
    for number, source in enumerate(inputs, 7):
        (whole,) = predictor.predict([(source,)], options, number)
        parts = list(predictor.stream(source, options, number))
        assert "".join(parts) == getattr(whole, "continuation", whole.text)
        if options is OPTIONS["greedy"] and len(whole.text) > 3:
            assert len([part for part in parts if part]) > 1


def test_a_cancelled_input_leaves_its_batch_alone(case: tuple[Predictor, list[str]]) -> None:
    predictor, inputs = case
    options = dataclasses.replace(OPTIONS["beam"], min_length=4)
    right = predictor.predict(singles(inputs), options)
    looks: list[int] = []

    def cancelled(i: int) -> bool:
        looks.append(i)
        return i == 2 and looks.count(2) > 2

    answers = predictor.attempt(inputs, options, 0, cancelled)
    assert isinstance(answers[2], CancelledError) and looks.count(2) == 3
    assert [answers[i].text for i in (0, 1, 3)] == [right[i].text for i in (0, 1, 3)]
    with pytest.raises(CancelledError):
        list(predictor.stream(inputs[0], options, cancelled=lambda: True))


def test_inputs_have_their_own_options_and_errors(case: tuple[Predictor, list[str]]) -> None:
    predictor, inputs = case
    wrong = SettingError("on purpose")
    each = [OPTIONS["greedy"], wrong, OPTIONS["sample"], DecodingOptions(beam_size=10_000)]
    answers = predictor.attempt(inputs, each, 5)
    assert answers[1] is wrong and "TRANSDUCE_LIMIT_BEAM" in str(answers[3])
    for i in (0, 2):
        assert answers[i].text == predictor.predict([(inputs[i],)], each[i], 5 + i)[0].text  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=rf"^{predictor.input_name} 9: beam_size"):
        predictor.predict(singles(inputs), [OPTIONS["greedy"]] * 3 + [each[3]], 5)  # type: ignore[list-item]


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_the_least_risk_is_that_of_the_candidates(
    case: tuple[Predictor, list[str]], method: Any
) -> None:
    predictor, inputs = case
    options = DecodingOptions(method=method, minimum_risk="chrf", candidates=6, **SHORT)
    count = 6 if method == "sample" else options.beam_size
    plain = dataclasses.replace(options, minimum_risk="none", n_best=count)

    def candidates(
        prepared: Prepared[Any], decoded: Sequence[Decoded]
    ) -> list[tuple[str, float, float]]:
        text: Callable[[list[int], bool], str] = predictor.certain_text(prepared)
        if hasattr(predictor, "source"):
            text = lambda ids, is_whole: predictor.output_tokenizer.decode(ids)  # noqa: E731
        return [
            (" ".join(text(h.tokens, True).splitlines()), h.log_prob, h.score)
            for h in decoded[0].hypotheses
        ]

    answers = predictor.predict(singles(inputs), options)
    for answer, listed in zip(answers, predictor.each(inputs, plain, 0, candidates), strict=True):
        best = max(log_prob for _, log_prob, _ in listed)
        weights = [
            1.0 if method == "sample" else float(torch.tensor(log_prob - best).exp())
            for _, log_prob, _ in listed
        ]
        utilities = expected_utilities([text for text, *_ in listed], weights, "chrf")
        assert answer.score == pytest.approx(max(utilities), abs=1e-3)
        assert answer.text in {
            text
            for (text, *_), utility in zip(listed, utilities, strict=True)
            if utility > max(utilities) - 1e-3
        }
    with pytest.raises(SettingError, match="minimum_risk cannot be streamed"):
        predictor.stream(inputs[0], options)


@pytest.mark.parametrize("kind", [images, recordings])
def test_a_file_that_is_none_is_the_error_of_its_input(kind: Any, tmp_path: Path) -> None:
    predictor, inputs = kind(tmp_path)
    (tmp_path / "bad").write_text("nothing")
    mixed = [inputs[0], str(tmp_path / "bad"), "", inputs[1]]
    answers = predictor.attempt(mixed, OPTIONS["greedy"], 4)
    assert isinstance(answers[1], InputError) and answers[1].number == 5
    assert answers[2].text == ""
    right = predictor.predict(singles(inputs[:2]), OPTIONS["greedy"])
    assert [answers[i].text for i in (0, 3)] == [answer.text for answer in right]
    with pytest.raises(InputError, match=r"input 6: .*bad"):
        predictor.predict(singles(mixed), OPTIONS["greedy"], 4)
