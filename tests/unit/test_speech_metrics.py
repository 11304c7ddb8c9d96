"""Word and character error rates of speech, by hand."""

from __future__ import annotations

import pytest

from transduce.metrics import make_metric, measure
from transduce.metrics.error_rates import normalise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", "hello world"),
        ("It's  Sam\N{RIGHT SINGLE QUOTATION MARK}s 'dog'.", "it's sam's dog"),
        ("well-known", "well known"),
        ("STRASSE Straße", "strasse strasse"),
        ("ﬁne １０ 你好。", "fine 10 你好"),
        ("cafe\N{COMBINING ACUTE ACCENT} $5", "café 5"),
        ("'", ""),
        ("", ""),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_words_are_counted_over_all_items() -> None:
    hypotheses = ["a b x d e f g", "Y"]
    references = [["A, b c d e f g."], ["z"]]
    assert measure(["word-error-rate"], hypotheses, references) == {
        "word-error-rate": 25.0,
        "word-error-rate_signature": "nrefs:1|case:folded|punct:removed|unicode:NFKC",
    }


def test_characters_include_spaces() -> None:
    metric = make_metric("character-error-rate")
    sums = metric.statistics(["ab cd"], [["abcd", "ab-cde"]])
    assert sums.tolist() == [[1, 6]], "of equally close references the longer one"
    assert metric.signature([["a", "b"]]).endswith("|spaces:counted")
    assert metric.signature([["a"], ["a", "b"]]).startswith("nrefs:var|")


def test_nothing_against_nothing_is_right() -> None:
    for name in ("word-error-rate", "character-error-rate"):
        assert measure([name], ["..."], [[""]])[name] == 0.0
        assert measure([name], ["a"], [["!"]])[name] == 100.0
