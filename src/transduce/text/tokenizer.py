"""Protocol of tokenizers: normalised text to token ids and back.

The first four ids mean the same in every tokenizer, so that models, decoders and data work with any
of them.  Ids of the vocabulary proper start at 4.
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Literal, cast

from transduce.errors import RunError, writing
from transduce.settings.sections import section
from transduce.support.files import SURROGATES, whole_file

_REPLACEMENT = "\ufffd"
_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


@section
class Normalizer:
    """Normalisation settings shared by all tokenizers.  By default text is unchanged."""

    normalization: Literal["none", "nfc", "nfd", "nfkc", "nfkd"] = "none"
    """Unicode form: `nfc` composes letters with their accents, `nfd` decomposes them, and Korean
    syllables too, also in decoded text; with k, width and ligatures are folded as well"""
    lowercase: bool = False
    """Lower-case all text"""

    def alone(self) -> Normalizer:
        """These settings without those of a section that inherits them."""
        return Normalizer(normalization=self.normalization, lowercase=self.lowercase)

    def apply(self, text: str) -> str:
        """Normalise a text, idempotently; lone surrogates, impossible in UTF-8 files, become
        U+FFFD."""
        if not text.isascii():
            text = SURROGATES.sub(_REPLACEMENT, text)
            text = self._in_form(text)
        if self.lowercase:
            # Lowering can take a letter apart (İ), so the form is restored after it.
            text = self._in_form(text.lower())
        return text

    def _in_form(self, text: str) -> str:
        if self.normalization == "none":
            return text
        return unicodedata.normalize(cast(_Form, self.normalization.upper()), text)


PAD = 0
UNK = 1
BOS = 2
EOS = 3
NO_TEXT = (
    "there is no text to train a vocabulary on: every line is blank, or data.hold_out sets all of "
    "them aside"
)
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""Display of PAD, UNK, BOS and EOS.  The same strings in user text are ordinary text."""
OutputUnits = Literal["text", "symbols", "characters"]
REPLACEMENT = "\ufffd"
"""Decoded form of an unknown token, the Unicode replacement character."""


class Tokenizer(ABC):
    """Converter of lines of text to token ids and back; immutable."""

    suffix: ClassVar[str]
    """Usual file suffix, `.model` or `.json`."""
    outputs: ClassVar[OutputUnits] = "text"
    """Units by which decoded text is scored: words of running `text`, `symbols` between spaces such
    as phones, or `characters`."""
    marks_between: int = 1
    """Number of EOS between two texts in one encoder input."""

    def __init__(self, normalizer: Normalizer) -> None:
        self.normalizer = normalizer

    @property
    @abstractmethod
    def size(self) -> int:
        """Entries of the vocabulary, including the four special tokens."""

    @abstractmethod
    def normalize(self, text: str) -> str:
        """Normalised text; equal to `decode(encode(text))`, unless a character or symbol is
        unknown."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS and EOS; the empty text has none."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, as from `encode`."""
        return [self.encode(text) for text in texts]

    @property
    def ends_sources(self) -> bool:
        """True for sources of an encoder-decoder that end with EOS."""
        return True

    def as_source(self, ids: Sequence[int]) -> list[int]:
        """Ids of a text as an encoder reads them; a source without any is EOS alone."""
        return [*ids, EOS] if self.ends_sources or not ids else [*ids]

    def spans(self, text: str) -> list[tuple[int, int]] | None:
        """Characters [start, end) of each id from `encode`; None if `text.offsets` has to find
        them."""
        return None

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Text of any ids, without PAD, BOS and EOS; UNK, and ids outside the vocabulary, become
        U+FFFD.  It may contain line breaks, since the source may."""

    @abstractmethod
    def tokens(self, ids: Iterable[int]) -> list[str]:
        """A string to display for each id, spaces shown as "▁", special ids as "<pad>" etc."""

    def surfaces(self) -> list[bytes]:
        """Bytes that each id adds in the middle of a text; none for special ids.  Each is decoded
        after another id, which cannot show half a character."""
        first = len(SPECIAL_TOKENS)
        before = self.decode([first])
        added = (self.decode([first, i]).removeprefix(before) for i in range(first, self.size))
        return [b""] * first + [text.encode() for text in added]

    @abstractmethod
    def to_bytes(self) -> bytes:
        """The whole tokenizer as the content of a file."""

    def save(self, path: Path) -> None:
        """Write the file for `load_tokenizer`, complete or not at all.  Raises RunError."""
        with writing(path, RunError), whole_file(path) as file:
            file.write(self.to_bytes())


def token_names(tokenizer: Tokenizer, extra: Sequence[str] = ()) -> Callable[..., list[str]]:
    """Names of ids to display; `extra` are those beyond the vocabulary."""

    def names(ids: Sequence[int]) -> list[str]:
        shown = tokenizer.tokens([i if i < tokenizer.size else UNK for i in ids])
        names = []
        for i, token in zip(ids, shown, strict=True):
            if i < len(SPECIAL_TOKENS):
                token = SPECIAL_TOKENS[i]
            elif i >= tokenizer.size:
                token = extra[i - tokenizer.size] if i - tokenizer.size < len(extra) else f"<{i}>"
            names.append(token)
        return names

    return names
