"""Tokenizers of Hugging Face directories, read by `transformers`, with ids in our order."""

import dataclasses
import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from transduce.errors import DataError, TransduceError, extra_module, naming
from transduce.support.files import read_json_object
from transduce.text import HuggingFaceTokenizer, MarianTokenizer, Numbering
from transduce.text.hugging_face import check_steps, library_errors, model_kind
from transduce.text.imported import AddedToken
from transduce.text.languages import languages_of

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
STARTED: Names = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "bos": ("eos_token", "sep_token"),
    "eos": ("eos_token", "sep_token"),
}
"""Of an encoder-decoder; config.json may name another token that outputs begin with."""
NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""Special tokens that are plain text in a user's text; others are tokens there."""
CONFIG = "tokenizer_config.json"
BYTES_FROM = 3
"""Id of the first byte in ByT5."""
AS_WRITTEN = "TokenizersBackend"
PIECES, VOCABULARY = "sentencepiece.bpe.model", "vocab.json"
MULTILINGUAL = ("M2M100Tokenizer", "MBart50Tokenizer", "MBartTokenizer", "NllbTokenizer")
"""Classes with tokens of languages, which are plain text in a user's text."""
_MERGED = ("vocab.json", "merges.txt")
CLASSES: Mapping[str, tuple[str | None, tuple[str, ...]]] = {
    "BertTokenizer": ("WordPiece", ("vocab.txt",)),
    "BartTokenizer": ("BPE", _MERGED),
    "DistilBertTokenizer": ("WordPiece", ("vocab.txt",)),
    "GPT2Tokenizer": ("BPE", _MERGED),
    "MBart50Tokenizer": ("Unigram", (PIECES,)),
    "MBartTokenizer": ("Unigram", (PIECES,)),
    "NllbTokenizer": ("BPE", (PIECES,)),
    "RobertaTokenizer": ("BPE", _MERGED),
    "T5Tokenizer": ("Unigram", ("spiece.model",)),
    "WhisperTokenizer": ("BPE", _MERGED),
    "XLMRobertaTokenizer": ("Unigram", ()),
    "PreTrainedTokenizerFast": (None, ()),
    AS_WRITTEN: (None, ()),
}
"""Classes of `transformers`, with the kind of their model, and older files for tokenizer.json."""


def read_tokenizer(
    directory: Path,
    size: int,
    names: Names,
    customary: Mapping[str, str],
    marks_between: Literal[1, 2] = 1,
    lower_case: bool = False,
    usual: str = AS_WRITTEN,
) -> HuggingFaceTokenizer:
    """Read the tokenizer of a directory, for an embedding of `size` rows.

    customary: default special tokens, by the names in `names`.  lower_case: before everything else.
    usual: default class of the tokenizer, where its files are not tokenizer.json.  Raises DataError
    if it is missing or does not match the model.
    """
    where = directory / "tokenizer.json"
    if tokenizer_settings(directory).get("fast_tokenizer_files"):
        raise DataError(
            f"{directory / CONFIG}: fast_tokenizer_files, one tokenizer.json per library version, "
            "is not supported; remove it to use tokenizer.json"
        )
    unnamed = AS_WRITTEN if where.is_file() and usual not in MULTILINGUAL else usual
    name = _class_named(directory, tuple(CLASSES)) or unnamed
    kind, files = CLASSES[name]
    if where.is_file():
        _check_content(where, name, kind)
    elif not files or not all((directory / file).is_file() for file in files):
        others = f", or {' with '.join(files)}" if files else ""
        raise DataError(f"{directory} has no tokenizer for {name}; expected tokenizer.json{others}")
    library = _loaded(directory, name)
    definition = json.loads(library.backend_tokenizer.to_str())
    special = {**customary, **_special(library)}
    as_text = {text for role, text in special.items() if role in NAMED}
    known = _known(directory, library)
    if name in MULTILINGUAL:
        languages = {*languages_of(library.get_added_vocab()).values()}
        as_text, known = as_text | languages, known | languages
    split = bool(library.split_special_tokens)
    definition["added_tokens"] = [
        {**token, "special": token["content"] in as_text or (split and token["special"])}
        for token in definition["added_tokens"]
        if token["content"] not in as_text or token["id"] < size
    ]
    definition["post_processor"] = None
    vocabulary = {text: i for text, i in library.get_vocab().items() if i < size and text in known}
    ids = _ids(vocabulary, names, special, where)
    with naming(where):
        numbering = Numbering(size=size, **ids)
        if name in MULTILINGUAL:
            codes = languages_of(text for text in vocabulary if text in languages)
            marks = {code: vocabulary[text] for code, text in codes.items()}
            numbering = dataclasses.replace(numbering, languages=marks)
        return HuggingFaceTokenizer(definition, numbering, marks_between, lower_case)


def read_marian_tokenizers(
    directory: Path, sizes: tuple[int, int], pad: int, start: int, eos: int
) -> tuple[MarianTokenizer, MarianTokenizer]:
    """Read the tokenizers of source and target, for embeddings of these sizes and three ids of
    config.json.  Raises DataError.

    directory: with the files.  pad, start, eos: ids of padding, of the beginning of outputs and of
    the end.
    """
    _class_named(directory, ("MarianTokenizer",))
    settings = tokenizer_settings(directory)
    separate = settings.get("separate_vocabs", False)
    lists = ("vocab.json", "target_vocab.json" if separate else "vocab.json")
    vocabularies = []
    for name in (*lists, "source.spm", "target.spm"):
        if not (directory / name).is_file():
            raise DataError(f"{directory} has no {name}; the Marian tokenizer needs it")
    for name in lists:
        pieces = read_json_object(directory / name)
        if not all(isinstance(token, int) and token >= 0 for token in pieces.values()):
            raise DataError(f"{directory / name} must map pieces to ids")
        vocabularies.append(pieces)
    library = _loaded(directory, "MarianTokenizer")
    unknown = str(library.unk_token)
    as_text = {text for role, text in _special(library).items() if role in NAMED}
    added = {i: t for i, t in library.added_tokens_decoder.items() if t.content not in as_text}
    ids = {token.content: i for i, token in added.items()}
    added_tokens = [] if library.split_special_tokens else [_added_token(t) for t in added.values()]
    made = []
    for model, name, pieces, size in zip(
        ("source.spm", "target.spm"), lists, vocabularies, sizes, strict=True
    ):
        if unknown not in pieces:
            raise DataError(f"{directory / name} has no token {unknown!r}")
        with naming(directory / model):
            numbering = Numbering(size=size, pad=pad, unk=pieces[unknown], bos=start, eos=eos)
            data = (directory / model).read_bytes()
            made.append(MarianTokenizer(data, pieces | ids, numbering, added_tokens))
    return made[0], made[1]


def read_m2m100_tokenizer(directory: Path, size: int, pad: int, start: int) -> MarianTokenizer:
    """Read the tokenizer of M2M100: pieces, and a list of them that languages follow, for an
    embedding of `size` rows and two ids of config.json.  Raises DataError.

    directory: with the files.  pad, start: ids of padding and of the beginning of outputs.
    """
    for file in (PIECES, VOCABULARY):
        if not (directory / file).is_file():
            raise DataError(f"{directory} has no {file}; the M2M100 tokenizer needs it")
    library = _loaded(directory, "M2M100Tokenizer")
    pieces = dict(library.encoder)
    marks = {text: i for text, i in library.lang_token_to_id.items() if i < size}
    codes = languages_of(marks)
    unknown, end = str(library.unk_token), str(library.eos_token)
    if not {unknown, end} <= {*pieces}:
        raise DataError(f"{directory / VOCABULARY} has no tokens {unknown!r} and {end!r}")
    with naming(directory / PIECES):
        numbering = Numbering(
            size=size,
            pad=pad,
            unk=pieces[unknown],
            bos=start,
            eos=pieces[end],
            languages={code: marks[text] for code, text in codes.items()},
        )
        return MarianTokenizer((directory / PIECES).read_bytes(), pieces | marks, numbering)


def byte_tokenizer(size: int) -> HuggingFaceTokenizer:
    """ByT5's tokenizer, which has no files: the bytes of a text, after three special tokens."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    characters = {byte: chr(byte) for byte in shown}
    characters |= {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    vocabulary = {characters[byte]: byte + BYTES_FROM for byte in range(256)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    numbering = Numbering(size=size, pad=0, eos=1, unk=2)
    return _without_files(model, {**byte_level, "use_regex": False}, numbering, joined=True)


def word_tokenizer(vocabulary: Mapping[str, int], numbering: Numbering) -> HuggingFaceTokenizer:
    """A tokenizer of words between spaces, with the unknown <unk>."""
    model = {"type": "WordLevel", "vocab": dict(vocabulary), "unk_token": "<unk>"}
    return _without_files(model, {"type": "WhitespaceSplit"}, numbering, joined=False)


def _without_files(
    model: Mapping[str, Any], pre_tokenizer: Mapping[str, Any], numbering: Numbering, joined: bool
) -> HuggingFaceTokenizer:
    """joined: texts are decoded by the step that splits them."""
    definition: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": pre_tokenizer if joined else None,
        "model": model,
    }
    return HuggingFaceTokenizer(definition, numbering)


def tokenizer_settings(directory: Path) -> Mapping[str, Any]:
    """Content of `tokenizer_config.json`; empty where it is missing."""
    path = directory / CONFIG
    return read_json_object(path) if path.is_file() else {}


def _class_named(directory: Path, known: tuple[str, ...]) -> str | None:
    """Class of a directory's tokenizer, without the suffix of its fast variant; None if unnamed.
    Raises DataError for an unknown class, as its rules are not known to agree."""
    config = directory / "config.json"
    path, named = directory / CONFIG, tokenizer_settings(directory).get("tokenizer_class")
    if named is None and config.is_file():
        path, named = config, read_json_object(config).get("tokenizer_class")
    for name in (named, str(named).removesuffix("Fast")):
        if name is None or name in known:
            return name
    raise DataError(
        f"{path}: tokenizer_class = {named!r} is not supported, only {', '.join(known)}"
    )


def _check_content(path: Path, name: str, kind: str | None) -> None:
    """Raises DataError for a tokenizer.json that is dangerous or of another kind."""
    content = read_json_object(path)
    model = content.get("model")
    if not isinstance(model, dict):
        raise DataError(f"{path} has no tokenizer model")
    if kind is not None and model_kind(model) != kind:
        raise DataError(f"{path}: the model is {model_kind(model)}, but {name} needs {kind}")
    with naming(path):
        check_steps(content)


def _loaded(directory: Path, name: str) -> Any:
    """A tokenizer of `transformers`, from these files alone, without code of theirs."""
    transformers = extra_module("transformers", "the tokenizer of this model", "import")
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), library_errors("cannot read it"):
            warnings.simplefilter("ignore")
            return getattr(transformers, name).from_pretrained(
                str(directory), local_files_only=True, trust_remote_code=False
            )
    except TransduceError as error:
        whole = directory / "tokenizer.json"
        raise DataError(f"{whole if whole.is_file() else directory}: {error}") from None
    finally:
        transformers.logging.set_verbosity(verbosity)


def _known(directory: Path, library: Any) -> set[str]:
    """Tokens of the files; those known from the class alone have no row of the embedding."""
    names = (CONFIG, "special_tokens_map.json", "added_tokens.json", "tokenizer.json")
    paths = [path for name in names if (path := directory / name).is_file()]
    files = "".join(json.dumps(read_json_object(path)) for path in paths)
    vocabulary = library.backend_tokenizer.get_vocab(with_added_tokens=False)
    stated = (token for token in library.get_added_vocab() if json.dumps(token) in files)
    return {*vocabulary, *stated}


def _special(library: Any) -> dict[str, str]:
    return {
        name: str(token)
        for name, token in library.special_tokens_map.items()
        if isinstance(token, str) or hasattr(token, "content")
    }


def _added_token(token: Any) -> AddedToken:
    names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(**{name: getattr(token, name) for name in names})


def _ids(
    vocabulary: Mapping[str, int], names: Names, special: Mapping[str, str], where: Path
) -> dict[str, Any]:
    ids: dict[str, Any] = {}
    for ours, theirs in names.items():
        texts = [special[name] for name in theirs if name in special]
        tokens = [vocabulary[text] for text in texts if text in vocabulary]
        if tokens:
            ids[ours] = tokens[0]
        elif ours in ("bos", "eos"):
            raise DataError(
                f"{where}: no token marks the {'beginning' if ours == 'bos' else 'end'} of a "
                f"text ({' or '.join(map(repr, texts)) or theirs[0]})"
            )
    return ids
