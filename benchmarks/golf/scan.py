"""SCAN by its grammar: all commands with their actions, and the splits by length and by `jump`.

Lake and Baroni (2018), "Generalization without systematicity".
"""

import itertools
from collections.abc import Iterator

Pair = tuple[str, str]
ACTIONS = {"walk": "I_WALK", "look": "I_LOOK", "run": "I_RUN", "jump": "I_JUMP"}
TURNS = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
LONGEST = 22
"""Actions of training in the split by length, at most."""
PRIMITIVES = 1_467
"""Copies of `jump` alone in training of the split by it: a tenth."""
COUNTS = {"length": (16_990, 3_920), "jump": (14_670, 7_706)}
"""Pairs of training and test, as published."""


def verb_phrases() -> Iterator[Pair]:
    """Verbs with directions."""
    verbs = {**ACTIONS, "turn": ""}
    for verb, action in verbs.items():
        if action:
            yield verb, action
        for direction, turn in TURNS.items():
            step = f"{turn} {action}".strip()
            yield f"{verb} {direction}", step
            yield f"{verb} opposite {direction}", f"{turn} {step}"
            yield f"{verb} around {direction}", " ".join([step] * 4)


def sentences() -> Iterator[Pair]:
    """Phrases, once, twice or thrice."""
    for (phrase, actions), (word, times) in itertools.product(
        verb_phrases(), (("", 1), (" twice", 2), (" thrice", 3))
    ):
        yield phrase + word, " ".join([actions] * times)


def commands() -> Iterator[Pair]:
    """All commands: sentences, and two of them joined by `and` or `after`."""
    yield from sentences()
    for (first, before), (second, after) in itertools.product(sentences(), repeat=2):
        yield f"{first} and {second}", f"{before} {after}"
        yield f"{first} after {second}", f"{after} {before}"


def split(name: str) -> tuple[list[Pair], list[Pair]]:
    """Training and test of the split "length" or "jump", with the published counts."""
    every = sorted(commands())
    if name == "length":
        held_out = [pair for pair in every if len(pair[1].split()) > LONGEST]
        train = [pair for pair in every if len(pair[1].split()) <= LONGEST]
    else:
        held_out = [pair for pair in every if "jump" in pair[0].split() and pair[0] != "jump"]
        train = [pair for pair in every if "jump" not in pair[0].split()]
        train += [("jump", ACTIONS["jump"])] * PRIMITIVES
    assert (len(train), len(held_out)) == COUNTS[name], (len(train), len(held_out))
    return train, held_out
