"""Messages of MessageFormat: read and written as Java and FormatJS read them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from helpers.localised_document import Output, localised_document, word_by_word
from transduce.decoding.options import DecodingOptions
from transduce.localise.formats import read_document
from transduce.localise.message_format import from_message, to_message

pytest.importorskip("sentencex")


def elided(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
    """Words with capitals, and an apostrophe in each `of`."""
    shout = (re.sub(r"(?<![\w{])[a-z]+", lambda word: word[0].upper(), text) for text in texts)
    return [Output(text.replace("OF ", "D'").replace("OF", "D'")) for text in shout]


def translated(name: str, content: str) -> str:
    document = read_document(name, content.encode())
    align = word_by_word(r"\w+")
    return localised_document(document, "en", elided, DecodingOptions(), align).decode()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("it''s {0} here", "IT''S {0} HERE"),
        ("only '{0}' here", "ONLY '{0}' HERE"),
        ("use '{' and '}' around {0}", "USE '{' AND '}' AROUND {0}"),
        ("a {0,number,'#'#} here", "A {0,number,'#'#} HERE"),
        ("{0,choice,0#no dogs|1#one dog|1<{0} dogs}", "{0,choice,0#NO DOGS|1#ONE DOG|1<{0} DOGS}"),
        (
            "there {0,choice,0#are none|1#is {1}} now",
            "{0,choice,0#THERE ARE NONE NOW|1#THERE IS {1} NOW}",
        ),
        ("{0,choice,-1#all of it|1.5<it''s {0}}", "{0,choice,-1#ALL D''IT|1.5<IT''''S {0}}"),
    ],
)
def test_properties(text: str, target: str) -> None:
    assert translated("a.properties", f"k = {text}\n") == f"k = {target}\n"


def test_apostrophes_of_icu_in_json() -> None:
    plural = "{n, plural, one{a dog} other{# dogs}}"
    content = {"a": "file of {name} found", "b": "it's '{x}' here", "c": plural}
    target = json.loads(translated("a.json", json.dumps(content)))
    assert target["a"] == "FILE D''{name} FOUND"
    assert target["b"] == "IT'S '{x}' HERE"
    assert json.loads(translated("a.json", json.dumps({"a": content["a"]})))["a"] == (
        "FILE D'{name} FOUND"
    )


@pytest.mark.parametrize(
    "text",
    ("it''s {0}", "'{0}'", "a '{' b '}' {1}", "{0,date,d'.' MMM} ''{0}''", "'{it''s}' {0}", "{0}"),
)
def test_a_message_is_written_as_it_was_read(text: str) -> None:
    assert to_message(*from_message(text)) == text


def test_a_choice_without_limits_is_left() -> None:
    document = read_document("a.properties", b"k = {0,choice,none|one}\nb = a dog\n")
    data = localised_document(document, "en", elided, DecodingOptions(), word_by_word(r"\w+"))
    assert data == b"k = {0,choice,none|one}\nb = A DOG\n"
