"""Tokens that every output begins with, and those that no output contains."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from transduce.errors import SettingError
from transduce.settings.sections import parse, section, to_dict
from transduce.tasks.speech.timestamps import (
    STEP,
    forbid_first,
    renormalise,
    timestamp_rules,
)
from transduce.text import BOS, EOS, PAD, HuggingFaceTokenizer, Tokenizer
from transduce.text.language_names import spoken_code

if TYPE_CHECKING:
    from transduce.decoding.filters import Filter

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
    recording; empty for a model of English alone."""
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
    detected = config.language.strip().lower() == AUTO
    language = "" if detected else spoken_code(config.language, languages)
    names, marks = [], list[int]()
    if config.language:
        if language is None:
            known = ", ".join(languages)
            raise SettingError(
                f"prompt.language = {config.language!r} is not a language of this model; choose "
                f"from {known or 'none'}"
            )
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
        languages if detected else {},
        next((added[name] for name in NO_SPEECH if name in added), None),
        added[NO_TIMES],
    )


def prompt_with(
    config: PromptConfig | None,
    language: str | None = None,
    task: str | None = None,
    text: str | None = None,
) -> PromptConfig | None:
    """The prompt of a recipe, with settings overridden by a call.

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
