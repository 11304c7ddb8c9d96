"""Commands as functions of Python: `transduce.make`, `doctor`, `export`, `import_model`, `sweep`.

Options are typed dictionaries, so that a type checker finds one that is misspelt; at run time it is
a SettingError.  No import of torch before a call.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from transduce.errors import SettingError
from transduce.support.work import available_cores

if TYPE_CHECKING:
    from transduce.examination.corpora import ExaminedCorpus
    from transduce.examination.report import Examination
    from transduce.experiments.sweep import Sweep
    from transduce.interop.new_language import NewLanguage
    from transduce.loading import Run
    from transduce.making.account import Account
    from transduce.making.data import Request
    from transduce.making.plan import Destination, Kind
    from transduce.runs.exporting import Format

logger = logging.getLogger("transduce")

PathLike = str | os.PathLike[str]
DEFAULT_MINUTES = 30.0
LEAST_LABELLED = 50
"""Pairs, at least, to take few targets for labels."""


class MakeOptions(TypedDict, total=False):
    """Options of `make`, those of `transduce make`; None is the default.

    destination: that of `--for`.
    """

    minutes: float | None
    monolingual: PathLike | None
    target_language: str
    start: PathLike | None
    test: Sequence[PathLike]
    columns: Sequence[str]
    task: Kind | None
    destination: Destination | None


class DoctorOptions(TypedDict, total=False):
    """Options of `doctor`.

    held_out: files of test data that must not be in training.  columns: of source and target in a
    table.  ignore: kinds of faults that are none here.
    """

    held_out: Sequence[PathLike]
    columns: Sequence[str]
    ignore: Sequence[str]


class ExportOptions(TypedDict, total=False):
    """Options of `export`.  languages: codes of source and target, for `argos`.  again: replace a
    file."""

    form: Format
    precision: Literal["float32", "int8"]
    languages: tuple[str, str]
    again: bool


class ImportOptions(TypedDict, total=False):
    """Options of `import_model`.

    overrides: settings of the recipe, as `a.b=value`.  language: to add to a model of many.
    languages: codes of source and target.  overwrite: replace an existing run.
    """

    overrides: Sequence[str]
    language: NewLanguage
    languages: tuple[str, str]
    overwrite: bool


class SweepOptions(TypedDict, total=False):
    """Options of `sweep`.

    overrides: `a.b=value,value`, and in a search `a.b=low..high`.  directory: of the runs.  search:
    trials instead of a grid.  jobs: runs at a time.  resume: go on with a sweep.
    """

    overrides: Sequence[str]
    directory: Path
    search: int
    jobs: int
    resume: bool


def _check_names(call: str, options: Mapping[str, Any], kind: Any) -> None:
    """Raise SettingError for an option that a call lacks."""
    from transduce.settings.sections import did_you_mean

    for name in options:
        if name not in kind.__annotations__:
            raise SettingError(
                f"{call}: no option {name}{did_you_mean(name, kind.__annotations__)}"
            )


def make(
    *files: PathLike,
    run: PathLike = "runs/made",
    resume: bool = False,
    **options: Unpack[MakeOptions],
) -> Account:
    """Make the best model for some files within some minutes, as `transduce make` does.

    files: a table, two files of lines, a folder or documents.  run: directory to create.  resume:
    go on with an interrupted run, or with more minutes with a finished one.

    Returns the account, which a notebook shows; `transduce.load(run)` loads the model.  Raises
    SettingError, DataError and RunError for wrong calls and data, and InterruptedTraining.

    >>> account = transduce.make("pairs.tsv", run="runs/mine", minutes=40)
    """
    started = time.monotonic()
    _check_names("make", options, MakeOptions)
    minutes = options.get("minutes")
    if resume and (files or {*options} - {"minutes"}):
        raise SettingError("--resume takes the files of the first call; leave them out")
    if minutes is not None and not 0 < minutes < math.inf:
        raise SettingError(f"--minutes {minutes:g} is not above 0 and finite")
    request = None if resume else request_of(files, options)
    from transduce.making.build import make as make_run

    return make_run(Path(run), request, minutes if resume else None, started)


def request_of(files: Sequence[PathLike], options: MakeOptions) -> Request:
    """The files and options of a call of `make`.  Raises SettingError for wrong ones."""
    monolingual, start = options.get("monolingual"), options.get("start")
    columns, tested = options.get("columns") or (), options.get("test") or ()
    if not files:
        raise SettingError("nothing to learn from; give --from FILE, two files or a folder")
    if monolingual is not None and not Path(monolingual).is_file():
        raise SettingError(f"--monolingual {monolingual}: no such file")
    if start is not None and not (Path(start) / "recipe.toml").is_file():
        raise SettingError(
            f"--start {start}: no run there; `transduce import` makes one of a model"
        )
    if len(columns) not in (0, 2):
        raise SettingError("--columns takes two names or numbers, of source and target")
    from transduce.making.data import Request

    return Request(
        _absolute(*files),
        options.get("minutes") or DEFAULT_MINUTES,
        _absolute(monolingual)[0] if monolingual else "",
        options.get("target_language") or "",
        _absolute(start)[0] if start else "",
        _absolute(*tested),
        list(columns),
        options.get("task") or "",
        options.get("destination") or "",
    )


def _absolute(*paths: PathLike) -> list[str]:
    return [str(Path(path).resolve()) for path in paths]


def doctor(*files: PathLike, **options: Unpack[DoctorOptions]) -> Examination:
    """Count the faults of parallel data by kind, with examples; a notebook shows them as a table.

    files: a recipe, a run, a table or two files of lines.  `transduce doctor --write` writes data
    without them.  Raises SettingError for other files and kinds, DataError for damaged ones.

    >>> faults = transduce.doctor("pairs.tsv").counts
    """
    _check_names("doctor", options, DoctorOptions)
    from transduce.examination.corpora import corpora_of, kept_sample
    from transduce.examination.examine import examined
    from transduce.examination.report import Examination

    held_out = [Path(file) for file in options.get("held_out", ())]
    corpora = corpora_of([Path(file) for file in files], held_out, options.get("columns", ()))
    kinds = kinds_of_faults(corpora, options.get("ignore", ()))
    examination = Examination(kinds)
    for line in examined(
        corpora,
        kinds,
        learn=lambda sample: kept_sample(corpora) or sample,
        processes=available_cores(),
    ):
        examination.add([line])
    return examination


def kinds_of_faults(corpora: Sequence[ExaminedCorpus], ignore: Sequence[str]) -> list[str]:
    """Kinds of faults to look for: of texts with labels, those that are none of a translation; of a
    task that copies, all but untranslated pairs.

    Raises SettingError for a kind to ignore that there is not.
    """
    from transduce.data.encoded import has_text
    from transduce.examination.examine import KINDS, kinds_of_task
    from transduce.making.data import DROPPED, SAMPLE, kind_of
    from transduce.settings.sections import did_you_mean

    for kind in ignore:
        if kind not in KINDS:
            raise SettingError(f"--ignore {kind}: no such kind{did_you_mean(kind, KINDS)}")
    kinds = [kind for kind in KINDS if kind not in ignore]
    trained = (pair for corpus in corpora if corpus.split == "train" for _, pair in corpus.pairs())
    sample = [pair for pair in itertools.islice(trained, SAMPLE) if has_text(pair)]
    if len(sample) >= LEAST_LABELLED and kind_of(sample) == "classification":
        logger.info("texts with labels: faults of translations are not looked for")
        return [kind for kind in kinds if kind in (*DROPPED["classification"], "leak")]
    return kinds_of_task(kinds, sample)


def export(run: PathLike, directory: PathLike, **options: Unpack[ExportOptions]) -> Path:
    """Export a run for another program or as a web page; returns the path.

    directory: to create, a file for `argos`, `html` and `npm`.  Raises RunError for a run that the
    form cannot hold, or a path that exists, and SettingError for options that do not fit.

    >>> page = transduce.export("runs/mine", "page.html", form="html")
    """
    _check_names("export", options, ExportOptions)
    from transduce.runs.exporting import export_run

    return export_run(run, directory, **options)


def import_model(directory: PathLike, run: PathLike, **options: Unpack[ImportOptions]) -> Run:
    """Import a model of Hugging Face, CTranslate2, Marian or OpenNMT-py, and load it.

    directory: as of `transduce import`.  run: directory to create.  Raises DataError for a model
    that is not supported, RunError if the run exists.

    >>> run = transduce.import_model("opus-mt-de-en", "runs/de-en")
    """
    _check_names("import_model", options, ImportOptions)
    from transduce.loading import load
    from transduce.runs.importing import import_run

    return load(import_run(directory, run, **options))


def sweep(recipe: PathLike, **options: Unpack[SweepOptions]) -> Sweep:
    """Train a recipe over a grid or search of hyperparameters; a notebook shows the scores.

    recipe: a TOML file, or the directory of a sweep to resume.  Raises SettingError if nothing
    varies, RunError if the directory cannot be used.

    >>> done = transduce.sweep("recipe.toml", overrides=["seed=1,2"])
    """
    _check_names("sweep", options, SweepOptions)
    from transduce.experiments.sweep import sweep as run_sweep
    from transduce.training.distributed import check_single_process

    check_single_process("sweep")
    return run_sweep(Path(recipe), **options)
