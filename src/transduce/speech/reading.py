"""Texts as they are read out: numbers, dates, times, sums of money and abbreviations in words.

English and German; num2words (`pip install num2words`, the extra `voices`) writes the numbers.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from transduce.errors import InputError, extra_module

FOLDED = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th"}
SILENT = dict.fromkeys(map(ord, "\u200b\ufeff\u00ad\u2060"))
"""Table that takes out characters without a sound or a width."""


class Reading(NamedTuple):
    """Words of a language.

    abbreviations: whole words, with their dots.  symbols: signs beside numbers or between words.
    units: behind a number.  currencies: of one and of several, and of the hundredth part.  months:
    their names.
    """

    abbreviations: Mapping[str, str]
    symbols: Mapping[str, str]
    units: Mapping[str, tuple[str, str]]
    currencies: Mapping[str, tuple[str, str, str, str]]
    months: Sequence[str]
    point: str
    minus: str
    up_to: str
    clock: Callable[[int, int], str]


def _number(number: int | float | str, language: str, to: str = "cardinal") -> str:
    """A number in words."""
    library = extra_module("num2words", "reading numbers out", "voices")
    words: str = library.num2words(number, lang=language, to=to)
    return words.replace(",", "").replace("-", " ") if language == "en" else words


def _english_clock(hours: int, minutes: int) -> str:
    """A time, as `ten thirty`."""
    if not minutes:
        return f"{_number(hours, 'en')} o'clock"
    tens = "oh " if minutes < 10 else ""
    return f"{_number(hours, 'en')} {tens}{_number(minutes, 'en')}"


def _german_clock(hours: int, minutes: int) -> str:
    """A time, as `zehn Uhr dreißig`."""
    hour = "ein" if hours == 1 else _number(hours, "de")
    return f"{hour} Uhr" + (f" {_number(minutes, 'de')}" if minutes else "")


ENGLISH = Reading(
    {
        "Dr.": "Doctor", "Mr.": "Mister", "Mrs.": "Missis", "Ms.": "Miz", "Prof.": "Professor",
        "Jr.": "Junior", "Sr.": "Senior", "vs.": "versus", "etc.": "et cetera", "approx.": "about",
        "e.g.": "for example", "i.e.": "that is", "No.": "number", "Ave.": "Avenue",
        "Rd.": "Road", "Blvd.": "Boulevard", "Inc.": "Incorporated", "Ltd.": "Limited",
        "Gen.": "General", "Capt.": "Captain", "Jan.": "January", "Feb.": "February",
        "Aug.": "August", "Sept.": "September", "Oct.": "October", "Nov.": "November",
        "Dec.": "December", "a.m.": "A M", "p.m.": "P M",
    },
    {"%": " percent", "&": " and ", "+": " plus ", "=": " equals ", "@": " at ", "°": " degrees",
     "#": " number ", "/": " slash ", "×": " times "},
    {"km": ("kilometre", "kilometres"), "m": ("metre", "metres"),
     "cm": ("centimetre", "centimetres"), "mm": ("millimetre", "millimetres"),
     "kg": ("kilogram", "kilograms"), "g": ("gram", "grams"),
     "mph": ("mile an hour", "miles an hour"), "km/h": ("kilometre an hour", "kilometres an hour"),
     "°C": ("degree Celsius", "degrees Celsius"), "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
     "GB": ("gigabyte", "gigabytes"), "MB": ("megabyte", "megabytes"), "h": ("hour", "hours"),
     "min": ("minute", "minutes"), "s": ("second", "seconds"), "l": ("litre", "litres"),
     "ft": ("foot", "feet"), "lb": ("pound", "pounds")},
    {"$": ("dollar", "dollars", "cent", "cents"), "€": ("euro", "euros", "cent", "cents"),
     "£": ("pound", "pounds", "penny", "pence"), "¥": ("yen", "yen", "sen", "sen")},
    ("January", "February", "March", "April", "May", "June", "July", "August", "September",
     "October", "November", "December"),
    "point", "minus", "to", _english_clock,
)  # fmt: skip
GERMAN = Reading(
    {
        "Dr.": "Doktor", "Prof.": "Professor", "Hr.": "Herr", "Fr.": "Frau", "Str.": "Straße",
        "z. B.": "zum Beispiel", "z.B.": "zum Beispiel", "d. h.": "das heißt", "d.h.": "das heißt",
        "u. a.": "unter anderem", "u.a.": "unter anderem", "usw.": "und so weiter",
        "bzw.": "beziehungsweise", "ca.": "circa", "Nr.": "Nummer", "evtl.": "eventuell",
        "ggf.": "gegebenenfalls", "inkl.": "inklusive", "Mio.": "Millionen", "Mrd.": "Milliarden",
        "St.": "Sankt", "vgl.": "vergleiche", "etc.": "et cetera",
    },
    {"%": " Prozent", "&": " und ", "+": " plus ", "=": " gleich ", "@": " at ", "°": " Grad",
     "#": " Nummer ", "/": " Schrägstrich ", "×": " mal "},
    {"km": ("Kilometer",) * 2, "m": ("Meter",) * 2, "cm": ("Zentimeter",) * 2,
     "mm": ("Millimeter",) * 2, "kg": ("Kilogramm",) * 2, "g": ("Gramm",) * 2,
     "km/h": ("Stundenkilometer",) * 2, "°C": ("Grad Celsius",) * 2, "GB": ("Gigabyte",) * 2,
     "MB": ("Megabyte",) * 2, "h": ("Stunde", "Stunden"), "min": ("Minute", "Minuten"),
     "s": ("Sekunde", "Sekunden"), "l": ("Liter",) * 2},
    {"$": ("Dollar", "Dollar", "Cent", "Cent"), "€": ("Euro", "Euro", "Cent", "Cent"),
     "£": ("Pfund", "Pfund", "Penny", "Pence"), "¥": ("Yen", "Yen", "Sen", "Sen")},
    ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September",
     "Oktober", "November", "Dezember"),
    "Komma", "minus", "bis", _german_clock,
)  # fmt: skip
READINGS = {"en": ENGLISH, "de": GERMAN}


def read_out(text: str, language: str) -> str:
    """The text with numbers, dates, times, money, units and abbreviations in words.

    language: en or de; texts of others come back as they are.
    """
    code = language[:2].lower()
    return _reader_of(code).read(text) if code in READINGS else text


class _Reader:
    def __init__(self, language: str) -> None:
        self.language = language
        self.words = reading = READINGS[language]
        is_english = language == "en"
        group, point = (",", r"\.") if is_english else (r"\.", ",")
        self.group, self.point = group.strip("\\"), point.strip("\\")
        plain = rf"\d{{1,3}}(?:{group}\d{{3}})+(?!\d)|\d+"
        number = rf"(?:{plain})(?:{point}\d+)?"
        money = "".join(map(re.escape, reading.currencies))
        units = "|".join(sorted(map(re.escape, reading.units), key=len, reverse=True))
        names = "|".join(reading.months)
        year = r"(?:1[1-9]|20)\d\d"
        self.rules: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
            (re.compile(rf"\b({year})-(\d\d)-(\d\d)\b"), self._iso_date),
            (re.compile(r"\b(\d{1,2}):(\d\d)(?::(\d\d))?(?:\s*Uhr\b)?"), self._time),
            (re.compile(r"(?<=\d)\s?[–-]\s?(?=\d)"), lambda m: f" {reading.up_to} "),
            (re.compile(r"(?<!\w)[−-](?=\d)"), lambda m: f"{reading.minus} "),
            (re.compile(rf"([{money}])\s?({number})(?:\s?(million|billion)\b)?"), self._money),
            (re.compile(rf"({number})(\s?)([{money}])"), self._money_behind),
        ]
        if is_english:
            self.rules += [
                (re.compile(rf"\b({names})\s(\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)"), self._month_day),
                (re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s({names})\b"), self._day_month),
                (re.compile(r"\b(\d+)(?:st|nd|rd|th)\b"), self._ordinal),
                (re.compile(r"\bSt\.(?=\s+[A-Z])"), lambda m: "Saint"),
                (re.compile(r"\bSt\."), lambda m: "Street"),
                (re.compile(r"\b([12]\d\d0)s\b"), self._decade),
            ]
        else:
            self.rules += [
                (re.compile(r"\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b"), self._german_date),
                (re.compile(rf"\b(\d{{1,2}})\.\s({names})\b"), self._german_day),
                (re.compile(r"(\w)str\.(?=\W|$)"), lambda m: f"{m[1]}straße"),
            ]
        self.rules += [
            (re.compile(rf"({number})\s?({units})(?![\w/])"), self._unit),
            (re.compile(rf"(?<![\d{point}])({year})(?![\d{group}{point}]\d|\d)"), self._year),
            (re.compile(number), lambda m: f" {self._spoken(m[0])} "),
        ]
        longest = sorted(reading.abbreviations, key=len, reverse=True)
        self.short = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)")

    def read(self, text: str) -> str:
        text = text.translate(SILENT)
        text = self.short.sub(lambda m: self.words.abbreviations[m[0]], text)
        for pattern, words in self.rules:
            text = pattern.sub(words, text)
        for symbol, name in self.words.symbols.items():
            text = text.replace(symbol, name)
        text = re.sub(r"\s+([.,;:!?…)\]])", r"\1", text)
        return " ".join(text.split())

    def _spoken(self, digits: str) -> str:
        """A number as it is written: digit by digit if it begins with 0 or is very long."""
        whole, _, part = digits.replace(self.group, "").partition(self.point)
        if len(whole) > 15 or (len(whole) > 1 and whole[0] == "0"):
            spoken = " ".join(_number(int(digit), self.language) for digit in whole)
        else:
            spoken = _number(int(whole), self.language)
        if part:
            tail = " ".join(_number(int(digit), self.language) for digit in part)
            spoken = f"{spoken} {self.words.point} {tail}"
        return spoken

    def _year_words(self, year: str) -> str:
        return _number(int(year), self.language, "year")

    def _year(self, match: re.Match[str]) -> str:
        return f" {self._year_words(match[1])} "

    def _decade(self, match: re.Match[str]) -> str:
        words = self._year_words(match[1])
        return words[:-1] + "ies" if words.endswith("y") else words + "s"

    def _ordinal_words(self, number: str) -> str:
        return _number(int(number), self.language, "ordinal")

    def _ordinal(self, match: re.Match[str]) -> str:
        return self._ordinal_words(match[1])

    def _month_day(self, match: re.Match[str]) -> str:
        return f"{match[1]} {self._ordinal_words(match[2])}"

    def _day_month(self, match: re.Match[str]) -> str:
        return f"the {self._ordinal_words(match[1])} of {match[2]}"

    def _german_day(self, match: re.Match[str]) -> str:
        return f"{self._ordinal_words(match[1])}n {match[2]}"

    def _date(self, year: str, month: str, day: str, whole: str) -> str:
        if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
            return " ".join(map(self._spoken, re.findall(r"\d+", whole)))
        name, ordinal = self.words.months[int(month) - 1], self._ordinal_words(day)
        start = f"{name} {ordinal}," if self.language == "en" else f"{ordinal}n {name}"
        return f"{start} {self._year_words(year)}"

    def _iso_date(self, match: re.Match[str]) -> str:
        return self._date(match[1], match[2], match[3], match[0])

    def _german_date(self, match: re.Match[str]) -> str:
        return self._date(match[3], match[2], match[1], match[0])

    def _time(self, match: re.Match[str]) -> str:
        hours, minutes = int(match[1]), int(match[2])
        if hours > 24 or minutes > 59 or match[3]:
            parts = [self._spoken(str(int(part))) for part in match.groups() if part]
            return " ".join(parts)
        return self.words.clock(hours, minutes)

    def _amount(self, digits: str, currency: str) -> str:
        singular, plural, cent, cents = self.words.currencies[currency]
        whole, _, part = digits.replace(self.group, "").partition(self.point)
        if len(part) not in (0, 2):
            return f"{self._spoken(digits)} {plural}"
        number = int(whole)
        words = "ein" if number == 1 and self.language == "de" else _number(number, self.language)
        spoken = f"{words} {singular if number == 1 else plural}"
        if int(part or 0):
            rest = _number(int(part), self.language)
            joint = " and " if self.language == "en" else " "
            unit = f" {cent if int(part) == 1 else cents}" if self.language == "en" else ""
            spoken = f"{spoken}{joint}{rest}{unit}"
        return spoken

    def _money(self, match: re.Match[str]) -> str:
        if match[3]:
            return f"{self._spoken(match[2])} {match[3]} {self.words.currencies[match[1]][1]}"
        return self._amount(match[2], match[1])

    def _money_behind(self, match: re.Match[str]) -> str:
        return self._amount(match[1], match[3])

    def _unit(self, match: re.Match[str]) -> str:
        singular, plural = self.words.units[match[2]]
        is_singular = match[1] == "1"
        words = self._spoken(match[1])
        if is_singular and self.language == "de":
            words = "eine" if singular.endswith("e") else "ein"
        return f"{words} {singular if is_singular else plural}"


@functools.cache
def _reader_of(language: str) -> _Reader:
    return _Reader(language)


def pronounceable(text: str, is_known: Callable[[str], bool]) -> tuple[str, str]:
    """The text with letters that a voice does not know replaced by those beneath their accents, and
    the different letters and digits that are left unknown.

    is_known: of a letter or digit.
    """
    known = functools.cache(is_known)
    letters, unknown = [], dict[str, None]()
    for letter in unicodedata.normalize("NFC", text):
        plain = FOLDED.get(letter) or unicodedata.normalize("NFKD", letter)[0]
        if not letter.isalnum() or known(letter):
            letters.append(letter)
        elif all(map(known, plain)):
            letters.append(plain)
        else:
            unknown[letter] = None
    return "".join(letters), "".join(unknown)


def checked_letters(text: str, is_known: Callable[[str], bool], number: int, language: str) -> str:
    """The text in letters that a voice knows.  Raises InputError if it has others.

    is_known: of a letter or digit.  number: of the text, for messages.  language: it is read in.
    """
    plain, unknown = pronounceable(text, is_known)
    if unknown:
        remedy = "write them in words"
        if language[:2] not in READINGS and any(map(str.isdigit, unknown)):
            remedy = 'write them in words, or set text.language = "en" or "de"'
        shown = "".join(list(unknown)[:10])
        raise InputError(number, f"the voice cannot say {shown!r}; {remedy}")
    return plain
