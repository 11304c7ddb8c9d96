"""Synthesis model in use: texts in, speech out."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transduce.audio.features import Mel
from transduce.data.length_batches import in_batches
from transduce.decoding.frames import (
    DropoutMasks,
    SpokenFrames,
    decode_frames,
    frames_by_durations,
)
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, InputError, SettingError
from transduce.models.monotonic_synthesis import MonotonicSynthesis
from transduce.models.synthesis import SynthesisConfig, SynthesisModel
from transduce.nn.stack_configs import max_sequence_length
from transduce.sequence import Padded
from transduce.support.work import available_cores, chunks
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.prediction import OnDevice
from transduce.tasks.recipe import Split
from transduce.tasks.speech.normalisation import Normalisation
from transduce.tasks.speech.pronunciation import Pronouncer
from transduce.tasks.speech.recogniser import every
from transduce.tasks.speech.recordings import padded_frames, read_recordings_of
from transduce.tasks.speech.spoken import Speech, SpokenWord, words_of_text
from transduce.tasks.speech.synthesis_recipe import SynthesisRecipe
from transduce.tasks.speech.synthesis_scores import (
    error_rates,
    free_scores,
    heard_texts,
    load_recogniser,
    recorded_scores,
)
from transduce.tasks.task import Example
from transduce.tasks.unknown_tokens import UnknownTokens
from transduce.text import EOS, Tokenizer

SPOKEN_TOGETHER = 64
"""Texts sorted by length together, and held in memory at a time."""
BATCH_TOKENS = 2048
"""Tokens of the texts in a batch."""
MOST_TOKENS, MOST_BY_DURATIONS = 1000, 10_000
"""Maximum tokens of a text with attention, which training texts far shorter teach, and by
durations, some ten minutes of speech."""
FIRST_SECOND = 1.0
"""Limit of any text, beside `speaking.seconds_per_token`."""


class Synthesiser(OnDevice):
    """Trained model from text to speech."""

    inputs = ("text",)
    options: DecodingOptions | None = None

    def __init__(
        self,
        recipe: SynthesisRecipe,
        tokenizer: Tokenizer,
        normalisation: Normalisation,
        cache: Path,
        pronouncer: Pronouncer | None = None,
    ) -> None:
        """cache: directory for features of the recipe's data.  pronouncer: turns texts into phones,
        before the tokenizer."""
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.normalisation = normalisation
        self.cache = cache
        self.pronouncer = pronouncer
        self.features = Mel(recipe.audio.rate, recipe.audio.bins)
        self.model: SynthesisModel | MonotonicSynthesis
        if isinstance(recipe.model, SynthesisConfig):
            self.model = SynthesisModel(recipe.model, recipe.audio.bins, tokenizer.size)
        else:
            self.model = MonotonicSynthesis(recipe.model, recipe.audio.bins, tokenizer.size)
        self.speed = recipe.speaking.speed
        self._unknown = UnknownTokens(tokenizer)

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[Speech]:
        """Speech of each text; blank if the text is.  Raises InputError for a text that is too
        long."""
        return list(self.speak([text for (text,) in inputs], first))

    def speak(self, texts: Iterable[str], first: int = 0) -> Iterator[Speech]:
        """Speech of each text, lazily, in order.  first: number of the first text, for messages."""
        for chunk in chunks(texts, SPOKEN_TOGETHER):
            rows = self.encode(chunk, first)
            there = [i for i, text in enumerate(chunk) if text.strip()]
            lengths = [len(row) for row in rows]
            order = sorted(there, key=lengths.__getitem__, reverse=True)
            speeches = [Speech(torch.zeros(0, self.recipe.audio.bins), self.features)] * len(chunk)
            for chosen in in_batches(order, lengths, BATCH_TOKENS):
                spoken = self.speeches(self.decode([rows[i] for i in chosen]))
                for i, speech in zip(chosen, spoken, strict=True):
                    speeches[i] = replace(speech, words=self.words(chunk[i], rows[i], speech))
            yield from speeches
            first += len(chunk)

    def at_speed(self, speed: float) -> Synthesiser:
        """This model with other durations: those of the text divided by `speed`.

        Raises SettingError for a model without.
        """
        if isinstance(self.model, SynthesisModel):
            raise SettingError(
                'speed needs a run of model.kind = "monotonic"; this one has attention: remove it'
            )
        other = copy.copy(self)
        other.speed = speed
        return other

    def symbols(self, texts: Sequence[str]) -> list[str]:
        """Input of the tokenizer: the texts, or their sounds if there is a pronouncer."""
        plain = [" ".join(text.split()) for text in texts]
        return plain if self.pronouncer is None else self.pronouncer.pronounce(plain)

    def ids(self, symbols: Sequence[str]) -> list[list[int]]:
        """Ids of texts as `symbols` gives them, each with EOS."""
        return [[*ids, EOS] for ids in self.tokenizer.encode_batch(list(symbols))]

    def encode(self, texts: Sequence[str], first: int = 0) -> list[list[int]]:
        """Ids of each text, and EOS.  Raises InputError for a text that is too long."""
        symbols = self.symbols(texts)
        rows = self.ids(symbols)
        names = (f"line {number}" for number in itertools.count(first + 1))
        self._unknown.check(([text] for text in symbols), rows, names)
        by_attention = isinstance(self.model, SynthesisModel)
        most = MOST_TOKENS if by_attention else MOST_BY_DURATIONS
        most = most if self.room is None else min(most, self.room - 1)
        for number, row in enumerate(rows, first):
            if len(row) - 1 > most:
                reason = (
                    f"the text has {len(row) - 1} tokens, and at most {most} are spoken at once"
                )
                raise InputError(number, f"{reason}; cut it at sentences, one a line")
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
        attention, which may go back."""
        if isinstance(self.model, SynthesisModel):
            return ()
        groups = words_of_text(self.tokenizer, self.pronouncer, text, ids[:-1])
        seconds = self.features.seconds * self.model.frames_per_step
        ends = [seconds * end for end in speech.attention.sum(0).cumsum(0).tolist()]
        return tuple(
            SpokenWord(word, ends[first - 1] if first else 0.0, ends[last - 1])
            for word, first, last in groups
        )

    def decode(self, rows: Sequence[Sequence[int]]) -> list[SpokenFrames]:
        """Normalised frames of texts given by their ids, before any postnet."""
        model = self.model.eval()
        text = Padded.from_rows(rows).to(self.device)
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
                speech.attention.float().cpu(),
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
        """
        recorded: list[Speech] = []
        if examples is not None:
            pairs = [(text, " ".join(answer.split())) for (text,), answer in examples]
            texts, references = [text for text, _ in pairs], [answer for _, answer in pairs]
        else:
            recordings = read_recordings_of(
                self.recipe.data, self.recipe.audio, split, self.cache, available_cores()
            )
            texts = references = recordings.texts
            rounds = self.recipe.speaking.rounds
            recorded = [
                Speech(recording, self.features, rounds=rounds) for recording in every(recordings)
            ]
        if not texts:
            raise DataError("no texts to evaluate")
        recogniser = load_recogniser(self.recipe.evaluation.recogniser, str(self.device))
        spoken = list(self.speak(texts))
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
        seconds = self.features.seconds * self.recipe.model.frames_per_step
        return {"vocabulary": self.tokenizer.size, "seconds_per_step": seconds}
