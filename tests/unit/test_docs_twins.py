"""Chinese twins of pages: the same code, and links between both; short pages have a part of it."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
TWINS = sorted(
    str(path.relative_to(DOCS)) for path in DOCS.rglob("*.zh.md") if path != DOCS / "index.zh.md"
)

SHORT = [f"{name}.zh.md" for name in ("classification", "language-model", "speech", "vision")]
"""Pages of three commands, an output and links into the English page."""


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def code_of(name: str) -> list[str]:
    """Blocks of code and commands, without comments."""
    return [re.sub(r"\s*#.*", "", block) for block in FENCE.findall(text_of(name))]


@pytest.mark.parametrize("chinese", [name for name in TWINS if name not in SHORT])
def test_a_twin_has_the_code_of_its_page(chinese: str) -> None:
    english = chinese.replace(".zh", "")
    assert code_of(chinese) == code_of(english)


@pytest.mark.parametrize("chinese", SHORT)
def test_a_short_page_has_code_of_its_page(chinese: str) -> None:
    assert (DOCS / chinese).stat().st_size <= 4000
    blocks = code_of(chinese)
    assert blocks and set(blocks) <= set(code_of(chinese.replace(".zh", "")))


@pytest.mark.parametrize("chinese", TWINS)
def test_twins_link_to_each_other(chinese: str) -> None:
    english = chinese.replace(".zh", "")
    assert f"]({Path(english).name})" in text_of(chinese)
    assert f"]({Path(chinese).name})" in text_of(english)
