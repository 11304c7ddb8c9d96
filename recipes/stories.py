"""Stories of people, things and places, with a question about a place: one or two supporting facts.

    TRANSDUCE_DATA=DIRECTORY python recipes/stories.py

writes DIRECTORY/stories/{one,two}-{train,valid,test}.tsv: question, story, answer.  In the manner
of the first two tasks of bAbI (Weston et al. 2015), in words of our own; the same files each time.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

PEOPLE = "anna", "bo", "carl", "dora"
PLACES = "kitchen", "garden", "cellar", "attic", "library", "garage"
THINGS = "lamp", "apple", "letter", "clock"
GOING = "went", "walked", "ran"
SIZES = {"train": 10_000, "valid": 1_000, "test": 1_000}

Example = tuple[str, str, str]


def one_fact(chance: random.Random) -> Example:
    """The place of a person: the last place that this person went to."""
    at: dict[str, str] = {}
    story = []
    for _ in range(chance.randint(3, 8)):
        person, place = chance.choice(PEOPLE), chance.choice(PLACES)
        at[person] = place
        story.append(f"{person} {chance.choice(GOING)} to the {place} .")
    person = chance.choice(sorted(at))
    return f"where is {person} ?", " ".join(story), at[person]


def two_facts(chance: random.Random) -> Example:
    """The place of a thing: the last place that the person with the thing went to."""
    while True:
        at: dict[str, str] = {}
        holder: dict[str, str] = {}
        story = []
        for _ in range(chance.randint(5, 10)):
            person, thing = chance.choice(PEOPLE), chance.choice(THINGS)
            if person in at and thing not in holder and chance.random() < 0.45:
                holder[thing] = person
                story.append(f"{person} took the {thing} .")
            else:
                at[person] = chance.choice(PLACES)
                story.append(f"{person} {chance.choice(GOING)} to the {at[person]} .")
        if holder:
            thing = chance.choice(sorted(holder))
            return f"where is the {thing} ?", " ".join(story), at[holder[thing]]


def examples(make: Callable[[random.Random], Example], seed: int) -> Iterator[Example]:
    """Examples without end, no question with the same story twice."""
    chance, seen = random.Random(seed), set()
    while True:
        one = make(chance)
        if one[:2] not in seen:
            seen.add(one[:2])
            yield one


def write(directory: Path, seed: int = 1) -> None:
    """Write all files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in (("one", one_fact), ("two", two_facts)):
        source = examples(make, seed)
        for split, size in SIZES.items():
            rows = ("\t".join(next(source)) + "\n" for _ in range(size))
            (directory / f"{name}-{split}.tsv").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    if "TRANSDUCE_DATA" not in os.environ or sys.argv[1:]:
        sys.exit(__doc__)
    write(Path(os.environ["TRANSDUCE_DATA"]) / "stories")
