"""`fit_memory`: the largest batches that fit, and a run that is as if they had been known."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import transduce
from helpers.kills import FAMILIES, write_family
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce.config import load_toml, merge
from transduce.data.batches import LargestBatches, TokenBatches
from transduce.data.documents import EncodedDocuments
from transduce.data.packing import PackedBatches
from transduce.errors import MemoryLimitError, RunError, SettingError
from transduce.training import fit_memory as module
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.fit_memory import (
    GIB,
    STEEPER,
    cut_step,
    find_budget,
    largest_extrapolated,
    largest_fitting,
)
from transduce.training.loss import LossSums
from transduce.training.memory import give_back_freed_memory, keep_freed_memory

MIB = 2**20


@given(st.integers(0, 70_000), st.integers(1, 2000), st.integers(0, 60_000))
def test_the_search_comes_close(most: int, smallest: int, more: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= most

    largest = smallest + more
    found = largest_fitting(fits, smallest, largest)
    assert all(smallest <= size <= largest for size in tried)
    assert len(tried) < 25
    if most < smallest:
        assert found == 0
    else:
        assert found <= min(most, largest)
        assert found + max(found // 16, 1) >= min(most, largest)


@given(
    rest=st.integers(0, 2000),
    constant=st.integers(0, 500),
    per_token=st.floats(0.001, 2),
    row=st.integers(1, 3000),
    more=st.integers(0, 500_000),
    room=st.integers(0, 8000),
)
def test_what_is_extrapolated_is_safe_and_not_timid(
    rest: int, constant: int, per_token: float, row: int, more: int, room: int
) -> None:
    """Of needs that grow by the token, and memory that was taken once and for all."""
    limit, asked = rest + room, []

    def peak(size: int) -> float:
        asked.append(rest + constant + per_token * size)
        return asked[-1]

    largest = row + more
    found = largest_extrapolated(peak, rest, row, largest, limit)
    assert max(asked[1:], default=0) <= max(limit, asked[0])
    assert len(asked) < 16
    if found:
        assert row <= found <= largest
        assert rest + constant + per_token * found <= limit * 1.0001
    else:
        assert rest + constant + per_token * row > limit
    if constant == 0 and rest + STEEPER**2 * per_token * (largest + 1) < limit:
        assert found == largest


def test_a_peak_that_earlier_steps_cover_is_believed_with_care() -> None:
    sizes: list[int] = []

    def peak(size: int) -> float:
        sizes.append(size)
        return 3000.0

    found = largest_extrapolated(peak, 1000.0, 10, 10**6, 11_000.0)
    assert sizes == [1024, 2048, 4096]
    assert found == 4096 + int(8000 / (STEEPER * 2000 / 4096))


@given(
    batch_tokens=st.integers(1, 5000),
    accumulate=st.integers(1, 8),
    row=st.integers(1, 300),
    share=st.floats(0.01, 1),
)
def test_a_step_that_is_cut_keeps_its_size(
    batch_tokens: int, accumulate: int, row: int, share: float
) -> None:
    rows = accumulate * max(batch_tokens // row, 1)
    fitting = max(int(share * rows), 1) * row
    cut = cut_step(batch_tokens, accumulate, row, fitting)
    assert cut.batch_tokens % row == 0 and cut.batch_tokens <= fitting
    fewest = -(-rows // (fitting // row))
    assert 0 <= cut.step - rows * row < cut.accumulate * row
    assert cut.accumulate <= (fewest if row == 1 else 2 * fewest)
    if row > 1 and any(rows % number == 0 for number in range(fewest, 2 * fewest + 1)):
        assert cut.step == rows * row


def test_packed_rows_are_not_lost_when_a_step_is_cut() -> None:
    """Eight rows, of which three fit: four batches of two, where three would make a step of six."""
    cut = cut_step(512, 1, 64, 200)
    assert (cut.batch_tokens, cut.accumulate, cut.step) == (128, 4, 512)


class Eater:
    """Takes so many bytes for each token of a batch."""

    d_model = 8

    def __init__(self, bytes_per_token: int, most: int = 10**9) -> None:
        self.model = nn.Linear(1, 1)
        self.bytes, self.most, self.tried = bytes_per_token, most, list[int]()

    @property
    def batches(self) -> Eater:
        return self

    row = 1

    def largest(self, batch_tokens: int) -> LargestBatches[int]:
        return LargestBatches(max(batch_tokens, 16), [max(batch_tokens, 16)])

    def checksum(self) -> str:
        return "always the same"

    def loss(self, batch: int) -> LossSums:
        self.tried.append(batch)
        if batch > self.most:
            raise torch.OutOfMemoryError("no more")
        eaten = torch.ones(batch * self.bytes // 4)
        total = self.model(eaten[:1]).sum()
        return LossSums(total, total.detach(), batch)

    def describe(self, batch: int) -> str:
        return str(batch)


def budget_of(task: Eater, **settings: Any) -> tuple[int, int, str]:
    config = TrainingConfig(fit_memory=True, **settings)
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=0.0)
    said: list[str] = []
    before = [p.clone() for p in task.model.parameters()]
    found = find_budget(task, config, optimizer, Ranks(), said.append)
    assert all(map(torch.equal, before, task.model.parameters()))
    assert all(p.grad is None for p in task.model.parameters())
    (line,) = said
    return found.batch_tokens, found.accumulate, line


def test_memory_is_measured() -> None:
    """A step of 10,000 tokens takes 400 MB here; there is room for about half of it.

    What an earlier training freed, and kept, covers nothing of that.
    """
    give_back_freed_memory()
    limit = (module.resident() + 200 * MIB) / GIB
    keep_freed_memory()
    torch.ones(600 * MIB // 4)
    task = Eater(40_000)
    tokens, accumulate, line = budget_of(task, batch_tokens=5000, accumulate=2, memory_limit=limit)
    assert max(task.tried) <= 4096
    assert 2 <= accumulate <= 4
    assert tokens * accumulate == pytest.approx(10_000, abs=accumulate)
    assert tokens * 40_000 < 200 * MIB
    assert re.fullmatch(
        rf"fit_memory: batches of [\d,]+ tokens fit into [\d.]+ GiB; using "
        rf"training\.batch_tokens = {tokens} and training\.accumulate = {accumulate} for "
        rf"{tokens * accumulate:,} tokens per step",
        line,
    )


def test_all_of_a_step_at_once_where_it_fits() -> None:
    assert budget_of(Eater(40), batch_tokens=2000, accumulate=4)[:2] == (8000, 1)


def test_out_of_memory_is_noticed() -> None:
    """An error of the allocator ends the climbing; the last size that went well is taken."""
    assert budget_of(Eater(40, most=1500), batch_tokens=4096)[:2] == (1024, 4)


def test_not_even_a_row() -> None:
    expected = r"^fit_memory: a single row of 16 positions .*$"
    with pytest.raises(MemoryLimitError, match=expected):
        budget_of(Eater(40, most=3))


def test_a_machine_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_free", lambda: None)
    with pytest.raises(SettingError, match=r"set training\.memory_limit"):
        budget_of(Eater(40))


def test_free_memory_is_that_of_the_container(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable: 50 kB\n")
    assert module._free(tmp_path) == 50 * 1024
    group = tmp_path / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000\n")
    assert module._free(tmp_path) == 50 * 1024
    (group / "memory.max").write_text("5000\n")
    assert module._free(tmp_path) == 4000
    assert module._free(tmp_path / "nowhere") is None


widths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)


@given(widths, st.integers(1, 300))
def test_no_batch_is_larger_than_the_largest(sides: list[tuple[int, int]], tokens: int) -> None:
    source, target = (np.array(side, dtype=np.int32) for side in zip(*sides, strict=True))

    def sizes(rows: np.ndarray) -> tuple[int, int, int]:
        """Positions of the wider side, cells of the largest attention, real positions."""
        wide = max(source[rows].max(), target[rows].max())
        real = int(source[rows].sum() + target[rows].sum())
        return len(rows) * wide, len(rows) * wide * wide, real

    batches = TokenBatches((source, target), sizes, tokens, 1)
    found = batches.largest(tokens)
    most = [max(column) for column in zip(*found.batches, strict=True)]
    slack = (np.maximum(source, target).max() + tokens) / tokens  # of rows that are cut off whole
    epoch = itertools.islice(batches.iterate(), batches.batches_in(0))
    for batch, _ in epoch:
        assert all(size <= limit * slack * 2 for size, limit in zip(batch, most, strict=True))
    assert found.tokens <= max(tokens, int(np.maximum(source, target).max()))


@pytest.mark.parametrize("tokens", [1, 8, 20, 1000])
def test_the_largest_packed_batch(tokens: int) -> None:
    documents = EncodedDocuments(np.arange(60), np.array([0, 5, 30, 33, 60]), 0)
    batches = PackedBatches(documents, 8, 16, 1)
    found = batches.largest(tokens)
    (batch,) = found.batches
    assert batch.given.values.shape == (max(1, tokens // 8), 8)
    assert found.tokens == max(1, tokens // 8) * 8
    assert batch.target_tokens == int(batch.counted.sum())


def fit_parts(monkeypatch: pytest.MonkeyPatch, share: int) -> list[int]:
    """As if only a part of a step would fit, whatever the memory."""
    asked: list[int] = []

    def found(peak: Any, rest: float, row: int, largest: int, limit: float) -> int:
        peak(row)
        asked.append(largest)
        return max(row, largest // share)

    monkeypatch.setattr(module, "largest_extrapolated", found)
    return asked


@pytest.mark.parametrize("family", FAMILIES)
def test_the_run_is_that_of_a_recipe_with_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    recipe = write_family(tmp_path / "a", family, steps=3, validate_every=3)
    asked = fit_parts(monkeypatch, 3)
    recipe_settings = load_toml(recipe)
    run, _ = transduce.train(recipe, tmp_path / "run", ["training.fit_memory=true"])
    training = load_toml(run / "recipe.toml")["training"]
    whole = recipe_settings["training"].get("accumulate", 1) * 128
    assert asked == [whole]
    assert training["fit_memory"] is False
    assert 3 <= training["accumulate"] <= 7
    assert 0 <= training["batch_tokens"] * training["accumulate"] - whole < training["accumulate"]
    found = {name: training[name] for name in ("batch_tokens", "accumulate")}
    plain, _ = transduce.train(merge(recipe_settings, {"training": found}), tmp_path / "plain")
    name = "weights.safetensors"
    assert (run / name).read_bytes() == (plain / name).read_bytes()
    assert (run / "recipe.toml").read_bytes() == (plain / "recipe.toml").read_bytes()


@pytest.mark.parametrize("tokens", [256, 12], ids=["many rows", "a row is more than half a step"])
def test_resumed_without_another_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(200))
    tiny = tiny_settings(data, f"training.batch_tokens={tokens}")
    asked = fit_parts(monkeypatch, 2)
    fitting = ["training.fit_memory=true", "training.keep_last=5"]
    run, _ = transduce.train(tiny, tmp_path / "run", [*fitting, "training.steps=6"])
    whole, _ = transduce.train(tiny, tmp_path / "whole", fitting)
    assert len(asked) == 2
    transduce.train(tiny, run, fitting, resume=True)
    assert len(asked) == 2
    found = load_toml(run / "recipe.toml")["training"]
    assert (found["batch_tokens"], found["accumulate"]) == (tokens // 2, 2)
    assert load_toml(run / "recipe.toml") == load_toml(whole / "recipe.toml")
    name = "weights.safetensors"
    assert (run / name).read_bytes() == (whole / name).read_bytes()
    with pytest.raises(SettingError, match=r"begun with other settings of 'training\.batch_tokens"):
        transduce.train(tiny, run, [*fitting, "training.accumulate=7"], resume=True)


def test_what_was_noted_and_is_damaged_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that the run itself still knows; what another hand wrote there is not trained with."""
    tiny = tiny_settings(write_tsv(tmp_path / "pairs.tsv", reversal_pairs(200)))
    fit_parts(monkeypatch, 2)
    fitting = ["training.fit_memory=true", "training.steps=2", "training.validate_every=1"]
    run, _ = transduce.train(tiny, tmp_path / "run", fitting)
    before, noted = (run / "recipe.toml").read_bytes(), run / "fitted.json"
    whole = noted.read_text(encoding="utf-8")
    for damage in ("", "[1]", '{"asked": 3}'):
        noted.write_text(damage, encoding="utf-8")
        with pytest.raises(
            RunError, match=r"fitted\.json is damaged; `transduce train .* --resume"
        ):
            transduce.train(tiny, run, fitting, resume=True)
    noted.write_text(whole.replace('"accumulate": 2', '"accumulate": -3'), encoding="utf-8")
    with pytest.raises(SettingError, match="begun with other settings"):
        transduce.train(tiny, run, fitting, resume=True)
    assert (run / "recipe.toml").read_bytes() == before
    assert transduce.train(run, run, ["training.steps=3"], resume=True)[1].step == 3


def test_killed_during_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tiny_settings(write_tsv(tmp_path / "pairs.tsv", reversal_pairs(200)))
    asked = fit_parts(monkeypatch, 2)
    original = module.largest_extrapolated

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "largest_extrapolated", interrupted)
    with pytest.raises(KeyboardInterrupt):
        transduce.train(tiny, tmp_path / "run", ["training.fit_memory=true"])
    monkeypatch.setattr(module, "largest_extrapolated", original)
    assert load_toml(tmp_path / "run" / "recipe.toml")["training"]["fit_memory"] is True
    transduce.train(tmp_path / "run", tmp_path / "run", resume=True)
    assert asked == [256]
    assert load_toml(tmp_path / "run" / "recipe.toml")["training"]["fit_memory"] is False
