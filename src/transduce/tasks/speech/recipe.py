"""Recipes of speech recognition and speech translation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from transduce.audio.augment_config import SpecAugmentConfig
from transduce.audio.features import AudioConfig
from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.metrics.measure import check_metric
from transduce.models.speech_config import SpeechConfig
from transduce.nn.stack_configs import max_sequence_length
from transduce.settings.sections import section
from transduce.tasks.recipe import Recipe
from transduce.tasks.recipe_settings import (
    base_settings,
    check_recompute,
    check_selection,
    named_base,
    with_base_run,
)
from transduce.tasks.speech.prompt import PromptConfig
from transduce.tasks.speech.recordings import RecordingDataConfig, check_longest
from transduce.text import SubwordConfig, TokenizerConfig
from transduce.training.config import FineTuneConfig, TrainingConfig

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
