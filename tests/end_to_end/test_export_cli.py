"""`transduce export` from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done

pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

Here = Callable[..., Done]


def test_export(here: Here, run: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    done = here("export", run, directory, "--format", "ctranslate2", "--precision", "int8")
    assert (done.code, done.lines) == (0, [str(directory)]), done.err
    assert (directory / "model.bin").is_file()
    again = here("export", run, directory)
    assert again.code == 1 and "exists; give another DIRECTORY" in again.complaint
    assert here("export", run, tmp_path / "other", "--format", "tflite").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_export_in_other_forms(here: Here, tmp_path: Path) -> None:
    run = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
    package, directory = tmp_path / "de-en.argosmodel", tmp_path / "marian"
    done = here("export", run, package, "--format", "argos", "--languages", "de-en")
    assert (done.code, done.lines) == (0, [str(package)]), done.err
    done = here("export", run, directory, "--format", "marian")
    assert (done.code, done.lines) == (0, [str(directory)]), done.err
    message = here(
        "export", run, tmp_path / "b.argosmodel", "--format", "argos", "--languages", "de"
    )
    assert message.code == 2 and "must be two codes with a hyphen: de-en" in message.complaint
    assert {path.name for path in tmp_path.iterdir()} == {"de-en.argosmodel", "marian"}
