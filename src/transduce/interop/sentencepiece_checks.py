"""Check that a tokenizer can be exported as a SentencePiece model alone."""

from __future__ import annotations

from transduce.errors import RunError
from transduce.text import SubwordTokenizer, Tokenizer


def check_sentencepiece(program: str, side: str, tokenizer: Tokenizer) -> None:
    """Raises RunError, with the setting to change before training, for a tokenizer that a program
    that reads SentencePiece, and does not normalise texts, cannot have."""
    if not isinstance(tokenizer, SubwordTokenizer):
        raise RunError(
            f"{program} reads SentencePiece vocabularies only; train with "
            f'text.{side}.kind = "bpe" or "unigram"'
        )
    normalizer = tokenizer.normalizer
    if normalizer.lowercase or normalizer.normalization != "none":
        raise RunError(
            f"{program} does not normalise texts as this run does; train with "
            f'text.{side}.normalization = "none" and text.{side}.lowercase = false'
        )
