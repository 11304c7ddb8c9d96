"""`transduce localise`: documents in, the same documents out, translated."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from transduce.cli.options import (
    THIS_MACHINE,
    TRANSLATED_AS_THE_RECIPE,
    Flag,
    Machine,
    TranslationDecoding,
)
from transduce.cli.output import open_output, print_lines
from transduce.errors import DataError, SettingError, reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transduce.localise.record import Record

logger = logging.getLogger("transduce")


def localise(
    run: Path,
    files: Annotated[tuple[Path, ...], Parameter(name="FILE")],
    /,
    *,
    source_language: str,
    output: Annotated[Path | None, Parameter(show_default=False)] = None,
    in_place: Flag = False,
    encoding: Annotated[str | None, Parameter(show_default=False)] = None,
    decoding: TranslationDecoding = TRANSLATED_AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> int:
    """Translate documents and keep their form.

    Formats: text, SRT and WebVTT subtitles, HTML. All but the translated text stays the same byte.
    Placeholders and tags come out exactly once; a segment in which they would not stays as it is,
    is reported, and makes the exit code 1. Prints the files written.

    Parameters
    ----------
    run
        Run directory of a translation model.
    files
        Documents; the suffix says the format.
    source_language
        Code of the language of the documents, for cutting sentences, such as de.
    output
        Directory for the translated documents, made if it is not there.
    in_place
        Replace the documents.
    encoding
        Encoding of the documents, where they have no byte order mark and name none. Default: UTF-8.
    """
    from transduce.localise.alignment import aligner
    from transduce.localise.formats import read_document
    from transduce.localise.translate import document_with, localised

    targets = _targets(files, output, in_place)
    documents = []
    for file in files:
        with reading(file):
            documents.append(read_document(str(file), file.read_bytes(), encoding))
    translator = machine.load_light(run).translator
    options = decoding.over(translator)
    translator.check(options)
    align, complete = aligner(translator), True
    for file, document, target in zip(files, documents, targets, strict=True):
        segments = document.segments
        records = localised(segments, source_language, translator.attempt, options, align)
        try:
            made = document_with(document, records)
            made.check()
        except DataError as error:
            raise DataError(f"{file}: {error}") from None
        complete = _all_translated(file, made.records) and complete
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_output(str(target)) as out:
            out.write_bytes(made.content)
        print_lines(str(target))
    return 0 if complete else DataError.exit_code


def _targets(files: Sequence[Path], output: Path | None, in_place: bool) -> list[Path]:
    """The file to write for each document."""
    if not files:
        raise SettingError("name documents to translate: transduce localise RUN FILE ...")
    if (output is not None) == in_place:
        raise SettingError("give either --output DIRECTORY or --in-place")
    if output is None:
        return list(files)
    targets = [output / file.name for file in files]
    for file, target in zip(files, targets, strict=True):
        if targets.count(target) > 1:
            raise SettingError(f"two documents are named {file.name}; translate them one by one")
        if target.exists() and target.samefile(file):
            raise SettingError(f"{target} is the document itself; give --in-place")
    return targets


def _all_translated(file: Path, records: Sequence[Record]) -> bool:
    """True if all of a document was translated; else a warning names the first that was not."""
    left = [f"{record.key}: {record.reason}" for record in records if not record.is_done]
    if left:
        logger.warning(
            "%s: %d of %d segments are left as they are; %s", file, len(left), len(records), left[0]
        )
    return not left
