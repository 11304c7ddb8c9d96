"""Tokens that every output of a speech model begins with, times among its words, and the search
with them.

    <|0.00|> words <|2.40|><|2.90|> more words <|4.12|>

Shapes: l sentences, w hypotheses, v tokens.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from transduce.decoding.backend import SearchBackend
from transduce.decoding.hypotheses import DEAD, ActiveHypotheses
from transduce.errors import SettingError
from transduce.settings.sections import parse, section, to_dict
from transduce.speech.features import Frames
from transduce.text import BOS, EOS, PAD, HuggingFaceTokenizer, Tokenizer
from transduce.text.languages import spoken_code

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.decoding.strategies import Filter


STEP = 0.02
"""Seconds between two times."""
LATEST_START = 1.0
"""Seconds by which the first words have begun."""


def timestamp_rules(times: range, eos: int) -> Filter:
    """Allow only text between pairs of increasing times.

    The first token is a time of at most `LATEST_START`.  Words end with a time, and the end or the
    next beginning follows it, not before it; words have a length.  Where all times together are
    more probable than any other token, a time comes next.

    times: ids of the times, from 0 seconds on.
    """
    import torch

    first, end = times.start, times.stop

    def apply(log_probs: Tensor, active: ActiveHypotheses) -> None:
        of_times = log_probs[..., first:end]
        of_words = [part for part in (log_probs[..., :first], log_probs[..., end:]) if part.numel()]
        if not active.length:
            for part in (*of_words, of_times[..., round(LATEST_START / STEP) + 1 :]):
                part.fill_(DEAD)
            return
        written = (first <= active.tokens) & (active.tokens < end)  # (l, w, length)
        last = written[..., -1:]
        pair = last & (written[..., -2:-1] if active.length > 1 else True)
        closed = last & ~pair
        newest = active.tokens.masked_fill(~written, first - 1).amax(2, keepdim=True)  # (l, w, 1)
        ids = torch.arange(first, end, device=log_probs.device)
        of_times.masked_fill_(pair | (ids < newest + (~closed).long()), DEAD)
        at_end = log_probs[..., eos].clone()
        for part in of_words:
            part.masked_fill_(closed, DEAD)
        log_probs[..., eos] = at_end
        together = of_times.logsumexp(2, keepdim=True)
        best = torch.cat([part.amax(2, keepdim=True) for part in of_words], 2).amax(2, keepdim=True)
        for part in of_words:
            part.masked_fill_(together > best, DEAD)

    return apply


def forbid_first(tokens: Sequence[int]) -> Filter:
    """Forbid these ids at the beginning of an output."""

    def apply(log_probs: Tensor, active: ActiveHypotheses) -> None:
        if not active.length:
            for token in tokens:
                log_probs.select(2, token).fill_(DEAD)

    return apply


def renormalise(log_probs: Tensor, active: ActiveHypotheses) -> None:
    """Divide probabilities by their sum over the allowed tokens, as Whisper scores its outputs:
    there, what is forbidden costs the rest nothing."""
    log_probs -= log_probs.logsumexp(2, keepdim=True).nan_to_num(neginf=0.0)


class TimedTokens(NamedTuple):
    """Tokens of words, without times, from `start` to `end` seconds; inf if not written."""

    start: float
    end: float
    tokens: list[int]


def timed_tokens(tokens: Sequence[int], times: range) -> list[TimedTokens]:
    """Words of an output between its times."""
    timed: list[TimedTokens] = []
    start, words = 0.0, list[int]()
    for token in tokens:
        if token not in times:
            words.append(token)
            continue
        time = (token - times.start) * STEP
        if words:
            timed.append(TimedTokens(start, time, words))
            words = []
        start = time
    return [*timed, TimedTokens(start, math.inf, words)] if words else timed


NO_TIMES, PREVIOUS = "<|notimestamps|>", "<|startofprev|>"
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")
"""Name of the token that stands for no speech, now and once."""
AUTO = "auto"
Natural = Annotated[int, Field(ge=0)]
Ids = tuple[Natural, ...]
PromptTask = Literal["transcribe", "translate"]


@section
class PromptConfig:
    """Prompt of an imported Whisper model."""

    language: str = ""
    """Code or English name of the spoken language, such as "de"; "auto" to detect it in each
    window, or several, as "de,en", to detect one of them; empty for a model of English alone."""
    task: PromptTask = "transcribe"
    """Write the spoken words, or their translation into English."""
    text: str = ""
    """Text before the recording; outputs follow its names and spelling."""
    timestamps: bool = True
    """Take the times of segments in `transcribe` from the output of the model."""
    suppressed: Ids = ()
    """Ids excluded from outputs, such as symbols without a pronunciation."""
    suppressed_first: Ids = ()
    """Ids that no output begins with, such as the end."""
    alignment_heads: tuple[tuple[Natural, Natural], ...] = ()
    """Layer and head, from 0, of each cross-attention that follows the words, for their times; all
    heads of the upper half of the layers by default."""


@dataclass(frozen=True)
class Prompt:
    """Beginning of every output, and rules of its tokens.

    ids: before the output.  forbidden, forbidden_first: ids that are never written, and those not
    written first.  times: ids of times, in steps of 20 ms; none to write none.  language: code of
    the spoken language, if known.  languages: ids of the languages to detect, by their
    codes; it stands after BOS.  no_speech: id of the token for no speech, after BOS.  no_times: id
    of the mark before an output without times.
    """

    ids: tuple[int, ...] = (BOS,)
    forbidden: tuple[int, ...] = (BOS, PAD)
    forbidden_first: tuple[int, ...] = ()
    times: range = range(0)
    language: str = ""
    languages: Mapping[str, int] = field(default_factory=dict)
    no_speech: int | None = None
    no_times: int | None = None

    @property
    def filters(self) -> list[Filter]:
        """Rules of the next token for a search, beside `forbidden`."""
        filters = [forbid_first(self.forbidden_first)] if self.forbidden_first else []
        if self.times:
            filters.append(timestamp_rules(self.times, EOS))
        return filters if self.no_times is None else [*filters, renormalise]

    @property
    def start(self) -> int:
        """Index of BOS in `ids`, after any previous text."""
        return self.ids.index(BOS)

    @property
    def untimed(self) -> list[int]:
        """Ids from BOS on before an output without times."""
        ids = list(self.ids[self.start :])
        return ids if self.no_times in (None, ids[-1]) else [*ids, self.no_times]

    @property
    def language_at(self) -> int:
        """Index of the language in `ids` if it is to be detected."""
        return self.start + 1

    def speaking(self, language: str) -> Prompt:
        """The prompt with a detected language, if it is to be detected."""
        if not self.languages:
            return self
        at = self.language_at
        ids = (*self.ids[:at], self.languages[language], *self.ids[at + 1 :])
        return replace(self, ids=ids, language=language, languages={})

    def followed_by(self, ids: Sequence[int]) -> Prompt:
        """The prompt with the first ids of the output."""
        return replace(self, ids=(*self.ids, *ids), forbidden_first=())


def prompt_of(
    config: PromptConfig | None, tokenizer: Tokenizer, room: int | None = None, timed: bool = False
) -> Prompt:
    """The prompt of a recipe, in ids of its tokenizer.  Raises SettingError for a wrong prompt.

    Languages and other marks are never written, and times only if `timed`, by a tokenizer that has
    them.  room: positions of the decoder, of which the last of the previous text take half.
    """
    if config is None:
        return Prompt()
    if not isinstance(tokenizer, HuggingFaceTokenizer) or NO_TIMES not in tokenizer.added_tokens:
        raise SettingError("prompt applies only to imported Whisper models; remove it")
    added = tokenizer.added_tokens
    times = _times(added) if timed and config.timestamps else range(0)
    languages = _languages(added)
    codes = _codes(config.language, languages)
    detected = len(codes) > 1
    language = "" if detected else codes[0]
    names, marks = [], list[int]()
    if config.language:
        marks = [languages.get(language, PAD)]
        names = [f"<|{config.task}|>"]
    elif config.task == "translate":
        raise SettingError("prompt.task = 'translate' needs a model of many languages")
    if not times:
        names.append(NO_TIMES)
    before = _previous(config.text, tokenizer, room)
    forbidden = {BOS, PAD, *added.values(), *config.suppressed}.difference(times)
    return Prompt(
        (*before, BOS, *marks, *(added[name] for name in names)),
        tuple(sorted(forbidden)),
        config.suppressed_first,
        times,
        language or "",
        {code: languages[code] for code in codes} if detected else {},
        next((added[name] for name in NO_SPEECH if name in added), None),
        added[NO_TIMES],
    )


def _codes(language: str, languages: Mapping[str, int]) -> list[str]:
    """Codes of a setting, one or those to detect; an empty one for a model of one language.

    Raises SettingError for a language that the model does not know.
    """
    if language.strip().lower() == AUTO:
        return [*languages]
    codes = []
    for name in language.split(","):
        if (code := spoken_code(name, languages) if language else "") is None:
            known = ", ".join(languages) or "none"
            raise SettingError(
                f"prompt.language = {language!r}: {name.strip()!r} is not a language of this "
                f"model; choose from {known}"
            )
        codes.append(code)
    return [*dict.fromkeys(codes)]


def prompt_with(
    config: PromptConfig | None,
    language: str | None = None,
    task: str | None = None,
    text: str | None = None,
) -> PromptConfig | None:
    """The prompt of a recipe, with settings overridden by a call.

    config: prompt of the recipe.  language: code.  task: "transcribe" or "translate".  text: before
    the recording.  None leaves the recipe's.

    Raises SettingError for settings of a model without prompt.
    """
    fields = {"language": language, "task": task, "text": text}
    fields = {name: value for name, value in fields.items() if value is not None}
    if config is None:
        for name in fields:
            raise SettingError(
                f"{'prompt' if name == 'text' else name} applies only to imported Whisper models; "
                "remove it"
            )
        return None
    return parse(PromptConfig, {**to_dict(config), **fields})


def _languages(added: Mapping[str, int]) -> dict[str, int]:
    """Ids of the marks of languages, by their codes of two or three letters."""
    codes = ((name[2:-2], i) for name, i in added.items() if name[:2] == "<|" and name[-2:] == "|>")
    return {code: i for code, i in codes if 2 <= len(code) <= 3 and code.isalpha()}


def _times(added: Mapping[str, int]) -> range:
    """Ids of times from 0 s on, as far as they follow each other; none if there are none."""
    names = (f"<|{i * STEP:.2f}|>" for i in itertools.count())
    ids = [added[name] for name in itertools.takewhile(added.__contains__, names)]
    if not ids or ids != list(range(ids[0], ids[0] + len(ids))):
        return range(0)
    return range(ids[0], ids[-1] + 1)


def _previous(text: str, tokenizer: HuggingFaceTokenizer, room: int | None) -> list[int]:
    """Tokens of the text before the recording, after their mark; none if blank."""
    if not text.strip():
        return []
    if PREVIOUS not in tokenizer.added_tokens:
        raise SettingError("prompt.text: this model reads no text before its own; remove it")
    ids = tokenizer.encode(f" {' '.join(text.split())}")
    most = len(ids) if room is None else room // 2 - 1
    return [tokenizer.added_tokens[PREVIOUS], *ids[-max(1, most) :]]


@dataclass(frozen=True, eq=False)
class Encoded:
    """A recording that the encoder has read: its memory (t', m), with sound in the first
    `positions`, and the code of its language, if known."""

    memory: Tensor | NDArray[np.float32]
    positions: int
    language: str = ""


Source = Frames | Encoded
"""A recording: frames (t, f), not normalised, or its memory."""


@dataclass(eq=False, kw_only=True)
class RecordingSearch(SearchBackend):
    """Search for the texts of recordings."""

    prompt: Prompt

    @abstractmethod
    def encode(self, recordings: Sequence[Frames], positions: Sequence[int]) -> list[Encoded]:
        """The memory of windows of one length, from their frames (t, f), not normalised.

        positions: with sound, of each.
        """

    @abstractmethod
    def memory_of(self, recordings: Sequence[Source]) -> Any:
        """The memory of recordings, as the model reads it."""

    @abstractmethod
    def logits_after(self, ids: Sequence[int], memory: Any) -> NDArray[np.float32]:
        """Logits (b, t, v) after each of some ids, the same for all recordings of a memory."""

    def log_probs(
        self, tokens: Sequence[int], source: Source, language: str
    ) -> NDArray[np.float32]:
        """(n,) log-probabilities of tokens without times, given a recording.

        tokens: of a text, after the prompt.  language: code of the spoken language.
        """
        before = self.prompt.speaking(language).untimed
        ids = [*before, *tokens]
        logits = self.logits_after(ids[:-1], self.memory_of([source]))[0, len(before) - 1 :]
        rows = zip(logits, tokens, strict=True)  # row by row: few copies of a large vocabulary
        scores = [row[i] - row.max() - np.log(np.exp(row - row.max()).sum()) for row, i in rows]
        return np.array(scores, np.float32)

    def languages_of(self, memory: Any, recordings: Sequence[Source]) -> list[str]:
        """Codes of the spoken languages, given or detected, of recordings in a memory."""
        if not self.prompt.languages:
            return [self.prompt.language] * len(recordings)
        codes = [source.language if isinstance(source, Encoded) else "" for source in recordings]
        if all(codes):
            return codes
        detected = self._languages(memory).argmax(1)
        known = [*self.prompt.languages]
        return [code or known[i] for code, i in zip(codes, detected, strict=True)]

    def language_scores(self, recordings: Sequence[Source]) -> NDArray[np.float64]:
        """(b, k) log-probabilities of the languages to detect in some recordings."""
        return self._languages(self.memory_of(recordings))

    def listening_to(self, recording: Source) -> Self:
        """The search with the language detected in a recording, if it is to be detected."""
        if not self.prompt.languages or not (isinstance(recording, Encoded) or len(recording)):
            return self
        detected = [*self.prompt.languages][int(self.language_scores([recording]).argmax())]
        return replace(self, prompt=self.prompt.speaking(detected))

    def _languages(self, memory: Any) -> NDArray[np.float64]:
        """(b, k) log-probabilities of the languages to detect, after BOS alone."""
        logits = self.logits_after([BOS], memory)[:, 0, [*self.prompt.languages.values()]]
        logits = logits.astype(np.float64) - logits.max(1, keepdims=True)
        log_probs: NDArray[np.float64] = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return log_probs
