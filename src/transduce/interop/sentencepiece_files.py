"""SentencePiece models beside the weights of other toolkits, with vocabularies of their own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.errors import DataError, TransduceError
from transduce.interop.argos import CODES
from transduce.text import MarianTokenizer, Numbering
from transduce.text.language_names import canonical

NAMES = (("source.spm", "target.spm"), ("sentencepiece.model", "sentencepiece.model"))
PADDING = ("<blank>", "<pad>")


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


def read_sentencepiece(
    folder: Path,
    vocabularies: Sequence[Mapping[str, int]],
    numberings: Sequence[Numbering],
    source_end: bool,
    opening: int | None = None,
) -> tuple[MarianTokenizer, MarianTokenizer]:
    """Tokenizers of source and target, in a folder or, as in Argos's packages, the one above.

    opening: id before a source.  Raises DataError.
    """
    folders = folder, folder.absolute().parent
    pairs = ([parent / name for name in names] for parent in folders for names in NAMES)
    paths = next((pair for pair in pairs if all(path.is_file() for path in pair)), None)
    if paths is None:
        raise DataError(
            f"{folder} has no sentencepiece.model, or source.spm and target.spm; copy the model's "
            "tokenizer there"
        )
    made = []
    source = dataclasses.replace(numberings[0], source_end=source_end, opening=opening)
    for path, pieces, numbering in zip(paths, vocabularies, (source, numberings[1]), strict=True):
        try:
            made.append(MarianTokenizer(path.read_bytes(), pieces, numbering))
        except TransduceError as error:
            raise DataError(f"{path}: {error}") from None
    return made[0], made[1]


def argos_languages(folder: Path) -> dict[str, str]:
    """Languages in the metadata of Argos's package around a folder; empty without one."""
    codes = {theirs: canonical(ours) for ours, theirs in CODES.items() if theirs != "zh"}
    try:
        metadata = json.loads((folder.absolute().parent / "metadata.json").read_bytes())
        named = {"source": metadata["from_code"], "target": metadata["to_code"]}
        return {side: codes.get(code, canonical(code)) for side, code in named.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
