"""The tour: its snippets run, its files exist, and its Chinese twin has the same code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code_of(name: str) -> list[str]:
    return FENCE.findall((DOCS / name).read_text(encoding="utf-8"))


@pytest.mark.system
@pytest.mark.parametrize("page", ["tour.md", "tour.zh.md"])
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = code_of(page)
    assert len(snippets) >= 8
    names: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), names)
