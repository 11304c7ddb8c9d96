"""Nothing of the held-out data is in the training data of `transduce make`."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transduce.examination.corpora import folded
from transduce.making import build
from transduce.making.data import PHRASE, Request, prepare, read_prepared_split

SYLLABLES = ("ba", "de", "ki", "lo", "mu", "na", "po", "re", "si", "ta", "vu", "zo")


def phrase(chance: random.Random, words: int) -> str:
    return " ".join("".join(chance.choices(SYLLABLES, k=3)) for _ in range(words))


def test_near_copies_of_held_out_targets_are_no_training_data(tmp_path: Path) -> None:
    """Each target stands beside two unlike sources, once as it is and once in another dress."""
    chance = random.Random(1)
    pairs = []
    for _ in range(120):
        target = phrase(chance, PHRASE + 1)
        pairs.append((phrase(chance, PHRASE + 1), f"{target.capitalize()}."))
        pairs.append((phrase(chance, PHRASE + 1), target.upper()))
    prepared = prepare(pairs, tmp_path, 9)
    targets = {
        split: {folded(target) for _, target in read_prepared_split(path)}
        for split, path in prepared.paths.items()
    }
    assert all(targets.values())
    assert not targets["train"] & (targets["valid"] | targets["test"])
    held_out = prepared.counts["valid"] + prepared.counts["test"]
    assert held_out / 2 < prepared.dropped["near test"] <= held_out
    assert sum(prepared.counts.values()) + sum(prepared.dropped.values()) == prepared.read


def test_short_targets_may_be_in_both(tmp_path: Path) -> None:
    chance = random.Random(2)
    pairs = [(phrase(chance, PHRASE), phrase(chance, PHRASE - 1)) for _ in range(120)]
    pairs += [(phrase(chance, PHRASE), target) for _, target in pairs]
    prepared = prepare(pairs, tmp_path, 9)
    assert "near test" not in prepared.dropped


def test_near_copies_of_held_out_lines_are_not_back_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(3)
    pairs = [(phrase(chance, 5), f"{phrase(chance, 5).capitalize()}.") for _ in range(240)]
    prepared = prepare(pairs, tmp_path, 9)
    held_out = [
        target
        for split in ("valid", "test")
        for _, target in read_prepared_split(prepared.paths[split])
    ]
    own = [f"{phrase(chance, 6)}." for _ in range(5)]
    lines = [*held_out, own[0], *map(str.upper, held_out), *own[1:], *(t[:-1] for t in held_out)]
    monolingual = tmp_path / "mono.txt"
    monolingual.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    translated: list[str] = []
    monkeypatch.setattr(
        build, "make_pairs", lambda run, job, *_, **__: translated.extend(job.texts())
    )
    request = Request((), 9.0, monolingual=str(monolingual))
    maker: Any = SimpleNamespace(plan=SimpleNamespace(request=request), prepared=prepared)
    reverse: Any = SimpleNamespace(translate_batch=lambda texts, options: texts)
    assert build.Maker._translated(maker, reverse, tmp_path / "made", 60.0) == len(own)
    assert translated == own
