"""Limits, last items and extremes, reached: what holds in the middle need not hold there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.random_translator import random_translator
from helpers.subwords import train_subwords
from transduce.data.batches import MIN_TO_SHIFT, _plan_batches
from transduce.decoding.hypotheses import FinishedHypotheses, Hypothesis, is_done
from transduce.decoding.mbr import least_risk
from transduce.decoding.options import DecodingOptions
from transduce.errors import RunError, SettingError
from transduce.nn.attention import record_attention
from transduce.sequence import Padded
from transduce.tasks.language_model.generator import ContinuationText
from transduce.tasks.recipe import place_of
from transduce.text import BOS, subword
from transduce.text.offsets import tokens_with_spans
from transduce.training.budget import Budget
from transduce.training.checkpoints import (
    Progress,
    checkpoint_path,
    load_checkpoint,
    save_checkpoint,
)
from transduce.training.config import TrainingConfig
from transduce.training.weights import mean
from transduce.vision.vit import VisionConfig


def test_coverage_is_that_of_the_last_layer() -> None:
    model: Any = random_translator(decoder={"n_layers": 3}).model
    source, target = (
        Padded.unpadded(torch.tensor([[5, 6, 7]])),
        Padded.unpadded(torch.tensor([[1]])),
    )
    with torch.inference_mode():
        _, coverage = model.step_attended(target, model.start(source))
        with record_attention(model) as maps:
            model.step(target, model.start(source))
    layers = [maps[f"decoder.layers.{i}.cross_attention"][0].mean(1) for i in range(3)]
    torch.testing.assert_close(coverage, layers[2])
    assert not torch.allclose(layers[0], layers[2])


@pytest.mark.parametrize("log_prob", [-1.0, -800.0, -1e5])
def test_the_least_risk_of_unlikely_outputs(log_prob: float) -> None:
    texts = ["a red dog", "a red dot", "nothing alike"]
    log_probs = [log_prob, log_prob - 0.1, log_prob - 0.2]
    options = DecodingOptions(minimum_risk="chrf", beam_size=3, n_best=3)
    ranked = least_risk(texts, log_probs, options, "en")
    assert [i for i, _ in ranked] == [0, 1, 2]
    assert ranked == [
        (i, pytest.approx(u)) for i, u in least_risk(texts, [-1, -1.1, -1.2], options, "en")
    ]


class Spanned:
    """A tokenizer that knows where its tokens stand."""

    def __init__(self, *spans: tuple[int, int]) -> None:
        self._spans = list(spans)

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self._spans


@pytest.mark.parametrize(
    ("text", "spans", "expected"),
    [
        ("ae\u0301", [(0, 1), (1, 2)], [(0, 1), (1, 3)]),  # at the end of the text
        ("e\u0301\u0302", [(0, 1)], [(0, 3)]),
        ("e\u0301b", [(0, 1), (2, 3)], [(0, 2), (2, 3)]),
        ("e\u0301b", [(0, 1), (1, 3)], [(0, 1), (1, 3)]),  # an accent of the next token
        (" e ", [(0, 2), (2, 3)], [(1, 2), (3, 3)]),
    ],
)
def test_accents_behind_a_token(
    text: str, spans: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    tokenizer: Any = Spanned(*spans)
    assert tokens_with_spans(tokenizer, text, [7] * len(spans)) == ([7] * len(spans), expected)


def test_every_line_is_as_likely_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counter[str]()
    seeds = iter(range(2_000))
    monkeypatch.setattr(subword, "random", SimpleNamespace(Random=lambda _: Random(next(seeds))))
    for _ in range(2_000):
        counts.update(subword._sample("abcd", 2))
    assert counts.keys() == set("abcd")
    assert all(abs(count - 1_000) < 5 * 500**0.5 for count in counts.values()), counts


@pytest.mark.parametrize("stop", ["猫", " 猫", "é猫", "cat", " cat"])
def test_a_stop_string_of_several_bytes_stops(stop: str) -> None:
    tokenizer = train_subwords("bpe")
    text = ContinuationText(tokenizer, [BOS], [stop])
    ids = tokenizer.encode("one two three four" + stop)
    assert [text.stopped(ids[:n]) for n in range(len(ids) + 1)] == [False] * len(ids) + [True]


def test_a_patch_is_of_the_output_of_the_stem() -> None:
    VisionConfig(patch_size=4).check_size(12)
    VisionConfig(patch_size=4, stem=(8, 8)).check_size(32)
    with pytest.raises(SettingError, match="a patch of 16 pixels"):
        VisionConfig(patch_size=4, stem=(8, 8)).check_size(24)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_mean_is_rounded_once(dtype: torch.dtype) -> None:
    parts = [{"a": torch.full((3,), value, dtype=dtype)} for value in [256.0, *[1.0] * 63]]
    averaged = mean(parts)["a"]
    assert averaged.dtype == dtype
    assert averaged.tolist() == torch.full((3,), 319 / 64).to(dtype).tolist()


def test_borders_and_order_of_batches_change_with_each_epoch() -> None:
    widths = np.full(40 * MIN_TO_SHIFT, 10, np.int32)
    plans = [_plan_batches((widths, widths), 100, np.random.default_rng(seed)) for seed in range(8)]
    assert len({tuple(sorted(plan.starts.tolist())) for plan in plans}) > 4, "borders move"
    for plan in plans:
        starts = plan.starts.tolist()
        assert starts != sorted(starts), "batches are shuffled"
    assert len({tuple(plan.starts.argsort().tolist()) for plan in plans}) == len(plans)
    fixed = _plan_batches((widths, widths), 100, None)
    assert fixed.starts.tolist() == list(range(0, len(widths), 10))


@pytest.mark.parametrize(
    ("one", "other"),
    [("Dog", "dog"), ("STRASSE", "straße"), ("ﬁne", "FINE"), (" dog", "dog"), ("Ａ", "a")],
)
def test_texts_that_differ_in_case_have_one_place(one: str, other: str) -> None:
    assert place_of(one) == place_of(other)
    assert place_of(one) != place_of(other + "s")


def test_the_end_has_time_for_all_checkpoints_that_are_averaged() -> None:
    progress = Progress(validation_seconds=6.0, writing_seconds=2.0)
    closing = []
    for count in (0, 2, 5):
        budget = Budget(TrainingConfig(minutes=1.0, average_last=count), 0.0)
        budget.measured(progress)
        budget.pace = 0.5
        closing.append(budget.closing)
    assert closing == pytest.approx([8.5, 8.5 + 6 + 4, 8.5 + 6 + 10])


def test_the_optimizer_state_of_another_model_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)

    def optimizer(*parameters: torch.nn.Parameter) -> torch.optim.Optimizer:
        made = torch.optim.Adam(parameters, 0.1)
        model(torch.ones(1, 2)).sum().backward()
        made.step()
        return made

    save_checkpoint(tmp_path, Progress(step=1), model, optimizer(model.weight, model.bias), None)
    path = checkpoint_path(tmp_path, 1)
    with pytest.raises(RunError, match="the optimizer state is for another model"):
        load_checkpoint(path, model, optimizer(model.weight), None)
    load_checkpoint(path, model, optimizer(model.weight, model.bias), None)


def test_present_stopping_waits_for_a_live_one_that_beats_the_worst() -> None:
    options = DecodingOptions(beam_size=2, n_best=2, stop="present")
    finished = FinishedHypotheses(options)
    finished.add(Hypothesis([3], -1.0, -1.0, True))
    assert not is_done(options, finished, -9.0), "as many as the beam is wide"
    finished.add(Hypothesis([4], -5.0, -5.0, True))
    assert not is_done(options, finished, -3.0)
    assert is_done(options, finished, -5.0) and is_done(options, finished, -6.0)
