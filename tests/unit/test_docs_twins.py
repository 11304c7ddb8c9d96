"""Chinese twins of pages: the same code, sections and figures, and links between both."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
TWINS = sorted(path.name for path in DOCS.glob("*.zh.md") if path.name != "index.zh.md")


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def code_of(name: str) -> list[str]:
    """Blocks of code and commands, without comments."""
    return [re.sub(r"\s*#.*", "", block) for block in FENCE.findall(text_of(name))]


def headings(name: str) -> list[int]:
    """Levels of the headings, in order."""
    prose = FENCE.sub("", text_of(name))
    return [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)]


def table_figures(name: str) -> list[str]:
    """Decimal numbers in the tables, sorted."""
    rows = re.findall(r"^\|.*", FENCE.sub("", text_of(name)), re.MULTILINE)
    return sorted(re.findall(r"\d[\d,]*\.\d+", "\n".join(rows)))


def test_there_are_twins() -> None:
    assert {"tour.zh.md", "from-paper-to-code.zh.md"} <= set(TWINS)


@pytest.mark.parametrize("chinese", TWINS)
def test_a_twin_has_the_code_and_the_sections_of_its_page(chinese: str) -> None:
    english = chinese.replace(".zh", "")
    assert code_of(chinese) == code_of(english)
    assert headings(chinese) == headings(english)


@pytest.mark.parametrize("chinese", TWINS)
def test_tables_of_a_twin_have_the_same_figures(chinese: str) -> None:
    assert table_figures(chinese) == table_figures(chinese.replace(".zh", ""))


@pytest.mark.parametrize("chinese", TWINS)
def test_twins_link_to_each_other(chinese: str) -> None:
    english = chinese.replace(".zh", "")
    assert f"]({english})" in text_of(chinese)
    assert f"]({chinese})" in text_of(english)
