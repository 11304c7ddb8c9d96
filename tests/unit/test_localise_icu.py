"""Messages of ICU: each of their texts is translated, and `#` and selectors stay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.localised_document import Output, word_by_word
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Segment
from transduce.localise.icu import parse_message
from transduce.localise.record import Record
from transduce.localise.translate import localised

pytest.importorskip("sentencex")
DOGS = "{n, plural, one{# dog} other{# dogs}}"


def swapped(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
    """Texts with capitals for small letters; placeholders have none."""
    return [Output(text.upper()) for text in texts]


def translated(text: str, language: str | None = None) -> Record:
    align = word_by_word(r"\w+")
    segments = [Segment("k", text, ())]
    (record,) = localised(segments, "en", swapped, DecodingOptions(), align, language)
    return record


@pytest.mark.parametrize(
    ("text", "language", "target"),
    [
        (DOGS, None, "{n, plural, one{# DOG} other{# DOGS}}"),
        (DOGS, "de", "{n, plural, one{# DOG} other{# DOGS}}"),
        (DOGS, "zh", "{n, plural, one{# DOG} other{# DOGS}}"),
        (DOGS, "ru", "{n, plural, one{# DOG} few{# DOGS} many{# DOGS} other{# DOGS}}"),
        (
            "{n, plural, =0 {none}\n  one {one dog}\n  other {# dogs}\n}",
            "ru",
            "{n, plural, =0 {NONE}\n  one {# DOGS}\n  few {# DOGS}\n  many {# DOGS}\n"
            "  other {# DOGS}\n}",
        ),
        (
            "I see {n, plural, one{# dog} other{# dogs}} here.",
            None,
            "{n, plural, one{I SEE # DOG HERE.} other{I SEE # DOGS HERE.}}",
        ),
        (
            "{g, select, a {{n, plural, one {He} other {They}}} other {It}}!",
            None,
            "{g, select, a {{n, plural, one {HE} other {THEY}}} other {IT}}!",
        ),
        ("{n, selectordinal, one {#st} other {#th}}", "ru", None),
        ("{n, plural, offset:1 =1 {'{a}' b} other {}}", "de", None),
    ],
)
def test_each_text_is_translated(text: str, language: str | None, target: str | None) -> None:
    record = translated(text, language)
    if target is None:
        names = [branch.name for branch in parse_message(text).branches]
        assert [branch.name for branch in parse_message(record.target).branches] == names
    else:
        assert (record.target, record.reason) == (target, "")


def test_a_text_that_fails_leaves_the_message() -> None:
    def empty(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        return [Output("" if "dogs" in text else text) for text in texts]

    (record,) = localised([Segment("k", DOGS, ())], "en", empty, DecodingOptions())
    assert (record.state, record.target) == ("needs-translation", DOGS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{n, plural, one {# dog} other {# dogs}", "braces"),
        ("#1: {n, plural, one {# dog} other {# dogs}}", "# outside"),
        ("a " + "{n, plural, one {x} other {y}} " * 7, "more than"),
    ],
)
def test_messages_that_are_left(text: str, reason: str) -> None:
    record = translated(text)
    assert record.target == text and reason in record.reason


@given(
    st.lists(
        st.sampled_from(("{", "}", DOGS, "one", "{n, select,", " a {", "'", "#", "x", "'{", ","))
    ).map("".join)
)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        message = parse_message(text)
    except DataError:
        return
    assert message.with_texts(message.texts(), None).count("#") >= text.count("#")
