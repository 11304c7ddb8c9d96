"""`transduce localise`: documents in, the same documents out, translated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from transduce.cli.options import AS_IN_RECIPE, Decoding, Flag, Machine, with_decoding
from transduce.errors import DataError, SettingError

if TYPE_CHECKING:
    from transduce.localise.document import Record


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
    target: Annotated[Path | None, Parameter(show_default=False)] = None,
    xliff: Annotated[Path | None, Parameter(show_default=False)] = None,
    review: Annotated[Path | None, Parameter(show_default=False)] = None,
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
    machine: Machine = Machine(),
) -> int:
    """Translate documents and keep their form.

    Formats: text, SRT, WebVTT and ASS subtitles, HTML, Markdown, RST, AsciiDoc, DOCX, PPTX, XLSX,
    ODF, EPUB, PO, XLIFF, Android, Apple, Qt, JSON, ARB, YAML, TOML, INI, PHP, desktop entries,
    USFM, properties, RESX, Fluent, TMX, CSV. All else stays the same byte. Placeholders and tags
    come out exactly once; a segment in which they would not stays as it is, is reported, and makes
    the exit code 1, as does a document that cannot be translated; the others are.
    Translations beside their sources are marked for review. Prints the files written.

    Parameters
    ----------
    run
        Run directory of a translation model; - or none for --check, --pseudo and --merge, and for
        --xliff without translations; - for a --memory alone.
    files
        Documents, whose suffixes say the format, and directories of them.
    source_language
        Code of the language of the documents, for cutting sentences, such as de. Default: the one
        in the run's recipe.
    target_language
        Code of the language to translate into, for a run of several, such as en.
    output
        Directory for the translated documents, made if it is not there. They keep their paths below
        the directory that holds them all, as do the other files of a directory. Documents that are
        there complete, newer than their sources, the run and the other files, stay; in others what
        was corrected by hand does.
    in_place
        Replace the documents, or with --target their target files.
    target
        Target file of the document, in which people have its keys translated, such as
        locales/{lang}.json; of a directory, a directory. Only keys that it lacks and those whose
        source has changed are translated; its order, comments and all else stay.
    xliff
        XLIFF file for a review, written instead of the documents, with all their segments.
    review
        The same as a page, FILE.html, on which people approve and correct, and save such a file.
    merge
        Such a file with reviewed translations, which are written into the documents. Languages that
        are not given are those that it names.
    check
        Write nothing, but name the translations in the documents that do not keep placeholders,
        tags, numbers, terms of a glossary or a limit of length; the exit code is 1 if there are
        any. Differences in marks, blanks, quotes, words and lengths are warnings.
    pseudo
        Write accents instead of a translation, as a test of what is translated.
    only
        Segments to translate in documents that hold translations: those without one, also the fuzzy
        ones, or all but those that are approved or locked; with all, also documents that are there
        in the output.
    memory
        TMX, PO or another document with translations, which equal segments get; of those that are
        75 % like one, the report says so. May be repeated.
    glossary
        Terms, each a line of source, tab and target, CSV or TBX; forms have | between them.
    report
        JSON Lines file with a record for each segment: file, key, source, target, state, reason; of
        the suffix .html, a page.
    format
        Suffix by which all documents are read, such as po, whatever their names.
    encoding
        Encoding of the documents, where they have no byte order mark and name none. Default: UTF-8.
    """
    from transduce.cli import documents as steps

    if memory and (check or pseudo):
        raise SettingError("--memory is for translations; leave it out with --check and --pseudo")
    asked = steps.checked_names(source_language, target_language, target)
    xliff = review.with_suffix(".html") if review else xliff
    has_run = not (run.is_file() or not files)
    needs_run = not (check or pseudo or merge or ((xliff or memory) and not has_run))
    files = files if needs_run else (run, *files)  # a `-` for the run is no argument
    documents, others = steps.documents_of(files, output, in_place or check, xliff, format)
    inputs = (*documents, *others, *memory, *filter(None, (merge, glossary)))
    steps.check_apart(filter(None, (xliff, report)), inputs)
    tools_time = steps.newest((run if needs_run else None, merge, glossary, *memory))
    if output is not None and only == "missing" and not (pseudo or target):
        documents = steps.outdated(documents, tools_time)
    if not (needs_run and documents):
        translate, *codes = steps.without_run(pseudo, merge, memory, *asked)
    else:
        translate, *codes = steps.translation_by(run, *asked, decoding, machine, glossary)
    languages = steps.checked_names(codes[0], codes[1])
    lasts = steps.targets_of(documents, target, languages[1])
    documents = steps.below(output, lasts) or documents
    states = steps.STATES["all" if check else only]
    reader = steps.DocumentReader(encoding, format, *languages, states)
    read = reader.with_memory(memory if needs_run or memory else None, xliff is not None)
    since = tools_time if only == "missing" else None
    work = steps.Work(read, reader.parsed, translate, [] if xliff else None, since, lasts)
    terms = steps.terms_in(glossary if check else None, *languages)
    records: list[Record] = []
    for file, path in documents.items():
        made = work.checked(file, terms) if check else work.written(file, path, pseudo)
        records += (dataclasses.replace(record, file=str(file)) for record in made)
    records += steps.copied(steps.outdated(others, 0) if output else {})
    steps.write_xliff(xliff, work.reviewed or (), *languages)
    steps.write_report(report, [*records, *(steps.unread("no format", str(f)) for f in others)])
    return 0 if all(r.is_done or not r.reason for r in records) else DataError.exit_code
