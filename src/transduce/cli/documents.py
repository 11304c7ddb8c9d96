"""Documents of `transduce localise`: which are read, how they are translated, what is written."""

import dataclasses
import functools
import itertools
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from transduce.cli.console import print_error
from transduce.cli.options import Decoding, Machine, chosen_options
from transduce.cli.output import make_directory, open_output, print_lines
from transduce.decoding.options import MOST_PHRASES, DecodingOptions
from transduce.errors import DataError, SettingError, TransduceError, naming, reading, writing
from transduce.localise.checks import (
    Glossary,
    Terms,
    checked,
    faults_by,
    no_glossary,
    pseudo_translated,
    read_entries,
)
from transduce.localise.document import (
    CUT_OFF,
    Document,
    LocalisedDocument,
    Record,
    Segment,
    State,
    decode,
    document_with,
    untranslated_record,
)
from transduce.localise.formats import DATA, FORMATS, MARKED, read_document
from transduce.localise.fuzzy import FuzzyMemory
from transduce.localise.languages import check_tag
from transduce.localise.lock import CHANGED, Lock, Version, Written, lock_of, read_lock, updated
from transduce.localise.memory import with_matches
from transduce.localise.report import report_page, review_page
from transduce.localise.target_files import check_pattern, merged_target, target_path, with_gaps
from transduce.localise.term_files import in_columns, read_tbx
from transduce.localise.translate import Order, Translated, aligner, localised
from transduce.localise.xliff import Exchange, Translations, written_xliff

Translate = Callable[[str, Sequence[Segment]], list[Record]]
"""Records of the segments of a document of a name."""
STATES: dict[str, tuple[State, ...]] = {
    "missing": ("missing",),
    "fuzzy": ("missing", "fuzzy"),
    "all": ("missing", "fuzzy", "translated"),
}
"""States of the segments that are translated, by the option `only`."""
MOST_ONCE = 100_000
"""Translations that are remembered for equal sentences of other documents."""
logger = logging.getLogger("transduce")


class DocumentReader(NamedTuple):
    """Encoding, format and languages by which documents are read, and the states to translate."""

    encoding: str | None
    format: str | None
    source_language: str | None
    target_language: str | None
    states: tuple[State, ...]

    def read(self, file: Path) -> Document:
        """A document, all of its segments."""
        with reading(file):
            content = file.read_bytes()
        document = self.parsed(file, content)
        if document.decoded.note:
            logger.warning("%s: %s", file, document.decoded.note)
        return document

    def parsed(self, file: Path, content: bytes) -> Document:
        """The document of a name in some bytes."""
        return read_document(
            str(file),
            content,
            self.encoding,
            format=self.format,
            source_language=self.source_language,
            target_language=self.target_language,
        )

    def with_memory(
        self, memory: Sequence[Path] | None, is_reviewed: bool
    ) -> Callable[[Path], Document]:
        """Reads documents limited to the states, with matches from themselves and from documents
        of a memory, confirmed ones first, then fuzzy ones, or, where it is None, without.

        is_reviewed: all translations are for a review.
        """
        documents = [self.read(file) for file in memory or ()]
        for file, document in zip(memory or (), documents, strict=True):
            if others := [r for r in document.unread if r.key == "language"]:
                logger.warning("%s: %s", file, others[0].reason)
        known = [
            *(segment for document in documents for segment in document.confirmed),
            *(segment for document in documents for segment in document.segments),
        ]
        fuzzy = FuzzyMemory(known)

        def read_part(file: Path) -> Document:
            document = self.read(file)
            if memory is not None:
                suffix = f".{self.format}" if self.format else file.suffix.lower()
                document = with_matches(document, known)
                document = fuzzy.suggested(document, is_reviewed or suffix in MARKED)
            return document.limited(self.states)

        return read_part


def write_xliff(
    path: Path | None, reviewed: Sequence[Translations], source: str | None, target: str | None
) -> None:
    """Write the translations of documents for a review, as a page or as XLIFF, if a path is given,
    and print it."""
    if path is None:
        return
    content = written_xliff(reviewed, source or "und", target or "und")
    with open_output(str(path)) as out:
        out.write_bytes(review_page(content).encode() if path.suffix == ".html" else content)
    print_lines(str(path))


def write_report(path: Path | None, records: Sequence[Record]) -> None:
    """Write records as a page or as JSON lines, if a path is given."""
    if path is None:
        return
    is_page = path.suffix == ".html"
    with open_output(str(path)) as lines:
        lines.write(report_page(records) if is_page else (record.line() for record in records))


def without_run(
    pseudo: bool,
    merge: Path | None,
    memory: Sequence[Path],
    source: str | None,
    target: str | None,
) -> tuple[Translate, str | None, str | None]:
    """Pseudo-translation; or the translations of an XLIFF file, where it is not None and has them,
    else matches of a memory; and the codes of the languages, those of that file where they are
    None.
    """
    reason = "the memory has no match" if memory else ""
    if pseudo:
        return lambda file, segments: pseudo_translated(segments), source, target
    reviewed = None
    if merge is not None:
        with reading(merge):
            content = merge.read_bytes()
        with naming(merge):
            reviewed = Exchange(content)
            source, target = reviewed.languages(source, target)

    def translate(file: str, segments: Sequence[Segment]) -> list[Record]:
        records = (
            reviewed.records(file, segments)
            if reviewed
            else [untranslated_record(s.key, s.source, reason) for s in segments]
        )
        return [
            s.matched() if s.match and not r.is_done else r
            for s, r in zip(segments, records, strict=True)
        ]

    return translate, source, target


def translation_by(
    run: Path,
    source: str | None,
    target: str | None,
    decoding: Decoding,
    machine: Machine,
    glossary: Path | None,
) -> tuple[Translate, str, str | None]:
    """Translation of segments by a run, and the codes of its languages, if it has them; where its
    recipe names none, those that are given."""
    translator = machine.load(run).translator
    sources, targets = translator.recipe.languages.sources, translator.recipe.target_languages
    if target is not None and targets:
        translator = translator.between(source if sources else None, target)
    options = chosen_options(translator, decoding)
    translator.check(options)
    source = _language(run, "source", source, sources)
    target = _language(run, "target", target, targets)
    if source is None:
        raise SettingError(
            f"the recipe of {run} names no source language; give --source-language CODE, that of "
            "the documents"
        )
    links, quiet = aligner(translator), translator.quiet()
    terms = terms_in(glossary, source, target)
    once: dict[tuple[str, DecodingOptions], Translated | TransduceError] = {}

    def attempt(
        texts: Sequence[str], options: Sequence[DecodingOptions]
    ) -> Sequence[Translated | TransduceError]:
        required = [
            dataclasses.replace(o, constraints=(*o.constraints, *terms(text))[:MOST_PHRASES])
            for text, o in zip(texts, options, strict=True)
        ]
        pairs = list(zip(texts, required, strict=True))
        if new := [pair for pair in dict.fromkeys(pairs) if pair not in once]:
            outputs = quiet.attempt([text for text, _ in new], [o for _, o in new])
            once.update(zip(new, outputs, strict=True))
        answers = [once[pair] for pair in pairs]
        if len(once) > MOST_ONCE:
            once.clear()
        return answers

    def translate(file: str, segments: Sequence[Segment]) -> list[Record]:
        def inspect(order: Order) -> None:
            translator.inspect(order.words, f"{file}: {order.key}")

        return localised(segments, source, attempt, options, links, target, inspect)

    return translate, source, target


def _language(run: Path, side: str, code: str | None, known: Sequence[str]) -> str | None:
    """Code of a side: that of an option, else the only one of a run, if it has any."""
    if code is None and len(known) > 1:
        listed = ", ".join(known[:8]) + ", …" * (len(known) > 8)
        raise SettingError(f"{run} has several {side} languages; give --{side}-language: {listed}")
    return code or next(iter(known), None)


def checked_names(
    source: str | None, target: str | None, pattern: Path | None = None
) -> tuple[str | None, str | None]:
    """Codes of languages.  Raises SettingError for one that is none, or for a path of targets with
    an unknown placeholder."""
    for code in (source, target):
        check_tag(code)
    check_pattern(pattern)
    return source, target


def terms_in(path: Path | None, source: str | None, target: str | None) -> Glossary:
    """The glossary in a file, of two languages if it names them."""
    if path is None:
        return no_glossary
    with reading(path):
        content = path.read_bytes()
    with naming(path):
        if path.suffix.lower() == ".tbx":
            return Terms(read_tbx(content, source, target)).constraints
        text = decode(content).text
        rows = in_columns(text, source, target) if path.suffix.lower() == ".csv" else None
        return Terms(rows or read_entries(text, path.suffix.lower() == ".csv")).constraints


def documents_of(
    files: Sequence[Path],
    output: Path | None,
    in_place: bool,
    xliff: Path | None,
    format: str | None,
) -> tuple[dict[Path, Path], dict[Path, Path]]:
    """The file to write for each document, and for the files of directories that are none."""
    if not files:
        raise SettingError("missing argument FILE: Documents to translate, or directories of them")
    if (output is not None) + in_place + (xliff is not None) != 1:
        raise SettingError("give one of --output DIRECTORY, --in-place and --xliff FILE")
    named = {file: [*_files_in(file, output)] if file.is_dir() else [file] for file in files}
    suffixes = FORMATS if format is None else (f".{format}",)
    readable = {f: f.suffix.lower() in suffixes for several in named.values() for f in several}
    if format is None:
        readable = {
            f: known and (f in named or f.suffix not in DATA) for f, known in readable.items()
        }
    documents = [file for file, known in readable.items() if known or file in named]
    others = [file for file, known in readable.items() if not (known or file in named)]
    if not documents:
        raise SettingError(f"{files[0]} has no documents; name a directory or a file with some")
    if others:
        logger.warning("%d files have no known format, such as %s", len(others), others[0])
    if output is None:
        return {file: file for file in documents}, {file: file for file in others}
    tops = [(file if file.is_dir() else file.parent).absolute() for file in files]
    top = os.path.commonpath(tops)
    targets = {file: output / os.path.relpath(file, top) for file in (*documents, *others)}
    for file, target in targets.items():
        if target.exists() and target.samefile(file):
            raise SettingError(f"{target} is the document itself; give --in-place")
    return {file: targets[file] for file in documents}, {file: targets[file] for file in others}


def check_apart(results: Iterable[Path], inputs: Sequence[Path]) -> None:
    """Raise SettingError for a result that would replace an input."""
    for path in results:
        if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
            raise SettingError(f"{path} is an input, which this would replace; give another name")


def targets_of(
    documents: Collection[Path], pattern: Path | None, language: str | None
) -> dict[Path, Path]:
    """The target file of each base: the one that a path names, or for several bases in it as in
    their directory.

    documents: bases.  pattern: path, in which `{lang}` is the language.
    """
    if pattern is None or not documents:
        return {}
    target = target_path(pattern, language)
    if target.exists() and any(file.samefile(target) for file in documents if file.exists()):
        raise SettingError(f"{target} is the document itself; name the file of another language")
    if len(documents) == 1 and not target.is_dir() and target.suffix:
        return dict.fromkeys(documents, target)
    return below(target, {file: file for file in documents})


def below(output: Path | None, lasts: Mapping[Path, Path]) -> dict[Path, Path]:
    """The file of each target in an output, with its path below the directory of them all; without
    an output the target itself."""
    if output is None or not lasts:
        return dict(lasts)
    top = os.path.commonpath([path.absolute().parent for path in lasts.values()])
    return {file: output / os.path.relpath(path.absolute(), top) for file, path in lasts.items()}


def newest(tools: Sequence[Path | None]) -> int:
    """Time of the newest of the files that are there, and those in directories."""
    parts = [path for tool in tools if tool for path in (tool, *tool.glob("*"))]
    return max((path.stat().st_mtime_ns for path in parts if path.is_file()), default=0)


def lock_file(target: Path) -> Path:
    """The file of the lock of an output."""
    return target.with_name(f".{target.name}.lock")


def outdated(targets: Mapping[Path, Path], tools_time: int) -> dict[Path, Path]:
    """The files whose targets are not there, or not newer, they and their locks, than they and all
    of the tools."""
    left = {
        file: target
        for file, target in targets.items()
        if not target.exists()
        or not file.exists()
        or _made_at(target) <= max(tools_time, file.stat().st_mtime_ns)
    }
    if n_done := len(targets) - len(left):
        logger.info("%d files are there already; --only all writes them again", n_done)
    return left


def written_lock(target: Path) -> Lock | None:
    """The lock of an output, if it has one."""
    path = lock_file(target)
    if not path.exists():
        return None
    with reading(path):
        text = path.read_text("utf-8", "replace")
    with naming(path):
        return read_lock(text)


def with_kept(records: Sequence[Record], kept: Sequence[Record]) -> list[Record]:
    """Records, those of units that are kept in place of others."""
    by_key = {record.key: record for record in kept}
    return [*(by_key.pop(r.key, r) for r in records), *by_key.values()]


def keep_aside(target: Path, lost: Sequence[str]) -> None:
    """Copy an output to a file beside, and say what has no place in the new one."""
    names = (target.with_name(f"{target.name}.~{number}~") for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    with writing(str(aside)):
        shutil.copyfile(target, aside)
    logger.warning(
        "%s: the new one has no place for what people wrote (%s%s); the old one is kept as %s",
        target,
        lost[0],
        f" and {len(lost) - 1} others" if len(lost) > 1 else "",
        aside,
    )


def _made_at(target: Path) -> int:
    """Time of the translation of an output: it may have been changed by hand later."""
    return min(path.stat().st_mtime_ns for path in (target, lock_file(target)) if path.exists())


def copied(files: Mapping[Path, Path]) -> list[Record]:
    """The records of errors in the copies of files to their targets."""
    records = []
    for file, target in files.items():
        aside = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            make_directory(target.parent)
            with reading(file):
                shutil.copyfile(file, aside)
                aside.replace(target)
        except DataError as error:
            print_error(str(error))
            records.append(unread(str(error), str(file)))
    return records


def _files_in(directory: Path, output: Path | None) -> Iterator[Path]:
    """Files below a directory in order, without hidden files and the output; directories that
    cannot be read."""
    unreadable: list[Path] = []
    walk = os.walk(directory, onerror=lambda error: unreadable.append(Path(error.filename)))
    for folder, folders, names in walk:
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and (output is None or Path(folder, name).resolve() != output.resolve())
        )
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))
    yield from unreadable


class Work(NamedTuple):
    """Work on documents: how they are read and translated; those to review are collected.

    recalled_since: time after which translations that were made before are taken again, if at all.
    lasts: target files by their base files.
    """

    read: Callable[[Path], Document]
    parse: Callable[[Path, bytes], Document]
    translate: Translate
    reviewed: list[Translations] | None
    recalled_since: int | None
    lasts: Mapping[Path, Path] = MappingProxyType({})

    def written(self, file: Path, target: Path, is_trial: bool) -> Sequence[Record]:
        """Records of a document, which is written translated, or collected for a review; the last
        of an error is the error.  A trial is not taken for a translation later."""
        records: Sequence[Record] = ()
        try:
            document = self.read(file)
            last = self.lasts.get(file, target)
            lock = None if file == last or not last.exists() else written_lock(last)
            since = self.recalled_since
            if lock and since is not None and lock_file(last).stat().st_mtime_ns > since:
                document = lock.recalled(document)
            gaps = self._gaps(file, document, lock)
            made = document_with(gaps, self._translated(file, gaps.segments))
            records = made.records
            if self.reviewed is not None:
                self.reviewed.append(Translations(str(file), document.segments, records))
            else:
                if gaps is document:
                    made.check(f"{file}: ")
                make_directory(target.parent)
                if file == target:
                    with open_output(str(target)) as out:
                        out.write_bytes(made.content)
                else:
                    records = self._update(file, target, document, made, lock, is_trial)
                if is_trial or not all(record.is_done for record in records):
                    time = file.stat().st_mtime_ns  # not newer: the next call translates it again
                    os.utime(target, ns=(time, time))
                print_lines(str(target))
        except DataError as error:
            print_error(str(error))
            return [*records, unread(str(error).removeprefix(f"{file}: "))]
        if kept := [r for r in records if r.state == "kept" and r.reason]:
            logger.warning("%s: %d segments: %s; %s", file, len(kept), CHANGED, kept[0].key)
        if cut := [record.key for record in records if not record.is_finished]:
            logger.warning("%s: %d translations are %s; %s", file, len(cut), CUT_OFF, cut[0])
        left = [f"{r.key}: {r.reason}" for r in records if not r.is_done and r.reason]
        if left:
            counted = f"{len(left)} of {len(records)} segments are left as they are"
            logger.warning("%s: %s; %s", file, counted, left[0])
        return records

    def _translated(self, file: Path, segments: Sequence[Segment]) -> list[Record]:
        """Records of segments, which name a fuzzy match that was not taken."""
        records = self.translate(str(file), segments)
        return [
            dataclasses.replace(r, reason="; ".join(filter(None, (r.reason, s.origin))))
            if s.origin and not s.match
            else r
            for s, r in zip(segments, records, strict=True)
        ]

    def _gaps(self, file: Path, document: Document, lock: Lock | None) -> Document:
        """A document; a base with what its target lacks alone."""
        last = self.lasts.get(file)
        if last is None or not last.exists():
            return document
        with reading(last):
            target = Version(self.parse(last, last.read_bytes()))
        with naming(last):
            gaps = with_gaps(document, target, lock, functools.partial(self.parse, file))
        return with_matches(gaps)

    def _update(
        self,
        file: Path,
        target: Path,
        document: Document,
        made: LocalisedDocument,
        lock: Lock | None,
        is_trial: bool,
    ) -> Sequence[Record]:
        """Write a translated document with what people corrected in the last output, and its lock;
        its records."""
        records, content = made.records, made.content
        by_hand: Mapping[int, Written] = {}
        version = new = Version(self.parse(target, content))
        n_units = len(new.units)
        last = self.lasts.get(file, target)
        if last.exists():
            with reading(last):
                was = last.read_bytes()
            if was not in (content, file.read_bytes()):
                old = Version(self.parse(target, was))
                update = updated(document, new, old, lock)
                content, by_hand = update.content, update.units
                records = with_kept(records, update.records)
                version = Version(self.parse(target, content)) if by_hand else new
                parse = functools.partial(self.parse, target)
                merged = merged_target(version, old, parse) if file in self.lasts else None
                if merged is not None:
                    content, version = merged, Version(parse(merged))
                    corrected = {unit.key: unit for unit in by_hand.values()}
                    keys = [unit.key for unit in version.units]
                    by_hand = {i: corrected[key] for i, key in enumerate(keys) if key in corrected}
                    n_units = len(keys)
                elif lock is None and by_hand:
                    logger.warning("%s: without a lock, its texts count as corrections", target)
                lost = update.lost or (["its order and comments"] if file in self.lasts else [])
                if lost and merged is None:
                    keep_aside(last, lost)
        translated = () if is_trial else made.records
        lock = lock_of(document, translated, version, by_hand, n_units)
        with open_output(str(target)) as out:
            out.write_bytes(content)
        with open_output(str(lock_file(target))) as lines:
            lines.write(lock.lines())
        return records

    def checked(self, file: Path, glossary: Glossary) -> Sequence[Record]:
        """Records of the translations in a document; prints those with faults or warnings."""
        try:
            document = self.read(file)
            records = [*checked(document.segments, faults_by(glossary)), *document.unread]
        except DataError as error:
            print_error(str(error))
            return [unread(str(error).removeprefix(f"{file}: "))]
        for record in records:
            if record.reason or not record.is_done:
                warning = "warning: " if record.is_done else ""
                print_lines(f"{file}: {record.key}: {warning}{record.reason}")
        return records


def unread(reason: str, file: str = "") -> Record:
    """Record of a file that is not read."""
    return Record("", "", "", "unread", reason, file)
