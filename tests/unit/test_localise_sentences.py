"""Sentence splitting loses no character, and cuts where sentences end."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import SettingError
from transduce.localise.sentences import WINDOW, split_sentences

pytest.importorskip("sentencex")

CODES = ("en", "de", "fr", "zh", "ja", "ar", "hi", "zt", "pb", "zh-Hant", "pt_BR", "DE", "qqq", "")
PIECES = (
    *(
        "a",
        "B",
        ". ",
        ".",
        "! ",
        "? ",
        "\r",
        "\n",
        "\u2028",
        "\x85",
        "\u3000",
        "\u00a0",
        "\t",
        "  ",
    ),
    *(
        "。",
        "！",
        "“",
        "”",
        '"',
        "(",
        ")",
        "«",
        "»",
        "Dr.",
        "A. ",
        "3. ",
        "\U0001f600",
        "\ud800",
        "\x00",
    ),
)


@given(
    st.text(st.characters()) | st.lists(st.sampled_from(PIECES)).map("".join),
    st.sampled_from(CODES),
)
def test_no_character_is_lost(text: str, code: str) -> None:
    sentences = split_sentences(text, code)
    assert sentences.joined(sentences.texts) == text
    assert len(sentences.between) == len(sentences.texts) + 1
    assert all(one == one.strip() and len(one.splitlines()) == 1 for one in sentences.texts)
    assert all(any(map(str.isalnum, one)) for one in sentences.texts)


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        ("en", "I saw Dr. Smith. He waved.", ("I saw Dr. Smith.", "He waved.")),
        ("de", "Der 3. Oktober ist frei. Gut!", ("Der 3. Oktober ist frei.", "Gut!")),
        ("zh", "你好。我很好！", ("你好。", "我很好！")),
        ("zt", "你好。我很好！", ("你好。", "我很好！")),
        ("zh-Hant", "你好。我很好！", ("你好。", "我很好！")),
        ("en", "One line\nof two", ("One line", "of two")),
        ("en", " \n\t", ()),
        ("en", "", ()),
        ("en", "\U0001f600 !!!", ()),
    ],
)
def test_cuts(code: str, text: str, expected: tuple[str, ...]) -> None:
    assert split_sentences(text, code).texts == expected


def test_what_stands_between_is_kept() -> None:
    sentences = split_sentences("  Guten Tag!\tHallo.\r\n\r\n  - Ja.  ", "de")
    assert sentences.texts == ("Guten Tag!", "Hallo.", "- Ja.")
    assert sentences.joined(["A.", "B.", "C."]) == "  A.\tB.\r\n\r\n  C.  "


def test_blanks_follow_the_script_of_the_outputs() -> None:
    chinese = split_sentences("你好。我很好！\n再见。", "zh")
    assert chinese.joined(["Hello.", "I am fine!", "Bye."]) == "Hello. I am fine!\nBye."
    english = split_sentences("Hello. I am fine!\nBye.", "en")
    assert english.joined(["你好。", "我很好！", "再见。"]) == "你好。我很好！\n再见。"


def test_an_output_may_be_empty() -> None:
    assert split_sentences("你好。我很好！", "zh").joined(["", ""]) == " "


def test_a_long_line_is_cut_at_a_blank_at_least() -> None:
    text = "«a! " * (3 * WINDOW // 4) + "b" * (WINDOW + 1) + "end"
    sentences = split_sentences(text, "fr")
    assert sentences.joined(sentences.texts) == text
    assert max(map(len, sentences.texts)) <= WINDOW


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(SettingError, match="sentence splitting needs the extra 'serve'"):
        split_sentences("One.", "en")
