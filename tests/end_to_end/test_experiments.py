"""The experiments of examples/ run, print a table, draw a picture, and show what they claim."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.stem for path in (ROOT / "examples").glob("[a-z]*.py"))
PAGES = ("experiments.md", "experiments.zh.md")


def run(name: str, place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an experiment in the directory `place`."""
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *options]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=280
    )


def rows_of(printed: str) -> list[list[str]]:
    """Cells of the one table on stdout, without its head."""
    lines = printed.splitlines()
    assert all(line.startswith("|") for line in lines), printed
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "word_order" else pytest.mark.slow)
        for name in SCRIPTS
        if name != "parallelism"
    ],
)
def test_an_experiment_prints_a_table_and_draws(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run(name, tmp_path, "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert len(rows_of(done.stdout)) >= 2
    assert "<svg" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")


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
def test_only_positions_tell_a_sentence_from_its_reverse(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run("word_order", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row[0]: row[1:] for row in rows_of(done.stdout)}
    moved = {kind: (float(row[0]), float(row[1])) for kind, row in rows.items()}
    right = {kind: float(row[2].removesuffix("%")) for kind, row in rows.items()}
    assert max(moved["none"]) < 1e-12
    assert moved["alibi"][0] < 1e-12 < 1e-3 < moved["alibi"][1]
    for kind in ("sinusoidal", "learned", "rotary"):
        assert min(moved[kind]) > 1e-3
        assert right[kind] > 95
    assert right["none"] < 60 > right["alibi"]


@pytest.mark.slow
def test_without_the_mask_a_low_loss_is_worth_nothing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run("no_mask", tmp_path)
    assert done.returncode == 0, done.stderr
    masked, unmasked = rows_of(done.stdout)
    assert float(unmasked[1]) < float(masked[1]) + 0.01
    assert float(masked[2]) > 2.2
    assert float(unmasked[2]) < 0.35
    assert float(masked[3].removesuffix("%")) > 90
    assert float(unmasked[3].removesuffix("%")) < 5


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_every_experiment_and_its_picture(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert sorted(re.findall(r"^python examples/(\w+)\.py$", text, re.MULTILINE)) == SCRIPTS
    assert sorted(re.findall(r"\]\(experiments/(\w+)\.(?:svg|png)\)", text)) == SCRIPTS


def test_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "experiments").iterdir())
    assert sorted(path.stem for path in pictures) == SCRIPTS
    assert max(path.stat().st_size for path in pictures) < 60_000
