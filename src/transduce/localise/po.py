"""PO and POT: translations of gettext; msgids are sources, msgstrs targets."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import (
    DecodedText,
    Document,
    Edit,
    Reading,
    Record,
    Segment,
    Span,
    State,
    Written,
    form_key,
)
from transduce.localise.languages import (
    is_same_language,
    language_of_path,
    names_language,
    of_other_languages,
)
from transduce.localise.plurals import RULE, PluralForm, gettext_forms, rule_of, takes_singular
from transduce.localise.units import Unit, document_of, framed
from transduce.text.encodings import text_codec

PO_LINE = re.compile("[^\r\n]*(?:\r\n|\r|\n|(?=\\Z))")
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"')
STRING = re.compile(
    r"[ \t]*(?:(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[(?P<form>[0-9]{1,2})\])?)[ \t]*)?"
    rf"(?P<literal>{QUOTED.pattern})[ \t]*"
)
PO_ESCAPE = re.compile(r"\\(?:[0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
PO_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
LITERAL = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"})
CHARSET = re.compile(r'"Content-Type:(?:[^"\n]|"\s*")*?charset\s*=\s*([\w.:-]+)', re.IGNORECASE)
ASCII = ("charset", "ascii", "us-ascii", "ansi_x3.4-1968")
"""Declared encodings, in lower case, that UTF-8 takes the place of."""
LANGUAGE = re.compile(r"^Language:[ 	]*(\S*)", re.MULTILINE)
CODES = {"zh_Hans": "zh_CN", "zh_Hant": "zh_TW"}
"""Codes that gettext has for others."""
PO_FLAGS = re.compile("^#,([^\r\n]*)(\r?\n|\r)", re.MULTILINE)
LIMIT = re.compile("max-length:([0-9]{1,9})")
"""A flag of Weblate."""
LEAST_WIDTH = 40
"""Minimum characters of a line of a wrapped string."""


@dataclass(slots=True)
class PoString:
    """A string of an entry, over lines: the place of its literals in the text of the file."""

    file: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        """The place."""
        return Span(self.start, self.end)

    @property
    def literals(self) -> list[str]:
        """The literals, with their quotes."""
        return QUOTED.findall(self.file, self.start, self.end)

    @property
    def text(self) -> str:
        """The text without quotes and escapes."""
        raw = "".join(literal[1:-1] for literal in self.literals)
        return PO_ESCAPE.sub(_unescaped, raw) if "\\" in raw else raw


@dataclass(slots=True)
class Entry:
    """An entry, with the places of its first keyword and, of flags, of the first `#,`."""

    line: int
    start: int = -1
    strings: dict[str, PoString] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    place_of_flags: int | None = None

    @property
    def is_complete(self) -> bool:
        """True after its translation, in which another entry may begin."""
        return "msgid" in self.strings and any(k.startswith("msgstr") for k in self.strings)


def read_po(content: bytes, reading: Reading, is_template: bool = False) -> Document:
    """Read a catalogue in the encoding given, else as its header declares, else UTF-8.

    content: bytes of the file.  reading: languages and encoding.  is_template: the language of its
    header is none of translations.  A translation is written with the flag `fuzzy`, in lines as its
    msgid's.
    """
    decoded = reading.decode(content, _declared(content))
    unread: list[Record] = []
    entries = [e for e in _entries(decoded.text, reading, unread) if e.is_complete]
    top = next((entry for entry in entries if _is_header(entry)), None)
    header = top.strings["msgstr"].text if top else ""
    declared = LANGUAGE.search(header)
    code = declared[1] if declared else ""
    if not code:
        code = language_of_path(reading.name)
        if reading.source and is_same_language(code, reading.source):
            code = ""  # a catalogue without translations yet
    if not is_template and (others := of_other_languages(reading, target=code)):
        return document_of(decoded, [], unread=others)
    language: list[Edit] = []
    if top and reading.language:
        has_plural = any("msgid_plural" in entry.strings for entry in entries)
        rule = rule_of(reading.language) if has_plural and not RULE.search(header) else ""
        language = list(_header_edits(top, decoded, reading.language, rule))
        header += rule
    forms_of = functools.cache(functools.partial(gettext_forms, header, reading.language))
    layouts: list[_PoLayout] = []
    units = []
    for entry in entries:
        if _is_header(entry):
            continue
        numbers = [int(k[7:-1]) for k in entry.strings if k.startswith("msgstr[")]
        layout = _PoLayout(entry, decoded.newline, forms_of(len(numbers)))
        if segments := layout.segments():
            units.append(Unit(segments, layout.edits))
            layouts.append(layout)
    document = document_of(decoded, units, language, unread)
    plurals = [[s.key for s in unit.segments] for unit in units if len(unit.segments) > 1]

    def approved(edits: Sequence[Edit], keys: Collection[str]) -> Sequence[Edit]:
        marks: set[Edit] = set()
        lifted: set[Edit] = set()
        for unit, layout in zip(units, layouts, strict=True):
            if keys and all(segment.key in keys for segment in unit.segments):
                marks.add(layout.fuzzy())
                lifted.update(layout.lifted(decoded.text))
        return sorted((set(edits) - marks) | lifted)

    return dataclasses.replace(document, approved=approved, plurals=plurals)


def _declared(content: bytes) -> str | None:
    """The charset of the header, of those that are more than ASCII."""
    label = CHARSET.search(content.decode("latin-1"))
    if label is None or label[1].lower() in ASCII:
        return None
    try:
        return text_codec(label[1])
    except DataError:
        return None


def _header_edits(header: Entry, decoded: DecodedText, language: str, rule: str) -> Iterator[Edit]:
    """Edits of the header for the target language: its code, an encoding that has more than ASCII,
    and, unless it is "", the rule of plurals."""
    string = header.strings["msgstr"]
    raw = decoded.text[slice(*string.span)]
    match = LANGUAGE.search(string.text)
    is_named = (
        match is not None and names_language(match[1]) and is_same_language(match[1], language)
    )
    code = language.replace("-", "_")
    fields = {"Language": "" if is_named else CODES.get(code, code), "Plural-Forms": rule}
    added = ""
    for name, value in fields.items():
        if value and (field := re.search(rf'(?:"|\\n){name}:([^"\\]*)', raw)):
            yield Edit(_within(string.span, field.span(1)), f" {value}")
        elif value:
            added += f"{name}: {value}\\n"
    if added:
        begun = "" if string.text.endswith("\n") else "\\n"
        text = f'{decoded.newline}"{begun}{added}"'
        yield Edit(Span(string.span.end, string.span.end), text)
    label = CHARSET.search(raw)
    if label and label[1].lower() in ASCII:
        yield Edit(_within(string.span, label.span(1)), "UTF-8")
    for line in PO_FLAGS.finditer(decoded.text, 0, header.start) if not is_named else ():
        if line[1].strip() == "fuzzy":
            yield Edit(Span(*line.span()), "")


def _within(outer: Span, inner: tuple[int, int]) -> Span:
    """A place in a part of a text as one of the text."""
    return Span(*(outer.start + edge for edge in inner))


def _is_header(entry: Entry) -> bool:
    strings = entry.strings
    return "msgctxt" not in strings and "msgstr" in strings and not strings["msgid"].text


def _unescaped(match: re.Match[str]) -> str:
    escape = match[0][1:]
    if escape[0] in "01234567":
        return chr(int(escape, 8) & 0xFF)
    if escape[0] == "x" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return PO_ESCAPED.get(escape, escape)


def _entries(text: str, reading: Reading, unread: list[Record]) -> Iterator[Entry]:
    """All entries but obsolete ones; lines that are none go to `unread`."""
    entry = Entry(1)
    last: PoString | None = None
    for number, line in enumerate(PO_LINE.finditer(text), 1):
        reading.check()
        row = line[0].rstrip("\r\n")
        string = STRING.fullmatch(row)
        keyword = string["keyword"] if string else None
        begins = row.startswith("#") or not row.strip() or keyword in ("msgctxt", "msgid")
        if begins and (entry.is_complete or (keyword or "") in entry.strings):
            yield entry
            entry, last = Entry(number), None
        if string is None:
            last = None
            if row.startswith("#,"):
                entry.flags |= {name.strip() for name in row[2:].split(",")}
                if entry.place_of_flags is None:
                    entry.place_of_flags = line.start()
            elif row.startswith("#:") and ".rst:" in row:
                entry.flags |= {"rst-text"}
            elif row.startswith("#~"):
                entry = Entry(number)  # obsolete, with its flags
            elif row.strip() and not row.startswith("#"):
                unread.append(Record(f"line {number}", row, row, "unread", "is not a line of PO"))
            continue
        start, end = (line.start() + edge for edge in string.span("literal"))
        if keyword is not None:
            if entry.start < 0:
                entry.start, entry.line = line.start(), number
            last = entry.strings[sys.intern(keyword)] = PoString(text, start, end)
        elif last is not None:
            last.end = end
        else:
            unread.append(Record(f"line {number}", row, row, "unread", "belongs to no keyword"))
    yield entry


class _PoLayout(NamedTuple):
    """An entry with what decides how it is written."""

    entry: Entry
    newline: str
    forms: Sequence[PluralForm]

    def forms_of(self, is_plural: bool) -> list[str]:
        """Keywords of the forms that are translated from the msgid, or from its plural."""
        strings = self.entry.strings
        if "msgid_plural" not in strings:
            return [] if is_plural else ["msgstr"]
        singular, plural = strings["msgid"].text, strings["msgid_plural"].text
        return [
            f"msgstr[{i}]"
            for i, form in enumerate(self.forms)
            if takes_singular(form, singular, plural) != is_plural
        ]

    def written(self, is_plural: bool) -> tuple[Written, ...]:
        """The translations of those forms as they are."""
        strings = self.entry.strings
        return tuple(
            Written(text, keyword[7:-1].isdigit() and self._is_rare(keyword))
            for keyword in self.forms_of(is_plural)
            if keyword in strings and (text := strings[keyword].text)
        )

    def _is_rare(self, keyword: str) -> bool:
        return self.forms[int(keyword[7:-1])].is_rare

    def targets(self, is_plural: bool) -> list[str]:
        """The translations there; "" for one that is missing."""
        present = (self.entry.strings.get(keyword) for keyword in self.forms_of(is_plural))
        return [string.text if string else "" for string in present]

    def segments(self) -> list[Segment]:
        """The msgid, and its plural, as far as forms are made of them."""
        segments = []
        strings = self.entry.strings
        flags_at = self.entry.place_of_flags
        limits = (LIMIT.fullmatch(flag) for flag in self.entry.flags)
        limit = next((int(match[1]) for match in limits if match), 0)
        span = Span(self.entry.start if flags_at is None else flags_at, self._end())
        for name, suffix in (("msgid", ""), ("msgid_plural", ", plural")):
            targets = self.targets(bool(suffix))
            if not targets or name not in strings or not (text := strings[name].text).strip():
                continue
            state: State = "fuzzy" if "fuzzy" in self.entry.flags else "translated"
            before, source, after = framed(text)
            segments.append(
                Segment(
                    f"line {self.entry.line}{suffix}",
                    source,
                    (span,),
                    flags=self.entry.flags,
                    target=targets[0].strip(),
                    state=state if all(targets) else "missing",
                    limit=limit,
                    around=(before, after),
                    written=self.written(bool(suffix)) if targets[0] else (),
                ).with_forms(
                    (keyword, self.forms[int(keyword[7:-1])].sample)
                    for keyword in self.forms_of(bool(suffix))
                    if keyword != "msgstr"
                )
            )
        return segments

    def _end(self) -> int:
        return max(string.span.end for string in self.entry.strings.values())

    def edits(self, targets: Mapping[str, str]) -> Iterator[Edit]:
        """Edits of the forms and of the flag."""
        strings = self.entry.strings
        added = []
        for key in [key for key in targets if "\0" not in key]:
            is_plural = key.endswith(", plural")
            source = strings["msgid_plural" if is_plural else "msgid"]
            before, _, after = framed(source.text)
            there = self.targets(is_plural)
            for keyword, present in zip(self.forms_of(is_plural), there, strict=True):
                if present and not all(there):
                    continue  # confirmed; only the others are missing
                target = targets.get(form_key(key, keyword), targets[key])
                literal = self._literal(before + target + after, source)
                if keyword in strings:
                    yield Edit(strings[keyword].span, literal)
                else:
                    added.append(f"{self.newline}{keyword} {literal}")
        if added:
            yield Edit(Span(self._end(), self._end()), "".join(added))
        if "msgid_plural" in strings:
            yield from self._surplus()
        if "fuzzy" not in self.entry.flags:
            yield self.fuzzy()

    def _surplus(self) -> Iterator[Edit]:
        """Edits that take away empty forms that the language does not have."""
        names = [name for name in self.entry.strings if name.startswith("msgstr[")]
        for before, name in itertools.pairwise(names):
            strings = self.entry.strings
            if int(name[7:-1]) >= len(self.forms) and not strings[name].text:
                yield Edit(Span(strings[before].span.end, strings[name].span.end), "")

    def lifted(self, text: str) -> Iterator[Edit]:
        """Edits of the lines of flags, without `fuzzy`."""
        flags_at = self.entry.place_of_flags
        for line in PO_FLAGS.finditer(
            text, flags_at or 0, self.entry.start if flags_at is not None else 0
        ):
            flags = [flag.strip() for flag in line[1].split(",")]
            others = ", ".join(flag for flag in flags if flag != "fuzzy")
            if "fuzzy" in flags:
                yield Edit(Span(*line.span()), f"#, {others}{line[2]}" if others else "")

    def fuzzy(self) -> Edit:
        """Edit that adds a line of flags: gettext takes several, and no other line changes."""
        flags_at = self.entry.place_of_flags
        start = self.entry.start if flags_at is None else flags_at
        return Edit(Span(start, start), f"#, fuzzy{self.newline}")

    def _literal(self, text: str, source: PoString) -> str:
        """A text in quotes, on one line if the source is, else as wide as it is."""
        if len(source.literals) == 1:
            return f'"{text.translate(LITERAL)}"'
        width = max(LEAST_WIDTH, *map(len, source.literals))
        rows = [""] if source.literals[0] == '""' else []
        for line in re.findall("[^\n]*\n|[^\n]+", text):
            row = ""
            for word in re.findall(r"[^ ]* *", line.translate(LITERAL)):
                if row and len(row) + len(word.rstrip(" ")) + 2 > width:
                    rows.append(row)
                    row = ""
                row += word
            rows.append(row)
        return self.newline.join(f'"{row}"' for row in rows)
