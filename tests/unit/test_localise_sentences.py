"""Sentence splitting loses no character, and cuts where sentences end."""

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.localised_document import Output
from transduce import DecodingOptions
from transduce.errors import SettingError
from transduce.localise.document import Segment
from transduce.localise.sentences import WINDOW, split_sentences, unwrapped
from transduce.localise.translate import localised

pytest.importorskip("sentencex")

CODES = ("en", "de", "fr", "zh", "ja", "ar", "hi", "zt", "pb", "zh-Hant", "pt_BR", "DE", "qqq", "")
PIECES = (
    *("a", "B", ". ", ".", "! ", "? ", "\r", "\n", "\u2028", "\x85", "\u3000", "\u00a0", "\t"),
    *("  ", "。", "！", "“", "”", '"', "(", ")", "«", "»", "Dr.", "A. ", "3. ", "\U0001f600"),
    *("\ud800", "\x00"),
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


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (
            "de",
            "Der 2. Weltkrieg begann. Er war lang.",
            ("Der 2. Weltkrieg begann.", "Er war lang."),
        ),
        ("de", "Im 19. Jahrhundert", ("Im 19. Jahrhundert",)),
        ("de", "Siehe Abs. 2. Das gilt.", ("Siehe Abs. 2.", "Das gilt.")),
        ("de", "Friedrich II. Von Preußen", ("Friedrich II. Von Preußen",)),
        ("de", "Version 2.0. Neu!", ("Version 2.0.", "Neu!")),
        ("pl", "To jest 2. Wojna.", ("To jest 2. Wojna.",)),
        ("fr", "M. Dupont est là. Il va.", ("M. Dupont est là.", "Il va.")),
        ("fr", "Mme. Curie et Dr. X", ("Mme. Curie et Dr. X",)),
        ("fr", "Voir l'art. 5 et p. 12.", ("Voir l'art. 5 et p. 12.",)),
        ("en", "Approx. 5 kg. Enough.", ("Approx. 5 kg.", "Enough.")),
        ("en", "See vol. 2, ch. 3.", ("See vol. 2, ch. 3.",)),
        (
            "en",
            "Plan by J. Smith. He left in 1990. Gone.",
            ("Plan by J. Smith.", "He left in 1990.", "Gone."),
        ),
        ("en", "So do I. He left.", ("So do I.", "He left.")),
        ("ru", "Это я. Он ушёл.", ("Это я.", "Он ушёл.")),
        (
            "ja",
            "「行け！」と言った。「はい。」彼は走った。",
            ("「行け！」と言った。", "「はい。」", "彼は走った。"),
        ),
        (
            "zh",
            "他说：“你好！”然后走了。“好！”“不！”",
            ("他说：“你好！”然后走了。", "“好！”", "“不！”"),
        ),
    ],
)
def test_a_sentence_goes_on_behind_abbreviations_ordinals_and_quotations(
    code: str, text: str, expected: tuple[str, ...]
) -> None:
    assert split_sentences(text, code).texts == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "1. Ich sehe den Hund. 2. Ich kaufe den Baum.",
            ("Ich sehe den Hund.", "Ich kaufe den Baum."),
        ),
        ("A. Ja.", ("Ja.",)),
        ("iv. Ja.", ("Ja.",)),
        ("a) Ja", ("Ja",)),
        ("(1) Hello. (2) Bye.", ("Hello.", "Bye.")),
        ("• 1. Ja", ("Ja",)),
        ("1、你好。", ("你好。",)),
        ("（一）你好。", ("你好。",)),
        ("1. 你好。2. 再见。", ("你好。", "再见。")),
        ("12.", ()),
    ],
)
def test_enumerators_stay_outside(text: str, expected: tuple[str, ...]) -> None:
    language = "de" if "Ja" in text or "Ich" in text else "en" if text.isascii() else "zh"
    sentences = split_sentences(text, language)
    assert sentences.texts == expected
    assert sentences.joined(expected) == text


@pytest.mark.parametrize(
    "sign",
    [
        *("• ", "•", "* ", "- ", "# ", "## ", ">> ", ">>> ", "♪ ", "→ ", "[ ] ", "[x] ", "(1) "),
        *("🙂 ", "👍🏽 ", "— ", "| ", "-", "… "),
    ],
)
def test_leading_signs_stay_outside(sign: str) -> None:
    sentences = split_sentences(f"{sign}Ich sehe den Hund.", "de")
    assert sentences.texts == ("Ich sehe den Hund.",)
    assert sentences.between == (sign, "")


@pytest.mark.parametrize("sign", [" ♪", " 🙂🙂", "🙂", " |", " *", " →"])
def test_trailing_signs_stay_outside(sign: str) -> None:
    assert split_sentences(f"Ein Lied{sign}", "de").texts == ("Ein Lied",)


@pytest.mark.parametrize(
    "text",
    [
        *("#hashtag", "-5 Grad", "$5", "§ 5 BGB", "«Ja»", "¿Qué?", "'tis", "C#", "5 °", "[Musik]"),
        *("(gut)", "**fett**", "-v zeigt"),
    ],
)
def test_signs_of_words_stay_inside(text: str) -> None:
    assert split_sentences(text, "de").texts == (text,)


def test_what_stands_between_is_kept() -> None:
    sentences = split_sentences("  Guten Tag!\tHallo.\r\n\r\n  - Ja.  ", "de")
    assert sentences.texts == ("Guten Tag!", "Hallo.", "Ja.")
    assert sentences.joined(["A.", "B.", "C."]) == "  A.\tB.\r\n\r\n  - C.  "


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


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "This option makes the program write out all\nof it at once. Use it with "
            "great care, so,\n"
            "on days\nbut not\n\nnew text",
            [
                "This option makes the program write out all of it at once. Use it with "
                "great care, so, "
                "on days",
                "but not",
                "",
                "new text",
            ],
        ),
        ("Name of the file that the program opens:\nnone", None),
        ("Name of the file that the program opens\nNone", None),
        ("  -a   do all of it and do not end before\n       more", None),
        ("short\nlines", None),
        ("\nThis option makes the program write out all\nit\n", ["", None, ""]),
    ],
)
def test_lines_that_go_on_are_joined(text: str, rows: list[str | None] | None) -> None:
    wrapped = unwrapped(text)
    if rows is None:
        assert list(wrapped.rows) == text.split("\n") and not any(wrapped.widths)
    else:
        assert len(wrapped.rows) == len(rows)
        assert all(a == b for a, b in zip(wrapped.rows, rows, strict=True) if b is not None)
    assert wrapped.again("\n".join(wrapped.rows)).split() == text.split()


def test_a_wrapped_message_is_translated_whole_and_wrapped_again() -> None:
    lines = (
        "This option makes the program write out all",
        "files of %s at once, so that it needs no",
        "time.",
    )
    source = "\n".join((*lines, "", "  -a  b"))
    asked: list[str] = []

    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        asked.extend(texts)
        return [Output(text.upper().replace("%S", "%s")) for text in texts]

    (record,) = localised([Segment("k", source, ())], "en", translate, DecodingOptions())
    assert record.target == source.upper().replace("%S", "%s")
    assert " ".join(lines) in asked


def test_a_line_of_several_windows_is_cut_between_words() -> None:
    words = [f"word{i:04}x" for i in range(WINDOW // 3)]
    text = " ".join(words)
    sentences = split_sentences(text, "de")
    assert sentences.joined(sentences.texts) == text
    assert " ".join(sentences.texts).split() == words


@pytest.mark.parametrize(("word", "end"), [("3.14", "3."), ("Yahoo!Mail", "Yahoo!")])
def test_a_window_does_not_end_inside_a_word(word: str, end: str) -> None:
    """Seeming ends of sentences."""
    head = "word " * (WINDOW // 5 - 10)
    text = f"{'w' * (WINDOW - len(head) - len(end) - 1)} {head}{word} is here."
    assert text[:WINDOW].endswith(f" {end}")
    sentences = split_sentences(text, "en")
    assert sentences.joined(sentences.texts) == text
    assert any(word in sentence for sentence in sentences.texts)
