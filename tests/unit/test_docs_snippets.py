"""The documentation's Python snippets run, print what the pages say they print, and have types."""

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from transduce.metrics import METRICS
from transduce.tasks import TASKS
from transduce.text.build import LOADERS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# Pages whose snippets are executed, in order and in one namespace per page.
PAGES = [
    "extending.md",
    *sorted(
        str(page.relative_to(DOCS))
        for page in DOCS.glob("book/[0-9a]*.md")
        if page.name.split(".")[0] != "00-numbers"  # a chapter without code
    ),
]

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_snippets(page: Path) -> int:
    """Execute every ```python block; those that begin with >>> must also print what follows.

    Returns how many there were.  Tracebacks and failures carry the line of the page.
    """
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    snippets = list(FENCE.finditer(text))
    for match in snippets:
        lines_before = text[: match.start(1)].count("\n")
        if match[1].startswith(">>> "):
            run_session(match[1], namespace, page, lines_before)
        else:
            code = compile("\n" * lines_before + match[1], str(page), "exec")
            exec(code, namespace)
    return len(snippets)


def run_session(session: str, namespace: dict[str, Any], page: Path, lines_before: int) -> None:
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), lines_before)
    test.globs = namespace
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)


def code_of(page: Path) -> str:
    """The snippets of a page, each line where it stands there; without what sessions print."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    for match in FENCE.finditer(text):
        first = text[: match.start(1)].count("\n")
        code = match[1].splitlines()
        if match[1].startswith(">>> "):
            code = [line[4:] if line.startswith((">>> ", "... ")) else "" for line in code]
        lines[first : first + len(code)] = code
    return "\n".join(lines) + "\n"


def mypy(pages: Iterable[Path], directory: Path) -> str:
    """Errors of mypy in the snippets of all pages, each a module; nothing where it is well.

    They are strict as the package is, but for names that a page gives to something else later, and
    where PyTorch has no types.
    """
    modules = []
    for page in pages:
        name = re.sub(r"\W", "_", f"{page.parent.name}_{page.name}")
        modules.append(directory / f"{name}.py")
        modules[-1].write_text(code_of(page), encoding="utf-8")
    options = [
        "--config-file",
        ROOT / "pyproject.toml",
        "--cache-dir",
        ROOT / ".mypy_cache" / "docs",
    ]
    options += ["--allow-redefinition", "--untyped-calls-exclude=torch", "--no-warn-return-any"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *modules],
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.slow
def test_snippets_have_the_types_that_checkers_ask_for(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("README*.md")]
    assert mypy([page for page in pages if code_of(page).strip()], tmp_path) == ""


@pytest.mark.slow
def test_a_type_that_is_wrong_is_found(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    page = tmp_path / "page.md"
    page.write_text(
        'A page.\n\n```python\nimport transduce\n\nfor one in transduce.load("a").predict([""]):\n'
        "    print(one.text, one.probabilities)\n```\n",
        encoding="utf-8",
    )
    assert 'page_md.py:7: error: "Prediction" has no attribute' in mypy([page], tmp_path)


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES)
def test_snippets_do_as_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        stack.callback(torch.set_printoptions, profile="default")
        for table in (TASKS, METRICS, LOADERS):  # a page may add rows
            stack.enter_context(mock.patch.dict(table))
        assert run_snippets(DOCS / page) > 0


@pytest.mark.parametrize(
    "snippet", ["assert 1 + 1 == 3", ">>> 1 + 1\n3", ">>> undefined", ">>> a = 1\n>>> a\n2"]
)
def test_a_wrong_snippet_is_found(tmp_path: Path, snippet: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```python\n{snippet}\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        run_snippets(page)


def test_snippets_share_what_they_define(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\na = 1\n```\ntext\n```python\n>>> b = a + 1\n>>> b\n2\n```\n"
        "```text\nno Python\n```\n```python\nassert a + b == 3\n```\n",
        encoding="utf-8",
    )
    assert run_snippets(page) == 3
