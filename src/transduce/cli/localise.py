"""`transduce localise`: documents in, the same documents out, translated."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from cyclopts import Parameter

from transduce.cli.console import print_error
from transduce.cli.options import (
    AS_IN_RECIPE,
    THIS_MACHINE,
    Decoding,
    Flag,
    Machine,
    chosen_options,
    with_decoding,
)
from transduce.cli.output import make_directory, open_output, print_lines
from transduce.decoding.options import MOST_PHRASES, DecodingOptions
from transduce.errors import DataError, SettingError, TransduceError, reading
from transduce.localise.checks import checked, pseudo_translated
from transduce.localise.document import Document, Segment, State
from transduce.localise.exchange import Exchange, Translations, written_xliff
from transduce.localise.formats import DATA, FORMATS, read_document
from transduce.localise.memory import with_matches
from transduce.localise.record import Record, untranslated
from transduce.localise.report_page import report_page
from transduce.localise.terms import Glossary, Terms, no_glossary, read_entries
from transduce.localise.translate import Translated, document_with, localised

Translate = Callable[[str, Sequence[Segment]], list[Record]]
"""Records of the segments of a document of a name."""
STATES: dict[str, tuple[State, ...]] = {
    "missing": ("missing",),
    "fuzzy": ("missing", "fuzzy"),
    "all": ("missing", "fuzzy", "translated"),
}
"""States of the segments that are translated, by the option `only`."""
logger = logging.getLogger("transduce")


@with_decoding("translation")
def localise(
    run: Path,
    files: Annotated[tuple[Path, ...], Parameter(name="FILE", show_default=False)] = (),
    /,
    *,
    source_language: Annotated[str | None, Parameter(show_default=False)] = None,
    target_language: Annotated[str | None, Parameter(show_default=False)] = None,
    output: Annotated[Path | None, Parameter(show_default=False)] = None,
    in_place: Flag = False,
    xliff: Annotated[Path | None, Parameter(show_default=False)] = None,
    merge: Annotated[Path | None, Parameter(show_default=False)] = None,
    check: Flag = False,
    pseudo: Flag = False,
    only: Literal["missing", "fuzzy", "all"] = "missing",
    memory: Annotated[tuple[Path, ...], Parameter(show_default=False)] = (),
    glossary: Annotated[Path | None, Parameter(show_default=False)] = None,
    report: Annotated[Path | None, Parameter(show_default=False)] = None,
    format: Annotated[str | None, Parameter(show_default=False)] = None,
    encoding: Annotated[str | None, Parameter(show_default=False)] = None,
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> int:
    """Translate documents and keep their form.

    Formats: text, SRT and WebVTT subtitles, HTML, Markdown, DOCX, PO, XLIFF, Android, Apple, Qt,
    JSON, ARB, YAML, properties, TMX, CSV. All else stays the same byte. Placeholders and tags come
    out exactly once; a segment in which they would not stays as it is, is reported, and makes the
    exit code 1, as does a document that cannot be translated; the others are. Translations beside
    their sources are marked for review. Prints the files written.

    Parameters
    ----------
    run
        Run directory of a translation model; - or none for --check, --pseudo and --merge, and for
        --xliff without translations.
    files
        Documents, whose suffixes say the format, and directories of them.
    source_language
        Code of the language of the documents, for cutting sentences, such as de. Default: the one
        in the run's recipe.
    target_language
        Code of the language to translate into, for a run of several, such as en.
    output
        Directory for the translated documents, made if it is not there. They keep their paths below
        the directory that holds them all.
    in_place
        Replace the documents.
    xliff
        XLIFF file for a review, written instead of the documents, with all their segments.
    merge
        Such a file with reviewed translations, which are written into the documents.
    check
        Write nothing, but name the translations in the documents that do not keep placeholders and
        tags; the exit code is 1 if there are any.
    pseudo
        Write accents instead of a translation, as a test of what is translated.
    only
        Segments to translate in documents that hold translations: those without one, also the fuzzy
        ones, or all but those that are approved or locked.
    memory
        TMX, PO or another document with translations, which equal segments get. May be repeated.
    glossary
        Terms, each a line of source, tab and target; their forms have | between them.
    report
        JSON Lines file with a record for each segment: file, key, source, target, state, reason; of
        the suffix .html, a page.
    format
        Suffix by which all documents are read, such as po, whatever their names.
    encoding
        Encoding of the documents, where they have no byte order mark and name none. Default: UTF-8.
    """
    needs_run = not (check or pseudo or merge or (xliff and (run.is_file() or not files)))
    files = files if needs_run else (run, *files)  # a `-` for the run is no argument
    documents, others = _documents(files, output, in_place or check, xliff, format)
    if needs_run:
        languages = (source_language, target_language)
        translate, source_language, target_language = _translation(
            run, *languages, decoding, machine, _terms(glossary)
        )
    else:
        translate = _without_run(pseudo, merge)

    def read(file: Path) -> Document:
        with reading(file):
            content = file.read_bytes()
        return read_document(
            str(file), content, encoding, format=format, target_language=target_language
        )

    known = [segment for file in memory for segment in read(file).segments]

    def read_part(file: Path) -> Document:
        document = with_matches(read(file), known) if needs_run else read(file)
        return document.limited(STATES["all" if check else only])

    work = _Work(read_part, translate, None if xliff is None else [])
    records: list[Record] = []
    for file, target in documents.items():
        made = work.checked(file) if check else work.written(file, target)
        records += (dataclasses.replace(record, file=str(file)) for record in made)
    if xliff is not None:
        with open_output(str(xliff)) as out:
            codes = (source_language or "und", target_language or "und")
            out.write_bytes(written_xliff(work.reviewed or (), *codes))
        print_lines(str(xliff))
    if report is not None:
        _report(report, [*records, *(_unread("no format", str(file)) for file in others)])
    return 0 if all(r.is_done or not r.reason for r in records) else DataError.exit_code


def _report(path: Path, records: Sequence[Record]) -> None:
    is_page = path.suffix == ".html"
    with open_output(str(path)) as lines:
        lines.write(report_page(records) if is_page else (record.line() for record in records))


def _without_run(pseudo: bool, merge: Path | None) -> Translate:
    """Pseudo-translation, the translations of an XLIFF file, or none."""
    if pseudo:
        return lambda file, segments: pseudo_translated(segments)
    if merge is None:
        return lambda file, segments: [untranslated(s.key, s.source, "") for s in segments]
    with reading(merge):
        content = merge.read_bytes()
    try:
        return Exchange(content).records
    except DataError as error:
        raise DataError(f"{merge}: {error}") from None


def _translation(
    run: Path,
    source: str | None,
    target: str | None,
    decoding: Decoding,
    machine: Machine,
    terms: Glossary,
) -> tuple[Translate, str, str | None]:
    """Translation of segments by a run, and the codes of its languages, if it has them."""
    from transduce.localise.alignment import aligner

    translator = machine.load(run).translator
    if target is not None:
        translator = translator.between(source, target)
    options = chosen_options(translator, decoding)
    translator.check(options)
    sources, targets = translator.recipe.languages.sources, translator.recipe.target_languages
    if source is None and len(sources) != 1:
        number = "several source languages" if sources else "no source language"
        raise SettingError(f"the recipe of {run} names {number}; give --source-language de")
    source = source or sources[0]
    target = target or (targets[0] if len(targets) == 1 else None)
    links = aligner(translator)

    def attempt(
        texts: Sequence[str], options: Sequence[DecodingOptions]
    ) -> Sequence[Translated | TransduceError]:
        required = [
            dataclasses.replace(o, constraints=(*o.constraints, *terms(text))[:MOST_PHRASES])
            for text, o in zip(texts, options, strict=True)
        ]
        return translator.attempt(texts, required)

    def translate(file: str, segments: Sequence[Segment]) -> list[Record]:
        return localised(segments, source, attempt, options, links, target)

    return translate, source, target


def _terms(path: Path | None) -> Glossary:
    """The glossary in a file."""
    if path is None:
        return no_glossary
    with reading(path):
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        return Terms(read_entries(text, path.suffix.lower() == ".csv")).constraints
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _documents(
    files: Sequence[Path],
    output: Path | None,
    in_place: bool,
    xliff: Path | None,
    format: str | None,
) -> tuple[dict[Path, Path], list[Path]]:
    """The file to write for each document, and the files of directories that are none."""
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
    others = [file for file in readable if file not in documents]
    if not documents:
        raise SettingError(f"{files[0]} has no documents; name a directory or a file with some")
    if others:
        logger.warning("%d files have no known format, such as %s", len(others), others[0])
    if output is None:
        return {file: file for file in documents}, others
    tops = [(file if file.is_dir() else file.parent).absolute() for file in files]
    top = os.path.commonpath(tops)
    targets = {file: output / os.path.relpath(file, top) for file in documents}
    for file, target in targets.items():
        if target.exists() and target.samefile(file):
            raise SettingError(f"{target} is the document itself; give --in-place")
    return targets, others


def _files_in(directory: Path, output: Path | None) -> Iterator[Path]:
    """Files below a directory in order, without hidden files and the output."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and (output is None or Path(folder, name).resolve() != output.resolve())
        )
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


class _Work(NamedTuple):
    """Work on documents: how they are read and translated; those to review are collected."""

    read: Callable[[Path], Document]
    translate: Translate
    reviewed: list[Translations] | None

    def written(self, file: Path, target: Path) -> Sequence[Record]:
        """Records of a document, which is written translated, or collected for a review; the last
        of an error is the error."""
        records: Sequence[Record] = ()
        try:
            document = self.read(file)
            made = document_with(document, self.translate(str(file), document.segments))
            records = made.records
            if self.reviewed is not None:
                self.reviewed.append(Translations(str(file), document.segments, records))
            else:
                made.check(f"{file}: ")
                make_directory(target.parent)
                with open_output(str(target)) as out:
                    out.write_bytes(made.content)
                print_lines(str(target))
        except DataError as error:
            print_error(str(error))
            return [*records, _unread(str(error).removeprefix(f"{file}: "))]
        left = [f"{r.key}: {r.reason}" for r in records if not r.is_done and r.reason]
        if left:
            counted = f"{len(left)} of {len(records)} segments are left as they are"
            logger.warning("%s: %s; %s", file, counted, left[0])
        return records

    def checked(self, file: Path) -> Sequence[Record]:
        """Records of the translations in a document; prints those that are faulty."""
        try:
            document = self.read(file)
            records = [*checked(document.segments), *document.unread]
        except DataError as error:
            print_error(str(error))
            return [_unread(str(error).removeprefix(f"{file}: "))]
        for record in records:
            if not record.is_done:
                print_lines(f"{file}: {record.key}: {record.reason}")
        return records


def _unread(reason: str, file: str = "") -> Record:
    return Record("", "", "", "unread", reason, file)
