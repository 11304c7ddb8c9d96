"""A sweep and a comparison as their users meet them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from helpers.command_line import Done, command, environment, transduce
from helpers.waiting import wait_for
from transduce.errors import RunError
from transduce.runs.directory import locked

Here = Callable[..., Done]
PEAKS = "training.schedule.peak=1e-3,1e-2"


@pytest.fixture(scope="module")
def swept(recipe: Path) -> Done:
    """`transduce sweep` over two values."""
    directory = recipe.parent / "runs" / "swept"
    return transduce("sweep", recipe, "--set", PEAKS, "training.steps=20", "--runs", directory)


@pytest.fixture(scope="module")
def directory(recipe: Path, swept: Done) -> Path:
    assert swept.code == 0, swept.err
    return recipe.parent / "runs" / "swept"


def test_a_sweep_ends_with_one_table(swept: Done, directory: Path) -> None:
    head, one, two, blank, best = swept.lines
    assert head.split() == [
        "run",
        "training.schedule.peak",
        *["steps", "best", "step", "loss", "seconds"],
    ]
    assert one.split()[:4] == ["001", "0.001", "20", "20"]
    assert two.split()[:4] == ["002", "0.01", "20", "20"]
    assert blank == "" and best == f"best by loss: {directory / '002'}"
    assert float(two.split()[4]) < float(one.split()[4])
    assert f"{directory / '002'} training.schedule.peak=0.01" in swept.err


def test_resuming_trains_nothing_twice(here: Here, swept: Done, directory: Path) -> None:
    again = here("sweep", directory, "--resume")
    assert (again.code, again.out) == (0, swept.out)
    assert "step 20" not in again.err
    result = json.loads(here("sweep", directory, "--resume", "--json").out)
    assert result["best"] == str(directory / "002") and result["select_by"] == "loss"
    assert [run["settings"] for run in result["runs"]] == [
        {"training.schedule.peak": 0.001},
        {"training.schedule.peak": 0.01},
    ]
    assert all(run["error"] is None and run["scores"]["loss"] > 0 for run in result["runs"])


def test_failures_are_named_and_the_exit_code_says_so(
    here: Here, recipe: Path, tmp_path: Path
) -> None:
    peaks = "training.schedule.peak=1e30,1e-3"
    done = here("sweep", recipe, "--set", peaks, "training.steps=20", "--runs", tmp_path / "s")
    assert done.code == 1
    assert done.err.endswith("transduce: 1 of 2 runs failed\n")
    assert "Traceback" not in done.err
    reasons = [line for line in done.lines if line.startswith(f"{tmp_path / 's' / '001'} failed: ")]
    assert len(reasons) == 1 and "lower the learning rate" in reasons[0]
    assert done.lines[-1] == f"best by loss: {tmp_path / 's' / '002'}"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--set", "training.steps=1"], 2, "no setting varies"),
        (["--set", "training.step=1,2"], 2, "did you mean 'steps'"),
        (["--set", "training.schedule.peak=1e-4..1e-2"], 2, "add --search"),
        (["--jobs", "0"], 2, "Must be >= 1"),
    ],
)
def test_wrong_usage_is_one_line(
    here: Here, recipe: Path, tmp_path: Path, arguments: list[str], code: int, expected: str
) -> None:
    done = here("sweep", recipe, *arguments, "--runs", tmp_path / "s")
    assert done.code == code and expected in done.complaint
    assert not (tmp_path / "s").exists()


def test_several_at_a_time_stop_with_checkpoints_and_go_on(recipe: Path, tmp_path: Path) -> None:
    arguments = ["sweep", recipe, "--runs", tmp_path / "s", "--jobs", 2]
    settings = ["--set", "training.steps=200", "training.log_every=1", PEAKS]
    with subprocess.Popen(
        command(*arguments, *settings), stderr=subprocess.PIPE, env=environment()
    ) as process:
        logs = [tmp_path / "s" / name / "metrics.jsonl" for name in ("001", "002")]
        while not all(log.is_file() and log.stat().st_size for log in logs):
            with pytest.raises(subprocess.TimeoutExpired):  # it is still at work
                process.wait(timeout=0.1)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        message = process.stderr.read().decode()
    assert process.returncode == 128 + signal.SIGTERM
    assert message.endswith("transduce: stopped with checkpoints; continue with --resume\n")
    assert "Traceback" not in message
    done = transduce("sweep", tmp_path / "s", "--jobs", 2, "--resume")
    assert done.code == 0, done.err
    assert sorted(line.split()[0] for line in done.lines[1:3]) == ["001", "002"]
    output = (tmp_path / "s" / "001.log").read_text()
    assert "resuming after step" in output


def test_runs_end_with_a_sweep_that_is_killed(recipe: Path, tmp_path: Path) -> None:
    arguments = ["sweep", recipe, "--runs", tmp_path / "s", "--jobs", 2]
    settings = ["--set", "training.steps=100_000", "training.log_every=1", "seed=1,2"]
    logs = [tmp_path / "s" / name / "metrics.jsonl" for name in ("001", "002")]
    with subprocess.Popen(command(*arguments, *settings), env=environment()) as process:
        wait_for(lambda: all(log.is_file() and log.stat().st_size for log in logs))
        process.kill()
    for log in logs:
        wait_for(partial(is_free, log.parent))
        assert list((log.parent / "checkpoints").iterdir())
        assert "Traceback" not in (tmp_path / "s" / f"{log.parent.name}.log").read_text()


def is_free(run: Path) -> bool:
    """Whether no process trains there."""
    try:
        with locked(run):
            return True
    except RunError:
        return False


def test_runs_side_by_side(here: Here, directory: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curves.svg"
    runs = directory / "001", directory / "002"
    done = here("compare", *runs, "--plot", picture)
    assert done.code == 0, done.err
    assert done.lines[:3] == [
        "differing settings",
        "                          001   002",
        "training.schedule.peak  0.001  0.01",
    ]
    assert "scores on test; differences from 001" in done.lines
    assert (
        sum(line.startswith("002 ") and line.count("[") == 2 for line in done.lines) == 3
    )  # metrics
    assert ">001</text>" in picture.read_text()
    assert here("compare", directory, "--split", "none").lines[:3] == done.lines[:3]
    result = json.loads(here("compare", *runs, "--json", "--split", "valid").out)
    assert result["settings"] == {"training.schedule.peak": [0.001, 0.01]}
    assert [run["best_step"] for run in result["runs"]] == [20, 20]
    first, second = result["evaluations"]
    assert first["items"] == second["items"] > 0 and first["against_first"] == {}
    for one in (first, second):
        for name, (low, high) in one["intervals"].items():
            assert low <= one["scores"][name] <= high
        assert set(one["intervals"]) == set(second["against_first"]) != set()
    # The same figures as `evaluate --against` gives.
    options = ["--split", "valid", "--against", runs[0], "--json"]
    alone = json.loads(here("evaluate", runs[1], *options).out)
    assert second["scores"]["chrf"] == alone["chrf"]
    for name, numbers in second["against_first"].items():
        assert numbers == {key: alone["against"][name][key] for key in numbers}


def test_one_run_is_shown_by_itself(here: Here, directory: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    done = here("compare", directory / "001", "--plot", picture, "--split", "valid")
    assert done.code == 0, done.err
    assert done.lines[0] == "training, and validation scores of the best step"
    assert "scores on valid" in done.lines and "difference" not in "".join(done.lines)
    assert ">001</text>" in picture.read_text()
    (one,) = json.loads(here("compare", directory / "001", "--json").out)["evaluations"]
    assert one["items"] > 0 and one["against_first"] == {}


def test_comparing_draws_nothing_unasked(here: Here, directory: Path) -> None:
    assert "nothing to compare" in here("compare").complaint
    program = (
        "import sys; from transduce.cli.main import main\n"
        f"main(['compare', {str(directory / '001')!r}, {str(directory / '002')!r}, "
        "'--split', 'none'])\n"
        "assert not {'matplotlib', 'optuna'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_what_cannot_be_tested_is_still_compared(
    here: Here, directory: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in (directory / "002").glob("*.*"):
        if file.is_file():
            (other / file.name).write_bytes(file.read_bytes())
    recipe = other / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("pairs.tsv", "gone.tsv"))
    done = here("compare", directory / "001", other)
    assert done.code == 0
    assert done.lines[-1].startswith("other: ") and "gone.tsv" in done.lines[-1]
    (other / "weights.safetensors").unlink()  # as of a run that failed
    done = here("compare", directory / "001", other)
    assert done.code == 0
    assert done.lines[-1].startswith("other: ") and "weights.safetensors" in done.lines[-1]
