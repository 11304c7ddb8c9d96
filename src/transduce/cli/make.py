"""`transduce make`: files in, the best model for them out, with an account."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from transduce.cli.options import Flag
from transduce.cli.output import print_json, print_lines
from transduce.errors import SettingError

Minutes = Annotated[float, Parameter(validator=validators.Number(gt=0), show_default=False)]
DEFAULT_MINUTES = 30.0
Files = Annotated[
    tuple[Path, ...], Parameter(name="--from", consume_multiple=True, show_default=False)
]


def make(
    *paths: Path,
    files: Files = (),
    minutes: Minutes | None = None,
    monolingual: Path | None = None,
    target_language: str = "",
    run: Path = Path("runs/made"),
    resume: Flag = False,
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
    run
        Run directory to create. Default: runs/made.
    resume
        Go on with an interrupted call.
    json
        Print a JSON object of run, scores and why.
    """
    started = time.monotonic()
    files = (*paths, *files)
    if resume and (files or monolingual is not None):
        raise SettingError("--resume takes the files of the first call; leave them out")
    if not resume and not files:
        raise SettingError("nothing to learn from; give --from FILE, two files or a folder")
    if monolingual is not None and not monolingual.is_file():
        raise SettingError(f"--monolingual {monolingual}: no such file")
    from transduce.make.build import make as make_run
    from transduce.make.progress import Request
    from transduce.training.signals import InterruptedTraining

    request = None
    if not resume:
        names = [str(file.resolve()) for file in files]
        texts = "" if monolingual is None else str(monolingual.resolve())
        request = Request(names, minutes or DEFAULT_MINUTES, texts, target_language)
    try:
        account = make_run(run, request, minutes if resume else None, started)
    except InterruptedTraining:
        if (run / "account.html").is_file():
            sys.stderr.write(f"account of the best so far: {run / 'account.html'}\n")
        raise
    if json:
        print_json({"run": account.run, "scores": account.scores, "why": account.why("en")})
    else:
        print_lines(*account.lines(), "", f"{run}: {(run / 'account.html').resolve().as_uri()}")
    return 0
