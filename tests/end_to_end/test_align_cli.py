"""`transduce align`: links of pairs, and what they are worth against those of a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import transduce as library
from helpers.command_line import Done, some_words, transduce
from transduce.tasks.translation.alignment import AlignmentOptions, align_both_ways, align_pairs
from transduce.text.alignment import format_links

Here = Callable[..., Done]
LETTERS = ["--unit", "tokens"]
OPTIONS = AlignmentOptions(unit="tokens")
PAIRS = [*((word, word) for word in some_words(20, seed=8)), ("", ""), ("abc", "a")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Pairs, a tab between."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return path


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    """What belongs together: the letters of a word and those of its copy."""
    path = tmp_path / "gold"
    lines = [" ".join(f"{i}-{i}" for i in range(len(target))) for _, target in PAIRS]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_one_line_for_each_pair_wherever_they_come_from(
    here: Here, run: Path, file: Path, tmp_path: Path
) -> None:
    lines = here("align", run, file, *LETTERS).lines
    translator = library.load(run).translator
    assert lines == [format_links(pair.links) for pair in align_pairs(translator, PAIRS, OPTIONS)]
    assert lines[PAIRS.index(("", ""))] == ""
    assert transduce("align", run, "-", *LETTERS, stdin=file.read_bytes()).lines == lines
    source, target, output = tmp_path / "source", tmp_path / "target", tmp_path / "links"
    source.write_text("".join(f"{one}\n" for one, _ in PAIRS))
    target.write_text("".join(f"{other}\n" for _, other in PAIRS))
    done = here("align", run, "--source", source, "--target", target, "--output", output, *LETTERS)
    assert done.lines == []
    assert output.read_text().splitlines() == lines


def test_two_directions_are_joined(here: Here, run: Path, twin: Path, file: Path) -> None:
    both = [library.load(one).translator for one in (run, twin)]
    for method in ("intersection", "union", "grow-diag"):
        done = here("align", run, file, *LETTERS, "--reverse", twin, "--method", method)
        result = align_both_ways(*both, PAIRS, method, OPTIONS)
        assert done.lines == [format_links(one.links) for one in result]


def test_links_are_scored(here: Here, run: Path, file: Path, gold: Path, tmp_path: Path) -> None:
    output = tmp_path / "links"
    result = here("align", run, file, *LETTERS, "--against", gold, "--output", output, "--json")
    scores = json.loads(result.lines[0])
    assert len(result.lines) == 1 and scores["pairs"] == len(PAIRS)
    assert output.read_text().splitlines() == here("align", run, file, *LETTERS).lines
    assert here("align", output, "--against", gold, "--json").lines == result.lines
    perfect = json.loads(here("align", gold, "--against", gold, "--json").lines[0])
    assert perfect["aer"] == 0.0 and perfect != scores


def test_what_cannot_be_scored_leaves_no_links(
    here: Here, run: Path, file: Path, gold: Path, tmp_path: Path
) -> None:
    output = tmp_path / "links"
    scored = ["align", run, file, *LETTERS, "--against", gold, "--output", output]
    whole = gold.read_text()
    for text, expected in (
        (whole + "0-0\n", f"{len(PAIRS)}"),
        (whole.replace("0-0", "99-0", 1), "line 1: the link 99-0 is out of range"),
        (whole.replace("0-0", "0:0", 1), "line 1: '0:0' is not a link"),
    ):
        gold.write_text(text)
        assert expected in here(*scored).complaint
        assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["RUN", "--source", "FILE"], 2, "--source and --target must be given together"),
        (["RUN", "FILE", "--source", "FILE", "--target", "FILE"], 2, "give one of them"),
        (["RUN", "FILE", "--method", "union"], 2, "--method requires --reverse"),
        (["RUN", "FILE", "--json"], 2, "--json requires --against"),
        (["RUN", "FILE", "--heads", "all"], 2, "--heads: expected mean or the number of a head"),
        (["RUN", "FILE", "--heads", "9"], 2, "head 9 is out of range"),
        (["RUN", "FILE", "--threshold", "1"], 2, "Must be < 1"),
        (["FILE"], 2, "to evaluate its links, add --against"),
        (["FILE", "--against", "FILE", "--shifted"], 2, "only --against and --json apply to it"),
        (["RUN", "FILE", "--output", "FILE"], 2, "is also an input"),
    ],
)
def test_what_goes_together(
    here: Here, run: Path, file: Path, arguments: list[str], code: int, expected: str
) -> None:
    given = [{"RUN": run, "FILE": file}.get(word, word) for word in arguments]
    done = here("align", *given)
    assert done.code == code
    assert expected in done.complaint


def test_a_line_without_a_tab_is_named(here: Here, run: Path, file: Path) -> None:
    file.write_text("ab\tab\nabc\n")
    done = here("align", run, file)
    assert done.code == 1
    assert f"{file}: line 2: expected tab-separated source and target" in done.complaint
