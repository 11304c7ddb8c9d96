"""`transduce translate`: one line out for every line in, in the same order."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from transduce.cli.bulk import FILE_BY_FILE, BulkOptions, translate_files, translator_spec
from transduce.cli.inputs import Table, texts_of_lines
from transduce.cli.lines import STDIN, LineBatch, LineReader, shown
from transduce.cli.options import (
    AUXILIARY_AS_THE_RECIPE,
    THIS_MACHINE,
    AuxiliaryDecoding,
    Count,
    Flag,
    Machine,
)
from transduce.cli.output import STDOUT, Output, check_not_read, open_output
from transduce.cli.records import ErrorCount, read_records, with_options
from transduce.errors import SettingError

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.run import Run
    from transduce.tasks.translation.quality_estimation import QualityEstimator
    from transduce.tasks.translation.translations import Translation

SOURCE = "source"
TRANSLATION = "translation"
"""Field of a record, and column of a table, with a text and with its translation."""


def translate(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    output: Annotated[str, Parameter(show_default=False)] = STDOUT,
    n_best: Count | None = None,
    jsonl: Flag = False,
    column: Annotated[str | None, Parameter(show_default=False)] = None,
    confidence: Flag = False,
    ensemble: tuple[Path, ...] = (),
    language_model: Path | None = None,
    draft: Path | None = None,
    stream: Flag = False,
    bulk: BulkOptions = FILE_BY_FILE,
    decoding: AuxiliaryDecoding = AUXILIARY_AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Translate lines of text, from a file or as they come.

    Every line gives one line, in order, as soon as it is there; a blank line gives a blank one.
    Bytes that are not UTF-8 are replaced, with a warning; another one, said once, tells of what no
    training text had, such as letters in another case.

    Parameters
    ----------
    run
        A run directory.
    file
        One text a line, plain or compressed; without it, or with -, stdin.
    output
        File to write instead of stdout; it appears when it is complete.
    n_best
        Write up to N lines `id ||| text ||| score` for each input line, best first. The id
        counts input lines from 0; a blank line has one line, with no text and score 0.
    jsonl
        Lines are JSON objects with the field "source". They come back with all their fields
        and "translation", "score", "tokens", and for --n-best N above 1 "n_best". Any setting of
        the recipe's section decoding may be a field too: "prefix", "constraints", "beam_size". A
        record without a translation, such as one whose source is null, has the field "error".
    column
        Column of the texts in a CSV or TSV file whose first line names its columns; its rows come
        back with a further column "translation". With --jsonl, the field of the texts; with --ray,
        the column of Parquet files.
    confidence
        With --jsonl: also "confidence", the mean probability of a token, "token_log_probs", and
        after `transduce calibrate` "quality", the chrF to expect.
    ensemble
        Another run with the same vocabularies, to decode with both; may be given several times.
    language_model
        A run of a language model with the target's vocabulary, whose word counts as well.
    draft
        A smaller run with the same vocabularies that guesses ahead, line by line, for --beam-size
        1: the same output, sooner.
    stream
        Write each translation as it grows, one line after the other.
    """
    if stream and (jsonl or n_best is not None):
        raise SettingError("--stream shows one text as it grows; leave out --jsonl and --n-best")
    if column is not None and not (jsonl or bulk.ray) and (stream or n_best is not None):
        raise SettingError("--column gives a table; leave out --n-best and --stream")
    if confidence and not jsonl:
        raise SettingError("--confidence adds fields to JSON records; add --jsonl")
    others = {"n-best": n_best is not None, "jsonl": jsonl, "stream": stream}
    bulk.check(others | {"draft": draft is not None})
    if bulk.ray:
        spec = translator_spec(run, ensemble, language_model, decoding, machine)
        translate_files(bulk, spec, file, output, column)
        return
    check_not_read(output, file)
    lines = LineReader(file)
    with open_output(output) as out:
        model = machine.load_together(run, ensemble, language_model, draft)
        options = decoding.over(model.translator, n_best or (None if jsonl else 1))
        model.translator.check(options)
        judge = _judge(model) if confidence else None
        quiet = output == STDOUT and sys.stdout.isatty()
        batches = shown(lines, quiet)
        if jsonl:
            _translate_records(model, batches, out, lines.name, column or SOURCE, options, judge)
            return
        if column is not None:
            for rows in Table(lines.name, (column,), TRANSLATION).read(batches):
                found = model.translate_batch([t for (t,) in rows.inputs], options, rows.first)
                out.write(rows.answered(_best(found)))
                if rows.error is not None:
                    raise rows.error
            return
        for batch in texts_of_lines(batches, lines.name):
            if stream:
                for number, text in enumerate(batch.lines, batch.first):
                    with contextlib.closing(model.stream(text, options, number)) as parts:
                        for part in parts:
                            out.write_text(part)
                    out.write_text("\n")
            else:
                found = model.translate_batch(batch.lines, options, batch.first)
                out.write(_best(found) if n_best is None else _n_best(batch.first, found))


def _translate_records(
    model: Run,
    batches: Iterable[LineBatch],
    out: Output,
    name: str,
    field: str,
    options: DecodingOptions,
    judge: QualityEstimator | None,
) -> None:
    """Translate the texts under a field of JSON records."""
    errors = ErrorCount(name)
    for batch in batches:
        records = read_records(batch, name, (field,))
        each = with_options(records, name, options, model.translator.check)
        sources = [source for (source,) in records.inputs]
        found = model.translate_batch(sources, each, batch.first)
        more = judge.fields(sources, found) if judge else [{}] * len(found)
        answers = [
            _fields(one, own.n_best) | extra
            for one, own, extra in zip(found, each, more, strict=True)
        ]
        out.write(records.answered(answers))
        errors.note(records)
        if records.error is not None:
            raise records.error
    errors.tell()


def _judge(model: Run) -> QualityEstimator:
    from transduce.tasks.translation.quality_estimation import QualityEstimator, load_quality

    return QualityEstimator(model.translator, load_quality(model.path))


def _fields(translation: Translation, n_best: int) -> dict[str, Any]:
    fields = translation.fields()
    if n_best > 1:
        fields["n_best"] = [{"text": c.text, "score": c.score} for c in translation.candidates]
    return fields


def _best(found: Iterable[Translation]) -> Iterator[str]:
    return (translation.text for translation in found)


def _n_best(first: int, found: Iterable[Translation]) -> Iterator[str]:
    for number, translation in enumerate(found, first):
        for candidate in translation.candidates:
            yield f"{number} ||| {candidate.text} ||| {candidate.score:.6f}"
        if not translation.candidates:
            yield f"{number} |||  ||| {0:.6f}"
