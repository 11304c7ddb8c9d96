"""`transduce speak`: lines of text as WAV files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from transduce.cli.console import print_error
from transduce.cli.inputs import texts_of_lines
from transduce.cli.lines import STDIN, LineReader, logger, shown
from transduce.cli.options import THIS_MACHINE, Flag, Machine
from transduce.cli.output import STDOUT, check_not_read, open_output
from transduce.errors import DataError

if TYPE_CHECKING:
    from transduce.run import Run
    from transduce.tasks.speech.spoken import Speech

ENDING = ".wav"
PAUSE = 0.4
"""Seconds of silence between two lines in one file."""


def speak(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))],
    again: Flag = False,
    machine: Machine = THIS_MACHINE,
) -> int:
    """Speak lines of text, as WAV files.

    Writes a file for each line into a directory, and its path to stdout; or all lines, with a pause
    between, into one file. A blank line has no file, and a blank path. Equal lines sound alike.

    Parameters
    ----------
    run
        Run directory of speech synthesis.
    file
        Input file with one text per line, plain or compressed. Default: stdin (also -).
    output
        A name that ends in .wav for one file, - for a WAV file on stdout, or a directory for a file
        NUMBER.wav of each line.
    again
        Replace existing files. Default: they are kept, and the exit status is 1.
    """
    check_not_read(output, file)
    lines = LineReader(file)
    model = machine.load(run)
    machine.check_no_engine("speak")
    spoken = _spoken(model, lines, quiet=output != STDOUT and sys.stdout.isatty())
    if output == STDOUT or output.lower().endswith(ENDING):
        _write_one(output, spoken, again)
        return 0
    return _write_each(Path(output), spoken, again)


def _spoken(model: Run, lines: LineReader, quiet: bool) -> Iterator[tuple[int, Speech]]:
    """Number of each line, from 1, and its speech; reports blank lines once."""
    told = False
    synthesiser = model.synthesiser
    for batch in texts_of_lines(shown(lines, quiet), lines.name):
        found = synthesiser.speak(batch.lines, batch.first)
        for number, one in enumerate(found, batch.first + 1):
            if not len(one.samples) and not told:
                logger.warning("line %d is empty; there is no speech of it (reported once)", number)
                told = True
            elif not one.stopped:
                logger.warning("line %d: the speech did not end, and is cut off", number)
            yield number, one


def _write_one(output: str, spoken: Iterator[tuple[int, Speech]], again: bool) -> None:
    """All lines in one file.  Raises DataError for one that exists."""
    import numpy as np

    from transduce.audio.write import wav_bytes

    if output != STDOUT and Path(output).is_file() and not again:
        raise DataError(f"{output} exists; --again replaces it")
    with open_output(output) as out:
        parts: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []
        rate = 0
        for _, one in spoken:
            rate = one.rate
            if len(one.samples):
                pause = np.zeros(round(PAUSE * rate) if parts else 0, np.float32)
                parts += [pause, one.samples]
        if not parts:
            raise DataError("the input has no text to speak")
        out.write_bytes(wav_bytes(np.concatenate(parts), rate))


def _write_each(directory: Path, spoken: Iterator[tuple[int, Speech]], again: bool) -> int:
    """A file for each line; the exit status is 1 if one exists already."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{directory} cannot be written: {error.strerror or error}") from None
    kept = 0
    with open_output(STDOUT) as out:
        for number, one in spoken:
            path = directory / f"{number}{ENDING}"
            if not len(one.samples):
                out.write([""])
                continue
            if path.exists() and not again:
                print_error(f"line {number}: {path} exists; --again replaces it")
                kept += 1
            else:
                one.save(path)
            out.write([str(path)])
    return 1 if kept else 0
