"""The command line as its users meet it: help, usage, training, damaged runs."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, command, environment, transduce
from transduce.cli.main import MODULES, VERBS, build_app, name_in_python, with_plain_hyphens
from transduce.decoding.options import (
    AUXILIARY,
    DecodingOptions,
    OutputKind,
    facts_of_options,
    without_meaning,
)
from transduce.settings.sections import field_help

Here = Callable[..., Done]


def copy_of(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


# help and usage


SLOW_TO_IMPORT = {"torch", "numpy", "sacrebleu", "sentencepiece"}
HELP_OF_VERBS = f"""
import sys
from transduce.cli.main import VERBS, main

for verb in VERBS:
    code = main([verb, "--help"])
    print("\\f", verb, code, *sorted({SLOW_TO_IMPORT} & set(sys.modules)), sep="\\t", end="\\n\\f")
"""


def test_help_answers_without_what_is_slow_to_import() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "transduce", "--help"],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0
    assert "Usage: transduce" in ended.stdout
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "transduce.cli.main" in imported
    assert imported.isdisjoint({*SLOW_TO_IMPORT, "pydantic"})
    assert all(name in ended.stdout for name in VERBS)


def test_help_of_verbs_answers_without_what_is_slow_to_import() -> None:
    """One process for all of them: each would take half a second to start."""
    ended = subprocess.run([sys.executable, "-c", HELP_OF_VERBS], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    parts = ended.stdout.split("\f")
    assert all("Usage: transduce" in shown for shown in parts[:-1:2])
    assert [part.split() for part in parts[1::2]] == [[verb, "0"] for verb in VERBS]


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_begins_as_the_list_of_verbs_says(verb: str) -> None:
    name = name_in_python(verb)
    function = getattr(importlib.import_module(f"transduce.cli.{MODULES.get(verb, verb)}"), name)
    assert (inspect.getdoc(function) or "").splitlines()[0] == VERBS[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_shows_its_whole_description(verb: str, here: Here) -> None:
    name = name_in_python(verb)
    function = getattr(importlib.import_module(f"transduce.cli.{MODULES.get(verb, verb)}"), name)
    description, _, _ = (inspect.getdoc(function) or "").partition("\nParameters\n")
    plain = " ".join(description.replace("`", "").split())
    assert plain in " ".join(" ".join(here(verb, "--help").lines).split())


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        ("chat", "continuation"),
        ("generate", "continuation"),
        ("calibrate", "translation"),
        ("distil", "translation"),
        ("translate", "translation"),
        ("transcribe", "speech"),
        ("predict", None),
        ("evaluate", None),
    ],
)
def test_help_of_decoding_is_that_of_the_settings_in_use(
    verb: str, kind: OutputKind | None, here: Here
) -> None:
    # Panels wrap their texts between bars.
    text = " ".join(" ".join(here(verb, "--help").lines).replace("│", " ").split())
    settings = field_help(DecodingOptions)
    assert set(settings) == {field.name for field in dataclasses.fields(DecodingOptions)}
    refused = {} if kind is None else without_meaning(kind)
    for name, facts in facts_of_options().items():
        if facts.command_line and facts.group != AUXILIARY:
            assert (" ".join(settings[name].split()) in text) is (name not in refused)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tranlate"], 'Did you mean "translate"?'),
        (["translate"], "missing argument RUN: Run directory"),
        (["speak", "run"], "missing option --output or -o: A name that ends in .wav"),
        (["localise", "run"], "missing argument FILE: Documents"),
        (
            ["localise", "run", "a.txt"],
            "give one of --output DIRECTORY, --in-place and",
        ),
        (
            ["backtranslate", "run", "a.toml"],
            "missing option --monolingual: File with a target-language text",
        ),
        (["speak", "run", "-o"], "-o needs a value"),
        (["translate", "run", "--beam-siz", "3"], "Did you mean --beam-size?"),
        (["translate", "run", "--beam-size", "many"], '"many" into int'),
        (["translate", "run", "--n-best", "0"], "Must be >= 1"),
        (["translate", "run", "--length-penalty", "men"], 'Did you mean "mean"?'),
        (["score", "run", "--source", "a"], "give either --target, to score pairs, or --n-best"),
        (["train", "r.toml", "--resume", "--overwrite"], "give one of them"),
        (["evaluate", "run", "--source", "a"], "--source and --reference must be given together"),
    ],
)
def test_wrong_usage_is_one_line_with_the_right_name(
    here: Here, arguments: list[str], expected: str
) -> None:
    done = here(*arguments)
    assert done.code == 2
    assert expected in done.complaint
    assert done.out == b""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("translate run -", "translate run"),
        ("translate run --jsonl - --n-best 2", "translate run --jsonl --n-best 2"),
        ("translate run --output - -", "translate run --output=-"),
        ("translate run --prefix - file", "translate run --prefix=- file"),
        ("translate run --prefix=x -", "translate run --prefix=x"),
        ("generate run -- -", "generate run -- -"),
        ("info run -", "info run -"),
    ],
)
def test_a_lone_hyphen_is_stdin_or_the_value_of_an_option(given: str, meant: str) -> None:
    assert with_plain_hyphens(build_app(), given.split()) == meant.split()


def test_a_lone_hyphen_elsewhere_is_refused(here: Here) -> None:
    assert "Unknown option: -" in here("info", "nowhere", "-").complaint
    assert "no-file: no such file" in here("translate", "x", "--prefix", "-", "no-file").complaint


@pytest.mark.parametrize("verb", [[], ["translate"]])
def test_help_that_nobody_reads_ends_quietly(verb: list[str]) -> None:
    with subprocess.Popen(
        command(*verb, "--help"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_version() -> None:
    assert transduce("--version").lines == [importlib.import_module("transduce").__version__]


# train


def test_train_prints_the_run_directory_alone(trained: Done) -> None:
    assert trained.code == 0
    assert len(trained.lines) == 1
    assert (Path(trained.lines[0]) / "weights.safetensors").is_file()
    assert "step 20 " in trained.err and "validation at step 60" in trained.err


def test_others_may_read_a_run(run: Path) -> None:
    modes = {(run / name).stat().st_mode for name in ("weights.safetensors", "recipe.toml")}
    assert len(modes) == 1


def test_train_takes_settings_in_every_order(here: Here, recipe: Path, tmp_path: Path) -> None:
    small = ["training.steps=2", "training.validate_every=1"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert here("train", recipe, "--set", *small, "--run", one).lines == [str(one)]
    options = ["--set", small[0], "--set", small[1]]
    assert here("train", *options, recipe, "--run", two).lines == [str(two)]
    for run in (one, two):
        assert "steps = 2\n" in (run / "recipe.toml").read_text()
    assert "holds a run already" in here("train", recipe, "--run", one).complaint
    again = here("train", recipe, "--run", one, "--overwrite", "--set", "training.steps=1")
    assert again.code == 0
    assert "steps = 1\n" in (one / "recipe.toml").read_text()


@pytest.mark.parametrize(
    ("setting", "code", "expected"),
    [
        ("model.encoder.n_layer=2", 2, "did you mean 'n_layers'?"),
        ("modle.d_model=2", 2, "did you mean 'model'?"),
        ("model.d_model='wide'", 2, "model.d_model"),
        ("model.encoder=3", 2, "model.encoder"),
        ("task='speech'", 2, "'speech' is not known"),
        ("nonsense", 2, "write it as section.name=value"),
        ("training.device='abacus'", 2, "abacus"),
        ("data.train.path='none.tsv'", 1, "none.tsv: no such file"),
        ("data.train.path='.'", 1, "empty is empty"),  # all below it is read
        ("data.train.path='empty'", 1, "empty"),
        ("data.train.path='latin'", 1, "not valid UTF-8"),
        ("data.train.target=7", 1, "line 1 has 2 of 8 columns"),
        ("data.root='$NO_SUCH_VARIABLE'", 2, "NO_SUCH_VARIABLE"),
        ("data.train={kind='parallel',source='two',target='three'}", 1, "2 lines but"),
        ("data.train={kind='jsonl',path='two'}", 1, "line 1"),
        ("data.train={kind='xml',path='two'}", 2, "'xml'"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_trains_nothing(
    here: Here, recipe: Path, tmp_path: Path, setting: str, code: int, expected: str
) -> None:
    (recipe.parent / "empty").write_bytes(b"")
    (recipe.parent / "latin").write_bytes("grün\tvert\n".encode("latin-1"))
    (recipe.parent / "two").write_bytes(b"a\nb\n")
    (recipe.parent / "three").write_bytes(b"a\nb\nc\n")
    run = tmp_path / "run"
    done = here("train", recipe, "--set", setting, "--run", run)
    assert done.code == code
    assert expected in done.complaint
    assert done.out == b""
    assert not (run / "weights.safetensors").exists()
    if run.exists():  # the mistake mended, nothing of it is in the way
        ok = here("train", recipe, "--run", run, "--set", "training.steps=1")
        assert ok.code == 0, ok.err


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no such file"),
        (b"", "task is missing"),
        (b"task =\n", "not valid TOML"),
        (b"\xff\xfe\0\0", "not UTF-8"),
        (b"task = 'translation'\n", "data is missing"),
    ],
)
def test_a_file_that_is_no_recipe(
    here: Here, tmp_path: Path, content: bytes | None, expected: str
) -> None:
    file = tmp_path / "r.toml"
    if content is not None:
        file.write_bytes(content)
    done = here("train", file, "--run", tmp_path / "run")
    assert done.code == 2
    assert expected in done.complaint


def test_control_c_leaves_a_run_that_goes_on(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    endless = ["--set", "training.steps=1000000", "training.log_every=1"]
    with subprocess.Popen(
        command("train", recipe, "--run", run, *endless),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert any(line.startswith(b"step 3 ") for line in process.stderr)
        process.send_signal(signal.SIGINT)
        message = process.stderr.read().decode()
        out = process.stdout.read()
    assert process.returncode == 130
    assert out == b""
    assert "Traceback" not in message
    stopped = re.search(
        r"transduce: stopped after step ([\d,]+); continue with --resume\n$", message
    )
    assert stopped
    last = int(stopped[1].replace(",", ""))
    done = transduce("train", run, "--resume", "--set", f"training.steps={last + 2}")
    assert done.lines == [str(run)]
    assert f"resuming after step {last:,}" in done.err


def test_control_c_while_the_command_line_is_being_imported() -> None:
    interrupted = """
import sys

class Interruption:
    def find_spec(self, name, path, target=None):
        if name == "cyclopts":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interruption())
from transduce.__main__ import main
sys.exit(main())
"""
    ended = subprocess.run([sys.executable, "-c", interrupted], capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


# damaged and hostile runs


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("damage", ["truncated", "pickled", "empty", "missing", "zeros"])
def test_damaged_weights_are_one_line_and_run_nothing(
    here: Here, run: Path, tmp_path: Path, damage: str
) -> None:
    copy, sprung = copy_of(run, tmp_path), tmp_path / "sprung"
    weights = copy / "weights.safetensors"
    whole = weights.read_bytes()
    content = {
        "truncated": whole[: len(whole) // 2],
        "pickled": pickle.dumps(Trap(sprung)),
        "empty": b"",
        "zeros": bytes(len(whole)),
    }
    if damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes(content[damage])
    (tmp_path / "words").write_text("abc\n")
    done = here("translate", copy, tmp_path / "words")
    assert "weights.safetensors" in done.complaint
    assert not sprung.exists()
