"""Subwords by SentencePiece, byte-pair encoding or a unigram language model, and other
segmentations drawn in training.

SentencePiece can sample segmentations too, but from version 0.2.3 on, equal seeds give different
segmentations in each process, which rules it out for exactly resumable training.

A word is a string that no piece extends beyond: a space and the text up to the next space.

Every Unicode text can be encoded and is restored up to `normalize`, because characters outside the
vocabulary are spelt in UTF-8 bytes.

The file is a SentencePiece model that any SentencePiece can load.  Our settings are appended as a
further field of its protobuf message, in the range reserved for extensions: a tag, a length and a
short line of JSON, readable with `tail -c 100`.
"""

from __future__ import annotations

import functools
import heapq
import io
import itertools
import json
import logging
import math
import random
import re
import zlib
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import sentencepiece
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

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Draw = Callable[[], float]
"""Function returning the next random number in [0, 1)."""

KEPT_WORDS = 100_000
"""Words with cached probabilities; most of a text are among its most frequent."""


class MergeDropout:
    """Byte-pair encoding with randomly dropped merges (Provilkov et al. 2020)."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        """scores: of each piece; of two merges, that to the better piece is made first."""
        self._scores = scores

    def cut(self, word: str, alpha: float, draw: Draw) -> list[str]:
        """Pieces of a word, with each merge dropped with probability `alpha`."""
        pieces = list(word)
        n = len(pieces)
        after, before = list(range(1, n + 1)), list(range(-1, n - 1))
        waiting: list[tuple[float, int, str]] = []

        def offer(left: int) -> None:
            """Queue the merge of the piece at `left` with the next."""
            if left >= 0 and after[left] < n:
                merged = pieces[left] + pieces[after[left]]
                score = self._scores.get(merged)
                if score is not None:
                    heapq.heappush(waiting, (-score, left, merged))

        for left in range(n - 1):
            offer(left)
        while waiting:
            _, left, merged = heapq.heappop(waiting)
            right = after[left]
            # One of the two may have been merged with another meanwhile.
            if right == n or not pieces[left] or pieces[left] + pieces[right] != merged:
                continue
            if draw() < alpha:
                continue
            pieces[left], pieces[right] = merged, ""
            after[left] = after[right]
            if after[right] < n:
                before[after[right]] = left
            offer(before[left])
            offer(left)
        return [piece for piece in pieces if piece]


class LatticeSampling:
    """Segmentations of a unigram model, sampled by their probabilities to a power (Kudo 2018)."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        """scores: log-probability of each piece."""
        self._scores = scores
        self._longest = max(map(len, scores), default=1)
        self._known: dict[tuple[str, float], list[tuple[list[int], list[float]]]] = {}

    def cut(self, word: str, alpha: float, draw: Draw) -> list[str]:
        """Pieces of a word, sampled with probabilities to the power `alpha`."""
        key = (word, alpha)
        chances = self._known.get(key)
        if chances is None:
            chances = self._chances(word, alpha)
            if len(self._known) < KEPT_WORDS:
                self._known[key] = chances
        pieces, end = [], len(word)
        while end:
            starts, shares = chances[end]
            start = starts[min(bisect(shares, draw()), len(starts) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _chances(self, word: str, alpha: float) -> list[tuple[list[int], list[float]]]:
        """Possible starts for each end of a piece, with their cumulative probabilities; characters
        outside the vocabulary are allowed at a penalty."""
        price = alpha * (min(self._scores.values()) - 10.0)
        total = [0.0]  # log of the summed probabilities of all segmentations up to a place
        chances: list[tuple[list[int], list[float]]] = [([], [])]
        for end in range(1, len(word) + 1):
            starts, logs = [], []
            for start in range(max(0, end - self._longest), end):
                score = self._scores.get(word[start:end])
                if score is not None or start == end - 1:
                    starts.append(start)
                    logs.append(total[start] + (price if score is None else alpha * score))
            highest = max(logs)
            weights = [math.exp(log - highest) for log in logs]
            whole = sum(weights)
            total.append(highest + math.log(whole))
            chances.append((starts, [part / whole for part in itertools.accumulate(weights)]))
        return chances


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
        size = config.size or _size_for(chunks)
        texts = (_seen_by_sentencepiece(chunk, normalizer) for chunk in _handed_over(chunks))
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


def _handed_over(items: list[str]) -> Iterator[str]:
    """The items in order, each removed from the list, so that memory does not hold them twice."""
    items.reverse()
    while items:
        yield items.pop()


def _seen_by_sentencepiece(text: str, normalizer: Normalizer) -> str:
    return normalizer.apply(text).replace(_SPACE, " ").replace(_UNUSABLE, " ")


def _bytes_of(piece: str, is_byte: bool) -> bytes:
    return bytes([int(piece[3:5], 16)]) if is_byte else piece.replace(_SPACE, " ").encode()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


Alpha = Annotated[float, Field(ge=0, le=1)]
"""Sampling strength, as in `SubwordTokenizer.sample_batch`; 0 is the plain segmentation."""
SAMPLED_KINDS = ("bpe", "unigram", "file")


class SegmentationSampler:
    """Subword regularisation: replace the ids from `encode` by a sampled segmentation."""

    def __init__(self, tokenizer: SubwordTokenizer, alpha: float) -> None:
        """alpha: sampling strength, as in `SubwordTokenizer.sample_batch`."""
        self.tokenizer = tokenizer
        self.alpha = alpha

    def draw(self, rows: Sequence[Sequence[int]], seed: int) -> list[list[int]]:
        """Sample new ids for the texts of `rows`, without PAD, BOS and EOS; equal seeds give equal
        ids."""
        texts = [self.tokenizer.decode(row) for row in rows]
        return self.tokenizer.sample_batch(texts, self.alpha, seed)

    def room(
        self, lengths: NDArray[np.integer[Any]], rows: Sequence[Sequence[int]]
    ) -> NDArray[np.int64]:
        """(n,) tokens that few sampled segmentations exceed, for plain segmentations of `lengths`:
        the mean plus twice the standard deviation, both estimated from `rows` of ids."""
        import numpy as np

        drawn = self.draw(rows, seed=0)
        after = np.array([len(ids) for ids in drawn], np.float64)
        before = np.array([max(1, len(ids)) for ids in rows], np.float64)
        growth = after.sum() / before.sum()
        # Each token adds to the variance alike.
        spread = np.sqrt(np.mean((after - growth * before) ** 2 / before))
        room = np.ceil(growth * lengths + 2 * spread * np.sqrt(lengths)).astype(np.int64)
        capacity: NDArray[np.int64] = np.maximum(room, lengths)
        return capacity


def check_sampling(setting: str, alpha: float, kind: str) -> None:
    """Raises SettingError if sampling is set for a kind of tokenizer without it.

    setting: name, for the message.  alpha: strength of sampling; 0 for none.
    """
    if alpha and kind not in SAMPLED_KINDS:
        raise SettingError(
            f"{setting} = {alpha:g} needs a tokenizer of kind 'bpe' or 'unigram'; kind "
            f"{kind!r} has only one segmentation of a text"
        )


def sampler_for(setting: str, alpha: float, tokenizer: Tokenizer) -> SegmentationSampler | None:
    """Sampler for an alpha; None for 0.  Raises SettingError for a tokenizer without sampling."""
    if not alpha:
        return None
    if not isinstance(tokenizer, SubwordTokenizer):
        raise SettingError(
            f"{setting} = {alpha:g} needs a tokenizer of kind 'bpe' or 'unigram', but the other "
            "run has another kind; remove the setting"
        )
    return SegmentationSampler(tokenizer, alpha)
