"""Recipes of speech recognition and speech translation, with the features of their recordings.

Shapes: b rows, t frames, f bins.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, SettingError
from transduce.metrics.measure import check_metric
from transduce.nn.stack_configs import max_sequence_length
from transduce.settings.sections import section
from transduce.speech.features import SMALLEST_DEVIATION, AudioConfig, Frames, WhisperMel
from transduce.speech.model_config import SpecAugmentConfig, SpeechConfig
from transduce.speech.prompt import PromptConfig
from transduce.speech.recording_store import (
    FeatureMaking,
    RecordingFilterConfig,
    RecordingStore,
    StoredRow,
    cached_recordings,
)
from transduce.speech.recordings import RecordingsConfig, fingerprint, read_recordings
from transduce.speech.windows import FILLED, GAP
from transduce.tasks.recipe import (
    Recipe,
    Split,
    SplitsConfig,
    base_settings,
    check_recompute,
    check_selection,
    digest_of,
    named_base,
    own_section,
    place_of,
    sampled,
    source_of,
    with_base_run,
)
from transduce.text import SubwordConfig, TokenizerConfig
from transduce.training.config import FineTuneConfig, TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.sequence import Padded


logger = logging.getLogger("transduce")

Speed = Annotated[float, Field(ge=0.5, le=2)]


@section
class RecordingDataConfig(SplitsConfig):
    """Recordings for training, validation and test."""

    train: RecordingsConfig | None = None
    valid: RecordingsConfig | None = None
    test: RecordingsConfig | None = None
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.05
    """Share of the training recordings to hold out for each split without a file."""
    hold_out_by: Literal["text", "speaker", "recording"] = "text"
    """Recordings that stay together: of a text, or of a speaker.  "recording" is for data of
    few texts, such as digits, all of which must be learnt."""
    filters: RecordingFilterConfig = RecordingFilterConfig()
    speeds: tuple[Speed, ...] = (1.0,)
    """Factors of tempo and pitch for copies of each training recording, such as [0.9, 1.0, 1.1];
    other splits are unchanged."""

    def __post_init__(self) -> None:
        if 1.0 not in self.speeds or len(set(self.speeds)) < len(self.speeds):
            raise SettingError(
                f"data.speeds is {list(self.speeds)}; give different speeds, 1.0 among them"
            )


@dataclass(frozen=True)
class SplitRecordings:
    """The recordings of a split, a subset of a store."""

    store: RecordingStore
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> tuple[Frames, str]:
        """Frames (t, f) of recording i of this split, not normalised, and its text."""
        return self.store.frames(int(self.rows[i])).astype(np.float32), self._row(i).text

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) frames of each recording."""
        return self.store.lengths[self.rows]

    @property
    def texts(self) -> list[str]:
        """The text of each, on a single line."""
        return [" ".join(self._row(i).text.split()) for i in range(len(self))]

    @property
    def transcripts(self) -> list[str]:
        """The spoken words of each, on a single line; blank without separate transcripts."""
        return [" ".join(self._row(i).transcript.split()) for i in range(len(self))]

    @property
    def names(self) -> list[str]:
        """Name of each recording: its file as the data write it."""
        return [self._row(i).name for i in range(len(self))]

    @property
    def speakers(self) -> list[str]:
        """Speaker of each; empty where the data have none."""
        return [self._row(i).speaker for i in range(len(self))]

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> SplitRecordings:
        """Some of these, by number in this split or by a mask (n,)."""
        return SplitRecordings(self.store, self.rows[chosen])

    def sample(self, count: int) -> SplitRecordings:
        """At most `count` of these, selected by their texts."""
        chosen = sampled(enumerate(self.texts), count, lambda item: item[1])
        return self.select(np.array([i for i, _ in chosen], np.int64))

    def padded(self, rows: NDArray[np.int64]) -> Padded:
        """Frames (b, t, f) float32 of recordings by number in this split, not normalised."""
        return padded_frames([self.store.frames(i).astype(np.float32) for i in self.rows[rows]])

    def statistics(self) -> tuple[Frames, Frames]:
        """Mean (f,) and deviation (f,) of all frames, float32."""
        total = np.zeros(self.store.bins)
        squares = np.zeros(self.store.bins)
        for row in self.rows:
            frames = self.store.frames(row).astype(np.float64)
            total += frames.sum(0)
            squares += np.square(frames).sum(0)
        count = max(1, int(self.lengths.sum()))
        mean = total / count
        deviation = np.sqrt(np.maximum(0, squares / count - mean**2))
        return mean.astype(np.float32), deviation.astype(np.float32)

    def _row(self, i: int) -> StoredRow:
        return self.store.rows[int(self.rows[i])]


def padded_frames(rows: Sequence[Frames | Tensor]) -> Padded:
    """Pad frames (t, f) of several recordings on the right with zeros, to (b, t, f)."""
    import torch

    from transduce.sequence import Padded

    lengths = torch.tensor([len(row) for row in rows])
    values = torch.nn.utils.rnn.pad_sequence([*map(torch.as_tensor, rows)], batch_first=True)
    real = torch.arange(values.shape[1]) < lengths[:, None]
    return Padded(values, real, "none" if bool(real.all()) else "right")


def normalised(frames: Padded, mean: Tensor, deviation: Tensor) -> Padded:
    """Frames (b, t, f) with mean 0 and deviation 1 in each bin, and 0 at padding.

    mean, deviation: (f,) of the training data, or (b, 1, f) of each recording.
    """
    values = (frames.values - mean) / (deviation + SMALLEST_DEVIATION)
    return frames.with_values(values.masked_fill(~frames.real[:, :, None], 0.0))


def utterance_statistics(frames: Padded) -> tuple[Tensor, Tensor]:
    """Mean and deviation (b, 1, f) of the real frames of each recording (b, t, f)."""
    real = frames.real[:, :, None]
    count = frames.lengths.clamp(min=1)[:, None, None]
    mean = frames.values.masked_fill(~real, 0.0).sum(1, keepdim=True) / count
    squares = (frames.values - mean).masked_fill(~real, 0.0).square().sum(1, keepdim=True)
    return mean, (squares / count).sqrt()


def check_longest(data: RecordingDataConfig, positions: int, room: int | None, stack: str) -> None:
    """Raises SettingError if the longest recording needs more positions than a stack has.

    room: learned positions of the stack; None for no limit.
    """
    if room is not None and room < positions:
        raise SettingError(
            f"data.filters.max_seconds = {data.filters.max_seconds:g} needs {positions} learned "
            f"positions, but there are {room}; lower it, or raise model.{stack}.max_positions"
        )


def recordings_to_train(
    data: RecordingDataConfig, audio: AudioConfig, cache: Path, processes: int
) -> dict[Split, SplitRecordings]:
    """Recordings for training and validation.  Raises DataError if a split has none.

    data, audio: sections of the recipe.  cache: directory of features.  processes: that compute
    them.
    """
    splits: dict[Split, SplitRecordings] = {}
    for split in ("train", "valid"):
        recordings = read_recordings_of(data, audio, split, cache, processes)
        if not len(recordings):
            raise DataError(
                f"data.hold_out leaves no recordings to {split} with; change it, or set data.valid"
            )
        logger.info(
            "%s: %d recordings; of the data: %s", split, len(recordings), recordings.store.report
        )
        splits[split] = recordings
    return splits


def read_recordings_of(
    data: RecordingDataConfig, audio: AudioConfig, split: Split, cache: Path, processes: int = 1
) -> SplitRecordings:
    """Recordings of a split, their features computed into `cache` if missing.

    Held-out splits of the training data go by the spoken words, or by `hold_out_by`.  Raises
    DataError if reading fails.

    audio: the section of the recipe.  processes: that compute features.
    """
    source = source_of(data, split, "recordings")
    speeds = data.speeds if own_section(data, split) is None else (1.0,)
    store = _stored(source.section, data, audio, speeds, cache, processes)
    if source.is_whole:
        return SplitRecordings(store, np.arange(len(store)))
    chosen = source.holds(np.array([place_of(_key(row, data.hold_out_by)) for row in store.rows]))
    if split != "train":
        chosen &= np.array([row.speed == 1.0 for row in store.rows])
    return SplitRecordings(store, np.flatnonzero(chosen))


def _key(row: StoredRow, by: Literal["text", "speaker", "recording"]) -> str:
    if by == "text":
        return row.transcript or row.text
    if by == "recording":
        return row.name
    if not row.speaker:
        raise DataError(
            f'{row.name} has no speaker; set data.hold_out_by = "text", or name the column of '
            "speakers"
        )
    return row.speaker


def _stored(
    config: RecordingsConfig,
    data: RecordingDataConfig,
    audio: AudioConfig,
    speeds: tuple[float, ...],
    cache: Path,
    processes: int,
) -> RecordingStore:
    from transduce.training.log import ProgressCounter

    root = Path(data.root)
    making = FeatureMaking(audio, data.filters, speeds)
    mark = fingerprint(config, root)
    # With the settings, for runs side by side that take the same recordings in other ways.
    name = f"recordings-{mark[:16]}-{digest_of(making.facts())[:8]}"
    with ProgressCounter("computing features") as count:
        return cached_recordings(
            lambda: read_recordings(config, root), making, cache / name, mark, count.to, processes
        )


PARTLY_FILLED = 0.25
"""Share of the windows that are filled up to a random length, as most recordings are short."""
FRAMES = 100
"""Frames a second."""


class JoinedWindow(NamedTuple):
    """Recordings, by number in their split, and the first and last second of each."""

    rows: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    def frames(self, data: SplitRecordings) -> Frames:
        """Frames (t, f) of the window."""
        if len(self.rows) == 1:
            return data[self.rows[0]][0]
        starts = [round(start * FRAMES) for start in self.starts]
        return WhisperMel.joined([data[i][0] for i in self.rows], starts)


def single_windows(data: SplitRecordings) -> list[JoinedWindow]:
    """A window for each recording."""
    return [JoinedWindow((i,), (0.0,), (FILLED,)) for i in range(len(data))]


def joined_windows(data: SplitRecordings, seed: int) -> list[JoinedWindow]:
    """Windows of recordings of one speaker, in random order.

    A window costs the same time with any number of recordings.
    """
    random = np.random.default_rng(seed)
    seconds = [WhisperMel.sounding(data[i][0]) / FRAMES for i in range(len(data))]
    speakers = data.speakers
    windows: list[JoinedWindow] = []
    room = 0.0
    for i in sorted(random.permutation(len(data)).tolist(), key=speakers.__getitem__):
        begin = windows[-1].ends[-1] + GAP if windows else 0.0
        if windows and speakers[windows[-1].rows[0]] == speakers[i] and begin + seconds[i] <= room:
            rows, starts, ends = windows.pop()
            window = JoinedWindow((*rows, i), (*starts, begin), (*ends, begin + seconds[i]))
        else:
            window = JoinedWindow((i,), (0.0,), (seconds[i],))
            room = FILLED * (random.random() if random.random() < PARTLY_FILLED else 1.0)
        windows.append(window)
    return windows


TRANSCRIPTS = "transcript_tokenizer"
"""Name of the tokenizer of CTC, in `text` and as a file of the run."""


@section
class SpeechTextConfig:
    """Tokenizer of the texts."""

    tokenizer: TokenizerConfig = SubwordConfig()
    """By default, the tokenizer of the base run in fine-tuning."""


@section
class SpeechTranslationTextConfig(SpeechTextConfig):
    """Tokenizers of the translations and of the transcripts."""

    transcript_tokenizer: TokenizerConfig = SubwordConfig()
    """Tokenizer of the transcripts, the target of CTC."""


@section
class SpeechTrainingConfig(TrainingConfig):
    """Training settings of models with a CTC head."""

    ctc_weight: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """Weight w of CTC in the loss, (1 - w) · cross-entropy + w · CTC; a model without a CTC head is
    trained by cross-entropy alone."""


@section
class SpeechEvaluation:
    """Evaluation settings."""

    target_language: str = ""
    """Code of the language of the texts, such as "de" or "zh"; some metrics need it."""
    metrics: tuple[str, ...] = ("word-error-rate", "character-error-rate")
    """Metrics of the test and of each validation."""
    validation_recordings: Annotated[int, Field(ge=0)] = 200
    """Recordings decoded by greedy search at each validation, a fixed sample of the validation set;
    0 to validate by loss alone."""

    def __post_init__(self) -> None:
        for name in self.metrics:
            check_metric(name)


@section
class SpeechTranslationEvaluation(SpeechEvaluation):
    """Evaluation settings of speech translation."""

    metrics: tuple[str, ...] = ("bleu", "chrf")
    """Metrics of the translations, at the test and at each validation."""


@section
class SpeechRecipe(Recipe):
    """Base of the recipes of tasks from speech to text."""

    inherited = ("text.tokenizer", f"text.{TRANSCRIPTS}", "audio")

    data: RecordingDataConfig
    audio: AudioConfig = AudioConfig()
    augmentation: SpecAugmentConfig = SpecAugmentConfig()
    text: SpeechTextConfig = SpeechTextConfig()
    model: SpeechConfig = SpeechConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run, whose weights are the start."""
    prompt: PromptConfig | None = None
    """Prompt of an imported Whisper model."""
    training: SpeechTrainingConfig = SpeechTrainingConfig()
    decoding: DecodingOptions = DecodingOptions(stop="exact")
    evaluation: SpeechEvaluation = SpeechEvaluation()

    @classmethod
    def with_base(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings with those of the base run; of an imported Whisper, prompt and search too."""
        base = named_base(settings)
        is_run = base is not None and (base / "recipe.toml").is_file()
        imported = is_run and base is not None and "prompt" in base_settings(base)
        more = ("prompt", "decoding") if imported else ()
        return with_base_run(settings, cls.bases, (*cls.inherited, *more))

    def __post_init__(self) -> None:
        check_stop(self.decoding)
        room = max_sequence_length(self.model.encoder)
        longest = self.model.front_end.positions(
            round(self.data.filters.max_seconds / self.audio.extractor().seconds)
        )
        check_longest(self.data, longest, room, "encoder")
        check_recompute(self.training, self.model.encoder, self.model.decoder)
        measured = self.evaluation.metrics if self.evaluation.validation_recordings else ()
        check_selection(self.training.select_by, ("loss", *measured))


@section
class SpeechRecognitionRecipe(SpeechRecipe):
    """Recipe of speech recognition."""

    bases = ("speech-recognition",)

    task: Literal["speech-recognition"] = "speech-recognition"


@section
class SpeechTranslationRecipe(SpeechRecipe):
    """Recipe of speech translation: the words of another language, and the transcript by CTC."""

    bases = ("speech-translation", "speech-recognition")

    task: Literal["speech-translation"] = "speech-translation"
    text: SpeechTranslationTextConfig = SpeechTranslationTextConfig()
    evaluation: SpeechTranslationEvaluation = SpeechTranslationEvaluation()

    @classmethod
    def with_base(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings with those of the base run; of a run that only recognises, its tokenizer is
        the transcripts'."""
        base, text = named_base(settings), settings.get("text", {})
        if base is not None and isinstance(text, Mapping) and TRANSCRIPTS not in text:
            theirs = base_settings(base)
            if theirs.get("task") == "speech-recognition" and "tokenizer" in theirs.get("text", {}):
                text = {**text, TRANSCRIPTS: theirs["text"]["tokenizer"]}
                settings = {**settings, "text": text}
        return super().with_base(settings)


def check_stop(options: DecodingOptions) -> None:
    """Raises SettingError for a search that text repeated to the maximum length would win.

    Scores divided by the length rise to 0 with tokens that cost nothing, and the maximum of a
    recording has little to do with its words.
    """
    by_length = options.length_penalty == "gnmt" and options.alpha >= 1
    by_length = by_length or options.length_penalty == "mean"
    if options.method == "beam" and options.stop == "exact" and by_length:
        raise SettingError(
            'decoding.stop = "exact" needs a length penalty below the length itself, as repeated '
            'text would win; set decoding.stop = "first", or decoding.length_penalty = "gnmt" with '
            "an alpha below 1"
        )


R = TypeVar("R", bound=SpeechRecipe)
