"""The page of an explanation: small, whole in itself, and safe with any text."""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
import pytest

from helpers.random_translator import random_translator
from transduce.explain.explanation import Explanation
from transduce.explain.page import LIVE_SCRIPTS, MAX_WEIGHTS
from transduce.explain.tasks import explain_translation

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script> -->",
    "/*DATA*/ /*SCRIPT*/ /*STYLE*/",
    "a\x00b\x1b[31m\u2028\u2029",
    "שלום \u202e عليكم",
    "👩‍👩‍👧‍👦 e\u0301",
    "x" * 2000,
    "half a character \ud800",
]


def text_of(name: str) -> str:
    file = resources.files("transduce.explain") / "static" / name
    return file.read_text(encoding="utf-8")


def script() -> str:
    return "\n".join(text_of(f"{name}.js") for name in LIVE_SCRIPTS)


@pytest.fixture(scope="module")
def one() -> Explanation:
    return explain_translation(random_translator(), ("w3 w1 w4 w1 w5",))


def data_of(page: str) -> list[dict[str, Any]]:
    """The data as a browser sees them: up to the first end of the script element."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script', page, re.S)
    assert found
    parsed: list[dict[str, Any]] = json.loads(found.group(1))
    return parsed


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_data(one: Explanation, text: str) -> None:
    tokens = {**one.sequences, "source": [text, *one.sequences["source"][1:]]}
    page = replace(one, inputs={"source": text}, answer=text, sequences=tokens).page()
    (data,) = data_of(page)
    expected = text.encode("utf-8", "replace").decode()
    assert data["inputs"]["source"] == data["answer"] == data["sequences"]["source"][0] == expected
    assert page.count("<script") == 2 and page.count("</script>") == 2


def test_a_page_needs_nothing_else(one: Explanation) -> None:
    page = re.sub(r"http://www\.w3\.org/(2000/svg|1998/Math/MathML)", "", one.page())
    assert "http:" not in page and "https:" not in page and "//cdn" not in page
    assert not re.search(r"@import|(?<!image\.)\bsrc=|<link (?!rel=\"icon\" href=\"data:,\")", page)


def test_no_text_becomes_html() -> None:
    ways = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")
    for way in ways:
        assert way not in script()


def test_both_languages_say_everything() -> None:
    known: set[str] = set()
    for name in ("words.json", "live_words.json"):
        words = json.loads(text_of(name))
        assert list(words["en"]) == list(words["zh"])
        for key, text in words["en"].items():
            assert sorted(re.findall(r"\{\d\}", text)) == sorted(
                re.findall(r"\{\d\}", words["zh"][key])
            ), key
        known |= set(words["en"])
    asked = set(re.findall(r'\bt\(\s*"([\w-]+)"', script()))
    assert asked and asked <= known


def test_a_frame_for_a_notebook(one: Explanation) -> None:
    frame = one._repr_html_()
    (inside,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert html.unescape(inside) == one.page()


def test_numbers_survive_packing(one: Explanation) -> None:
    (data,) = data_of(one.page())
    for packed, attention in zip(data["attention"], one.attention, strict=True):
        values = np.frombuffer(base64.b64decode(packed["weights"]), np.uint8) / 255
        weights = attention.weights
        if attention.causal:
            weights = np.stack([head[np.tril_indices(len(head))] for head in weights])
        np.testing.assert_allclose(values, weights.ravel(), atol=0.002)
    head = data["by_hand"][0]["query"]
    values = np.frombuffer(base64.b64decode(head["half"]), "<f2").reshape(head["shape"])
    np.testing.assert_allclose(values, one.by_hand[0].vectors.query, rtol=1e-3, atol=1e-3)


def test_huge_numbers_stay_finite(one: Explanation) -> None:
    head = one.by_hand[0]
    query = head.vectors.query.copy()
    query[0, :3] = [1e5, -3e38, 65519.0]
    huge = replace(head, vectors=replace(head.vectors, query=query))
    (data,) = data_of(replace(one, by_hand=(huge, *one.by_hand[1:])).page())
    values = np.frombuffer(base64.b64decode(data["by_hand"][0]["query"]["half"]), "<f2")
    assert values[:3].tolist() == [65504, -65504, 65504]
    np.testing.assert_allclose(values[3:], query.ravel()[3:], rtol=1e-3, atol=1e-3)


def test_a_large_model_leaves_layers_out(one: Explanation) -> None:
    big = one.attention[0]
    wide = np.full((4, 90, 90), 1 / 90, np.float32)
    many = tuple(
        replace(big, name=f"encoder.layers.{i}.self_attention", weights=wide) for i in range(12)
    )
    (data,) = data_of(replace(one, attention=many, by_hand=()).page())
    kept = [packed["name"].split(".")[2] for packed in data["attention"]]
    assert kept[0] == "0" and kept[-1] == "11"
    assert len(kept) * wide.size <= MAX_WEIGHTS and data["attentionLeftOut"] == 12 - len(kept)


def test_the_page_of_ten_tokens_is_small() -> None:
    stack = {"n_layers": 4, "n_heads": 4, "d_ff": 256, "positions": "rotary"}
    decoding = {"max_length_ratio": 1.0, "max_length_extra": 0}
    translator = random_translator(stack, stack, d_model=128, decoding=decoding)
    found = explain_translation(translator, (" ".join(f"w{i}" for i in range(9)),))
    assert len(found.sequences["source"]) == len(found.sequences["read"]) == 10
    assert len(found.page().encode()) < 170_000
