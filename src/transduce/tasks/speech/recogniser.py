"""Speech model in use: recordings in, transcripts or translations out."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.audio.read import read_audio
from transduce.data.length_batches import in_batches
from transduce.data.workers import available_cores, chunks
from transduce.decoding import ctc
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import SearchHooks, constraints_of
from transduce.decoding.search import SearchRequest, search
from transduce.decoding.token_surfaces import TokenSurfaces
from transduce.decoding.work import check_work
from transduce.errors import DataError, InputError
from transduce.metrics.measure import measure
from transduce.models.speech import SpeechModel, build_speech
from transduce.models.stacks import max_sequence_length
from transduce.sequence import Padded
from transduce.tasks.speech.normalisation import Normalisation
from transduce.tasks.speech.prompt import Prompt, PromptConfig, prompt_of
from transduce.tasks.speech.recipe import SpeechRecipe, check_stop
from transduce.tasks.speech.recordings import SplitRecordings, padded_frames, read_recordings_of
from transduce.tasks.task import Evaluation, Example, Split
from transduce.text import BOS, EOS, Tokenizer

logger = logging.getLogger("transduce")

T = TypeVar("T")

RECOGNISED_TOGETHER = 64
"""Recordings sorted by length together, and held in memory at a time."""

DETECTED_TOGETHER = 4
"""Number of recordings used to detect their common language."""

SHORTEST_LIMIT = 20
"""Lower bound of the maximum tokens of a text; longer recordings allow a token per position."""


@dataclass(frozen=True)
class Recognition:
    """Text of one recording; empty for a blank path, and for a recording without frames."""

    text: str = ""
    score: float = 0.0
    """Log-probability after CTC's part and the length penalty."""
    transcript: str | None = field(default=None, kw_only=True)
    """Spoken words, of a model that translates them; None if `text` has them."""
    language: str = field(default="", kw_only=True)
    """Code of the spoken language, of a model that is given it or detects it."""

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        spoken = {"language": self.language} if self.language else {}
        if self.transcript is None:
            return {"transcript": self.text, "score": self.score, **spoken}
        return {"translation": self.text, "transcript": self.transcript, "score": self.score}


class Decoded(NamedTuple):
    """Output of one recording.

    hypotheses: the `n_best`, best first.  ctc: (t, v) log-probabilities of CTC at each position of
    the memory, for times; None for a model without a CTC head.  language: as in `Recognition`.
    """

    hypotheses: list[Hypothesis]
    ctc: Tensor | None
    language: str = ""


class Recogniser:
    """Trained model from speech to text."""

    inputs = ("audio",)

    def __init__(
        self,
        recipe: SpeechRecipe,
        tokenizer: Tokenizer,
        normalisation: Normalisation,
        cache: Path,
        transcript_tokenizer: Tokenizer | None = None,
    ) -> None:
        """cache: where features of the recipe's data are kept.  transcript_tokenizer: vocabulary of
        CTC, where it is not the decoder's."""
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.transcript_tokenizer = transcript_tokenizer
        self.normalisation = normalisation
        self.cache = cache
        self.options = recipe.decoding
        self.prompt = self._prompt(recipe.prompt)
        self.extractor = recipe.audio.extractor()
        ctc_size = None if transcript_tokenizer is None else transcript_tokenizer.size
        self.model: SpeechModel = build_speech(
            recipe.model, recipe.audio.bins, tokenizer.size, ctc_size
        )

    @functools.cached_property
    def token_surfaces(self) -> TokenSurfaces:
        """Surfaces of the tokens."""
        return TokenSurfaces(self.tokenizer)

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.model.parameters()).device

    @property
    def seconds_per_position(self) -> float:
        """Time from one position of the memory, and of CTC, to the next."""
        return self.extractor.seconds * self.recipe.model.front_end.stride

    @property
    def ctc_tokenizer(self) -> Tokenizer:
        """Vocabulary of CTC."""
        return self.transcript_tokenizer or self.tokenizer

    def _prompt(self, config: PromptConfig | None, timed: bool = False) -> Prompt:
        room = max_sequence_length(self.recipe.model.decoder)
        return prompt_of(config, self.tokenizer, room, timed)

    def prompted(self, config: PromptConfig | None, timed: bool = False) -> Recogniser:
        """This model with another prompt, and times among its words if `timed` and it has them.

        Raises SettingError for a wrong prompt.
        """
        found = copy.copy(self)
        found.prompt = self._prompt(config, timed)
        return found

    def listening_to(self, recordings: Sequence[Tensor]) -> Recogniser:
        """This model with the language detected in the first recording, if it is to be detected.

        recordings: frames (t, f) of each, not normalised.
        """
        rows = [frames for frames in recordings if len(frames)][:DETECTED_TOGETHER]
        if not self.prompt.languages or not rows:
            return self
        memory = self._encode(self.normalisation(padded_frames(rows)))
        sums = self._languages(memory).sum(0)
        found = copy.copy(self)
        found.prompt = self.prompt.speaking([*self.prompt.languages][int(sums.argmax())])
        return found

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[Recognition]:
        """Text of each recording, given by its path; blank paths get a blank text.

        Raises InputError for a file that is not a recording.
        """
        frames = (self.read(path, first + i) for i, (path,) in enumerate(inputs))
        return list(self.recognise(frames, options or self.options, first))

    def recognise(
        self, recordings: Iterable[Tensor], options: DecodingOptions, first: int = 0
    ) -> Iterator[Recognition]:
        """Text of each recording, from its frames (t, f), not normalised; those may be none.

        first: number of the first recording, for messages and for sampling.
        """
        nothing = Recognition(transcript=self._transcript(None))
        return self.each(recordings, options, first, self.recognition, nothing)

    def each(
        self,
        recordings: Iterable[Tensor],
        options: DecodingOptions,
        first: int,
        answer: Callable[[Decoded], T],
        nothing: T,
    ) -> Iterator[T]:
        """The answer to the output of each recording, made of it at once: CTC's part is large.

        recordings, first: as in `recognise`.  nothing: the answer for recordings without frames.
        """
        for chunk in chunks(recordings, RECOGNISED_TOGETHER):
            lengths = [self.recipe.model.front_end.positions(len(frames)) for frames in chunk]
            there = [i for i in range(len(chunk)) if lengths[i]]
            order = sorted(there, key=lengths.__getitem__, reverse=True)
            found = [nothing] * len(chunk)
            for rows in in_batches(order, lengths, options.batch_tokens):
                batch = self.normalisation(padded_frames([chunk[i] for i in rows]))
                decoded = self.decode(batch, options, [first + i for i in rows])
                for i, one in zip(rows, decoded, strict=True):
                    found[i] = answer(one)
            yield from found
            first += len(chunk)

    def decode(
        self, frames: Padded, options: DecodingOptions, streams: Sequence[int]
    ) -> list[Decoded]:
        """Search for the text of normalised frames (b, t, f), each row of at least one.

        streams: their numbers, for sampling and messages.
        """
        request, scored = self.request(frames, options, streams)
        found = search(request)
        constraints = request.hooks.sentence_constraints
        for number, constraint, (best, *_) in zip(streams, constraints, found, strict=True):
            constraint.warn_unless_met_by(best.tokens, f"line {number + 1}: the text")
        heard: Sequence[Tensor | None] = [None] * len(found)
        if scored is not None:
            lengths = scored.lengths.tolist()
            heard = [row[:n].cpu() for row, n in zip(scored.values, lengths, strict=True)]
        languages = self._languages_in(request.prefix.values)
        return [Decoded(*one) for one in zip(found, heard, languages, strict=True)]

    @torch.inference_mode()
    def _encode(self, frames: Padded) -> Padded:
        """Normalised frames (b, t, f) -> memory (b, t', m)."""
        self.model.eval()
        return self.model.encode(frames.to(self.device))

    @torch.inference_mode()
    def _languages(self, memory: Padded) -> Tensor:
        """(b, k) log-probabilities of the languages to detect one of, after BOS alone."""
        begin = Padded.unpadded(torch.full((len(memory.values), 1), BOS, device=self.device))
        logits = self.model.step(begin, self.model.decoder.start(memory))[:, -1].float()
        return logits[:, list(self.prompt.languages.values())].log_softmax(-1)

    def _prefix(self, memory: Padded) -> Tensor:
        """(b, p) ids before each output, with the language of each recording."""
        ids = torch.tensor([self.prompt.ids] * len(memory.values), device=self.device)
        if self.prompt.languages:
            found = torch.tensor([*self.prompt.languages.values()], device=self.device)
            ids[:, self.prompt.language_at] = found[self._languages(memory).argmax(1)]
        return ids

    def _languages_in(self, prefix: Tensor) -> list[str]:
        """(b) codes of the spoken languages in ids (b, p) before the outputs."""
        if not self.prompt.languages:
            return [self.prompt.language] * len(prefix)
        codes = {i: code for code, i in self.prompt.languages.items()}
        return [codes[i] for i in prefix[:, self.prompt.language_at].tolist()]

    @torch.inference_mode()
    def request(
        self, frames: Padded, options: DecodingOptions, streams: Sequence[int]
    ) -> tuple[SearchRequest[Any], Padded | None]:
        """The search of `decode`, and CTC's log-probabilities (b, t', v) if there is a CTC head."""
        memory = self._encode(frames)
        scored = None if self.model.ctc is None else self.model.ctc_log_probs(memory)
        limits = memory.lengths.clamp(min=SHORTEST_LIMIT)
        room = max_sequence_length(self.recipe.model.decoder)
        if room is not None:
            limits = limits.clamp(max=room - len(self.prompt.ids))
        check_stop(options)
        check_work(options, int(limits.max()), "the recording")
        constraints = [constraints_of(options, lambda: self.token_surfaces)] * len(limits)
        model: SpeechModel | ctc.JointModel = self.model
        state: Any
        if scored is not None and options.ctc_weight and self.transcript_tokenizer is None:
            model = ctc.JointModel(self.model, options.ctc_weight)
            hooks, state = model.hooks(constraints), model.over(memory, scored)
        else:
            hooks = SearchHooks(constraints, filters=self.prompt.filters)
            state = self.model.decoder.start(memory)
        prefix, forbidden = Padded.unpadded(self._prefix(memory)), self.prompt.forbidden
        request = SearchRequest(
            model.step, state, prefix, limits, EOS, forbidden, options, streams, hooks=hooks
        )
        return request, scored

    def recognition(self, decoded: Decoded) -> Recognition:
        """The best hypothesis as text."""
        best = decoded.hypotheses[0]
        transcript = self._transcript(decoded.ctc)
        text, language = one_line(self.tokenizer, best.tokens), decoded.language
        return Recognition(text, best.score, transcript=transcript, language=language)

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Recognise held-out recordings and measure the texts against the given ones."""
        options = options or self.options
        found: Iterable[Recognition]
        spoken: list[str] = []
        if examples is not None:
            given = [(path, " ".join(text.split())) for (path,), text in examples]
            sources, references = [path for path, _ in given], [text for _, text in given]
            found = self.predict([(path,) for path in sources], options)
        else:
            recordings = read_recordings_of(
                self.recipe.data, self.recipe.audio, split, self.cache, available_cores()
            )
            sources, references = recordings.names, recordings.texts
            spoken = recordings.transcripts
            report = recordings.store.report
            if report.kept < report.read:
                logger.warning("some recordings are left out by data.filters: %s", report)
            found = self.recognise(every(recordings), options)
        if not sources:
            raise DataError("no recordings to evaluate")
        found = list(found)
        texts = [one.text for one in found]
        evaluation, each = self.recipe.evaluation, [[text] for text in references]
        language, by_name = evaluation.target_language, examples is None
        scores = measure(evaluation.metrics, texts, each, language)
        other: dict[str, float] = {}
        if self.transcript_tokenizer is not None and spoken:
            heard = [one.transcript or "" for one in found]
            rates = measure(("word-error-rate",), heard, [[text] for text in spoken])
            other = {"transcript-word-error-rate": float(rates["word-error-rate"])}
        return Evaluation(
            scores, sources, texts, each, language, by_name=by_name, other_scores=other
        )

    def facts(self) -> dict[str, Any]:
        """Size of the vocabulary, and time of a position."""
        return {
            "vocabulary": self.tokenizer.size,
            "seconds_per_position": self.seconds_per_position,
        }

    def _transcript(self, scored: Tensor | None) -> str | None:
        """The spoken words by greedy CTC, of a model that translates them."""
        if self.transcript_tokenizer is None:
            return None
        if scored is None:
            return ""
        (tokens,) = ctc.greedy(Padded.unpadded(scored[None]))
        return one_line(self.transcript_tokenizer, tokens)

    def read(self, path: str, number: int) -> Tensor:
        """Frames (t, f) of a file; none for a blank path."""
        if not path.strip():
            return torch.zeros(0, self.recipe.audio.bins)
        try:
            samples = read_audio(Path(path), self.recipe.audio.rate, path)
            if (most := self.extractor.window_samples) and len(samples) > most:
                seconds, window = (n / self.recipe.audio.rate for n in (len(samples), most))
                raise DataError(
                    f"{path} lasts {seconds:.1f} s, but the model reads {window:.0f} s at a time; "
                    "use `transduce transcribe`"
                )
            return self.extractor(samples)
        except DataError as error:
            raise InputError(number, str(error)) from None


def one_line(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Text of tokens, in one line."""
    return " ".join(tokenizer.decode(list(tokens)).splitlines())


def every(recordings: SplitRecordings) -> Iterator[Tensor]:
    """Frames (t, f) of each recording, not normalised."""
    return (recordings[i][0] for i in range(len(recordings)))


def positions_of(recipe: SpeechRecipe, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) positions of recordings, from their frames (n,)."""
    return np.array([recipe.model.front_end.positions(n) for n in lengths.tolist()], np.int64)
