"""Limits and warnings of a translator, fixed when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from transduce.tasks.translation.languages import LanguageTokens
from transduce.tasks.translation.tags import ExpectedTags
from transduce.tasks.unknown_tokens import UnknownTokens


@dataclass(frozen=True)
class TranslatorConfig:
    """Limits and warnings of a translator."""

    max_source_length: int
    """Maximum source tokens in training; longer texts are split."""
    max_target_length: int | None = None
    """Maximum target tokens, by the decoder's positions; None for no limit."""
    target_language: str = ""
    """Language code for the utility of minimum Bayes risk decoding."""
    alignment_head: tuple[int, int | None] = (-1, None)
    """Default layer and head of alignment; None for the mean of all heads."""
    expected_tags: ExpectedTags | None = None
    """Warns of texts without the tags of training."""
    unknown_tokens: UnknownTokens | None = None
    """Warns of texts with tokens absent from training."""
    languages: LanguageTokens | None = None
    """Languages that tags before a source select; None without tokens for them."""
    tag: str = ""
    """Tag of a target language put before every text, with its space."""
    warn_of_length: bool = True
    """Warn of each text that is split."""
