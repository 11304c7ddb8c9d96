"""Placeholders and tags in a text, by the formats of messages: each replaced by a mark, then put
back.

No pattern matches a mark, the private character that stands for a placeholder, and each takes time
in proportion to the text.

A protected text has a private character for each placeholder. Sentences are split, words moved
and spaces counted in that form, in which no placeholder can be split.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import DataError
from transduce.localise.document import (
    BLOCKS,
    INLINE,
    NAME,
    OPAQUE,
    RAISED,
    RAW,
    VOID,
    Kind,
    Tag,
    parsed,
    partners,
)
from transduce.localise.inline import escaped, from_markup, parts_of
from transduce.text.scripts import is_of_word, takes_clitics

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
PLACEHOLDER_RUBY = (r"%[-+#0]*+[0-9]*+<\w++>[-+#0]*+[0-9]*+(?:\.[0-9]+)?[a-zA-Z]",)
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
RST_LINK = re.compile(rf"(?<![\w`:])(`)(?! )([^`<>\n{MARKS}]+)( <[^<>`\n{MARKS}]+>`__?)(?!\w)")
RST_EMPHASIS = re.compile(r"(?<![\w*\\])(\*\*?)(?![\s*])([^*\n]*[^\s*\\])(\1)(?![\w*])")
"""Beginning, text and end of a link and of emphasis."""
RST = (rf"(?<!\w)\|(?! )[^|\n{MARKS}]+(?<! )\|_{{0,2}}(?!\w)", r"\[#?[\w*-]+\]_(?!\w)")
ACCELERATORS = (
    rf"(?<![\w&])&(?={_LETTER}{{2}})|(?<=[a-z])&(?=[a-z])|(?<=\()&(?=[A-Za-z]\))",
    r"(?<![\w_&.])_(?=[A-Z\u00c0-\u1fff][a-z\u00c0-\u1fff]+(?![\w_]))",
)
ESCAPES = (r"\\[nrt\"\\](?![a-z])|(?<!\w)\\[A-Za-z]+",)

_C = (SPACED, *PRINTF, *ESCAPES)
PLACEHOLDER_FORMATS: Mapping[str, tuple[str, ...]] = {
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
    "ruby-format": (*PLACEHOLDER_RUBY, *COLON, *BRACES, *PRINTF, STRFTIME, *ESCAPES),
    **dict.fromkeys(("lisp-format", "scheme-format"), (*LISP, *ESCAPES)),
    "chrome-format": (*CHROME, r"\$[1-9]", r"\$\$"),
    "icu": (*BRACES, "#"),
    "fluent": (rf"\{{(?:[^{{}}\"{MARKS}]|\"[^\"\n{MARKS}]*+\")*+\}}",),
}
"""Patterns of the flags of a message, as gettext and Weblate name most of them."""
_PROSE = (
    *(
        *PYTHON,
        *BRACES,
        *PLACEHOLDER_RUBY,
        *PASCAL,
        *LIBREOFFICE,
        *PRINTF,
        *QT,
        *GCC,
        *CHROME,
        *I18NEXT,
    ),
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
    known = sorted(flags & PLACEHOLDER_FORMATS.keys())
    special = [part for flag in known for part in PLACEHOLDER_FORMATS[flag]]
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


PLANES = (0xF0000, 0x100000)
"""First characters of the two private planes."""
SIGNS = "<>[]{}%$@\\"
"""Characters of placeholders that a translation does not add."""
BRACKETS = "<>{}\\"
"""Those of them that a text without placeholders does not get: "fünf Prozent" may become "5 %"."""
MAX_PLACEHOLDERS = 1000
"""Maximum number of placeholders in a text."""
PASSES = 3
"""Maximum number of searches: a placeholder may hide the next (`100%1%2`)."""
NUMBERED = re.compile(
    r"%(?:[0-9]+[$:].*|L?[0-9]{1,2}|n|[-+0-9]*[({%<>'].*|[A-Z][A-Z0-9_]{2,}%?|\w+%)", re.DOTALL
)
"""Placeholders that do not count by their place."""
FIELD_BY_PLACE = re.compile(r"\{(?:[:!][^{}]*)?\}")
ARGUMENT = re.compile(
    r"%([-+#0']*+[0-9]*+(?:\.[0-9]++)?(?:hh?|ll?|[Lqzjt])?[cdiouxXeEfFgGsp@])"
    r"|\{((?:[:!][^{}]*)?)\}"
)
"""A placeholder to which a number can be added; parts of dates have none."""
HAS_NUMBER = re.compile(r"%[0-9]+\$|\{[0-9]")
NUMBERS: Mapping[str, str] = {
    **dict.fromkeys(("c-format", "gcc-internal-format", "objc-format", "ruby-format"), "%"),
    **dict.fromkeys(("java-printf-format", "perl-format", "php-format", "tcl-format"), "%"),
    **dict.fromkeys(("python-brace-format", "c++-format"), "{"),
}
"""First characters of placeholders to which a format can add numbers, by its flag."""
BBCODE_TAG = re.compile(r"\[(?!X[0-9]+X\])(/?)([A-Za-z][A-Za-z0-9]*)(?:=[^\[\]]*)?\]")


@dataclass(frozen=True)
class Protected:
    """A text with marks in place of its placeholders.

    text:    with a private character, its mark, for each placeholder.
    names:   the placeholder of each mark.
    kinds:   of each mark: of a tag, or "text" for all that stands for words.
    tags:    marks of tags of the format, and of text that quotes such a tag.
    markup:  True if the text was in markup form; here it is as a reader sees it.
    pattern: of placeholders of such texts.
    numbers: first characters of the placeholders that the format numbers: `%2$s`, `{1}`.
    inline:  marks of pairs of RST, which are apart from letters.
    """

    text: str
    names: Mapping[str, str]
    kinds: Mapping[str, Kind]
    tags: frozenset[str]
    markup: bool
    pattern: re.Pattern[str]
    numbers: str = ""
    inline: frozenset[str] = frozenset()

    @property
    def marks(self) -> str:
        """The marks in the order of the text."""
        return "".join(c for c in self.text if c in self.names)

    def partners(self, text: str) -> dict[str, str]:
        """Marks of end tags, by the marks of their start tags, of a text with marks."""
        marks = [c for c in text if c in self.names]
        tags = [Tag(self.kinds[mark], self.element(mark)) for mark in marks]
        return {marks[i]: marks[j] for i, j in partners(tags).items() if i < j}

    def element(self, mark: str) -> str:
        """Name of the element of a tag."""
        return _tag(self.names[mark]).name

    def words(self, text: str) -> dict[str, int]:
        """Number of characters of words, or placeholders that stand for some, before each mark."""
        counts: dict[str, int] = {}
        number = 0
        for character in text:
            if character in self.names:
                counts[character] = number
            number += self.kinds.get(character) in ("text", "void") or character.isalnum()
        return counts

    def beside(self, text: str) -> dict[str, tuple[str, str]]:
        """The character before and after each placeholder of a text, tags of pairs left out."""
        visible = [c for c in text if self.kinds.get(c) not in ("open", "close")]
        before, after = ["", *visible], [*visible[1:], ""]
        return {
            c: (a, b) for a, c, b in zip(before, visible, after, strict=False) if c in self.names
        }

    def shown(self, text: str) -> str:
        """A text with marks, with the placeholders as they are."""
        return "".join(self.names.get(character, character) for character in text)

    def restored(self, text: str) -> str:
        """A text with marks in the form of the source.  Raises DataError as `named`."""
        names = self.named(text)
        if not self.markup:
            return "".join(names.get(character, character) for character in text)
        return "".join(names[c] if c in self.tags else escaped(names.get(c, c)) for c in text)

    def order(self, text: str) -> list[str]:
        """Marks of a text that count by their place, in its order."""
        return [c for c in text if c in self.names and _is_positional(self.names[c])]

    def named(self, text: str) -> Mapping[str, str]:
        """The placeholder of each mark, with a number where those that count by their place come in
        another order, and an escaped blank where a pair of RST meets a letter.  Raises DataError
        where the format has no numbers."""
        names = dict(self.names)
        for before, mark, after in zip(" " + text, text, text[1:] + " ", strict=False):
            if mark in self.inline and self.kinds[mark] == "open" and before.isalnum():
                names[mark] = "\\ " + names[mark]
            elif mark in self.inline and self.kinds[mark] == "close" and after.isalnum():
                names[mark] += "\\ "
        for sign in "%{":
            there, here = (
                [c for c in self.order(some) if names[c].startswith(sign)]
                for some in (self.text, text)
            )
            if there == here:
                continue
            forms = [ARGUMENT.fullmatch(names[c]) for c in there]
            if sign not in self.numbers or any(map(HAS_NUMBER.match, self.names.values())):
                forms = [None]
            for number, (mark, form) in enumerate(zip(there, forms, strict=False)):
                if form is None:
                    raise DataError("placeholders without numbers are not in their order")
                names[mark] = (
                    f"%{number + 1}${form[1]}" if sign == "%" else f"{{{number}{form[2]}}}"
                )
        return names

    def marked(self, text: str) -> str:
        """A text with placeholders as they are, with marks; equal placeholders in the order of the
        source. Raises DataError unless each comes exactly once."""
        free: dict[str, list[str]] = {}
        for mark in self.marks:
            free.setdefault(self.names[mark], []).append(mark)
        longest = sorted(free, key=len, reverse=True)

        def replaced(match: re.Match[str]) -> str:
            if not free[match[0]]:
                raise DataError(f"{match[0]} comes more often than in the source")
            return free[match[0]].pop(0)

        text = re.sub("|".join(map(re.escape, longest)) or "$^", replaced, text)
        for name, marks in free.items():
            if marks:
                raise DataError(f"{name} is missing")
        return text


def protect(
    text: str,
    tags: Sequence[str] = (),
    markup: bool = False,
    flags: frozenset[str] = frozenset(),
) -> Protected:
    """Replace the placeholders of a text by marks.

    tags: of the format, in order.  markup: the text is in markup form.  flags: those that name a
    format (`patterns.FORMATS`) limit the placeholders to its own.  A quoted tag of the format is a
    placeholder with entities.  Raises DataError for a text with characters of both private planes,
    too many placeholders, or branches of ICU.
    """
    plane = next((p for p in PLANES if not any(p <= ord(c) < p + 0x10000 for c in text)), None)
    if plane is None:
        raise DataError("the text has characters of both private planes")
    names: dict[str, str] = {}

    def mark(name: str) -> str:
        if len(names) >= MAX_PLACEHOLDERS:
            raise DataError(f"the text has more than {MAX_PLACEHOLDERS} placeholders")
        character = chr(plane + len(names))
        names[character] = name
        return character

    text = "".join(mark(part) if is_tag else part for is_tag, part in parts_of(text, tags))
    of_format = frozenset(names)
    text = from_markup(text) if markup else text
    if "fluent" not in flags and (branch := BRANCHES.search(text)):
        raise DataError(f"{branch[0]} has a text for each case; translate its texts by hand")
    pattern = placeholder_pattern(flags)
    quoted = set()

    def mark_text(name: str) -> str:
        character = mark(escaped(name) if name in tags else name)
        quoted.update([character] * (name in tags))
        return character

    written: dict[str, Kind] = {}

    def mark_pair(match: re.Match[str]) -> str:
        start, end = mark(match[1]), mark(match[3])
        written.update({start: "open", end: "close"})
        return start + match[2] + end

    is_rst = "rst-text" in flags
    text = RST_LINK.sub(mark_pair, text) if is_rst else text
    for _ in range(PASSES):
        text = pattern.sub(lambda match: mark_text(match[0]), text)
    text = RST_EMPHASIS.sub(mark_pair, text) if is_rst else text
    text = with_runs(text, mark_text)
    kinds = {c: written.get(c) or _kind(name, c in of_format) for c, name in names.items()}
    numbers = "".join(NUMBERS.get(flag, "") for flag in flags)
    tags_ = of_format | quoted
    return Protected(text, names, kinds, tags_, markup, pattern, numbers, frozenset(written))


def check_placeholders(source: Protected, text: str) -> None:
    """Check the output of a model, with marks.

    Raises DataError for the faults of `check_kept`, and for signs that parts of placeholders leave.
    """
    check_kept(source, text)
    signs = SIGNS if source.marks else BRACKETS
    if any(text.count(sign) > source.text.count(sign) for sign in signs):
        raise DataError("parts of a placeholder are left in the translation")


def check_kept(source: Protected, text: str) -> None:
    """Check a translation with marks.

    Raises DataError unless each mark comes once, pairs of tags are as in the source and around
    words where they were, placeholders that count by place (`%s`) are in their order, or can be
    numbered, none has become part of a word, and no other is there.
    """
    names, marks, counts = source.names, source.marks, Counter(text)
    for mark in marks:
        if counts[mark] != 1:
            raise DataError(f"{names[mark]} {'comes twice' if counts[mark] else 'is missing'}")
    if invented := [names[c] for c in counts if c in names and c not in marks]:
        raise DataError(f"the translation has a placeholder of its own, {invented[0]}")
    n_cut = len(names_in(source.text, source.pattern))  # from what was before them
    if invented := names_in(text, source.pattern)[n_cut:]:
        raise DataError(f"the translation has a placeholder of its own, {invented[0]}")
    pairs = source.partners(source.text)
    if source.partners(text) != pairs:
        raise DataError("the tags are not nested as in the source")
    words, translated = source.words(source.text), source.words(text)
    for start, end in pairs.items():
        if words[start] < words[end] and translated[start] >= translated[end]:
            raise DataError(f"{names[start]} has lost its words")
    source.named(text)
    before = source.beside(source.text)
    for mark, sides in source.beside(text).items():
        for character, in_source in zip(sides, before[mark], strict=True):
            if is_of_word(character) and not (is_of_word(in_source) or takes_clitics(character)):
                raise DataError(f"{names[mark]} is part of a word")


def _is_positional(name: str) -> bool:
    if name.startswith("%<"):
        return re.search("%[^%<>']", name[2:-2]) is not None
    if name.startswith("{"):
        return FIELD_BY_PLACE.fullmatch(name) is not None
    return name.startswith("%") and name != "%%" and NUMBERED.fullmatch(name) is None


def _tag(name: str) -> Tag:
    """The tag that a placeholder is; the ends of a link in Markdown are a pair of tags, as
    those of BBCode."""
    if name in ("[", "!["):
        return Tag("open", "[")
    if name in ("`", "*", "**"):
        return Tag("open", name)
    if name.startswith(" <") and name.endswith("_"):
        return Tag("close", "`")
    if code := BBCODE_TAG.fullmatch(name):
        return Tag("close" if code[1] else "open", f"[{code[2]}")
    return Tag("close", "[") if name.startswith("](") else parsed(name)


def _kind(name: str, is_tag: bool) -> Kind:
    tag = _tag(name)
    return tag.kind if tag.name or is_tag or name.startswith("<!--") else "text"
