"""Pictures of two coloured shapes, one above, below or beside the other, with captions.

    python recipes/captioning/draw.py DIRECTORY [--seed NUMBER] [--pictures NUMBER]

DIRECTORY/train.tsv, valid.tsv, test.tsv and new.tsv have one caption a line; each picture has two,
one from either shape.  The two things of a picture of test.tsv are never together in train.tsv and
valid.tsv; a picture of new.tsv has a thing whose shape never has its colour in the other files.
The same seed draws the same pictures.  Needs pillow, from the extra `vision`.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIZE, SIDE = 24, 9
"""Sides of a picture and of the square around a shape, in pixels."""
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 70, 230),
    "yellow": (240, 210, 40),
}
SHAPES = "square", "circle", "triangle", "cross"
OPPOSITE = {"above": "below", "below": "above", "left of": "right of", "right of": "left of"}
NEW = {("red", "triangle"), ("blue", "cross"), ("green", "circle"), ("yellow", "square")}

Thing = tuple[str, str]
"""A colour and a shape."""


def mask(shape: str) -> NDArray[np.bool_]:
    """Pixels (SIDE, SIDE) of a shape."""
    y, x = np.mgrid[:SIDE, :SIDE] - SIDE // 2
    return {
        "square": np.maximum(abs(x), abs(y)) <= SIDE // 2,
        "circle": x**2 + y**2 <= (SIDE // 2) ** 2 + 2,
        "triangle": 2 * abs(x) <= y + SIDE // 2,
        "cross": np.minimum(abs(x), abs(y)) <= 1,
    }[shape]


def drawn(first: Thing, relation: str, second: Thing, chance: random.Random) -> NDArray[np.uint8]:
    """Picture (SIZE, SIZE, 3) of two things anywhere in their halves, on a light ground."""
    picture = np.full((SIZE, SIZE, 3), chance.randint(215, 255), np.uint8)
    near, far, across = (chance.randint(0, SIZE // 2 - SIDE) for _ in range(3))
    far += SIZE // 2
    across += chance.randint(0, SIZE // 2 - SIDE)
    along = (far, near) if relation in ("below", "right of") else (near, far)
    for (colour, shape), at in zip((first, second), along, strict=True):
        top, left = (at, across) if relation in ("above", "below") else (across, at)
        picture[top : top + SIDE, left : left + SIDE][mask(shape)] = COLOURS[colour]
    return picture


def captions(first: Thing, relation: str, second: Thing) -> tuple[str, str]:
    """The two captions of a picture."""
    a, b = (f"a {colour} {shape}" for colour, shape in (first, second))
    return f"{a} {relation} {b}", f"{b} {OPPOSITE[relation]} {a}"


def things(chance: random.Random) -> dict[str, list[tuple[Thing, Thing]]]:
    """Pairs of things that the pictures of each split may have."""
    every = list(itertools.product(COLOURS, SHAPES))
    pairs = list(itertools.combinations_with_replacement([t for t in every if t not in NEW], 2))
    chance.shuffle(pairs)
    held_out, rest = pairs[: len(pairs) // 4], pairs[len(pairs) // 4 :]
    new = [(one, other) for one in every if one in NEW for other in every if other not in NEW]
    return {"train": rest, "valid": rest, "test": held_out, "new": new}


def write(
    directory: Path,
    name: str,
    count: int,
    pairs: Sequence[tuple[Thing, Thing]],
    chance: random.Random,
) -> None:
    """Draw the pictures of a split, and write its table."""
    (directory / name).mkdir(parents=True)
    rows = []
    for i in range(count):
        first, second = chance.sample(chance.choice(pairs), 2)
        relation = chance.choice(sorted(OPPOSITE))
        file = f"{name}/{i:04}.png"
        Image.fromarray(drawn(first, relation, second, chance)).save(directory / file)
        rows += (f"{file}\t{caption}\n" for caption in captions(first, relation, second))
    (directory / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")


def main() -> None:
    """Draw all splits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pictures", type=int, default=3000, help="to train on")
    given = parser.parse_args()
    if given.directory.exists():
        raise SystemExit(f"{given.directory} is there already; remove it first")
    chance = random.Random(given.seed)
    for name, pairs in things(chance).items():
        count = given.pictures if name == "train" else max(1, given.pictures // 6)
        write(given.directory, name, count, pairs, chance)


if __name__ == "__main__":
    main()
