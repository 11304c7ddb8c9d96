"""Encodings of bytes: the labels that a page may declare, and a guess for those that are not
UTF-8."""

import codecs
import contextlib
import unicodedata
from collections.abc import Iterator, Mapping

from transduce.errors import DataError
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


LABELS = """
utf-8: unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8
cp866: 866 cp866 csibm866 ibm866
iso8859-2: csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2
iso8859-3: csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3
iso8859-4: csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4
iso8859-5: csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5
iso8859-5: iso_8859-5:1988
iso8859-6: arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e
iso8859-6: iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987
iso8859-7: csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597
iso8859-7: iso_8859-7 iso_8859-7:1987 sun_eu_greek
iso8859-8: csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598
iso8859-8: iso_8859-8 iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical
iso8859-10: csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6
iso8859-13: iso-8859-13 iso8859-13 iso885913
iso8859-14: iso-8859-14 iso8859-14 iso885914
iso8859-15: csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9
iso8859-16: iso-8859-16
koi8-r: cskoi8r koi koi8 koi8-r koi8_r
koi8-u: koi8-ru koi8-u
mac-roman: csmacintosh mac macintosh x-mac-roman
mac-cyrillic: x-mac-cyrillic x-mac-ukrainian
cp874: dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874
cp1250: cp1250 windows-1250 x-cp1250
cp1251: cp1251 windows-1251 x-cp1251
cp1252: ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1
cp1252: iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 latin-1 us-ascii windows-1252 x-cp1252
cp1253: cp1253 windows-1253 x-cp1253
cp1254: cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5
cp1254: latin5 windows-1254 x-cp1254
cp1255: cp1255 windows-1255 x-cp1255
cp1256: cp1256 windows-1256 x-cp1256
cp1257: cp1257 windows-1257 x-cp1257
cp1258: cp1258 windows-1258 x-cp1258
gb18030: chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030
big5hkscs: big5 big5-hkscs cn-big5 csbig5 x-x-big5
euc_jp: cseucpkdfmtjapanese euc-jp x-euc-jp
iso2022_jp: csiso2022jp iso-2022-jp
cp932: csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis
cp949: cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601
cp949: windows-949
"""
"""Python's codec, and labels that mean it; `latin-1` is not in the standard, but in pages."""
UTF_16 = frozenset(
    (
        *("csunicode", "iso-10646-ucs-2", "ucs-2", "unicode", "unicodefeff", "unicodefffe"),
        *("utf-16", "utf-16be", "utf-16le"),
    )
)
"""Labels that a declaration could not be read by if it were true."""
_ENCODINGS = {
    label: name
    for name, _, labels in (line.partition(": ") for line in LABELS.strip().splitlines())
    for label in labels.split()
}


def _codecs() -> Iterator[str]:
    for name in (*_ENCODINGS, *_ENCODINGS.values(), *UTF_16, "utf-16-le", "utf-16-be"):
        with contextlib.suppress(LookupError):
            yield codecs.lookup(name).name


_CODECS = frozenset(_codecs())
"""Of texts: of Python's others some take time with the square of a text."""


def text_codec(label: str) -> str:
    """Python's codec of this name, else for a label in any case.  Raises DataError."""
    with contextlib.suppress(LookupError):
        if (codec := codecs.lookup(label).name) in _CODECS:
            return codec
    return declared_encoding(label)


def declared_encoding(label: str) -> str:
    """Python's codec for a label in any case; of UTF-16, UTF-8 as in browsers.  Raises
    DataError."""
    if label.lower() in UTF_16:
        return "utf-8"
    if (encoding := _ENCODINGS.get(label.lower())) is None:
        raise DataError(f"{label!r} is not an encoding; write one such as 'utf-8'")
    return encoding
