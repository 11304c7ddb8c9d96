"""Subwords by SentencePiece: byte-pair encoding or a unigram language model.

Every Unicode text can be encoded and is restored up to `normalize`, because characters outside the
vocabulary are spelt in UTF-8 bytes.

The file is a SentencePiece model that any SentencePiece can load.  Our settings are appended as a
further field of its protobuf message, in the range reserved for extensions: a tag, a length and a
short line of JSON, readable with `tail -c 100`.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import random
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

import sentencepiece
from pydantic import Field

from transduce.errors import DataError, RunError, SettingError
from transduce.settings.sections import parse, section, to_dict
from transduce.support.limits import from_json
from transduce.text.normalizer import Normalizer
from transduce.text.segmentations import Draw, LatticeSampling, MergeDropout
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

_SPACE = "\u2581"  # how SentencePiece writes a space
_UNUSABLE = "\u2585"  # SentencePiece drops a training line that contains its mark for unknowns
_LARGEST_DEFAULT = 8000
_TEXT_PER_PIECE = 150  # characters, some 30 words: 3,000 pairs of 10 words get 2,000 entries
_CHUNK = 1000  # characters; SentencePiece drops training lines above 4192 bytes
_FIELD = b"\x92\xc7\x0e"  # protobuf tag of field 29810, length-delimited

_log = logging.getLogger("transduce")


@section
class SubwordConfig(Normalizer):
    """Settings of a subword tokenizer."""

    kind: Literal["bpe", "unigram"] = "bpe"
    """Byte-pair encoding, or a unigram language model"""
    size: Annotated[int, Field(gt=260)] | None = None
    """Entries of the vocabulary, including 4 special ones and 256 bytes; by default as many as the
    text can teach, at most 8,000"""
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 0.9995
    """Share of the running text covered by characters with an entry of their own; rarer ones are
    spelt in bytes.  That costs little, and keeps Chinese characters seen once from filling the
    vocabulary; 1.0 gives every character an entry, and 0.98 is the minimum"""
    train_lines: Annotated[int, Field(ge=1)] = 1_000_000
    """Lines to train on, sampled evenly; a line above 1000 characters counts as several"""


@section
class _Footer(Normalizer):
    """Settings at the end of the file.  The checksum covers everything before."""

    kind: Literal["bpe", "unigram"]
    crc32: int


class SubwordTokenizer(Tokenizer):
    """Pieces of words, learned from text.  Covers every character, so UNK never occurs."""

    suffix = ".model"

    def __init__(
        self, model: bytes, kind: Literal["bpe", "unigram"], normalizer: Normalizer
    ) -> None:
        """Wrap a serialised SentencePiece model with byte pieces and our special ids."""
        super().__init__(normalizer)
        self.kind = kind
        self.sentencepiece = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.load_from_serialized_proto(model)
        ids = list(range(self._processor.get_piece_size()))
        self._pieces: list[str] = self._processor.id_to_piece(ids)
        is_byte: list[bool] = self._processor.is_byte(ids)
        pairs = zip(self._pieces, is_byte, strict=True)
        self._bytes = [_bytes_of(piece, byte) for piece, byte in pairs]
        self._bytes[UNK] = REPLACEMENT.encode()
        for special in (PAD, BOS, EOS):
            self._bytes[special] = b""

    @classmethod
    def train(cls, config: SubwordConfig, lines: Iterable[str]) -> SubwordTokenizer:
        """Learn a vocabulary from lines, read once; the same lines give the same file.

        Raises DataError if there is no text, SettingError if `size` is too small for the characters
        of the text.
        """
        normalizer = config.alone()
        chunks = _sample(_chunks(lines), config.train_lines)
        if not chunks:
            raise DataError(NO_TEXT)
        texts = (_seen_by_sentencepiece(chunk, normalizer) for chunk in chunks)
        size = config.size or _size_for(chunks)
        tokenizer = cls(_train(config, size, texts), config.kind, normalizer)
        if config.size is not None and tokenizer.size < config.size:
            _log.warning(
                "reduced the tokenizer size from %d to %d: the text yields no more pieces",
                config.size,
                tokenizer.size,
            )
        return tokenizer

    @property
    def size(self) -> int:
        """Entries of the vocabulary, including the four special tokens and the bytes."""
        return len(self._pieces)

    def normalize(self, text: str) -> str:
        """Normalised text, with U+2581, SentencePiece's mark for a space, as a space."""
        return self.normalizer.apply(text).replace(_SPACE, " ")

    def encode(self, text: str) -> list[int]:
        """Ids of a text; "<s>", "</s>" or "<0x41>" in it are ordinary characters."""
        ids: list[int] = self._processor.encode(self.normalize(text), out_type=int)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, each as `encode` gives them, in a call of SentencePiece."""
        normalized = [self.normalize(text) for text in texts]
        batch: list[list[int]] = self._processor.encode(normalized, out_type=int, num_threads=1)
        return batch

    def sample_batch(self, texts: Sequence[str], alpha: float, seed: int) -> list[list[int]]:
        """Sampled ids of many texts; `decode` gives the same text as for `encode`.

        alpha: in (0, 1], for byte-pair encoding the probability of dropping a merge (Provilkov et
        al. 2020), for a unigram model the exponent of the segmentation's probability (Kudo 2018).
        Equal arguments give equal ids.
        """
        draw = random.Random(str(seed)).random
        return [self._resegmented(ids, alpha, draw) for ids in self.encode_batch(texts)]

    def _resegmented(self, ids: Sequence[int], alpha: float, draw: Draw) -> list[int]:
        """The same text with a sampled segmentation; bytes and unknown characters are kept."""
        resegmented: list[int] = []
        word: list[str] = []

        def end_word() -> None:
            if word:
                for piece in self._sampler.cut("".join(word), alpha, draw):
                    number = self._numbers.get(piece)
                    resegmented.extend(self._spelt(piece) if number is None else [number])
                word.clear()

        for i in ids:
            piece = self._pieces[i]
            if piece not in self._numbers:
                end_word()
                resegmented.append(i)
                continue
            if piece.startswith(_SPACE):
                end_word()
            word.append(piece)
        end_word()
        return resegmented

    def _spelt(self, character: str) -> list[int]:
        """Byte ids of a character that occurs only in longer pieces."""
        text = character.replace(_SPACE, " ").encode()
        return [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in text]

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        special = (PAD, UNK, BOS, EOS)
        return {
            piece: i
            for i, piece in enumerate(self._pieces)
            if i not in special and not self._processor.is_byte(i)
        }

    @functools.cached_property
    def _sampler(self) -> MergeDropout | LatticeSampling:
        scores = {piece: self._processor.get_score(i) for piece, i in self._numbers.items()}
        return MergeDropout(scores) if self.kind == "bpe" else LatticeSampling(scores)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of any ids; invalid UTF-8 becomes U+FFFD, SentencePiece's first space is dropped."""
        unknown = self._bytes[UNK]
        size = len(self._bytes)
        data = b"".join(self._bytes[i] if 0 <= i < size else unknown for i in ids)
        return data.decode("utf-8", errors="replace").removeprefix(" ")

    def surfaces(self) -> list[bytes]:
        """Bytes that each id adds in the middle of a text; none for special ids."""
        return [b"" if i == UNK else piece for i, piece in enumerate(self._bytes)]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Piece of each id in SentencePiece's notation: "▁the", "ing", "<0xE2>"."""
        size = len(self._pieces)
        return [self._pieces[i if 0 <= i < size else UNK] for i in ids]

    def scores(self) -> list[float]:
        """Score of each id: of a unigram piece its log-probability."""
        return [self._processor.get_score(i) for i in range(self.size)]

    def to_bytes(self) -> bytes:
        """SentencePiece model with our settings appended."""
        footer = _Footer(
            kind=self.kind,
            normalization=self.normalizer.normalization,
            lowercase=self.normalizer.lowercase,
            crc32=zlib.crc32(self.sentencepiece),
        )
        text = json.dumps(to_dict(footer)).encode("ascii")
        assert len(text) < 128  # its length is written in one byte
        return self.sentencepiece + _FIELD + bytes([len(text)]) + text

    @classmethod
    def from_bytes(cls, data: bytes) -> SubwordTokenizer:
        """Tokenizer of a file's content.  Raises RunError, without the file's name."""
        # The tag cannot occur in the footer, which is ASCII: its last occurrence is the one.
        model, tag, rest = data.rpartition(_FIELD)
        try:
            if not tag or len(rest) != 1 + rest[0]:
                raise ValueError("no settings at the end")
            footer = parse(_Footer, from_json(rest[1:]))
        except (ValueError, IndexError, SettingError):
            raise RunError("damaged, or not a tokenizer that transduce saved") from None
        if zlib.crc32(model) != footer.crc32:
            raise RunError("damaged: the content does not match its checksum; copy it again")
        try:
            return cls(model, footer.kind, footer.alone())
        except (RuntimeError, ValueError, IndexError) as error:
            raise RunError(f"SentencePiece cannot read it ({_one_line(error)})") from None


def _size_for(texts: Sequence[str]) -> int:
    """A vocabulary whose entries occur often enough in these texts to be learnt."""
    characters = len(set().union(*texts))
    return min(260 + characters + sum(map(len, texts)) // _TEXT_PER_PIECE, _LARGEST_DEFAULT)


def _train(config: SubwordConfig, size: int, texts: Iterator[str]) -> bytes:
    written = io.BytesIO()
    pad, unk, bos, eos = SPECIAL_TOKENS
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=texts,
            model_writer=written,
            model_type=config.kind,
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=config.character_coverage,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_piece=pad,
            unk_piece=unk,
            bos_piece=bos,
            eos_piece=eos,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, ValueError, OSError) as error:
        sizes = re.search(r"(\d+) vs (\d+)", str(error))
        if sizes is None:
            raise SettingError(f"the vocabulary's size = {size}: {_one_line(error)}") from None
        raise SettingError(
            f"the vocabulary's size = {size} is too small for the characters of this text; "
            f"set it to {sizes[2]} or more in [text], or lower character_coverage"
        ) from None
    return written.getvalue()


def _chunks(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line and not line.isspace():
            for start in range(0, len(line), _CHUNK):
                yield line[start : start + _CHUNK]


def _sample(items: Iterable[str], limit: int) -> list[str]:
    """At most `limit` items, each equally likely, the same at every call (reservoir sampling)."""
    generator = random.Random(0)
    chosen: list[str] = []
    for count, item in enumerate(items):
        if count < limit:
            chosen.append(item)
        elif (slot := generator.randrange(count + 1)) < limit:
            chosen[slot] = item
    return chosen


def _seen_by_sentencepiece(text: str, normalizer: Normalizer) -> str:
    return normalizer.apply(text).replace(_SPACE, " ").replace(_UNUSABLE, " ")


def _bytes_of(piece: str, is_byte: bool) -> bytes:
    return bytes([int(piece[3:5], 16)]) if is_byte else piece.replace(_SPACE, " ").encode()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
