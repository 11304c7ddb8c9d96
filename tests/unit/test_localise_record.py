"""Records: one schema for whatever was and was not translated."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from helpers.localised_document import Output
from transduce import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import (
    Document,
    Record,
    Segment,
    decode,
    document_with,
    untranslated_record,
)
from transduce.localise.formats import read_document
from transduce.localise.translate import localised


def test_a_line_has_all_fields() -> None:
    line = Record("line 1", "Hündin\u2028", "dog", "translated", file="a.txt").line()
    assert json.loads(line) == {
        "key": "line 1",
        "source": "Hündin\u2028",
        "target": "dog",
        "state": "translated",
        "reason": "",
        "file": "a.txt",
    }
    assert "\n" not in line and "ü" in line


def test_a_sentence_that_was_cut_off_is_named() -> None:
    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        return [Output(text.upper(), "endless" not in text) for text in texts]

    segments = [
        Segment(f"line {i}", text, ()) for i, text in enumerate(("A dog. endless.", "Cat."))
    ]
    cut, whole = localised(segments, "en", translate, DecodingOptions())
    assert (cut.target, cut.state, cut.is_done) == ("A DOG. ENDLESS.", "translated", True)
    assert cut.reason == "cut off at the greatest length" and not cut.is_finished
    assert not whole.reason and whole.is_finished


def test_texts_of_pictures_and_units_of_other_languages_are_named() -> None:
    svg = "<svg{}><title>Icon</title><text>Wheel <tspan>diameter</tspan></text><text>5</text></svg>"
    page = read_document("a.html", f"<p>Hi</p>{svg.format('')}".encode())
    assert [record.source for record in page.unread] == ["Wheel", "diameter"]
    assert not read_document("a.html", svg.format(' translate="no"').encode()).unread
    units = "".join(
        f'<tu><tuv xml:lang="{code}"><seg>Open</seg></tuv></tu>' for code in ("en", "fr", "en-US")
    )
    memory = f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'.encode()
    document = read_document("a.tmx", memory, target_language="de")
    assert len(document.segments) == 2
    assert [(record.key, record.state) for record in document.unread] == [("unit 2", "unread")]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("placeholders are not kept: %s is missing", "placeholders"),
        ("the translation is empty", "empty"),
        ("the format cannot hold the translation: 'ü' is not in ascii", "format"),
        ("the secret: is out", "other"),
    ],
)
def test_a_cause_quotes_nothing(reason: str, cause: str) -> None:
    assert untranslated_record("line 1", "a", reason).cause == cause


def test_what_a_document_cannot_hold_is_named() -> None:
    document = read_document("a.txt", "Bär\nHund\n".encode("latin-1"), "latin-1")
    records = [
        Record("line 1", "Bär", "медведь", "translated"),
        Record("line 2", "Hund", "dog", "translated"),
    ]
    made = document_with(document, records)
    assert made.content == "Bär\ndog\n".encode("latin-1")
    first, second = made.records
    assert (first.target, first.state, first.cause) == ("Bär", "needs-translation", "format")
    assert second.is_done


def test_unread_parts_are_records_and_alone_an_error() -> None:
    unread = Record("line 1", "?", "?", "unread", "no time")
    document = Document([], decode(b"?"), lambda targets: [], unread=[unread])
    made = document_with(document, [])
    assert made.records == [unread] and made.content == b"?"
    with pytest.raises(DataError, match="nothing was translated; line 1: no time"):
        made.check()


def test_the_text_of_a_record_is_its_target() -> None:
    assert Record("line 1", "Ich", "I", "translated").text == "I"
