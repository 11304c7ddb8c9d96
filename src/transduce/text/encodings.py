"""Guess of the encoding of bytes that are not UTF-8."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from transduce.text.scripts import script_of

WESTERN = "éèàùçâêîôûëïüöäßñáíóúãõåæøœì¿¡«»“”‘’„…–—°€ÉÈÀÇÜÖÄÑÁÓÅÆØ"
USUAL: Mapping[str, str] = {
    "windows-1252": WESTERN,
    "windows-1250": "ąćęłńóśźżčďěňřšťůžáéíýúőűăâîţşđöüäĄĆŁŚŹŻČŠŽ„”–…",
    "windows-1254": "ğışçöüâîİĞŞÇÖÜ’“”…",
    "windows-1251": "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґў«»—–…№",
    "koi8-r": "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
    "windows-1253": "αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώ«»",
    "windows-1255": "אבגדהוזחטיכלמנסעפצקרשתךםןףץ",
    "windows-1256": "ابتثجحخدذرزسشصضطظعغفقكلمنهويىةءأإ،؟",
}
"""Usual characters beyond ASCII of encodings of a byte each, by names for `iconv`."""
WIDE: Mapping[str, frozenset[str]] = {
    "shift_jis": frozenset(("HIRAGANA", "KATAKANA", "CJK")),
    "euc-jp": frozenset(("HIRAGANA", "KATAKANA", "CJK")),
    "euc-kr": frozenset(("HANGUL",)),
    "gb18030": frozenset(("CJK",)),
    "big5": frozenset(("CJK",)),
}
"""Encodings of two bytes, and the beginnings of the names of their letters."""
COMMON = frozenset("的一是不了在人有我他这这個来大國国到說说们們为為子中你上生时時。，、？")
FREQUENT = {
    "windows-1251": "оеаинтср",
    "koi8-r": "оеаинтср",
    "windows-1253": "αοιετσν",
    "windows-1255": "יוהלאמ",
    "windows-1256": "اليمنو",
}
"""Most frequent letters of encodings that share bytes."""
LATIN = ("windows-1252", "windows-1250", "windows-1254")
"""Encodings that share letters, the likeliest first."""
RARE, MOST_RARE = frozenset("щшъй"), 0.1
"""Letters of Cyrillic that are rare, and their share at most."""
LEAST = 0.6
"""Share of usual characters, at least, for a guess."""


def likely_encoding(raw: bytes) -> str | None:
    """Name of the encoding in which most characters beyond ASCII are usual; None if in none, or in
    several."""
    scores = {name: _usual(raw, name) for name in (*USUAL, *WIDE)}
    best, *others = sorted(scores, key=lambda name: -scores[name])
    if scores[best] < LEAST or (scores[others[0]] == scores[best] and best not in LATIN):
        return None
    return best


def _usual(raw: bytes, name: str) -> float:
    """Share of the characters beyond ASCII that are usual, and stand beside their own script."""
    try:
        text = raw.decode(name)
    except UnicodeDecodeError:
        return 0.0
    beyond = [(at, c) for at, c in enumerate(text) if not c.isascii()]
    if not beyond:
        return 0.0
    if name in WIDE:
        wide = [unicodedata.name(c, "").split(" ")[0] in WIDE[name] for _, c in beyond]
        kana = any(unicodedata.name(c, "").startswith("HIRAGANA") for _, c in beyond)
        usual = sum(c in COMMON for _, c in beyond) / len(beyond)
        bonus = 0.1 * (kana or name == "euc-kr") + min(usual, 0.1)
        return sum(wide) / len(beyond) * 0.85 + bonus if len(beyond) > 1 else 0.0
    good = sum(
        c in USUAL[name] and not any(_apart(c, near) for near in text[max(at - 1, 0) : at + 2])
        for at, c in beyond
    )
    rare = sum(c in RARE for _, c in beyond) / len(beyond)
    if name == "windows-1251" and rare > MOST_RARE:
        return 0.0  # Hebrew has the same bytes
    frequent = sum(c in FREQUENT.get(name, "") for _, c in beyond) / len(beyond)
    return good / len(beyond) + 0.1 * frequent - 0.01 * (LATIN.index(name) if name in LATIN else 0)


def _apart(character: str, near: str) -> bool:
    """True for letters of different scripts."""
    both = character.isalpha() and near.isalpha()
    return both and script_of(character) != script_of(near)
