"""Live translation of the page: glossaries, words, other options of an explanation."""

from __future__ import annotations

import logging
import math
import re
from importlib import resources
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from helpers.random_translator import random_translator
from transduce.errors import DataError, RunError
from transduce.explain.parts import KnockOut
from transduce.loading import Run
from transduce.serve.calls import RequestError
from transduce.serve.dialects.page import glossary_of, policy_of
from transduce.serve.requests import Fields
from transduce.serve.worker import Worker
from transduce.tasks.translation.alignment import MAX_TOKENS, translated_words, word_spans


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text)]


def test_words_are_without_punctuation_and_blanks() -> None:
    assert words("It's a well-known “tree”, isn’t it?  3.5 %") == [
        *("It's", "a", "well-known", "“", "tree", "”", ",", "isn’t", "it", "?", "3", ".", "5", "%")
    ]
    assert words("我是学生。 OK") == ["我", "是", "学", "生", "。", "OK"]
    assert words(" \n") == []


def test_probabilities_of_words_make_the_score() -> None:
    translator = random_translator()
    source, target = "w3 w1 w4", "w5 w1 w1 w2"
    result = translated_words(translator, source, target)
    (score,) = translator.score([(source, target)])
    assert len(result.target) == 4 and len(result.source) == 3
    end = score - math.log(np.prod(result.probabilities))
    assert end < 0
    expected = translator.align(source, target).weights[:-1, :-1].numpy()
    assert result.attention is not None
    np.testing.assert_allclose(result.attention, expected, atol=1e-6)


def test_a_tag_is_no_word() -> None:
    translator = random_translator()
    result = translated_words(translator, "w1 w4", "w5", "w3 ")
    assert list(result.source) == [(0, 2), (3, 5)]
    expected = translator.align("w3 w1 w4", "w5").weights[:-1, 1:-1].numpy()
    assert result.attention is not None
    np.testing.assert_allclose(result.attention, expected, atol=1e-6)


def test_rivals_replace_the_first_token_of_a_word() -> None:
    translator = random_translator()
    result = translated_words(translator, "w3 w1", "w5 w1")
    rivals = result.rivals(1)
    assert rivals and all(text.startswith("w5 ") and text != "w5 w1" for text, _ in rivals)
    assert [share for _, share in rivals] == sorted((s for _, s in rivals), reverse=True)


def test_a_fixed_context_has_no_attention() -> None:
    rnn = {"kind": "recurrent"}
    translator = random_translator(rnn, {**rnn, "context": {"kind": "fixed"}}, trained=False)
    assert translated_words(translator, "w3", "w5").attention is None


def test_sentences_beyond_the_limit_are_refused() -> None:
    with pytest.raises(DataError, match=f"more than {MAX_TOKENS} tokens"):
        translated_words(random_translator(), "w1 " * MAX_TOKENS, "w1")


def test_terms_are_whole_words_in_any_case() -> None:
    terms = [["Haus", "house"], ["学生", "student"], ["C++", "Cpp"], [" ", "x"]]
    glossary = glossary_of(Fields({"glossary": terms}))
    assert glossary("Das haus, das Haus.") == (("house",),)
    assert glossary("HAUS") == (("house", "House"),)
    assert glossary("Das Hausboot.") == ()
    assert glossary("我是学生。C++!") == (("student",), ("Cpp",))
    assert glossary_of(Fields({}))("Haus") == ()


@pytest.mark.parametrize("terms", ["a", [["a"]], [["a", 1]], [1], [["a", "b"]] * 201])
def test_other_glossaries_are_refused(terms: Any) -> None:
    with pytest.raises(RequestError, match="glossary"):
        glossary_of(Fields({"glossary": terms}))


def test_a_policy_names_scripts_by_their_hashes() -> None:
    page = '<style>a</style><script id="data" type="application/json">x</script><script>b</script>'
    policy = policy_of(page)
    assert policy.count("sha256-") == 2 and "unsafe" not in policy


def test_no_file_that_a_client_names_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("transduce"), "filters", [])
    predictor = SimpleNamespace(options=None, inputs=("audio",))
    worker = Worker(cast(Run, SimpleNamespace(predictor=predictor)))
    with pytest.raises(RunError, match="recordings"):
        worker.explain(["/etc/passwd"], None, KnockOut((), ()))


def test_the_page_has_its_words_in_both_languages() -> None:
    page = resources.files("transduce.serve.page") / "static"
    texts = {file.name: file.read_text(encoding="utf-8") for file in page.iterdir()}
    row = r'^  "?([\w-]+)"?: \["[^"]+", "[^"]+"\],$'
    words = re.findall(row, texts["words.js"], re.MULTILINE)
    assert len(words) == texts["words.js"].count(': ["') == len(set(words))
    named = set(re.findall(r'data-t(?:-\w+)?="(\w+)"', texts["index.html"]))
    for name, text in texts.items():
        named |= set(re.findall(r'\bt\("(\w+)"', text)) if name.endswith(".js") else set()
    assert named <= set(words) and len(named) > 40
