"""Fine-tuning of an imported Whisper with a frozen encoder."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.audio import encoded, noise, saved, tone
from helpers.tiny_run import records
from helpers.whisper import timed
from transduce import SettingError
from transduce.cli.runs import merge
from transduce.data.batches import DataState
from transduce.nn.transformer import TransformerEncoder
from transduce.runs.importing import import_run
from transduce.settings.sections import apply_overrides
from transduce.speech.features import WhisperMel
from transduce.speech.recipe import SpeechRecognitionRecipe
from transduce.speech.training import WhisperTraining, prepare_recognition
from transduce.text import EOS
from transduce.training.fine_tuning import ADAPTER_FILE
from transduce.training.weights import read_tensors

TEXTS = ("ab", "ba", "aab")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whisper")
    torch.manual_seed(3)
    timed(directory)
    return import_run(directory, directory / "run")


def settings(base: Path, directory: Path, speakers: int = 12, **fine_tune: Any) -> dict[str, Any]:
    lines = []
    for i in range(12):
        sound = tone(0.5, frequency=300.0 + 400 * (i % 3)) + noise(0.5, seed=i)
        file = saved(directory / f"{i}.wav", encoded(sound, subtype="FLOAT"))
        record = {"audio": file.name, "text": TEXTS[i % 3], "speaker": str(i % speakers)}
        lines.append(json.dumps(record))
    (directory / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    manifest = {"kind": "manifest", "path": "train.jsonl"}
    return {
        "task": "speech-recognition",
        "data": {"root": str(directory), "train": manifest, "valid": manifest},
        "fine_tune": {"run": str(base), **fine_tune},
        "training": {
            "steps": 30,
            "batch_tokens": 6000,
            "validate_every": 15,
            "label_smoothing": 0.0,
            "schedule": {"kind": "constant", "peak": 5e-3, "warmup_steps": 1},
            "threads": 1,
            "device": "cpu",
        },
        "evaluation": {"validation_recordings": 2},
    }


def prepared(
    base: Path, directory: Path, *, language: str = "auto", speakers: int = 12
) -> WhisperTraining:
    recipe = {**settings(base, directory, speakers), "prompt": {"language": language}}
    parsed = SpeechRecognitionRecipe.parse(recipe, "recipe")
    (directory / "run").mkdir(exist_ok=True)
    task = prepare_recognition(parsed, directory / "run")
    assert isinstance(task, WhisperTraining)
    return task


def test_packed_memories_and_texts_lose_what_padded_ones_do(base: Path, tmp_path: Path) -> None:
    task = prepared(base, tmp_path)
    task.model.train()
    shapes = set()
    for batch, _ in itertools.islice(task.batches.iterate(DataState()), 2):
        results = []
        for packs in (False, True):
            packed = task.pack(batch)
            sums = task.packed_loss(packed) if packs else task.loss(batch)
            task.model.zero_grad()
            (sums.total / batch.target_tokens).backward()
            gradients = [p.grad.clone() for p in task.model.parameters() if p.grad is not None]
            results.append([sums.total.detach(), sums.nll, *gradients])
        for padded, other in zip(*results, strict=True):
            torch.testing.assert_close(other, padded, rtol=1e-5, atol=1e-5)
        shapes.add(tuple(side.values.shape for side in packed.sides))
    assert len(shapes) == 1 and not task.waits and not task.padding_reason()


def test_the_decoder_learns_and_the_encoder_stays(base: Path, tmp_path: Path) -> None:
    path, _ = transduce.train(settings(base, tmp_path), tmp_path / "run")
    before, after = (transduce.load(run, "cpu").predictor for run in (base, path))
    assert after.recipe.prompt == before.recipe.prompt  # type: ignore[attr-defined]
    assert after.options == before.options
    weights, learnt = (one.model.state_dict() for one in (before, after))  # type: ignore[attr-defined]
    for name, tensor in weights.items():
        if name.startswith(("front_end.", "encoder.")):
            assert tensor.equal(learnt[name]), name
    assert not weights["decoder.layers.0.feed_forward.inner.weight"].equal(
        learnt["decoder.layers.0.feed_forward.inner.weight"]
    )
    scores = transduce.load(path, "cpu").evaluate("valid").scores
    assert scores["character-error-rate"] <= 80  # of texts of a and b; before, of anything


def test_adapters_of_the_decoder_learn_and_merge(base: Path, tmp_path: Path) -> None:
    """Of the layers of attention, the decoder's alone; others stay as the base run's."""
    task = prepared(base, tmp_path)
    task.model.load_state_dict(transduce.load(base, "cpu").predictor.model.state_dict())  # type: ignore[attr-defined]
    with torch.no_grad():
        sums = [task.validation_loss(batch) for batch in task._valid.in_order()]
    before = sum(float(each.total) for each in sums) / sum(each.tokens for each in sums)
    recipe = apply_overrides(settings(base, tmp_path), ["fine_tune.lora.rank=2"])
    path, _ = transduce.train(recipe, tmp_path / "tuned")
    names = read_tensors(path / ADAPTER_FILE).keys()
    assert names and all(re.match(r"decoder\..*attention\..*\.lora_", name) for name in names)
    weights, learnt = (read_tensors(run / "weights.safetensors") for run in (base, path))
    changed = {name for name in weights if not weights[name].equal(learnt[name])}
    assert changed == {f"{name.rpartition('.')[0]}.weight" for name in names}
    merge(base, path, tmp_path / "merged")
    whole = read_tensors(tmp_path / "merged" / "weights.safetensors")
    for name in weights:
        torch.testing.assert_close(whole[name], learnt[name])
    assert records(path, "validation")[-1]["loss"] < 0.9 * before
    texts = [
        [segment.text for segment in transduce.load(run, "cpu").transcribe(tmp_path / "0.wav")]
        for run in (path, tmp_path / "merged")
    ]
    assert texts[0] == texts[1]


def test_each_recording_is_encoded_once(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    forward = TransformerEncoder.forward

    def counting(self: TransformerEncoder, source: Any) -> Any:
        passes.append(len(source.values))
        return forward(self, source)

    monkeypatch.setattr(TransformerEncoder, "forward", counting)
    task = prepared(base, tmp_path)
    assert sum(passes) == 24  # 12 in each split
    task.validate()
    task.loss(next(iter(task.batches.in_order())))
    prepared(base, tmp_path)
    assert sum(passes) == 24


def test_texts_follow_their_prompts(base: Path, tmp_path: Path) -> None:
    """The loss is of the text and the end alone, after the language of each recording."""
    task = prepared(base, tmp_path, language="de")
    batch = next(iter(task.batches.in_order()))
    prompt, tokenizer = task.predictor.prompt, task.predictor.tokenizer
    n = len(prompt.ids)
    for ids, counted, row in zip(batch.target.values, batch.spoken.real, batch.rows, strict=True):
        (number,) = task._memories["train"].windows[int(row)].rows
        text = tokenizer.encode(f" {TEXTS[number % 3]}")
        assert ids[: n + len(text) + 1].tolist() == [*prompt.ids, *text, EOS]
        assert int(counted.sum()) == len(text) + 1 and not counted[: n - 1].any()
    assert batch.target_tokens == int(batch.spoken.real.sum())
    halves = batch.halves()
    assert halves is not None
    with torch.no_grad():
        whole, parts = task.loss(batch), [task.loss(half) for half in halves]
    assert float(whole.total) == pytest.approx(sum(float(p.total) for p in parts), rel=1e-4)
    detected = prepared(base, tmp_path)
    marks = np.array([*detected.predictor.prompt.languages.values()])
    one = next(iter(detected.batches.in_order()))
    assert np.isin(one.target.values[:, 1].numpy(), marks).all()


def test_recordings_of_a_speaker_share_windows(base: Path, tmp_path: Path) -> None:
    """With their texts, and in half of the windows with times, as the model writes them."""
    task = prepared(base, tmp_path, language="de", speakers=2)
    tokenizer, prompt = task.predictor.tokenizer, task.predictor.prompt
    times = task.predictor.prompted(task.recipe.prompt, timed=True).prompt.times
    batches = [*task.batches.in_order()]
    rows = {int(i): ids for b in batches for i, ids in zip(b.rows, b.target.values, strict=True)}
    assert len(rows) < 12
    windows = task._memories["train"].windows
    assert sorted(i for window in windows for i in window.rows) == [*range(12)]
    for number, window in enumerate(windows):
        assert len({i % 2 for i in window.rows}) == 1
        texts = [TEXTS[i % 3] for i in window.rows]
        expected = [*prompt.ids, *tokenizer.encode(" " + " ".join(texts)), EOS]
        if number % 2 and len(texts) > 1:
            expected = [*prompt.ids[:-1]]
            for i, (text, *span) in enumerate(zip(texts, window.starts, window.ends, strict=True)):
                assert span == pytest.approx([i, i + 0.5], abs=0.02 * len(texts))
                start, end = (times[round(time / 0.02)] for time in span)
                expected += [start, *tokenizer.encode(f" {text}"), end]
            expected.append(EOS)
        assert rows[number].tolist()[: len(expected)] == expected
    assert any(len(window.rows) > 1 for window in windows[1::2]), "else nothing has times"


def test_joined_frames_are_those_of_the_joined_samples() -> None:
    mel = WhisperMel()
    parts = [0.01 * noise(0.7, seed=1), tone(1.1) + noise(1.1, seed=2)]
    samples = np.zeros(48_000, np.float32)
    samples[: len(parts[0])], samples[24_000 : 24_000 + len(parts[1])] = parts
    frames = [mel(part.astype(np.float32)) for part in parts]
    assert [mel.sounding(each) for each in frames] == pytest.approx([70, 110], abs=2)
    joined, whole = mel.joined(frames, (0, 150)), mel(samples)
    borders = [abs(np.arange(3000) - at) <= 2 for at in (70, 150, 260)]
    inside = ~np.any(borders, axis=0)
    assert joined.shape == whole.shape
    np.testing.assert_allclose(joined[inside], whole[inside], atol=1e-3)


def test_mistakes(base: Path, tmp_path: Path) -> None:
    alone = settings(base, tmp_path)
    del alone["fine_tune"]
    with pytest.raises(SettingError, match="is for imported models; set fine_tune"):
        transduce.train({**alone, "audio": {"features": "whisper"}}, tmp_path / "a")
    lora = settings(base, tmp_path, lora={"rank": 2, "targets": ["encoder.*attention.*"]})
    with pytest.raises(SettingError, match=r"every layer in fine_tune\.lora\.targets is frozen"):
        transduce.train(lora, tmp_path / "b")
