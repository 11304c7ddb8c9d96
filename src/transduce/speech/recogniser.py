"""Speech model in use: recordings in, transcripts or translations out."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.decoding.backend import NO_AUXILIARY, AuxiliaryModels, Decoded, Piece
from transduce.decoding.options import DecodingOptions, check_work
from transduce.decoding.session import Prepared
from transduce.errors import DataError, SettingError
from transduce.metrics.measure import measure
from transduce.nn.stack_configs import max_sequence_length
from transduce.speech.audio import Samples, read_audio
from transduce.speech.features import Features, Frames
from transduce.speech.guards import Gains
from transduce.speech.prompt import (
    Encoded,
    Prompt,
    PromptConfig,
    RecordingSearch,
    Source,
    prompt_of,
)
from transduce.speech.recipe import SpeechRecipe, SplitRecordings, check_stop, read_recordings_of
from transduce.support.work import available_cores
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.predictors import EvaluationSet, FilePredictor, decode_line
from transduce.tasks.recipe import Split
from transduce.text import EOS, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.speech.model import NativeSpeech, SpeechModel
    from transduce.speech.normalisation import Normalisation


logger = logging.getLogger("transduce")

SHORTEST_LIMIT = 20
"""Lower bound of the maximum tokens of a text; longer recordings allow a token per position."""


SILENCE, SHORTEST_WINDOW = 2.0, 4.0
"""Seconds of silence after the sound of an open window, and of the shortest one: with less, texts
of a second run into loops (docs/measurements/speech.md)."""
NOISE_LEVEL, NOISE_SECONDS = 2e-4, 20
"""Deviation and length of the faint noise that texts are compared with."""


class RecognitionCandidate(NamedTuple):
    """One of the best texts of a recording, and its score."""

    text: str
    score: float


@dataclass(frozen=True)
class Recognition:
    """Text of a recording; empty for a blank path, and for a recording without frames."""

    text: str = ""
    score: float = 0.0
    """Log-probability after CTC's part and the length penalty."""
    transcript: str | None = field(default=None, kw_only=True)
    """Spoken words, of a model that translates them; None if `text` has them."""
    language: str = field(default="", kw_only=True)
    """Code of the spoken language, of a model that is given it or detects it."""
    candidates: tuple[RecognitionCandidate, ...] = field(default=(), kw_only=True)
    """The `n_best` texts, best first."""

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record; `n_best` where more than one text is asked for."""
        more: dict[str, Any] = {"language": self.language} if self.language else {}
        if len(self.candidates) > 1:
            more["n_best"] = [candidate._asdict() for candidate in self.candidates]
        if self.transcript is None:
            return {"transcript": self.text, "score": self.score, **more}
        texts = {"translation": self.text, "transcript": self.transcript}
        return {**texts, "score": self.score, **more}


@dataclass(eq=False, kw_only=True, repr=False)
class Recogniser(FilePredictor[Source, Recognition]):
    """Trained model from speech to text.  An input that has been read is its frames (t, f), or its
    memory.

    network: the model in PyTorch.  transcript_tokenizer: vocabulary of CTC, where it is not the
    decoder's.  faint_noise: its memory, once a text has been compared with it.  is_open: windows
    end soon after their sound, in place of 30 s.
    """

    inputs = ("audio",)
    kind = "speech"
    together = 64  # and sorted by length
    output_name = "the text"
    items = "recordings"

    recipe: SpeechRecipe
    network: Callable[[], SpeechModel]
    transcript_tokenizer: Tokenizer | None
    backend: RecordingSearch
    faint_noise: list[Source] = field(default_factory=list)
    is_open: bool = False

    @property
    def model(self) -> SpeechModel:  # type: ignore[override]
        """The model in PyTorch."""
        return self.network()

    @functools.cached_property
    def extractor(self) -> Features:
        """Features of recordings."""
        return self.recipe.audio.extractor()

    @property
    def prompt(self) -> Prompt:
        """Tokens before each output."""
        return self.backend.prompt

    @property
    def seconds_per_position(self) -> float:
        """Time from a position of the memory, and of CTC, to the next."""
        return self.extractor.seconds * self.recipe.model.front_end.stride

    @property
    def ctc_tokenizer(self) -> Tokenizer:
        """Vocabulary of CTC."""
        return self.transcript_tokenizer or self.tokenizer

    def prompted(self, config: PromptConfig | None, timed: bool = False) -> Recogniser:
        """This model with another prompt, and times among its words if `timed` and it has them.

        Raises SettingError for a wrong prompt.
        """
        room = max_sequence_length(self.recipe.model.decoder)
        prompt = prompt_of(config, self.tokenizer, room, timed)
        return dataclasses.replace(self, backend=dataclasses.replace(self.backend, prompt=prompt))

    def after(self, text: str) -> tuple[Recogniser, list[int]]:
        """This Whisper with the beginning of its output, and the tokens of that; none of a text
        that leaves little room."""
        ids = self.tokenizer.encode(f" {text}") if text else []
        room = max_sequence_length(self.recipe.model.decoder)
        if not ids or (room is not None and len(ids) > room // 2):
            return self, []
        prompt = self.prompt.followed_by(ids)
        backend = dataclasses.replace(self.backend, prompt=prompt)
        return dataclasses.replace(self, backend=backend), ids

    def with_models(self, auxiliary: AuxiliaryModels) -> Recogniser:
        """This model with a language model beside it.  Raises SettingError for a Whisper, whose
        outputs have more than words."""
        if self.recipe.prompt is not None:
            raise SettingError(
                "an imported Whisper takes no language model; use hotwords or prompt instead"
            )
        if self.backend.auxiliary is not NO_AUXILIARY:
            raise SettingError("this run already has a language model; load it again")
        steps: Any = self.backend.step_search("a language model")
        return dataclasses.replace(self, backend=dataclasses.replace(steps, auxiliary=auxiliary))

    def listening_to(self, recording: Source) -> Recogniser:
        """This model with the language detected in a recording, if it is to be detected."""
        search = self.backend.listening_to(recording)
        return self if search is self.backend else dataclasses.replace(self, backend=search)

    def sources(self, recordings: Sequence[Samples]) -> Sequence[Source]:
        """Samples (n,) as frames; those of windows as memory, to be searched more than once."""
        frames = [self.extractor(samples) for samples in recordings]
        if not self.extractor.window_samples:
            return frames
        rate = self.recipe.audio.rate
        hop = self.seconds_per_position * rate
        places = [math.ceil(len(samples) / hop) for samples in recordings]
        if not self.is_open:
            return self.backend.encode(frames, places)
        memories = list[Source]()
        for row, samples, n in zip(frames, recordings, places, strict=True):
            seconds = max(len(samples) / rate + SILENCE, SHORTEST_WINDOW)
            end = round(seconds / self.extractor.seconds) // 2 * 2
            memories += self.backend.encode([row[:end]], [n])
        return memories

    def gains(self, decoded: Decoded, source: Source) -> Gains:
        """Gains of the first hypothesis by its recording: log-probabilities less those with faint
        noise in its place."""
        if not self.faint_noise:
            random = np.random.default_rng(0)
            faint = NOISE_LEVEL * random.standard_normal(NOISE_SECONDS * self.recipe.audio.rate)
            recogniser = dataclasses.replace(self, is_open=False)  # for all later calls alike
            self.faint_noise[:] = recogniser.sources([faint.astype(np.float32)])
        output = decoded.hypotheses[0]
        tokens = [token for token in output.tokens if token not in self.prompt.times]
        whole = [*tokens, EOS] if output.finished else tokens
        if not tokens:
            return Gains((), ())
        heard, unheard = (
            self.backend.log_probs(whole, each, decoded.language)
            for each in (source, *self.faint_noise)
        )
        gains = (heard - unheard).tolist()
        end, no_speech = sum(gains[len(tokens) :]), decoded.no_speech or 0.0
        return Gains(tokens, gains[: len(tokens)], end, no_speech)

    def recognise(
        self, recordings: Iterable[Source], options: DecodingOptions, first: int = 0
    ) -> Iterator[Recognition]:
        """Text of each recording, from its frames (t, f), not normalised; those may be none.

        recordings: frames or encoded recordings.  options: of decoding.  first: number of the first
        recording, for messages and for sampling.
        """
        return self.each(recordings, options, first, self.answer)

    def read_file(self, path: str) -> Frames:
        """Frames (t, f) of a file; none for a blank path.  Raises DataError for no recording."""
        if not path.strip():
            return np.zeros((0, self.recipe.audio.bins), np.float32)
        samples = read_audio(Path(path), self.recipe.audio.rate, path)
        if (most := self.extractor.window_samples) and len(samples) > most:
            seconds, window = (n / self.recipe.audio.rate for n in (len(samples), most))
            raise DataError(
                f"{path} lasts {seconds:.1f} s, but the model reads {window:.0f} s at a time; "
                "use `transduce transcribe`"
            )
        return self.extractor(samples)

    def pieces(
        self, source: Source, options: DecodingOptions, owner: int, number: int
    ) -> Iterator[Piece]:
        """The piece of a recording; none without frames.

        source: the recording.  options: of decoding.  owner: index in its call.  number: in a
        longer sequence.
        """
        if isinstance(source, Encoded):
            positions = source.positions
        else:
            positions = self.recipe.model.front_end.positions(len(source))
        if not positions:
            return
        limit = max(positions, SHORTEST_LIMIT)
        room = max_sequence_length(self.recipe.model.decoder)
        if room is not None:
            limit = min(limit, room - len(self.prompt.ids))
        check_work(options, limit, "the recording")
        yield Piece(owner, source, positions, limit, number, self.constraints(options))

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError for options that this model cannot follow."""
        check_stop(options)
        super().check(options)

    def answer(self, prepared: Prepared[Source], decoded: Sequence[Decoded]) -> Recognition:
        """The text of a recording, of the best hypothesis."""
        if not decoded:
            return Recognition(transcript=self._transcript(None))
        ((hypotheses, scored, language, _),) = decoded
        texts = [self.text_of(h.tokens) for h in hypotheses]
        ranked = self.ranked(prepared.options, texts, hypotheses)[: prepared.options.n_best]
        candidates = tuple(RecognitionCandidate(texts[i], score) for i, score in ranked)
        transcript = self._transcript(scored)
        return Recognition(
            *candidates[0], transcript=transcript, language=language, candidates=candidates
        )

    def longest_output(self, options: DecodingOptions) -> tuple[int, str]:
        """Maximum tokens of the shortest recording; `pieces` checks longer recordings."""
        return SHORTEST_LIMIT, "the recording"

    def held_out(self, split: Split) -> EvaluationSet:
        """The recordings of a split."""
        recordings = read_recordings_of(
            self.recipe.data, self.recipe.audio, split, self.cache, available_cores()
        )
        report = recordings.store.report
        if report.kept < report.read:
            logger.warning("some recordings are left out by data.filters: %s", report)
        references = [[text] for text in recordings.texts]
        return EvaluationSet(
            recordings.names,
            references,
            stored=every(recordings),
            transcripts=recordings.transcripts,
        )

    def completed(
        self, evaluation: Evaluation, data: EvaluationSet, predictions: Sequence[Recognition]
    ) -> Evaluation:
        """With the error rate of the transcripts, of a model that translates.

        evaluation: to complete.  data: with transcripts.  predictions: one for each recording.
        """
        if self.transcript_tokenizer is None or not data.transcripts:
            return evaluation
        heard = [recognition.transcript or "" for recognition in predictions]
        spoken = [[text] for text in data.transcripts]
        rate = float(measure(("word-error-rate",), heard, spoken)["word-error-rate"])
        return dataclasses.replace(evaluation, other_scores={"transcript-word-error-rate": rate})

    def facts(self) -> dict[str, Any]:
        """Size of the vocabulary, and time of a position."""
        return {**super().facts(), "seconds_per_position": self.seconds_per_position}

    def _transcript(self, scored: Tensor | None) -> str | None:
        if self.transcript_tokenizer is None:
            return None
        if scored is None:
            return ""
        from transduce.sequence import Padded
        from transduce.speech import ctc

        (tokens,) = ctc.greedy(Padded.unpadded(scored[None]))
        return decode_line(self.transcript_tokenizer, tokens)


def new_recogniser(
    recipe: SpeechRecipe,
    tokenizer: Tokenizer,
    normalisation: Normalisation,
    cache: Path,
    transcript_tokenizer: Tokenizer | None = None,
    native: tuple[NativeSpeech, Callable[[], SpeechModel]] | None = None,
) -> Recogniser:
    """A speech model as a recipe describes it, with first weights.

    tokenizer: of the outputs.  normalisation: of the features.  cache: directory of features.
    transcript_tokenizer: of the CTC head, if it has another vocabulary.  native: the model in the
    engine, and in PyTorch.
    """
    from transduce.speech.model import build_speech
    from transduce.speech.step_search import SpeechSearch

    ctc_size = None if transcript_tokenizer is None else transcript_tokenizer.size
    if native is None:
        new = build_speech(recipe.model, recipe.audio.bins, tokenizer.size, ctc_size)
    model, network = native or (new, lambda: new)
    prompt = prompt_of(recipe.prompt, tokenizer, max_sequence_length(recipe.model.decoder))
    search = SpeechSearch(
        model=model,
        normalisation=normalisation,
        prompt=prompt,
        is_joint=transcript_tokenizer is None,
    )
    return Recogniser(
        options=recipe.decoding,
        backend=search,
        recipe=recipe,
        network=network,
        tokenizer=tokenizer,
        cache=cache,
        transcript_tokenizer=transcript_tokenizer,
    )


def every(recordings: SplitRecordings) -> Iterator[Frames]:
    """Frames (t, f) of each recording, not normalised."""
    return (recordings[i][0] for i in range(len(recordings)))


def positions_of(recipe: SpeechRecipe, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) positions of recordings, from their frames (n,)."""
    return np.array([recipe.model.front_end.positions(n) for n in lengths.tolist()], np.int64)
