"""Tokenizer classes by their names in `transformers`, and the rules of each.

A class with rules of its own uses only the vocabulary in `tokenizer.json`; the rest follows from
the settings beside it.  Classes without rules use the file unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.interop.read import read_json
from transduce.interop.tokenizer_settings import TokenizerSettings
from transduce.text.hugging_face import tokenizers_library
from transduce.text.tokenizer_checks import definition_parts, library_errors

Definition = dict[str, Any]
"""JSON of the library `tokenizers`."""


@dataclass(frozen=True)
class TokenizerClass:
    """Rules and files of one class."""

    model: str | None
    """Kind of its model, in the library's terms; None for any."""
    make: Callable[[Definition, TokenizerSettings], Definition]
    """Make the definition from `tokenizer.json` or older files, without added tokens."""
    files: tuple[str, ...] = ()
    """Its older files, all required."""
    older: Callable[[list[Path]], Definition] | None = None
    """Reader of the model in the older files."""
    special: Mapping[str, str] = field(default_factory=dict)
    """Default special tokens."""


BRACKETED = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
ANGLED = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
END_OF_TEXT = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")


def _as_written(definition: Definition, settings: TokenizerSettings) -> Definition:
    without = dict.fromkeys(("truncation", "padding"))
    return {**definition, **without, "added_tokens": definition.get("added_tokens") or []}


def _word_piece(definition: Definition, settings: TokenizerSettings) -> Definition:
    unknown = settings.special(BRACKETED).get("unk_token")
    model = {
        "type": "WordPiece",
        "unk_token": "" if unknown is None else unknown.content,
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": definition["model"]["vocab"],
    }
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": settings.flag("tokenize_chinese_chars", True),
        "strip_accents": settings.flag("strip_accents", None),
        "lowercase": settings.flag("do_lower_case", True),
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return assembled(model, normalizer, {"type": "BertPreTokenizer"}, decoder)


def _byte_level(definition: Definition, settings: TokenizerSettings) -> Definition:
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "vocab": definition["model"]["vocab"],
        "merges": definition["model"]["merges"],
    }
    bytes_ = {
        "type": "ByteLevel",
        "add_prefix_space": settings.flag("add_prefix_space", False),
        "trim_offsets": True,
        "use_regex": True,
    }
    return assembled(model, None, bytes_, bytes_)


def _unigram(definition: Definition, settings: TokenizerSettings) -> Definition:
    model = {
        "type": "Unigram",
        "unk_id": 3,
        "vocab": definition["model"]["vocab"],
        "byte_fallback": False,
    }
    steps = definition_parts(definition.get("normalizer"))
    normalizer = next((step for step in steps if step.get("type") == "Precompiled"), None)
    prefix = "always" if settings.flag("add_prefix_space", True) else "never"
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": prefix, "split": True}
    words = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, spaces]}
    return assembled(model, normalizer, words, spaces)


def assembled(
    model: Definition,
    normalizer: Definition | None,
    pre_tokenizer: Definition | None,
    decoder: Definition | None,
) -> Definition:
    """Assemble a definition from its parts, without added tokens."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }


def _read_word_piece(files: list[Path]) -> Definition:
    with library_errors("cannot read it"):
        return {"vocab": tokenizers_library().models.WordPiece.read_file(str(files[0]))}


def _read_merges(files: list[Path]) -> Definition:
    vocabulary, merges = files
    try:
        lines = merges.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{merges} cannot be read: {error}") from None
    pairs = [line.rstrip("\r") for line in lines if not line.startswith("#version")]
    return {"vocab": read_json(vocabulary), "merges": [pair for pair in pairs if pair.strip()]}


_MERGED = ("vocab.json", "merges.txt")
_BERT = TokenizerClass("WordPiece", _word_piece, ("vocab.txt",), _read_word_piece, BRACKETED)
_AS_WRITTEN = TokenizerClass(None, _as_written)
CLASSES = {
    "BertTokenizer": _BERT,
    "DistilBertTokenizer": _BERT,
    "GPT2Tokenizer": TokenizerClass("BPE", _byte_level, _MERGED, _read_merges, END_OF_TEXT),
    "RobertaTokenizer": TokenizerClass("BPE", _byte_level, _MERGED, _read_merges, ANGLED),
    "WhisperTokenizer": TokenizerClass("BPE", _byte_level, _MERGED, _read_merges, END_OF_TEXT),
    "XLMRobertaTokenizer": TokenizerClass("Unigram", _unigram, special=ANGLED),
    "PreTrainedTokenizerFast": _AS_WRITTEN,
    "TokenizersBackend": _AS_WRITTEN,
}


def tokenizer_class(
    settings: TokenizerSettings,
    directory: Path,
    usual: str | None,
    known: Iterable[str] = tuple(CLASSES),
) -> tuple[str, bool]:
    """Class of a directory's tokenizer, and True if the files name it.

    usual: default class of these models; without it, the files decide.
    Raises DataError for an unknown class.
    """
    config = directory / "config.json"
    path, named = settings.path, settings.values.get("tokenizer_class")
    if named is None and config.is_file():
        path, named = config, read_json(config).get("tokenizer_class")
    if named is not None:
        return _known_class(named, path, known), True
    if usual is None:
        older = (name for name, kind in CLASSES.items() if kind.older)
        whole = (directory / "tokenizer.json").is_file()
        found = (n for n in older if all((directory / f).is_file() for f in CLASSES[n].files))
        usual = "TokenizersBackend" if whole else next(found, "TokenizersBackend")
    return usual, False


def _known_class(named: Any, path: Path, known: Iterable[str]) -> str:
    """Name of a class, without the suffix of its fast variant.  Raises DataError."""
    for name in (named, str(named).removesuffix("Fast")):
        if name in tuple(known):
            return str(name)
    raise DataError(
        f"{path}: tokenizer_class = {named!r} is not supported, only {', '.join(known)}"
    )
