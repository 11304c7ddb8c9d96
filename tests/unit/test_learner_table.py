"""The page that learns: its size, its words, and its copy in the book."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.web import needs_learner, needs_wasm
from transduce.explain.page import bare, static
from transduce.making.learner_page import BEHAVIOUR, LOOKS, WORKER, learner_page, sources

BOOK = Path(__file__).parents[2] / "docs" / "book" / "train.html"
SHARED = ("tokenizers", "translator")
"""Scripts of the worker that are those of other pages, too."""
MOST_BYTES = 400_000


def facts_of(page: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(
        page.partition('type="application/json">')[2].partition("</script>")[0]
    )
    return facts


@needs_wasm
@needs_learner
def test_it_is_small_and_its_scripts_stay_inside() -> None:
    page = learner_page()
    assert len(page.encode()) <= MOST_BYTES
    assert page.count("</script>") == 2
    assert "http://" not in page.replace("http://www.w3.org/", "") and "https://" not in page


def test_both_languages_have_all_words() -> None:
    words = json.loads(static("transduce.web", "learner_words.json"))
    assert words["en"].keys() == words["zh"].keys()
    for key, text in words["en"].items():
        assert sorted(re.findall(r"\{\d\}", text)) == sorted(
            re.findall(r"\{\d\}", words["zh"][key])
        )
    named = re.findall(r'data-t="(\w+)"', static("transduce.web", "learner.html"))
    code = "".join(static(*script) for script in BEHAVIOUR)
    named += re.findall(r'\bt\("([\w-]+)"', code)
    assert len(named) > 60
    assert [name for name in named if name not in words["en"]] == []


@pytest.mark.parametrize("path", [BOOK], ids=["book"])
def test_the_book_has_the_present_page(path: Path) -> None:
    page, again = (
        path.read_text(encoding="utf-8"),
        "run `transduce page docs/book/train.html --again`",
    )
    packed = gzip.decompress(base64.b64decode(facts_of(page)["sources"]))
    own = [name for name in WORKER if name not in SHARED]
    texts = json.loads(packed)
    assert {name: texts[name] for name in own} == {name: sources()[name] for name in own}, again
    for file in (*BEHAVIOUR, LOOKS[1]):
        assert bare(*file) in page, again
