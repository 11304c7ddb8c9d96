"""Run directories made by earlier versions load in this one, and say what they said then."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import transduce
from helpers.answers import close

KEPT = Path(__file__).parents[1] / "runs"
CASES = [
    (run.name, case)
    for run in sorted(KEPT.iterdir())
    if (run / "expected.json").is_file()
    for case in json.loads((run / "expected.json").read_text(encoding="utf-8"))
]


def test_something_is_kept() -> None:
    assert ("0.1.0", "translation") in CASES and ("0.1.0", "classification") in CASES


@pytest.mark.parametrize(("version", "task"), CASES)
def test_loads_and_answers(version: str, task: str) -> None:
    expected = json.loads((KEPT / version / "expected.json").read_text(encoding="utf-8"))[task]
    run = transduce.load(KEPT / version / task, "cpu")
    answers = list(run.predict([case["input"] for case in expected]))
    for case, answer in zip(expected, answers, strict=True):
        right = {name: value for name, value in case.items() if name != "input"}
        assert close(answer.fields(), right), (answer, case)
    assert run.info()["task"] == task


@pytest.mark.system
def test_loading_imports_no_compiler() -> None:
    """It takes PyTorch's two seconds to import, and drawing weights without memory does so."""
    asked = "import sys, transduce\nfor run in sys.argv[1:]: transduce.load(run, 'cpu')\n"
    asked += "print('torch._dynamo' in sys.modules)"
    runs = [str(KEPT / version / task) for version, task in CASES]
    done = subprocess.run([sys.executable, "-c", asked, *runs], check=True, capture_output=True)
    assert done.stdout.strip() == b"False"
