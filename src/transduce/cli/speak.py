"""`transduce speak`: lines of text as WAV files."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from transduce.cli.console import print_error
from transduce.cli.inputs import texts_of_lines
from transduce.cli.lines import STDIN, LineReader, logger, shown
from transduce.cli.options import Flag, Machine
from transduce.cli.output import STDOUT, check_not_read, make_directory, open_output
from transduce.errors import DataError, InputError, TransduceError

if TYPE_CHECKING:
    from transduce.runs.run import Run
    from transduce.tasks.speech.spoken import Samples, Speech

ENDING = ".wav"
Speed = Annotated[float, Parameter(validator=validators.Number(gte=0.25, lte=4))]
PAUSE = 0.4
"""Seconds of silence between two lines in a file."""


def speak(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))],
    again: Flag = False,
    speed: Annotated[Speed | None, Parameter(show_default=False)] = None,
    speaker: Annotated[str | None, Parameter(show_default=False)] = None,
    machine: Machine = Machine(),
) -> int:
    """Synthesise lines of text as WAV files.

    Writes a file for each line into a directory, and its path to stdout; or all lines, with a pause
    between, into one file. A blank line has no file, and a blank path. Equal lines sound alike. A
    line that cannot be spoken is reported, the others are, and the exit status is 1.

    Parameters
    ----------
    run
        Run directory of speech synthesis.
    file
        Input file with a text per line, plain or compressed. Default: stdin (also -).
    output
        A name that ends in .wav for one file, - for a WAV file on stdout, or a directory for a file
        NUMBER.wav of each line.
    again
        Replace existing files. Default: they are kept, and the exit status is 1.
    speed
        Divisor of the durations of sounds. Default: the recipe's, 1. For a run of model.kind
        "monotonic".
    speaker
        Name of a speaker, of a run with several. Default: the first that `transduce info` names.
    """
    check_not_read(output, file)
    single = output == STDOUT or output.lower().endswith(ENDING)
    if single and output != STDOUT and Path(output).is_file() and not again:
        raise DataError(f"{output} exists; --again replaces it")
    lines = LineReader(file)
    model = machine.without_engine("speak").load(run)
    chosen: Any = model.synthesiser.speaking(speed, speaker)
    model = dataclasses.replace(model, predictor=chosen)
    speaking = _Speaking(model, lines)
    if single:
        speaking.write_one(output)
    else:
        speaking.write_each(Path(output), again)
    return 1 if speaking.failed else 0


class _Speaking:
    def __init__(self, model: Run, lines: LineReader) -> None:
        self.model = model
        self.rate = model.synthesiser.features.rate  # raises for a run that does not speak
        self.lines = lines
        self.failed = 0

    def write_one(self, output: str) -> None:
        """All lines in one file.  Raises DataError if there is no text."""
        import numpy as np

        from transduce.audio.write import wav_bytes

        pause = np.zeros(round(PAUSE * self.rate), np.float32)
        with open_output(output) as out:
            parts: list[Samples] = []
            for _, speech in self._speeches(quiet=False):
                if speech is not None:
                    parts += [pause, speech.samples] if parts else [speech.samples]
            if not parts:
                raise DataError(f"{self.lines.name} has no text to speak")
            out.write_bytes(wav_bytes(np.concatenate(parts), self.rate))

    def write_each(self, directory: Path, again: bool) -> None:
        """A file for each line, and its path to stdout; a blank line where none is written."""
        make_directory(directory)

        def file_of(number: int) -> Path:
            return directory / f"{number}{ENDING}"

        def refusal(number: int) -> str | None:
            path = file_of(number)
            return f"{path} exists; --again replaces it" if path.exists() and not again else None

        with open_output(STDOUT) as out:
            for number, speech in self._speeches(sys.stdout.isatty(), refusal):
                if speech is not None:
                    speech.save(file_of(number))
                out.write(["" if speech is None else str(file_of(number))])

    def _speeches(
        self, quiet: bool, refusal: Callable[[int], str | None] = lambda number: None
    ) -> Iterator[tuple[int, Speech | None]]:
        """Number of each line, from 1, and its speech; None for blank and failed lines.

        refusal: reason not to synthesise a line, by its number.
        """
        from transduce.support.work import chunks
        from transduce.tasks.speech.spoken import Speech
        from transduce.tasks.speech.synthesiser import SPOKEN_TOGETHER

        warned = False
        for batch in texts_of_lines(shown(self.lines, quiet), self.lines.name):
            number = batch.first
            for texts in chunks(batch.lines, SPOKEN_TOGETHER):
                numbered = enumerate(texts, number + 1)
                refused = [refusal(i) if text.strip() else None for i, text in numbered]
                spoken = ["" if no else text for text, no in zip(texts, refused, strict=True)]
                results = self.model.attempt(spoken, first=number)
                for result, reason in zip(results, refused, strict=True):
                    number += 1
                    speech = result if isinstance(result, Speech) and len(result.frames) else None
                    if reason is not None:
                        self._fail(number, reason)
                    elif isinstance(result, TransduceError):
                        self._fail(
                            number, result.reason if isinstance(result, InputError) else str(result)
                        )
                    elif speech is None and not warned:
                        logger.warning("line %d is empty; it has no speech (said once)", number)
                        warned = True
                    elif speech is not None and not speech.stopped:
                        logger.warning("line %d: the speech did not end, and is cut off", number)
                    yield number, speech

    def _fail(self, number: int, reason: str) -> None:
        print_error(f"line {number}: {reason}")
        self.failed += 1
