"""Paths are interpreted once, where a user's recipe is parsed; a run keeps them as they are."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import transduce
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce.errors import RunError, SettingError
from transduce.experiments.sweep import sweep
from transduce.recipes import as_recipe, read_recipe
from transduce.settings.sections import to_dict, to_toml
from transduce.tasks.recipe import base_settings
from transduce.tasks.translation.recipe import TranslationRecipe, read_pairs_of

ODD = ["a$b", "~", """ it's "${b}" and $$ ä\\b ''' """]


@pytest.fixture(params=ODD)
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of such a name, with pairs and a recipe in it; it is the working directory."""
    home = tmp_path / request.param
    home.mkdir()
    write_tsv(home / "pairs.tsv", reversal_pairs(60))
    settings = tiny_settings(Path("pairs.tsv"), "training.steps=2", "training.validate_every=1")
    (home / "recipe.toml").write_text(to_toml(settings), encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(home)
    return home


def other_pairs(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pairs, where a second reading of the path would look for them."""
    monkeypatch.setenv("b", "XX")
    other = Path(os.path.expandvars(str(odd)))
    if other != odd:
        other.mkdir()
        write_tsv(other / "pairs.tsv", [(source, "z") for source, _ in reversal_pairs(60)])


@pytest.mark.system
def test_a_run_reads_what_it_was_trained_on(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = transduce.train("recipe.toml", "run")
    before = transduce.load(run).evaluate("valid")
    other_pairs(odd, monkeypatch)
    monkeypatch.chdir("/")
    recipe = read_recipe(odd / "run")
    assert recipe.data.root == str(odd)  # type: ignore[attr-defined]
    assert transduce.load(odd / "run").evaluate("valid").references == before.references
    more = ("training.steps=3",)
    _, outcome = transduce.train(odd / "run", odd / "run", more, resume=True)
    assert outcome.step == 3
    file = odd / "run" / "recipe.toml"
    _, outcome = transduce.train(file, odd / "run", ("training.steps=4",), resume=True)
    assert outcome.step == 4 and read_recipe(odd / "run").data == recipe.data


@pytest.mark.system
def test_the_run_to_start_from_and_a_tokenizer(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transduce.train("recipe.toml", "base")
    tuned, _ = transduce.train("recipe.toml", "tuned", ["fine_tune.run=base"])
    tokenizers = [
        'text.source={kind="file", path="base/source_tokenizer.json"}',
        'text.target={kind="file", path="base/target_tokenizer.json"}',
    ]
    with_file, _ = transduce.train("recipe.toml", "file", tokenizers)
    monkeypatch.setenv("b", "XX")
    monkeypatch.chdir("/")
    assert read_recipe(odd / tuned).fine_tune.run == str(odd / "base")  # type: ignore[attr-defined]
    found = read_recipe(odd / with_file)
    assert found.text.source.path == str(odd / "base" / "source_tokenizer.json")  # type: ignore[attr-defined]
    # what another run says of its files is not the user's recipe either
    text = base_settings(odd / with_file)["text"]
    assert TranslationRecipe.parse({**to_dict(found), "text": text}, "").text == found.text  # type: ignore[attr-defined]
    for run in (tuned, with_file):
        again = ("training.steps=3",)
        assert transduce.train(odd / run, odd / run, again, resume=True)[1].step == 3
        shutil.rmtree(odd / run)


@pytest.mark.system
def test_a_sweep(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = "seed=1,2"
    absolute = str(odd / "pairs.tsv").replace("$", "$$")
    done = sweep(Path("recipe.toml"), [values, f"data.train.path={absolute}"], Path("sweep"))
    assert not done.failed
    other_pairs(odd, monkeypatch)
    shutil.rmtree("sweep/002")
    Path("sweep/study.journal").unlink()
    monkeypatch.chdir("/")
    done = sweep(odd / "sweep", resume=True)
    assert not done.failed and len(done.runs) == 2
    for run in done.runs:
        data = read_recipe(run.path).data
        assert data.root == str(odd) and data.train.path == odd / "pairs.tsv"  # type: ignore[attr-defined]
    done = sweep(odd / "sweep" / "001", [values], odd / "again")
    assert not done.failed
    assert read_recipe(odd / "again" / "001").data.root == str(odd)  # type: ignore[attr-defined]


def test_what_a_variable_holds_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("b", "XX")
    monkeypatch.setenv("HERE", f"{tmp_path}/a$b")
    monkeypatch.setenv("HOME", f"{tmp_path}/h$b")
    overrides = ("data.root=$HERE", "data.train.path=~/x.tsv")
    recipe, _ = as_recipe(tiny_settings(Path("a.tsv")), overrides)
    again, _ = as_recipe(recipe, ())  # as it is: a parsed recipe
    assert again.data == recipe.data
    assert recipe.data.root == f"{tmp_path}/a$b"  # type: ignore[attr-defined]
    assert recipe.data.train.path == tmp_path / "h$b" / "x.tsv"  # type: ignore[attr-defined]
    recipe, _ = as_recipe(tiny_settings(Path("a.tsv")), ("data.root=/x/$$b/${b}$$",))
    assert recipe.data.root == "/x/$b/XX$"  # type: ignore[attr-defined]


@pytest.mark.system
def test_a_run_loads_whatever_its_data_paths_are(tmp_path: Path) -> None:
    file = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
    run, _ = transduce.train(tiny_settings(file, "training.steps=1"), tmp_path / "run")
    recipe = run / "recipe.toml"
    text = recipe.read_text(encoding="utf-8").replace(str(file), "/gone/$NOWHERE_AT_ALL/~/a")
    recipe.write_text(text, encoding="utf-8")
    loaded = transduce.load(run)
    assert list(loaded.translate(["ab"]))
    with pytest.raises(transduce.DataError, match=r"/gone/\$NOWHERE_AT_ALL/~/a: no such file"):
        list(read_pairs_of(loaded.recipe.data, "train"))  # type: ignore[attr-defined]
    unset = "data.train.path='$NOWHERE_AT_ALL/x'"  # an override is the user's
    with pytest.raises(
        SettingError, match=r"data.train.path: the environment variable NOWHERE_AT_ALL"
    ):
        transduce.train(run, run, [unset], resume=True)


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
class TestNamesThatAreNotUtf8:
    @pytest.mark.system
    def test_are_refused_at_the_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        strange = tmp_path / os.fsdecode(b"caf\xe9")
        strange.mkdir()
        file = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
        settings = tiny_settings(file, "training.steps=1")
        with pytest.raises(RunError, match=r"caf.*is not valid UTF-8.*rename"):
            transduce.train(settings, strange / "run")
        assert not list(strange.iterdir())
        run, _ = transduce.train(settings, tmp_path / "run")
        moved = run.rename(strange / "run")
        with pytest.raises(RunError, match=r"caf.*is not valid UTF-8.*rename"):
            transduce.load(moved)
        monkeypatch.chdir(strange)
        assert transduce.load("run").path == Path("run")
        with pytest.raises(SettingError, match=r"data.root: '.*caf.*is not (valid )?UTF-8"):
            as_recipe(settings, ())
        with pytest.raises(SettingError, match=r"data.train.path: '.*is not (valid )?UTF-8"):
            as_recipe(settings, [f"data.train.path={strange}/a.tsv", "data.root=/"])


def test_another_kind_by_an_override_says_that_it_replaces(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path / "a.tsv", "data.train.kind=jsonl", "data.train.path=a.jsonl")
    with pytest.raises(SettingError) as caught:
        as_recipe(settings, ["data.train.kind=tsv"])
    assert str(caught.value) == (
        "recipe: data.train.path is missing; kind = 'tsv' replaces the section, so give it too"
    )
