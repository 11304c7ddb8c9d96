"""Tokenizers in the JSON of Hugging Face's `tokenizers`: WordPiece, byte-level BPE and others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from transduce.config import section, to_dict
from transduce.errors import RunError, needs_extra
from transduce.text.imported import ImportedTokenizer, Numbering, parse_file


@section
class HuggingFaceFile:
    """What the file holds: the library's own JSON, and how its ids are numbered here."""

    kind: Literal["hugging-face"] = "hugging-face"
    numbering: Numbering
    marks_between: Literal[1, 2] = 1
    tokenizer: dict[str, Any]


class HuggingFaceTokenizer(ImportedTokenizer):
    """Gives the ids that `tokenizers` gives, renumbered.  Needs the extra `import`.

    Special tokens in user text, such as "[MASK]" or "</s>", are ordinary text.
    """

    kind = "hugging-face"
    marks_between: Literal[1, 2]

    def __init__(
        self,
        definition: Mapping[str, Any],
        numbering: Numbering,
        marks_between: Literal[1, 2] = 1,
    ) -> None:
        """definition: the library's JSON; what it says of truncation and padding does not count.

        marks_between: as `Tokenizer` has it; RoBERTa has two.  Raises RunError where the library
        cannot read the JSON, or is not installed.
        """
        super().__init__(numbering)
        self.marks_between = marks_between
        self._definition = {**definition, "truncation": None, "padding": None}
        self._byte_level = "ByteLevel" in json.dumps(definition.get("decoder"))
        library = tokenizers_library()
        try:
            self._tokenizer = library.Tokenizer.from_str(json.dumps(self._definition))
        except Exception as error:  # the library raises nothing more special
            reason = " ".join(str(error).split())
            raise RunError(f"the tokenizers library cannot read it ({reason})") from None
        self._tokenizer.encode_special_tokens = True  # that is, as ordinary text
        self._check_ids(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def __reduce__(self) -> tuple[Any, ...]:
        """For processes that encode: the library's own pickle forgets what special tokens are."""
        return type(self), (self._definition, self.numbering, self.marks_between)

    def encode(self, text: str) -> list[int]:
        """Ids of a text; UNK for what the tokenizer does not know."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, each as `encode` gives them, in one call of the library."""
        plain = [self.normalizer.apply(text) for text in texts]
        found = self._tokenizer.encode_batch_fast(plain, add_special_tokens=False)
        return [self._here(encoding.ids) for encoding in found]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Characters [start, end) of the text for each id, as the library counts them.

        Tokens that spell one character in bytes share it.
        """
        encoding = self._tokenizer.encode(self.normalizer.apply(text), add_special_tokens=False)
        return [(start, end) for start, end in encoding.offsets]

    def to_bytes(self) -> bytes:
        """One JSON object."""
        file = HuggingFaceFile(
            numbering=self.numbering,
            marks_between=self.marks_between,
            tokenizer=self._definition,
        )
        content = {**to_dict(file), "tokenizer": self._definition}  # its nulls mean something
        return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_content(cls, content: Any) -> Self:
        """The tokenizer of a file's parsed JSON.  Raises RunError, without the file's name."""
        file: HuggingFaceFile = parse_file(HuggingFaceFile, content)
        return cls(file.tokenizer, file.numbering, file.marks_between)

    def _piece_there(self, token: int) -> str | None:
        piece: str | None = self._tokenizer.id_to_token(token) if token >= 0 else None
        return piece

    def _join(self, pieces: list[str]) -> str:
        decoder = self._tokenizer.decoder
        return " ".join(pieces) if decoder is None else str(decoder.decode(pieces))

    def _shown(self, piece: str) -> str:
        """Byte-level pieces in letters instead of the bytes' stand-ins."""
        return self._join([piece]).replace(" ", "▁") if self._byte_level else piece


def tokenizers_library() -> Any:
    """The module `tokenizers`.  Raises RunError naming the remedy where it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise RunError(needs_extra("the tokenizer of this model", "import")) from None
    return tokenizers
