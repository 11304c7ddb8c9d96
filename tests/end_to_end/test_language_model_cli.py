"""A language model from recipe to text, by the command line alone."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, command, environment, transduce
from helpers.native import needs_native
from helpers.served_runs import language_model_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model_run(tmp_path_factory.mktemp("rhymes") / "rhyme")


def exact(done: Done) -> str:
    assert done.code == 0, done.err
    assert done.err == ""
    return done.out.decode()


@pytest.mark.slow
def test_generate(run: Path) -> None:
    text = exact(transduce("generate", run, "Row, row"))
    assert text.endswith("\n") and 30 <= len(text) <= 31
    assert exact(transduce("generate", run, "Row, row", "--seed", 1)) != text
    stop = text[7:9]
    stopped = exact(transduce("generate", run, "Row, row", "--stop", "zzz", "--stop", stop))
    assert stopped.removesuffix("\n") == text[: text.find(stop)].removesuffix("\n")
    assert exact(transduce("generate", run, "--beam-size", 1, "--no-repeat-ngram", 3)) != text
    assert exact(transduce("generate", run, "Row, row", "--stop", text[0])) == "\n"
    done = transduce("generate", run, "--coverage-penalty", 0.2)
    assert done.complaint == "--coverage-penalty applies only to translations; remove it"
    done = transduce("generate", run, "--minimum-risk", "chrf")
    assert done.complaint == "minimum_risk cannot be streamed; remove it"


@needs_native
@pytest.mark.parametrize(
    "options",
    [
        ["--beam-size", 1, "--max-tokens", 60],
        ["--beam-size", 3, "--stop", "boat"],
        ["--sample", "--seed", 5],
        ["--prefix", ", row", "--no-repeat-ngram", 6],
    ],
    ids=str,
)
def test_the_native_engine_says_the_same(
    run: Path, tmp_path: Path, here: Callable[..., Done], options: list[object]
) -> None:
    file = tmp_path / "prompts"
    file.write_text("Row, row\n\nGently\n")
    for verb in (["generate", run, "Row, row"], ["predict", run, file]):
        own, other = (here(*verb, *options, "--engine", engine) for engine in ("pytorch", "native"))
        assert other.code == 0, other.err
        assert other.out == own.out and own.out.strip()


@needs_native
def test_precisions_and_info(run: Path, here: Callable[..., Done]) -> None:
    whole = json.loads(here("evaluate", run, "--split", "valid", "--json").out)
    for precision in ("bf16", "int8"):
        assert here("generate", run, "Row, row", "--precision", precision).code == 0
        scores = here("evaluate", run, "--split", "valid", "--json", "--precision", precision)
        loss = json.loads(scores.out)["loss"]
        assert loss != whole["loss"] and loss == pytest.approx(whole["loss"], abs=0.05)
        assert here("explain", run, "Row", "--precision", precision).code == 0
    facts = json.loads(here("info", run, "--json").out)
    assert facts["native_engine"].startswith("yes, with ")


def test_outputs_that_there_are_none_of(run: Path, tmp_path: Path) -> None:
    done = transduce("evaluate", run, "--split", "valid", "--output", tmp_path / "out")
    assert done.code == 1 and "--output is not supported for this task" in done.complaint
    assert not (tmp_path / "out").exists()
    plain = transduce("evaluate", run, "--split", "valid")
    assert done.lines == plain.lines and "perplexity" in plain.lines[1]  # measured all the same
    done = transduce("evaluate", run, "--split", "valid", "--beam-size", 3)
    assert (done.code, done.lines) == (2, [])
    assert done.complaint.startswith("this evaluation does not decode; remove")


def test_predict_gives_one_line_for_each(run: Path) -> None:
    done = transduce("predict", run, "--max-tokens", 60, stdin=b"Row, row\n\nGently\n")
    assert len(done.lines) == 3
    streamed = exact(transduce("generate", run, "Row, row", "--max-tokens", 60))
    assert done.lines[0] == " ".join(streamed.splitlines())
    record = json.dumps({"id": 1, "prompt": "Row, row"})
    (line,) = transduce(
        "predict", run, "--jsonl", "--max-tokens", 60, stdin=f"{record}\n".encode()
    ).lines
    result = json.loads(line)
    assert result["id"] == 1 and len(result["tokens"]) <= 60
    assert result["continuation"].removesuffix("\n") == streamed.removesuffix("\n")


def test_mistakes(run: Path) -> None:
    assert "min_p" in transduce("generate", run, "--min-p", 2).complaint
    assert "--sample" in transduce("generate", run, "--beam-size", 2, "--top-k", 3).complaint
    both = transduce("generate", run, "--sample", "--beam-size", 4, "--beam-groups", 3)
    assert both.complaint == "--beam-size applies to beam search, not to sampling; remove it"


def test_a_reader_that_leaves_and_a_signal_end_it(run: Path) -> None:
    arguments = command("generate", run, "--max-tokens", 1_000_000, "--min-length", 1_000_000)
    unlimited = {**environment(), "TRANSDUCE_LIMIT_OUTPUT": "1000000"}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=unlimited
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.wait(60) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=unlimited
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(10), "the text comes while it grows"
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        process.stdout.read()
        assert process.wait(60) == 128 + signal.SIGINT
        assert time.monotonic() - begin < 60
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_a_language_model_of_a_translators_vocabulary_speaks_beside_it(
    run: Path, tmp_path: Path
) -> None:
    translator = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
    (tmp_path / "target.txt").write_text("the dog sees a cat\nthe cat runs\n" * 100)
    trained = transduce(
        *("train", run, "--run", tmp_path / "lm"),
        *("--set", f"data.root={tmp_path}", "--set", "data.train.path=target.txt"),
        *("--set", f'text.tokenizer={{kind="file",path="{translator}/tokenizer.model"}}'),
    )
    assert trained.code == 0, trained.err
    kept = (tmp_path / "lm" / "tokenizer.model").read_bytes()
    assert kept == (translator / "tokenizer.model").read_bytes()
    alone = transduce("translate", translator, stdin=b"the dog\nbig house\n")
    beside = (*("--language-model", tmp_path / "lm"), "--language-model-weight")
    silent = transduce("translate", translator, *beside, 0, stdin=b"the dog\nbig house\n")
    assert silent.out == alone.out
    loud = transduce("translate", translator, *beside, 5, stdin=b"the dog\nbig house\n")
    assert loud.code == 0 and len(loud.lines) == 2 and loud.out != alone.out
    missing = transduce(
        *("train", run, "--run", tmp_path / "no", "--set"),
        f'text.tokenizer={{kind="file",path="{tmp_path}/none.model"}}',
    )
    assert missing.code == 1 and "none.model cannot be read" in missing.complaint
