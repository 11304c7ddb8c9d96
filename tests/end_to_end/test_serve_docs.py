"""docs/serving.md: from the first recipe to an answer in Weblate's request shape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.command_line import transduce
from helpers.served import library, served, some_sentences
from helpers.tiny_run import write_tsv

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first block of code in a language."""
    result = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert result is not None
    return result[1]


def test_a_newcomer_gets_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = dict.fromkeys(some_sentences(600))
    write_tsv(tmp_path / "pairs.tsv", [(text, text.upper()) for text in sentences])
    (tmp_path / "recipe.toml").write_text(block("toml"), encoding="utf-8")
    smaller = ["training.steps=2", "text.source.size=300", "training.schedule.warmup_steps=1"]
    settings = [word for one in smaller for word in ("--set", one)]
    done = transduce("train", "recipe.toml", "--run", "runs/de-en", *settings, cwd=tmp_path)
    assert done.code == 0, done.err
    run = tmp_path / "runs" / "de-en"
    with served(run) as server:
        exec(block("python").replace("http://localhost:5000", server.url), {})
        texts = ["Guten Tag.", "Wie geht es dir?"]
        expected = [translation.text for translation in library(run).translate(texts)]
        assert capsys.readouterr().out == f"{expected}\n"
        assert server.end() == 0
