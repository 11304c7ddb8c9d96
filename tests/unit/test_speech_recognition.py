"""Speech recognition and translation: a small model learns tunes, decodes and is measured."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.audio import encoded, noise, saved
from helpers.tiny_run import stack, training
from helpers.tunes import RATE, TONES, melodies, recognition_recipe, tune, write_tunes
from transduce import DataError, RunError, SettingError
from transduce.cli.main import main
from transduce.decoding.backend import AuxiliaryModels
from transduce.decoding.ensemble import LanguageModel
from transduce.decoding.options import DecodingOptions
from transduce.loading import Run
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.settings.sections import apply_overrides
from transduce.speech.normalisation import NORMALISATION_FILE, Normalisation
from transduce.speech.recipe import (
    SpeechRecognitionRecipe,
    SpeechTranslationRecipe,
    padded_frames,
    read_recordings_of,
)
from transduce.speech.recogniser import Recogniser, new_recogniser
from transduce.speech.training import SpeechTraining, ctc_loss, target_of_ctc
from transduce.text import BOS, EOS, CharactersConfig, train_tokenizer
from transduce.training.weights import read_tensors

GREEDY = DecodingOptions(beam_size=1)


def settings(train: dict[str, Any], /, *overrides: str, **sections: Any) -> dict[str, Any]:
    """A recipe for the recordings that a section names."""
    recipe = {**recognition_recipe(train, 6, 3), **sections}
    return apply_overrides(recipe, overrides)


@pytest.fixture(scope="module")
def tunes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_tunes(tmp_path_factory.mktemp("tunes"), 300)


@pytest.fixture(scope="module")
def path(tunes_path: Path) -> Path:
    return tunes_path


@pytest.fixture(scope="module")
def run(path: Path) -> Run:
    return transduce.load(path, "cpu")


def written(directory: Path, n: int, seed: int = 500) -> tuple[list[tuple[str]], list[str]]:
    """New tunes: the path of each, and its text."""
    texts = melodies(n, seed=seed)
    files = [
        saved(directory / f"{i}.wav", encoded(tune(text, seed + i), RATE))
        for i, text in enumerate(texts)
    ]
    return [(str(file),) for file in files], texts


@pytest.mark.system
def test_it_learns_tunes_that_it_has_not_heard(run: Run, tmp_path: Path) -> None:
    """Joint search counts equal letters in a row, which the decoder alone loses."""
    inputs, texts = written(tmp_path, 40)

    def right(ctc_weight: float) -> int:
        found = run.predict(inputs, DecodingOptions(beam_size=3, ctc_weight=ctc_weight))
        return sum(one.text == text for one, text in zip(found, texts, strict=True))

    assert right(0.3) >= max(28, right(0.0))  # 33 with AVX2, 34 and more with AVX-512


def test_the_best_texts_of_a_recording(
    tunes_path: Path, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Different texts, best first, of which the first is the answer; also on the command line."""
    ((path,), *_), _ = written(tmp_path, 1)
    options = DecodingOptions(beam_size=4, n_best=3)
    ((best, *others),) = [one.candidates for one in run.predict([(path,)], options)]  # type: ignore[attr-defined]
    (alone,) = run.predict([(path,)], DecodingOptions(beam_size=4))
    assert best == (alone.text, pytest.approx(alone.score))  # type: ignore[attr-defined]
    assert len({best.text, *(other.text for other in others)}) == 3
    assert best.score >= others[0].score >= others[1].score
    assert "n_best" not in alone.fields()
    records = saved(tmp_path / "in.jsonl", json.dumps({"audio": path}).encode())
    command = ["predict", str(tunes_path), str(records), "--n-best", "3", "--beam-size", "4"]
    assert main([*command, "--jsonl"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert [entry["text"] for entry in fields["n_best"]] == [best.text, *(o.text for o in others)]
    assert main(command) == 2
    assert "--n-best needs --jsonl" in capsys.readouterr().err


def test_ctc_learns_them_too(run: Run, tmp_path: Path) -> None:
    from transduce.speech.ctc import align, greedy

    inputs, texts = written(tmp_path, 20)
    recogniser: Recogniser = run.predictor  # type: ignore[assignment]
    right = 0
    for (path,), text in zip(inputs, texts, strict=True):
        frames = recogniser.read_file(path)
        (decoded,) = recogniser.each([frames], GREEDY, 0, lambda _, results: results[0])
        assert decoded.ctc is not None
        (tokens,) = greedy(Padded.unpadded(decoded.ctc[None]))
        right += recogniser.tokenizer.decode(tokens) == text
        if recogniser.tokenizer.decode(decoded.hypotheses[0].tokens) == text:
            spans = align(decoded.ctc, decoded.hypotheses[0].tokens)
            middles = [(s.start + s.end) / 2 * recogniser.seconds_per_position for s in spans]
            # A letter takes 0.11 to 0.16 s with the pause after it.
            assert all(0.02 < b - a < 0.35 for a, b in itertools.pairwise(middles))
    assert right >= 16


def test_scores_of_the_held_out_recordings(run: Run) -> None:
    evaluation = run.evaluate("test")
    assert evaluation.scores["word-error-rate"] < 25  # a word is 4 %
    assert "punct:removed" in str(evaluation.scores["character-error-rate_signature"])
    assert all(name.endswith(".wav") or "tunes.jsonl" in name for name in evaluation.sources)
    text = evaluation.references[0][0]
    assert set(text) <= set(TONES)


def test_nothing_is_heard_in_nothing(run: Run, tmp_path: Path) -> None:
    short = saved(tmp_path / "short.wav", encoded(noise(0.01, RATE), RATE))
    found = list(run.predict([("",), (str(short),), (" ",)]))
    assert [one.text for one in found] == ["", "", ""]
    assert found[0].fields() == {"transcript": "", "score": 0.0}


def test_no_path_is_one_line_with_its_number(run: Run, tmp_path: Path) -> None:
    good = saved(tmp_path / "a.wav", encoded(tune("ab"), RATE))
    with pytest.raises(DataError, match=r"input 2: .*missing.wav"):
        list(run.predict([(str(good),), (str(tmp_path / "missing.wav"),)]))
    saved(tmp_path / "b.wav", b"no recording")
    with pytest.raises(DataError, match="cannot be read as audio"):
        list(run.predict([(str(tmp_path / "b.wav"),)]))


def test_the_normalisation_is_the_runs_own(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    for content, said in (
        ('{"mean": [1.0]}', "expected 20 means"),
        ("[", "damaged"),
        (json.dumps({"mean": [1.0] * 20, "deviation": [float("nan")] * 20}), "damaged"),
    ):
        (copy / NORMALISATION_FILE).write_text(content)
        with pytest.raises(RunError, match=said):
            transduce.load(copy, "cpu")
    (copy / NORMALISATION_FILE).unlink()
    with pytest.raises(RunError, match=f"no {NORMALISATION_FILE}"):
        transduce.load(copy, "cpu")


def test_digital_silence_resembles_a_quiet_room(run: Run) -> None:
    """A floor raises it, and leaves quiet speech as it is."""
    recogniser: Recogniser = run.predictor  # type: ignore[assignment]
    floor = recogniser.backend.normalisation.floor
    assert floor is not None

    def changed(samples: Any) -> float:
        frames = padded_frames([recogniser.extractor(samples)])
        plain = recogniser.backend.normalisation._replace(floor=None)(frames)
        return float((recogniser.backend.normalisation(frames).values - plain.values).max())

    assert changed(np.zeros(RATE, np.float32)) > 3
    assert changed(noise(1.0, RATE, level=10 ** (-60 / 20))) < 0.1


@pytest.mark.parametrize("kind", ["corpus", "utterance", "none"])
def test_normalised_padding_is_zero(kind: str) -> None:
    values = torch.randn(2, 6, 4) * 3 + 5
    real = torch.arange(6) < torch.tensor([[6], [3]])
    normalise = Normalisation(kind, values.mean((0, 1)), values.std((0, 1)))
    found = normalise(Padded(values, real, "right")).values
    assert not found[1, 3:].any()
    if kind == "utterance":
        torch.testing.assert_close(found[1, :3].mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    if kind == "none":
        assert found[real].equal(values[real])


def test_the_base_run_gives_model_normalisation_and_vocabulary(
    path: Path, tunes: dict[str, Any], tmp_path: Path
) -> None:
    recipe = settings(tunes, "training.steps=1", fine_tune={"run": str(path)})
    for name in ("audio", "model", "text"):
        del recipe[name]
    tuned = transduce.train(recipe, tmp_path / "tuned")[0]
    for file in (NORMALISATION_FILE, "tokenizer.json"):
        assert (tuned / file).read_bytes() == (path / file).read_bytes()
    found, base = (read_tensors(run / "weights.safetensors") for run in (tuned, path))
    assert found.keys() == base.keys()


def test_a_translation_starts_from_recognition(
    path: Path, tunes: dict[str, Any], tmp_path: Path
) -> None:
    train = {**tunes, "text": "reversed", "transcript": "text"}
    recipe = settings(
        train, "training.steps=1", task="speech-translation", fine_tune={"run": str(path)}
    )
    for name in ("audio", "model", "text"):
        del recipe[name]
    recipe["training"]["schedule"] = {"kind": "constant", "peak": 1e-9}
    run = transduce.train(recipe, tmp_path / "run")[0]
    assert (run / NORMALISATION_FILE).read_bytes() == (path / NORMALISATION_FILE).read_bytes()
    spoken, base = (run / "transcript_tokenizer.json", path / "tokenizer.json")
    assert spoken.read_bytes() == base.read_bytes()
    found, theirs = (read_tensors(one / "weights.safetensors") for one in (run, path))
    assert found.keys() == theirs.keys()
    new = {name for name in found if not torch.allclose(found[name], theirs[name], atol=1e-6)}
    assert new == {"target_front_end.embedding.weight"}
    assert transduce.load(run, "cpu").recipe.text.transcript_tokenizer.kind == "characters"
    back = {**recipe, "task": "speech-recognition", "fine_tune": {"run": str(run)}}
    with pytest.raises(RunError, match="can start from 'speech-recognition'"):
        transduce.train(back, tmp_path / "back")


def training_of(recipe: Any, cache: Path, spoken: bool = False) -> SpeechTraining:
    data = {s: read_recordings_of(recipe.data, recipe.audio, s, cache) for s in ("train", "valid")}
    tokenizer = train_tokenizer(CharactersConfig(), [*TONES])
    statistics = Normalisation("corpus", *map(torch.from_numpy, data["train"].statistics()))
    other = train_tokenizer(CharactersConfig(), [*TONES, "x"]) if spoken else None
    torch.manual_seed(1)
    return SpeechTraining(new_recogniser(recipe, tokenizer, statistics, cache, other), data)


def test_the_loss_is_a_sum_of_both(tunes: dict[str, Any], tmp_path: Path) -> None:
    masks = {"bin_masks": 0, "time_masks": 0}
    recipe = SpeechRecognitionRecipe.parse(settings(tunes, augmentation=masks), "recipe")
    task = training_of(recipe, tmp_path)
    task.model.eval()
    batch, _ = next(task.batches.iterate())
    frames = task.predictor.backend.normalisation(batch.frames)
    normalised = dataclasses.replace(batch, frames=frames)
    memory = task.model.encode(normalised.frames)
    spoken = ctc_loss(task.model, memory, batch.spoken).item()
    found = task.loss(batch)
    halves = batch.halves()
    assert halves is not None
    parts = [task.loss(half) for half in halves]
    assert found.total.item() == pytest.approx(sum(one.total.item() for one in parts), rel=1e-4)
    assert found.tokens == batch.target_tokens == sum(half.target_tokens for half in halves)
    alone = task._loss(normalised, 0.1).total.item()
    assert found.total.item() == pytest.approx(0.7 * alone + 0.3 * spoken, rel=1e-5)


def test_batches_count_positions(tunes: dict[str, Any], tmp_path: Path) -> None:
    recipe = SpeechRecognitionRecipe.parse(settings(tunes), "recipe")
    task = training_of(recipe, tmp_path)
    for batch in task.batches.in_order():
        frames = batch.frames.values.shape[1]
        assert recipe.model.front_end.positions(frames) * len(batch.rows) <= 300


def test_masks_are_drawn_from_the_global_generator(tunes: dict[str, Any], tmp_path: Path) -> None:
    task = training_of(SpeechRecognitionRecipe.parse(settings(tunes), "recipe"), tmp_path)
    batch, _ = next(task.batches.iterate())
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(task.loss(batch).nll.item())
    assert losses[0] == losses[1] != losses[2]


def test_a_crowded_recording_is_learnt_by_the_decoder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its text has more tokens than CTC has positions: reported, and no infinite loss."""
    train = write_tunes(tmp_path / "tunes", 30, longest=3)
    recipe = SpeechRecognitionRecipe.parse(settings(train, "model.front_end.n_layers=4"), "recipe")
    with caplog.at_level(logging.WARNING):
        task = training_of(recipe, tmp_path)
    assert "have more tokens than positions" in caplog.text
    for batch in task.batches.in_order():
        assert task.loss(batch).total.isfinite()


def test_ctc_of_an_empty_text() -> None:
    found = target_of_ctc([[4, 5], []])
    assert found.lengths.tolist() == [2, 0]


def test_a_translation_has_the_transcript_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = {**write_tunes(tmp_path / "tunes", 40), "text": "reversed", "transcript": "text"}
    text = {"tokenizer": {"kind": "characters"}, "transcript_tokenizer": {"kind": "characters"}}
    recipe = settings(train, "data.filters.max_seconds=0.7", task="speech-translation", text=text)
    run = transduce.load(transduce.train(recipe, tmp_path / "run")[0], "cpu")
    (found,) = run.predict([(str(tmp_path / "tunes" / "0000.wav"),)], GREEDY)
    fields = found.fields()
    assert list(fields) == ["translation", "transcript", "score"]
    assert set(fields["translation"].lower()) <= {*TONES, "\N{REPLACEMENT CHARACTER}"}
    assert set(fields["transcript"]) <= {*TONES, "\N{REPLACEMENT CHARACTER}"}
    with caplog.at_level(logging.WARNING):
        scores = run.evaluate("test")
    assert "left out by data.filters: 40 recordings read" in caplog.text
    assert {*scores.scores} >= {"bleu", "chrf"} and scores.intervals()
    assert scores.other_scores["transcript-word-error-rate"] > 0
    without = {name: value for name, value in train.items() if name != "transcript"}
    with pytest.raises(DataError, match="has no transcript; name its column"):
        transduce.train({**recipe, "data": {"train": without}}, tmp_path / "other")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("decoding.coverage_penalty=0.5", "applies only to translations"),
        ("decoding.max_tokens=5", "applies only to continuations and dialogue"),
        ("training.select_by=bleu", "validation measures 'loss', 'word-error-rate'"),
        ("evaluation.metrics=['bloo']", "'bloo' is not a metric"),
        ("model.front_end.width=4", "must be odd"),
        ("training.ctc_weight=1", "less than 1"),
    ],
)
def test_mistakes_are_one_line(
    tunes: dict[str, Any], tmp_path: Path, override: str, said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        transduce.train(settings(tunes, override), tmp_path / "run")


def test_learned_positions_need_room(tunes: dict[str, Any]) -> None:
    positions = "model.encoder.positions=learned"
    with pytest.raises(SettingError, match="needs 750 learned positions, but there are 512"):
        SpeechRecognitionRecipe.parse(
            settings(tunes, positions, "model.encoder.max_positions=512"), "recipe"
        )
    SpeechRecognitionRecipe.parse(
        settings(tunes, positions, "model.encoder.max_positions=750"), "recipe"
    )


def test_a_weight_of_ctc_is_for_speech() -> None:
    for settings_of in (SpeechRecognitionRecipe.parse, SpeechTranslationRecipe.parse):
        assert settings_of({"data": {}}, "recipe").decoding.ctc_weight == 0.3


@pytest.mark.parametrize("ctc_weight", [0.0, 0.3])
def test_a_language_model_adds_its_log_probability(
    run: Run, tmp_path: Path, ctc_weight: float
) -> None:
    """Shallow fusion, with CTC's part and without."""
    recogniser: Any = run.predictor
    torch.manual_seed(3)
    config = DecoderOnlyConfig(
        d_model=8, decoder=TransformerConfig(n_layers=1, n_heads=2, d_ff=8, dropout=0.0)
    )
    scorer = build_decoder_only(config, recogniser.tokenizer.size).eval()
    beside = AuxiliaryModels(language_model=LanguageModel(scorer, 64))
    fused = dataclasses.replace(run, predictor=recogniser.with_models(beside))
    inputs, _ = written(tmp_path, 5)
    options = DecodingOptions(
        beam_size=3, ctc_weight=ctc_weight, length_penalty="none", language_model_weight=0.0
    )
    plain = [answer.fields() for answer in run.predict(inputs, options)]
    assert [answer.fields() for answer in fused.predict(inputs, options)] == plain
    heavy = dataclasses.replace(options, language_model_weight=0.7)
    for (path,), answer in zip(inputs, fused.predict(inputs, heavy), strict=True):
        ids = torch.tensor([[BOS, *recogniser.tokenizer.encode(answer.text), EOS]])
        read, labels = Padded.unpadded(ids[:, :-1]), ids[:, 1:, None]
        with torch.inference_mode():
            memory = recogniser.backend.memory_of([recogniser.read_file(path)])
            state = recogniser.model.decoder.start(memory)
            parts = [recogniser.model.step(read, state), scorer.step(read, scorer.start())]
            sums = [float(p.log_softmax(2).gather(2, labels).sum()) for p in parts]
            spoken = Padded.unpadded(ids[:, 1:-1])
            by_ctc = -float(ctc_loss(recogniser.model, memory, spoken))
        expected = sums[0] + 0.7 * sums[1] + ctc_weight * by_ctc
        assert answer.score == pytest.approx(expected, abs=1e-3)  # type: ignore[attr-defined]
    with pytest.raises(SettingError, match="already has a language model"):
        fused.predictor.with_models(beside)  # type: ignore[attr-defined]


def test_hotwords_are_favoured(tunes_path: Path, run: Run, tmp_path: Path) -> None:
    """In place of what is likelier, if the bonus is large; never in place of all else."""
    files, texts = written(tmp_path, 30)
    strong = DecodingOptions(beam_size=5, hotwords=("ab",), hotword_bonus=4.0)
    plain = [answer.text for answer in run.predict(files)]
    favoured = [answer.text for answer in run.predict(files, strong)]
    assert sum(text.count("ab") for text in favoured) > sum(text.count("ab") for text in plain)
    unlike = [i for i, text in enumerate(texts) if "a" not in text and "b" not in text]
    weak = DecodingOptions(beam_size=5, hotwords=("ab",), hotword_bonus=0.3)
    kept = [answer.text for answer in run.predict([files[i] for i in unlike], weak)]
    assert kept == [plain[i] for i in unlike]


def test_a_language_model_of_another_kind_is_refused(run: Run) -> None:
    with pytest.raises(RunError, match="a language model is needed"):
        run.with_models(language_model=run)
    with pytest.raises(SettingError, match="with a language model alone"):
        run.with_models([run])


def test_a_language_model_on_the_command_line(
    tunes_path: Path,
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trained with the tokenizer of the run, on texts of one letter, it writes that letter."""
    ((path,), *_), (text, *_) = written(tmp_path, 1, seed=42)
    letter = next(letter for letter in TONES if letter not in text)
    (tmp_path / "texts.txt").write_text(f"{3 * letter}\n" * 200, encoding="utf-8")
    recipe = {
        "task": "language-model",
        "data": {"train": {"kind": "text", "path": str(tmp_path / "texts.txt")}, "hold_out": 0.1},
        "text": {
            "tokenizer": {"kind": "file", "path": str(tunes_path / "tokenizer.json")},
            "block": 32,
        },
        "model": {"d_model": 16, "decoder": stack()},
        "training": training(30, 200, 1e-2, threads=1),
    }
    scorer, _ = transduce.train(recipe, tmp_path / "scorer")
    for name, line in (("paths", path), ("texts", text)):
        (tmp_path / name).write_text(f"{line}\n", encoding="utf-8")
    pair = ["--source", str(tmp_path / "paths"), "--reference", str(tmp_path / "texts")]
    command = ["evaluate", str(tunes_path), *pair, "--output", str(tmp_path / "out")]
    beside, outputs = ["--language-model", str(scorer), "--language-model-weight"], []
    heavy = [*beside, "30", "--min-length", "1"]
    for arguments in (command, [*command, *beside, "0"], [*command, *heavy]):
        assert main(arguments) == 0
        outputs.append((tmp_path / "out").read_text(encoding="utf-8").strip())
    assert outputs[0] == outputs[1] != ""
    assert set(outputs[2]) == {letter}
    capsys.readouterr()
    command = ["transcribe", str(tunes_path), path]
    assert main([*command, *beside, "0.1"]) == 0
    assert main([*command, "--language-model-weight", "1"]) == 2
    assert "--language-model-weight requires --language-model" in capsys.readouterr().err
    loads: list[Any] = []
    server = "transduce.serve.server"
    monkeypatch.setattr(f"{server}.listening_socket", lambda *address: nullcontext())
    monkeypatch.setattr(f"{server}.serve_forever", lambda *running: None)
    monkeypatch.setattr(
        "transduce.serve.service.Service", lambda specs, load, _: loads.append(load)
    )
    assert main(["serve", str(tunes_path), *beside[:2], "--device", "cpu"]) == 0
    assert loads[0](tunes_path).predictor.backend.auxiliary.language_model is not None
    assert main(["serve", str(scorer), *beside[:2]]) == 2
    assert "--language-model needs a run of speech" in capsys.readouterr().err
    assert main([*command, "--language-model", str(tunes_path)]) == 1
    assert "a language model is needed" in capsys.readouterr().err
