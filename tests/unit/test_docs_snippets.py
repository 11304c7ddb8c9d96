"""The documentation's Python snippets run, and print what the pages say they print."""

import doctest
import re
from pathlib import Path
from typing import Any

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"

# Pages whose snippets are executed, in order and in one namespace per page.
PAGES = ["from-paper-to-code.md"]

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


@pytest.mark.parametrize("page", PAGES)
def test_snippets_do_as_the_page_says(page: str) -> None:
    try:
        assert run_snippets(DOCS / page) > 0
    finally:
        torch.set_printoptions(profile="default")


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
