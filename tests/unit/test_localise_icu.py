"""Messages of ICU: each of their texts is translated, and `#` and selectors stay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.localised_document import Output, word_by_word
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Record, Segment, document_with
from transduce.localise.formats import read_document
from transduce.localise.plurals import parse_message
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
        (
            "{n, plural, one{# dog} other{# dogs}} in {g, select, a{his} other{their}} house",
            None,
            "{n, plural, one{{g, select, a{# DOG IN HIS HOUSE} other{# DOG IN THEIR HOUSE}}} "
            "other{{g, select, a{# DOGS IN HIS HOUSE} other{# DOGS IN THEIR HOUSE}}}}",
        ),
        (
            "{n, plural, other{# dogs}} and {m, plural, one{# cat} other{# cats}}",
            None,
            "{n, plural, other{{m, plural, one{{n, number} DOGS AND # CAT} "
            "other{{n, number} DOGS AND # CATS}}}}",
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


def test_a_choice_within_a_tag_is_no_choice() -> None:
    tag = '<x id="ICU" equiv-text="{n, plural, ...}"/>'
    segments = [Segment("k", f"a {tag} dog", (), (tag,), True)]
    (record,) = localised(segments, "en", swapped, DecodingOptions(), word_by_word(r"\w+"))
    assert record.target == f"A {tag} DOG"


def test_an_added_text_has_the_tags_of_another() -> None:
    tag = '<x id="INTERPOLATION"/>'
    unit = f"{{VAR, plural, =0 {{nobody}} other {{{tag} people}}}}"
    content = (
        '<xliff version="1.2"><file source-language="en"><body><trans-unit id="1">'
        f"<source>{unit}</source></trans-unit></body></file></xliff>"
    )
    document = read_document("a.xlf", content.encode(), target_language="de")
    align = word_by_word(r"\w+")
    records = localised(document.segments, "en", swapped, DecodingOptions(), align, "de")
    made = document_with(document, records)
    assert all(record.is_done for record in made.records)
    assert f"one {{{tag} PEOPLE}} other {{{tag} PEOPLE}}" in made.content.decode()


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
    assert message.with_texts(message.texts()).count("#") >= text.count("#")
