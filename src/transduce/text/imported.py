"""Imported tokenizers: their ids in the order of ours, tokens added to them, and those of
Marian.

In other toolkits special ids can be anywhere; here PAD, UNK, BOS and EOS are 0 to 3, the rest
follows in its own order, and MASK, if any, comes last, after the tokenizer's own ids.

Source and target have a SentencePiece model each, and usually share a list of pieces.
"""

import base64
import binascii
import dataclasses
import functools
import json
import re
import struct
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import sentencepiece
from pydantic import Field

from transduce.errors import RunError, SettingError
from transduce.settings.sections import parse, section, to_dict
from transduce.text.tokenizer import (
    BOS,
    EOS,
    PAD,
    REPLACEMENT,
    SPECIAL_TOKENS,
    UNK,
    Normalizer,
    Tokenizer,
)


@section
class AddedToken:
    """A string that is one token, with its matching rules."""

    content: str
    single_word: bool = False
    """Match only as a whole word."""
    lstrip: bool = False
    """Include the spaces before it."""
    rstrip: bool = False
    """Include the spaces after it."""
    normalized: bool = False
    """Match in the normalised text instead of the original."""
    special: bool = False
    """A control token for the model, such as a role mark, not a word."""


class AddedTokens:
    """Split texts at added tokens as `transformers` does without the library `tokenizers`: the
    leftmost first, and the longest of those with the same start."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens: Mapping[str, AddedToken] = {t.content: t for t in tokens if t.content}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Parts of a text, none of them empty; True beside added tokens."""
        if not self._tokens:
            return [(text, False)] if text else []
        parts = [part for part in self._pattern.split(text) if part]
        for i in range(len(parts)):
            if (token := self._tokens.get(parts[i])) is not None:
                self._strip_around(token, parts, i)
        return [(part, part in self._tokens) for part in parts if part]

    @staticmethod
    def _strip_around(token: AddedToken, parts: list[str], i: int) -> None:
        """Adjust the parts around the token at `i`, and join it with them if it is not a word."""
        before = parts[i - 1] if i > 0 else ""
        after = parts[i + 1] if i + 1 < len(parts) else ""
        if token.rstrip and after:
            parts[i + 1] = after.lstrip()
        if token.lstrip and before:
            parts[i - 1] = before.rstrip()
        if not token.single_word:
            return
        if before and before[-1] != " ":
            parts[i - 1] += token.content
            parts[i] = ""
        elif after and after[0] != " ":
            parts[i + 1] = token.content + parts[i + 1]
            parts[i] = ""


Id = Annotated[int, Field(ge=0)]
LARGEST_VOCABULARY = 2**24


@section
class ImportedConfig:
    """The tokenizer of an imported model; it cannot be trained."""

    kind: Literal["hugging-face", "marian"]
    """Origin of the tokenizer."""


@section
class Numbering:
    """Special ids of an imported vocabulary, and the mapping between its ids and ours; special
    tokens may share an id there, and a missing token has -1 in `rows`."""

    size: Annotated[int, Field(ge=1, le=LARGEST_VOCABULARY)]
    """Number of ids of the imported vocabulary: rows of its embedding."""
    pad: Id | None = None
    unk: Id | None = None
    bos: Id | None = None
    eos: Id | None = None
    mask: Id | None = None
    opening: Id | None = None
    """Id that every text begins with, after BOS in an output: a language, or BART's <s>."""
    source_end: bool = True
    """EOS at the end of a source; OpenNMT's models have none."""
    opening_last: bool = False
    """The opening of a source after its EOS instead of first, as in mBART's first model."""
    languages: dict[str, Id] = field(default_factory=dict)
    """Ids that stand for languages, by canonical codes."""

    def __post_init__(self) -> None:
        names = ("pad", "unk", "bos", "eos", "mask", "opening")
        for name, token in ({n: getattr(self, n) for n in names} | self.languages).items():
            if (token or 0) >= self.size:
                raise SettingError(
                    f"the id of {name}, {token}, is outside the vocabulary of {self.size}"
                )
        if self.mask is not None and self.mask in self.specials:
            raise SettingError(f"the id of mask, {self.mask}, belongs to another special token")

    @property
    def specials(self) -> tuple[int | None, ...]:
        """Imported ids of PAD, UNK, BOS and EOS."""
        return self.pad, self.unk, self.bos, self.eos

    @functools.cached_property
    def rows(self) -> tuple[int, ...]:
        """Imported id of each id here, or -1; without MASK."""
        taken = {*self.specials, self.mask}
        front = (-1 if token is None else token for token in self.specials)
        return (*front, *(token for token in range(self.size) if token not in taken))

    @property
    def rows_and_mask(self) -> tuple[int, ...]:
        """The same with MASK at the end."""
        return (*self.rows, -1 if self.mask is None else self.mask)

    @functools.cached_property
    def marks(self) -> Mapping[int, int]:
        """Our ids of languages and of the opening, by imported ids; none of them is text."""
        marks = {*self.languages.values(), *([] if self.opening is None else [self.opening])}
        return {there: here for here, there in enumerate(self.rows) if here >= 4 and there in marks}

    @functools.cached_property
    def of_text(self) -> Sequence[int]:
        """Our id of each imported id in a text.  PAD, BOS, EOS and MASK cannot come from text and
        become UNK."""
        ids = array("i", [UNK]) * self.size
        for here, there in enumerate(self.rows[len(SPECIAL_TOKENS) :], start=len(SPECIAL_TOKENS)):
            ids[there] = here
        return ids


class ImportedTokenizer(Tokenizer):
    """An imported tokenizer; `numbering` maps its ids to ours."""

    kind: ClassVar[Literal["hugging-face", "marian"]]
    suffix = ".json"

    def __init__(self, numbering: Numbering) -> None:
        super().__init__(Normalizer())
        self.numbering = numbering

    def renumbered(self, numbering: Numbering) -> Self:
        """This tokenizer with another numbering, sharing all else."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, numbering=numbering)
        return twin

    @abstractmethod
    def grown(self, code: str, pieces: Mapping[str, float]) -> Self:
        """This tokenizer with a further language and further pieces, which get the next ids in this
        order.  pieces: their scores.  Raises RunError for a vocabulary that cannot grow."""

    @abstractmethod
    def has_piece(self, piece: str) -> bool:
        """True for a piece of the vocabulary."""

    def _with_language(self, code: str, n_pieces: int) -> Numbering:
        size = self.numbering.size
        languages = {**self.numbering.languages, code: size}
        return dataclasses.replace(self.numbering, size=size + 1 + n_pieces, languages=languages)

    @property
    def ends_sources(self) -> bool:
        """As the model was trained."""
        return self.numbering.source_end and not self.closing

    def opened(self, language: str) -> Self:
        """This tokenizer with texts in a language of a canonical code."""
        opening = self.numbering.languages[language]
        return self.renumbered(dataclasses.replace(self.numbering, opening=opening))

    def language(self, code: str) -> int:
        """Our id of a language of a canonical code."""
        return self.numbering.marks[self.numbering.languages[code]]

    @property
    def opening(self) -> tuple[int, ...]:
        """Our id that texts begin with, if there is one."""
        return () if self.numbering.opening_last else self._marked

    @property
    def closing(self) -> tuple[int, ...]:
        """Our ids that sources end with, where a language stands last."""
        return (EOS, *self._marked) if self.numbering.opening_last else ()

    @property
    def _marked(self) -> tuple[int, ...]:
        there = self.numbering.opening
        return () if there is None else (self.numbering.marks[there],)

    def in_language(self, code: str, ids: list[int]) -> list[int]:
        """Ids of a text with the token of another language."""
        if not ids or not self.closing:
            return [self.language(code), *ids[len(self.opening) :]] if ids else ids
        return [*ids[: -len(self.closing)], EOS, self.language(code)]

    def is_mark(self, token: int) -> bool:
        """True for an id that is no text: of a language, or the opening."""
        return 0 <= token < self.size and self.numbering.rows[token] in self.numbering.marks

    @property
    def size(self) -> int:
        """Entries of the vocabulary, with the four special tokens, without MASK."""
        return len(self.numbering.rows)

    def normalize(self, text: str) -> str:
        """Text after decoding: some of these tokenizers lose case, accents or spaces."""
        return self.decode(self.encode(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Text of any ids: PAD, BOS, EOS and marks are skipped, unknown ids become U+FFFD."""
        pieces = (self._piece(i) for i in ids if i not in (PAD, BOS, EOS) and not self.is_mark(i))
        return self._join([REPLACEMENT if piece is None else piece for piece in pieces])

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """A string to display for each id: its piece as the tokenizer writes it."""
        special = dict(enumerate(SPECIAL_TOKENS))
        return [special.get(i) or self._shown(self._piece(i) or SPECIAL_TOKENS[UNK]) for i in ids]

    @abstractmethod
    def piece_there(self, token: int) -> str | None:
        """Piece of an imported id, or None."""

    @abstractmethod
    def _join(self, pieces: list[str]) -> str:
        """The text of pieces in a row."""

    def _shown(self, piece: str) -> str:
        return piece

    def _piece(self, token: int) -> str | None:
        rows = self.numbering.rows
        return self.piece_there(rows[token]) if UNK < token < len(rows) else None

    def _check_ids(self, vocabulary: Iterable[int]) -> None:
        highest = max(vocabulary, default=0)
        if highest >= self.numbering.size:
            raise RunError(
                f"the tokenizer has ids up to {highest}, but the model has only "
                f"{self.numbering.size}"
            )

    def _opened(self, ids: list[int]) -> list[int]:
        """Ids of a text with their opening or closing; none of the empty text."""
        return [*self.opening, *ids, *self.closing] if ids else ids

    def _here(self, ids_there: Sequence[int]) -> list[int]:
        of_text = self.numbering.of_text
        return [of_text[token] for token in ids_there]


def parse_file(kind: type[Any], content: Any) -> Any:
    """Parse a tokenizer's JSON file as the section `kind`.  Raises RunError."""
    try:
        return parse(kind, content)
    except SettingError as error:
        raise RunError(str(error)) from None


@section
class MarianFile:
    """Content of the file."""

    kind: Literal["marian"] = "marian"
    numbering: Numbering
    pieces: dict[str, Id] | None = None
    """Imported id of each piece; by default its place in the SentencePiece model."""
    added: tuple[AddedToken, ...] = ()
    """Pieces matched before SentencePiece splits the text."""
    model: str
    """The SentencePiece model, in base64."""


class MarianTokenizer(ImportedTokenizer):
    """Pieces from SentencePiece, ids from the list, or UNK; a language code at the beginning, such
    as ">>fra<<", and added tokens anywhere stay one token."""

    kind = "marian"

    def __init__(
        self,
        model: bytes,
        pieces: Mapping[str, int] | None,
        numbering: Numbering,
        added: Sequence[AddedToken] = (),
    ) -> None:
        """Wrap a serialised SentencePiece model.  pieces: their imported ids; None for those of the
        model.  Raises RunError if it cannot be read."""
        super().__init__(numbering)
        self.sentencepiece = model
        self.added = tuple(added)
        self._splitter = AddedTokens(added)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.load_from_serialized_proto(model)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise RunError(f"SentencePiece cannot read it ({reason})") from None
        # In memory beside the SentencePiece model only where they differ from it.
        self._listed = None if pieces is None or pieces == self._own else dict(pieces)
        self._pieces = {token: piece for piece, token in (self._listed or {}).items()}
        highest = self._processor.get_piece_size() - 1
        self._check_ids([highest] if self._listed is None else self._listed.values())

    @property
    def _own(self) -> dict[str, int]:
        ids = range(self._processor.get_piece_size())
        return dict(zip(self._processor.id_to_piece(list(ids)), ids, strict=True))

    @property
    def numbers(self) -> Mapping[str, int]:
        """Imported ids of the pieces."""
        return self._own if self._listed is None else self._listed

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ids: list[int | None] = []
        for part, is_added in self._splitter.split(self.normalizer.apply(text)):
            if is_added:
                ids.append(self._number(part))
                continue
            code, rest = ([], part) if self.numbering.languages else _language_code(part)
            ids += map(self._number, code)
            if self._listed is None:
                ids += self._processor.encode(rest)
            else:
                ids += map(self._listed.get, self._processor.encode(rest, out_type=str))
        of_text = self.numbering.of_text
        return self._opened([UNK if token is None else of_text[token] for token in ids])

    def _number(self, piece: str) -> int | None:
        if self._listed is not None:
            return self._listed.get(piece)
        number: int = self._processor.piece_to_id(piece)  # of the unknown piece for others
        return number if self._processor.id_to_piece(number) == piece else None

    def grown(self, code: str, pieces: Mapping[str, float]) -> Self:
        """As in `ImportedTokenizer`; messages of a protocol buffer may be appended."""
        ids = range(self.numbering.size, self.numbering.size + 1 + len(pieces))
        known = {**self.numbers} | dict(zip((f"__{code}__", *pieces), ids, strict=True))
        more = b"".join(_message(piece.encode(), score) for piece, score in pieces.items())
        numbering = self._with_language(code, len(pieces))
        return type(self)(self.sentencepiece + more, known, numbering, self.added)

    def has_piece(self, piece: str) -> bool:
        """As in `ImportedTokenizer`."""
        return self._number(piece) is not None

    @property
    def is_plain(self) -> bool:
        """True where the SentencePiece model alone makes the tokens."""
        return not (self.added or self.numbering.languages or self._marked)

    @property
    def numbers_itself(self) -> bool:
        """True where the ids are those of the SentencePiece model, and outputs begin with zeros."""
        return self._listed is None and self.numbering.bos is None

    @property
    def is_bpe(self) -> bool:
        """True for merges, whose scores are whole numbers in a row, not logarithms."""
        processor = self._processor
        return all(processor.get_score(i).is_integer() for i in range(processor.get_piece_size()))

    def to_bytes(self) -> bytes:
        """One JSON object."""
        model = base64.b64encode(self.sentencepiece).decode("ascii")
        file = MarianFile(
            numbering=self.numbering, pieces=self._listed, added=self.added, model=model
        )
        return (json.dumps(to_dict(file), ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_content(cls, content: Any) -> Self:
        """The tokenizer of a file's parsed JSON.  Raises RunError, without the file's name."""
        file: MarianFile = parse_file(MarianFile, content)
        try:
            model = base64.b64decode(file.model, validate=True)
        except (binascii.Error, ValueError):
            raise RunError("damaged: its SentencePiece model is not base64") from None
        return cls(model, file.pieces, file.numbering, file.added)

    def piece_there(self, token: int) -> str | None:
        """Piece of an imported id, or None."""
        if self._listed is not None:
            return self._pieces.get(token)
        n_pieces = self._processor.get_piece_size()
        return str(self._processor.id_to_piece(token)) if 0 <= token < n_pieces else None

    def _join(self, pieces: list[str]) -> str:
        return str(self._processor.decode_pieces(pieces)).replace("▁", " ").strip()


class PieceTable(NamedTuple):
    """Pieces of a SentencePiece model that texts are divided into, with their scores, and its rules
    of normalisation: replacements of texts, longest first, a blank before the text, and blanks
    without repetition."""

    scores: dict[str, float]
    replacements: dict[str, str]
    dummy_prefix: bool
    single_blanks: bool


@functools.lru_cache(4)
def piece_table(model: bytes) -> PieceTable:
    """Table of a serialised SentencePiece model."""
    pieces: dict[str, float] = {}
    rules: dict[int, Any] = {2: b"", 3: 1, 4: 1}
    for field_number, content in fields_of(model):
        if field_number == 3:
            rules |= dict(fields_of(content))
        elif field_number == 1:
            piece = {3: 1, **dict(fields_of(content))}
            if piece[3] in (1, 4):  # normal, or defined by the user
                (score,) = struct.unpack("<f", piece.get(2, bytes(4)))
                pieces[piece[1].decode()] = score
    return PieceTable(pieces, charsmap_replacements(rules[2]), bool(rules[3]), bool(rules[4]))


def fields_of(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and contents of the fields of a protocol buffer: integers and bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte, at = message[at], at + 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while at < len(message):
        field_number, kind = divmod(varint(), 8)
        if kind == 0:
            yield field_number, varint()
            continue
        size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        yield field_number, message[at : at + size]
        at += size


def charsmap_replacements(charsmap: bytes) -> dict[str, str]:
    """Replacements of a compiled table: a trie of double arrays over bytes, then the texts."""
    if not charsmap:
        return {}
    size = int.from_bytes(charsmap[:4], "little")
    units = struct.unpack(f"<{size // 4}I", charsmap[4 : 4 + size])
    texts = charsmap[4 + size :]
    children: dict[int, list[int]] = {}
    for at, unit in enumerate(units):
        if 0 < (label := unit & (1 << 31 | 255)) < 256:
            children.setdefault(at ^ label, []).append(at)

    def base(at: int) -> int:
        unit: int = units[at]
        return at ^ (unit >> 10 << ((unit & 512) >> 6))

    found: dict[str, str] = {}
    stack = [(base(0), b"")]
    while stack:
        at, prefix = stack.pop()
        for child in children.get(at, ()):
            below, text = base(child), prefix + bytes([units[child] & 255])
            if units[child] >> 8 & 1:
                begin = units[below] & (1 << 31) - 1
                found[text.decode()] = texts[begin : texts.index(0, begin)].decode()
            stack.append((below, text))
    return found


def _message(piece: bytes, score: float) -> bytes:
    """A piece as SentencePiece's model file has it: field 1, of a string and a score."""
    content = b"\x0a" + _varint(len(piece)) + piece + b"\x15" + struct.pack("<f", score)
    return b"\x0a" + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 + 128, number // 128])


def _language_code(text: str) -> tuple[list[str], str]:
    end = text.find("<<")
    if not text.startswith(">>") or end < 0:
        return [], text
    return [text[: end + 2]], text[end + 2 :]
