"""Files of strings by key: Fluent, Java properties, Apple strings."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Edit, Reading, Record, Span
from transduce.localise.inline import parts_of
from transduce.localise.message_format import message_at, to_message
from transduce.localise.plurals import CATEGORY_NAMES
from transduce.localise.units import Member, Unit, document_of, member_at, shortened, unit_in_place
from transduce.localise.xml_formats import read_xml_document

FLUENT_ENTRY = re.compile(
    r"^(?:(?P<key>-?[A-Za-z][\w-]*)|[ ]+\.(?P<name>[A-Za-z][\w-]*))[ ]*=[ ]*", re.M
)
FURTHER = re.compile(r"\r?\n(?:[ ]*+\r?\n)*+[ ]++(?=[^\s.\[*}])")
"""Line break and indentation before a further line of a text."""
CHOICE = re.compile(r"\{[^{}]*->(?P<variants>.*)\}", re.DOTALL)
VARIANT = re.compile(r"^[ ]*(?P<head>\*?\[[ ]*(?P<name>[\w.-]+)[ ]*\])", re.M)
STRING_FILE_STRING = r'"(?:[^"\\\n]|\\.)*+"'
STRING_FILE_TOKEN = re.compile(rf"\{{[ ]*{STRING_FILE_STRING}[ ]*\}}|[{{}}\n]")
PLACEABLE = re.compile(rf'\{{(?:[^{{}}"-]|-(?!>)|{STRING_FILE_STRING})*+\}}')
STRING_FILE_LITERAL = re.compile(r'\{[ ]*"([^\\\n])"[ ]*\}')
"""A placeable that is a character of the text."""
STRING_FILE_BRACES = str.maketrans({"{": '{"{"}', "}": '{"}"}'})
FLUENT_FLAGS = frozenset(("fluent",))


def read_fluent(content: bytes, reading: Reading) -> Document:
    """Read messages; terms (`-brand`) are left, and a choice that is only a part of a text."""
    decoded = reading.decode(content)
    units: list[Unit] = []
    unread: list[Record] = []
    key, start = "", 0
    while entry := FLUENT_ENTRY.search(decoded.text, start):
        reading.check()
        key = shortened(entry["key"] or key)
        name = shortened(f"{key}.{entry['name']}" if entry["name"] else key)
        span = _pattern(decoded.text, entry.end())
        start = max(span.end, entry.end())
        raw = decoded.text[slice(*span)]
        spans = _variants(raw, span.start) if CHOICE.fullmatch(raw) else {"": span}
        texts = [decoded.text[slice(*each)] for each in spans.values()]
        if key.startswith("-") or not raw:
            continue
        if any(re.search("[{}]", PLACEABLE.sub("", text)) for text in texts):
            unread.append(
                Record(name, raw, raw, "unread", "it has nested braces or a choice in it")
            )
        else:
            units += _string_file_units(decoded, name, spans, reading.language)
    return document_of(decoded, units, unread=unread)


def _pattern(text: str, start: int) -> Span:
    """The text from a place on: lines with blanks before them, and all that is in braces."""
    first = FURTHER.match(text, start)
    start = end = first.end() if first else start
    depth = 0
    while token := STRING_FILE_TOKEN.search(text, end):
        depth = max(depth + {"{": 1, "}": -1}.get(token[0], 0), 0)
        further = FURTHER.match(text, token.start())
        if token[0] == "\n" and not depth and further is None:
            break
        end = further.end() if further else token.end()
    end = token.start() if token else len(text)
    return Span(start, start + len(text[start:end].rstrip()))


def _variants(choice: str, start: int) -> dict[str, Span]:
    """Places of the texts of a choice, which itself is at `start`, by their names."""
    heads = list(VARIANT.finditer(choice))
    ends = [*(head.start() for head in heads[1:]), len(choice) - 1]
    spans = {}
    for head, end in zip(heads, ends, strict=False):
        text = choice[head.end() : end].strip()
        begin = start + choice.index(text, head.end())
        spans[head["name"]] = Span(begin, begin + len(text))
    return spans


def _string_file_units(
    decoded: DecodedText, name: str, spans: Mapping[str, Span], language: str | None
) -> Iterator[Unit]:
    """The unit of a text, or those of the texts of a choice."""
    members = {
        variant: member
        for variant, span in spans.items()
        if (member := _string_file_member(decoded, f"{name}[{variant}]" if variant else name, span))
    }

    def add(category: str, raw: str) -> Edit:
        text = decoded.text
        start = text.rindex("[", 0, spans["other"].start)
        start -= text[start - 1] == "*"
        blank = decoded.newline + text[text.rindex("\n", 0, start) + 1 : start]
        return Edit(Span(start, start), f"[{category}] {raw}{blank}")

    if "other" in members and members.keys() <= set(CATEGORY_NAMES):
        yield unit_in_place(members, language, add)
    else:
        yield from (unit_in_place({"": member}) for member in members.values())


def _string_file_member(decoded: DecodedText, key: str, span: Span) -> Member | None:
    """A text; None for one without words."""
    line = decoded.text.rfind("\n", 0, span.start) + 1
    before = decoded.text[line : span.start]
    indent = " " * (len(before) - len(before.lstrip(" ")) + 4 * bool(before.strip(" ")))
    rows = decoded.text[slice(*span)].split("\n")
    raw = "\n".join(row.strip(" \r") for row in rows)
    placeables = PLACEABLE.findall(raw)
    text = STRING_FILE_LITERAL.sub(r"\1", raw)
    if not any(map(str.isalnum, PLACEABLE.sub("", text))):
        return None

    def written(whole: str) -> str:
        parts = parts_of(whole, placeables)
        text = "".join(
            part if is_tag else part.translate(STRING_FILE_BRACES) for is_tag, part in parts
        )
        text = re.sub(r"^[ \t.\[*]|[ ]$", r'{"\g<0>"}', text, flags=re.M)
        return text.replace("\n", decoded.newline + indent)

    return member_at(span, key, text, written, FLUENT_FLAGS)


PROPERTIES_ENTRY = re.compile(
    r"[ \t\f]*+(?P<key>(?:[^\\:=\s#!]|\\.)(?:[^\\:=\s]|\\(?:\r\n|.))*+)[ \t\f]*+(?:[:=][ \t\f]*+)?"
    r"(?P<text>(?:[^\\\r\n]|\\(?:\r\n|[\s\S]|\Z))*+)"
    r"|[^\r\n]*+",
)
PROPERTIES_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(?:\r\n|\r|\n)[ \t\f]*+|(.)|\Z)", re.DOTALL)
PROPERTIES_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
STRING_FILE_ARGUMENT = re.compile(r"\{[0-9]+[,}]")
"""A sign of MessageFormat."""


def read_properties(content: bytes, reading: Reading) -> Document:
    """Read the values of a file, in the encoding given, else as UTF-8, else as ISO-8859-1."""
    decoded = reading.decode(content, fallback="latin-1")
    members = {
        m.segment.key: m for m in _properties_members(decoded, reading)
    }  # the last of equal keys holds
    return document_of(decoded, [unit_in_place({"": member}) for member in members.values()])


def _properties_members(decoded: DecodedText, reading: Reading) -> Iterator[Member]:
    for entry in PROPERTIES_ENTRY.finditer(decoded.text):
        reading.check()
        if entry["key"] is None:
            continue
        text = PROPERTIES_ESCAPE.sub(_properties_unescaped, entry["text"])
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        span, raw = Span(*entry.span("text")), functools.partial(_raw, decoded)
        if STRING_FILE_ARGUMENT.search(text):
            member = message_at(span, entry["key"], text, raw, everywhere=True)
        else:
            member = member_at(span, entry["key"], text, functools.partial(_plain, raw))
        if member:
            yield member


def _properties_unescaped(match: re.Match[str]) -> str:
    code, character = match.groups()
    if code:
        return chr(int(code, 16))
    return PROPERTIES_ESCAPED.get(character, character) if character else ""


def _plain(raw: Callable[[str], str], text: str) -> str:
    """A text that was no message; with arguments it is one."""
    return raw(to_message(text, ()) if STRING_FILE_ARGUMENT.search(text) else text)


def _raw(decoded: DecodedText, text: str) -> str:
    """A text escaped; of a file in ASCII, other characters by their numbers."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    text = text.replace("\r", "\\r").replace("\f", "\\f")
    text = re.sub("^[ =:]", r"\\\g<0>", text)
    is_ascii = decoded.text.isascii()
    return "".join(
        c if _fits(c, is_ascii, decoded.encoding) else _string_file_numbers(c) for c in text
    )


def _fits(character: str, is_ascii: bool, encoding: str) -> bool:
    return character < "\x80" or (not is_ascii and (encoding != "latin-1" or character < "\u0100"))


def _string_file_numbers(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))


QUOTED = r'"(?:[^"\\]|\\[\s\S])*+"'
STRING_FILE_GAP = r"(?:\s|/\*(?:[^*]|\*(?!/))*+\*/|//[^\r\n]*+)*+"
APPLE_STRINGS_ENTRY = re.compile(
    rf"(?P<key>{QUOTED}|[\w.$-]+){STRING_FILE_GAP}(?:={STRING_FILE_GAP}(?P<text>{QUOTED}|[\w.$-]+){STRING_FILE_GAP})?;{STRING_FILE_GAP}"
)
APPLE_STRINGS_ESCAPE = re.compile(r"\\(?:[Uu]([0-9a-fA-F]{4})|([\s\S]))")
APPLE_STRINGS_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
STRING_FILE_ESCAPES = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
)
APPLE_STRINGS_FLAGS = frozenset(("objc-format",))


def read_strings(content: bytes, reading: Reading) -> Document:
    """Read the values of a file, a property list or text."""
    if content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<?xml"):
        return read_xml_document(content, reading)
    decoded = reading.decode(content)
    members = {member.segment.key: member for member in _apple_strings_members(decoded, reading)}
    return document_of(decoded, [unit_in_place({"": member}) for member in members.values()])


def _apple_strings_members(decoded: DecodedText, reading: Reading) -> Iterator[Member]:
    text = decoded.text
    gap = re.compile(STRING_FILE_GAP).match(text)
    start = gap.end() if gap else 0
    while start < len(text):
        reading.check()
        entry = APPLE_STRINGS_ENTRY.match(text, start)
        if entry is None:
            line = text.count("\n", 0, start) + 1
            raise DataError(f'line {line} is not "key" = "value";')
        start = entry.end()
        raw = entry["text"]
        if raw is None or not raw.startswith('"'):
            continue
        whole = APPLE_STRINGS_ESCAPE.sub(_apple_strings_unescaped, raw[1:-1])
        whole = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        key = " ".join(entry["key"].strip('"').split()) or "a string"
        if member := member_at(
            Span(*entry.span("text")), key, whole, _string_file_quoted, APPLE_STRINGS_FLAGS
        ):
            yield member


def _apple_strings_unescaped(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else APPLE_STRINGS_ESCAPED.get(character, character)


def _string_file_quoted(text: str) -> str:
    return f'"{text.translate(STRING_FILE_ESCAPES)}"'
