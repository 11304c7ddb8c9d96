"""Names that others chose stand in lines and on terminals: each is one printable line."""

import json
import logging
from pathlib import Path

import pytest

from helpers.labelled_images import settings as image_settings
from helpers.tiny_run import tiny_settings, write_tsv
from transduce.cli.console import log_to_stderr
from transduce.data.labelled import LabelledJsonLines, read_labelled
from transduce.data.pairs import TabSeparated, read_pairs
from transduce.errors import DataError, RunError, printable, printable_name
from transduce.interop.read import Config
from transduce.recipes import parse_recipe
from transduce.support.tables import table
from transduce.tasks.labels import load_labels
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.training import encoded_pairs, vocabularies
from transduce.vision.splits import labels_set

HOSTILE = {
    "neg\nx": "neg x",
    "\x1b[31mred\x1b[0m": r"\x1b[31mred\x1b[0m",
    "one\u2028two\u2029": "one two",
    "a\x9bb\x7f": r"a\x9bb\x7f",
    "\u202eevil": r"\u202eevil",
    " two\t tabs ": "two tabs",
    "\ud800": r"\ud800",
    "می\u200cخواهم": "می\u200cخواهم",
    "👩\u200d🚀": "👩\u200d🚀",
}


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_labels(name: str, tmp_path: Path) -> None:
    right = HOSTILE[name]
    assert printable_name(name) == right == printable_name(right)
    assert (
        len(right.splitlines()) == 1
        and right.replace("\u200c", "").replace("\u200d", "").isprintable()
    )
    (tmp_path / "labels.json").write_text(json.dumps([name, "other"]))
    assert load_labels(tmp_path) == (right, "other")
    config = Config({"id2label": {"0": name, "1": "other"}}, Path("config.json"))
    assert config.labels() == (right, "other")
    images = {"kind": "folder", "path": "x", "labels": [right, "other"]}
    assert labels_set(parse_recipe(image_settings(images), "r").data) == [right, "other"]
    if name == "\ud800":  # no text, so it is refused there
        return
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "t", "label": f"{name} 1"}) + "\n")
    (found,) = read_labelled(LabelledJsonLines(path=Path("a.jsonl")), tmp_path)
    assert found.label == f"{right} 1"


@pytest.mark.parametrize("labels", [["a b", "a\nb"], ["a", ""], ["a", " \n"]])
def test_labels_alike_or_blank_are_damaged(tmp_path: Path, labels: list[str]) -> None:
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    with pytest.raises(RunError, match="expected a list of distinct names"):
        load_labels(tmp_path)


def test_what_is_logged_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("transduce")
    before = logger.handlers, logger.propagate, logger.level
    try:
        log_to_stderr()
        logger.warning("%s: gone", Path("a\x1b]0;title\x07.tsv"))
        logger.info("two\nlines\x9b")
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])
    assert capsys.readouterr().err == "warning: a\\x1b]0;title\\x07.tsv: gone\ntwo\nlines\\x9b\n"
    assert list(table(["run"], [["a\x1b[2J"]])) == ["run", "a\\x1b[2J"]
    assert printable("ok\u200d") == "ok\u200d"


def test_messages_name_the_file_that_was_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "t", "label": " "}\n')
    with pytest.raises(DataError) as caught:
        list(read_labelled(LabelledJsonLines(path=Path("a.jsonl")), tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/a.jsonl: row 1 has no label")
    write_tsv(tmp_path / "a.tsv", [("a", "b", "<x>")])
    with pytest.raises(DataError) as caught:
        list(read_pairs(TabSeparated(path=Path("a.tsv"), tag_columns=(2,)), tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/a.tsv: pair 1 has an invalid tag")


@pytest.mark.parametrize(
    ("sources", "share", "remedy"),
    [
        (["one source"] * 500, 0.02, "set data.valid, since 1 distinct examples"),
        ([f"source {i}" for i in range(40)], 1e-6, "raise data.hold_out, or set data.valid"),
    ],
)
def test_the_remedy_where_nothing_is_held_out_helps(
    sources: list[str], share: float, remedy: str, tmp_path: Path
) -> None:
    data = write_tsv(tmp_path / "a.tsv", [(source, f"t {i}") for i, source in enumerate(sources)])
    recipe = TranslationRecipe.parse(tiny_settings(data, f"data.hold_out={share}"), "r")
    (tmp_path / "run").mkdir()
    with pytest.raises(DataError, match=f"no validation data.*; {remedy}"):
        encoded_pairs(recipe, *vocabularies(recipe, tmp_path / "run"), tmp_path / "cache")
