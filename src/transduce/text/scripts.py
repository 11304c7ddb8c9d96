"""Scripts of letters, and the rules that depend on them: ends of sentences, breaks of lines."""

import bisect
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

UNSPACED = (
    ("\u0e00", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Myanmar
    ("\u1780", "\u17ff"),  # Khmer
    ("\u2e80", "\u9fff"),  # Chinese and Japanese, with their punctuation
    ("\uf900", "\ufaff"),
    ("\uff66", "\uff9f"),
    ("\U0001b000", "\U0001b16f"),
    ("\U00020000", "\U0003ffff"),
)
"""First and last character of each range."""

LETTERS = re.compile("[^\\W\\d_]{2}|[^\\W\\d_a-zA-Zªº]")
"""Two letters, or one that is not Latin."""
FULL_WIDTH = ("！", "｠")
CLITICS = frozenset(("HANGUL", "ARABIC", "HEBREW"))
"""Scripts whose prepositions and particles are written onto the word beside them."""


def is_unspaced(character: str) -> bool:
    """True for a character, punctuation included, that no blank separates from the next word."""
    return any(low <= character <= high for low, high in (*UNSPACED, FULL_WIDTH))


def is_of_word(character: str) -> bool:
    """True for a letter or digit that a blank parts from the next word."""
    return character.isalnum() and not is_unspaced(character)


def has_words(text: str) -> bool:
    """True unless a text is made of signs, numbers, dates, addresses of numbers and codes such as
    `v2.0`: parts with a digit, whose Latin letters stand alone."""
    return any(
        any(map(str.isalpha, part))
        and (not any(map(str.isdigit, part)) or LETTERS.search(part) is not None)
        for part in text.split()
    )


def takes_clitics(character: str) -> bool:
    """True for a letter of a script whose short words are written onto others."""
    return script_of(character) in CLITICS


@lru_cache(maxsize=1 << 14)
def script_of(character: str) -> str:
    """Script of a letter, as Unicode names it; Japanese and Chinese letters are one."""
    name = unicodedata.name(character, "?").partition(" ")[0]
    return "CJK" if name in ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA") else name


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
    """True if a sentence continues between two parts of a text.  language: as of `code_of`.

    before, after: the two parts.
    """
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


TAG = re.compile(r"<[^<>]*>")
ENDS = ("Pe", "Pf", "Po")
"""Categories of closing marks and of marks that end a clause."""
COLUMNS = 42
"""Maximum columns of a line of a subtitle."""
SKIPPED = (" ", *"-‐–—")
"""Characters that no unit begins with."""
CLAUSE = 0.25
"""Share of the width beside a cut that it may be off to fall at the end of a clause."""
EXACT = 0.5
"""Columns that an exact cut may be off."""


def visible(text: str) -> str:
    """A text without its tags."""
    return TAG.sub("", text)


def width(text: str) -> int:
    """Columns of a text: tags and combining characters have none, wide characters of East Asia
    two."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in ("W", "F"))
        for c in visible(text)
    )


def joined_lines(lines: Sequence[str]) -> str:
    """Lines joined into one, with a space between two, except in scripts without spaces."""
    text = ""
    for line in lines:
        text += _gap(text[-1:], line[:1]) + line
    return text


def _gap(before: str, after: str) -> str:
    between_words = before and after and not (is_unspaced(before) and is_unspaced(after))
    return " " if between_words else ""


def line_places(lines: Sequence[str], measure: Callable[[str], int] = width) -> list[int]:
    """Columns at which each line begins in `joined_lines` of them, then the width of that."""
    places, last, columns = [], "", 0
    for line in lines:
        columns += len(_gap(last, line[:1]))
        places.append(columns)
        columns += measure(line)
        last = line[-1:] or last
    return [*places, columns]


def units(text: str) -> Iterator[str]:
    """Unbreakable parts of a text without double spaces, each with the space after it: no tag
    `<...>` is cut, and none but the first begins with a dash, the mark of a speaker."""
    inside = {
        position for tag in TAG.finditer(text) for position in range(tag.start() + 1, tag.end())
    }
    start = 0
    for position in range(1, len(text)):
        before, after = text[position - 1], text[position]
        if position in inside or after in SKIPPED:
            continue
        blank = before == " "
        if blank:
            before = text[position - 2 : position - 1]
        unspaced = before != "" and is_unspaced(before) and is_unspaced(after)
        if blank != unspaced and not (unspaced and _clings(before, after)):
            yield text[start:position]
            start = position
    if text:
        yield text[start:]


def _clings(before: str, after: str) -> bool:
    """True between characters of a script without spaces where no line ends: around marks."""
    return unicodedata.category(after) in ENDS or unicodedata.category(before) in ("Ps", "Pi")


def wrapped(text: str, columns: int) -> list[str]:
    """A text in the fewest lines of at most `columns`, of like widths; longer units stay whole."""
    parts = [(part, width(part), width(part.rstrip(" "))) for part in units(text)]
    lines = _filled(parts, columns)
    for narrower in range(-(-width(text) // len(lines)), columns):
        balanced = _filled(parts, narrower)
        if len(balanced) == len(lines):
            return balanced
    return lines


def _filled(parts: Sequence[tuple[str, int, int]], columns: int) -> list[str]:
    lines: list[list[str]] = [[]]
    used = 0
    for part, full, bare in parts:
        if lines[-1] and used + bare > columns:
            lines.append([])
            used = 0
        lines[-1].append(part)
        used += full
    return ["".join(line).strip(" ") for line in lines]


def cut_at(text: str, places: Sequence[float]) -> list[str]:
    """A text cut like another whose parts begin at these columns, and whose width is the last.

    A place between two units that lies there exactly, in proportion, is cut; else near it the end
    of a clause is preferred.  A text of fewer units than parts leaves the last parts empty.
    """
    parts = list(units(text))
    ends = [0, *itertools.accumulate(map(width, parts))]
    scale = ends[-1] / (places[-1] or 1)
    ideals = [offset * scale for offset in places]
    cuts = [0]
    for i in range(1, len(places) - 1):
        first = min(cuts[-1] + 1, len(parts))
        last = max(first, len(parts) - (len(places) - 1 - i))
        room = CLAUSE * min(ideals[i] - ideals[i - 1], ideals[i + 1] - ideals[i])
        cuts.append(_cut(parts, ends, ideals[i], room, range(first, last + 1)))
    cuts.append(len(parts))
    return ["".join(parts[a:b]).strip(" ") for a, b in itertools.pairwise(cuts)]


def _cut(
    parts: Sequence[str], ends: Sequence[int], ideal: float, room: float, choice: range
) -> int:
    """Number of units before a cut near an ideal column."""

    def nearest(candidates: Iterable[int]) -> int:
        return min(candidates, key=lambda number: abs(ends[number] - ideal), default=choice[0])

    after = bisect.bisect_left(ends, ideal, choice[0], choice[-1])
    best = nearest(number for number in (after - 1, after) if number in choice)
    if abs(ends[best] - ideal) < EXACT:
        return best
    room += abs(ends[best] - ideal)
    low = bisect.bisect_left(ends, ideal - room, choice[0], choice[-1])
    high = bisect.bisect_right(ends, ideal + room, choice[0], choice[-1] + 1)
    clauses = [number for number in range(low, high) if _ends_clause(parts[number - 1])]
    return nearest(clauses) if clauses else best


def _ends_clause(unit: str) -> bool:
    return unicodedata.category(unit.rstrip(" ")[-1:] or " ") in ENDS
