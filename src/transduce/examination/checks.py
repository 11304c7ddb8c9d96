"""Checks of a pair by itself: each gives the fault in a few words, or nothing."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from transduce.data.encoded import Pair
from transduce.localise.document import NAME, VOID
from transduce.localise.placeholders import BRACES, PRINTF, PYTHON

Check = Callable[[Pair], str | None]

_PLACEHOLDER = re.compile("|".join((*PYTHON, *BRACES, *PRINTF, r"%L?[1-9][0-9]?(?![0-9$%])")), re.A)
_POSITION = re.compile(r"(?<=%)[0-9]+\$|[-+#0' ]+(?=[0-9.]*[a-zA-Z]$)")
_NUMBER = re.compile("[0-9]{1,3}(?:[ \u00a0\u202f'][0-9]{3})+(?![0-9])|[0-9]+(?:[.,][0-9]+)*")
_CJK_NUMBERS = re.compile("[一二三四五六七八九十百千]")
_SCALES = re.compile(r"[万亿萬億]|世[纪紀]|年代|0'?s\b")
_CLOCK = re.compile(
    r"\b[0-9]{1,2}(?:[:.][0-9]{2}\b| ?(?:h\b|h[0-9]{2}|Uhr|heures|[ap]\.?m\b|[点點時时]))"
)
_DIGITS = re.compile(r"[0-9]+")
_TAG = re.compile(rf"<(?P<close>/)?(?P<name>{NAME})(?:\s[^<>]*?)?(?P<void>/)?>", re.ASCII)
_INLINE = frozenset(
    re.findall(
        r"\w+",
        "a b big body code em font h1 h2 h3 h4 html i li ol p pre qt s small span strong sub sup "
        "table td th tr tt u ul",
    )
)
_ENTITY = re.compile(
    r"&(?:amp;)?(?:quot|apos|amp|lt|gt|nbsp|hellip|mdash|ndash|[lr][sd]quo|[lr]aquo|copy|euro|"
    r"[aeiouyncAEIOUNC](?:acute|grave|circ|uml|tilde|cedil|ring)|szlig|#[0-9]{2,6}|#[xX][0-9a-fA-F]{2,5});"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\ufffe\uffff]")
_TAIL = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_QUOTES = tuple("‘’“”–—…»")
_MOJIBAKE = re.compile(rf"(?:[Â-ß][{_TAIL}]|[à-ï][{_TAIL}]{{2}}|[ð-ô][{_TAIL}]{{3}})+")
_LATIN_BYTES = re.compile("[\xa1-\xff]{4,}")
_HAN = re.compile("[\u4e00-\u9fff]+")
_CJK = re.compile("[\u2e80-\u9fff\uff00-\uffef€]{2,}")
_USUAL = re.compile(
    "[\xa0-\u017f\u0384-\u03ce\u0400-\u045f\u0490-\u04ff\u0600-\u06ff\u0900-\u0dff\u2010-\u22ff"
    "\u3000-\u9fff\uac00-\ud7a3\uff01-\uff5e\U0001f300-\U0010ffff]+"
)
_LOST = re.compile(r"(?<![/.=?&\w])[^\W\d_]+\?[a-z]+(?![\w/=.])|\?{4,}")
_ERROR = re.compile(r"#(?:NAME\?|REF!|VALUE!|DIV/0!|NUM!|NULL!|N/A(?!\w))")
_SCIENTIFIC = re.compile(r"(?<![\w.])[0-9](?:[.,][0-9]+)?E[+-]?[0-9]{1,3}(?!\w)")
_MONTHS = (
    r"(?:jan|feb|mar|mär|mrz|apr|may|mai|jun|jul|aug|sep|sept|oct|okt|nov|dec|dez|janv|févr|mars|"
    r"avr|juin|juil|août|déc)"
)
_DATE = re.compile(
    rf"(?<![\w./-])(?:[0-9]{{1,2}}[-./]\s?{_MONTHS}\b\.?|{_MONTHS}\.?[-/][0-9]{{2,4}})(?![\w/])"
    r"|^\s*(?:[0-9]{4}-[0-9]{2}-[0-9]{2}(?: 00:00:00)?|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4})\s*$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r'\s*"(?:[^"]|"")*"\s*')
_DOUBLED = re.compile(r'(?<!")""(?!")[^"\s]|[^"\s](?<!")""(?!")')
_WORD = re.compile(r"[^\W\d_]{2,}")


def empty(pair: Pair) -> str | None:
    """A side is blank."""
    blank = [
        side for side, text in zip(("source", "target"), pair, strict=True) if not text.strip()
    ]
    return f"no {' and no '.join(blank)}" if blank else None


def untranslated(pair: Pair) -> str | None:
    """Source and target are equal, in two words or more."""
    source, target = (" ".join(text.split()).casefold() for text in pair)
    if source != target or len(words := _WORD.findall(_PLACEHOLDER.sub(" ", pair[0]))) < 2:
        return None
    return "target equals source" if any(word.islower() for word in words) else None


def encoding(pair: Pair) -> str | None:
    """Mojibake, replacement and control characters, letters lost to `?`."""
    for text in pair:
        if "\ufffd" in text:
            return "replacement character U+FFFD"
        if (control := _CONTROL.search(text)) is not None:
            return f"control character U+{ord(control[0]):04X}"
        if not text.isascii() and (garbled := _garbled(text)):
            return garbled
    for text, other in (pair, pair[::-1]):
        if "?" in text and (lost := _LOST.search(text)) is not None and lost[0] not in other:
            return f"letter lost: {lost[0]}"
    return None


def _garbled(text: str) -> str | None:
    for match in _MOJIBAKE.finditer(text):
        if match[0][1:] in _QUOTES and not text[match.end() : match.end() + 1].isalpha():
            continue  # a capital letter before a quotation mark
        decoded = _as_bytes(match[0]).decode("utf-8", "replace")
        if _USUAL.fullmatch(decoded):
            return f"mojibake: {match[0]} for {decoded}"
    for match in _LATIN_BYTES.finditer(text):
        decoded = match[0].encode("latin-1").decode("gb2312", "replace")
        if len(set(decoded)) > 1 and _HAN.fullmatch(decoded):
            return f"mojibake: {match[0]} for {decoded}"
    for match in _CJK.finditer(text):
        raw = match[0].encode("gb18030")[: len(match[0]) * 2 // 3 * 3]
        decoded = raw.decode("utf-8", "replace")
        if len(decoded) > 1 and _USUAL.fullmatch(decoded):
            return f"mojibake: {match[0]} for {decoded}"
    return None


def _as_bytes(text: str) -> bytes:
    """Bytes of a text in Windows-1252, with those that it leaves free."""
    return b"".join(c.encode("latin-1" if ord(c) < 256 else "cp1252") for c in text)


def entities(pair: Pair) -> str | None:
    """Entities of HTML, unless both sides have them equally and are markup."""
    both = [Counter(_ENTITY.findall(text)) if "&" in text else Counter() for text in pair]
    if not any(both):
        return None
    if all(_TAG.search(text) for text in pair) or both[0] == both[1]:
        return None
    return f"entity {next(iter((both[0] - both[1]) or (both[1] - both[0])))}"


def tags(pair: Pair) -> str | None:
    """An element is opened more or less often than closed, on a single side."""
    if "<" not in pair[0] and "<" not in pair[1]:
        return None
    sides = [list(_TAG.finditer(text)) for text in pair]
    closed = {tag["name"] for side in sides for tag in side if tag["close"]}
    names = (closed | _INLINE) - VOID
    balances = [Counter[str](), Counter[str]()]
    for side, balance in zip(sides, balances, strict=True):
        for tag in side:
            if not tag["void"]:
                balance[tag["name"]] += -1 if tag["close"] else 1
    uneven = [name for name in sorted(names) if balances[0][name] != balances[1][name]]
    return f"unbalanced <{uneven[0]}>" if uneven else None


def placeholders(pair: Pair) -> str | None:
    """Placeholders such as `%s` and `{name}` differ."""
    if not any(sign in text for text in pair for sign in "%{"):
        return None
    source, target = (
        Counter(_POSITION.sub("", match) for match in _PLACEHOLDER.findall(text) if match != "%%")
        for text in pair
    )
    return _difference("placeholder", source, target)


def numbers(pair: Pair) -> str | None:
    """Numbers differ, beyond their spelling."""
    if any(_CLOCK.search(text) or _SCALES.search(text) for text in pair):
        return None  # 14 h is 2 o'clock, 3万 is 30,000, the 1930s are 20世纪30年代
    source, target = (_numbers(text) for text in pair)
    if source == target or "".join(sorted(source.elements())) == "".join(sorted(target.elements())):
        return None
    more, less = source - target, target - source
    short = all(len(number.rstrip("0")) < 3 for number in more + less)
    if not (more and less) and (short or any(map(_CJK_NUMBERS.search, pair))):  # in words
        return None
    return _difference("number", source, target)


def _numbers(text: str) -> Counter[str]:
    plain = _PLACEHOLDER.sub(" ", text)
    return Counter("".join(_DIGITS.findall(m)).lstrip("0") or "0" for m in _NUMBER.findall(plain))


def _difference(what: str, source: Counter[str], target: Counter[str]) -> str | None:
    if source == target:
        return None
    parts = [
        f"{what} {' '.join(list(side)[:4])} in the {name} alone"
        for name, side in (("source", source - target), ("target", target - source))
        if side
    ]
    return ", ".join(parts)


def spreadsheet(pair: Pair) -> str | None:
    """Accidents of spreadsheets: `#NAME?`, dates, `1E+05`, doubled quotation marks."""
    for text, other in (pair, pair[::-1]):
        for pattern in (_ERROR, _SCIENTIFIC):
            match = pattern.search(text)
            if match is not None and match[0] not in other:
                return match[0]
        date = None if _DATE.search(other) else _DATE.search(text)
        if date is not None and not {*_DIGITS.findall(date[0])} <= {*_DIGITS.findall(other)}:
            return date[0].strip()
        is_doubled = '""' in text and '""' not in other
        if is_doubled and (_QUOTED.fullmatch(text) or _DOUBLED.search(text)):
            return "quotation marks doubled"
    return None


CHECKS: Mapping[str, Check] = {
    "empty": empty,
    "untranslated": untranslated,
    "encoding": encoding,
    "entities": entities,
    "tags": tags,
    "placeholders": placeholders,
    "numbers": numbers,
    "spreadsheet": spreadsheet,
}
"""Checks of a pair, by the kind of fault."""


def checked(pair: Pair, kinds: Iterable[str]) -> dict[str, str]:
    """Faults of a pair among some kinds."""
    return {kind: fault for kind in kinds if (fault := CHECKS[kind](pair)) is not None}
