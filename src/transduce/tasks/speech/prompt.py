"""Tokens that every output begins with, and those that no output contains."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from transduce.config import section
from transduce.errors import SettingError
from transduce.text import BOS, PAD, HuggingFaceTokenizer, Tokenizer

NO_TIMES = "<|notimestamps|>"


@section
class PromptConfig:
    """Prompt of an imported Whisper model."""

    language: str = ""
    """Code of the spoken language, such as "de"; empty for a model of English alone."""
    task: Literal["transcribe", "translate"] = "transcribe"
    """Write the spoken words, or their translation into English."""
    suppressed: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Ids that are never written, such as those of signs that nobody speaks."""


class Prompt(NamedTuple):
    """Beginning of every output, and ids that are never written."""

    ids: tuple[int, ...] = (BOS,)
    forbidden: tuple[int, ...] = (BOS, PAD)


def prompt_of(config: PromptConfig | None, tokenizer: Tokenizer) -> Prompt:
    """The prompt of a recipe, in ids of its tokenizer.  Raises SettingError for a wrong one.

    Times, languages and other marks are never written.
    """
    if config is None:
        return Prompt()
    if not isinstance(tokenizer, HuggingFaceTokenizer) or NO_TIMES not in tokenizer.added_tokens:
        raise SettingError("prompt applies only to imported Whisper models; remove it")
    added = tokenizer.added_tokens
    names = [NO_TIMES]
    if config.language:
        language = f"<|{config.language}|>"
        if language not in added:
            known = ", ".join(
                name[2:-2] for name in added if 2 <= len(name) - 4 <= 3 and name[2:-2].isalpha()
            )
            raise SettingError(
                f"prompt.language = {config.language!r} is not a language of this model; choose "
                f"from {known or 'none'}"
            )
        names = [language, f"<|{config.task}|>", NO_TIMES]
    forbidden = {BOS, PAD, *added.values(), *config.suppressed}
    return Prompt((BOS, *(added[name] for name in names)), tuple(sorted(forbidden)))
