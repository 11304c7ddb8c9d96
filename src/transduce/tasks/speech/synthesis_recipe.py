"""Recipe of speech synthesis."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from transduce.audio.features import AudioConfig
from transduce.errors import SettingError
from transduce.models.monotonic_synthesis import MonotonicSynthesisConfig
from transduce.models.synthesis import SynthesisConfig
from transduce.nn.stack_configs import max_sequence_length
from transduce.settings.kinds import ByKind
from transduce.settings.paths import absolute_path
from transduce.settings.sections import section
from transduce.tasks.recipe import Recipe
from transduce.tasks.recipe_settings import (
    check_recompute,
    check_selection,
)
from transduce.tasks.speech.recordings import RecordingDataConfig, check_longest
from transduce.text import CharactersConfig, TokenizerConfig
from transduce.training.config import FineTuneConfig, TrainingConfig

ModelConfig = Annotated[MonotonicSynthesisConfig | SynthesisConfig, ByKind("monotonic")]
RunPath = Annotated[str, BeforeValidator(absolute_path)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]

FREE = ("coverage", "monotony", "stopped")
"""Scores of validation texts synthesised without teacher forcing; weights can be selected by
them."""


@section
class SynthesisAudioConfig(AudioConfig):
    """Features to synthesise and to turn into samples."""

    features: Literal["mel"] = "mel"
    """Log mel magnitudes, which Griffin-Lim inverts."""
    normalise: Literal["corpus", "none"] = "corpus"
    """Subtract the mean and divide by the deviation of each bin, of the training data."""


@section
class SynthesisTextConfig:
    """The text that is read."""

    tokenizer: TokenizerConfig = CharactersConfig()
    """By default, the tokenizer of the base run in fine-tuning."""
    pronounce: RunPath | None = None
    """Run from spelling to sound, which turns each word into symbols first; the tokenizer is then
    of symbols.  May contain `~` and `$VARIABLE`."""


@section
class SynthesisTrainingConfig(TrainingConfig):
    """Training settings of speech synthesis."""

    stop_weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    """Weight of the last step of a text in the loss of the end; each other step counts 1."""
    attention_weight: Weight = 10.0
    """Weight of guided attention (Tachibana et al. 2018) in the first step's loss, from which it
    falls linearly to 0 at the end of the budget; 0 for none."""


@section
class SpeakingConfig:
    """Settings of synthesis."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Random seed of the front end's dropout and of the first phases; the same text sounds alike
    each time."""
    stop_threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Probability of the end from which a step is the last."""
    seconds_per_token: Annotated[float, Field(gt=0, le=2)] = 0.3
    """Limit of a text: a second, and this much for each token."""
    speed: Annotated[float, Field(ge=0.25, le=4)] = 1.0
    """Divisor of the durations, for a model of kind "monotonic"."""
    rounds: Annotated[int, Field(ge=1, le=1000)] = 60
    """Iterations of Griffin-Lim, which estimates the phases."""


@section
class SynthesisEvaluation:
    """Evaluation settings."""

    recogniser: RunPath | None = None
    """Run of speech recognition that transcribes synthesised speech; by default none.  May
    contain `~` and `$VARIABLE`."""
    validation_texts: Annotated[int, Field(ge=0)] = 32
    """Texts synthesised at each validation, a fixed sample of the validation set; 0 to validate by
    loss alone."""


@section
class SynthesisRecipe(Recipe):
    """Recipe of speech synthesis."""

    bases = ("speech-synthesis",)
    inherited = ("text.tokenizer", "text.pronounce", "audio")

    task: Literal["speech-synthesis"] = "speech-synthesis"
    data: RecordingDataConfig
    audio: SynthesisAudioConfig = SynthesisAudioConfig()
    text: SynthesisTextConfig = SynthesisTextConfig()
    model: ModelConfig = MonotonicSynthesisConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run, whose weights are the start."""
    training: SynthesisTrainingConfig = SynthesisTrainingConfig()
    speaking: SpeakingConfig = SpeakingConfig()
    evaluation: SynthesisEvaluation = SynthesisEvaluation()

    def __post_init__(self) -> None:
        searched = "a search for durations"
        if isinstance(self.model, SynthesisConfig):
            room = max_sequence_length(self.model.decoder)
            longest = self.steps_of(self.data.filters.max_seconds)
            check_longest(self.data, longest, room, "decoder")
            check_recompute(self.training, self.model.encoder, self.model.decoder)
            searched = "guided attention" if self.training.attention_weight else ""
        for name in ("compile", "recompute"):
            if searched and getattr(self.training, name):
                remedy = ", or set training.attention_weight = 0" if "attention" in searched else ""
                raise SettingError(
                    f"training.{name} cannot be combined with {searched}; remove it{remedy}"
                )
        measured = FREE if self.evaluation.validation_texts else ()
        check_selection(self.training.select_by, ("loss", *measured))

    def steps_of(self, seconds: float) -> int:
        """Number of decoder steps for speech of this length."""
        return math.ceil(seconds / self.audio.extractor().seconds / self.model.frames_per_step)
