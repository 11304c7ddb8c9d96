"""Splits of recordings: by text, by speaker or by recording, and batches of their frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.audio import encoded, manifest, noise, saved
from transduce.errors import DataError, SettingError
from transduce.settings.sections import parse
from transduce.speech.ctc import positions_needed
from transduce.speech.features import AudioConfig
from transduce.speech.recipe import (
    RecordingDataConfig,
    SplitRecordings,
    normalised,
    padded_frames,
    read_recordings_of,
    utterance_statistics,
)
from transduce.tasks.recipe import Split

AUDIO = AudioConfig(rate=8000, bins=20)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """60 recordings of 20 texts by 6 speakers."""
    records = []
    for i in range(60):
        saved(tmp_path / f"{i}.wav", encoded(noise(0.3 + i % 7 / 50, 8000, i), 8000))
        records.append({"audio": f"{i}.wav", "text": f"text {i % 20}", "speaker": f"s{i % 6}"})
    manifest(tmp_path / "a.jsonl", records)
    return tmp_path


def splits(root: Path, **data: Any) -> dict[str, SplitRecordings]:
    train = {"kind": "manifest", "path": "a.jsonl"}
    settings = {"root": str(root), "train": train, "hold_out": 0.2, **data}
    config = parse(RecordingDataConfig, settings, "")
    names: tuple[Split, ...] = ("train", "valid", "test")
    return {name: read_recordings_of(config, AUDIO, name, root / ".cache") for name in names}


@pytest.mark.parametrize("by", ["text", "speaker", "recording"])
def test_equal_ones_stay_together(root: Path, by: str) -> None:
    result = splits(root, hold_out_by=by)
    assert sum(len(split) for split in result.values()) == 60
    keys = {
        name: {getattr(split.store.rows[i], {"recording": "name"}.get(by, by)) for i in split.rows}
        for name, split in result.items()
    }
    assert all(keys.values()) or by == "speaker"
    assert not keys["train"] & (keys["valid"] | keys["test"])
    assert not keys["valid"] & keys["test"]


def test_other_speeds_are_for_training_only(root: Path) -> None:
    plain, result = splits(root), splits(root, speeds=[0.9, 1.0, 1.1])
    assert len(result["train"]) == 3 * len(plain["train"])
    for name in ("valid", "test"):
        assert result[name].names == plain[name].names
        assert np.array_equal(result[name].lengths, plain[name].lengths)
        assert np.array_equal(result[name][0][0], plain[name][0][0])
    with pytest.raises(SettingError, match=r"data\.speeds is \[0\.9\]; give different speeds"):
        splits(root, speeds=[0.9])


def test_a_split_of_its_own(root: Path) -> None:
    test = {"kind": "manifest", "path": "a.jsonl", "where": {"text": "text 3"}}
    result = splits(root, test=test, speeds=[1.0, 1.1])
    assert result["test"].texts == ["text 3"] * 3
    assert len(result["train"]) + 2 * len(result["valid"]) == 120


def test_speakers_must_be_known(root: Path) -> None:
    with pytest.raises(DataError, match=r"\.wav has no speaker; set data\.hold_out_by = \"text\""):
        splits(
            root,
            hold_out_by="speaker",
            train={"kind": "manifest", "path": "a.jsonl", "speaker": "x"},
        )


def test_batches_and_statistics(root: Path) -> None:
    split = splits(root)["train"]
    batch = split.padded(np.array([2, 0]))
    assert batch.lengths.tolist() == [split.lengths[2], split.lengths[0]]
    frames, text = split[2]
    assert text == split.texts[2]
    assert np.array_equal(batch.values[0, : len(frames)].numpy(), frames)
    mean, deviation = split.statistics()
    everything = np.concatenate([split[i][0] for i in range(len(split))])
    assert np.allclose(mean, everything.mean(0), atol=1e-4)
    assert np.allclose(deviation, everything.std(0), atol=1e-4)
    some = split.select(split.lengths > 30)
    assert len(some) == (split.lengths > 30).sum() and min(some.lengths) > 30


def test_normalised_frames() -> None:
    rows = [torch.randn(n, 5) * 3 + 7 for n in (40, 7)]
    batch = padded_frames(rows)
    assert batch.padding == "right"
    mean, deviation = utterance_statistics(batch)
    for i, row in enumerate(rows):
        assert torch.allclose(mean[i, 0], row.mean(0), atol=1e-4)
        assert torch.allclose(deviation[i, 0], row.std(0, correction=0), atol=1e-4)
    changed = normalised(batch, mean, deviation)
    assert (changed.values[1, 7:] == 0).all()
    assert torch.allclose(changed.values[1, :7].mean(0), torch.zeros(5), atol=1e-4)
    silent = padded_frames([torch.full((3, 5), -15.94)])
    assert normalised(silent, *utterance_statistics(silent)).values.abs().max() == 0


@pytest.mark.parametrize(
    ("positions", "ids", "fits"),
    [(3, [1, 2, 3], True), (2, [1, 2, 3], False), (3, [1, 1, 2], False), (4, [1, 1, 2], True)],
)
def test_room_for_ctc(positions: int, ids: list[int], fits: bool) -> None:
    assert (positions_needed(ids) <= positions) == fits
    loss = torch.nn.functional.ctc_loss(
        torch.zeros(positions, 1, 5).log_softmax(-1),
        torch.tensor([ids]),
        torch.tensor([positions]),
        torch.tensor([len(ids)]),
    )
    assert bool(loss.isfinite()) == fits
