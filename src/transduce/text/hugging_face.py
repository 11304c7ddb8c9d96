"""Tokenizers in the JSON of Hugging Face's `tokenizers`: WordPiece, byte-level BPE and others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from transduce.errors import RunError, extra_module
from transduce.settings.sections import section, to_dict
from transduce.text.imported import ImportedTokenizer, Numbering, parse_file
from transduce.text.tokenizer_checks import check_definition, library_errors

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

    def _check_added(self) -> None:
        normalizer = self._tokenizer.normalizer
        for token in self._tokenizer.get_added_tokens_decoder().values():
            if token.normalized and normalizer and not normalizer.normalize_str(token.content):
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
