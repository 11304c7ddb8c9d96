"""The experiments of examples/ run, print a table, draw a picture, and show what they claim."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.stem for path in (ROOT / "examples").glob("[a-z]*.py"))
PAGES = ("measurements/experiments.md", "measurements/experiments.zh.md")
SECONDS = 850
"""Maximum of one experiment: a minute on an idle core, many on a busy one."""


def run(name: str, place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an experiment in the directory `place`."""
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *options]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=SECONDS
    )


def rows_of(printed: str) -> list[list[str]]:
    """Cells of the one table on stdout, without its head."""
    lines = printed.splitlines()
    assert all(line.startswith("|") for line in lines), printed
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def answers(name: str, place: Path) -> list[list[str]]:
    """Rows of the table of an experiment with its default steps; it draws a picture, too."""
    pytest.importorskip("matplotlib")
    done = run(name, place)
    assert done.returncode == 0, done.stderr
    assert "<svg" in (place / f"{name}.svg").read_text(encoding="utf-8")
    return rows_of(done.stdout)


def percent(cell: str) -> float:
    return float(cell.split("%")[0])


def milliseconds(cell: str) -> float:
    return float(cell.split(", ")[1].removesuffix(" ms"))


def test_an_experiment_prints_a_table_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run("word_order", tmp_path, "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert len(rows_of(done.stdout)) == 5
    assert "<svg" in (tmp_path / "word_order.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_parallelism_prints_a_table_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run("parallelism", tmp_path, "--steps", "1", "--picture", "seconds.png")
    assert done.returncode == 0, done.stderr
    assert [row[2] for row in rows_of(done.stdout)] == ["256", "16,384", "8", "8"]
    assert (tmp_path / "seconds.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_matplotlib_is_one_line_after_the_table(tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError('not there')")
    command = [sys.executable, str(ROOT / "examples" / "word_order.py"), "--steps", "1"]
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert len(rows_of(done.stdout)) == 5
    assert done.stderr.splitlines() == [
        "the picture needs the extra 'plot'; in a clone of transduce: pip install '.[plot]' "
        "(docs/install.md)"
    ]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 50)
def test_only_positions_tell_a_sentence_from_its_reverse(tmp_path: Path) -> None:
    rows = {row[0]: row[1:] for row in answers("word_order", tmp_path)}
    moved = {kind: (float(row[0]), float(row[1])) for kind, row in rows.items()}
    right = {kind: percent(row[2]) for kind, row in rows.items()}
    assert max(moved["none"]) < 1e-12
    assert moved["alibi"][0] < 1e-12 < 1e-3 < moved["alibi"][1]
    for kind in ("sinusoidal", "learned", "rotary"):
        assert min(moved[kind]) > 1e-3
        assert right[kind] > 95
    assert right["none"] < 60 > right["alibi"]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 50)
def test_without_the_mask_a_low_loss_is_worth_nothing(tmp_path: Path) -> None:
    masked, unmasked = answers("no_mask", tmp_path)
    assert float(unmasked[1]) < float(masked[1]) + 0.01
    assert float(masked[2]) > 2.2
    assert float(unmasked[2]) < 0.35
    assert percent(masked[3]) > 90
    assert percent(unmasked[3]) < 5


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 50)
def test_only_one_layer_learns_without_residual_connections(tmp_path: Path) -> None:
    rows = answers("no_residual", tmp_path)
    assert all(percent(row[2]) > 90 for row in rows)
    assert percent(rows[0][4]) > 50 and all(percent(row[4]) < 5 for row in rows[1:])
    assert all(float(row[1]) < 0.5 * float(row[3]) for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 50)
def test_several_heads_or_layers_look_at_several_places(tmp_path: Path) -> None:
    one_head, *several, two_layers = answers("one_head", tmp_path)
    assert percent(one_head[2]) > 99 > 50 > percent(one_head[3])
    assert all(percent(row[3]) > 80 for row in [*several, two_layers])
    assert len({row[1] for row in [one_head, *several]}) == 1


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 50)
def test_wide_heads_need_the_division(tmp_path: Path) -> None:
    rows = answers("no_scaling", tmp_path)
    entropies = [(float(row[1]), float(row[3])) for row in rows]
    slopes = [(float(row[2]), float(row[4])) for row in rows]
    for scaled, unscaled in (zip(*entropies, strict=True), zip(*slopes, strict=True)):
        assert max(scaled) < 1.05 * min(scaled)
        assert list(unscaled) == sorted(unscaled, reverse=True)
        assert unscaled[-1] < 0.1 * unscaled[0]
    learnt = [row for row in rows if row[5]]
    assert [row[0] for row in learnt] == ["16", "64", "256"]
    assert all(percent(row[5]) > 95 for row in learnt)
    assert percent(learnt[-1][6]) < 20


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 50)
def test_lengths_beyond_those_of_training_are_not_copied(tmp_path: Path) -> None:
    rows = {row[0]: row[1:] for row in answers("longer_than_trained", tmp_path)}
    for nine, _, twelve, answer in rows.values():
        # Eight trainings, four seeds by two instruction sets: 80 to 100 %, and 0 to 38 %.
        assert percent(nine) > 65 and percent(twelve) < percent(nine) - 25
        assert set(answer) <= set("abcdefghij")
    assert percent(rows["rotary"][1]) > percent(rows["learned"][1])  # 80 to 94 %, and 0 %


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 50)
def test_wide_dot_products_need_the_division_and_additive_ones_cost_more(tmp_path: Path) -> None:
    rows = answers("additive_or_dot", tmp_path)
    for d, additive, dot, scaled in rows:
        if d != "16":
            assert percent(additive) > 95 and percent(scaled) > 95
            assert milliseconds(additive) > 10 * milliseconds(dot)
    assert percent(rows[1][2]) > 95 > percent(rows[3][2]) + 3


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_every_experiment_and_its_picture(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert sorted(re.findall(r"^python examples/(\w+)\.py$", text, re.MULTILINE)) == SCRIPTS
    assert sorted(re.findall(r"\]\(\.\./experiments/(\w+)\.(?:svg|png)\)", text)) == SCRIPTS


def test_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "experiments").iterdir())
    assert sorted(path.stem for path in pictures) == SCRIPTS
    assert max(path.stat().st_size for path in pictures) < 60_000
