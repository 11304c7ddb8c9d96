"""Subword and imported tokenizers in the JSON of Hugging Face's `tokenizers`, with special tokens
around the texts: the reverse of `interop.tokenizers`.  Ids are the imported model's, or ours."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from transduce.errors import SettingError, extra_module
from transduce.settings.sections import to_dict
from transduce.text import SPECIAL_TOKENS, UNK, HuggingFaceTokenizer, MarianTokenizer, Tokenizer
from transduce.text.imported import AddedToken, ImportedTokenizer
from transduce.text.subword import SubwordTokenizer

Part = int | Literal["A", "B"]
"""Our id of a special token, or the first or second text."""
UNIGRAM = 1
"""Type of a model of SentencePiece."""


def exported_id(tokenizer: Tokenizer, token: int) -> int:
    """Exported id of an id of ours, MASK included; -1 if it has none."""
    if isinstance(tokenizer, ImportedTokenizer):
        return tokenizer.numbering.rows_and_mask[token]
    return token


def exported_token(tokenizer: Tokenizer, token: int) -> str:
    """Text of a special token of ours, MASK included."""
    piece = None
    if isinstance(tokenizer, ImportedTokenizer):
        piece = tokenizer.piece_there(exported_id(tokenizer, token))
    return piece or (*SPECIAL_TOKENS, "<mask>")[min(token, len(SPECIAL_TOKENS))]


def tokenizer_json(
    tokenizer: HuggingFaceTokenizer | MarianTokenizer | SubwordTokenizer,
    special: Iterable[int],
    single: Sequence[Part],
    pair: Sequence[Part],
) -> dict[str, Any]:
    """Definition of a tokenizer.  special: its special tokens.  single, pair: a text, and a pair of
    texts, with special tokens around them.  Raises SettingError if the extra `onnx` is missing."""
    normalizer = tokenizer.normalizer
    lowercase = normalizer.lowercase
    if isinstance(tokenizer, HuggingFaceTokenizer):
        definition, lowercase = {**tokenizer.definition}, tokenizer.lower_case
    else:
        definition = _of_sentencepiece(tokenizer)
    form, last = normalizer.normalization.upper(), definition["normalizer"]
    names = (form, *(("Lowercase", form) if lowercase else ()))
    steps = [{"type": name} for name in names if name != "NONE"] + ([last] if last else [])
    definition["normalizer"] = {"type": "Sequence", "normalizers": steps} if steps else None
    texts = {i: exported_token(tokenizer, i) for i in special if exported_id(tokenizer, i) >= 0}
    ids = {text: exported_id(tokenizer, i) for i, text in texts.items()}
    added = [token for token in definition["added_tokens"] if token["content"] not in ids]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added += [{"id": i, "content": text, **flags, "special": True} for text, i in ids.items()]
    definition["added_tokens"] = sorted(added, key=lambda token: token["id"])  # as they are read
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": _template(single, texts),
        "pair": _template(pair, texts),
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in ids.items()},
    }
    return definition


def _template(parts: Sequence[Part], texts: dict[int, str]) -> list[dict[str, Any]]:
    template, segment = [], 0
    for part in parts:
        segment |= part == "B"
        kind, name = ("SpecialToken", texts[part]) if isinstance(part, int) else ("Sequence", part)
        template.append({kind: {"id": name, "type_id": segment}})
    return template


def _of_sentencepiece(tokenizer: MarianTokenizer | SubwordTokenizer) -> dict[str, Any]:
    for module in ("google.protobuf", "transformers.convert_slow_tokenizer"):
        library = extra_module(module, "ONNX export", "onnx", SettingError)
    proto = library.import_protobuf().ModelProto()
    proto.ParseFromString(tokenizer.sentencepiece)
    scores = {piece.piece: piece.score for piece in proto.pieces}
    is_unigram = proto.trainer_spec.model_type == UNIGRAM
    vocabulary = [*scores.items()] if is_unigram else {p: i for i, p in enumerate(scores)}
    made = library.SpmConverter.build_tokenizer_from_spm_proto(proto, vocabulary)
    definition: dict[str, Any] = json.loads(made.to_str())
    if isinstance(tokenizer, MarianTokenizer):  # the same pieces by the numbers of their list
        model, unknown = definition["model"], tokenizer.numbering.unk
        numbers = dict(tokenizer.numbers)
        model["unk_token"] = exported_token(tokenizer, UNK)
        model["unk_id"] = unknown
        if is_unigram:
            least, pieces = min(scores.values()), {i: piece for piece, i in numbers.items()}
            rows = (pieces.get(i, f"<id {i}>") for i in range(tokenizer.numbering.size))
            model["vocab"] = [[piece, scores.get(piece, least)] for piece in rows]
        else:
            model["vocab"] = dict.fromkeys(scores, unknown) | numbers
        codes = (AddedToken(content=piece) for piece in numbers if re.fullmatch(">>.*<<", piece))
        added = {token.content: token for token in (*codes, *tokenizer.added)}
        definition["added_tokens"] = [{"id": numbers[t], **to_dict(a)} for t, a in added.items()]
    return definition
