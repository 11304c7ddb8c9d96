"""`transduce translate`: every line has its answer, whatever it holds and whoever reads."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, command, environment, some_words, transduce
from helpers.tiny_run import write_jsonl
from helpers.waiting import wait_for

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
    assert "warning: line 4: 1 of 3 tokens are unknown to the model, such as '\\x00'" in done.err
    assert len([line for line in done.err.splitlines() if "greatest length" not in line]) == 3
    assert transduce("translate", run, file).out == done.out


def test_outputs_are_whole_files_and_never_inputs(here: Here, run: Path, tmp_path: Path) -> None:
    words = some_words(600, seed=2)  # more than are taken at once
    plain, output, link = tmp_path / "plain", tmp_path / "output", tmp_path / "link"
    plain.write_text("".join(f"{word}\n" for word in words))
    expected = here("translate", run, plain).lines
    assert len(expected) == 600
    done = here("translate", run, plain, "--output", output)
    assert done.out == b""
    assert output.read_text().splitlines() == expected
    assert [p.name for p in tmp_path.glob("*.part")] == []
    output.chmod(0o600)
    assert here("translate", run, plain, "--output", output).code == 0
    assert output.stat().st_mode & 0o777 == 0o600
    link.symlink_to(plain)
    for name in (plain, link):
        complaint = here("translate", run, plain, "--output", name).complaint
        assert complaint.endswith(f"--output {name} is also an input; give another file")
    assert plain.read_text().split() == words
    piped = transduce("translate", run, plain, "--output", "/dev/stdout")
    assert (piped.code, piped.lines) == (0, expected)


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


def at_work(*arguments: object) -> subprocess.Popen[bytes]:
    """A command whose streams are in our hands."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command(*arguments), stdin=pipe, stdout=pipe, stderr=pipe, env=environment()
    )


def test_a_line_is_answered_while_the_input_stays_open(run: Path) -> None:
    with at_work("translate", run) as process:
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_half_of_an_output(run: Path, tmp_path: Path, number: int) -> None:
    with at_work("translate", run, "--output", tmp_path / "out") as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"abc\n")
        process.stdin.flush()
        wait_for(lambda: any(file.stat().st_size for file in tmp_path.iterdir()))
        process.send_signal(number)
        assert process.wait() == 128 + number
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []


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
    result: dict[int, list[tuple[str, float]]] = {}
    for line in done.lines:
        parts = re.fullmatch(r"(\d+) \|\|\| (.*) \|\|\| (-?\d+\.\d{6})", line)
        assert parts, line
        result.setdefault(int(parts[1]), []).append((parts[2], float(parts[3])))
    assert list(result) == [0, 1, 2]
    assert result[1] == [("", 0.0)]
    for i in (0, 2):
        scores = [score for _, score in result[i]]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert result[i][0][0] == plain[i]
    wide = here("translate", run, file, "--n-best", 7)
    assert "warning: beam size raised from 5 to 7" in wide.err
    assert len(wide.lines) == 15
    none = here("translate", run, file, "--beam-size", 0)
    assert none.complaint == "beam_size should be greater than or equal to 1, not 0"


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
        added = set(answer) - set(record) - {"finished"}  # of outputs that were cut off
        assert added == {"translation", "score", "tokens"}
        assert isinstance(answer["translation"], str) and isinstance(answer["score"], float)
    assert answers[0]["translation"] == "".join(answers[0]["tokens"]) != ""
    assert answers[1]["translation"] == ""
    best = here("translate", run, file, "--jsonl", "--n-best", 2).lines
    first = json.loads(best[0])
    assert [sorted(entry) for entry in first["n_best"]] == [["score", "text"]] * 2
    assert first["n_best"][0] == {"text": first["translation"], "score": first["score"]}


def test_a_line_that_is_no_record_has_an_error_with_its_number(
    here: Here, run: Path, tmp_path: Path
) -> None:
    wrong = {
        "abc": "not valid JSON",
        "[1]": "not a JSON object; convert a JSON array",
        '"abc"': "not a JSON object; expected {",
        "{": "not valid JSON",
        "[" * 100_000: "not valid JSON (nested too deeply)",
        '{"source": "abc", "score": NaN}': "not valid JSON",
        '{"source": "abc", "score": 1e999}': "not valid JSON",
    }
    good = '{"source": "abc"}'
    file = tmp_path / "records"
    file.write_text("\n".join([good, "", *wrong, good]) + "\n")
    done = here("translate", run, file, "--jsonl")
    assert done.code == 0, done.err
    first, blank, *failed, last = done.lines
    assert json.loads(first) == json.loads(last) and blank == ""
    for number, (line, message) in enumerate(zip(failed, wrong.values(), strict=True), 3):
        record = json.loads(line)
        assert set(record) == {"error"} and record["error"].startswith(f"line {number}: {message}")
    assert f"{file}: line 3: not valid JSON" in done.err and "7 records failed" in done.err


def test_a_record_without_an_answer_says_why_and_the_others_are_answered(
    here: Here, run: Path, tmp_path: Path
) -> None:
    wrong: list[dict[str, object]] = [
        {"source": None, "id": 1},
        {},
        {"sorce": "abc"},
        {"source": 3},
        {"source": ["abc"]},
        {"source": "abc", "beam_size": 0},
    ]
    records = [record for one in wrong for record in ({"source": "abc"}, one)]
    file, output = write_jsonl(tmp_path / "records", records), tmp_path / "output"
    done = here("translate", run, file, "--jsonl", "--output", output)
    assert done.code == 0, done.err
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(answers) == len(records)
    alone = here("translate", run, write_jsonl(tmp_path / "one", records[:1]), "--jsonl").lines
    for right, one, record in zip(answers[::2], answers[1::2], wrong, strict=True):
        assert right == json.loads(alone[0])
        assert {key: one[key] for key in record} == record and set(one) == {*record, "error"}
    message = [answer["error"] for answer in answers[1::2]]
    assert message[0] == '"source": expected a string, got null'
    assert "no column 'source'; did you mean 'sorce'?" in message[2]
    assert message[5].startswith("beam_size")
    first, last = done.err.splitlines()
    assert f'{file}: line 2: "source": expected a string, got null' in first
    assert f'{file}: 6 records failed; each has a field "error"' in last


def test_an_error_of_an_earlier_pass_goes_with_an_answer(
    here: Here, run: Path, tmp_path: Path
) -> None:
    records = [{"source": "abc", "error": "old"}, {"source": None, "error": "old"}]
    done = here("translate", run, write_jsonl(tmp_path / "records", records), "--jsonl")
    answered, failed = map(json.loads, done.lines)
    assert answered["translation"] and "error" not in answered
    assert failed["error"] == '"source": expected a string, got null'
    messages = write_jsonl(tmp_path / "messages", [{"error": "abc"}])
    (line,) = here("translate", run, messages, "--jsonl", "--column", "error").lines
    assert json.loads(line)["error"] == "abc" and json.loads(line)["translation"]


def test_a_misspelt_setting_of_a_record_is_named(here: Here, run: Path, tmp_path: Path) -> None:
    records = [{"source": "abc", "beamsize": 1, "prefixx": "a", "note": 1, "id": 2}] * 2
    done = here("translate", run, write_jsonl(tmp_path / "records", records), "--jsonl")
    assert done.code == 0 and json.loads(done.lines[0])["beamsize"] == 1
    first, second = done.err.splitlines()
    assert 'records: field "beamsize" is not a decoding setting' in first
    assert 'did you mean "beam_size"?' in first and '"prefix"' in second


def test_a_column_of_a_table_is_translated_and_the_others_kept(
    here: Here, run: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("abc\n\nab\n")
    abc, blank, ab = here("translate", run, plain).lines
    table = 'id,text,"a ""b"""\r\n1,abc,"x, y"\r\n2,,\r\n\r\n"3\n4",ab,z\r\n'
    for name in ("a.csv", "b"):
        (tmp_path / name).write_bytes(table.encode())
        done = here("translate", run, tmp_path / name, "--column", "text")
        assert done.code == 0, done.err
        assert done.lines == [
            'id,text,"a ""b""",translation',
            f'1,abc,"x, y",{abc}',
            "2,,,",
            "",
            '"3',
            f'4",ab,z,{ab}',
        ]
    assert blank == ""
    for text in ("id\ttext\n1\tabc\n\n2\tab\n", "id;text\n1;abc\n\n2;ab\n"):
        done = transduce("translate", run, "--column", "text", stdin=text.encode())
        sign = text[2]
        assert done.lines == [
            f"id{sign}text{sign}translation",
            *(f"1{sign}abc{sign}{abc}", "", f"2{sign}ab{sign}{ab}"),
        ]
    records = write_jsonl(tmp_path / "r", [{"t": {"x": "abc"}, "id": 1}, {"t": None}])
    done = here("translate", run, records, "--jsonl", "--column", "t.x")
    assert json.loads(done.lines[0])["translation"] == abc
    assert json.loads(done.lines[1])["error"] == '"t.x": expected a string, got null'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,txet\n1,a\n", "line 1 has no column 'text'; did you mean 'txet'?"),
        ("id,text\n1\n", "line 2 has 1 columns, but line 1 has 2"),
        ('id,text\n1,"a\n', "line 2 is not valid CSV"),
        ("id\ttext\n1\n", "line 2 has 1 columns, but line 1 has 2"),
        ("text,translation\na,b\n", "already has a column 'translation'"),
        ('{"text": "a"}\n', "for JSON records, add --jsonl"),
        ("", "is empty"),
    ],
)
def test_mistakes_of_a_table_are_one_line(
    here: Here, run: Path, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "in").write_text(text)
    done = here("translate", run, tmp_path / "in", "--column", "text")
    assert done.code in (1, 2) and message in done.complaint
    for option in (("--n-best", 2), ("--stream",)):
        done = here("translate", run, tmp_path / "in", "--column", "text", *option)
        assert "--column cannot be combined with" in done.complaint


def test_sampling_goes_by_its_seed(here: Here, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("\n".join(some_words(20)))
    sample = ["translate", run, file, "--sample", "--temperature", 3, "--seed"]
    one, same, other = (here(*sample, seed).lines for seed in (1, 1, 2))
    assert one == same != other
    likeliest = here(*sample, 1, "--top-k", 1).lines
    assert likeliest == here("translate", run, file, "--beam-size", 1).lines
    done = here("translate", run, file, "--top-k", 1)
    assert (done.code, done.complaint) == (2, "--top-k requires --sample")
    assert here("translate", run, file, "--sample", "--top-p", 3).code == 2


def test_a_limit_that_is_no_number_ends_it(
    here: Here, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_LIMIT_LINE", "much")
    words = tmp_path / "words"
    words.write_text("abc\n")
    done = here("translate", run, words)
    assert done.code == 2
    assert done.complaint.startswith(
        "TRANSDUCE_LIMIT_LINE='much' in the environment must be a whole"
    )


def test_inputs_and_outputs_that_cannot_be(here: Here, run: Path, tmp_path: Path) -> None:
    words, broken = tmp_path / "words", tmp_path / "broken.gz"
    words.write_text("abc\n")
    broken.write_bytes(gzip.compress(b"abc\n" * 99)[:-9])
    assert "no such file" in here("translate", run, tmp_path / "none").complaint
    assert "is a directory" in here("translate", run, tmp_path).complaint
    assert "a damaged gzip file" in here("translate", run, broken).complaint
    nowhere = tmp_path / "no" / "where"
    assert f"{nowhere} cannot be" in here("translate", run, words, "--output", nowhere).complaint
    assert "'abacus'" in here("translate", run, words, "--device", "abacus").complaint
    assert "not a directory" in here("translate", tmp_path / "none", words).complaint
    assert "no recipe.toml" in here("translate", tmp_path, words).complaint
