"""Marian's tokenizers: SentencePiece pieces, numbered by a separate list.

Source and target have a SentencePiece model each, and usually share a list of pieces.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import sentencepiece

from transduce.errors import RunError
from transduce.settings.sections import section, to_dict
from transduce.text.added_tokens import AddedToken, AddedTokens
from transduce.text.imported import Id, ImportedTokenizer, Numbering, parse_file
from transduce.text.tokenizer import UNK


@section
class MarianFile:
    """Content of the file."""

    kind: Literal["marian"] = "marian"
    numbering: Numbering
    pieces: dict[str, Id]
    """Imported id of each piece."""
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
        pieces: Mapping[str, int],
        numbering: Numbering,
        added: Sequence[AddedToken] = (),
    ) -> None:
        """Wrap a serialised SentencePiece model.  Raises RunError if it cannot be read."""
        super().__init__(numbering)
        self.sentencepiece = model
        self.numbers = dict(pieces)
        self._pieces = {token: piece for piece, token in self.numbers.items()}
        self._check_ids(self.numbers.values())
        self.added = tuple(added)
        self._splitter = AddedTokens(added)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.load_from_serialized_proto(model)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise RunError(f"SentencePiece cannot read it ({reason})") from None

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        pieces: list[str] = []
        for part, is_added in self._splitter.split(self.normalizer.apply(text)):
            if is_added:
                pieces.append(part)
                continue
            code, rest = ([], part) if self.numbering.languages else _language_code(part)
            pieces += [*code, *self._processor.encode(rest, out_type=str)]
        of_text = self.numbering.of_text
        ids = (self.numbers.get(piece) for piece in pieces)
        return self._opened([UNK if token is None else of_text[token] for token in ids])

    def grown(self, code: str, pieces: Mapping[str, float]) -> Self:
        """As in `ImportedTokenizer`; messages of a protocol buffer may be appended."""
        ids = range(self.numbering.size, self.numbering.size + 1 + len(pieces))
        known = self.numbers | dict(zip((f"__{code}__", *pieces), ids, strict=True))
        more = b"".join(_message(piece.encode(), score) for piece, score in pieces.items())
        numbering = self._with_language(code, len(pieces))
        return type(self)(self.sentencepiece + more, known, numbering, self.added)

    def has_piece(self, piece: str) -> bool:
        """As in `ImportedTokenizer`."""
        return piece in self.numbers

    @property
    def is_bpe(self) -> bool:
        """True for merges, whose scores are whole numbers in a row, not logarithms."""
        processor = self._processor
        return all(processor.get_score(i).is_integer() for i in range(processor.get_piece_size()))

    def to_bytes(self) -> bytes:
        """One JSON object."""
        model = base64.b64encode(self.sentencepiece).decode("ascii")
        file = MarianFile(
            numbering=self.numbering, pieces=self.numbers, added=self.added, model=model
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
        return self._pieces.get(token)

    def _join(self, pieces: list[str]) -> str:
        return str(self._processor.decode_pieces(pieces)).replace("▁", " ").strip()


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
