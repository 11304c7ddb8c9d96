"""Parts of another package, installed beside this one, in every verb."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import transduce
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce.cli.main import main
from transduce.errors import TransduceError
from transduce.interop.models import IMPORTERS, import_directory
from transduce.localise.formats import FORMATS, read_document
from transduce.settings.sections import to_toml
from transduce.support.open_table import OpenTable
from transduce.tasks.table import TASKS

SOURCE = '''
from typing import Literal

from transduce.localise.plain import read_plain
from transduce.settings.sections import section
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.rows.translation import TRANSLATION


@section
class MirrorRecipe(TranslationRecipe):
    """Recipe of mirrors."""

    task: Literal["mirror"] = "mirror"


MIRROR = TRANSLATION._replace(recipe=MirrorRecipe)


def import_mirror(directory, config):
    raise ValueError("imported")


read_lrc = read_plain
'''
POINTS = """\
[transduce.tasks]
mirror = {module}:MIRROR
broken = {module}:NOTHING

[transduce.formats]
lrc = {module}:read_lrc

[transduce.importers]
mirror = {module}:import_mirror
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with parts of every kind, for this test."""
    module = "transduce_mirror"
    site = tmp_path / "site"
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / f"{module}.py").write_text(SOURCE)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS.format(module=module))
    monkeypatch.syspath_prepend(site)
    for table in (TASKS, FORMATS, IMPORTERS):
        monkeypatch.setattr(table, "data", dict(table.data))
        table.__dict__.pop("_points", None)
    yield
    sys.modules.pop(module, None)
    for table in (TASKS, FORMATS, IMPORTERS):
        table.__dict__.pop("_points", None)


def test_a_task_joins_the_verbs(
    package: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_tsv(tmp_path / "data.tsv", reversal_pairs(60))
    settings = tiny_settings(data, "training.steps=2", "training.validate_every=2")
    recipe = tmp_path / "mirror.toml"
    recipe.write_text(to_toml({**settings, "task": "mirror"}))
    run, lines = str(tmp_path / "run"), tmp_path / "lines.txt"
    lines.write_text("abc\nde\n")
    assert main(["train", str(recipe), "--run", run]) == 0
    assert transduce.load(run).recipe.task == "mirror"
    capsys.readouterr()
    for verb in (["translate", run, str(lines)], ["predict", run, str(lines)]):
        assert main(verb) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["evaluate", run, "--split", "valid"]) == 0
    assert main(["info", run]) == 0
    assert main(["explain", run, "abc", "--json"]) == 0


def test_a_format_and_an_importer_are_found(package: None, tmp_path: Path) -> None:
    assert ".lrc" in FORMATS and ".indd" not in FORMATS
    assert [s.source for s in read_document("song.lrc", b"hello\n").segments] == ["hello"]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mirror"}))
    with pytest.raises(ValueError, match="imported"):
        import_directory(tmp_path)


def test_a_part_that_cannot_be_imported_names_its_package(package: None) -> None:
    with pytest.raises(TransduceError, match=r"transduce\.tasks of the package transduce_mirror"):
        TASKS["broken"]


def test_entry_points_are_read_for_unknown_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(group: str) -> list[None]:
        raise AssertionError(group)

    monkeypatch.setattr("importlib.metadata.entry_points", read)
    table = OpenTable("transduce.tasks", {"known": 1})
    assert table["known"] == 1 and "known" in table and list(table) == ["known"]
    with pytest.raises(AssertionError):
        table.get("other")
