"""Film of learning: true to the weights of each point, and without effect on training."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.random_translator import random_translator
from helpers.tiny_run import interrupt_at, reversal_pairs, tiny_settings, train_tiny, write_tsv
from transduce.errors import RunError, SettingError
from transduce.explain.explanation import MAX_FILM_WEIGHTS, Film, FilmScene
from transduce.explain.page import page_of
from transduce.explain.tasks import explain_translation
from transduce.nn.attention import record_attention
from transduce.sequence import Padded
from transduce.text import BOS, EOS
from transduce.training.config import TrainingConfig
from transduce.training.film import FILM, points_of
from transduce.training.signals import InterruptedTraining

DROPOUT = ("model.encoder.dropout=0.1", "model.decoder.positions=rotary")
POINTS = [0, 1, 2, 4, 7, 12]
"""Steps of a film of 5 points, log-spaced in 12 steps, behind the first weights."""


@pytest.fixture(scope="module")
def filmed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("film") / "filmed"  # processes share the directory of the data
    return train_tiny(data, run, *DROPOUT, "training.film=5")[0]


def test_points_are_log_spaced() -> None:
    points = points_of(TrainingConfig(steps=100_000, film=12))
    assert len(points) == 12 and points[0] == 1e-3 and points[-1] == 1
    np.testing.assert_allclose(np.diff(np.log(points)), np.log(1000) / 11)
    assert points_of(TrainingConfig(steps=100, film=2)) == [0.01, 1.0]
    assert points_of(TrainingConfig()) == []


@pytest.mark.system
def test_resumed_film_is_the_same_file(
    data: Path, filmed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, settings = tmp_path / "run", (*DROPOUT, "training.film=5")
    with monkeypatch.context() as patch, pytest.raises(InterruptedTraining):
        interrupt_at(3, patch)
        train_tiny(data, run, *settings)
    kept = (run / FILM).read_bytes()
    with monkeypatch.context() as patch, pytest.raises(InterruptedTraining):
        interrupt_at(8, patch)
        train_tiny(data, run, *settings, resume=True)
    # Where a kill came before the checkpoint of step 8, points behind step 3 are taken again.
    later = (run / FILM).read_bytes()
    assert later != kept
    train_tiny(data, run, *settings, resume=True)
    assert (run / FILM).read_bytes() == (filmed / FILM).read_bytes()


@pytest.mark.system
def test_a_new_training_replaces_the_film(data: Path, filmed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_tiny(data, run, "training.film=2")
    transduce.train(tiny_settings(data, *DROPOUT), run, overwrite=True)
    assert not (run / FILM).exists()


def test_patience_ends_the_film_too(data: Path, tmp_path: Path) -> None:
    settings = ("training.steps=1000", "training.patience=1", "training.schedule.peak=1e-9")
    run, outcome = train_tiny(data, tmp_path / "run", "training.film=3", *settings)
    film = transduce.load(run, "cpu").film
    assert film is not None and outcome.step < 1000
    assert [step for step, _ in film.points] == [0, 1, outcome.step]


def test_the_last_point_is_the_attention_of_the_model(filmed: Path) -> None:
    run = transduce.load(filmed, "cpu")
    assert run.film is not None
    assert [step for step, _ in run.film.points] == POINTS
    assert [share for _, share in run.film.points] == [step / 12 for step in POINTS]
    for scene in run.film.scenes:
        source, target = (part.strip() for part in scene.text.split("→"))
        ids = [*run.translator.source.encode(source), EOS]
        given = [BOS, *run.translator.target.encode(target)]
        with torch.inference_mode(), record_attention(run.model) as maps:
            run.model(*(Padded.unpadded(torch.tensor([row])) for row in (ids, given)))
        assert len(scene.attention) == len(POINTS)
        for one in scene.attention[-1]:
            expected = maps[one.name][0][0].numpy()
            np.testing.assert_allclose(one.weights, expected, atol=0.5 / 255 + 1e-6)
        assert [len(scene.tokens[name]) for name in ("source", "written")] == [len(ids), len(given)]
        first, last = (
            np.concatenate([a.weights.ravel() for a in at])
            for at in (scene.attention[0], scene.attention[-1])
        )
        assert np.abs(first - last).max() > 0.01, "nothing was learnt"


def test_models_without_attention_are_refused(data: Path, tmp_path: Path) -> None:
    rows = [(text, text.split()[-1]) for _, text in reversal_pairs(60)]
    recipe = {
        "task": "classification",
        "data": {"train": {"kind": "tsv", "path": str(write_tsv(tmp_path / "a.tsv", rows))}},
        "text": {"tokenizer": {"kind": "characters"}},
        "model": {"d_model": 16, "encoder": {"kind": "text-cnn"}, "pooling": "max"},
        "training": {"steps": 2, "device": "cpu", "film": 3},
    }
    with pytest.raises(SettingError, match=r"training\.film: this model has no attention"):
        transduce.train(recipe, tmp_path / "run")


def test_a_damaged_film_is_one_line(data: Path, tmp_path: Path) -> None:
    run, _ = train_tiny(data, tmp_path / "run", "training.film=2", "training.steps=2")
    whole = (run / FILM).read_bytes()
    for damaged in (whole[:-9], whole.replace(b"points", b"pointz"), b"", whole[:-1] + b"\xff"):
        (run / FILM).write_bytes(damaged)
        with pytest.raises(RunError, match=r"film\.safetensors"):
            _ = transduce.load(run, "cpu").film
    (run / FILM).unlink()
    assert transduce.load(run, "cpu").explain("abc").film is None


def packed_film(page: str) -> list[dict[str, Any]]:
    result = re.search(r'<script id="data" type="application/json">(.*?)</script', page, re.S)
    assert result
    return [one["film"] for one in json.loads(result.group(1))]


def test_a_page_holds_the_film_once(filmed: Path) -> None:
    run = transduce.load(filmed, "cpu")
    observed = [run.explain(text) for text in ("abc", "cab")]
    assert "film" not in observed[0].as_dict()
    film, none = packed_film(page_of([one.packed() for one in observed]))
    assert none is None and run.film is not None
    assert [step for step, _ in film["points"]] == POINTS
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for scene, shown in zip(run.film.scenes, film["scenes"], strict=True):
        for number, one in enumerate(shown["attention"]):
            for point, frame in enumerate(one["frames"]):
                kept = scene.attention[point][number]
                weights = kept.weights
                if kept.causal:
                    weights = np.stack([head[np.tril_indices(len(head))] for head in weights])
                result = np.array([digits.index(c) for c in frame]) / 63
                np.testing.assert_allclose(result, weights.ravel(), atol=0.51 / 63)
                names = [film["patterns"][digits.index(c)] for c in one["patterns"][point][::2]]
                assert names == [pattern.name for pattern in kept.patterns]


def test_a_film_of_a_large_model_leaves_layers_out() -> None:
    one = explain_translation(random_translator(), ("w3 w1",))
    wide = replace(one.attention[0], weights=np.full((8, 30, 30), 1 / 30, np.float32))
    layers = tuple(replace(wide, name=f"encoder.layers.{i}.self_attention") for i in range(12))
    scene = FilmScene("a", {"source": ["a"] * 30}, (layers,) * 12)
    packed = Film(tuple((i, i / 11) for i in range(12)), (scene,) * 3).packed()
    text = [frame for s in packed["scenes"] for a in s["attention"] for frame in a["frames"]]
    assert sum(map(len, text)) <= max(MAX_FILM_WEIGHTS, 36 * wide.weights.size)
    shown = packed["scenes"][0]
    assert shown["leftOut"] == 12 - len(shown["attention"]) > 0


def test_films_of_recurrent_attention(data: Path, tmp_path: Path) -> None:
    settings = tiny_settings(data, "training.film=2", "training.steps=4")
    rnn = {"kind": "recurrent"}
    stacks = {"encoder": rnn, "decoder": {**rnn, "context": {"kind": "additive"}}}
    settings["model"] = {"d_model": 16, "tie": "two-way", **stacks}
    run, _ = transduce.train(settings, tmp_path / "run")
    film = transduce.load(run, "cpu").film
    assert film is not None
    (cross,) = film.scenes[0].attention[-1]
    assert cross.name.endswith("cross_attention") and len(cross.weights) == 1
    np.testing.assert_allclose(cross.weights.sum(-1), 1, atol=0.03)
