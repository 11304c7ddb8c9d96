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
from transduce.runs.run import Run
from transduce.serve.dialects.page import policy_of
from transduce.serve.errors import RequestError
from transduce.serve.page.glossary import read_terms, required_by
from transduce.serve.worker import Worker
from transduce.tasks.translation.words import MAX_TOKENS, translated_words, word_spans


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
    found = translated_words(translator, source, target)
    (score,) = translator.score([(source, target)])
    assert len(found.target) == 4 and len(found.source) == 3
    end = score - math.log(np.prod(found.probabilities))
    assert end < 0
    wanted = translator.align(source, target).weights[:-1, :-1].numpy()
    assert found.attention is not None
    np.testing.assert_allclose(found.attention, wanted, atol=1e-6)


def test_a_tag_is_no_word() -> None:
    translator = random_translator()
    found = translated_words(translator, "w1 w4", "w5", "w3 ")
    assert list(found.source) == [(0, 2), (3, 5)]
    wanted = translator.align("w3 w1 w4", "w5").weights[:-1, 1:-1].numpy()
    assert found.attention is not None
    np.testing.assert_allclose(found.attention, wanted, atol=1e-6)


def test_rivals_replace_the_first_token_of_a_word() -> None:
    translator = random_translator()
    found = translated_words(translator, "w3 w1", "w5 w1")
    rivals = found.rivals(1)
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
    terms = read_terms([["Haus", "house"], ["学生", "student"], ["C++", "Cpp"], [" ", "x"]])
    assert required_by(terms, "Das haus, das Haus.") == ("house",)
    assert required_by(terms, "Das Hausboot.") == ()
    assert required_by(terms, "我是学生。C++!") == ("student", "Cpp")


@pytest.mark.parametrize("given", ["a", [["a"]], [["a", 1]], [1], [["a", "b"]] * 201])
def test_other_glossaries_are_refused(given: Any) -> None:
    with pytest.raises(RequestError, match="glossary"):
        read_terms(given)


def test_a_policy_names_scripts_by_their_hashes() -> None:
    page = '<style>a</style><script id="data" type="application/json">x</script><script>b</script>'
    policy = policy_of(page)
    assert policy.count("sha256-") == 2 and "unsafe" not in policy


def test_no_file_that_a_client_names_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("transduce"), "filters", [])
    predictor = SimpleNamespace(options=None, inputs=("audio",))
    worker = Worker(cast(Run, SimpleNamespace(predictor=predictor)))
    assert isinstance(worker.explain(["/etc/passwd"], None), RunError)


def test_the_page_has_its_words_in_both_languages() -> None:
    page = resources.files("transduce.serve.page") / "static"
    texts = {one.name: one.read_text(encoding="utf-8") for one in page.iterdir()}
    english, _, chinese = texts["words.js"].partition("  zh: {")
    keys = [
        set(re.findall(r'^    "?([\w-]+)"?: ', part, re.MULTILINE)) for part in (english, chinese)
    ]
    named = set(re.findall(r'data-t(?:-\w+)?="(\w+)"', texts["index.html"]))
    for name, text in texts.items():
        named |= set(re.findall(r'\bt\("(\w+)"', text)) if name.endswith(".js") else set()
    assert keys[0] == keys[1] and named <= keys[0] and len(named) > 40
