"""Whatever a translator answers, placeholders come out once or the source comes back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.localised_document import Output, localised_document
from transduce import DecodingOptions
from transduce.errors import DataError, SettingError
from transduce.localise.document import Segment, Span
from transduce.localise.formats import read_document
from transduce.localise.placeholders import protect
from transduce.localise.projection import Links
from transduce.localise.translate import localised

pytest.importorskip("sentencex")

PARTS = (
    *(
        *("a", "Hund ", "%s", "<b>", "</b>", " ", "{0}", ". ", "[X1X]", "<br/>", "\n", "你好。"),
        "&amp;",
    ),
    *("&", "<", "\U000f0000", "'", "Ü", "http://a.b/c", "%1$s", "--opt ", "!", "\ud800", "\x00"),
)
MARKUP = (
    *("<p>", "</p>", "Ich ", "bin ", "<b>", "</b>", "<img alt='Hund'>", " müde.", "&nbsp;", "&lt;"),
    *("<code>x</code>", "%s", "\n", "<br>", "{0}", "<", "&", "<i>", "</i>", "<!-- c -->"),
)


class Nonsense:
    """A translator and an aligner that answer anything, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def translate(
        self, texts: Sequence[str], options: Sequence[DecodingOptions]
    ) -> list[Output | SettingError]:
        return [self._answer(text, option) for text, option in zip(texts, options, strict=True)]

    def _answer(self, text: str, options: DecodingOptions) -> Output | SettingError:
        match self._random.randrange(5):
            case 0 if options.constraints:
                return SettingError("no")
            case 1:
                return Output(text[::-1])
            case 2:
                return Output("".join(self._random.choices(PARTS, k=5)))
            case 3:
                return Output("")
        return Output(text)

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Links]:
        return [
            [(self._character(a), self._character(b)) for _ in range(5)] if a and b else []
            for a, b in pairs
        ]

    def _character(self, text: str) -> Span:
        place = self._random.randrange(len(text))
        return Span(place, place + 1)


TEXTS = st.lists(st.sampled_from(PARTS), max_size=14).map("".join).filter(str.strip)


@given(TEXTS, st.integers(0, 1 << 20), st.booleans(), st.booleans())
def test_any_text(text: str, seed: int, aligned: bool, markup: bool) -> None:
    nonsense = Nonsense(seed)
    segment = Segment("k", text, (Span(0, 1),), markup=markup)
    align = nonsense.align if aligned else None
    (record,) = localised([segment], "de", nonsense.translate, DecodingOptions(), align)
    if record.state == "needs-translation":
        assert record.target == text and record.reason
    elif not markup:
        for name, count in Counter(protect(text).names.values()).items():
            assert record.target.count(name) >= count


@given(
    st.lists(st.sampled_from(MARKUP), max_size=25).map("".join),
    st.integers(0, 1 << 20),
    st.sampled_from([".html", ".txt", ".srt", ".vtt"]),
)
def test_any_document(text: str, seed: int, suffix: str) -> None:
    nonsense = Nonsense(seed)
    timing = "1\n00:00:01,000 --> 00:00:02,000\n" if suffix in (".srt", ".vtt") else ""
    document = read_document(f"a{suffix}", (timing + text).encode())
    options = DecodingOptions()
    try:
        data = localised_document(document, "de", nonsense.translate, options, nonsense.align)
    except DataError as error:
        assert str(error).startswith("nothing was translated; ")
        return
    read_document(f"a{suffix}", data)


@pytest.mark.parametrize(
    "text",
    (
        *("42", "1,234.50", "€ 5", "2024-01-05", "00:00:00", "2024-01-05T10:00:00Z", "127.0.0.1"),
        *("v2.0", "A1", "0x1F", "1e5", "٣٫٥", "* * *", "№ 5", "3/4", "+49 30 1234-5", "100 %"),
        *("10.0.0.0/8", "v1.2.3-4", "1:30 / 2:45"),
    ),
)
def test_a_text_without_words_stays_and_is_not_sent(text: str) -> None:
    (record,) = localised([Segment("k", text, (Span(0, 1),))], "en", refused, DecodingOptions())
    assert (record.target, record.state, record.reason) == (text, "translated", "")


def refused(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
    """No translation is made."""
    raise AssertionError(texts)


@pytest.mark.parametrize(
    "text", ("3.5 kg", "2nd", "5年", "五", "I", "y", "Я", "5м", "Open 127.0.0.1", "12 pm", "ab-12")
)
def test_a_text_with_a_word_is_sent(text: str) -> None:
    sent: list[str] = []

    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        sent.extend(texts)
        return [Output(text) for text in texts]

    localised([Segment("k", text, (Span(0, 1),))], "en", translate, DecodingOptions())
    assert sent
