"""Protocol of tokenizers: normalised text to token ids and back.

The first four ids mean the same in every tokenizer, so that models, decoders and data work with any
of them.  Ids of the vocabulary proper start at 4.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, cast

from pydantic import Field

from transduce.errors import DataError, RunError, SettingError, writing
from transduce.settings.sections import parse, section, to_dict
from transduce.support.files import SURROGATES, from_json, whole_file

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
        return list(map(self.encode, texts))

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


@section
class ListedConfig(Normalizer):
    """Settings of a vocabulary of counted units."""

    min_count: Annotated[int, Field(ge=1)] = 1
    """Units seen fewer times than this in the training text are unknown, except tags; where
    the target has this kind too, the model learns to copy them"""


@section
class ListedFile(Normalizer):
    """Content of the JSON file.  The first symbol has id 4, after the special tokens."""

    kind: Literal["characters", "symbols"]
    symbols: tuple[str, ...]


class ListedTokenizer(Tokenizer):
    """One id for each unit in a list; other units are unknown."""

    kind: ClassVar[str]
    """Name of this kind of tokenizer in its file and in messages."""
    suffix = ".json"
    separator: ClassVar[str]
    """Separator of units in decoded text."""

    def __init__(self, units: Sequence[str], normalizer: Normalizer) -> None:
        super().__init__(normalizer)
        self.units = tuple(units)
        self._unit_of = dict(enumerate(self.units, start=len(SPECIAL_TOKENS)))
        self._ids = {unit: i for i, unit in self._unit_of.items()}
        shown = ("▁" if unit == " " else unit for unit in self.units)
        self._shown = (*SPECIAL_TOKENS, *shown)

    @classmethod
    def train(cls, config: ListedConfig, lines: Iterable[str]) -> Self:
        """List the units of the lines, the most frequent first.  Raises DataError if there are
        none, SettingError if `min_count` leaves none."""
        normalizer = config.alone()
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(cls.split(normalizer.apply(line)))
        if not counts:
            raise DataError(NO_TEXT)
        most = max(counts.values())
        if most < config.min_count:
            raise SettingError(
                f"the vocabulary's min_count = {config.min_count} leaves no {cls.kind}; the most "
                f"frequent occurs {most} times, so set it to {most} or less"
            )
        frequent = [u for u, count in counts.items() if count >= config.min_count or cls.is_tag(u)]
        return cls(sorted(frequent, key=lambda unit: (-counts[unit], unit)), normalizer)

    @classmethod
    @abstractmethod
    def split(cls, text: str) -> Sequence[str]:
        """Split a normalised text into units."""

    @classmethod
    def is_tag(cls, unit: str) -> bool:
        """True for tags, which are kept in the vocabulary however rare they are."""
        return False

    @property
    def size(self) -> int:
        """Entries of the vocabulary, the four special tokens included."""
        return len(SPECIAL_TOKENS) + len(self.units)

    def normalize(self, text: str) -> str:
        """Normalised text, with a single separator between units."""
        return self.separator.join(self.split(self.normalizer.apply(text)))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with UNK for units outside the vocabulary."""
        id_of = self._ids.get
        return [id_of(unit, UNK) for unit in self.units_of(self.normalizer.apply(text))]

    def units_of(self, text: str) -> Iterable[str]:
        """Units behind the ids of a normalised text."""
        return self.split(text)

    def unknown_units(self, text: str) -> Iterator[str]:
        """Units of a text outside the vocabulary, in order, lazily: most outputs need none of
        them."""
        for unit in self.units_of(self.normalizer.apply(text)):
            if unit not in self._ids:
                yield unit

    def decode(self, ids: Iterable[int], unknown: Iterable[str] = ()) -> str:
        """Text of any ids: PAD, BOS and EOS are skipped, unknown ids become those of `unknown`, or
        U+FFFD."""
        skipped = (PAD, BOS, EOS)
        named = itertools.chain(unknown, itertools.repeat(REPLACEMENT))
        unit_of = self._unit_of.get
        return self.separator.join([unit_of(i) or next(named) for i in ids if i not in skipped])

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """A string to display for each id."""
        shown, size = self._shown, self.size
        return [shown[i if 0 <= i < size else UNK] for i in ids]

    def to_bytes(self) -> bytes:
        """JSON in UTF-8 with a symbol per line, for easy comparison of vocabularies."""
        content = {"kind": self.kind, **to_dict(self.normalizer), "symbols": list(self.units)}
        return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_file(cls, file: ListedFile) -> Self:
        """Tokenizer of a file's content.  Raises RunError for invalid symbols."""
        for unit in file.symbols:
            if list(cls.split(unit)) != [unit] or Normalizer().apply(unit) != unit:
                raise RunError(f"{unit!r} is not allowed in a vocabulary of {cls.kind}")
        if len(set(file.symbols)) < len(file.symbols):
            twice = Counter(file.symbols).most_common(1)[0][0]
            raise RunError(f"{twice!r} appears twice among the symbols")
        return cls(file.symbols, file.alone())


def read_listed(data: bytes) -> ListedFile:
    """Content of a JSON file.  Raises RunError with one line, without the file's name."""
    try:
        content = from_json(data)
        return parse(ListedFile, content)
    except SettingError as error:
        raise RunError(str(error)) from None
    except ValueError as error:
        raise RunError(f"damaged JSON ({error})") from None


_TAG = re.compile(r"<[^<>\s]+> ")


def mark(tag: str) -> str:
    """Format a tag for use before a source, as ordinary text."""
    return f"<{' '.join(tag.split())}> "


def leading_tags(text: str) -> list[str]:
    """Tags at the beginning of a text, each with its space."""
    tags = []
    end = 0
    while tag := _TAG.match(text, end):
        tags.append(tag[0])
        end = tag.end()
    return tags


@section
class CharactersConfig(ListedConfig):
    """Tokens are Unicode code points, spaces included, and each tag before the text."""

    kind: Literal["characters"] = "characters"


class CharacterTokenizer(ListedTokenizer):
    """A token per character, spaces included, and per tag `<de> ` at the beginning, if it is
    known."""

    kind = "characters"
    outputs = "characters"
    separator = ""

    @classmethod
    def split(cls, text: str) -> Sequence[str]:
        """Tags, then characters, as a string is already a sequence of them."""
        tags = leading_tags(text)
        return [*tags, *text[sum(map(len, tags)) :]] if tags else text

    @classmethod
    def is_tag(cls, unit: str) -> bool:
        """True for units of several characters."""
        return len(unit) > 1

    @property
    def tags(self) -> list[str]:
        """Tags in the vocabulary, each with its space, the most frequent first."""
        return [unit for unit in self.units if self.is_tag(unit)]

    def units_of(self, text: str) -> Iterator[str]:
        """Units as in `split`, with tags outside the vocabulary as their characters."""
        for unit in self.split(text):
            if unit in self._ids or not self.is_tag(unit):
                yield unit
            else:
                yield from unit


@section
class SymbolsConfig(ListedConfig):
    """Tokens are the strings between white space."""

    kind: Literal["symbols"] = "symbols"


class SymbolTokenizer(ListedTokenizer):
    """One token per string between white space; a run of white space counts as one space."""

    kind = "symbols"
    outputs = "symbols"
    separator = " "

    @classmethod
    def split(cls, text: str) -> Sequence[str]:
        """Split a text at white space."""
        return text.split()
