"""Tokenizers in the JSON of Hugging Face's `tokenizers`, with special tokens around the texts: the
reverse of `interop.tokenizers`.  Ids are the imported model's, or ours for a tokenizer of ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from transduce.errors import SettingError, extra_module
from transduce.settings.sections import to_dict
from transduce.text import SPECIAL_TOKENS, UNK, HuggingFaceTokenizer, MarianTokenizer, Tokenizer
from transduce.text.imported import ImportedTokenizer
from transduce.text.listed import ListedTokenizer
from transduce.text.subword import SubwordTokenizer

MASK = "<mask>"
Part = int | Literal["A", "B"]
"""Our id of a special token, or the first or second text."""
_UNIGRAM = 1  # model type of SentencePiece


def exported_id(tokenizer: Tokenizer, token: int) -> int:
    """Id in the exported vocabulary of an id of ours, MASK included; -1 if it has none."""
    if isinstance(tokenizer, ImportedTokenizer):
        return tokenizer.numbering.rows_and_mask[token]
    return token


def exported_token(tokenizer: Tokenizer, token: int) -> str:
    """Text of a special token in the exported vocabulary."""
    if isinstance(tokenizer, ImportedTokenizer):
        piece = tokenizer.piece_there(exported_id(tokenizer, token))
        if piece is not None:
            return piece
    return MASK if token == tokenizer.size else SPECIAL_TOKENS[token]


def tokenizer_json(
    tokenizer: Tokenizer,
    special: Sequence[int],
    single: Sequence[Part],
    pair: Sequence[Part],
) -> dict[str, Any]:
    """Definition of a tokenizer.  special: tokens to name, by our ids.  single, pair: a text, and a
    pair of texts, with special tokens around them.  Raises SettingError if the extra `onnx` is
    missing."""
    if isinstance(tokenizer, HuggingFaceTokenizer):
        definition = dict(tokenizer.definition)
    elif isinstance(tokenizer, MarianTokenizer | SubwordTokenizer):
        definition = _of_sentencepiece(tokenizer)
    else:
        assert isinstance(tokenizer, ListedTokenizer)
        definition = _of_list(tokenizer)
    if isinstance(tokenizer, HuggingFaceTokenizer) and tokenizer.lower_case:
        first: list[Any] = [{"type": "Lowercase"}]
    else:
        form, lower = tokenizer.normalizer.normalization, tokenizer.normalizer.lowercase
        forms = [] if form == "none" else [{"type": form.upper()}]
        first = [*forms, *([{"type": "Lowercase"}, *forms] if lower else [])]
    if first:
        rest = definition["normalizer"]
        steps = first if rest is None else [*first, rest]
        definition["normalizer"] = {"type": "Sequence", "normalizers": steps}
    tokens = {token: exported_token(tokenizer, token) for token in special}
    ids = {tokens[token]: exported_id(tokenizer, token) for token in special}
    ids = {text: i for text, i in ids.items() if i >= 0}
    added = [token for token in definition["added_tokens"] if token["content"] not in ids]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added += [{"id": i, "content": text, **flags, "special": True} for text, i in ids.items()]
    definition["added_tokens"] = sorted(added, key=lambda token: token["id"])  # as they are read
    used = {text: {"id": text, "ids": [i], "tokens": [text]} for text, i in ids.items()}
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": _template(single, tokens),
        "pair": _template(pair, tokens),
        "special_tokens": used,
    }
    return definition


def _template(parts: Sequence[Part], tokens: dict[int, str]) -> list[dict[str, Any]]:
    template, segment = [], 0
    for part in parts:
        segment = 1 if part == "B" else segment
        if isinstance(part, int):
            template.append({"SpecialToken": {"id": tokens[part], "type_id": segment}})
        else:
            template.append({"Sequence": {"id": part, "type_id": segment}})
    return template


def _of_sentencepiece(tokenizer: MarianTokenizer | SubwordTokenizer) -> dict[str, Any]:
    library = extra_module(
        "transformers.convert_slow_tokenizer", "ONNX export", "onnx", SettingError
    )
    extra_module("google.protobuf", "ONNX export", "onnx", SettingError)
    proto = library.import_protobuf().ModelProto()
    proto.ParseFromString(tokenizer.sentencepiece)
    scored: Any = [(piece.piece, piece.score) for piece in proto.pieces]
    is_unigram = proto.trainer_spec.model_type == _UNIGRAM
    vocabulary = scored if is_unigram else {piece: i for i, (piece, _) in enumerate(scored)}
    made = library.SpmConverter.build_tokenizer_from_spm_proto(proto, vocabulary)
    definition: dict[str, Any] = json.loads(made.to_str())
    if isinstance(tokenizer, MarianTokenizer):
        model, numbers, numbering = definition["model"], tokenizer.numbers, tokenizer.numbering
        unknown = numbering.unk or 0
        if is_unigram:
            scores = dict(scored)
            names = {i: piece for piece, i in numbers.items()}
            least = min(scores.values())
            rows = [names.get(i, f"<id {i}>") for i in range(numbering.size)]
            model["vocab"] = [[piece, scores.get(piece, least)] for piece in rows]
            model["unk_id"] = unknown
        else:
            model["vocab"] = {piece: numbers.get(piece, unknown) for piece, _ in scored} | numbers
        model["unk_token"] = exported_token(tokenizer, UNK)
        definition["added_tokens"] = [
            {"id": numbers[token.content], **to_dict(token)} for token in tokenizer.added
        ]
    return definition


def _of_list(tokenizer: ListedTokenizer) -> dict[str, Any]:
    """Units between spaces, or letters, by their numbers."""
    vocabulary = dict(zip(tokenizer.units, range(len(SPECIAL_TOKENS), tokenizer.size), strict=True))
    letters = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated"}
    is_apart = tokenizer.separator != ""
    split = {"type": "WhitespaceSplit"} if is_apart else {**letters, "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": split,
        "post_processor": None,
        "decoder": None if is_apart else {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {**{text: i for i, text in enumerate(SPECIAL_TOKENS)}, **vocabulary},
            "unk_token": SPECIAL_TOKENS[UNK],
        },
    }
