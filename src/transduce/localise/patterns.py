"""Patterns of placeholders, by the formats of messages that have them.

No pattern matches a mark, the private character that stands for a placeholder, and each takes time
in proportion to the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from transduce.localise.tags import NAME

MARKS = "\U000f0000-\U000ffffd\U00100000-\U0010fffd"
"""Range of marks, for a class of characters."""
_LETTER = "[A-Za-z\u00c0-\u024f\u0370-\u04ff]"
_URL = rf"(?:https?://|www\.)[^\s<>\"'{MARKS}]*[^\s<>\"'{MARKS}.,;:!?)\]}}*。，）]"
_ADDRESS = rf"\((?:[^()\s{MARKS}]|\([^()\s{MARKS}]*\))*+(?:[ ]\"[^\"\n{MARKS}]*\")?\)"

TEXT: tuple[str, ...] = (
    rf"<(?P<empty>{NAME})(?:\s[^<>{MARKS}]*)?></(?P=empty)>",  # <x id="6"></x>
    rf"</?{NAME}(?:\s[^<>{MARKS}]*|/)?>|<!--[^<>{MARKS}]*-->",
    r"\[X[0-9]+X\]",  # Weblate
    rf"(?<!\w)!?\[(?=[^\[\]\n{MARKS}]+\]{_ADDRESS})|\]{_ADDRESS}",  # Markdown
    _URL,
    r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+",
    rf"(?<![\w`])``[^`\n{MARKS}]+``(?![\w`])",
    rf"(?<![\w`])`(?! )[^`'\n{MARKS}]+(?<! )`(?![\w`])",
    r"(?<!\w)[A-Za-z]:\\[\w.\\~$-]*",  # a path of Windows
    r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);",
    rf"(?<![^\s(\[|{MARKS}])--[a-z][\w-]*(?<!-)(?![\w-])",
)
"""In every text: tags, links, addresses, code, entities, options of commands."""

_NO_NUMBER = r"(?:(?<![0-9%])|(?<=%[0-9])|(?<=%[0-9]{2})|(?<=%%))"
"""Not behind a number, as in `100%ig`."""
_LENGTH = "(?:hh|h|ll|l|L|z|j|t|q|w|I64)?"
PRINTF = (
    r"%(?:[0-9]++\$)?#@\w+@",  # a variable of stringsdict
    rf"{_NO_NUMBER}%(?:[0-9]++\$)?+'[0-9]*+{_LENGTH}[diufFgG]",
    rf"(?:{_NO_NUMBER}|(?<![\w%])0[xX])"
    r"%(?:[0-9]++\$)?+[-+#0I]*+(?:[0-9]++|\*(?:[0-9]++\$)?)?(?:\.(?:[0-9]++|\*)?)?"
    rf"{_LENGTH}[abcdefgimnopsuxACEFGSX@](?:[kKMG]?i?B(?!\w))?|%%",
)
GCC = (
    rf"%<(?:[^%\n{MARKS}]|%(?![<>]))*+%>",
    rf"{_NO_NUMBER}%(?:[-+#]*q?[-+#]*[A-Z](?![a-z])|[<>'{{}}])",
)
PYTHON = (rf"%\({NAME}\)[-+#0]*+[0-9]*+(?:\.[0-9]+)?[a-zA-Z]", rf"{_NO_NUMBER}%[ra](?!\w)")
BRACES = (
    rf"\{{\{{[^{{}}\n{MARKS}]*\}}\}}|\{{%[^{{}}\n{MARKS}]*%\}}|[$%#]?\{{[^{{}}\s{MARKS}]*\}}",
    rf"\{{\w+, ?\w+(?:, ?[^{{}}\n{MARKS}]*)?\}}",
)
QT = (rf"{_NO_NUMBER}%(?:L?[1-9][0-9]?|n)(?![0-9$])",)
LIBREOFFICE = (
    rf"{_NO_NUMBER}%(?:[A-Z][A-Z0-9_]{{2,}}%?|[A-Za-z_]\w++%(?![\w%]))",
    r"(?<!\w)#[A-Z_]{3,}#?|\$[(\[][\w.-]+[)\]]",
)
SHELL = (r"\$[A-Za-z_]\w*",)
LISP = (r"(?<![\w~/.])~[asdASD%](?![\w/.])",)
STRFTIME = r"%[-0^#]?[A-Za-z](?![A-Za-z])"
"""Parts of dates, which Rails keeps among its messages."""
RUBY = (r"(?<![^\s\"'(\[>]):[a-z_][a-z0-9_]+:?(?![\w:/])", r"@:[\w.]+")
ACCELERATORS = (rf"(?<![\w&])&(?={_LETTER}{{2}})|(?<![\w_&.])_(?=[A-Z][a-z]+(?![\w_]))",)
ESCAPES = (r"\\[nrt\"\\](?![a-z])|(?<!\w)\\[A-Za-z]+",)

FORMATS: Mapping[str, tuple[str, ...]] = {
    "gcc-internal-format": (*PRINTF, *GCC, *ESCAPES),
    "c-format": (*LIBREOFFICE, *PRINTF, *ACCELERATORS, *ESCAPES),
    "objc-format": (*PRINTF, *ESCAPES),
    "php-format": (*PRINTF, *RUBY, *ESCAPES),
    "sh-format": (*SHELL, r"\$[1-9]", *PRINTF, *ESCAPES),
    "python-format": (*PYTHON, *PRINTF, *ESCAPES),
    "python-brace-format": (*BRACES, *ESCAPES),
    "qt-format": (*QT, *ACCELERATORS, *ESCAPES),
    "kde-format": (*QT, *ACCELERATORS, *ESCAPES),
    "ruby-format": (*RUBY, *BRACES, *PRINTF, STRFTIME, *ESCAPES),
    "lisp-format": (*LISP, *ESCAPES),
    "scheme-format": (*LISP, *ESCAPES),
    "icu": (*BRACES, "#"),
    "fluent": (rf"\{{(?:[^{{}}\"{MARKS}]|\"[^\"\n{MARKS}]*+\")*+\}}",),
}
"""Patterns of the flags of a message, as gettext names most of them."""
EVERY = (
    *(*PYTHON, *BRACES, *LIBREOFFICE, *PRINTF, *QT, *GCC),
    *(*SHELL, *LISP, *RUBY, *ACCELERATORS, *ESCAPES),
)
"""Patterns of a text without such a flag."""
BRANCHES = re.compile(
    r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,(?![^{}]*\})"
    r"|(?<!\w)(?:zero|one|two|few|many|other|=[0-9]+)\s*\{(?=[^{}]*[\s#])"
)
"""Beginning of an ICU message, or of a line of it, with a text for each number or word."""


@functools.cache
def placeholder_pattern(flags: frozenset[str]) -> re.Pattern[str]:
    """Placeholders in a message with some flags; without a known one, those of all formats."""
    known = sorted(flags & FORMATS.keys())
    special = [part for flag in known for part in FORMATS[flag]] if known else EVERY
    return re.compile("|".join(dict.fromkeys((*TEXT, *special))), re.ASCII)


PLACEHOLDER = placeholder_pattern(frozenset())
