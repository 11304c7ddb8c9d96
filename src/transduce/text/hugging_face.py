"""Tokenizers in the JSON of Hugging Face's `tokenizers`, whose definition is checked before that
library reads it.

Some definitions crash inside the library, or exhaust time or memory, many of them only at the first
text that reaches the faulty step.  They are refused when a tokenizer is loaded.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Self

from transduce.errors import RunError, extra_module
from transduce.settings.sections import section, to_dict
from transduce.text.imported import ImportedTokenizer, Numbering, parse_file

MAX_GROWTH = 4096
"""Maximum factor by which all `Replace` rules together may lengthen a text."""
MAX_LENGTH_TARGET = 512
"""Maximum bytes that an entry of a `Precompiled` map may insert."""
MAX_IN_A_ROW, MAX_OPTIONAL = 3, 12
"""Maximum unbounded repetitions, and optional parts or groups, in an alternative of a regular
expression; the usual tokenizers have at most two, and four."""
MAX_EXPRESSION = 10_000
"""Maximum characters of a regular expression."""
_REFUSED = re.compile(r"\(\?(?:[#~]|[a-z-]*x)|\\[gkQ]")
"""Comments, absence, calls of groups and references: the form tells nothing of their time."""
_CODE = re.compile(r"\\(?:[pPx]\{[^}]*\}|.)", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?[^\[\]]*\]")
_FIXED = re.compile(r"\((?:\?(?:[:=!>]|<[=!]))?[^()|*+?{}]*\)|(?<!\))\{\d+\}")
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_UNBOUNDED = re.compile(r"[*+]|\{\d*,")
_OPTIONAL = re.compile(r"(?<![*+?}(])\?|\(")
_LEAF, _HAS_LEAF = 1 << 31, 1 << 8


@contextmanager
def library_errors(failed: str) -> Iterator[None]:
    """Convert all errors of the library, including panics, to a RunError with one line."""
    try:
        yield
    except RunError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())
        raise RunError(f"the tokenizers library {failed} ({reason})") from None


def check_definition(definition: Mapping[str, Any]) -> None:
    """Raises RunError for a definition that could crash or hang on some text."""
    model = definition.get("model")
    if isinstance(model, dict):
        _check_merges(model)
    check_steps(definition)


def check_steps(definition: Mapping[str, Any]) -> None:
    """Check all parts but the model.  Raises RunError."""
    for stage in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1.0
        for part in definition_parts(definition.get(stage)):
            growth *= _check_step(part, stage)
        if growth > MAX_GROWTH:
            raise RunError(
                f"{stage}: Replace rules may make a text more than {MAX_GROWTH} times longer"
            )


def _check_step(part: Mapping[str, Any], stage: str) -> float:
    """Factor by which a step may lengthen a text.  Raises RunError for an invalid step."""
    growth = 1.0
    match part:
        case {"type": "Precompiled"}:
            _check_precompiled(part.get("precompiled_charsmap"))
        case {"type": "FixedLength", "length": 0}:
            raise RunError(f"{stage}: FixedLength needs a length above 0")
        case {"type": "Strip", "stop": int(stop)} if stop:
            raise RunError(f"{stage}: Strip with stop = {stop} is not supported, only with 0")
        case {"type": "Prepend", "prepend": ""}:
            raise RunError(f"{stage}: Prepend needs a string that is not empty")
        case {"type": "Prepend", "prepend": str(content)}:
            growth = 1 + len(content)
        case {"type": "Replace", "pattern": {"String": str(found)}, "content": str(content)}:
            growth = len(content) / len(found) if found else float("inf")
        case {"pattern": {"Regex": str(expression)}}:
            if runs_away(expression):
                raise RunError(
                    f"{stage}: the regular expression {expression[:100]!r} may take exponential "
                    "time (a repeated group, or many repetitions in a row)"
                )
            if part.get("type") == "Replace":  # of nothing, too, between any two characters
                growth = 1 + len(str(part.get("content")))
    if growth == float("inf"):
        raise RunError(f"{stage}: Replace matches the empty string: {part!r:.200}")
    return max(1, growth)


def runs_away(expression: str) -> bool:
    """True if an expression may take exponential time by its form, whatever the text.

    Backtracking is exponential if a repeated group matches in several ways, as in `(a+)+` or
    `(a|aa)*`; every repeated group is refused whose length is not fixed.  Repetitions in a row
    have their number as exponent.
    """
    if len(expression) > MAX_EXPRESSION or _REFUSED.search(expression):
        return True
    before, plain = "", _CODE.sub("a", expression)
    while plain != before:
        before, plain = plain, _CLASS.sub("a", plain)
    before = ""
    while plain != before:
        before = plain
        plain = _FIXED.sub(lambda match: "" if match[0][0] == "{" else "a", plain)
    depth, alternatives = 0, [""]
    for character in plain:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            alternatives.append("")
        else:
            alternatives[-1] += character
    return _REPEATED_GROUP.search(plain) is not None or any(
        len(_UNBOUNDED.findall(alternative)) > MAX_IN_A_ROW
        or len(_OPTIONAL.findall(alternative)) > MAX_OPTIONAL
        for alternative in alternatives
    )


def definition_parts(*stages: Any) -> Iterator[dict[str, Any]]:
    """Steps of normalizers, pre-tokenizers or decoders, with sequences flattened in order."""
    waiting = list(reversed(stages))
    while waiting:
        stage = waiting.pop()
        if isinstance(stage, dict):
            yield stage
            for steps in ("normalizers", "pretokenizers", "decoders"):
                if isinstance(stage.get(steps), list):
                    waiting += reversed(stage[steps])


def model_kind(model: Mapping[str, Any]) -> str:
    """Kind of the model of a definition, by its contents where it has no `type`."""
    usual = "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    return str(model.get("type", "BPE" if "merges" in model else usual))


def _check_merges(model: Mapping[str, Any]) -> None:
    """Raises RunError for a merge with a second part shorter than the continuation prefix."""
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not isinstance(prefix, str) or not isinstance(merges, list):
        return
    for merge in merges if prefix else ():
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if isinstance(pair, list) and pair and len(str(pair[-1])) < len(prefix):
            raise RunError(f"the second part of merge {merge!r} is shorter than {prefix!r}")


def _check_precompiled(encoded: Any) -> None:
    """Raises RunError unless every lookup in a SentencePiece map stays inside it.

    The map is a double-array trie of 32-bit units, each with a label, a flag and the offset of its
    children; leaves are positions in a text of targets, each ended by NUL.
    """
    import numpy as np

    damaged = RunError("normalizer Precompiled: its map is damaged; copy the file again")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise damaged from None
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 + size or size < 4 or size % 4:
        raise damaged
    units = np.frombuffer(data[4 : 4 + size], "<u4").astype(np.int64)
    targets = data[4 + size :]
    try:
        targets.decode()
    except UnicodeDecodeError:
        raise damaged from None
    inner = units & _LEAF == 0
    places = np.arange(len(units)) ^ (units >> 10) << ((units & 1 << 9) >> 6)
    children = places[inner]
    if len(children) and (children | 255).max() >= len(units):
        raise damaged
    leaves = units[places[inner & (units & _HAS_LEAF != 0)]] & _LEAF - 1
    starts = np.unique(leaves)
    ends = np.append(np.flatnonzero(np.frombuffer(targets, np.uint8) == 0), len(targets))
    if len(starts) and starts[-1] > len(targets):
        raise damaged
    if any(i < len(targets) and targets[i] & 0xC0 == 0x80 for i in starts.tolist()):
        raise damaged
    if len(starts) and (ends[np.searchsorted(ends, starts)] - starts).max() > MAX_LENGTH_TARGET:
        raise RunError(
            f"normalizer Precompiled: one entry of its map inserts more than {MAX_LENGTH_TARGET} "
            "bytes"
        )


_CHARACTERS = *range(0xC0), *range(0xC0, 0x1000, 64), *range(0x1000, 0x110000, 0x1000)
EVERY_BYTE = "".join(map(chr, _CHARACTERS))
"""Text whose UTF-8 has every byte that a text may have."""


@section
class HuggingFaceFile:
    """Content of the file: the library's own JSON, and the numbering of ids here."""

    kind: Literal["hugging-face"] = "hugging-face"
    numbering: Numbering
    marks_between: Literal[1, 2] = 1
    lower_case: bool = False
    tokenizer: dict[str, Any]


class HuggingFaceTokenizer(ImportedTokenizer):
    """Tokenizer of the library `tokenizers`, with renumbered ids.  Needs the extra `import`.

    Special added tokens, such as "[MASK]" or "</s>", are ordinary text in user text; other added
    tokens are tokens.
    """

    kind = "hugging-face"
    marks_between: Literal[1, 2]

    def __init__(
        self,
        definition: Mapping[str, Any],
        numbering: Numbering,
        marks_between: Literal[1, 2] = 1,
        lower_case: bool = False,
    ) -> None:
        """definition: the library's JSON, without truncation, padding and dropout.  marks_between:
        as in `Tokenizer`; RoBERTa has two.  lower_case: before everything else.

        Raises RunError if the library is missing, cannot read the JSON, or would fail on some text.
        """
        super().__init__(numbering)
        self.marks_between = marks_between
        self.lower_case = lower_case
        self.definition = {**definition, "truncation": None, "padding": None}
        if isinstance(model := definition.get("model"), dict) and model.get("dropout"):
            self.definition["model"] = {**model, "dropout": None}
        self._byte_level = "ByteLevel" in json.dumps(definition.get("decoder"))
        library = extra_module("tokenizers", "the tokenizer of this model", "import", RunError)
        check_definition(self.definition)
        with library_errors("cannot read it"):
            self._tokenizer = library.Tokenizer.from_str(json.dumps(self.definition))
            self._check_added()
            self._tokenizer.encode(EVERY_BYTE)  # an error where nothing stands for the unknown
        self._tokenizer.encode_special_tokens = True  # that is, as ordinary text
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self._check_ids(token for piece, token in vocabulary.items() if piece)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for encoding processes, since the library's own loses special tokens."""
        made_of = (self.definition, self.numbering, self.marks_between, self.lower_case)
        return type(self), made_of

    @property
    def added_tokens(self) -> dict[str, int]:
        """Ids of the added tokens, such as marks of languages, by their texts."""
        added = self._tokenizer.get_added_tokens_decoder()
        ids = self._here(list(added))
        return {token.content: i for token, i in zip(added.values(), ids, strict=True)}

    def encode(self, text: str) -> list[int]:
        """Ids of a text; UNK for unknown parts."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, as from `encode`, in a call of the library."""
        plain = [self._plain(text) for text in texts]
        with library_errors("cannot encode a text"):
            encodings = self._tokenizer.encode_batch_fast(plain, add_special_tokens=False)
        return [self._opened(self._here(encoding.ids)) for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Characters [start, end) of each id, by the library; tokens of the bytes of a character
        share it."""
        with library_errors("cannot encode a text"):
            encoding = self._tokenizer.encode(self._plain(text), add_special_tokens=False)
        spans = [(start, end) for start, end in encoding.offsets]
        if self.lower_case:
            places = [i for i, character in enumerate(text) for _ in character.lower()]
            spans = [(places[i], places[j - 1] + 1) if i < j else (0, 0) for i, j in spans]
        before, after = ([(0, 0)] * len(marks) for marks in (self.opening, self.closing))
        return [*before, *spans, *after] if spans else spans

    def to_bytes(self) -> bytes:
        """One JSON object."""
        file = HuggingFaceFile(
            numbering=self.numbering,
            marks_between=self.marks_between,
            lower_case=self.lower_case,
            tokenizer=self.definition,
        )
        content = {**to_dict(file), "tokenizer": self.definition}  # its nulls mean something
        return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_content(cls, content: Any) -> Self:
        """The tokenizer of a file's parsed JSON.  Raises RunError, without the file's name."""
        file: HuggingFaceFile = parse_file(HuggingFaceFile, content)
        return cls(file.tokenizer, file.numbering, file.marks_between, file.lower_case)

    is_bpe = True
    """A vocabulary that grows, since its ids can be any."""

    def grown(self, code: str, pieces: Mapping[str, float]) -> Self:
        """As in `ImportedTokenizer`; every division of a piece into two is a merge."""
        model, size = self.definition.get("model", {}), self.numbering.size
        if pieces and model.get("type") != "BPE":
            raise RunError(f"a vocabulary of {model.get('type')} cannot grow, only of BPE")
        vocab = model.get("vocab", {})
        if pieces:
            added = self._tokenizer.get_added_tokens_decoder()  # else the library renumbers them
            special = {token.content: i for i, token in added.items()}
            vocab = vocab | special | {piece: size + 1 + i for i, piece in enumerate(pieces)}
            merges = [
                [piece[:i], piece[i:]]
                for piece in pieces
                for i in range(1, len(piece))
                if piece[:i] in vocab and piece[i:] in vocab
            ]
            model = {**model, "vocab": vocab, "merges": [*model.get("merges", []), *merges]}
        definition = {**self.definition, "model": model}
        numbering = self._with_language(code, len(pieces))
        return type(self)(definition, numbering, self.marks_between, self.lower_case)

    def has_piece(self, piece: str) -> bool:
        """As in `ImportedTokenizer`."""
        return self._tokenizer.token_to_id(piece) is not None

    def normalized_token(self, content: str) -> str:
        """Text of an added token as it is found in normalised texts."""
        normalizer = self._tokenizer.normalizer
        return str(normalizer.normalize_str(content)) if normalizer else content

    def _check_added(self) -> None:
        for token in self._tokenizer.get_added_tokens_decoder().values():
            if token.normalized and token.content and not self.normalized_token(token.content):
                raise RunError(f"the added token {token.content!r} is empty after normalisation")

    def _plain(self, text: str) -> str:
        text = self.normalizer.apply(text)
        return text.lower() if self.lower_case else text

    def piece_there(self, token: int) -> str | None:
        """Piece of an imported id, or None."""
        piece: str | None = self._tokenizer.id_to_token(token) if token >= 0 else None
        return piece

    def _join(self, pieces: list[str]) -> str:
        decoder = self._tokenizer.decoder
        with library_errors("cannot decode a text"):
            return " ".join(pieces) if decoder is None else str(decoder.decode(pieces))

    def _shown(self, piece: str) -> str:
        """Byte-level pieces as letters instead of stand-ins for bytes."""
        return self._join([piece]).replace(" ", "▁") if self._byte_level else piece
