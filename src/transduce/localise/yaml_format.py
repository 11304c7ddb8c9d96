"""YAML: strings of mappings and sequences; locales of Rails with their plurals."""

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from transduce.errors import DataError, extra_module
from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span
from transduce.localise.languages import (
    LANGUAGES,
    base_of,
    is_same_language,
    of_other_languages,
)
from transduce.localise.plurals import CATEGORY_NAMES
from transduce.localise.units import (
    IDENTIFIER,
    Member,
    Unit,
    document_of,
    framed,
    shortened,
    unit_in_place,
)

YAML_STRING = "tag:yaml.org,2002:str"
PROPERTIES = re.compile(r"(?:[&!]\S*\s+)+")
YAML_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
SYMBOL = re.compile(r"(?a::\w+)|(?:%[-^#0]?[A-Za-z][年月日時时分秒년월일시분초]?|[^\w%])+")
"""A symbol of Ruby, or a format of dates."""
AMBIGUOUS = re.compile(
    r"[yn]|yes|no|on|off|true|false|null|~|=|<<|[-+]?\.(?:inf|nan)"
    r"|[-+.]?[0-9][0-9_,.:]*(?:e[-+]?[0-9]+)?|0[xob][0-9a-f_]+|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*",
    re.IGNORECASE,
)
"""Plain text that some version of YAML, or a reader of it, does not read as a string."""
UNPRINTABLE = re.compile("[\x7f-\x84\x86-\x9f\ufeff]")
YAML_FLAGS = frozenset(("ruby-format",))
YAML_DEEPEST = 200


def read_yaml(content: bytes, reading: Reading) -> Document:
    """Read the strings of a file.

    Of a single key that is the code of a language, the key becomes that of the target language; a
    file of another language than the source and the target is left.
    """
    decoded = reading.decode(content)
    yaml = extra_module("yaml", "YAML", "serve")
    try:
        roots = list(yaml.compose_all(decoded.text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"the file is not YAML: {reason}") from None
    code = next((key.value for root in roots if (key := _language_key(root))), "")
    is_output = is_same_language(code, reading.language or "")
    if not is_output and (others := of_other_languages(reading, source=code)):
        return document_of(decoded, [], unread=others)
    reader = _YamlReader(decoded, reading, yaml)
    units = [unit for i, root in enumerate(roots, 1) for unit in reader.units(root, "", i)]
    return document_of(decoded, units, language=reader.language)


def _language_key(root: Any) -> Any | None:
    """The node of a single key at the root that is the code of a language, as Rails has it."""
    if root is None or root.id != "mapping" or len(root.value) != 1:
        return None
    key = root.value[0][0]
    is_code = isinstance(key.value, str) and YAML_LANGUAGE.fullmatch(key.value)
    return key if is_code and base_of(key.value) in LANGUAGES else None


class _YamlReader:
    """A file that is read, with the places of its language and the parts that are done."""

    def __init__(self, decoded: DecodedText, reading: Reading, yaml: Any) -> None:
        self.decoded = decoded
        self.reading = reading
        self.yaml = yaml
        self.language: list[Edit] = []
        self.flags: frozenset[str] = frozenset()
        self.done: set[int] = set()

    def units(self, node: Any, path: str, number: int, depth: int = 0) -> Iterator[Unit]:
        """Units of a node and all below it.

        path: names above the node, joined by dots.  number: of the node in its sequence.  depth: of
        the node.
        """
        self.reading.check()
        if node is None or id(node) in self.done:
            return  # an alias
        self.done.add(id(node))
        if depth > YAML_DEEPEST:
            raise DataError(f"the parts are deeper than {YAML_DEEPEST}")
        if isinstance(node, self.yaml.ScalarNode):
            if member := self.member(node, path or f"text {number}"):
                yield unit_in_place({"": member})
        elif isinstance(node, self.yaml.SequenceNode):
            for i, part in enumerate(node.value, 1):
                yield from self.units(part, shortened(f"{path}.{i}"), i, depth + 1)
        else:
            yield from self.mapping(node, path, depth)

    def mapping(self, node: Any, path: str, depth: int) -> Iterator[Unit]:
        """Units of a mapping; one of categories with strings is a plural.

        node: the mapping.  path: names above it, joined by dots.  depth: of the node.
        """
        names = {str(key.value): part for key, part in node.value if isinstance(key.value, str)}
        if not path and (key := _language_key(node)):
            if language := self.reading.language:
                name = f'"{language}"' if AMBIGUOUS.fullmatch(language) else language
                span = Span(key.start_mark.index, key.end_mark.index)
                self.language.append(Edit(span, name))
            self.flags = YAML_FLAGS
        is_plural = "other" in names and names.keys() <= set(CATEGORY_NAMES)
        if is_plural and all(isinstance(p, self.yaml.ScalarNode) for p in names.values()):
            members = {
                name: member
                for name, part in names.items()
                if (member := self.member(part, shortened(f"{path}.{name}" if path else name)))
            }
            if "other" in members:
                self.done |= set(map(id, names.values()))
                add = functools.partial(self.added, node, members["other"])
                yield unit_in_place(members, self.reading.language, add)
        for i, (key, part) in enumerate(node.value, 1):
            name = key.value if isinstance(key.value, str) else str(i)
            key_path = shortened(f"{path}.{name}" if path else name)
            yield from self.units(part, key_path, i, depth + 1)

    def member(self, node: Any, path: str) -> Member | None:
        """A scalar that is a string with words."""
        before, core, after = framed(node.value)
        if node.tag != YAML_STRING or not any(map(str.isalnum, core)):
            return None
        if SYMBOL.fullmatch(core) or IDENTIFIER.fullmatch(core):
            return None
        text, start, end = self.decoded.text, node.start_mark.index, node.end_mark.index
        if properties := PROPERTIES.match(text, start, end):
            start = properties.end()
        span = Span(start, start + len(text[start:end].rstrip()))
        raw = text[slice(*span)]
        write = functools.partial(self.raw, raw, text[span.end : end], node.style, before, after)
        return Member(
            Segment(" ".join(path.split()), core, (span,), flags=self.flags),
            lambda target: write(target, path),
            functools.partial(Edit, span),
        )

    def raw(
        self, raw: str, tail: str, style: str | None, before: str, after: str, target: str, key: str
    ) -> str:
        """A target in the style of its source, else in double quotes.

        raw: text of the source in the file.  tail: text behind it.  before, after: white space
        around the target.  key: of the segment, for messages.
        """
        text = before + target + after
        quoted = json.dumps(text, ensure_ascii=False)
        quoted = UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
        ways = []
        if style in ("|", ">"):
            header, _, body = raw.partition("\n")
            indent = body[: len(body) - len(body.lstrip(" "))]
            newline = "\r\n" if header.endswith("\r") else "\n"
            rows = (before + target).split("\n")
            rows = [indent + row if row else "" for row in rows]
            block = (newline if style == "|" else newline * 2).join(rows)
            ways.append(f"{header}\n{block}")
        elif style == "'" and "\n" not in text:
            ways.append("'{}'".format(text.replace("'", "''")))
        elif style is None and "\n" not in text and not AMBIGUOUS.fullmatch(text):
            ways.append(text)
        for way in (*ways, quoted):
            if self.is_read(way, tail, text):
                return way
        raise DataError(f"{key}: YAML cannot hold the translation")

    def is_read(self, raw: str, tail: str, text: str) -> bool:
        """True if a raw string is read as a text, in a block and, unless it is one, in a list."""
        documents = [f"k: {raw}{tail}"] + ([] if raw[0] in "|>" else [f"k: [{raw}, b]"])
        for document in documents:
            try:
                content = self.yaml.safe_load(document)["k"]
            except (self.yaml.YAMLError, ValueError, TypeError, KeyError):
                return False
            if (content[0] if isinstance(content, list) else content) != text:
                return False
        return True

    def added(self, node: Any, other: Member, name: str, raw: str) -> Edit:
        """Edit that adds a category behind `other`.

        node: the mapping.  name: of the category.  raw: its text in the file.
        """
        text = self.decoded.text
        end = other.segment.spans[0].end
        if node.flow_style:
            return Edit(Span(end, end), f", {name}: {raw}")
        key = next(key for key, _ in node.value if key.value == "other").start_mark
        newline = self.decoded.newline
        indent = text[key.index - key.column : key.index]
        return Edit(Span(end, end), f"{newline}{indent}{name}: {raw}")
