"""`transduce transcribe` and `transduce speak`: recordings to text with times, lines of text to
WAV files."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from transduce.cli.console import print_error
from transduce.cli.inputs import STDIN, LineReader, logger, shown_input, texts_of_lines
from transduce.cli.options import (
    AS_IN_RECIPE,
    AuxiliaryModel,
    Decoding,
    Flag,
    Machine,
    chosen_options,
    with_decoding,
)
from transduce.cli.output import (
    STDOUT,
    Output,
    check_not_read,
    check_replaceable,
    make_directory,
    open_output,
)
from transduce.errors import DataError, InputError, SettingError, TransduceError
from transduce.runs.arguments import has_torch
from transduce.speech import MOST_SPEAKERS

if TYPE_CHECKING:
    from transduce.loading import Run
    from transduce.speech.segments import Segment
    from transduce.speech.speakers import Speakers
    from transduce.speech.spoken import Samples, Speech
    from transduce.speech.transcriber import Transcriber


FormatName = Literal["txt", "srt", "vtt", "tsv", "json", "jsonl"]
Columns = Annotated[int, Parameter(validator=validators.Number(gte=8, lte=1000))]
Lines = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10))]
SpeakerCount = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=MOST_SPEAKERS))]
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
    partial: Flag = False,
    channel: Annotated[str | None, Parameter(show_default=False)] = None,
    rate: Annotated[Rate | None, Parameter(show_default=False)] = None,
    language: Annotated[str | None, Parameter(show_default=False)] = None,
    task: Annotated[
        Literal["transcribe", "translate"] | None, Parameter(show_default=False)
    ] = None,
    prompt: Annotated[str | None, Parameter(show_default=False)] = None,
    language_model: AuxiliaryModel = None,
    then: Annotated[Path | None, Parameter(show_default=False)] = None,
    speakers: Annotated[Path | None, Parameter(show_default=False)] = None,
    n_speakers: Annotated[SpeakerCount | None, Parameter(show_default=False)] = None,
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
    partial
        Write words of stdin while they are spoken, some 2 s late; a word that is written stays. In
        jsonl as records with "partial" before that of their segment.
    channel
        Number of the channel to transcribe, from 1, or each for all of them in turn. Default:
        the mean of all channels.
    rate
        Samples a second of raw samples from stdin. Default: the rate of the run.
    language
        Spoken language, such as de, de-AT or german; auto to detect it in each window, or some
        to choose from, as de,en. For imported Whisper models; default: the recipe's.
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
    speakers
        Imported encoder of speakers, to name who spoke: A, B, … in every format. The text then
        comes at the end of a recording.
    n_speakers
        Number of speakers. Default: found by the encoder.
    """
    if words and form == "txt":
        raise SettingError("--words needs a format with times; add --format srt, vtt, tsv or json")
    if partial and (file or form not in ("txt", "jsonl") or then is not None):
        raise SettingError("--partial is for stdin and --format txt or jsonl, without --then")
    if speakers is not None and (partial or channel == "each"):
        raise SettingError("--speakers takes neither --partial nor --channel each; remove one")
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
        timed = words or ((form in ("srt", "vtt") or speakers is not None) and has_torch())
        translation = None if then is None else machine.load(then)
        transcriber = model.transcriber(
            options, language, task, prompt, timed, translation, _speakers(speakers, n_speakers)
        )
        writing = _Writing(transcriber, form, words, again, (max_line_length, max_lines))
        if not file:
            writing.write(out, _from_stdin(transcriber, rate, numbers, partial), STDIN)
            return 0
        for path, target in outputs:
            writing.one(path, target, out, numbers)
    return 1 if writing.failed else 0


def _speakers(encoder: Path | None, number: int | None) -> Speakers | None:
    """Settings of diarization; None without an encoder.  Raises SettingError."""
    if encoder is None:
        if number is not None:
            raise SettingError("--n-speakers describes speakers; add --speakers ENCODER")
        return None
    from transduce.speech.speakers import SpeakerEncoder, Speakers

    return Speakers(SpeakerEncoder(encoder), number or 0)


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
        """Write each segment as soon as it is recognised; warn where there is none."""
        from transduce.speech.segments import USUAL_LAYOUT, SubtitleLayout, written

        columns, lines = self.limits
        layout = SubtitleLayout(columns or USUAL_LAYOUT.columns, lines or USUAL_LAYOUT.lines)
        named = _with_warnings(segments, audio)
        for part in written(named, self.form, audio, self.words, layout):
            out.write_text(part)


def _with_warnings(segments: Iterator[Segment], audio: str) -> Iterator[Segment]:
    """The segments; a warning of each text that a guard has dropped, and where there is none."""
    from transduce.speech.segments import GUARDS

    is_silent = True
    for segment in segments:
        is_silent = is_silent and not segment.text
        if segment.dropped:
            times = f"{segment.start:.1f} to {segment.end:.1f} s"
            reason = GUARDS[segment.guard]
            logger.warning("%s, %s: not written, as %s: %s", audio, times, reason, segment.dropped)
        yield segment
    if is_silent:
        logger.warning("%s: no speech was heard; amplify the recording if it is quiet", audio)


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
    transcriber: Transcriber,
    rate: int | None,
    channel: int | Literal["each"] | None,
    partial: bool,
) -> Iterator[Segment]:
    from transduce.speech.audio import pipe_blocks

    assert channel != "each"
    if sys.stdin is None:
        raise DataError("stdin is closed; give FILE or connect stdin")
    needed = transcriber.rate
    blocks = pipe_blocks(sys.stdin.buffer, needed, rate or needed, "stdin", channel)
    if partial:
        return transcriber.transcribe_open(blocks)
    return transcriber.transcribe(blocks, live=True)


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
    if single and output != STDOUT:
        check_replaceable(Path(output), again)
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

        from transduce.speech.audio_files import wav_bytes

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
        from transduce.speech.spoken import Speech
        from transduce.speech.synthesiser import SPOKEN_TOGETHER
        from transduce.support.work import chunks

        warned = False
        for batch in texts_of_lines(shown_input(self.lines, quiet), self.lines.name):
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
