"""Speech synthesis: batches, loss, speaking, evaluation, pronunciation, mistakes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import transduce
from helpers.tiny_run import reversal_pairs, stack, train_tiny, training, write_tsv
from helpers.tunes import AUDIO, BINS, write_tunes
from transduce import DataError, InputError, RunError, SettingError
from transduce.data.batches import TokenBatches
from transduce.loading import Run
from transduce.sequence import Padded
from transduce.settings.sections import apply_overrides, load_toml, to_toml
from transduce.speech.audio import read_audio
from transduce.speech.recipe import read_recordings_of
from transduce.speech.spoken import Speech, load_pronouncer
from transduce.speech.synthesis import SynthesisTraining, end_loss, in_steps
from transduce.speech.synthesiser import Synthesiser, SynthesisRecipe, free_scores


def settings(train: dict[str, Any], /, *overrides: str) -> dict[str, Any]:
    """A small recipe for the recordings that a section names."""
    recipe = {
        "task": "speech-synthesis",
        "data": {"train": train, "hold_out": 0.1},
        "audio": AUDIO,
        "text": {"tokenizer": {"kind": "characters"}},
        "model": {
            "kind": "attention",
            "d_model": 32,
            "frames_per_step": 3,
            "front_end": {"width": 16},
            "encoder": stack(d_ff=64),
            "decoder": stack(d_ff=64),
            "postnet": {"n_layers": 2, "channels": 16},
        },
        "training": training(4, 200, 4e-3, warmup=20, validate_every=2, clip_norm=1.0, threads=1),
        "speaking": {"seconds_per_token": 0.05, "rounds": 2},
        "evaluation": {"validation_texts": 2},
    }
    return apply_overrides(recipe, overrides)


@pytest.fixture(scope="module")
def tunes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_tunes(tmp_path_factory.mktemp("tunes"), 120)


@pytest.fixture(scope="module")
def path(tunes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return transduce.train(settings(tunes), tmp_path_factory.mktemp("runs") / "run")[0]


@pytest.fixture(scope="module")
def run(path: Path) -> Run:
    return transduce.load(path, "cpu")


def changed(path: Path, to: Path, *overrides: str) -> Run:
    """A copy of a run directory with other settings in its recipe."""
    shutil.copytree(path, to)
    recipe = apply_overrides(load_toml(to / "recipe.toml"), overrides)
    (to / "recipe.toml").write_text(to_toml(recipe), encoding="utf-8")
    return transduce.load(to, "cpu")


def training_of(run: Run) -> SynthesisTraining:
    found: Synthesiser = run.predictor  # type: ignore[assignment]
    recipe = found.recipe
    data = {
        split: read_recordings_of(recipe.data, recipe.audio, split, found.cache)  # type: ignore[arg-type]
        for split in ("train", "valid")
    }
    return SynthesisTraining(found, data)  # type: ignore[arg-type]


def test_frames_stand_in_whole_steps() -> None:
    values = torch.arange(10.0).view(2, 5, 1)
    frames = Padded(values, torch.arange(5) < torch.tensor([[5], [3]]), "right")
    found = in_steps(frames, 3)
    assert found.values[0, :, 0].tolist() == [0, 1, 2, 3, 4, 4]
    assert found.values[1, :, 0].tolist() == [5, 6, 7, 0, 0, 0]
    assert found.lengths.tolist() == [6, 3] and found.padding == "right"
    whole = in_steps(Padded.unpadded(torch.zeros(1, 6, 2)), 3)
    assert whole.padding == "none" and whole.values.shape == (1, 6, 2)


def test_the_end_is_the_last_step_of_each_row() -> None:
    stop = torch.tensor([[0.5, -1.0, 2.0], [1.0, -2.0, 9.0]])
    steps = torch.tensor([[True, True, True], [True, True, False]])
    wanted = -4 * (F.logsigmoid(stop[0, 2]) + F.logsigmoid(stop[1, 1]))
    wanted -= F.logsigmoid(-stop[0, :2]).sum() + F.logsigmoid(-stop[1, 0])
    assert float(end_loss(stop, steps, 4.0)) == pytest.approx(float(wanted))


def test_the_loss_of_a_batch_is_the_sum_of_its_halves(run: Run) -> None:
    task = training_of(run)
    assert isinstance(task.batches, TokenBatches)
    task.model.eval()
    batch = max(task.batches.in_order(), key=lambda one: len(one.rows))
    halves = batch.halves()
    assert halves is not None
    with torch.no_grad():
        whole, parts = task.loss(batch), [task.loss(half) for half in halves]
    assert whole.tokens == batch.target_tokens == sum(part.tokens for part in parts)
    for name in ("total", "nll"):
        added = sum(float(getattr(part, name)) for part in parts)
        assert float(getattr(whole, name)) == pytest.approx(added, rel=1e-5)


def test_guided_attention_is_part_of_the_loss(path: Path, tmp_path: Path, run: Run) -> None:
    task = training_of(run)
    without = training_of(changed(path, tmp_path / "run", "training.attention_weight=0"))
    batch = next(iter(task.batches.in_order()))
    task.model.eval(), without.model.eval()
    loss = task.loss(batch)
    assert without.loss(batch).total < loss.total
    assert float(without.loss(batch).nll) == pytest.approx(float(loss.nll))
    loss.total.backward()
    layers = [m for n, m in task.model.named_modules() if n.endswith("cross_attention")]
    assert all(layer.weights is None for layer in layers), "recording goes on"


def test_guided_attention_falls_to_nothing(path: Path, tmp_path: Path, run: Run) -> None:
    task = training_of(run)
    without = training_of(changed(path, tmp_path / "run", "training.attention_weight=0"))
    batch = next(iter(task.batches.in_order()))
    task.model.eval(), without.model.eval()

    def guidance(share: float) -> float:
        task.begin_step(share)
        with torch.no_grad():
            return float(task.loss(batch).total - without.loss(batch).total)

    assert guidance(0.5) == pytest.approx(guidance(0.0) / 2, rel=1e-3)
    assert guidance(0.0) > 1 and guidance(1.0) == pytest.approx(0, abs=1e-3)
    without.begin_step(0.5)
    assert guidance(1.0) == pytest.approx(0, abs=1e-3)


def test_speech_is_saved_as_a_file_of_its_length(run: Run, tmp_path: Path) -> None:
    speech = run.speak("abc")
    assert isinstance(speech, transduce.Speech) and speech.rate == AUDIO["rate"]
    speech.save(tmp_path / "a.wav")
    samples = read_audio(tmp_path / "a.wav", speech.rate)
    assert len(samples) == len(speech.samples) == round(speech.seconds * speech.rate)
    assert np.abs(speech.samples).max() <= 1
    assert speech.text.startswith(f"{speech.seconds:.2f} s of speech")
    assert run.speak("abc").frames.equal(speech.frames), "the same text sounds alike"
    assert not run.speak("abd").frames[:3].equal(speech.frames[:3])


def test_rounded_weights_speak_much_the_same(path: Path, run: Run) -> None:
    whole, rounded = run.speak("abc"), transduce.load(path, "cpu", "int8").speak("abc")
    k = min(len(whole.frames), len(rounded.frames))
    assert (whole.frames[:k] - rounded.frames[:k]).abs().mean() < 0.1 * whole.frames.std()


def test_a_blank_text_has_no_speech(run: Run) -> None:
    blank, spoken = run.predict(["  ", "a"], kind=Speech)
    assert (blank.text, blank.seconds, len(blank.samples)) == ("", 0, 0)
    assert spoken.seconds > 0


def test_a_limit_grows_with_the_text(path: Path, tmp_path: Path) -> None:
    run = changed(path, tmp_path / "run", "speaking.stop_threshold=0.9999")
    speech = run.speak("abcab")
    assert not speech.stopped and speech.text.endswith("did not end")
    assert speech.seconds == pytest.approx(1.3, abs=0.08)  # a second, and 0.05 s of six tokens


def test_scores_of_what_was_spoken() -> None:
    def speech(places: list[int], stopped: bool = True) -> Speech:
        attended, features = torch.tensor(places), Synthesiser.__new__(Synthesiser)
        return Speech(torch.zeros(8, BINS), features, stopped, attended, (4,))  # type: ignore[arg-type]

    good, back, early = speech([0, 1, 2, 3]), speech([0, 2, 1, 2], False), speech([0, 0, 1, 1])
    assert (good.coverage, good.monotony, good.reached) == (100, 100, True)
    assert (back.coverage, back.reached) == (75, True)
    assert back.monotony == pytest.approx(200 / 3)
    assert not early.reached
    scores = free_scores([good, back, early])
    assert scores["stopped"] == pytest.approx(200 / 3)
    assert scores["failures"] == pytest.approx(200 / 3)


def test_evaluation_beside_recordings_and_of_examples(run: Run) -> None:
    found = run.evaluate("valid")
    names = {"coverage", "monotony", "stopped", "failures"}
    assert set(found.other_scores) == names | {"length-ratio", "mel-cepstral-distortion"}
    assert found.other_scores["mel-cepstral-distortion"] > 0 and not found.scores
    assert set(run.evaluate(examples=[("ab", "ab")]).other_scores) == names
    with pytest.raises(DataError, match="no texts"):
        run.evaluate(examples=[])


@pytest.mark.system
def test_a_recogniser_writes_down_what_was_spoken(
    path: Path, tmp_path: Path, tunes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = settings(tunes)
    model = {"d_model": 16, "front_end": {"channels": 8}, "encoder": stack(), "decoder": stack()}
    recogniser = {name: recipe[name] for name in ("data", "audio", "text", "training")}
    recogniser |= {"task": "speech-recognition", "model": model}
    heard, _ = transduce.train(recogniser, tmp_path / "recogniser")
    run = changed(path, tmp_path / "run", f"evaluation.recogniser={heard}")
    found = run.evaluate("valid")
    assert set(found.scores) == {"word-error-rate", "character-error-rate"}
    assert {f"recorded-{name}" for name in found.scores} <= set(found.other_scores)
    assert len(found.hypotheses) == len(found.sources)
    wrong = changed(path, tmp_path / "wrong", f"evaluation.recogniser={path}")
    monkeypatch.delattr(Synthesiser, "speak")  # the mistake is found before minutes of synthesis
    with pytest.raises(RunError, match=r"evaluation\.recogniser: .*'speech-synthesis', not"):
        wrong.evaluate("valid")


def test_words_become_sounds(tmp_path: Path, tunes: dict[str, Any]) -> None:
    """By a translation run, each word once; signs stay, a boundary stands between words."""
    pairs = [(word, " ".join(word.upper())) for word, _ in reversal_pairs(60)]
    spelling, _ = train_tiny(write_tsv(tmp_path / "a.tsv", pairs), tmp_path / "spelling")
    pronouncer = load_pronouncer(str(spelling), "cpu")
    assert pronouncer is not None
    words = ("ab", "cab's")
    sounds = [one.text for one in transduce.load(spelling, "cpu").translate(words)]
    wanted = f"{sounds[0]} , | {sounds[1]} | {sounds[0]} !"
    assert pronouncer.pronounce(["Ab, CAB's  ab!", ""]) == [" ".join(wanted.split()), ""]
    recipe = settings(tunes, f"text.pronounce={spelling}", "text.tokenizer.kind=symbols")
    speaking, _ = transduce.train(recipe, tmp_path / "speaking")
    assert transduce.load(speaking, "cpu").speak("ab").seconds > 0
    with pytest.raises(RunError, match=r"text\.pronounce: .*'speech-synthesis'; a run of the task"):
        load_pronouncer(str(speaking), "cpu")
    with pytest.raises(RunError, match=r"text\.pronounce: .* is not a run directory"):
        load_pronouncer(str(tmp_path), "cpu")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("audio.features=fbank", "audio.features"),
        ("audio.normalise=utterance", "audio.normalise"),
        ("model.postnet.width=4", "must be odd"),
        ("model.encoder.n_heads=3", "does not divide"),
        ("model.decoder.positions=learned", "learned positions"),
        ("training.select_by=bleu", "'bleu', but validation measures 'loss', 'coverage'"),
        ("training.stop_weight=0", "stop_weight"),
        ("training.recompute=true", "recompute cannot be combined with guided attention"),
    ],
)
def test_mistakes_in_a_recipe(tunes: dict[str, Any], override: str, message: str) -> None:
    given = settings(tunes, override, "data.filters.max_seconds=300")
    with pytest.raises(SettingError, match="^[^\n]*" + message):
        SynthesisRecipe.parse(given, "recipe")


def test_an_explanation_shows_letters_over_steps(run: Run) -> None:
    speech, seen = run.speak("abca"), run.explain("abca")
    assert list(seen.sequences["source"]) == ["a", "b", "c", "a", "</s>"]
    crosses = [one for one in seen.attention if one.name.endswith("cross_attention")]
    guided = np.mean([one.weights[:2].mean(0) for one in crosses[-2:]], 0)
    assert guided.argmax(1).tolist() == speech.attended.tolist()
    assert len(seen.steps) == len(speech.attended)
    ended = [step.guesses[0][0] == "end" for step in seen.steps]
    assert not any(ended[:-1]) and ended[-1] == speech.stopped
    assert run.explain("abca").answer == speech.text and not run.explain(" ").sequences


def test_an_explanation_synthesises_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, calls = Synthesiser.decode, list[Any]()
    monkeypatch.setattr(Synthesiser, "decode", lambda *given: calls.append(0) or decode(*given))
    run.explain("abca")
    assert len(calls) == 1


def test_attention_has_no_speed_and_no_words(run: Run) -> None:
    assert not run.speak("abc").words
    synthesiser: Any = run.predictor
    with pytest.raises(SettingError, match=r'^speed needs a run of model\.kind = "monotonic"'):
        synthesiser.speaking(2.0)


def test_other_runs_do_not_speak(run: Run, tmp_path: Path) -> None:
    other, _ = train_tiny(write_tsv(tmp_path / "a.tsv", reversal_pairs(60)), tmp_path / "run")
    with pytest.raises(RunError, match="'translation', which does not speak"):
        transduce.load(other, "cpu").speak("a")


def test_a_text_with_unknown_letters_is_refused(run: Run) -> None:
    fresh = transduce.load(run.path, "cpu")
    with pytest.raises(InputError, match="the voice cannot say 'Ж'"):
        fresh.speak("aЖb")
    assert fresh.speak("aéb").seconds > 0, "read without its accent"


@pytest.mark.slow
def test_it_learns_to_sing_tunes_that_it_has_not_read(
    tmp_path: Path,
) -> None:
    """Each letter is a tone: the loudest bins of what is spoken follow the letters."""
    train = write_tunes(tmp_path / "tunes", 400)
    recipe = settings(
        train, "training.steps=700", "training.validate_every=700", "training.batch_tokens=400"
    )
    run = transduce.load(transduce.train(recipe, tmp_path / "run")[0], "cpu")
    scores = run.evaluate("valid").other_scores
    assert scores["stopped"] >= 90 and scores["monotony"] >= 90
    assert 85 < scores["length-ratio"] < 115
