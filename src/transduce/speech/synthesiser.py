"""Speech synthesis in use: recipe, texts in and speech out, scores."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field

from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, InputError, SettingError
from transduce.metrics.measure import measure
from transduce.nn.stack_configs import max_sequence_length
from transduce.sequence import Padded
from transduce.settings.paths import absolute_path
from transduce.settings.sections import ByKind, section
from transduce.speech.audio import read_audio
from transduce.speech.features import AudioConfig, Mel, mel_cepstral_distortion
from transduce.speech.normalisation import Normalisation
from transduce.speech.reading import checked_letters, read_out
from transduce.speech.recipe import (
    RecordingDataConfig,
    SpeechRecognitionRecipe,
    check_longest,
    padded_frames,
    read_recordings_of,
)
from transduce.speech.recogniser import Recogniser, every
from transduce.speech.spoken import (
    Pronouncer,
    SeveralVoices,
    Speech,
    SpokenWord,
    blocks_of,
    joined_speech,
    words_of_text,
)
from transduce.speech.synthesis_models import (
    DropoutMasks,
    MonotonicSynthesis,
    MonotonicSynthesisConfig,
    SpokenFrames,
    SynthesisConfig,
    SynthesisModel,
    VoiceConfig,
    decode_frames,
    frames_by_durations,
)
from transduce.speech.training import load_speech
from transduce.support.work import available_cores, chunks, in_batches
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.recipe import Recipe, Split, auxiliary_run, check_recompute, check_selection
from transduce.tasks.task import Example, OnDevice
from transduce.tasks.vocabularies import UnknownTokens
from transduce.text import EOS, UNK, CharactersConfig, Tokenizer, TokenizerConfig
from transduce.training.config import FineTuneConfig, TrainingConfig

ModelConfig = Annotated[
    MonotonicSynthesisConfig | SynthesisConfig | VoiceConfig, ByKind("monotonic")
]
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
    language: str = ""
    """Code of the language, "en" or "de", in which numbers, dates, times, sums of money and
    abbreviations are read out; others, and the empty one, leave them."""
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
        assert not isinstance(self.model, VoiceConfig)
        return math.ceil(seconds / self.audio.extractor().seconds / self.model.frames_per_step)


ERROR_RATES = ("word-error-rate", "character-error-rate")


def free_scores(spoken: Sequence[Speech]) -> dict[str, float]:
    """Means over texts synthesised without teacher forcing, in percent.

    Higher is better, except for failures: texts that do not stop, or stop before the last token is
    attended to.
    """
    return {
        "coverage": float(np.mean([speech.coverage for speech in spoken])),
        "monotony": float(np.mean([speech.monotony for speech in spoken])),
        "stopped": float(np.mean([100 * speech.stopped for speech in spoken])),
        "failures": float(
            np.mean([100 * (not (speech.stopped and speech.reached)) for speech in spoken])
        ),
    }


def recorded_scores(spoken: Sequence[Speech], recorded: Sequence[Speech]) -> dict[str, float]:
    """Length of all speech in percent of the recordings', and the distortion in dB."""
    pairs = list(zip(spoken, recorded, strict=True))
    distortions = [
        mel_cepstral_distortion(a.frames.numpy(), b.frames.numpy())
        for a, b in pairs
        if len(a.frames) and len(b.frames)
    ]
    length = 100 * sum(a.seconds for a, _ in pairs) / max(1e-9, sum(b.seconds for _, b in pairs))
    return {
        "length-ratio": length,
        "mel-cepstral-distortion": float(np.mean(distortions)) if distortions else float("nan"),
    }


def error_rates(heard: Sequence[str], texts: Sequence[str], prefix: str = "") -> dict[str, float]:
    """Word and character error rate of recognised texts, each under `prefix` and its name."""
    rates = measure(ERROR_RATES, heard, [[text] for text in texts])
    return {f"{prefix}{name}": float(rates[name]) for name in ERROR_RATES}


def load_recogniser(run: str | None, device: str) -> Recogniser | None:
    """The run of `evaluation.recogniser`; None if unset. Raises RunError for a run of another
    task."""
    if run is None:
        return None
    path = Path(run)
    task, use = "speech-recognition", ", not 'speech-recognition'"
    settings = auxiliary_run(path, "evaluation.recogniser", task, use)
    return load_speech(
        SpeechRecognitionRecipe.parse(settings, str(path / "recipe.toml")), path, device
    )


def heard_texts(recogniser: Recogniser, spoken: Sequence[Speech]) -> list[str]:
    """Recognised text of each speech, from its WAV file."""
    rate = recogniser.recipe.audio.rate
    samples = (read_audio(speech.wav(), rate, "speech") for speech in spoken)
    frames = (recogniser.extractor(speech) for speech in samples)
    return [speech.text for speech in recogniser.recognise(frames, recogniser.options)]


SPOKEN_TOGETHER = 64
"""Texts sorted by length together, and held in memory at a time."""
BATCH_TOKENS = 2048
"""Tokens of the texts in a batch."""
FIRST_SECOND = 1.0
"""Limit of any text, beside `speaking.seconds_per_token`."""


class Synthesiser(OnDevice, SeveralVoices):
    """Trained model from text to speech."""

    inputs: tuple[str, ...] = ("text",)
    """With several speakers, also the speaker, the first if blank."""
    options: DecodingOptions | None = None

    def __init__(
        self,
        recipe: SynthesisRecipe,
        tokenizer: Tokenizer,
        normalisation: Normalisation,
        cache: Path,
        pronouncer: Pronouncer | None = None,
        speakers: tuple[str, ...] = (),
    ) -> None:
        """cache: directory for features of the recipe's data.  pronouncer: turns texts into phones,
        before the tokenizer.  speakers: none for a single voice."""
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.normalisation = normalisation
        self.cache = cache
        self.pronouncer = pronouncer
        self.features = Mel(recipe.audio.rate, recipe.audio.bins)
        self.speakers = speakers
        self.speaker = speakers[0] if speakers else ""
        if speakers:
            self.inputs = ("text", "speaker")
        sizes = recipe.audio.bins, tokenizer.size, len(speakers)
        self.model: SynthesisModel | MonotonicSynthesis
        assert not isinstance(recipe.model, VoiceConfig)
        self.frames_per_step, self.width = recipe.model.frames_per_step, recipe.model.d_model
        if isinstance(recipe.model, SynthesisConfig):
            self.model = SynthesisModel(recipe.model, *sizes)
        else:
            self.model = MonotonicSynthesis(recipe.model, *sizes)
        self.speed = recipe.speaking.speed
        self._unknown = UnknownTokens(tokenizer)

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[Speech]:
        """Speech of each text; blank if the text is.  Raises InputError for an unknown speaker.

        inputs: tuples of a text, and of a speaker for a run with several.  options: unused.  first:
        number of the first input in a longer sequence.
        """
        speakers = [speaker for _, *rest in inputs for speaker in rest]
        return list(self.speak([text for text, *_ in inputs], first, speakers or None))

    def speak(
        self, texts: Iterable[str], first: int = 0, speakers: Iterable[str] | None = None
    ) -> Iterator[Speech]:
        """Speech of each text, lazily, in order.

        first: number of the first text, for messages.  speakers: of each text; by default the same
        of all.
        """
        names = itertools.repeat("") if speakers is None else speakers
        for chunk in chunks(zip(texts, names, strict=False), SPOKEN_TOGETHER):
            plain = [self.readable(text, first + i) for i, (text, _) in enumerate(chunk)]
            blocks = [(i, block) for i, text in enumerate(plain) for block in blocks_of(text)]
            numbers = [self.checked_number(name, first + i) for i, (_, name) in enumerate(chunk)]
            rows = self.encode([block for _, block in blocks], [first + i for i, _ in blocks])
            lengths = [len(row) for row in rows]
            speeches: dict[int, Speech] = {}
            for chosen in in_batches(range(len(rows)), lengths, BATCH_TOKENS):
                voices = [numbers[blocks[b][0]] for b in chosen]
                decoded = self.decode([rows[b] for b in chosen], voices)
                for b, voice, speech in zip(chosen, voices, self.speeches(decoded), strict=True):
                    speaker = self.speakers[voice] if self.speakers else ""
                    words = self.words(blocks[b][1], rows[b], speech)
                    speeches[b] = replace(speech, words=words, speaker=speaker)
            of_text: list[list[Speech]] = [[] for _ in chunk]
            for b, (i, _) in enumerate(blocks):
                of_text[i].append(speeches[b])
            blank = Speech(torch.zeros(0, self.recipe.audio.bins), self.features)
            yield from (joined_speech(parts) if parts else blank for parts in of_text)
            first += len(chunk)

    def speaking(self, speed: float | None = None, speaker: str | None = None) -> Synthesiser:
        """This model with durations divided by `speed`, in the voice of a speaker; both by default
        as they are.

        Raises SettingError for the speed of a model without durations, and for an unknown speaker.
        """
        other = copy.copy(self)
        other.inputs = ("text",)
        if speed not in (None, self.speed):
            if isinstance(self.model, SynthesisModel):
                raise SettingError('speed needs a run of model.kind = "monotonic"; remove it')
            other.speed = speed
        if speaker:
            if not self.speakers:
                raise SettingError(f"speaker {speaker!r}: the run has a single voice; remove it")
            other.speaker = self.speakers[self.number_of(speaker)]
        return other

    def readable(self, text: str, number: int = 0) -> str:
        """The text in letters that the model knows.  Raises InputError if it has others.

        number: of the text, for messages.
        """
        is_known = self.pronouncer.knows if self.pronouncer is not None else self._knows
        words = read_out(text, self.recipe.text.language)
        return checked_letters(words, is_known, number, self.recipe.text.language)

    def _knows(self, letter: str) -> bool:
        return UNK not in self.tokenizer.encode(letter)

    def symbols(self, texts: Sequence[str]) -> list[str]:
        """Input of the tokenizer: the texts, or their sounds if there is a pronouncer."""
        plain = [" ".join(text.split()) for text in texts]
        return plain if self.pronouncer is None else self.pronouncer.pronounce(plain)

    def ids(self, symbols: Sequence[str]) -> list[list[int]]:
        """Ids of texts as `symbols` gives them, each with EOS."""
        return [[*ids, EOS] for ids in self.tokenizer.encode_batch(list(symbols))]

    def encode(self, texts: Sequence[str], numbers: Iterable[int] = (0,)) -> list[list[int]]:
        """Ids of blocks of texts, each with EOS.  numbers: of their texts, for messages.  Raises
        InputError for a block that is too long."""
        symbols, numbers = self.symbols(texts), list(numbers)
        rows = self.ids(symbols)
        names = (f"line {number + 1}" for number in numbers)
        self._unknown.check(([text] for text in symbols), rows, names)
        for number, row in zip(numbers, rows, strict=True):
            if self.room is not None and len(row) > self.room:
                reason = f"a block of the text has {len(row) - 1} tokens, {self.room - 1} are read"
                raise InputError(number, f"{reason}; write shorter sentences")
        return rows

    @property
    def room(self) -> int | None:
        """Maximum tokens of a text, its end included, if the model has a maximum."""
        config = self.recipe.model
        if isinstance(config, SynthesisConfig):
            return max_sequence_length(config.encoder)
        return None

    def words(self, text: str, ids: Sequence[int], speech: Speech) -> tuple[SpokenWord, ...]:
        """Words of a text with their times, by the durations of its tokens; none of a model with
        attention, which may go back.

        ids: of the text, with the end.  speech: of the text.
        """
        if isinstance(self.model, SynthesisModel):
            return ()
        groups = words_of_text(self.tokenizer, self.pronouncer, text, ids[:-1])
        seconds = self.features.seconds * self.model.frames_per_step
        durations = speech.attended.bincount(minlength=len(ids))
        ends = [seconds * end for end in durations.cumsum(0).tolist()]
        return tuple(
            SpokenWord(word, ends[first - 1] if first else 0.0, ends[last - 1])
            for word, first, last in groups
        )

    def padded(self, rows: Sequence[Sequence[int]], speakers: Sequence[int]) -> Padded:
        """Ids (b, s) of texts; with several speakers (b, s, 2), ids before the speaker's number."""
        text = Padded.from_rows(rows)
        if not self.speakers:
            return text
        numbers = torch.tensor(speakers)[:, None].expand_as(text.values)
        return text.with_values(torch.stack([text.values, numbers], 2))

    def decode(self, rows: Sequence[Sequence[int]], speakers: Sequence[int]) -> list[SpokenFrames]:
        """Normalised frames of texts given by their ids, before any postnet."""
        model = self.model.eval()
        text = self.padded(rows, speakers).to(self.device)
        if isinstance(model, MonotonicSynthesis):
            return frames_by_durations(model, text, self.speed)
        with torch.inference_mode():
            state = model.start(text)
        outputs = decode_frames(
            model.step_attended,
            state,
            [self.limit(len(row)) for row in rows],
            self.recipe.audio.bins,
            self.masks(rows),
            self.recipe.speaking.stop_threshold,
            self.device,
        )
        return [
            output._replace(attention=output.attention[:, : len(row)])
            for output, row in zip(outputs, rows, strict=True)
        ]

    @torch.inference_mode()
    def speeches(self, spoken: Sequence[SpokenFrames]) -> list[Speech]:
        """Speech from the frames of `decode`, through the postnet."""
        speaking = self.recipe.speaking
        batch = padded_frames([speech.frames for speech in spoken])
        better = batch.values
        if isinstance(self.model, SynthesisModel):
            better = self.model.postnet(batch)
        better = better.float().cpu()
        return [
            Speech(
                self.normalisation.inverse(frames[: len(speech.frames)]),
                self.features,
                speech.stopped,
                speech.attention.argmax(1).cpu(),
                (speech.attention.shape[1],),
                rounds=speaking.rounds,
                seed=speaking.seed,
            )
            for speech, frames in zip(spoken, better, strict=True)
        ]

    def masks(self, rows: Sequence[Sequence[int]]) -> DropoutMasks:
        """Masks of the front end's dropout, for texts given by their ids."""
        assert isinstance(self.model, SynthesisModel)
        front_end = self.model.target_front_end
        seed, n_units = self.recipe.speaking.seed, sum(front_end.widths)
        return DropoutMasks(seed, rows, n_units, front_end.share)

    def limit(self, n_tokens: int) -> int:
        """Maximum number of steps for a text of this number of tokens."""
        seconds = FIRST_SECOND + self.recipe.speaking.seconds_per_token * n_tokens
        assert isinstance(self.recipe.model, SynthesisConfig)
        room = max_sequence_length(self.recipe.model.decoder)
        steps = self.recipe.steps_of(seconds)
        return steps if room is None else min(steps, room)

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Synthesise the texts of held-out recordings, or the inputs of examples.

        Measures failures and, with `evaluation.recogniser`, errors of the recogniser; with
        recordings also the distance from them, and the recogniser's errors on them, with and
        without Griffin-Lim.

        split: of the recipe's data.  examples: (input, answer) to use instead.  options: unused.
        """
        recorded, speakers = list[Speech](), None
        if examples is not None:
            pairs = [(parts, " ".join(answer.split())) for parts, answer in examples]
            texts, references = [text for (text, *_), _ in pairs], [answer for _, answer in pairs]
            speakers = [speaker for (_, *rest), _ in pairs for speaker in rest] or None
        else:
            recordings = read_recordings_of(
                self.recipe.data, self.recipe.audio, split, self.cache, available_cores()
            )
            texts = references = recordings.texts
            speakers = recordings.speakers
            rounds = self.recipe.speaking.rounds
            recorded = [
                Speech(torch.from_numpy(frames), self.features, rounds=rounds)
                for frames in every(recordings)
            ]
        if not texts:
            raise DataError("no texts to evaluate")
        recogniser = load_recogniser(self.recipe.evaluation.recogniser, str(self.device))
        spoken = list(self.speak(texts, speakers=speakers))
        other = free_scores(spoken)
        heard = [] if recogniser is None else heard_texts(recogniser, spoken)
        scores = error_rates(heard, references) if heard else {}
        if recorded:
            other |= recorded_scores(spoken, recorded)
            if recogniser is not None:
                other |= error_rates(heard_texts(recogniser, recorded), references, "recorded-")
        each = [[text] for text in references]
        return Evaluation(scores, texts, heard, each, by_name=True, other_scores=other)

    def facts(self) -> dict[str, Any]:
        """Size of the vocabulary, and time of a step."""
        seconds = self.features.seconds * self.frames_per_step
        speakers = {"speakers": list(self.speakers)} if self.speakers else {}
        return {"vocabulary": self.tokenizer.size, "seconds_per_step": seconds, **speakers}
