"""SentencePiece models beside the weights of other toolkits, with vocabularies of their own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from transduce.errors import DataError, naming
from transduce.interop.argos import CODES
from transduce.text import MarianTokenizer, Numbering
from transduce.text.language_names import canonical

NAMES = (("source.spm", "target.spm"), ("sentencepiece.model", "sentencepiece.model"))
PADDING = ("<blank>", "<pad>")


def ids_of(tokens: Sequence[str]) -> dict[str, int]:
    """Ids by token; the first of equal ones."""
    return {token: i for i, token in reversed([*enumerate(tokens)])}


def numbered(
    pieces: Mapping[str, int], size: int, texts: Mapping[str, Any], where: Path
) -> Numbering:
    """Special ids of a vocabulary of `size` rows, by the names in `texts` (`config.json` of
    CTranslate2); the token that outputs begin with may be None, for a vector of zeros."""
    if len(pieces) > size or max(pieces.values(), default=0) >= size:
        raise DataError(f"{where}: the vocabulary has {len(pieces)} tokens, the model only {size}")
    ids: dict[str, Any] = {}
    for role, name, usual in (
        ("unk", "unk_token", "<unk>"),
        ("eos", "eos_token", "</s>"),
        ("bos", "decoder_start_token", None),
    ):
        text = texts.get(name, usual)
        if text is None and role == "bos":
            continue
        if text not in pieces:
            raise DataError(f"{where}: the vocabulary has no {name}, {text!r}")
        ids[role] = pieces[text]
    pads = (pieces[text] for text in PADDING if text in pieces)
    pad = next((token for token in pads if token not in ids.values()), None)
    return dataclasses.replace(Numbering(size=size, pad=pad), **ids)


def sentencepiece_pair(
    folder: Path, names: Sequence[tuple[str, str]] = NAMES
) -> tuple[Path, Path] | None:
    """Models of source and target in a folder or, as in Argos's packages, the one above."""
    for parent in (folder, folder.absolute().parent):
        for pair in names:
            source, target = (parent / name for name in pair)
            if source.is_file() and target.is_file():
                return source, target
    return None


def read_sentencepiece(
    path: Path, pieces: Mapping[str, int], numbering: Numbering
) -> MarianTokenizer:
    """Tokenizer of a model whose pieces are numbered elsewhere.  Raises DataError."""
    with naming(path):
        return MarianTokenizer(path.read_bytes(), pieces, numbering)


def read_own_pieces(path: Path, size: int) -> MarianTokenizer:
    """Tokenizer of a model that numbers its pieces itself, for a table of `size` rows.  It has no
    padding, and an output starts with a vector of zeros.  Raises DataError."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.load_from_serialized_proto(path.read_bytes())
    except (RuntimeError, ValueError) as error:
        raise DataError(f"{path} is not a SentencePiece model ({error})") from None
    ids = range(processor.get_piece_size())
    if len(ids) > size:
        raise DataError(f"{path} has {len(ids)} pieces, but the model has only {size}")
    numbering = Numbering(size=size, unk=processor.unk_id(), eos=processor.eos_id())
    pieces = dict(zip(processor.id_to_piece(list(ids)), ids, strict=True))
    return read_sentencepiece(path, pieces, numbering)


def argos_languages(folder: Path) -> dict[str, str]:
    """Languages in the metadata of Argos's package around a folder; empty without one."""
    codes = {theirs: canonical(ours) for ours, theirs in CODES.items() if theirs != "zh"}
    try:
        metadata = json.loads((folder.absolute().parent / "metadata.json").read_bytes())
        named = {"source": metadata["from_code"], "target": metadata["to_code"]}
        return {side: codes.get(code, canonical(code)) for side, code in named.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
