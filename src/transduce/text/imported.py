"""Shared code of imported tokenizers: their ids, put into the order of ours.

Elsewhere the special ids stand anywhere; here PAD, UNK, BOS and EOS are 0 to 3, the rest follows
in its own order, and MASK, where there is one, comes last, one beyond the tokenizer's own ids.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from transduce.config import parse, section
from transduce.errors import RunError, SettingError
from transduce.text.normalizer import Normalizer
from transduce.text.tokenizer import BOS, EOS, PAD, REPLACEMENT, SPECIAL_TOKENS, UNK, Tokenizer

Id = Annotated[int, Field(ge=0)]
LARGEST_VOCABULARY = 2**24


@section
class ImportedConfig:
    """A tokenizer that came with an imported model, and cannot be trained."""

    kind: Literal["hugging-face", "marian"]
    """What made it."""


@section
class Numbering:
    """Where the special tokens of a vocabulary stand, and how it is numbered here.

    Two special tokens may be one there; a missing one is made up, and its row in `rows` is -1.
    """

    size: Annotated[int, Field(ge=1, le=LARGEST_VOCABULARY)]
    """Ids of the vocabulary there: rows of its embedding."""
    pad: Id | None = None
    unk: Id | None = None
    bos: Id | None = None
    eos: Id | None = None
    mask: Id | None = None

    def __post_init__(self) -> None:
        for name in ("pad", "unk", "bos", "eos", "mask"):
            if (getattr(self, name) or 0) >= self.size:
                raise SettingError(
                    f"the id of {name}, {getattr(self, name)}, is not among the {self.size} of "
                    "the vocabulary"
                )
        if self.mask is not None and self.mask in self.specials:
            raise SettingError(f"the id of mask, {self.mask}, is that of another special token")

    @property
    def specials(self) -> tuple[int | None, ...]:
        """The ids there of PAD, UNK, BOS and EOS."""
        return self.pad, self.unk, self.bos, self.eos

    @functools.cached_property
    def rows(self) -> tuple[int, ...]:
        """For each id here, the id there, or -1; without MASK."""
        taken = {*self.specials, self.mask}
        front = (-1 if token is None else token for token in self.specials)
        return (*front, *(token for token in range(self.size) if token not in taken))

    @property
    def rows_and_mask(self) -> tuple[int, ...]:
        """The same with MASK at the end."""
        return (*self.rows, -1 if self.mask is None else self.mask)

    @functools.cached_property
    def of_text(self) -> tuple[int, ...]:
        """For each id there, the id here.  No text says PAD, BOS, EOS or MASK: those are UNK."""
        ids = [UNK] * self.size
        for here, there in enumerate(self.rows[len(SPECIAL_TOKENS) :], start=len(SPECIAL_TOKENS)):
            ids[there] = here
        return tuple(ids)


class ImportedTokenizer(Tokenizer):
    """A tokenizer made elsewhere; `numbering` says which of its ids is which of ours."""

    kind: ClassVar[Literal["hugging-face", "marian"]]
    suffix = ".json"

    def __init__(self, numbering: Numbering) -> None:
        super().__init__(Normalizer())
        self.numbering = numbering

    @property
    def size(self) -> int:
        """Entries of the vocabulary, the four special ones included and MASK not."""
        return len(self.numbering.rows)

    def normalize(self, text: str) -> str:
        """Text as it comes back: some of these tokenizers forget case, accents or spaces."""
        return self.decode(self.encode(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Text of any ids: PAD, BOS and EOS are skipped, unknown ones become U+FFFD."""
        pieces = (self._piece(i) for i in ids if i not in (PAD, BOS, EOS))
        return self._join([REPLACEMENT if piece is None else piece for piece in pieces])

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """A string to display for each id: its piece as the tokenizer writes it."""
        special = dict(enumerate(SPECIAL_TOKENS))
        return [special.get(i) or self._shown(self._piece(i) or SPECIAL_TOKENS[UNK]) for i in ids]

    @abstractmethod
    def _piece_there(self, token: int) -> str | None:
        """The piece with that id there, if there is one."""

    @abstractmethod
    def _join(self, pieces: list[str]) -> str:
        """The text of pieces in a row."""

    def _shown(self, piece: str) -> str:
        return piece

    def _piece(self, token: int) -> str | None:
        rows = self.numbering.rows
        return self._piece_there(rows[token]) if UNK < token < len(rows) else None

    def _check_ids(self, vocabulary: Iterable[int]) -> None:
        """Raises RunError for ids that the numbering has no place for."""
        highest = max(vocabulary, default=0)
        if highest >= self.numbering.size:
            raise RunError(
                f"the tokenizer gives ids up to {highest}, but the model knows only "
                f"{self.numbering.size}"
            )

    def _here(self, ids_there: Sequence[int]) -> list[int]:
        of_text = self.numbering.of_text
        return [of_text[token] for token in ids_there]


def parse_file(kind: type[Any], content: Any) -> Any:
    """The content of a tokenizer's JSON file as the section `kind`.  Raises RunError."""
    try:
        return parse(kind, content)
    except SettingError as error:
        raise RunError(str(error)) from None
