"""Blocks of README and install.md, as printed, top to bottom, on a stranger's machine.

Their own lines make the environment; HOME is empty, and the extra `dev` is not installed.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.stranger import (
    ROOT,
    TORCH_INDEX,
    Command,
    Shell,
    blocks,
    clone,
    commands,
    index_is_reached,
)
from helpers.tiny_run import write_tsv
from helpers.toy_translator import toy_pairs
from helpers.waiting import wait_for
from transduce.metrics.error_rates import edit_distance
from transduce.support.version import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
MINUTES = "minutes = 60 "
"""The only line of a page that is changed, to half a minute."""


def shell_in(path: Path) -> Iterator[Shell]:
    if shutil.which("bash") is None or shutil.which("git") is None:
        pytest.skip("bash and git are not installed")
    shell = Shell(clone(path / "clone"), path / "home")
    yield shell
    shell.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    yield from shell_in(tmp_path)


@pytest.fixture
def install(capsys: pytest.CaptureFixture[str]) -> Callable[[Shell, Command], None]:
    """Runs a line of pip; where PyTorch's own index is not reached, the one at hand serves."""

    def run(shell: Shell, command: Command) -> None:
        line = command.line
        if TORCH_INDEX in line and not index_is_reached():
            line = "pip install torch -c constraints.txt"
            with capsys.disabled():
                sys.stderr.write(f"\n*** {TORCH_INDEX} cannot be reached: instead `{line}`\n")
        shell.run(line)

    return run


def near(output: str, expected: str, errors: int) -> None:
    """A pronunciation that another processor's training may have learnt a little otherwise."""
    distance = edit_distance(output.split(), expected.split())
    assert distance <= errors, f"{output!r} is not {expected!r}"


def is_learnt(shell: Shell) -> bool:
    """True where the clock did not end the training of the demo before its last step."""
    figures = json.loads((shell.directory / "runs" / "demo" / "demo.json").read_text())
    return bool(figures["steps"] == figures["planned_steps"])


def promised_rates() -> tuple[float, float, float, float]:
    """Word and phone error rate of the page, and their tolerances."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"([\d.]+) % word and ([\d.]+) % phone.*?±([\d.]+), ±([\d.]+)", text, re.S)
    assert found is not None
    word, phone, words, phones = map(float, found.groups())
    return word, phone, words, phones


def check_demo(shell: Shell, output: str, comment: str) -> None:
    rates = [float(x) for x in re.findall(r"(?:word|phone) error rate +([\d.]+) %", output)]
    word, phone, words, phones = promised_rates()
    assert len(rates) == 2 and rates[1] < 30
    if is_learnt(shell):
        assert abs(rates[0] - word) <= words and abs(rates[1] - phone) <= phones


def check_translation(shell: Shell, output: str, comment: str) -> None:
    assert output.count("\n") == 1
    near(output, comment, len(comment.split()) // (3 if is_learnt(shell) else 2))


def check_file(name: str, content: str) -> Callable[[Shell, str, str], None]:
    def check(shell: Shell, output: str, comment: str) -> None:
        assert content in (shell.directory / name).read_text(encoding="utf-8")

    return check


def page(address: str) -> str:
    """The page at an address; empty where nothing answers."""
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def check_server(shell: Shell, command: Command) -> None:
    """The page at the address of the comment answers."""
    address = command.comment.split()[0]
    port = int(address.rpartition(":")[2])
    with socket.socket() as free:
        assert free.connect_ex(("localhost", port)), f"port {port} is taken on this machine"
    shell.run(f"{command.line} > serve.log & serving=$!")
    wait_for(lambda: "<html" in page(address))
    language = json.loads(page(f"{address}/languages"))[0]
    pair = {"source": language["code"], "target": language["targets"][-1]}
    body = json.dumps({"q": "blorptastic", **pair}).encode()
    kind = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{address}/translate", body, kind)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        near(json.load(answer)["translatedText"], "B L AO R P T AE S T IH K", 5)
    shell.run("kill $serving && { wait $serving || true; }")


def same_as_comment(shell: Shell, output: str, comment: str) -> None:
    assert output.strip() == comment


def nothing_more(shell: Shell, output: str, comment: str) -> None:
    """Status 0 is its result."""


def check_recipes(shell: Shell, output: str, comment: str) -> None:
    assert len(output.splitlines()) == 3
    assert output.splitlines()[1].split()[0] in {
        f"{path.parent.name}/{path.stem}" for path in (ROOT / "recipes").glob("*/*.toml")
    }


CHECKS: dict[str, Callable[[Shell, str, str], None]] = {
    "python3 -m venv": nothing_more,
    "pip wheel": nothing_more,
    ".venv-light/bin/pip install": nothing_more,
    "transduce demo copy": lambda shell, output, _: check_copy(output),
    "transduce demo": check_demo,
    "echo blorptastic | transduce": check_translation,
    "transduce explain": check_file("x.html", "blorptastic"),
    "transduce export": check_file("demo.html", "<html"),
    "transduce train": nothing_more,
    "transduce evaluate": lambda shell, output, _: check_scores(output),
    'echo "a small dog" |': lambda shell, output, _: check_line(output),
    "echo dog | .venv-light/bin/transduce": same_as_comment,
    "transduce --version": lambda shell, output, _: same_as_comment(shell, output, __version__),
    "transduce recipes": check_recipes,
}
"""Checks of what each command prints; a command of the pages without one fails."""


def check_copy(output: str) -> None:
    rates = re.findall(r"copied exactly +([\d.]+) %", output)
    assert len(rates) == 1 and float(rates[0]) > 90


def check_scores(output: str) -> None:
    assert re.search(r"bleu|BLEU|chrF|chrf", output) and re.search(r"\d", output)


def check_line(output: str) -> None:
    assert output.count("\n") == 1


def run_block(shell: Shell, block: str, install: Callable[[Shell, Command], None]) -> None:
    for command in commands(block):
        if command.line.startswith("pip install"):
            install(shell, command)
        elif command.line.startswith("transduce serve"):
            check_server(shell, command)
        else:
            check = next((CHECKS[name] for name in CHECKS if command.line.startswith(name)), None)
            assert check is not None, f"no check of what this prints: {command.line}"
            check(shell, shell.run(command.line), command.comment)


def run_python(shell: Shell, block: str) -> None:
    """A session's prints against the comments beside them."""
    (shell.directory / "block.py").write_text(block, encoding="utf-8")
    lines = shell.run("python block.py").splitlines()
    near(lines[0], re.findall(r"\.text\) +# (.*)", block)[0], 4)
    assert len(lines) > 3
    for line in lines[-2:]:  # text and score of "hello" and "world"
        assert re.fullmatch(r"[A-Z ]+ -\d+\.\d+", line), line


def test_readme(shell: Shell, install: Callable[[Shell, Command], None]) -> None:
    write_tsv(shell.directory / "pairs.tsv", [(b, a) for a, b in toy_pairs(1000)])
    for language, block in blocks(ROOT / "README.md"):
        if language == "toml":
            assert MINUTES in block
            text = block.replace(MINUTES, "minutes = 0.5 ")
            (shell.directory / "mine.toml").write_text(text, encoding="utf-8")
        elif language == "python":
            run_python(shell, block)
        else:
            run_block(shell, block, install)
    packages = shell.run("pip list")
    assert "ziglang" not in packages and "pytest" not in packages


def test_install(shell: Shell, install: Callable[[Shell, Command], None]) -> None:
    for language, block in blocks(ROOT / "docs" / "install.md"):
        assert language == "sh"
        run_block(shell, block, install)
