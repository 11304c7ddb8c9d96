"""Target files: the file of a language that people keep beside a base file, and the keys that it
lacks.

Both have the same keys.  The base gives the texts to translate; the lines of the target stay, with
their order and comments, and those of new and changed keys come in between.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from transduce.errors import DataError, SettingError
from transduce.localise.document import Document, Edit, Span, spliced
from transduce.localise.json_targets import Layout, held_otherwise, inserted_members
from transduce.localise.lock import Lock, Version, unit_names
from transduce.localise.target_lines import inserted_lines
from transduce.localise.units import REPEATED, digest

logger = logging.getLogger("transduce")
LANGUAGE = "{lang}"
"""Placeholder of the code in a path."""
BRACES = re.compile(r"\{[^{}/]*\}")
Parse = Callable[[bytes], Document]
"""The document in some bytes of the format of a target."""
PHP_END = re.compile(r"(['\"\])])([ \t]*\r?\n(?=\s*['\"][^'\"\n]*['\"]\s*=>))")
"""Value of an array before another, without a comma."""


def check_pattern(pattern: Path | None) -> None:
    """Raise SettingError for a path of targets with another placeholder than `{lang}`."""
    others = {*BRACES.findall(str(pattern or ""))} - {LANGUAGE}
    if others:
        raise SettingError(f"--target {pattern}: {min(others)} is no placeholder; write {LANGUAGE}")


def target_path(pattern: Path, language: str | None) -> Path:
    """The path of a target, with the code of the language for `{lang}`, as Android writes it in a
    directory of values.  Raises DataError where the language is not known."""
    parts = [
        part.replace(LANGUAGE, _android(language) if part.startswith("values") else language or "")
        for part in pattern.parts
    ]
    if language is None and LANGUAGE in str(pattern):
        raise DataError(f"{pattern}: the target language is not known; give --target-language CODE")
    return Path(*parts)


def _android(language: str | None) -> str:
    """A code as the name of a directory of Android: pt-rBR, b+zh+Hant."""
    base, _, region = (language or "").partition("-")
    if not region:
        return base
    return f"{base}-r{region}" if len(region) == 2 else f"b+{base}+{region.replace('-', '+')}"


def with_gaps(base: Document, target: Version, lock: Lock | None, parse: Parse) -> Document:
    """The base with the segments alone that a target lacks, or has as they were left without a
    translation, or whose source has changed since; segments with the source of a text of the
    target have that as their match."""
    if target.has_sources or not target.document.is_keyed:
        raise DataError("--target is for files of keys in one language; leave it out")
    as_sources = base.with_targets({segment.key: segment.source for segment in base.segments})
    names = set(target.names)
    lacking = Version(parse(as_sources))
    base_names = unit_names(base.segments)
    known_names = names.union(base_names)
    forms = {
        unit.source
        for name, unit in zip(lacking.names, lacking.units, strict=True)
        if name not in known_names
    }
    by_machine = {unit.key: unit for unit in (lock.units if lock else ()) if not unit.is_by_hand}
    translated = {translation.key for translation in (lock.translations if lock else ())}
    machine: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, unit in zip(target.names, target.units, strict=True):
        texts[name] = unit.source
        written = by_machine.get(unit.key)
        if written and written.form == target.form(unit):
            machine[name] = written.source
    segments, known = [], {}
    held = _held_otherwise(base.decoded.text, target)
    if others := [s.key for s in base.segments if s.spans[0] in held]:
        logger.warning("%d texts of the target have another form: %s", len(others), others[0])
    for name, segment in zip(base_names, base.segments, strict=True):
        if segment.spans[0] in held:
            continue
        is_stale = machine.get(name, "") not in ("", digest(segment.source))
        is_left = name in machine and segment.key not in translated
        if name not in names or segment.source in forms or is_stale or is_left:
            segments.append(segment)
            continue
        known[segment.source] = dataclasses.replace(segment, target=texts[name], state="translated")
        if name in machine:
            segments.append(dataclasses.replace(segment, match=texts[name]))
    return dataclasses.replace(base, segments=segments, confirmed=[*known.values()])


def merged_target(new: Version, old: Version, parse: Parse) -> bytes | None:
    """A target with the units of a newer version in the lines of the older one, or of JSON among
    its members; None where such is not read again with the texts of both."""
    raw = {name: old.raw(unit) for name, unit in zip(old.names, old.units, strict=True)}
    decoded, newer = old.document.decoded, new.document.decoded
    layouts = (Layout(newer.text), Layout(decoded.text)) if _is_object(decoded.text) else None
    held = set(held_otherwise(*layouts)) if layouts and _is_object(newer.text) else set()
    units = {n: u for n, u in zip(new.names, new.units, strict=True) if u.spans[0] not in held}
    expected = raw | {name: new.raw(unit) for name, unit in units.items()}
    if layouts:
        lacking = (unit.spans[0] for name, unit in units.items() if name not in raw)
        edits = [*inserted_members(*layouts, lacking)]
    else:
        try:
            edits = [*inserted_lines(new, old)]
        except DataError:
            return None
    for name, unit in zip(old.names, old.units, strict=True):
        if raw[name] != expected[name]:
            edits += map(Edit, unit.spans, expected[name].split("\0"))
    text = re.sub("\r?\n", decoded.newline, spliced(decoded.text, Span(0, -1), sorted(edits)))
    if decoded.text.lstrip().startswith("<?"):
        text = PHP_END.sub(r"\1,\2", text)
    try:
        content = decoded.bom + text.encode(decoded.encoding)
        again = Version(parse(content))
    except (DataError, UnicodeEncodeError):
        return None
    merged = {name: again.raw(unit) for name, unit in zip(again.names, again.units, strict=True)}
    is_whole = _plain(merged) == _plain(expected) and _repeated(again) == _repeated(old)
    return content if is_whole else None


def _held_otherwise(text: str, old: Version) -> Container[Span]:
    """Places of a newer text of JSON for which an older version holds no text."""
    older = old.document.decoded.text
    if not (_is_object(older) and _is_object(text)):
        return ()
    return set(held_otherwise(Layout(text), Layout(older)))


def _is_object(text: str) -> bool:
    """True for JSON of names and values."""
    return text.lstrip()[:1] == "{"


def _repeated(version: Version) -> int:
    return sum(record.reason == REPEATED for record in version.document.unread)


def _plain(raw: Mapping[str, str]) -> dict[str, str]:
    """Units with line breaks of one kind."""
    return {name: text.replace("\r\n", "\n") for name, text in raw.items()}
