"""Numbers, dates, times, money and abbreviations in words; letters that a voice cannot say."""

import pytest

from transduce.errors import InputError
from transduce.speech.reading import checked_letters, pronounceable, read_out

pytest.importorskip("num2words", reason="the extra voices is not installed")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I have 3 apples and 25 pears.", "I have three apples and twenty five pears."),
        (
            "The meeting is at 10:30 on May 5, 2024.",
            "The meeting is at ten thirty on May fifth, twenty twenty four.",
        ),
        ("Dr. Smith lives at 12 Main St.", "Doctor Smith lives at twelve Main Street"),
        ("It costs $5.20, or €1.", "It costs five dollars and twenty cents, or one euro."),
        ("$1.5 million for 1,000,000", "one point five million dollars for one million"),
        ("At 9:05 a.m. on 2023-11-01", "At nine oh five A M on November first, twenty "
         "twenty three"),
        ("the 3rd of 21 in the 1990s", "the third of twenty one in the nineteen nineties"),
        ("0800 12", "zero eight zero zero twelve"),
        ("-5 °C at 20 km/h, pages 3-5", "minus five degrees Celsius at twenty kilometres an hour, "
         "pages three to five"),
        ("St. Mary's St.", "Saint Mary's Street"),
        ("in 1984, 50% & 3.14", "in nineteen eighty four, fifty percent and three point one four"),
        ("4:70 or 99/99/9999", None),
        ("no numbers at all", "no numbers at all"),
        ("", ""),
    ],
)  # fmt: skip
def test_english(text: str, words: str | None) -> None:
    spoken = read_out(text, "en-US")
    assert spoken == words or words is None
    assert not any(map(str.isdigit, spoken))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Am 5. Mai 2024 um 10:30 Uhr kostet es 5,20 €.",
            "Am fünften Mai zweitausendvierundzwanzig um zehn Uhr dreißig kostet es fünf Euro "
            "zwanzig.",
        ),
        ("z. B. in der Hauptstr. 12", "zum Beispiel in der Hauptstraße zwölf"),
        ("1.234,5 Leute, 50 %", "eintausendzweihundertvierunddreißig Komma fünf Leute, "
         "fünfzig Prozent"),
        ("03.10.1990, 1 h", "dritten Oktober neunzehnhundertneunzig, eine Stunde"),
    ],
)  # fmt: skip
def test_german(text: str, words: str) -> None:
    assert read_out(text, "de") == words


def test_other_languages_are_left() -> None:
    assert read_out("3 pommes", "fr") == read_out("3 pommes", "") == "3 pommes"


def test_letters_that_a_voice_cannot_say() -> None:
    def knows(letter: str) -> bool:
        return letter.lower() in "abcdefghijklmnopqrstuvwxyz"

    assert pronounceable("Größe, naïve café!", knows) == ("Grosse, naive cafe!", "")
    assert pronounceable("ok да 3", knows) == ("ok  ", "да3")
    with pytest.raises(InputError, match=r"cannot say 'да'; write them in words$"):
        checked_letters("да", knows, 4, "en")
    with pytest.raises(InputError, match=r'cannot say .3.*set text\.language = "en" or "de"'):
        checked_letters("3", knows, 4, "")
