"""The tokenizer files of a Hugging Face directory, and which of their ids is which of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from transduce.errors import DataError, RunError, TransduceError
from transduce.interop.read import read_json
from transduce.text import HuggingFaceTokenizer, MarianTokenizer, Numbering
from transduce.text.hugging_face import tokenizers_library

Names = Mapping[str, tuple[str, ...]]
"""For pad, unk, bos, eos and mask: what the files may call them, the best first."""
ENCODER: Names = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "bos": ("cls_token", "bos_token"),
    "eos": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
DECODER: Names = {
    "unk": ("unk_token",),
    "bos": ("bos_token", "cls_token", "eos_token"),
    "eos": ("eos_token", "sep_token"),
}


def read_tokenizer(
    directory: Path,
    size: int,
    names: Names,
    customary: Mapping[str, str],
    marks_between: Literal[1, 2] = 1,
    lower_case: bool = False,
) -> HuggingFaceTokenizer:
    """The tokenizer of a directory, for an embedding of `size` rows.

    customary: special tokens by the names that `names` uses, where the files do not say.
    marks_between: end marks between two texts that the model reads together.
    lower_case: put texts into small letters first, whatever the files say.
    Raises DataError where there is none, or it does not go with the model.
    """
    settings = _settings(directory)
    definition, where = _definition(directory, settings)
    if lower_case:
        definition = _lower_cased(definition)
    special = {**customary, **_special_tokens(settings)}
    try:
        library = tokenizers_library().Tokenizer.from_str(json.dumps(definition))
    except RunError as error:
        raise DataError(f"{directory}: {error}") from None
    except Exception as error:  # the library raises nothing more special
        reason = " ".join(str(error).split())
        raise DataError(f"{where}: the tokenizers library cannot read it ({reason})") from None
    ids: dict[str, int] = {}
    for ours, theirs in names.items():
        found = [special[name] for name in theirs if name in special]
        tokens = [token for text in found if (token := library.token_to_id(text)) is not None]
        if tokens:
            ids[ours] = tokens[0]
        elif ours in ("bos", "eos"):
            raise DataError(
                f"{where}: there is no token for the {'begin' if ours == 'bos' else 'end'} of a "
                f"text ({' or '.join(map(repr, found)) or theirs[0]})"
            )
    try:
        return HuggingFaceTokenizer(definition, Numbering(size=size, **ids), marks_between)
    except TransduceError as error:
        raise DataError(f"{where}: {error}") from None


def read_marian_tokenizers(
    directory: Path, sizes: tuple[int, int], pad: int, start: int, eos: int
) -> tuple[MarianTokenizer, MarianTokenizer]:
    """The tokenizers of source and target.  pad, start, eos: ids as config.json says.

    sizes: rows of the two embeddings.  Raises DataError.
    """
    separate = (directory / "target_vocab.json").is_file()
    lists = ("vocab.json", "target_vocab.json" if separate else "vocab.json")
    made = []
    for model, vocabulary, size in zip(("source.spm", "target.spm"), lists, sizes, strict=True):
        for name in (model, vocabulary):
            if not (directory / name).is_file():
                raise DataError(f"{directory} has no {name}, which Marian's tokenizer needs")
        pieces = read_json(directory / vocabulary)
        if not all(isinstance(token, int) and token >= 0 for token in pieces.values()):
            raise DataError(f"{directory / vocabulary} does not hold pieces and their ids")
        if "<unk>" not in pieces:
            raise DataError(f"{directory / vocabulary} has no token '<unk>'")
        try:
            numbering = Numbering(size=size, pad=pad, unk=pieces["<unk>"], bos=start, eos=eos)
            data = (directory / model).read_bytes()
            made.append(MarianTokenizer(data, pieces, numbering))
        except TransduceError as error:
            raise DataError(f"{directory / model}: {error}") from None
    return made[0], made[1]


def _settings(directory: Path) -> dict[str, Any]:
    """What the files beside the tokenizer say of it."""
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (directory / name).is_file():
            settings |= read_json(directory / name)
    return settings


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by name, given as strings or as objects."""
    special = {}
    for name, value in settings.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            special[name] = text
    return special


def _definition(directory: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """The library's own JSON, read or made from the older files; and where it is from."""
    whole = directory / "tokenizer.json"
    if whole.is_file():
        return read_json(whole), whole
    vocabulary = directory / "vocab.txt"
    if vocabulary.is_file():
        return _word_piece(vocabulary, settings), vocabulary
    vocabulary, merges = directory / "vocab.json", directory / "merges.txt"
    if vocabulary.is_file() and merges.is_file():
        return _byte_level(vocabulary, merges, settings), vocabulary
    raise DataError(
        f"{directory} has no tokenizer: tokenizer.json, vocab.txt, or vocab.json with merges.txt"
    )


def _word_piece(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """BERT's tokenizer, from its list of pieces."""
    try:
        pieces = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    vocabulary = {piece.rstrip("\r"): i for i, piece in enumerate(pieces) if piece.rstrip("\r")}
    model = {
        "type": "WordPiece",
        "unk_token": _special_tokens(settings).get("unk_token", "[UNK]"),
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": vocabulary,
    }
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": bool(settings.get("tokenize_chinese_chars", True)),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": bool(settings.get("do_lower_case", True)),
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return _assembled(model, normalizer, {"type": "BertPreTokenizer"}, decoder)


def _byte_level(vocabulary: Path, merges: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """GPT-2's tokenizer, from its pieces and merges."""
    try:
        lines = merges.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{merges} cannot be read: {error}") from None
    pairs = [line.rstrip("\r") for line in lines if not line.startswith("#version")]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "vocab": read_json(vocabulary),
        "merges": [pair for pair in pairs if pair.strip()],
    }
    bytes_ = {
        "type": "ByteLevel",
        "add_prefix_space": bool(settings.get("add_prefix_space", False)),
        "trim_offsets": True,
        "use_regex": True,
    }
    return _assembled(model, None, bytes_, bytes_)


def _lower_cased(definition: dict[str, Any]) -> dict[str, Any]:
    own, lower = definition.get("normalizer"), {"type": "Lowercase"}
    both = {"type": "Sequence", "normalizers": [lower, own]}
    return {**definition, "normalizer": lower if own is None else both}


def _assembled(
    model: dict[str, Any],
    normalizer: dict[str, Any] | None,
    pre_tokenizer: dict[str, Any],
    decoder: dict[str, Any],
) -> dict[str, Any]:
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
