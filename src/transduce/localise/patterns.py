"""Patterns of placeholders, by the formats of messages that have them.

No pattern matches a mark, the private character that stands for a placeholder, and each takes time
in proportion to the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

from transduce.localise.tags import BLOCKS, INLINE, NAME, OPAQUE, RAISED, RAW, VOID

MARKS = "\U000f0000-\U000ffffd\U00100000-\U0010fffd"
"""Range of marks, for a class of characters."""
_LETTER = "[A-Za-z\u00c0-\u024f\u0370-\u1fff]"
_IN_URL = (
    r"(?:[!#-&*-;=?-Z\\^-~]|(?u:[^\W\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\uffff"
    r"\U0001b000-\U000fffff])|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])"
)
"""Characters of addresses, but brackets and quotes; scripts without blanks and signs outside of
ASCII end them."""
_URL = (
    rf"(?:(?:https?|ftp)://|www\.)(?:{_IN_URL}|\({_IN_URL}*+\)|\[{_IN_URL}*+\])*[^\W_]*"
    r"(?<![.,;:!?*}{|])"
)
_ADDRESS = rf"\((?:[^()\s{MARKS}]|\([^()\s{MARKS}]*\))*+(?:[ ]\"[^\"\n{MARKS}]*\")?\)"
_HTML = "|".join(sorted(BLOCKS | OPAQUE | RAISED | RAW | VOID | INLINE))
_REACH = 2000
"""Maximum characters between a tag and its end, by which a word in brackets is one."""

TAGS: tuple[str, ...] = (
    rf"<(?P<empty>{NAME})(?:\s[^<>{MARKS}]*)?></(?P=empty)>",  # <x id="6"></x>
    rf"</{NAME}\s*+>|<(?:{NAME}(?:\s[^<>{MARKS}]*=[^<>{MARKS}]*|\s*/|=[^<>\s{MARKS}]*)|[0-9]+)>",
    rf"<(?i:{_HTML})(?:\s[^<>{MARKS}]*)?>|<!--[^<>{MARKS}]*-->|<%[-=#]?(?:[^%\n{MARKS}]|%(?!>))*%>",
    rf"<(?P<paired>{NAME})(?:\s[^<>{MARKS}]*)?>(?=[^{MARKS}]{{0,{_REACH}}}?</(?P=paired)\s*>)",
    rf"(?<!\w)!?\[(?=[^\[\]\n{MARKS}]+\]{_ADDRESS})|\]{_ADDRESS}",  # Markdown
    r"\[X[0-9]+X\]",  # Weblate
)
"""Tags of HTML, and others with an attribute, a slash or an end; a lone `<file>` is text."""
BBCODE = (
    rf"\[/[A-Za-z]\w*\]|\[[A-Za-z]\w*=[^\[\]\n{MARKS}]*\]"
    rf"|\[(?P<code>[A-Za-z]\w*)\](?=[^{MARKS}]{{0,{_REACH}}}?\[/(?P=code)\])",
)
TEXT: tuple[str, ...] = (
    _URL,
    r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+",
    rf"(?<![\w`])``[^`\n{MARKS}]+``(?![\w`])",
    rf"(?<![\w`]):[\w:.+-]+:`[^`\n{MARKS}]+`|(?<![\w`])`(?! )[^`\n{MARKS}]+(?<! )`__?(?!\w)",  # RST
    rf"(?<![\w`])`(?! )[^`'\n{MARKS}]+(?<! )`(?![\w`])",
    r"(?<!\w)[A-Za-z]:\\[\w.\\~$-]*",  # a path of Windows
    r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);",
)
"""Of every text, beside tags: addresses, code, entities."""
OPTIONS = (rf"(?<![^\s(\[|{MARKS}])--[a-z][\w-]*(?<!-)(?![\w-])",)
"""Options of commands: in prose, two hyphens are a dash."""

_NO_NUMBER = r"(?:(?<![0-9%])|(?<=%[0-9])|(?<=%[0-9]{2})|(?<=%%))"
"""Not behind a number, as in `100%ig`."""
_LENGTH = "(?:hh|h|ll|l|L|I64|[zjtqw](?=[A-Za-z](?![a-z])))?"
PRINTF = (
    r"%(?:[0-9]++\$)?#@\w+@|%arg(?!\w)",  # variables of stringsdict and of xcstrings
    rf"{_NO_NUMBER}%(?:[0-9]++\$)?+I?'I?[0-9]*+(?:\.[0-9]++)?{_LENGTH}[diufFgG]",
    rf"(?:{_NO_NUMBER}|(?<![\w%])0[xX])"
    r"%(?:[0-9]++\$)?+[-+#0I]*+(?:[0-9]++|\*(?:[0-9]++\$)?)?(?:\.(?:[0-9]++|\*)?)?"
    rf"{_LENGTH}[abcdefgimnopsuxACEFGSX@](?:[kKMG]?i?B(?!\w))?|%%",
)
SPACED = rf"%[ ](?:[0-9]++)?(?:\.[0-9]++)?{_LENGTH}[cdiouxXeEfFgGaAsS]\w*"
"""With a blank as a flag, as in `100% of`; the rest of the word stays beside it."""
GCC = (
    rf"%<(?:[^%\n{MARKS}]|%(?![<>]))*+%>",
    rf"{_NO_NUMBER}%(?:[-+#]*q?[-+#]*[A-Z](?![a-z])|[<>'{{}}])",
)
PYTHON = (rf"%\({NAME}\)[-+#0]*+[0-9]*+(?:\.[0-9]+)?[a-zA-Z]", rf"{_NO_NUMBER}%[ra](?!\w)")
BRACES = (
    rf"\{{\{{[^{{}}\n{MARKS}]*\}}\}}|\{{%[^{{}}\n{MARKS}]*%\}}|[$%#@]?\{{[^{{}}\s{MARKS}]*\}}",
    rf"\{{\w+, ?\w+(?:, ?[^{{}}\n{MARKS}]*)?\}}",
)
QT = (rf"{_NO_NUMBER}%(?:L?[1-9][0-9]?|n)(?![0-9$])",)
LIBREOFFICE = (
    r"%%[A-Z][A-Z0-9_]+%%",
    rf"{_NO_NUMBER}%(?:[A-Z][A-Z0-9_]{{2,}}%?|[A-Za-z_]\w++%(?![\w%]))",
    r"(?<!\w)#[A-Z_]{3,}#?|\$[(\[][\w.-]+[)\]]",
)
SHELL = (r"\$[A-Za-z_]\w*",)
LISP = (r"(?<![\w~/.])~[asdASD%](?![\w/.])",)
DATE = re.compile(r"%[-_0^#]?[EO]?[BDHIMRTUVWYZbhjklrtyz](?![A-Za-z])")
"""A part of a date that no argument has."""
STRFTIME = r"%[-0^#]?[A-Za-z](?![A-Za-z])"
"""Parts of dates, which Rails keeps among its messages."""
RUBY = (r"%[-+#0]*+[0-9]*+<\w++>[-+#0]*+[0-9]*+(?:\.[0-9]+)?[a-zA-Z]",)
COLON = (
    r"(?<![^\s\"'(\[>]):[A-Za-z_][A-Za-z0-9_]+:?(?![\w:/])",
    r"@(?:\.\w+)?:(?:\([\w.]+\)|[\w.]*\w)",
)
"""Of Laravel, and linked messages of Vue."""
PASCAL = (r"%[0-9]++:-?[0-9]*+(?:\.[0-9]++)?[DEFGMNPSUXdefgmnpsux](?!\w)",)
CHROME = (r"\$[A-Za-z_]\w*\$",)
I18NEXT = (rf"\$t\((?:[^()\n{MARKS}]|\([^()\n{MARKS}]*\))*+\)",)
SWIFT = (rf"\\\((?:[^()\s{MARKS}]|\([^()\n{MARKS}]*\))++\)",)
GAMES = (r"\u00a7[0-9a-fk-or](?![0-9])", r"\\[A-Za-z]{1,2}\[\w*\]")
RST = (rf"(?<!\w)\|(?! )[^|\n{MARKS}]+(?<! )\|_{{0,2}}(?!\w)", r"\[#?[\w*-]+\]_(?!\w)")
ACCELERATORS = (
    rf"(?<![\w&])&(?={_LETTER}{{2}})|(?<=[a-z])&(?=[a-z])|(?<=\()&(?=[A-Za-z]\))",
    r"(?<![\w_&.])_(?=[A-Z\u00c0-\u1fff][a-z\u00c0-\u1fff]+(?![\w_]))",
)
ESCAPES = (r"\\[nrt\"\\](?![a-z])|(?<!\w)\\[A-Za-z]+",)

_C = (SPACED, *PRINTF, *ESCAPES)
FORMATS: Mapping[str, tuple[str, ...]] = {
    "gcc-internal-format": (*GCC, *_C),
    "c-format": (*LIBREOFFICE, *_C, *ACCELERATORS),
    **dict.fromkeys(("objc-format", "perl-format", "java-printf-format", "lua-format"), _C),
    **dict.fromkeys(("awk-format", "tcl-format", "gfc-internal-format"), _C),
    "boost-format": (r"%[0-9]+%", *_C),
    "php-format": (*_C, *COLON),
    "sh-format": (*SHELL, r"\$[1-9]", *PRINTF, *ESCAPES),
    "python-format": (*PYTHON, *_C),
    "javascript-format": (*PYTHON, *_C),
    **dict.fromkeys(
        ("python-brace-format", "perl-brace-format", "c++-format"), (*BRACES, *ESCAPES)
    ),
    **dict.fromkeys(("csharp-format", "java-format"), (*BRACES, *ESCAPES)),
    **dict.fromkeys(("qt-format", "kde-format"), (*QT, *ACCELERATORS, *ESCAPES)),
    "object-pascal-format": (*PASCAL, *PRINTF, *ESCAPES),
    "ruby-format": (*RUBY, *COLON, *BRACES, *PRINTF, STRFTIME, *ESCAPES),
    **dict.fromkeys(("lisp-format", "scheme-format"), (*LISP, *ESCAPES)),
    "chrome-format": (*CHROME, r"\$[1-9]", r"\$\$"),
    "icu": (*BRACES, "#"),
    "fluent": (rf"\{{(?:[^{{}}\"{MARKS}]|\"[^\"\n{MARKS}]*+\")*+\}}",),
}
"""Patterns of the flags of a message, as gettext and Weblate name most of them."""
_PROSE = (
    *(*PYTHON, *BRACES, *RUBY, *PASCAL, *LIBREOFFICE, *PRINTF, *QT, *GCC, *CHROME, *I18NEXT),
    *(*SHELL, *LISP, *COLON, *SWIFT, *GAMES, *ACCELERATORS, *ESCAPES),
)
EVERY = (*OPTIONS, *_PROSE)
"""Patterns of a text without such a flag."""
SYNTAXES: Mapping[str, tuple[str, ...]] = {"rst-text": RST, "md-text": (), "prose-text": ()}
"""Patterns of a text that is written so, beside those of its format."""
SOFT = re.compile(
    "|".join(
        (*TEXT, *OPTIONS, *GCC, *SHELL, *LISP, *COLON, *GAMES, *ACCELERATORS, *ESCAPES, *BBCODE)
    ),
    re.ASCII,
)
"""Placeholders that no program reads in a message without their flag: people may change them."""
BRANCHES = re.compile(
    r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,(?![^{}]*\})"
    r"|(?<!\w)(?:zero|one|two|few|many|other|=[0-9]+)\s*\{(?=[^{}]*[\s#])"
)
"""Beginning of an ICU message, or of a line of it, with a text for each number or word."""


@functools.cache
def placeholder_pattern(flags: frozenset[str]) -> re.Pattern[str]:
    """Placeholders in a message with some flags; without a known one, those of all formats."""
    known = sorted(flags & FORMATS.keys())
    special = [part for flag in known for part in FORMATS[flag]]
    every = _PROSE if "prose-text" in flags else EVERY
    syntaxes = [part for flag in sorted(flags & SYNTAXES.keys()) for part in SYNTAXES[flag]]
    options = OPTIONS if known else ()
    parts = (*TAGS, *BBCODE, *TEXT, *syntaxes, *options, *(special or every))
    return re.compile("|".join(dict.fromkeys(parts)), re.ASCII)


PLACEHOLDER = placeholder_pattern(frozenset())
_TOKEN = re.compile("[!-~]+")
_SIGN = re.compile(r"[<>\[\]{}%$@\\=#]|(?<![A-Za-z]):|:(?![A-Za-z])")
_WORD = re.compile(r"\[?[<(]?[A-Za-z0-9|/,.; -]*[)>]?\]?")
_OUTER = ".,;:!?\"'()*_`"


def with_runs(text: str, mark: Callable[[str], str]) -> str:
    """A text with marks for its runs without blanks that have letters between two signs, with the
    word beside them: placeholders of formats that no pattern describes.  A word in brackets is
    none."""

    def marked(match: re.Match[str]) -> str:
        token = match[0]
        run = token.strip(_OUTER)
        signs = [sign.start() for sign in _SIGN.finditer(run)]
        has_letters = len(signs) > 1 and re.search("[A-Za-z]", run[signs[0] : signs[-1]])
        if not has_letters or _WORD.fullmatch(run):
            return token
        before, _, after = token.partition(run)
        return before + mark(run) + after

    return _TOKEN.sub(marked, text)


def names_in(text: str, pattern: re.Pattern[str]) -> list[str]:
    """Placeholders in a text, by a pattern, then runs of signs."""
    names: list[str] = []

    def mark(name: str) -> str:
        names.append(name)
        return " "

    with_runs(pattern.sub(lambda match: mark(match[0]), text), mark)
    return names
