"""Tokenizers with a plain list of units as vocabulary, kept in a readable file: characters,
symbols."""

import itertools
import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from transduce.errors import DataError, RunError, SettingError
from transduce.settings.sections import parse, section, to_dict
from transduce.support.files import from_json
from transduce.text.tokenizer import (
    BOS,
    EOS,
    NO_TEXT,
    PAD,
    REPLACEMENT,
    SPECIAL_TOKENS,
    UNK,
    Normalizer,
    Tokenizer,
)


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
