"""recipes/captioning/draw.py: pictures show what captions say; some things stay unseen."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "recipes" / "captioning" / "draw.py"


def draw(directory: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["draw.py", str(directory), "--pictures", "30", *options])
    return runpy.run_path(str(SCRIPT), run_name="__main__")


def rows(directory: Path, split: str) -> list[list[str]]:
    lines = (directory / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def test_pictures_and_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra `vision`")
    names = draw(tmp_path / "a", monkeypatch)
    pairs: dict[str, set[frozenset[tuple[str, str]]]] = {}
    for split, count in (("train", 30), ("valid", 5), ("test", 5), ("new", 5)):
        table = rows(tmp_path / "a", split)
        assert len(table) == 2 * count
        for (file, caption), (same, turned) in zip(table[::2], table[1::2], strict=True):
            assert file == same
            first, relation, second = said(caption)
            assert said(turned) == (second, names["OPPOSITE"][relation], first)
            pairs.setdefault(split, set()).add(frozenset((first, second)))
            assert bool({first, second} & names["NEW"]) == (split == "new")
            picture = np.array(image.open(tmp_path / "a" / file))
            places = [centre(picture, names["COLOURS"][colour]) for colour, _ in (first, second)]
            if first[0] != second[0]:
                (top, left), (lower, right) = places
                shown = {"above": top < lower, "below": top > lower}
                shown |= {"left of": left < right, "right of": left > right}
                assert shown[relation]
    assert not pairs["test"] & (pairs["train"] | pairs["valid"])
    draw(tmp_path / "b", monkeypatch)
    assert rows(tmp_path / "a", "test") == rows(tmp_path / "b", "test")
    draw(tmp_path / "c", monkeypatch, "--seed", "2")
    assert rows(tmp_path / "a", "test") != rows(tmp_path / "c", "test")


def said(caption: str) -> tuple[tuple[str, str], str, tuple[str, str]]:
    words = caption.split()
    assert words[0] == words[-3] == "a"
    return (words[1], words[2]), " ".join(words[3:-3]), (words[-2], words[-1])


def centre(picture: Any, colour: tuple[int, int, int]) -> tuple[float, float]:
    y, x = np.nonzero((picture == colour).all(-1))
    return float(y.mean()), float(x.mean())
