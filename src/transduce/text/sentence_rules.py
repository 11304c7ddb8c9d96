"""Rules for ends of sentences: abbreviations, ordinals, enumerators, signs outside of sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping

from transduce.text.scripts import is_unspaced

ORDINALS = "bs cs da de et eu fi fo hr hu is lb lv nb nn no pl sk sl sr tr"
"""Languages that write a full stop behind ordinal numbers."""
OTHER_CODES = {"zt": "zh", "pb": "pt"}
"""Codes of LibreTranslate, and the languages whose rules of sentences apply."""
TITLES: Mapping[str, str] = {
    "cs": "doc dr ing mgr mudr např p prof str sv tzv",
    "da": "bl ca dr f.eks hr jf jr kr mht pga prof sct skt",
    "de": "abb bspw bzw ca chr dipl dr evtl fr ggf hr hrn inkl ing med mio mrd nr prof rd sog st "
    "str tel v vgl z zzgl",
    "en": "approx ca capt cf col dr eg gen gov ie inc lt maj messrs mr mrs ms mt prof rep rev sen "
    "sgt st vs viz",
    "es": "aprox av avda cía d dña dr dra ed gral ing lic pág prof sr sra sres srta sta sto ud uds",
    "fr": "av boul bd cf dr env ex m me mgr mlle mlles mm mme mmes mr pr prof st ste tél vs",
    "it": "avv ca dott dr ecc es gent ing on prof s sig sigg sigra sr spett ss v",
    "nl": "bijv ca dhr dr drs evt hr ing ir jr mevr mr mw o.a prof resp st",
    "pl": "dr gen hab inż ks mgr np pl pn pt prof św tel tj tzw ul",
    "pt": "aprox av d dr dra eng exmo exma ex prof profa sr sra srs sta sto",
    "ru": "акад г гг гл гр др им инж исп проф пр ред руб св см ср т тел тыс ул",
    "sv": "bl ca dr ev f.d fr hr jfr kl kr prof resp st t.ex tel",
    "uk": "акад вул гр див ім м проф пр св тел",
}
"""Abbreviations, by language, behind which the sentence goes on."""
BEFORE_NUMBERS = (
    "abb abs anm app art aufl bd bl cap ch chap col cols eq eqs ex fasc fig figs fn kap kol ln ll "
    "n no nos nr nrs núm obr p pág págs par pars pos pp pt ref rom rozdz rys sec sect sez str tab "
    "taf tav vol vols v z ziff zn č čís čl гл п пп рис с ст стр табл"
)
"""Abbreviations of all languages behind which a number follows."""
WORD = re.compile(r"(?:^|[^\w.,:])((?:[^\W\d_]\.)*[^\W\d_]+|\d{1,3})\.$")
_ROMAN = "(?i:c{0,3}(?:x[cl]|l?x{0,3})(?:i[xv]|v?i{0,3}))"
ROMAN = re.compile(f"(?=[IVXLC]{{2}}){_ROMAN}")
QUOTED = re.compile('([。！？!?…])[”’」』"]+$')
OPENING = "“‘「『（《"
GOES_ON = ("と", "って", "、", "，")
"""Signs that join a quotation to the sentence around it."""
LONGEST = 32
"""Characters before an end that decide."""

_LETTER = f"[A-Za-z]|(?=[ivxl]{{2}}|[IVXL]{{2}}){_ROMAN}"
_COUNT = f"[0-9]{{1,3}}|{_LETTER}"
ENUMERATOR = re.compile(rf"(?:[0-9]{{1,3}}(?:\.[0-9]{{1,3}})*|{_COUNT})[.．]")
"""A number, letter or roman numeral with its dot."""
TAIL = re.compile(r"(?<=[.!?…。！？])\s*(?=[0-9]{1,3}[.．]\s*$)")
"""Place before the number of the next sentence."""
SYMBOLS = (
    "•‣⁃◦·\u2190-\u23ff\u2500-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff\u200d\ufe0f"
)
LEADING = re.compile(
    rf"[{SYMBOLS}]+\s*|>+\s*|[–—―]+\s*|-+(?=[^\W\d_a-z])|[-#*+|~=]+\s+|\.\.+\s*|…+\s*"
    rf"|\[[ xX✓✔]?\]\s+|\(?(?:{_COUNT})\)\s+|（(?:{_COUNT}|[一二三四五六七八九十]{{1,3}})）\s*"
    r"|[0-9]{1,3}[、．]\s*|[一二三四五六七八九十]{1,3}、|[\u2460-\u24ff\u2776-\u2793]\s*"
)
"""A sign or enumerator before a sentence."""
LETTER = re.compile(rf"(?:{_LETTER})\.\s+(?=[^\W\d_a-z][^.])")
TRAILING = re.compile(rf"[{SYMBOLS}\s]")
APART = "|*#~="
"""Signs behind a sentence, if a blank is before them."""


def code_of(language: str) -> str:
    """Code of a language without region and script, such as pt for pt-BR."""
    code = language.lower().replace("_", "-").split("-")[0]
    return OTHER_CODES.get(code, code)


def goes_on(before: str, after: str, language: str) -> bool:
    """True if a sentence continues between two parts of a text.  language: as of `code_of`."""
    quoted = QUOTED.search(before[-LONGEST:])
    if quoted and after and is_unspaced(after[0]) and after[0] not in OPENING:
        return quoted[1] != "。" or after.startswith(GOES_ON)
    before, after = before[-LONGEST:].rstrip(), after[:LONGEST].lstrip()
    match = WORD.search(before)
    if match is None:
        return False
    word = match[1]
    has_ordinals = language in ORDINALS.split()
    if word.isdigit():
        behind = WORD.search(before[: match.start(1)].rstrip())
        numbered = behind is not None and behind[1].lower() in BEFORE_NUMBERS.split()
        return has_ordinals and not numbered
    if is_abbreviation(word, language) or (has_ordinals and ROMAN.fullmatch(word)):
        return True
    if word.lower() in BEFORE_NUMBERS.split() and after[:1].isdigit():
        return True
    return len(word) == 1 and word.isupper() and (language, word) != ("en", "I")


def is_abbreviation(word: str, language: str) -> bool:
    """True for a word, without its dot, behind which the sentence goes on."""
    return word.lower() in TITLES.get(language, "").split()


def leading(text: str, language: str) -> int:
    """Number of characters of signs and enumerators before a sentence."""
    start = len(text) - len(text.lstrip())
    while sign := LEADING.match(text, start) or LETTER.match(text, start):
        if is_abbreviation(sign[0].rstrip(". "), language):
            break
        start = sign.end()
    return start


def sentence_core(text: str, language: str) -> tuple[int, int]:
    """First and last (exclusive) character of a sentence without signs and enumerators around
    it."""
    start, end = leading(text, language), len(text.rstrip())
    last = end
    while last > start and (TRAILING.match(text[last - 1]) or text[last - 1] in APART):
        last -= 1
    while last < end and text[last] in APART:  # glued to a word
        last += 1
    end = max(start, len(text[:last].rstrip()))
    rest = text[start:end]
    if ENUMERATOR.fullmatch(rest) and not is_abbreviation(rest[:-1], language):
        return start, start
    return (start, end) if any(map(str.isalnum, rest)) else (start, start)
