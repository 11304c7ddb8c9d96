"""The command line as its users meet it."""

from __future__ import annotations

import gzip
import importlib
import inspect
import json
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

from helpers.command_line import Done, command, environment, some_words, transduce
from transduce.cli.main import VERBS, name_in_python

Here = Callable[..., Done]

HOSTILE = [
    b"abc",
    b"",
    b"   ",
    b"a\0b",
    b"\xff\xfeab",
    b"\xe2\x82",
    "שלום".encode(),
    "a\u200bb\u2060".encode(),
    "a\u2028b\x85c\x0bd\x0ce".encode(),
    b"a\rb\r",
    "中文没有空格😀👩‍👩‍👧".encode(),
    b"<s> </s> <pad> ||| \t",
    "e\u0301\ufeff".encode(),
    b"abc",
]


def copy_of(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


# help and usage


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_help_answers_without_what_is_slow_to_import(verb: str | None) -> None:
    arguments = ["--help"] if verb is None else [verb, "--help"]
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "transduce", *arguments],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0
    assert "Usage: transduce" in ended.stdout
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "transduce.cli.main" in imported
    assert imported.isdisjoint({"torch", "numpy", "sacrebleu", "sentencepiece"})
    if verb is None:
        assert "pydantic" not in imported
        assert all(name in ended.stdout for name in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_begins_as_the_list_of_verbs_says(verb: str) -> None:
    name = name_in_python(verb)
    function = getattr(importlib.import_module(f"transduce.cli.{name}"), name)
    assert (inspect.getdoc(function) or "").splitlines()[0] == VERBS[verb]


@pytest.mark.parametrize("verb", ["chat", "generate", "predict"])
def test_help_says_whose_length_is_bounded_how(verb: str, here: Here) -> None:
    # Panels wrap their texts between bars.
    text = " ".join(" ".join(here(verb, "--help").lines).replace("│", " ").split())
    assert "Tokens that a continuation, an answer in a dialogue or a caption may have" in text
    assert "Where there is a source text: tokens allowed per token of it" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tranlate"], 'Did you mean "translate"?'),
        (["translate"], "RUN requires an argument"),
        (["translate", "run", "--beam-siz", "3"], "Did you mean --beam-size?"),
        (["translate", "run", "--beam-size", "many"], '"many" into int'),
        (["translate", "run", "--n-best", "0"], "Must be >= 1"),
        (["translate", "run", "--length-penalty", "men"], 'Did you mean "mean"?'),
        (["score", "run", "--source", "a"], "give --target for pairs, or --n-best for candidates"),
        (["train", "r.toml", "--resume", "--overwrite"], "give one of them"),
        (["evaluate", "run", "--source", "a"], "--source and --reference go together"),
    ],
)
def test_wrong_usage_is_one_line_with_the_right_name(
    here: Here, arguments: list[str], expected: str
) -> None:
    done = here(*arguments)
    assert done.code == 2
    assert expected in done.complaint
    assert done.out == b""


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
        ("data.train.path='.'", 1, "is a directory"),
        ("data.train.path='empty'", 1, "empty"),
        ("data.train.path='latin'", 1, "not valid UTF-8"),
        ("data.train.target=7", 1, "7"),
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
        said = process.stderr.read().decode()
        out = process.stdout.read()
    assert process.returncode == 130
    assert out == b""
    assert "Traceback" not in said
    stopped = re.search(r"transduce: stopped after step ([\d,]+); go on with --resume\n$", said)
    assert stopped
    last = int(stopped[1].replace(",", ""))
    done = transduce("train", run, "--resume", "--set", f"training.steps={last + 2}")
    assert done.lines == [str(run)]
    assert f"resuming after step {last:,}" in done.err


# translate


def test_every_line_gives_one_line_in_order(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "hostile"
    file.write_bytes(b"\n".join(HOSTILE))  # the last one without its line feed
    done = transduce("translate", run, "-", stdin=file.read_bytes())
    assert done.code == 0
    assert len(done.lines) == len(HOSTILE)
    assert done.lines[1] == done.lines[2] == ""
    assert done.lines[0] == done.lines[-1] != ""
    assert "warning: stdin: line 5 is not valid UTF-8" in done.err
    assert "warning: stdin: line 6 is not valid UTF-8" in done.err
    assert done.err.count("\n") == 2
    assert transduce("translate", run, file).out == done.out


def test_line_ends_compression_and_byte_order_mark_change_nothing(
    here: Here, run: Path, tmp_path: Path
) -> None:
    words = some_words(600, seed=2)  # more than are taken at once
    plain, odd, packed = tmp_path / "plain", tmp_path / "odd", tmp_path / "packed.gz"
    plain.write_text("".join(f"{word}\n" for word in words))
    odd.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(words).encode())
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    expected = here("translate", run, plain).lines
    assert len(expected) == 600
    assert here("translate", run, odd).lines == expected
    assert here("translate", run, packed).lines == expected
    output = tmp_path / "output"
    done = here("translate", run, plain, "--output", output)
    assert done.out == b""
    assert output.read_text().splitlines() == expected
    assert [p.name for p in tmp_path.glob("*.part")] == []


def test_nothing_in_gives_nothing_out(run: Path) -> None:
    done = transduce("translate", run)
    assert (done.code, done.out, done.err) == (0, b"", "")


def test_a_very_long_line_is_translated_with_a_warning(
    here: Here, run: Path, tmp_path: Path
) -> None:
    file = tmp_path / "long"
    file.write_text("abc\n" + "abcdefgh" * 12_500 + "\nabc\n")
    done = here("translate", run, file, "--beam-size", 1, "--max-length-extra", 0)
    assert len(done.lines) == 3
    assert done.lines[0] == done.lines[2]
    assert len(done.lines[1]) > 1000
    assert "warning: line 2 has 100000 tokens" in done.err


def test_a_line_is_answered_while_the_input_stays_open(run: Path) -> None:
    with subprocess.Popen(
        command("translate", run),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for word in (b"abc\n", b"\n", b"hgf\n"):
            process.stdin.write(word)
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer.endswith(b"\n")
            assert bool(answer.strip()) == bool(word.strip())
        process.send_signal(signal.SIGINT)  # and Ctrl-C ends it quietly, though it still reads
        assert process.wait() == 130
        assert process.stderr is not None and process.stderr.read() == b""


def test_nobody_reading_on_ends_it_quietly(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("abc\n" * 2000)
    with subprocess.Popen(
        command("translate", run, file, "--beam-size", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_a_full_disk_is_one_line(run: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            command("translate", run),
            input=b"abc\n",
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
        )
    assert ended.returncode == 1
    assert ended.stderr == b"transduce: stdout cannot be written: No space left on device\n"


def test_n_best_has_the_form_of_the_field(here: Here, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("abc\n\nhgf\n")
    plain = here("translate", run, file).lines
    done = here("translate", run, file, "--n-best", 3)
    found: dict[int, list[tuple[str, float]]] = {}
    for line in done.lines:
        parts = re.fullmatch(r"(\d+) \|\|\| (.*) \|\|\| (-?\d+\.\d{6})", line)
        assert parts, line
        found.setdefault(int(parts[1]), []).append((parts[2], float(parts[3])))
    assert list(found) == [0, 1, 2]
    assert found[1] == [("", 0.0)]
    for i in (0, 2):
        scores = [score for _, score in found[i]]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert found[i][0][0] == plain[i]
    wide = here("translate", run, file, "--n-best", 7)
    assert "warning: the beam is widened from 5 to 7" in wide.err
    assert len(wide.lines) == 15


def test_jsonl_passes_everything_else_through(here: Here, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "records"
    records = [
        {"id": 7, "source": "abc", "note": {"ü": [1, None, "שלום"]}},
        {"source": ""},
        {"source": "a\nb", "half": "\ud800"},
    ]
    text = [json.dumps(record) for record in records]
    file.write_text("\n".join([text[0], "", *text[1:]]) + "\n")
    lines = here("translate", run, file, "--jsonl").lines
    assert lines[1] == ""
    answers = [json.loads(line) for line in lines if line]
    assert "שלום" in lines[0]
    for record, answer in zip(records, answers, strict=True):
        assert {**answer, **record} == answer
        assert set(answer) - set(record) == {"translation", "score", "tokens"}
        assert isinstance(answer["translation"], str) and isinstance(answer["score"], float)
    assert answers[0]["translation"] == "".join(answers[0]["tokens"]) != ""
    assert answers[1]["translation"] == ""
    best = here("translate", run, file, "--jsonl", "--n-best", 2).lines
    first = json.loads(best[0])
    assert [sorted(entry) for entry in first["n_best"]] == [["score", "text"]] * 2
    assert first["n_best"][0] == {"text": first["translation"], "score": first["score"]}


@pytest.mark.parametrize(
    "line", ["abc", "[1]", "{}", '{"source": 3}', '{"source": null}', '"abc"', "{", "[" * 100_000]
)
def test_what_is_no_record_is_named_by_its_line(
    here: Here, run: Path, tmp_path: Path, line: str
) -> None:
    file, output = tmp_path / "records", tmp_path / "output"
    file.write_text(f'{{"source": "abc"}}\n\n{line}\n{{"source": "abc"}}\n')
    done = here("translate", run, file, "--jsonl")
    assert f"{file}: line 3 " in done.complaint
    assert len(done.lines) == 2  # those before it are answered
    output.write_text("before")
    assert here("translate", run, file, "--jsonl", "--output", output).code == 1
    assert output.read_text() == "before"
    assert list(tmp_path.glob("*.part")) == []


def test_sampling_goes_by_its_seed(here: Here, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("\n".join(some_words(20)))
    sample = ["translate", run, file, "--sample", "--temperature", 3, "--seed"]
    one, same, other = (here(*sample, seed).lines for seed in (1, 1, 2))
    assert one == same != other
    likeliest = here(*sample, 1, "--top-k", 1).lines
    assert likeliest == here("translate", run, file, "--beam-size", 1).lines
    done = here("translate", run, file, "--top-k", 1)
    assert (done.code, done.complaint) == (2, "--top-k is for --sample; add that")
    assert here("translate", run, file, "--sample", "--top-p", 3).code == 2


def test_inputs_and_outputs_that_cannot_be(here: Here, run: Path, tmp_path: Path) -> None:
    words, broken = tmp_path / "words", tmp_path / "broken.gz"
    words.write_text("abc\n")
    broken.write_bytes(gzip.compress(b"abc\n" * 99)[:-9])
    assert "no such file" in here("translate", run, tmp_path / "none").complaint
    assert "is a directory" in here("translate", run, tmp_path).complaint
    assert "not a whole gzip file" in here("translate", run, broken).complaint
    nowhere = tmp_path / "no" / "where"
    assert f"{nowhere} cannot be" in here("translate", run, words, "--output", nowhere).complaint
    assert "'abacus'" in here("translate", run, words, "--device", "abacus").complaint
    assert "not a directory" in here("translate", tmp_path / "none", words).complaint
    assert "no recipe.toml" in here("translate", tmp_path, words).complaint


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


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("recipe.toml", b""),
        ("recipe.toml", b"\xff"),
        ("recipe.toml", b"task = 'translation'\nnonsense = 1\n"),
        ("source_tokenizer.json", b"{"),
        ("source_tokenizer.json", b'{"kind": "characters", "symbols": [1]}'),
        ("target_tokenizer.json", b'{"kind": "characters", "symbols": ["a"]}'),
        ("target_tokenizer.json", b"\x80\x04."),
    ],
)
def test_a_damaged_run_is_one_line(
    here: Here, run: Path, tmp_path: Path, file: str, content: bytes
) -> None:
    copy = copy_of(run, tmp_path)
    (copy / file).write_bytes(content)
    assert here("info", copy).complaint
