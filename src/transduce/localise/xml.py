"""XML: places of elements and attributes in a well-formed document, texts with their tags,
archives of documents."""

from __future__ import annotations

import bisect
import io
import itertools
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.parsers import expat

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Edit, Reading, Span, spliced
from transduce.localise.inline import check_tags, escaped, from_markup, parts_of, to_file, to_markup
from transduce.localise.plurals import HEAD

DECLARED = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
DOCUMENT_TYPE = (
    r"""<!DOCTYPE(?:[^\[>"']++|"[^"]*+"|'[^']*+'|"""
    r"""\[(?:[^\]"'<]++|"[^"]*+"|'[^']*+'|<!--.*?-->|<)*+\])*+>"""
)
XML_TOKEN = re.compile(
    r"<!--.*?-->|(?P<raw><!\[CDATA\[.*?\]\]>)|<\?.*?\?>"
    rf"|{DOCUMENT_TYPE}"
    r"""|</[^>]+>|<(?P<name>[^\s/>!?]+)(?:[^>"'/]++|"[^"]*+"|'[^']*+'|/(?!>))*+(?P<empty>/)?>""",
    re.DOTALL,
)
ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z_:][\w:.-]*;")
"""A reference to an entity of the document."""
ATTRIBUTE = re.compile(r"""\s(?P<name>[^\s=<>"'/]+)\s*=\s*(?:"(?P<a>[^"]*)"|'(?P<b>[^']*)')""")
XML_DEEPEST = 200
PROTECTED = ("protected", "x-protected", "x-its-translate-no")
"""Types of marked text of XLIFF 1.2 that is not translated."""
MOST_OF_A_TYPE = 8000


class Attribute(NamedTuple):
    """A value without references, and its place."""

    text: str
    span: Span


class Element:
    """An element: places of its start tag, of its content and of all of it, and its elements."""

    __slots__ = (
        "begin",
        "children",
        "content_end",
        "content_start",
        "end",
        "name",
        "parent",
        "text",
    )

    def __init__(self, text: str, name: str, start: Span, parent: Element | None) -> None:
        self.text = text
        self.name = sys.intern(name)
        self.begin, self.content_start = start
        self.content_end = self.end = self.content_start
        self.parent = parent
        self.children: Sequence[Element] = ()

    @property
    def start(self) -> Span:
        """The start tag."""
        return Span(self.begin, self.content_start)

    @property
    def content(self) -> Span:
        """Span between its tags."""
        return Span(self.content_start, self.content_end)

    @property
    def span(self) -> Span:
        """All of it."""
        return Span(self.begin, self.end)

    @property
    def local_name(self) -> str:
        """The name without its prefix."""
        return self.name.rpartition(":")[2]

    @property
    def is_empty_tag(self) -> bool:
        """True for `<a/>`."""
        return self.end == self.content_start

    @property
    def raw(self) -> str:
        """The content as it is in the file."""
        return self.text[slice(*self.content)]

    def attribute(self, name: str) -> Attribute | None:
        """An attribute of the start tag."""
        begin = self.begin + 1 + len(self.name)
        if self.text.find(name, begin, self.content_start) < 0:
            return None
        for match in ATTRIBUTE.finditer(self.text, begin, self.content_start):
            if match["name"] == name:
                group = "a" if match["a"] is not None else "b"
                return Attribute(to_markup(match[group], {}), Span(*match.span(group)))
        return None

    def get(self, name: str, default: str = "") -> str:
        """Text of an attribute."""
        attribute = self.attribute(name)
        return default if attribute is None else attribute.text

    def child(self, name: str) -> Element | None:
        """The first child of a name."""
        return next((child for child in self.children if child.local_name == name), None)

    def descendants(self) -> Iterator[Element]:
        """All elements inside, in order."""
        for child in self.children:
            yield child
            yield from child.descendants()

    def named(self, name: str) -> Iterator[Element]:
        """All elements inside of a name, in order."""
        return (element for element in self.descendants() if element.local_name == name)

    def with_attribute(self, name: str, text: str) -> Edit:
        """Edit that sets an attribute."""
        if attribute := self.attribute(name):
            return Edit(attribute.span, text)
        end = self.start.end - (2 if self.is_empty_tag else 1)
        end = self.start.start + len(self.text[self.start.start : end].rstrip())
        return Edit(Span(end, end), f' {name}="{text}"')

    def with_content(self, raw: str) -> Edit:
        """Edit that replaces the content."""
        if not self.is_empty_tag:
            return Edit(self.content, raw)
        tag = self.text[slice(*self.start)][:-2].rstrip()
        return Edit(Span(self.start.start + len(tag), self.start.end), f">{raw}</{self.name}>")


def read_xml(content: bytes, reading: Reading) -> tuple[DecodedText, Element]:
    """The root of a document, in the encoding given, else as declared, else UTF-8.

    Raises DataError unless it is well-formed, and for elements deeper than 200.
    """
    declared = DECLARED.search(content[:200])
    decoded = reading.decode(content, declared[1].decode() if declared else None)
    check_xml(decoded.text, "the file")
    (root,) = tree(decoded.text, reading, 1)
    return decoded, root


def check_xml(text: str, name: str) -> None:
    """Raise DataError unless a text is well-formed, and for a document type of more than
    `MOST_OF_A_TYPE` bytes, whose attributes would be given to every element."""
    parser = expat.ParserCreate("utf-8")
    parser.DefaultHandler = lambda _: None  # entities of the document are not expanded
    started = 0

    def start_type(*_: object) -> None:
        nonlocal started
        started = parser.CurrentByteIndex

    def end_type() -> None:
        if parser.CurrentByteIndex - started > MOST_OF_A_TYPE:
            raise DataError(f"{name}: its DOCTYPE has more than {MOST_OF_A_TYPE} bytes; remove it")

    parser.StartDoctypeDeclHandler, parser.EndDoctypeDeclHandler = start_type, end_type
    try:
        parser.Parse(text.encode(), True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise DataError(f"{name} is not well-formed XML: {error}") from None


def tree(text: str, reading: Reading, number: int) -> Sequence[Element]:
    """The root elements of some documents in a text.

    reading: its `check` may end the work.  number: of documents.

    Raises DataError for elements deeper than 200.
    """
    root = current = Element(text, "", Span(0, 0), None)
    children: list[list[Element]] = [[]]
    for token in XML_TOKEN.finditer(text):
        reading.check()
        if token["name"]:
            element = Element(text, token["name"], Span(*token.span()), current)
            children[-1].append(element)
            if not token["empty"]:
                current = element
                children.append([])
                if len(children) > XML_DEEPEST + 1:
                    raise DataError(f"elements are deeper than {XML_DEEPEST}")
        elif token[0].startswith("</") and current.parent is not None:
            current.content_end, current.end = token.span()
            current.children = tuple(children.pop())
            current = current.parent
    if current is not root or len(children[0]) != number:
        raise DataError("the file is not XML of one root element")
    return children[0]


class Text(NamedTuple):
    """The content of an element as a text with inline tags, in markup form.

    references:  entities by their characters.  is_raw: it is a section of CDATA alone.
    """

    before: str
    source: str
    after: str
    tags: tuple[str, ...]
    references: Mapping[str, str]
    is_raw: bool

    @property
    def has_words(self) -> bool:
        """True for letters or digits outside of tags."""
        parts = parts_of(self.source, self.tags)
        return any(c.isalnum() for is_tag, part in parts if not is_tag for c in part)

    def _check(self, key: str, target: str) -> None:
        """Check the tags of a target; texts of a choice, which may get more, repeat them."""
        source = "".join(part for is_tag, part in parts_of(self.source, self.tags) if not is_tag)
        translated = {part for is_tag, part in parts_of(target, self.tags) if is_tag}
        if not (HEAD.search(source) and translated == set(self.tags)):
            check_tags(key, self.tags, target)

    def written(self, key: str, target: str, decoded: DecodedText) -> str:
        """A target as content.  Raises DataError unless it has the tags of the source.

        key: of the segment, for messages.  decoded: text of the file, for its encoding and line
        ends.
        """
        self._check(key, target)
        inner = "".join(
            part if is_tag else decoded.encodable(part)
            for is_tag, part in to_file(target, self.tags, self.references)
        )
        if self.is_raw:
            escapes = {c: ref for c, ref in self.references.items() if ref[0] != "&"}
            raw = "".join(escapes.get(c, c) for c in from_markup(target))
            raw = raw.replace("]]>", "]]]]><![CDATA[>")
            inner = f"<![CDATA[{raw}]]>"
        text = self.before + inner + self.after
        return text.replace("\n", decoded.newline)


def xml_text(element: Element, opaque: Sequence[str], references: dict[str, str]) -> Text:
    """The content of an element; elements whose local names are `opaque` are tags as a whole.

    references: get the entities of the content.
    """
    parts: list[str] = []
    tags: list[str] = []
    raw = [False]
    text = element.text

    def characters(start: int, end: int) -> None:
        parts.append(to_markup(text[start:end].replace("\r\n", "\n"), references))

    def plain(start: int, end: int) -> None:
        while start < end:
            token = XML_TOKEN.search(text, start, end)
            stop = token.start() if token else end
            for entity in ENTITY.finditer(text, start, stop):
                characters(start, entity.start())
                tag(*entity.span())
                start = entity.end()
            characters(start, stop)
            if token and token["raw"]:
                parts.append(escaped(token[0][9:-3].replace("\r\n", "\n")))
                raw[0] = True
            elif token:
                tag(*token.span())
            start = token.end() if token else end

    def tag(start: int, end: int) -> None:
        parts.append(text[start:end])
        tags.append(parts[-1])

    def walk(parent: Element) -> None:
        insertion = parent.content.start
        for child in parent.children:
            if child.span.start < insertion:
                continue  # in the part before
            plain(insertion, child.span.start)
            if end := _end_of_protected(child):
                tag(child.span.start, end)
                insertion = end
                continue
            if child.is_empty_tag or child.local_name in opaque:
                tag(*child.span)
            else:
                tag(*child.start)
                walk(child)
                tag(child.content.end, child.span.end)
            insertion = child.span.end
        plain(insertion, parent.content.end)

    walk(element)
    whole = "".join(parts)
    core = whole.strip()
    start = whole.index(core)
    is_raw = raw[0] and XML_TOKEN.fullmatch(element.raw.strip()) is not None
    before, after = ("", "") if is_raw else (whole[:start], whole[start + len(core) :])
    return Text(before, core, after, tuple(tags), references, is_raw)


def _end_of_protected(element: Element) -> int | None:
    """Place behind a part that is not translated: an element, or the text up to the end of a
    marker (`sm` and `em` of XLIFF 2)."""
    is_protected = (element.get("translate") or element.get("its:translate")) == "no"
    if element.local_name == "sm" and is_protected and element.parent:
        ends = (e for e in element.parent.children if e.get("startRef") == element.get("id"))
        return next((end.span.end for end in ends if end.local_name == "em"), None)
    return element.span.end if is_protected or element.get("mtype") in PROTECTED else None


def blank_before(element: Element) -> str:
    """The white space between an element and what is before it."""
    start = element.span.start
    while start and element.text[start - 1].isspace():
        start -= 1
    return element.text[start : element.span.start]


MOST_BYTES = 200_000_000
"""Maximum size of all members."""
EXPANSION = 100
"""Maximum size as a multiple of the archive's, if it is more than a twentieth of the other."""
FEW_ELEMENTS, ELEMENTS_PER_BYTE = 50_000, 4
"""Elements that any archive may have, and for each byte of one: some eight times those of real
documents."""


@dataclass(frozen=True)
class Archive(DecodedText):
    """Members of an archive as one text.

    content: the archive.  members: places of their texts by name.
    """

    content: bytes = b""
    members: Mapping[str, Span] = field(default_factory=dict)

    def written(self, edits: Sequence[Edit]) -> bytes:
        """The archive with edits in its members; others keep their bytes and order."""
        if not edits:
            return self.content
        target = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self.content)) as old, zipfile.ZipFile(target, "w") as new:
            starts = sorted([info.header_offset for info in old.infolist()] + [old.start_dir])
            for info in old.infolist():
                if span := self.members.get(info.filename):
                    text = self.text[slice(*span)]
                    changed = spliced(self.text, span, edits)
                    if changed != text:
                        mode = info.external_attr
                        new.writestr(info, changed.encode())
                        info.external_attr = mode
                        continue
                end = starts[bisect.bisect_right(starts, info.header_offset)]
                raw = self.content[info.header_offset : end]
                info.header_offset = target.tell()
                target.write(raw)
                new.filelist.append(info)
                new.start_dir = target.tell()
        return target.getvalue()


def read_archive(
    content: bytes, reading: Reading, pattern: str, pages: str | None = None
) -> tuple[Archive, Mapping[str, Element]]:
    """An archive, and the root elements of the members whose names match a pattern.

    content: bytes of the archive.  reading: its `check` may end the work.  pages: pattern of the
    names of members that are read as they are, behind the others.

    Raises DataError for a damaged archive, one that is too large, has too many elements or has a
    member twice or not compressed by Deflate, and members that are not XML.
    """
    texts: dict[str, str] = {}
    others: dict[str, str] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > min(MOST_BYTES, max(EXPANSION * len(content), MOST_BYTES // 20)):
                raise DataError(f"the archive is too large: {size} bytes")
            for info in archive.infolist():
                reading.check()
                name = info.filename
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise DataError(f"{name} is not compressed by Deflate; save it anew")
                part = archive.read(info)
                if name in texts or name in others:
                    raise DataError(f"the archive has {name} twice; save it anew")
                if re.fullmatch(pattern, name):
                    texts[name] = part.decode()
                elif pages is not None and re.fullmatch(pages, name):
                    others[name] = part.decode()
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise DataError(f"the file is a damaged archive, or not in UTF-8: {error}") from None
    both = texts | others
    n_elements = sum(text.count("<") - text.count("</") for text in both.values())
    if n_elements > max(FEW_ELEMENTS, ELEMENTS_PER_BYTE * len(content)):
        raise DataError(f"the archive has too many elements for its size: {n_elements}")
    for name, text in texts.items():
        check_xml(text, name)
    ends = [0, *itertools.accumulate(map(len, both.values()))]
    members = dict(zip(both, itertools.starmap(Span, itertools.pairwise(ends)), strict=True))
    roots = dict(zip(texts, tree("".join(texts.values()), reading, len(texts)), strict=True))
    return Archive("".join(both.values()), "utf-8", content=content, members=members), roots
