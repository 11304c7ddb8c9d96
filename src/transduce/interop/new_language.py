"""A language more for a model of many: its token, and pieces learnt from its texts.

A new row of the embedding begins as the mean of the pieces that stood for its text until now.
"""

import dataclasses
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
import torch
from torch import Tensor

from transduce.data.text_files import read_lines
from transduce.errors import DataError, SettingError, naming
from transduce.interop.read import ImportedModel
from transduce.text.hugging_face import HuggingFaceTokenizer
from transduce.text.imported import ImportedTokenizer, MarianTokenizer
from transduce.text.languages import canonical, known_code

ROWS = (
    "front_end.embedding.weight",
    "target_front_end.embedding.weight",
    "head.weight",
    "head.bias",
)
"""Tensors with a row for each token; some models have a part of them."""
SPACE = "▁"


@dataclass(frozen=True)
class NewLanguage:
    """A language to add.

    code: such as "lld".  like: a language of the model whose token the new one begins as; by
    default the mean of all.  texts: a file with a text a line, from which pieces are learnt.
    pieces: their number at most.
    """

    code: str
    like: str | None = None
    texts: Path | None = None
    pieces: int = 2000


def with_language(imported: ImportedModel, language: NewLanguage) -> ImportedModel:
    """The model with a further language.  Raises SettingError for a model without tokens of
    languages or a language that it has, DataError for texts without pieces."""
    code, tokenizers = canonical(language.code), imported.tokenizers
    languages = dict(imported.recipe.get("languages", {}))
    if languages.get("tags") != "pair":
        raise SettingError("a language can be added only to a model of many, such as NLLB")
    made: dict[str, ImportedTokenizer] = {}
    first = next(iter(tokenizers.values()))
    for name, tokenizer in tokenizers.items():
        assert isinstance(tokenizer, HuggingFaceTokenizer | MarianTokenizer)
        assert isinstance(first, HuggingFaceTokenizer | MarianTokenizer)
        if tokenizer.numbering.rows != first.numbering.rows:
            raise SettingError("a language can be added only to a joint vocabulary")
        if code in tokenizer.numbering.languages:
            raise SettingError(f"the model has the language {code!r} already")
        if not made:
            pieces = _pieces(language, tokenizer)
            rows = [
                _like(language.like, tokenizer),
                *(_new_language_ids(piece, first) for piece in pieces),
            ]
        with naming(language.texts):
            made[name] = tokenizer.grown(code, pieces)
    for side in ("source", "target"):
        codes = languages[side]
        languages[side] = [*([codes] if isinstance(codes, str) else codes), code]
    weights = {
        name: _grown(tensor, rows) if name in ROWS else tensor
        for name, tensor in imported.weights.items()
    }
    recipe = {**imported.recipe, "languages": languages}
    return dataclasses.replace(imported, recipe=recipe, weights=weights, tokenizers=made)


def _like(like: str | None, tokenizer: ImportedTokenizer) -> list[int]:
    """Our ids of the language, or of all."""
    known = tokenizer.numbering.languages
    if like is None:
        return [tokenizer.language(code) for code in known]
    if (code := known_code(like, known)) is None:
        raise SettingError(f"{like!r} is not a language of the model")
    return [tokenizer.language(code)]


def _pieces(
    language: NewLanguage, tokenizer: HuggingFaceTokenizer | MarianTokenizer
) -> dict[str, float]:
    """Pieces of the texts that the vocabulary lacks, with scores below all in it, if they rank."""
    if language.texts is None:
        return {}
    kind = "bpe" if tokenizer.is_bpe else "unigram"
    learnt = _trained(read_lines(language.texts), kind, language.pieces, language.texts)
    new = {
        learnt.id_to_piece(i): learnt.get_score(i)
        for i in range(learnt.get_piece_size())
        if not (learnt.is_control(i) or learnt.is_unknown(i))
        and not tokenizer.has_piece(learnt.id_to_piece(i))
    }
    shift = -float(tokenizer.numbering.size) if kind == "bpe" else 0.0
    return {piece: score + shift for piece, score in new.items()}


def _trained(
    lines: Iterable[str], kind: str, size: int, where: Path
) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=size,
            model_type=kind,
            hard_vocab_limit=False,
            minloglevel=2,
            num_threads=1,
        )
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{where}: no pieces can be learnt from it ({reason})") from None
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model.getvalue())
    return processor


def _new_language_ids(piece: str, tokenizer: ImportedTokenizer) -> list[int]:
    """Our ids of a piece's text until now."""
    return tokenizer.encode(piece.replace(SPACE, " ").strip()) or [0]


def _grown(tensor: Tensor, rows: list[list[int]]) -> Tensor:
    """A tensor with further rows, each the mean of some."""
    return torch.cat([tensor, torch.stack([tensor[ids].mean(0) for ids in rows])])
