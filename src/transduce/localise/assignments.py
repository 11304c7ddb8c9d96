"""Files of assignments: INI, entries of desktops, TOML, arrays of PHP."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Reading, Record, Segment, Span
from transduce.localise.languages import is_same_language
from transduce.localise.plurals import CATEGORY_NAMES
from transduce.localise.units import (
    Member,
    Unit,
    document_of,
    member_at,
    shortened,
    unit_in_place,
)

ASSIGNMENT = re.compile(
    r"(?<![^\r\n])[ \t]*+(?:\[(?P<section>[^\]\r\n]*+)\]"
    r"|(?P<key>[^=:;#\s\[](?:[^=: \t\r\n]++|[ \t]++(?=[^=: \t\r\n]))*+)[ \t]*+[=:][ \t]*+"
    r"(?P<value>(?:[^ \t\r\n]++|[ \t]++(?=[^ \t\r\n]))*+)[ \t]*+(?![^\r\n]))"
)
VALUE = re.compile(r"(?i)true|false|yes|no|on|off|none|null|[\W\d_]*")
"""Values that are no texts."""


def read_ini(content: bytes, reading: Reading) -> Document:
    """Read the values of keys, without quotes around them."""
    decoded = reading.decode(content)
    units, section = [], ""
    for match in ASSIGNMENT.finditer(decoded.text):
        reading.check()
        section = shortened(match["section"] or section)
        if match["section"] is not None or VALUE.fullmatch(match["value"]):
            continue
        span, value = Span(*match.span("value")), match["value"]
        quote = value[0] if value[0] in "'\"" and value[-1:] == value[0] and value[1:] else ""
        if quote:
            span, value = Span(span.start + 1, span.end - 1), value[1:-1]
        key = shortened(f"{section}.{match['key']}" if section else match["key"])
        raw = functools.partial(_one_line, key=key, quote=quote)
        if member := member_at(span, key, value, raw):
            units.append(unit_in_place({"": member}))
    return document_of(decoded, units)


def _one_line(text: str, key: str, quote: str = "") -> str:
    """A text without line breaks and without a quote."""
    if "\n" in text or (quote and quote in text):
        name = "a line break" if "\n" in text else quote
        raise DataError(f"{key}: the translation has {name}, which the value cannot hold")
    return text


SHOWN_KEYS = frozenset(("Name", "GenericName", "Comment", "Keywords", "X-GNOME-FullName"))
"""Keys of the desktop whose values readers see."""
DESKTOP_ESCAPES = {"\\s": " ", "\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}


def read_desktop(content: bytes, reading: Reading) -> Document:
    """Read the names and comments of an entry, and their translations (`Name[de]`)."""
    language = reading.language
    if language is None:
        raise DataError("the target language is not known; give --target-language CODE")
    decoded = reading.decode(content)
    code, section = language.replace("-", "_"), ""
    values: dict[tuple[str, str], re.Match[str]] = {}
    for match in ASSIGNMENT.finditer(decoded.text):
        section = match["section"] or section
        if match["section"] is None:
            values.setdefault((section, match["key"]), match)
    alike = {
        (section, key.partition("[")[0]): match
        for (section, key), match in values.items()
        if key.endswith("]") and is_same_language(key.partition("[")[2][:-1], language)
    }
    units = []
    for (section, name), match in values.items():
        reading.check()
        source = _desktop_text(match)
        if name not in SHOWN_KEYS or not any(map(str.isalpha, source)):
            continue
        known = values.get((section, f"{name}[{code}]")) or alike.get((section, name))
        span = Span(*(known or match).span("value"))
        target = _desktop_text(known) if known else ""
        segment = Segment(
            shortened(f"{section}.{name}"),
            source,
            (span,),
            target=target,
            state="translated" if target else "missing",
        )
        head = "" if known else f"{decoded.newline}{name}[{code}]="
        place = span if known else Span(match.end(), match.end())
        units.append(Unit([segment], functools.partial(_desktop_edits, place, head)))
    return document_of(decoded, units)


def _desktop_text(entry: re.Match[str]) -> str:
    return re.sub(r"\\.", lambda e: DESKTOP_ESCAPES.get(e[0], e[0]), entry["value"]).strip()


def _desktop_edits(place: Span, head: str, targets: Mapping[str, str]) -> Iterator[Edit]:
    for target in targets.values():
        text = target.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
        yield Edit(place, head + text)


_KEY = r"(?:\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'|[\w-]++)"
TOML_TOKEN = re.compile(
    r"(?P<comment>\#[^\n]*+)|^[ \t]*\[++(?P<table>[^\]\n]*+)\]"
    rf"|(?P<key>{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*+)[ \t]*="
    r"|(?P<string>\"\"\"(?:[^\\]|\\.)*?\"\"\"\"{0,2}|'''.*?'''|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+')",
    re.M | re.S,
)


def read_toml(content: bytes, reading: Reading) -> Document:
    """Read the strings, and the plurals of tables such as `one` and `other`."""
    decoded = reading.decode(content)
    try:
        tomllib.loads(decoded.text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"the file is not TOML: {error}") from None
    groups: dict[str, dict[str, Member]] = {}
    table = path = ""
    numbers: dict[str, int] = {}
    for token in TOML_TOKEN.finditer(decoded.text):
        reading.check()
        if token["table"] is not None:
            table = path = shortened(token["table"].strip())
        elif token["key"]:
            path = shortened(f"{table}.{token['key']}" if table else token["key"])
        elif raw := token["string"]:
            numbers[path] = numbers.get(path, 0) + 1
            key = path if numbers[path] == 1 else f"{path}, {numbers[path]}"
            text = tomllib.loads(f"v={raw}".replace("\r\n", "\n"))["v"]
            write = functools.partial(_toml_string, raw, decoded.newline)
            if not VALUE.fullmatch(text) and (
                member := member_at(Span(*token.span("string")), key, text, write)
            ):
                group, _, name = key.rpartition(".")
                groups.setdefault(group, {})[name] = member
    units = []
    for members in groups.values():
        if "other" in members and members.keys() <= set(CATEGORY_NAMES):
            add = functools.partial(_toml_form, members["other"].segment.spans[0], decoded.newline)
            units.append(unit_in_place(members, reading.language, add))
        else:
            units += [unit_in_place({"": member}) for member in members.values()]
    return document_of(decoded, units)


def _toml_form(other: Span, newline: str, category: str, raw: str) -> Edit:
    return Edit(Span(other.end, other.end), f"{newline}{category} = {raw}")


def _toml_string(old: str, newline: str, text: str) -> str:
    """A string in the quotes of an older one, if they can hold it."""
    return _toml_quoted(old.replace("\r\n", "\n"), text).replace("\n", newline)


def _toml_quoted(old: str, text: str) -> str:
    if old.startswith("'''") and "'''" not in text and text[-1:] != "'":
        return f"'''\n{text}'''" if old.startswith("'''\n") or text[:1] == "\n" else f"'''{text}'''"
    if old[0] == "'" and old[:3] != "'''" and not re.search("['\n]", text):
        return f"'{text}'"
    raw = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
    if old.startswith('"""'):
        return f'"""\n{raw[1:-1]}"""'.replace("\\n", "\n") if "\\\\" not in raw else raw
    return raw


PHP_STRING = r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\""
PHP_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*+|\#[^\n]*+|/\*.*?\*/|\?>.*?(?:<\?php|<\?=|\Z))"
    r"|(?P<heredoc><<<[ \t]*['\"]?(?P<mark>\w+)['\"]?.*?(?:^[ \t]*(?P=mark)\b|\Z))"
    rf"|(?P<key>{PHP_STRING}|\b\d+)\s*+=>"
    rf"|\[\s*+(?P<index>{PHP_STRING})\s*+\]\s*+=(?!=)|(?P<string>{PHP_STRING})"
    r"|(?P<open>\[|\()|(?P<close>\]|\))|(?P<sign>[,;.=])",
    re.S | re.M,
)
PHP_DEEPEST = 200
PHP_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "$": "$", '"': '"', "\\": "\\"}


def read_php(content: bytes, reading: Reading) -> Document:
    """Read the strings of arrays (`'key' => 'text'`) and of `$lang['key'] = 'text'`; strings that
    are joined with others or of several lines (`<<<END`) are named."""
    decoded = reading.decode(content)
    units, unread = [], []
    path: list[str] = []
    key = before = ""
    start = max(decoded.text.find("<?php"), 0)
    tokens = [t for t in PHP_TOKEN.finditer(decoded.text, start) if not t["comment"]]
    for i, token in enumerate(tokens):
        reading.check()
        if name := token["key"] or token["index"]:
            key, before = name.strip("'\""), "=>"
            continue
        if token["open"]:
            if len(path) == PHP_DEEPEST:
                raise DataError(f"arrays are deeper than {PHP_DEEPEST}")
            path.append(shortened(key))
            key = ""
        elif token["close"]:
            key = path.pop() if path else ""
        elif raw := token["string"]:
            full = _php_key(path, key)
            after = tokens[i + 1][0] if i + 1 < len(tokens) else ""
            if before == "." or after == ".":
                unread.append(Record(full, raw, raw, "unread", "it is joined with other strings"))
            elif before in ("=>", "=") and after[:1] in ",;])" and full:
                write = functools.partial(_php_string, raw[0])
                text = _php_text(raw)
                if member := member_at(Span(*token.span("string")), full, text, write):
                    units.append(unit_in_place({"": member}))
        elif raw := token["heredoc"]:
            unread.append(Record(_php_key(path, key), raw, raw, "unread", "it is a heredoc"))
        before = token[0]
    return document_of(decoded, units, unread=unread)


def _php_key(path: Iterable[str], key: str) -> str:
    return shortened(".".join(filter(None, [*path, key])))


def _php_text(raw: str) -> str:
    if raw[0] == "'":
        return re.sub(r"\\([\\'])", r"\1", raw[1:-1])
    return re.sub(r"\\(.)", lambda e: PHP_ESCAPES.get(e[1], e[0]), raw[1:-1], flags=re.S)


def _php_string(quote: str, text: str) -> str:
    """A string in quotes; in double ones a `$` stays what it is."""
    if quote == "'":
        return "'{}'".format(re.sub(r"(\\|')", r"\\\1", text))
    return '"{}"'.format(re.sub(r'(\\|")', r"\\\1", text).replace("\n", "\\n").replace("\t", "\\t"))
