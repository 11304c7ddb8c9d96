"""`transduce make` and `transduce doctor`: the best model for some files, and faults of parallel
data."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Parameter, validators

from transduce.cli.options import Flag, Machine
from transduce.cli.output import STDOUT, check_not_read, open_output, print_json, print_lines
from transduce.errors import SettingError
from transduce.support.work import available_cores

if TYPE_CHECKING:
    from transduce.cli.output import Output
    from transduce.data.encoded import Pair
    from transduce.examination.corpora import ExaminedCorpus
    from transduce.examination.examine import Examined, Scorer


Minutes = Annotated[float, Parameter(validator=validators.Number(gt=0), show_default=False)]
Files = Annotated[
    tuple[Path, ...], Parameter(name="--from", consume_multiple=True, show_default=False)
]

Paths = Annotated[tuple[Path, ...], Parameter(show_default=False)]
Names = Annotated[tuple[str, ...], Parameter(show_default=False)]


def make(
    *paths: Path,
    files: Files = (),
    minutes: Minutes | None = None,
    monolingual: Path | None = None,
    target_language: str = "",
    start: Path | None = None,
    test: Annotated[Paths, Parameter(consume_multiple=True)] = (),
    columns: Annotated[Names, Parameter(consume_multiple=True)] = (),
    task: Literal["translation", "spelling", "classification"] | None = None,
    destination: Annotated[
        Literal["page", "server", "anywhere"] | None, Parameter(name="--for")
    ] = None,
    run: Path = Path("runs/made"),
    resume: Flag = False,
    dry_run: Flag = False,
    json: Flag = False,
) -> int:
    """Make the best model for some files within some minutes, and an account of it.

    Recognises translation, spelling to sound, inflection, and classification of labelled texts;
    leaves out what is surely bad; holds out validation and test data; chooses settings by a
    measured table and the speed of this machine; trains an ordinary run, and evaluates it. The
    account is printed and written into the run, as account.html and account.json. Ctrl-C keeps the
    best so far; --resume goes on.

    Parameters
    ----------
    paths
        Files to learn from, as of --from.
    files
        A table (TSV, CSV, JSON lines, Parquet, XLSX), two files of lines, a folder, or documents
        with translations (TMX, PO, XLIFF).
    minutes
        Minutes for everything. Default: 30. With --resume, more minutes than before: a finished run
        goes on.
    monolingual
        File with a text of the target language on each line, to back-translate.
    target_language
        Code of the target language, such as de; needed for TMX.
    start
        Run to start from, trained here or imported: in the same minutes fine-tuning of it competes
        with training from nothing.
    test
        Files of the test, instead of pairs that are held out; they are left out of training.
    columns
        Names or numbers, from 1, of source and target in a table, by default recognised.
    task
        Kind of task, by default recognised.
    destination
        Where the model is to go: pages, the native engine of the server, or anywhere. By default
        candidates for all of them go first, unless another is clearly better.
    run
        Run directory to create. Default: runs/made.
    resume
        Go on with an interrupted call.
    dry_run
        Print what would be done, and the scores that the table expects in 10, 40 and 120 minutes.
    json
        Print a JSON object of run, scores and why.
    """
    from transduce.calls import MakeOptions, request_of
    from transduce.calls import make as make_run

    every = MakeOptions(
        minutes=minutes,
        monolingual=monolingual,
        target_language=target_language,
        start=start,
        test=test,
        columns=columns,
        task=task,
        destination=destination,
    )
    options = cast("MakeOptions", {name: value for name, value in every.items() if value})
    if dry_run:
        from transduce.making.forecast import forecast

        print_lines(*forecast(request_of((*paths, *files), options)).lines())
        return 0
    from transduce.training.signals import InterruptedTraining

    try:
        account = make_run(*(*paths, *files), run=run, resume=resume, **options)
    except InterruptedTraining:
        if (run / "account.html").is_file():
            sys.stderr.write(f"account of the best so far: {run / 'account.html'}\n")
        raise
    if json:
        print_json({"run": account.run, "scores": account.scores, "why": account.why("en")})
    else:
        print_lines(*account.lines(), "", f"{run}: {(run / 'account.html').resolve().as_uri()}")
    return 0


logger = logging.getLogger("transduce")

TOGETHER = 1000
"""Lines examined before their results are written."""
FAULTS = 3
"""Exit code if there are faults."""


def doctor(
    *files: Path,
    held_out: Annotated[Paths, Parameter(consume_multiple=True)] = (),
    column: Names = (),
    ignore: Names = (),
    run: Path | None = None,
    write: str | None = None,
    report: str | None = None,
    json: Flag = False,
    price: Flag = False,
    minutes: Minutes = 30.0,
    trainings: Annotated[Path, Parameter(show_default=False)] = Path("runs/prices"),
    machine: Machine = Machine(),
) -> int:
    """Find the faults of parallel data, and write it without them.

    FILES are a recipe (TOML file or run directory), whose splits are examined, a table (TSV, CSV,
    JSON lines, Parquet) or two files with a text on each line, plain or compressed. Prints a table
    of the kinds of faults with counts, shares and examples. Exit code: 0 without a fault, 3 with
    faults.

    Kinds: duplicate, near-duplicate, leak, length, language, alignment, empty, untranslated,
    encoding, entities, tags, placeholders, numbers, spreadsheet.

    Parameters
    ----------
    files
        Recipe, table or two files.
    held_out
        Test data, a table or two files, that must not be in FILES.
    column
        Column of the source, then of the target, in a table. Given twice.
    ignore
        Kind of fault that is none here. May be repeated.
    run
        Run directory of a translation model, to judge the alignment by its log-probability.
        Default: a lexicon learnt from the data.
    write
        File for the training pairs without faults: JSON lines, or TSV if named `.tsv`; complete or
        absent; compressed if named so. Beside it, FILE.limits.gz has the sample behind the limits,
        by which doctor judges the file later.
    report
        File for all faults, in tab-separated lines: file:line, kind, fault.
    json
        Print a JSON object for each line with faults, and the counts last.
    price
        Instead of the faults, print what leaving out each kind of them is worth to a training, by
        short trainings with and without; the same command goes on with them.
    minutes
        Minutes for --price. Default: 30.
    trainings
        Directory of the short trainings of --price. Default: runs/prices.
    """
    from transduce.calls import kinds_of_faults
    from transduce.examination.corpora import corpora_of, limits_file
    from transduce.examination.examine import examined
    from transduce.examination.report import Examination

    corpora = corpora_of(files, held_out, column)
    inputs = [path for corpus in corpora for path in corpus.config.files(corpus.root)]
    for output in (write, report):
        check_not_read(output, *inputs)
    kinds = kinds_of_faults(corpora, ignore)
    scorer = None if run is None else _scorer_of(run, machine)
    if price:
        if write or report:
            raise SettingError("--price writes no file; leave out --write and --report")
        lines = examined(corpora, kinds, scorer, functools.partial(_learn, corpora, None))
        return _print_prices(lines, trainings, minutes, json)
    table = Examination(kinds)
    is_file = write and write != STDOUT and (Path(write).is_file() or not Path(write).exists())
    limits = str(limits_file(write)) if write and is_file else None
    with contextlib.ExitStack() as stack:
        stdout, cleaned, listed, learned = (
            None if name is None else stack.enter_context(open_output(name))
            for name in (STDOUT, write, report, limits)
        )
        assert stdout is not None

        processes = machine.threads or available_cores()
        learn = functools.partial(_learn, corpora, learned)
        lines = examined(corpora, kinds, scorer, learn, processes)
        while batch := list(itertools.islice(lines, TOGETHER)):
            table.add(batch)
            faulty = [line for line in batch if line.faults]
            if json:
                stdout.write(map(_as_json, faulty))
            if listed is not None:
                listed.write(row for line in faulty for row in _listed(line))
            if cleaned is not None:
                trained = (line for line in batch if line.corpus.split == "train")
                sound = (line.pair for line in trained if not line.faults)
                cleaned.write(_as_pair(pair, write or "") for pair in sound)
        stdout.write([table.as_json()] if json else table.lines())
    return FAULTS if table.faulty else 0


def _learn(
    corpora: Sequence[ExaminedCorpus], learned: Output | None, sample: list[Pair]
) -> list[Pair]:
    """The sample to learn limits from, that of limits kept beside the pairs first; written."""
    from transduce.examination.corpora import kept_sample

    sample = kept_sample(corpora) or sample
    if learned is not None:
        learned.write(_as_pair(pair, "") for pair in sample)
    return sample


def _listed(line: Examined) -> Iterator[str]:
    """Lines of a report."""
    from transduce.examination.report import place, short

    return (f"{place(line)}\t{kind}\t{short(fault)}" for kind, fault in line.faults.items())


def _print_prices(lines: Iterator[Examined], trainings: Path, minutes: float, json: bool) -> int:
    from transduce.making.trials import priced

    prices, metric = priced(lines, trainings, minutes)
    rows = list(prices.rows(metric))
    if json:
        print_lines(*(dumps(row._asdict() | {"verdict": row.verdict}) for row in rows))
    else:
        print_lines(*map(str, rows), f"{prices.steps} steps a training, {metric} of a test")
    return 0


def _as_json(line: Examined) -> str:
    source, target = line.pair
    fields: dict[str, Any] = {"file": line.corpus.name, "line": line.line}
    fields |= {"split": line.corpus.split, "faults": dict(line.faults)}
    return dumps(fields | {"source": source, "target": target}, ensure_ascii=False)


def _as_pair(pair: Pair, name: str) -> str:
    from transduce.cli.inputs import is_named

    if is_named(name, ".tsv"):
        return "\t".join(" ".join(text.split()) for text in pair)
    return dumps({"source": pair[0], "target": pair[1]}, ensure_ascii=False)


def _scorer_of(run: Path, machine: Machine) -> Scorer:
    """Log-probability of the target for each of its characters."""
    model = machine.without_engine("doctor --run").load(run)

    def scores(pairs: Sequence[Pair]) -> list[float]:
        sums = model.score(pairs)
        each = zip(sums, pairs, strict=True)
        # nan, for a pair that is too long, is below nothing
        return [score / (len(target) + 1) for score, (_, target) in each]

    return scores
