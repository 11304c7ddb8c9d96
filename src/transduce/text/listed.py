"""Tokenizers whose vocabulary is a plain list of units, kept in a readable JSON file."""

from __future__ import annotations

import itertools
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from transduce.config import parse, section, to_dict
from transduce.errors import DataError, RunError, SettingError
from transduce.limits import from_json
from transduce.text.normalizer import Normalizer
from transduce.text.tokenizer import (
    BOS,
    EOS,
    NO_TEXT,
    PAD,
    REPLACEMENT,
    SPECIAL_TOKENS,
    UNK,
    Tokenizer,
)


@section
class ListedConfig(Normalizer):
    """Settings of a vocabulary that is counted rather than learnt."""

    min_count: Annotated[int, Field(ge=1)] = 1
    """Units seen fewer times than this in the training text are unknown; tags never are"""


@section
class ListedFile(Normalizer):
    """What the JSON file holds.  The first symbol has id 4, after the special ones."""

    kind: Literal["characters", "symbols"]
    symbols: tuple[str, ...]


class ListedTokenizer(Tokenizer):
    """One id for each unit of a list; what is not in the list is unknown."""

    kind: ClassVar[Literal["characters", "symbols"]]
    suffix = ".json"
    separator: ClassVar[str]
    """What stands between two units in decoded text."""

    def __init__(self, units: Sequence[str], normalizer: Normalizer) -> None:
        super().__init__(normalizer)
        self.units = tuple(units)
        self._ids = {unit: i for i, unit in enumerate(self.units, start=len(SPECIAL_TOKENS))}

    @classmethod
    def train(cls, config: ListedConfig, lines: Iterable[str]) -> Self:
        """List the units of the lines, the most frequent first.

        Raises DataError when there are none, SettingError when `min_count` leaves none.
        """
        normalizer = Normalizer(normalization=config.normalization, lowercase=config.lowercase)
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
        kept = [u for u, count in counts.items() if count >= config.min_count or cls.is_tag(u)]
        return cls(sorted(kept, key=lambda unit: (-counts[unit], unit)), normalizer)

    @classmethod
    @abstractmethod
    def split(cls, text: str) -> Sequence[str]:
        """The units of a normalised text."""

    @classmethod
    def is_tag(cls, unit: str) -> bool:
        """Whether a unit is an instruction: one that training has is known however rare it is."""
        return False

    @property
    def size(self) -> int:
        """Entries of the vocabulary, the four special ones included."""
        return len(SPECIAL_TOKENS) + len(self.units)

    def normalize(self, text: str) -> str:
        """Text by the settings, with exactly one separator between units."""
        return self.separator.join(self.split(self.normalizer.apply(text)))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, UNK for what is not in the vocabulary."""
        return [self._ids.get(unit, UNK) for unit in self.units_of(self.normalizer.apply(text))]

    def units_of(self, text: str) -> Iterable[str]:
        """What the ids of a normalised text stand for."""
        return self.split(text)

    def unknown_units(self, text: str) -> Iterator[str]:
        """The units of a text that are not in the vocabulary, in order, each looked for when asked.

        Most outputs have no unknown token, and then nothing is looked for.
        """
        for unit in self.units_of(self.normalizer.apply(text)):
            if unit not in self._ids:
                yield unit

    def decode(self, ids: Iterable[int], unknown: Iterable[str] = ()) -> str:
        """Text of any ids: PAD, BOS and EOS are skipped, unknown ones become U+FFFD.

        unknown: units that the unknown ids stand for, in order, instead.
        """
        skipped = (PAD, BOS, EOS)
        named = itertools.chain(unknown, itertools.repeat(REPLACEMENT))
        return self.separator.join(self._unit(i) or next(named) for i in ids if i not in skipped)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """A string to display for each id."""
        special = dict(enumerate(SPECIAL_TOKENS))
        shown = (special.get(i) or self._unit(i) or SPECIAL_TOKENS[UNK] for i in ids)
        return ["▁" if token == " " else token for token in shown]

    def to_bytes(self) -> bytes:
        """JSON in UTF-8 with one symbol a line, so that two vocabularies can be compared."""
        content = {"kind": self.kind, **to_dict(self.normalizer), "symbols": list(self.units)}
        return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_file(cls, file: ListedFile) -> Self:
        """The tokenizer of a file's content.  Raises RunError when its symbols cannot be."""
        for unit in file.symbols:
            if list(cls.split(unit)) != [unit] or Normalizer().apply(unit) != unit:
                raise RunError(f"{unit!r} is not allowed in a vocabulary of {cls.kind}")
        if len(set(file.symbols)) < len(file.symbols):
            twice = Counter(file.symbols).most_common(1)[0][0]
            raise RunError(f"{twice!r} appears twice among the symbols")
        return cls(
            file.symbols, Normalizer(normalization=file.normalization, lowercase=file.lowercase)
        )

    def _unit(self, token: int) -> str | None:
        index = token - len(SPECIAL_TOKENS)
        return self.units[index] if 0 <= index < len(self.units) else None


def read_listed(data: bytes) -> ListedFile:
    """The content of a JSON file.  Raises RunError of one line, without the file's name."""
    try:
        content = from_json(data)
        return parse(ListedFile, content)
    except SettingError as error:
        raise RunError(str(error)) from None
    except ValueError as error:
        raise RunError(f"damaged JSON ({error})") from None
