"""Documents as spans: a parser finds the translatable strings, and only those are replaced.

    Segment    a translatable string of a document
    Document   its segments, and `with_targets`: the document with some of them translated

A format reads bytes into a `Document` and renders a target into edits of the original text; no
format writes a file.  Text outside the edits is the same by construction.
"""

from __future__ import annotations

import bisect
import codecs
import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from transduce.errors import DataError
from transduce.text.encodings import text_codec

CAUSES: Mapping[str, str] = {
    "placeholders are not kept": "placeholders",
    "the translation is empty": "empty",
    "the format cannot hold the translation": "format",
    "no format": "format",
}
"""Names of causes, by the beginnings of their reasons before a colon."""


CUT_OFF = "cut off at the greatest length"
"""Reason of a translation of which a sentence did not end."""


@dataclass(frozen=True, slots=True)
class Record:
    """Outcome of a segment.

    key:     its place in the file or the text, such as "line 3".
    source:  its text.
    target:  the text in its place afterwards: the translation, or the source.
    state:   "kept" for a translation in an output that people corrected, with a reason where its
             source has changed; "unread" for a part of a file that no segment holds, "ignored" for
             a setting, named by the key, that was not followed.
    reason:  why it is not done, on a line.
    file:    the document; empty for texts.
    forms:   translations of plural forms that differ from the target, by their names.
    """

    key: str
    source: str
    target: str
    state: Literal["translated", "approved", "kept", "needs-translation", "unread", "ignored"]
    reason: str = ""
    file: str = ""
    forms: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The target, by the name that translations have elsewhere."""
        return self.target

    @property
    def is_done(self) -> bool:
        """False for anything that was not translated, read or followed."""
        return self.state in ("translated", "approved", "kept")

    @property
    def is_finished(self) -> bool:
        """False for a translation that was cut off."""
        return not self.reason.endswith(CUT_OFF)

    @property
    def cause(self) -> str:
        """The reason as a word of a few, which quote nothing: a label of metrics."""
        return CAUSES.get(self.reason.partition(":")[0], "other")

    def line(self) -> str:
        """The record as JSON, without a line break."""
        row = dataclasses.asdict(self)
        forms = dict(row.pop("forms"))
        return json.dumps(row | ({"forms": forms} if forms else {}), ensure_ascii=False)

    def targets(self) -> Mapping[str, str]:
        """The translations to write, by key."""
        return {self.key: self.target} | {form_key(self.key, name): t for name, t in self.forms}


def form_key(key: str, name: str) -> str:
    """The key of a plural form of a segment."""
    return f"{key}\0{name}"


def untranslated_record(key: str, source: str, reason: str) -> Record:
    """The record of a segment that stays as it is.

    key: of the segment.  source: its text.  reason: shown to the user.
    """
    return Record(key, source, source, "needs-translation", reason)


BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks."""
SURROGATE = re.compile("[\ud800-\udfff]")
REFERENCED = "\u00e9\u3042"
"""Characters that some encodings lack."""


class Span(NamedTuple):
    """Characters start to end of the decoded text of a document."""

    start: int
    end: int


class Edit(NamedTuple):
    """Replacement of a span."""

    span: Span
    text: str


State = Literal["missing", "fuzzy", "translated"]
"""State of a segment in its document: fuzzy translations wait for a review."""


class Written(NamedTuple):
    """A translation as its file has it, with its outer white space.

    is_rare: of a plural form of fewer than five numbers, which may leave the number out.
    """

    text: str
    is_rare: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """One translatable string.

    key:     its place, unique in the document, such as "line 3"; named in messages.
    source:  text without outer white space; never empty. Its line breaks are kept.
    spans:   its places in the decoded text, in order; beside them only marks of its state change.
    tags:    inline tags in the text, and elements that stay untranslated, in order.
    markup:  `&`, `<`, `>` stand in the text as entities.
    borders: places in the source where a part begins that is shown by itself, such as a subtitle;
             a target with as many line breaks is cut there.
    flags:   formats of its placeholders, as gettext names them (`patterns.FORMATS`).
    target, state:  of formats that hold translations, the present one.
    match, origin:  translation of another segment, which is taken for this one, and the reason.
    limit:   the most characters of a target, tags left out; 0 for any number.
    around:  white space before and after the source, in a format that asks for the same.
    written: the translations that `target` is the first of, where several forms have one source.
    forms:   names of the plural forms that are made of it, with a number of each.
    match_forms: translations of those forms of the match.
    """

    key: str
    source: str
    spans: tuple[Span, ...]
    tags: tuple[str, ...] = ()
    markup: bool = False
    borders: tuple[int, ...] = ()
    flags: frozenset[str] = frozenset()
    target: str = ""
    state: State = "missing"
    match: str = ""
    origin: str = ""
    limit: int = 0
    around: tuple[str, str] = ("", "")
    written: tuple[Written, ...] = ()
    forms: tuple[tuple[str, str], ...] = ()
    match_forms: tuple[tuple[str, str], ...] = ()

    @property
    def translations(self) -> tuple[Written, ...]:
        """The translations in the file, or a target from elsewhere for all of them."""
        if self.written and self.written[0].text.strip() == self.target:
            return self.written
        is_rare = bool(self.written) and all(written.is_rare for written in self.written)
        before, after = self.around
        return (Written(f"{before}{self.target}{after}", is_rare),)

    def with_forms(self, forms: Iterable[tuple[str, str]]) -> Segment:
        """The segment with the plural forms that have a number, if these are several."""
        several = tuple(form for form in forms if form[1])
        return dataclasses.replace(self, forms=several) if len(several) > 1 else self

    def matched(self) -> Record:
        """The record of its match."""
        return Record(
            *(self.key, self.source, self.match, "translated", self.origin), forms=self.match_forms
        )


@dataclass(frozen=True)
class DecodedText:
    """Text of a file, with its encoding, and a note for the user where that is a guess."""

    text: str
    encoding: str
    bom: bytes = b""
    note: str = ""

    @functools.cached_property
    def habits(self) -> frozenset[str]:
        """Line breaks of Windows and escapes of JSON, if they are in the text."""
        return frozenset(sign for sign in ("\r\n", "\\u", "\\/") if sign in self.text)

    @property
    def newline(self) -> str:
        """The line break of the file."""
        return "\r\n" if "\r\n" in self.habits else "\n"

    def encodable(self, text: str) -> str:
        """A text with references in place of the characters that the encoding does not have."""
        return text.encode(self.encoding, "xmlcharrefreplace").decode(self.encoding)

    def is_ambiguous(self, content: bytes) -> bool:
        """True for a file in another encoding whose bytes are UTF-8 beyond ASCII as well."""
        is_other = not self.bom and codecs.lookup(self.encoding).name != "utf-8"
        return is_other and not content.isascii() and _is_in(content, "utf-8")

    def written(self, edits: Sequence[Edit]) -> bytes:
        """The file with sorted edits of its text."""
        return self.bom + spliced(self.text, Span(0, -1), edits).encode(self.encoding)


Check = Callable[[], None]
"""Called between the steps of long work; raises CancelledError where nobody waits for it."""


def unchecked() -> None:
    """A check of work that nobody ends."""


class Reading(NamedTuple):
    """Settings of the reading of a document.

    encoding: of bytes without a byte order mark; by default as declared, else UTF-8.
    check:    called often.
    language: code of the target language: it decides which plural forms a translation needs.
    source:   code of the source language.
    name:     path of the file, which may name a language.
    """

    encoding: str | None = None
    check: Check = unchecked
    language: str | None = None
    source: str | None = None
    name: str = ""

    def decode(
        self, content: bytes, declared: str | None = None, fallback: str | None = None
    ) -> DecodedText:
        """Decode a file: every format is read here.

        By the byte order mark, else the encoding of the reading, else UTF-8 if bytes beyond ASCII
        are that, else the encoding that the file declares, else, for bytes that are not UTF-8, a
        fallback.  Raises DataError for bytes that the encoding does not have, or would not give
        back.

        content: bytes of the file.  declared: encoding that the file declares.
        """
        if self.encoding or any(content.startswith(bom) for bom, _ in BOMS):
            return decode(content, self.encoding)
        if declared and (content.isascii() or not _is_in(content, "utf-8")):
            return decode(content, text_codec(declared))
        if fallback is None or _is_in(content, "utf-8"):
            return decode(content, _unmarked_utf16(content))
        note = f"it is not in UTF-8 and is read as {fallback}; --encoding names another encoding"
        return dataclasses.replace(decode(content, fallback), note=note)


Renderer = Callable[[Mapping[str, str]], Iterable[Edit]]
"""Edits for the targets of some segments, by key.  Raises DataError for an impossible target."""


@dataclass(frozen=True)
class Document:
    """A document as the spans of its segments.

    decoded:  the text that spans refer to.
    render:   of the format.
    language: edits that name the target language, written with translations.
    unread:   parts of the file that hold text and are no segments, with the reasons.
    is_keyed: keys are names, which stay when other segments come and go.
    confirmed: translations that people confirmed or locked: they stay, and serve as a memory.
    plurals:  keys of segments that are written together or not at all.
    approved: edits without the marks for a review of the segments of some keys, of a format that
              has such.
    """

    segments: Sequence[Segment]
    decoded: DecodedText
    render: Renderer
    language: Sequence[Edit] = ()
    unread: Sequence[Record] = ()
    confirmed: Sequence[Segment] = ()
    is_keyed: bool = False
    plurals: Sequence[Sequence[str]] = ()
    approved: Callable[[Sequence[Edit], Collection[str]], Sequence[Edit]] = lambda edits, _: edits

    def limited(self, only: Sequence[State]) -> Document:
        """The document with the segments of some states alone."""
        segments = [segment for segment in self.segments if segment.state in only]
        return dataclasses.replace(self, segments=segments)

    def with_targets(self, targets: Mapping[str, str], approved: Collection[str] = ()) -> bytes:
        """The document with targets in place of some sources; without any, its own bytes.

        approved: keys of those that people approved.  Raises DataError, naming the segment, for an
        unknown key and a target that is blank or that the format cannot hold.
        """
        edits = self.approved(self.check(targets), approved)
        if edits:
            edits = sorted({*edits, *self.language})
        content = self.decoded.written(edits)
        if edits and self.decoded.is_ambiguous(content):
            raise DataError(
                f"{next(iter(targets))}: the file, in {self.decoded.encoding}, would be read as "
                "UTF-8; convert it to UTF-8"
            )
        return content

    def check(self, targets: Mapping[str, str]) -> Sequence[Edit]:
        """Edits for some targets, in order.  Raises as `with_targets` does."""
        texts: dict[str, str] = {}
        for key, target in targets.items():
            if key.partition("\0")[0] not in self._keys:
                raise DataError(f"{key}: no such segment in this document")
            texts[key] = target.strip()
            if not texts[key]:
                raise DataError(f"{key}: the translation is blank; leave the segment out")
            if SURROGATE.search(target):
                raise DataError(f"{key}: the translation has a lone surrogate; remove it")
        edits = sorted(set(self.render(texts))) if texts else []
        for edit in edits:
            self._check_bytes(edit)
        return edits

    @functools.cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(segment.key for segment in self.segments)

    @functools.cached_property
    def _starts(self) -> Sequence[tuple[int, str]]:
        return sorted((span.start, s.key) for s in self.segments for span in s.spans)

    def _key_at(self, span: Span) -> str:
        following = bisect.bisect_right(self._starts, span.start, key=lambda start: start[0])
        return self._starts[max(following - 1, 0)][1]

    def _check_bytes(self, edit: Edit) -> None:
        decoded = self.decoded
        try:
            encoded = edit.text.encode(decoded.encoding)
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self._key_at(edit.span)}: {edit.text[error.start]!r} is not in the file's "
                f"encoding, {decoded.encoding}; convert the file to UTF-8"
            ) from None
        first = edit.span.start == 0 and not decoded.bom
        if first and any(encoded.startswith(bom) for bom, _ in BOMS):
            raise DataError(
                f"{self._key_at(edit.span)}: the file would begin with a byte order mark"
            )


class LocalisedDocument(NamedTuple):
    """A translated document, and its records: of each segment, then of its unread parts."""

    content: bytes
    records: Sequence[Record]

    def check(self, name: str = "") -> None:
        """Raise DataError, beginning with a name, if there is text and none of it is translated."""
        if self.records and not any(record.is_done for record in self.records):
            first = self.records[0]
            raise DataError(f"{name}nothing was translated; {first.key}: {first.reason}")


def document_with(
    document: Document, records: Sequence[Record], check: Check = unchecked
) -> LocalisedDocument:
    """A document with the translations of its segments, in order; a translation that the format
    cannot hold is left out, and so named in its record.

    records: one for each segment.  check: called between steps; raises an error to end the work.
    """
    check()
    records = _whole(document, records)
    targets = _targets(records)
    approved = {record.key for record in records if record.state == "approved"}
    try:
        content = document.with_targets(targets, approved)
        return LocalisedDocument(content, [*records, *document.unread])
    except DataError:  # of one of them
        pass
    held = []
    for record in records:
        check()
        held.append(_held(document, record))
    held = _whole(document, held)
    targets = _targets(held)
    content = document.with_targets(targets, approved & targets.keys())
    return LocalisedDocument(content, [*held, *document.unread])


def _whole(document: Document, records: Sequence[Record]) -> list[Record]:
    """Records, those of plurals left of which a form is left: gettext refuses the others alone."""
    left = {record.key for record in records if not record.is_done}
    plurals = (keys for keys in document.plurals if not left.isdisjoint(keys))
    partial = set(itertools.chain.from_iterable(plurals)) - left
    return [
        untranslated_record(r.key, r.source, "another form of its plural is left")
        if r.key in partial
        else r
        for r in records
    ]


def _targets(records: Sequence[Record]) -> dict[str, str]:
    """The translations of the records that have some."""
    return {key: t for record in records if record.is_done for key, t in record.targets().items()}


def _held(document: Document, record: Record) -> Record:
    """The record of a segment; with its source, where the document cannot hold its translation."""
    try:
        if record.is_done:
            document.check(record.targets())
    except DataError as error:
        reason = str(error).removeprefix(f"{record.key}: ")
        return untranslated_record(
            record.key, record.source, f"the format cannot hold the translation: {reason}"
        )
    return record


def spliced(text: str, span: Span, edits: Sequence[Edit]) -> str:
    """Characters of a span (to the end of the text for -1), with sorted edits inside it applied."""
    end = len(text) if span.end == -1 else span.end
    parts: list[str] = []
    copied = span.start
    first = bisect.bisect_left(edits, span.start, key=lambda edit: edit.span.start)
    for i in range(first, len(edits)):
        edit = edits[i]
        if edit.span.end > end:
            break
        parts += text[copied : edit.span.start], edit.text
        copied = edit.span.end
    return "".join([*parts, text[copied:end]])


def _is_in(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _unmarked_utf16(content: bytes) -> str | None:
    """UTF-16, if the first four characters are of ASCII in it."""
    zeros = "".join("0" if byte == 0 else "x" for byte in content[:8])
    encoding = {"x0" * 4: "utf-16-le", "0x" * 4: "utf-16-be"}.get(zeros)
    return encoding if encoding and _is_in(content, encoding) else None


def decode(content: bytes, encoding: str | None = None) -> DecodedText:
    """Decode a file by its byte order mark, else by `encoding`, else as UTF-8.  Raises DataError
    for bytes that the encoding does not have, or would not give back."""
    bom, marked = next(((b, name) for b, name in BOMS if content.startswith(b)), (b"", None))
    name = marked or encoding or "utf-8"
    try:
        REFERENCED.encode(name, "xmlcharrefreplace")  # as no encoding of names of hosts can
        text = content[len(bom) :].decode(name)
        same = text.encode(name) == content[len(bom) :]
    except LookupError:
        raise DataError(f"{name!r} is not an encoding; write one such as 'utf-8'") from None
    except UnicodeDecodeError as error:
        number = len(bom) + error.start
        raise DataError(
            f"byte {number} is not {name}; convert the file to UTF-8, or name its encoding"
        ) from None
    except UnicodeError:
        raise DataError(f"the file is not {name}; convert it to UTF-8") from None
    if not same:
        raise DataError(f"{name} does not give back the bytes of the file; convert it to UTF-8")
    return DecodedText(text, name, bom)


Kind = Literal["text", "open", "close", "void"]

VOID = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta"),
        *("param", "source", "track", "wbr"),
    )
)
"""Elements without content, with or without a slash."""
RAW = frozenset(("iframe", "script", "style", "textarea", "title", "xmp"))
"""Elements with raw text, without tags."""
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        """address article aside base blockquote body br button caption center col colgroup dd
        details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3
        h4 h5 h6 head header hgroup hr html legend li link main menu meta nav noframes noscript
        object ol optgroup option p pre script section select source style summary table tbody td
        template textarea tfoot th thead title tr track ul video audio""",
    )
)
"""Elements of HTML at whose tags a segment ends; all others are inline."""
RUBY = ("rt", "rp", "rtc")
"""Readings of a text, beside it, which often have no end tag."""
OPAQUE = frozenset(
    (
        *("canvas", "code", "iframe", "kbd", "math", "pre", "samp", "script", "style", "svg"),
        *("template", "textarea", "var", "xmp", *RUBY),
    )
)
"""Elements kept unchanged with all their content."""
RAISED = frozenset(("sub", "sup"))
"""Elements whose content belongs to the word before it."""
INLINE = frozenset(
    re.findall(
        r"\w+",
        """a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q rp rt ruby s
        small span strike strong time tt u""",
    )
)
"""Other inline elements of HTML."""

NAME = r"(?:[A-Za-z_][\w:-]*+|[0-9]++(?=[\s/>]))"
"""Name of an element; classes of WebVTT (`c.red`) are none of it."""
REST = r"""(?:[^>=]++|=\s*+(?:"[^"]*"|'[^']*'|(?!["'])))*+>"""
"""Rest of a start tag: a `>` in quotes is part of an attribute."""
WHOLE_TAG = re.compile(rf"<(?P<close>/)?(?P<name>{NAME}){REST}", re.ASCII)


BREAK_TAG = re.compile(
    r"<(?:br|cr|hr|img|tab)[0-9]*(?=[\s/>])|\b(?:ctype|type)=[\"'](?:lb|image|x-(?:html-)?br|x-lb)[\"']"
    r"|&lt;(?:br|img)\b",
    re.IGNORECASE,
)


def is_break(tag: str) -> bool:
    """True for a tag of a line break, a tabulator or a picture, which parts words as a blank."""
    return BREAK_TAG.search(tag) is not None


class Tag(NamedTuple):
    """A tag or a text: its kind, the name of its element in lower case, its characters; void
    without a name is no element."""

    kind: Kind
    name: str = ""
    span: Span = Span(0, 0)


def parsed(text: str) -> Tag:
    """The tag that a text is; void for others, such as a comment or a whole element."""
    match = WHOLE_TAG.fullmatch(text)
    if match is None:
        return Tag("void")
    name = match["name"].lower()
    if match["close"]:
        return Tag("close", name)
    return Tag("void" if name in VOID or text.endswith("/>") else "open", name)


def partners(tags: Sequence[Tag]) -> dict[int, int]:
    """Index of the end tag of each start tag, and the reverse; tags without partner are absent."""
    pairs: dict[int, int] = {}
    opened: dict[str, list[int]] = {}
    for i, tag in enumerate(tags):
        if tag.kind == "open":
            opened.setdefault(tag.name, []).append(i)
        elif tag.kind == "close" and opened.get(tag.name):
            pairs[i] = opened[tag.name].pop()
            pairs[pairs[i]] = i
    return pairs
