"""`transduce transcribe`: the text of recordings of any length, with times."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from transduce.cli.console import print_error
from transduce.cli.lines import STDIN
from transduce.cli.options import (
    AS_IN_RECIPE,
    AuxiliaryModel,
    Decoding,
    Flag,
    Machine,
    chosen_options,
    with_decoding,
)
from transduce.cli.output import STDOUT, Output, make_directory, open_output
from transduce.errors import DataError, SettingError, TransduceError
from transduce.runs.engine import has_torch

if TYPE_CHECKING:
    from transduce.tasks.speech.segments import Segment
    from transduce.tasks.speech.transcriber import Transcriber

FormatName = Literal["txt", "srt", "vtt", "tsv", "json", "jsonl"]
Columns = Annotated[int, Parameter(validator=validators.Number(gte=8, lte=1000))]
Lines = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10))]
Rate = Annotated[int, Parameter(validator=validators.Number(gte=1000, lte=768_000))]


@with_decoding("speech", "language-model")
def transcribe(
    run: Path,
    /,
    *file: Annotated[str, Parameter(show_default=False)],
    form: Annotated[FormatName, Parameter(name="--format")] = "txt",
    words: Flag = False,
    max_line_length: Annotated[Columns | None, Parameter(show_default=False)] = None,
    max_lines: Annotated[Lines | None, Parameter(show_default=False)] = None,
    output_directory: Annotated[Path | None, Parameter(show_default=False)] = None,
    again: Flag = False,
    channel: Annotated[str | None, Parameter(show_default=False)] = None,
    rate: Annotated[Rate | None, Parameter(show_default=False)] = None,
    language: Annotated[str | None, Parameter(show_default=False)] = None,
    task: Annotated[
        Literal["transcribe", "translate"] | None, Parameter(show_default=False)
    ] = None,
    prompt: Annotated[str | None, Parameter(show_default=False)] = None,
    language_model: AuxiliaryModel = None,
    then: Annotated[Path | None, Parameter(show_default=False)] = None,
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> int:
    """Transcribe recordings of any length, with times.

    Silence, steady noise and tones are left out; the rest is recognised in pieces of at most 30 s.
    A run of speech translation gives the text in its target language. A recording that cannot be
    read is reported, the others are transcribed, and the exit status is 1.

    Parameters
    ----------
    run
        Run directory of speech recognition or speech translation.
    file
        Recordings: WAV, FLAC, OGG, Opus, MP3, AIFF, AU; with the extra containers M4A, MP4, WebM.
        Default: stdin (also -), transcribed as it comes: WAV, or raw 16-bit samples of one channel.
    form
        txt writes the text of each segment in a line; srt and vtt subtitles; tsv a table with
        times in milliseconds; json an object for each recording, jsonl for each segment.
    words
        Write each word with its time: as a subtitle or line of its own, in JSON as a list. PyTorch
        finds them for an imported Whisper, also with --engine native and for subtitles.
    max_line_length
        Maximum columns of a line of a subtitle; wide characters of East Asia take two. Default: 42.
    max_lines
        Maximum lines of a subtitle. Default: 2.
    output_directory
        Write a file for each recording, NAME.FORMAT, into this directory. Default: stdout.
    again
        Replace existing files in --output-directory. Default: such recordings are passed over.
    channel
        Number of the channel to transcribe, from 1, or each for all of them in turn. Default:
        the mean of all channels.
    rate
        Samples a second of raw samples from stdin. Default: the rate of the run.
    language
        Spoken language, such as de, de-AT or german, or auto to detect it in the beginning. For
        imported Whisper models; default: the recipe's.
    task
        Write the spoken words, or their translation into English. For imported Whisper models;
        default: the recipe's.
    prompt
        Text before the recording; outputs follow its names and spelling. For imported
        Whisper models.
    language_model
        Run of a language model for shallow fusion; requires the same vocabulary.
    then
        Run of translation, which translates each segment: a cascade. In JSON "transcript" has the
        spoken words.
    """
    if words and form == "txt":
        raise SettingError("--words needs a format with times; add --format srt, vtt, tsv or json")
    if rate is not None and file:
        raise SettingError("--rate applies to raw samples from stdin; remove it")
    for name, limit in (("line-length", max_line_length), ("lines", max_lines)):
        if limit is not None and form not in ("srt", "vtt"):
            raise SettingError(f"--max-{name} applies to --format srt and vtt; remove it")
    numbers = _channel(channel, live=not file)
    outputs = _outputs(file, form, output_directory)
    with open_output(STDOUT) as out:
        model = machine.load_together(run, (), language_model)
        plain = model.transcriber()
        options = chosen_options(plain.recogniser, decoding)
        timed = words or (form in ("srt", "vtt") and has_torch())
        translation = None if then is None else machine.load(then)
        transcriber = model.transcriber(options, language, task, prompt, timed, translation)
        writing = _Writing(transcriber, form, words, again, (max_line_length, max_lines))
        if not file:
            writing.write(out, _from_stdin(transcriber, rate, numbers), STDIN)
            return 0
        for path, target in outputs:
            writing.one(path, target, out, numbers)
    return 1 if writing.failed else 0


class _Writing:
    def __init__(
        self,
        transcriber: Transcriber,
        form: FormatName,
        words: bool,
        again: bool,
        limits: tuple[int | None, int | None],
    ) -> None:
        self.transcriber = transcriber
        self.form = form
        self.words = words
        self.again = again
        self.limits = limits
        self.failed = 0

    def one(
        self, path: str, target: Path | None, out: Output, channel: int | Literal["each"] | None
    ) -> None:
        """Transcribe a file to its own output, or to stdout; report an error."""
        if target is not None and target.exists() and not self.again:
            print_error(f"{path}: {target} exists; --again replaces it")
            return
        try:
            if channel == "each":
                segments = self.transcriber.transcribe_channels(Path(path), path)
            else:
                segments = self.transcriber.transcribe_file(Path(path), path, channel)
            if target is None:
                self.write(out, segments, path)
                return
            with open_output(str(target)) as file:
                self.write(file, segments, path)
        except SettingError:
            raise
        except TransduceError as error:
            print_error(str(error))
            self.failed += 1

    def write(self, out: Output, segments: Iterator[Segment], audio: str) -> None:
        """Write each segment as soon as it is recognised."""
        from transduce.tasks.speech.segments import USUAL_LAYOUT, SubtitleLayout, written

        columns, lines = self.limits
        layout = SubtitleLayout(columns or USUAL_LAYOUT.columns, lines or USUAL_LAYOUT.lines)
        for part in written(segments, self.form, audio, self.words, layout):
            out.write_text(part)


def _outputs(
    files: tuple[str, ...], form: FormatName, directory: Path | None
) -> list[tuple[str, Path | None]]:
    """Each file, and its output; None for stdout.  Raises SettingError."""
    if directory is None:
        if len(files) > 1 and form not in ("txt", "json", "jsonl"):
            raise SettingError(
                f"--format {form} is a file for each recording; add --output-directory"
            )
        return [(file, None) for file in files]
    if not files:
        raise SettingError("--output-directory needs recordings; stdin goes to stdout")
    sources: dict[Path, str] = {}
    for file in files:
        target = directory / f"{Path(file).stem}.{form}"
        if target in sources:
            raise SettingError(
                f"{sources[target]} and {file} would both be written to {target}; transcribe them "
                "into different directories"
            )
        sources[target] = file
    make_directory(directory)
    return [(file, target) for target, file in sources.items()]


def _channel(channel: str | None, live: bool) -> int | Literal["each"] | None:
    """Number of a channel from 0, "each", or None for the mean.  Raises SettingError."""
    if channel is None:
        return None
    if channel == "each" and not live:
        return "each"
    if not (channel.isascii() and channel.isdigit() and 1 <= int(channel) <= 1024):
        allowed = "a number from 1" if live else 'a number from 1, or "each"'
        raise SettingError(f"--channel must be {allowed}, not {channel!r}")
    return int(channel) - 1


def _from_stdin(
    transcriber: Transcriber, rate: int | None, channel: int | Literal["each"] | None
) -> Iterator[Segment]:
    from transduce.audio.pipe import pipe_blocks

    assert channel != "each"
    if sys.stdin is None:
        raise DataError("stdin is closed; give FILE or connect stdin")
    needed = transcriber.rate
    blocks = pipe_blocks(sys.stdin.buffer, needed, rate or needed, "stdin", channel)
    return transcriber.transcribe(blocks, live=True)
