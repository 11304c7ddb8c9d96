"""Formats that are XML, by their root elements: Android, Qt, .NET, Apple's property lists, TMX."""

import functools
import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    form_key,
)
from transduce.localise.inline import escaped, from_markup, parts_of
from transduce.localise.languages import of_other_languages
from transduce.localise.plurals import CATEGORY_NAMES, number_of_forms, samples_of
from transduce.localise.units import Member, Unit, document_of, shortened, unit_in_place
from transduce.localise.xliff import read_xliff
from transduce.localise.xml import Element, Text, blank_before, read_xml, xml_text

ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)|(\")|([ \t\r\n]+)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t"}
XML_FILE_ESCAPES = {"'": "\\'", '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
ANDROID_FLAGS = frozenset(("objc-format", "python-brace-format"))
"""Formats of placeholders: `%1$s`, `{name}`."""


class String(NamedTuple):
    """A string: its element, its text, and the segment of that."""

    element: Element
    text: Text
    segment: Segment

    def written(self, target: str, decoded: DecodedText) -> str:
        """A target as content, escaped."""
        parts = parts_of(target, self.text.tags)
        spaced = "".join(
            part if is_tag else re.sub("(?<= ) ", "\ue000", part) for is_tag, part in parts
        )
        raw = self.text.written(self.segment.key, spaced, decoded).replace("\ue000", "\\u0020")
        return re.sub(r"^((?:\s|<!\[CDATA\[)*)(?=[@?])", r"\1\\", raw)


def read_android(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read a file of resources.

    decoded: text of the file.  root: its element.  reading: languages.
    """
    references: dict[str, str] = dict(XML_FILE_ESCAPES)
    units: list[Unit] = []
    for element in root.children:
        reading.check()
        if element.get("translatable") == "false" or element.get("translate") == "no":
            continue
        name = shortened(f"{element.local_name} {element.get('name')}")
        if element.local_name == "string":
            members = {"": element}
        elif element.local_name == "string-array":
            members = {str(i): item for i, item in enumerate(element.children, 1)}
        elif element.local_name == "plurals":
            members = {item.get("quantity"): item for item in element.children}
        else:
            continue
        strings = {
            part: string
            for part, item in members.items()
            if (string := _string(item, f"{name}, {part}" if part else name, references))
        }
        if element.local_name == "plurals" and "other" in strings:
            items = {part: _member(string, decoded) for part, string in strings.items()}
            add = functools.partial(_added, strings["other"].element)
            units.append(unit_in_place(items, reading.language, add))
        else:
            units += [unit_in_place({"": _member(s, decoded)}) for s in strings.values()]
    return document_of(decoded, units)


def _string(element: Element, key: str, references: dict[str, str]) -> String | None:
    raw = xml_text(element, ("g",), references)
    references |= XML_FILE_ESCAPES
    if re.match(r"[@?](?:\+?\w+[:/]|null$)", raw.source) or not raw.has_words:
        return None
    quoted = False

    def unescaped(match: re.Match[str]) -> str:
        nonlocal quoted
        code, character, quote, _ = match.groups()
        if code:
            character = chr(int(code, 16))
            if character not in "<>& '\"\\" and not "\ud800" <= character <= "\udfff":
                references[character] = match[0]
            return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(character, character)
        if character:
            return ESCAPED.get(character, character)
        if quote:
            quoted = not quoted
            return ""
        return match[0] if quoted else " "

    parts = parts_of(raw.source, raw.tags)
    whole = "".join(p if is_tag else ESCAPE.sub(unescaped, p) for is_tag, p in parts)
    core = whole.strip()
    if not core or any("\ud800" <= c <= "\udfff" for c in core):
        return None
    start = whole.index(core)
    ends = [
        "".join("\\u0020" if c == " " else references.get(c, c) for c in end)
        for end in (whole[:start], whole[start + len(core) :])
    ]
    text = raw._replace(before=raw.before + ends[0], source=core, after=ends[1] + raw.after)
    segment = Segment(shortened(key), core, (element.span,), raw.tags, True, flags=ANDROID_FLAGS)
    return String(element, text, segment)


def _member(string: String, decoded: DecodedText) -> Member:
    return Member(
        string.segment,
        lambda target: string.written(target, decoded),
        string.element.with_content,
    )


def _added(last: Element, name: str, raw: str) -> Edit:
    """Edit that adds an item before the last of a plural."""
    item = last.text[slice(*last.start)]
    item = re.sub(r"""(quantity\s*=\s*["'])other""", rf"\g<1>{name}", item)
    insertion = Span(last.span.start, last.span.start)
    return Edit(insertion, f"{item}{raw}</{last.name}>{blank_before(last)}")


LEFT = ("obsolete", "vanished")
QT_FLAGS = frozenset(("qt-format",))


def read_qt(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read messages; those that the program no longer has are left.

    A translation is marked as unfinished.

    decoded: text of the file.  root: its element.  reading: languages.
    """
    references: dict[str, str] = {}
    code = root.get("language")
    if unread := of_other_languages(reading, root.get("sourcelanguage"), code):
        return document_of(decoded, [], unread=unread)
    language = code or reading.language
    units: list[Unit] = []
    for number, message in enumerate(root.named("message"), 1):
        reading.check()
        translation = message.child("translation")
        if translation is None or translation.get("type") not in LEFT:
            unit = _qt_unit(decoded, message, f"message {number}", language, references)
            units += [unit] if unit else []
    names = [root.with_attribute("language", language)] if language and not code else []
    return document_of(decoded, units, names)


def _qt_unit(
    decoded: DecodedText,
    message: Element,
    key: str,
    language: str | None,
    references: dict[str, str],
) -> Unit | None:
    source = message.child("source")
    translation = message.child("translation")
    if source is None:
        return None
    text = xml_text(source, (), references)
    if not text.has_words:
        return None
    is_numerus = message.get("numerus") == "yes"
    forms = (
        [e for e in translation.children if e.local_name == "numerusform"] if translation else []
    )
    holders = forms if is_numerus else ([translation] if translation else [])
    texts = [xml_text(holder, (), {}).source for holder in holders]
    is_unfinished = translation is not None and translation.get("type") == "unfinished"
    state: State = "fuzzy" if is_unfinished else "translated"
    segment = Segment(
        key,
        text.source,
        (message.span,),
        text.tags,
        True,
        flags=QT_FLAGS,
        target=texts[0] if texts else "",
        state=state if texts and all(texts) else "missing",
    )
    n_forms = number_of_forms(language)
    is_new = is_numerus and not any(texts) and len(forms) != n_forms
    if is_new or (is_numerus and len(forms) == n_forms):
        segment = segment.with_forms(
            (str(i), sample) for i, sample in enumerate(samples_of(language))
        )

    def write(targets: Mapping[str, str]) -> Iterator[Edit]:
        by_form = [
            text.written(key, targets.get(form_key(key, str(i)), targets[key]), decoded)
            for i in range(max(n_forms, len(forms)))
        ]
        raw = by_form[0]
        if is_new:
            raw = "".join(f"<numerusform>{form}</numerusform>" for form in by_form[:n_forms])
        if translation is None:
            new = f'{blank_before(source)}<translation type="unfinished">{raw}</translation>'
            yield Edit(Span(source.span.end, source.span.end), new)
            return
        yield translation.with_attribute("type", "unfinished")
        if forms and (any(texts) or len(forms) == n_forms):
            for form, present, written in zip(forms, texts, by_form, strict=False):
                if not present or all(texts):
                    yield form.with_content(written)
        else:
            yield translation.with_content(raw)

    return Unit([segment], write)


RESX_FLAGS = frozenset(("python-brace-format",))
LOCKED = re.compile(r"\{Locked\s*=((?:\s*,?\s*(?:\"[^\"]+\"|'[^']+'))+)\s*\}")
"""Phrases of a comment that are not translated."""


def read_resx(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read the strings of a file; other resources, names of controls (`>>a.Name`) and strings whose
    comment says `{Locked}` are left.

    decoded: text of the file.  root: its element.  reading: languages.
    """
    if root.child("resheader") is None:
        raise DataError("no format for <root>; a file of .NET has a <resheader>")
    references: dict[str, str] = {}
    units = []
    for element in root.children:
        reading.check()
        name, content = shortened(from_markup(element.get("name"))), element.child("value")
        comment = element.child("comment")
        is_string = not (element.attribute("type") or element.attribute("mimetype"))
        is_locked = name.startswith(">>") or (comment is not None and "{Locked}" in comment.raw)
        if element.local_name != "data" or content is None or not is_string or is_locked:
            continue
        text = xml_text(content, (), references)
        text, phrases = _locked(text, _phrases(comment))
        if text.has_words:
            segment = Segment(name, text.source, (element.span,), text.tags, True, flags=RESX_FLAGS)
            raw = functools.partial(_written, text, phrases, name, decoded)
            units.append(unit_in_place({"": Member(segment, raw, content.with_content)}))
    return document_of(decoded, units)


def _phrases(comment: Element | None) -> Sequence[str]:
    """Phrases that a comment locks, in markup form, longest first."""
    raw = from_markup(html.unescape(comment.raw)) if comment else ""
    lists = (match[1] for match in LOCKED.finditer(raw))
    phrases = {a or b for names in lists for a, b in re.findall("\"([^\"]+)\"|'([^']+)'", names)}
    return sorted(map(escaped, phrases), key=len, reverse=True)


def _locked(text: Text, phrases: Sequence[str]) -> tuple[Text, Mapping[str, str]]:
    """A text with tags in place of some phrases, and the phrases of the tags."""
    pattern = re.compile("|".join(map(re.escape, phrases)) or "(?!)")
    named = {f'<locked of="{html.escape(phrase)}"/>': phrase for phrase in phrases}
    tag_of = {phrase: tag for tag, phrase in named.items()}
    parts: list[str] = []
    tags: list[str] = []
    for is_tag, part in parts_of(text.source, text.tags):
        parts.append(part if is_tag else pattern.sub(lambda match: tag_of[match[0]], part))
        tags += [part] if is_tag else (tag_of[match[0]] for match in pattern.finditer(part))
    return text._replace(source="".join(parts), tags=tuple(tags)), named


def _written(
    text: Text, phrases: Mapping[str, str], key: str, decoded: DecodedText, target: str
) -> str:
    """A target as content, with the phrases of its tags."""
    raw = text.written(key, target, decoded)
    return "".join(phrases.get(part, part) for _, part in parts_of(raw, tuple(phrases)))


STRINGSDICT_FLAGS = frozenset(("objc-format",))
SETTINGS = ("NSStringFormatSpecTypeKey", "NSStringFormatValueTypeKey")


def read_plist(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read the strings of dictionaries; settings of plurals are left.

    decoded: text of the file.  root: its element.  reading: languages.
    """
    references: dict[str, str] = {}
    units: list[Unit] = []

    def walk(element: Element, path: str) -> None:
        reading.check()
        if element.local_name != "dict":
            return
        texts: dict[str, tuple[Element, Text]] = {}
        keys: dict[str, Element] = {}
        children = element.children
        for key, child in zip(children[::2], children[1::2], strict=False):
            name = xml_text(key, (), {}).source
            walk(child, shortened(f"{path}, {name}" if path else name))
            text = xml_text(child, (), references)
            if child.local_name == "string" and name not in (*SETTINGS, *texts) and text.has_words:
                texts[name], keys[name] = (child, text), key
        units.extend(_xml_file_units(decoded, texts, keys, path, reading.language))

    for element in root.children:
        walk(element, "")
    return document_of(decoded, units)


def _xml_file_units(
    decoded: DecodedText,
    texts: Mapping[str, tuple[Element, Text]],
    keys: Mapping[str, Element],
    path: str,
    language: str | None,
) -> Iterator[Unit]:
    """Units of a dictionary: its plural, and each other string."""
    members = {}
    for name, (element, text) in texts.items():
        key = shortened(f"{path}, {name}" if path else name)
        segment = Segment(
            key, text.source, (element.span,), text.tags, True, flags=STRINGSDICT_FLAGS
        )
        raw = functools.partial(text.written, key, decoded=decoded)
        members[name] = Member(segment, raw, element.with_content)
    plural = {name: member for name, member in members.items() if name in CATEGORY_NAMES}

    def add(name: str, raw: str) -> Edit:
        key, end = keys["other"], texts["other"][0].span.end
        new = f"{blank_before(key)}<key>{name}</key>{blank_before(texts['other'][0])}"
        return Edit(Span(end, end), f"{new}<string>{raw}</string>")

    if "other" in plural:
        yield unit_in_place(plural, language, add)
    else:
        plural = {}
    yield from (unit_in_place({"": members[name]}) for name in texts if name not in plural)


XML_FILE_OPAQUE = ("bpt", "ept", "ph", "it", "ut")


def read_tmx(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read the variants of the source language; those of the target language are their targets.

    decoded: text of the file.  root: its element.  reading: languages.
    """
    language = reading.language
    if language is None:
        raise DataError("the target language is not known; give --target-language CODE")
    header = root.child("header")
    references: dict[str, str] = {}
    units = []
    unread = []
    for number, element in enumerate((e for e in root.descendants() if e.name == "tu"), 1):
        reading.check()
        origin = element.get("srclang") or (header.get("srclang") if header else "")
        origin = reading.source or origin
        key = f"unit {number}"
        if (variant := _variant(element, origin)) is None or variant.child("seg") is None:
            reason = f"it has no text in the source language {origin}"
            unread.append(Record(key, key, key, "unread", reason))
        unit = _tmx_unit(decoded, element, key, origin, language, references)
        units += [unit] if unit else []
    return document_of(decoded, units, unread=unread)


def _variant(unit: Element, language: str) -> Element | None:
    """The variant of a language, else of one that begins so: `de-DE` for `de`."""
    variants = [(_language(e), e) for e in unit.children if e.name == "tuv"]
    code = language.lower()
    exact = [e for name, e in variants if name == code]
    alike = [e for name, e in variants if re.split("[-_]", name)[0] == re.split("[-_]", code)[0]]
    return next(iter((*exact, *alike)), None)


def _language(variant: Element) -> str:
    return (variant.get("xml:lang") or variant.get("lang")).lower()


def _tmx_unit(
    decoded: DecodedText,
    unit: Element,
    key: str,
    origin: str,
    language: str,
    references: dict[str, str],
) -> Unit | None:
    source, target = _variant(unit, origin), _variant(unit, language)
    content = source.child("seg") if source else None
    if source is None or content is None or source is target:
        return None
    text = xml_text(content, XML_FILE_OPAQUE, references)
    there = target.child("seg") if target else None
    if not text.has_words or (target is not None and there is None):
        return None
    known = xml_text(there, XML_FILE_OPAQUE, {}).source if there else ""
    segment = Segment(
        key,
        text.source,
        (unit.span,),
        text.tags,
        True,
        target=known,
        state="translated" if known else "missing",
    )

    def write(targets: Mapping[str, str]) -> Iterator[Edit]:
        (translation,) = targets.values()
        raw = text.written(key, translation, decoded)
        if there is not None:
            yield there.with_content(raw)
            return
        name = "xml:lang" if source.attribute("xml:lang") else "lang"
        inner = f"{blank_before(content)}<seg>{raw}</seg>"
        end = decoded.text[content.span.end : source.span.end]
        new = f'{blank_before(source)}<tuv {name}="{language}">{inner}{end}'
        yield Edit(Span(source.span.end, source.span.end), new)

    return Unit([segment], write)


ROOTS: Mapping[str, Callable[[DecodedText, Element, Reading], Document]] = {
    "xliff": read_xliff,
    "resources": read_android,
    "plist": read_plist,
    "TS": read_qt,
    "tmx": read_tmx,
    "root": read_resx,
}
"""Readers by the name of the root element."""


def read_xml_document(content: bytes, reading: Reading) -> Document:
    """Read a document in the format of its root element."""
    decoded, root = read_xml(content, reading)
    if root.local_name not in ROOTS:
        raise DataError(f"no format for <{root.local_name}>; use {', '.join(ROOTS)}")
    return ROOTS[root.local_name](decoded, root, reading)
