"""Tokenizer files of a Hugging Face directory, and their ids in our order."""

from __future__ import annotations

import dataclasses
import json
import logging
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from transduce.errors import DataError, RunError, TransduceError
from transduce.interop.read import read_json
from transduce.interop.tokenizer_classes import (
    CLASSES,
    TokenizerClass,
    assembled,
    tokenizer_class,
)
from transduce.interop.tokenizer_settings import NAMED, TokenizerSettings, read_settings
from transduce.text import HuggingFaceTokenizer, MarianTokenizer, Numbering
from transduce.text.added_tokens import AddedToken
from transduce.text.hugging_face import tokenizers_library
from transduce.text.tokenizer_checks import check_definition, check_steps, library_errors

logger = logging.getLogger("transduce")

Names = Mapping[str, tuple[str, ...]]
"""Possible names in the files for pad, unk, bos, eos and mask, the best first."""
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

MARIAN = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
"""Default special tokens of Marian."""


def read_tokenizer(
    directory: Path,
    size: int,
    names: Names,
    customary: Mapping[str, str],
    marks_between: Literal[1, 2] = 1,
    lower_case: bool = False,
    usual: str | None = None,
) -> HuggingFaceTokenizer:
    """Read the tokenizer of a directory, for an embedding of `size` rows.

    customary: default special tokens, by the names in `names`.
    marks_between: end marks between two texts in one model input.
    lower_case: lower-case texts first, whatever the files say.
    usual: default class of the tokenizer.
    Raises DataError if it is missing or does not match the model.
    """
    settings = read_settings(directory)
    name, is_named = tokenizer_class(settings, directory, usual)
    kind = CLASSES[name]
    if settings.values.get("fast_tokenizer_files"):
        raise DataError(
            f"{settings.path}: fast_tokenizer_files, one tokenizer.json per library version, is "
            "not supported; remove it to use tokenizer.json"
        )
    content, where = _content(directory, name)
    if not isinstance(content.get("model"), dict):
        raise DataError(f"{where} has no tokenizer model")
    if kind.model is not None and _model_kind(content) != kind.model:
        if is_named:
            raise DataError(
                f"{where}: the model is {_model_kind(content)}, but {name} needs {kind.model}"
            )
        kind = CLASSES["TokenizersBackend"]
    found = {ours: token.content for ours, token in settings.special(kind.special).items()}
    special = {**customary, **found}
    as_text = {content for ours, content in special.items() if ours in NAMED}
    try:
        definition = _made(content, kind, settings, where)
        library = _with_added(definition, kind, settings)
        ids = _ids(_numbers(library, definition, settings, size), names, special, where)
        definition = json.loads(library.to_str())
        split = settings.flag("split_special_tokens", False)
        definition["added_tokens"] = [
            {**token, "special": token["content"] in as_text or bool(split and token["special"])}
            for token in definition["added_tokens"]
            if token["content"] not in as_text or token["id"] < size
        ]
        numbering = Numbering(size=size, **ids)
        return HuggingFaceTokenizer(definition, numbering, marks_between, lower_case)
    except DataError:
        raise
    except TransduceError as error:
        raise DataError(f"{where}: {error}") from None


def read_marian_tokenizers(
    directory: Path, sizes: tuple[int, int], pad: int, start: int, eos: int
) -> tuple[MarianTokenizer, MarianTokenizer]:
    """Read the tokenizers of source and target.  pad, start, eos: ids in config.json.

    sizes: rows of the two embeddings.  Raises DataError.
    """
    settings = read_settings(directory)
    tokenizer_class(settings, directory, "MarianTokenizer", known=("MarianTokenizer",))
    separate = settings.flag("separate_vocabs", False)
    lists = ("vocab.json", "target_vocab.json" if separate else "vocab.json")
    unknown = settings.special(MARIAN).get("unk_token", AddedToken(content="")).content
    vocabularies = []
    for name in lists:
        _require(directory, name)
        pieces = read_json(directory / name)
        if not all(isinstance(token, int) and token >= 0 for token in pieces.values()):
            raise DataError(f"{directory / name} must map pieces to ids")
        if unknown not in pieces:
            raise DataError(f"{directory / name} has no token {unknown!r}")
        vocabularies.append(pieces)
    added = _numbered(settings, vocabularies[0])
    as_text = {token.content for name, token in settings.special(MARIAN).items() if name in NAMED}
    ids = {content: i for content, (i, _) in added.items() if content not in as_text}
    split = settings.flag("split_special_tokens", False)
    places = dict(added.values())  # of two tokens in one place the later is found
    found = [token for token in places.values() if token.content in ids and not split]
    if sampling := settings.values.get("sp_model_kwargs"):
        _say_training(settings.path, "sp_model_kwargs", sampling)
    made = []
    for model, pieces, size in zip(("source.spm", "target.spm"), vocabularies, sizes, strict=True):
        _require(directory, model)
        try:
            numbering = Numbering(size=size, pad=pad, unk=pieces[unknown], bos=start, eos=eos)
            data = (directory / model).read_bytes()
            made.append(MarianTokenizer(data, pieces | ids, numbering, found))
        except TransduceError as error:
            raise DataError(f"{directory / model}: {error}") from None
    return made[0], made[1]


def _require(directory: Path, name: str) -> None:
    if not (directory / name).is_file():
        raise DataError(f"{directory} has no {name}; the Marian tokenizer needs it")


def _numbered(
    settings: TokenizerSettings, pieces: Mapping[str, int]
) -> dict[str, tuple[int, AddedToken]]:
    """Marian's added tokens with their ids: from the files, from the pieces, or else at the end."""
    tokens = settings.all_added(MARIAN)
    known = dict(pieces) | {token.content: i for i, token in tokens if i is not None}
    for _, token in tokens:
        known.setdefault(token.content, len(known))
    return {token.content: (known[token.content], token) for _, token in tokens}


def _content(directory: Path, name: str) -> tuple[dict[str, Any], Path]:
    """Content of `tokenizer.json` or of the older files of a class, and its file."""
    whole = directory / "tokenizer.json"
    if whole.is_file():
        return read_json(whole), whole
    kind = CLASSES[name]
    files = [directory / file for file in kind.files]
    if kind.older is None or not all(file.is_file() for file in files):
        others = f", or {' with '.join(kind.files)}" if kind.files else ""
        raise DataError(f"{directory} has no tokenizer for {name}; expected tokenizer.json{others}")
    try:
        return {"model": {"type": kind.model, **kind.older(files)}}, files[0]
    except RunError as error:
        raise DataError(f"{files[0]}: {error}") from None


def _model_kind(content: Mapping[str, Any]) -> str:
    """Kind of the model in a `tokenizer.json`; in older files it follows from the settings."""
    model = content["model"]
    if "type" in model:
        return str(model["type"])
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "BPE" if "merges" in model else "WordPiece"


def _made(
    content: dict[str, Any], kind: TokenizerClass, settings: TokenizerSettings, where: Path
) -> dict[str, Any]:
    """Definition made by a class from the files, both checked."""
    check_steps(content)
    definition = kind.make(content, settings)
    check_definition(definition)
    if dropout := content["model"].get("dropout"):
        _say_training(where, "dropout", dropout)
    stages = [stage for stage in ("normalizer", "pre_tokenizer") if stage in content]
    with library_errors("cannot read it"):
        for stage in stages:
            if _canonical(stage, content[stage]) != _canonical(stage, definition[stage]):
                message = "%s: ignoring its %s, which differs from the tokenizer class and %s"
                logger.warning(message, where, stage, settings.path.name)
    return definition


def _canonical(stage: str, steps: Any) -> Any:
    """Steps in the library's own notation, without those that do not affect segmentation."""
    nothing = {"type": "BPE", "vocab": {}, "merges": []}
    small = {**assembled(nothing, None, None, None), stage: steps}
    made = json.loads(tokenizers_library().Tokenizer.from_str(json.dumps(small)).to_str())[stage]
    if isinstance(made, dict):
        made.pop("trim_offsets", None)
    return made


def _say_training(where: Path, setting: str, value: Any) -> None:
    message = "%s: ignoring %s = %s, which applies only to training"
    logger.info(message, where, setting, reprlib.repr(value))


def _with_added(
    definition: dict[str, Any], kind: TokenizerClass, settings: TokenizerSettings
) -> Any:
    """The library's tokenizer with all added tokens, numbered as in `transformers`."""
    library = tokenizers_library()
    with library_errors("cannot read it"):
        tokenizer = library.Tokenizer.from_str(json.dumps(definition))
        held = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        wanted = settings.all_added(kind.special)
        tokenizer.add_tokens(
            [
                library.AddedToken(**dataclasses.asdict(token))
                for i, token in wanted
                if i is not None or token.content not in held
            ]
        )
    numbers = [(token.content, i, tokenizer.token_to_id(token.content)) for i, token in wanted]
    for content, said, number in numbers:
        if said not in (None, number):
            message = "%s: the added token %r has id %d there; using %d, as transformers does"
            logger.warning(message, settings.path, content, said, number)
            break
    return tokenizer


def _numbers(
    library: Any, definition: Mapping[str, Any], settings: TokenizerSettings, size: int
) -> dict[str, int]:
    """Ids of the tokens in the files; tokens known from the class alone have no row."""
    stated = (*settings.added.values(), *settings.named.values())
    known = {
        *library.get_vocab(with_added_tokens=False),
        *(token["content"] for token in definition["added_tokens"]),
        *(token.content for token in stated if token is not None),
    }
    vocabulary = library.get_vocab(with_added_tokens=True)
    return {text: i for text, i in vocabulary.items() if text in known and i < size}


def _ids(
    numbers: Mapping[str, int], names: Names, special: Mapping[str, str], where: Path
) -> dict[str, int]:
    """Ids of the known special tokens, by our names.  numbers: ids of tokens."""
    ids: dict[str, int] = {}
    for ours, theirs in names.items():
        found = [special[name] for name in theirs if name in special]
        tokens = [numbers[text] for text in found if text in numbers]
        if tokens:
            ids[ours] = tokens[0]
        elif ours in ("bos", "eos"):
            raise DataError(
                f"{where}: no token marks the {'beginning' if ours == 'bos' else 'end'} of a "
                f"text ({' or '.join(map(repr, found)) or theirs[0]})"
            )
    return ids
