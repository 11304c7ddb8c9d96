"""Blocks of Markdown beyond CommonMark: lines as its parser is to read them, one for each."""

import re
from collections.abc import Sequence

TITLES = (
    (
        r"^([ \t>]*)(?:!!!|\?\?\?\+?|===[+!]?)(?: [\w -]*?)?(?: \"(.*)\")?[ \t]*$",
        r"\1-   ###### \2",
    ),
    (r"^([ \t]*(?:>[ \t]?)+)\[!\w+\][-+]?(.*)$", r"\1###### \2"),
    (r"^([ \t>]*):{3,}[ \t]*(?:\{[^}]*\}|[\w-]+)?(.*)$", r"\1###### \2"),
)
"""Lines with titles of admonitions and tabs (MkDocs), of alerts and of containers: they are read as
headings, the first in a list whose items are as far indented as the content."""
MARGIN = " \t>"
FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
FORMULAS = {"$$": "$$", "\\[": "\\]"}
"""Ends of formulas by their beginnings."""
BLOCK_CODE = re.compile(
    r"import\b(?:[^;'\"]*?\bfrom)?\s*['\"][^'\"\n]+['\"];?\s*"
    r"|export\s+(?:(?:default|const|let|var|function|class|async)\b|[{*])(?=[^\n]*[(){}\[=;*]).*",
    re.DOTALL,
)
"""A block of imports or exports (MDX)."""
DEFINITION = re.compile(r"^([ \t>]*):([ \t]+\S)")
TERM = re.compile(r"^([ \t>]*)(?![#>|<:*+-]|[0-9]+[.)] |={3}|`{3}|~{3})(\S)")


def parsed_lines(lines: Sequence[str]) -> list[str]:
    """The lines of a file as CommonMark reads their texts: titles as headings, definitions as items
    of a list and their terms as headings; formulas and imports as blank lines."""
    parsed: list[str] = []
    fence = ""
    following = 0
    ends = {begin: _places(lines, end) for begin, end in FORMULAS.items()}
    for i, line in enumerate(lines):
        bare = line.strip(MARGIN)
        if i < following:
            parsed.append(line[: len(line) - len(line.lstrip(MARGIN))])
            continue
        mark = FENCE.match(bare)
        if fence or mark:
            is_end = bool(fence) and bare.startswith(fence) and not bare.strip(fence[0])
            fence = "" if is_end else fence or (mark[0] if mark else "")
            parsed.append(line)
            continue
        following = _end_of_formula(i, bare, ends) or _end_of_code(lines, i)
        if following > i:
            parsed.append(line[: len(line) - len(line.lstrip(MARGIN))])
        elif DEFINITION.match(line) and _is_defined(parsed):
            parsed.append(DEFINITION.sub(r"\1-\2", line))
        else:
            for pattern, heading in TITLES:
                line = re.sub(pattern, heading, line)
            parsed.append(line)
    return parsed


def _places(lines: Sequence[str], end: str) -> list[int]:
    """For each line, the number of the next that ends a formula; -1 without one."""
    places, following = [], -1
    for i in range(len(lines) - 1, -1, -1):
        places.append(following)
        if lines[i].rstrip().endswith(end):
            following = i
    return places[::-1]


def _end_of_formula(i: int, bare: str, ends: dict[str, list[int]]) -> int:
    """Number of the line after a formula that begins in a line; 0 without one."""
    begin = next((sign for sign in FORMULAS if bare.startswith(sign)), None)
    if begin is None:
        return 0
    rest = bare[len(begin) :]
    if rest.rstrip().endswith(FORMULAS[begin]):
        return i + 1 if re.search(r"[\\^_=]", rest[:-2]) else 0
    is_open = FORMULAS[begin] not in rest and (begin == "$$" or not rest.strip())
    return ends[begin][i] + 1 if is_open else 0


def _end_of_code(lines: Sequence[str], i: int) -> int:
    """Number of the line after a block of imports or exports that begins in a line, else 0."""
    if not lines[i].startswith(("import ", "export ")) or (i and lines[i - 1].strip()):
        return 0
    end = next((j for j in range(i, len(lines)) if not lines[j].strip()), len(lines))
    statements = "\n".join(lines[i:end])
    parts = re.split(r"\n(?=import\b|export\b)", statements)
    return end if all(BLOCK_CODE.fullmatch(part) for part in parts) else 0


def _is_defined(parsed: list[str]) -> bool:
    """True if the lines before a definition are its terms, which become headings, or another."""
    last = len(parsed) - 1
    last -= last >= 0 and not parsed[last].strip()
    if last < 0 or not parsed[last].strip():
        return False
    first = last + 1
    while first > 0 and parsed[first - 1].strip(MARGIN):
        if re.match(r"[ \t>]*-[ \t]", parsed[first - 1]):
            return True
        if TERM.match(parsed[first - 1]) is None:
            return False
        first -= 1
    terms = parsed[first : last + 1]
    parsed[first : last + 1] = [TERM.sub(r"\1###### \2", line, count=1) for line in terms]
    return True
