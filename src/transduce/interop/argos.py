"""Argos Translate and LibreTranslate: a package of a CTranslate2 directory and a SentencePiece
model, written and read.

A package has a sentence splitter, without which the programs download another at the first
translation. Ours is an ONNX graph of a convolution.
"""

import dataclasses
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from transduce.errors import DataError, RunError, extra_module, naming
from transduce.support.files import read_json
from transduce.text import MarianTokenizer, Numbering, Tokenizer
from transduce.text.imported import ImportedTokenizer
from transduce.text.languages import canonical, name_of
from transduce.text.scripts import GOES_ON, OPENING, ORDINALS, TITLES, code_of

Rows = Iterable[tuple[str, Any, tuple[Any, ...]]]
"""Names of settings, their values, and possible ones; none where the model is an imported one."""


def check_settings(program: str, rows: Rows, is_imported: bool = False) -> None:
    """Raises RunError, with all settings to change before training, for values that a program does
    not have.  is_imported: nothing can be changed."""
    refused = {name: (setting, able) for name, setting, able in rows if setting not in able}
    if not refused:
        return
    has = ", ".join(f"{name} = {setting!r}" for name, (setting, _) in refused.items())
    choices = (f"{name} = {' or '.join(map(repr, able))}" for name, (_, able) in refused.items())
    is_imported |= any(not able for _, able in refused.values())
    raise RunError(
        f"{program} has no {has}" + ("" if is_imported else f"; train with {', '.join(choices)}")
    )


def sentencepiece_rows(source: Tokenizer, target: Tokenizer) -> Rows:
    """Settings of tokenizers for a program that reads SentencePiece and does not normalise texts,
    as `check_settings` takes them."""
    sides = {"source": source} if source is target else {"source": source, "target": target}
    for side, tokenizer in sides.items():
        if isinstance(tokenizer, ImportedTokenizer):
            if not (isinstance(tokenizer, MarianTokenizer) and tokenizer.is_plain):
                yield f"text.{side}.kind", tokenizer.kind, ()
            continue
        kind = getattr(tokenizer, "kind", type(tokenizer).__name__)
        yield f"text.{side}.kind", kind, ("bpe", "unigram")
        normalizer = tokenizer.normalizer
        yield f"text.{side}.normalization", normalizer.normalization, ("none",)
        yield f"text.{side}.lowercase", normalizer.lowercase, (False,)


def pieces_file(tokenizer: Tokenizer) -> bytes:
    """The SentencePiece model of a tokenizer."""
    if isinstance(tokenizer, MarianTokenizer):
        return tokenizer.sentencepiece
    return tokenizer.to_bytes()


PACKAGE_VERSION, ARGOS_VERSION = "1.0", "1.9.0"
CODES = {"zh-hans": "zh", "zh-hant": "zt", "pt-br": "pb"}
"""Argos's codes of languages where they differ."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Of the files in a package, so that equal packages are equal files."""


def check_argos_expressible(source: Tokenizer, target: Tokenizer, targets: Sequence[str]) -> None:
    """Raises RunError, with all settings to change before training, for tokenizers without support,
    and for several target languages.

    source, target: tokenizers.  targets: codes of the target languages.
    """
    languages = ("languages.target", ", ".join(targets), tuple(targets) or ("",))
    vocabularies = ("text.target", None if source is target else "of its own", (None,))
    check_settings("Argos", [languages, vocabularies, *sentencepiece_rows(source, target)])


def write_package(
    path: Path,
    model: Path,
    tokenizer: Tokenizer,
    languages: tuple[str, str],
    readme: str,
) -> None:
    """Write a package, a stored zip of a folder, of a CTranslate2 directory for two languages.

    path: of the package.  model: the CTranslate2 directory.  tokenizer: of both sides.  readme: as
    Markdown.
    """
    source, target = (CODES.get(canonical(code).lower(), canonical(code)) for code in languages)
    metadata = {
        "package_version": PACKAGE_VERSION,
        "argos_version": ARGOS_VERSION,
        "from_code": source,
        "from_name": name_of(canonical(source)),
        "to_code": target,
        "to_name": name_of(canonical(target)),
    }
    folder = f"translate-{source}_{target}-{PACKAGE_VERSION.replace('.', '_')}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as package:

        def add(name: str, content: bytes) -> None:
            package.writestr(zipfile.ZipInfo(f"{folder}/{name}", DATE), content)

        add("metadata.json", json.dumps(metadata, ensure_ascii=False, indent=1).encode())
        add("README.md", readme.encode())
        add("sentencepiece.model", pieces_file(tokenizer))
        add(f"minisbd/{source}.onnx", splitter(source))
        for file in sorted(model.iterdir()):
            add(f"model/{file.name}", file.read_bytes())


BLANK, DIGITS = " ", "0123456789"
STOPS, MARKS, WIDE = ".…", "!?", "。！？"
BEFORE_WORDS = " ([{\"'„“‚‘«-–/’"
"""Characters that may stand before an abbreviation."""
ROMAN = "ivxIVX"
LOWER = "".join(c for c in map(chr, (*range(0x250), *range(0x370, 0x530))) if c.islower())
UPPER = "".join(c.upper() for c in LOWER if len(c.upper()) == 1)
CLOSING = "”’」』"
Pattern = Sequence[str]
"""Characters allowed at each of some neighbouring places, behind ^ those that are not.

A place outside the text allows all.
"""


def splitter(language: str) -> bytes:
    """ONNX graph of MiniSBD's form that ends sentences by the rules of `text.sentence_rules`.

    A full stop before a blank ends a sentence, but not behind an abbreviation, a single letter, the
    number of a sentence or an ordinal, nor before a lower-case letter; marks of Chinese and
    Japanese end it anywhere but in a quotation.  Inputs `units` (b, t), `features` (b, t, f);
    output (b, t, 5), whose class 2 ends a sentence.
    """
    ends, exceptions = _ends(), _exceptions(code_of(language))
    units = {unit: i for i, unit in enumerate(("<PAD>", "<UNK>", "<EMPTY>", "<ROOT>"))}
    places = [set(characters) for _, pattern in (*ends, *exceptions) for characters in pattern]
    groups: dict[tuple[bool, ...], int] = {}  # characters that no pattern tells apart are one unit
    for character in sorted(set().union(*places) - {"^"}):
        allowed = tuple(character in characters for characters in places)
        units[character] = groups.setdefault(allowed, 4 + len(groups))
    size = 4 + len(groups)
    vocabulary = {
        "lang": language,
        "idx": 0,
        "cutoff": 0,
        "lower": False,
        "_unit2id": units,
        "_id2unit": [next(u for u, i in units.items() if i == n) for n in range(size)],
    }
    config = {"max_seqlen": 1000, "batch_size": 1, "feat_funcs": ["space_before"]}
    metadata = {
        "lang_code": language,
        "config": json.dumps(config),
        "vocab": json.dumps(vocabulary),
        "lexicon": "null",
    }
    helper = _library().helper
    operators = [helper.make_opsetid("", 17)]
    graph = _graph(units, size, ends, exceptions)
    model = helper.make_model(
        graph, opset_imports=operators, ir_version=8, producer_name="transduce"
    )
    helper.set_model_props(model, metadata)
    return bytes(model.SerializeToString(deterministic=True))


def _ends() -> list[tuple[int, Pattern]]:
    """Patterns of ends, each with the place of the end in it."""
    return [
        (0, [STOPS + MARKS, BLANK]),
        (0, [WIDE, f"^{CLOSING}"]),
        (1, ["。", CLOSING, "^" + "".join(text[0] for text in GOES_ON)]),
        (1, [WIDE, CLOSING, OPENING]),
    ]


def _exceptions(language: str) -> list[tuple[int, Pattern]]:
    """Patterns of full stops that end no sentence, each with the place of the stop."""
    words: list[Pattern] = [[BEFORE_WORDS, LOWER + UPPER]]
    for n in range(1, 4):
        count, numeral = [BLANK, *[DIGITS] * n], [BLANK, *[ROMAN] * (n + 1)]
        if language in ORDINALS.split():
            words += count, numeral
        else:
            words += [STOPS + MARKS, *count], [STOPS + MARKS, *numeral]
    for word in TITLES.get(language, "").split():
        words.append([BEFORE_WORDS, *(c + c.upper() for c in word)])
    before_numbers = [[BEFORE_WORDS, *[LOWER] * n, STOPS, BLANK, DIGITS] for n in range(2, 5)]
    return [
        (0, [STOPS, BLANK, LOWER]),
        *((len(word), [*word, STOPS]) for word in words),
        *((len(word) - 3, word) for word in before_numbers),
    ]


def _graph(
    units: Mapping[str, int],
    size: int,
    ends: Sequence[tuple[int, Pattern]],
    exceptions: Sequence[tuple[int, Pattern]],
) -> Any:
    """A convolution that finds the patterns, and the class that they vote for."""
    patterns = [*ends, *exceptions]
    before = max(offset for offset, _ in patterns)
    after = max(len(pattern) - 1 - offset for offset, pattern in patterns)
    kernel = np.zeros((len(patterns), size, before + 1 + after), np.float32)
    for row, (offset, pattern) in enumerate(patterns):
        for i, characters in enumerate(pattern, start=before - offset):
            is_complement = characters.startswith("^")
            kernel[row, 1:, i] = 0 if is_complement else -1  # the padding is always allowed
            named = [units[c] for c in characters.removeprefix("^")]
            kernel[row, named, i] = -1 if is_complement else 0
    votes = np.zeros((len(patterns), 5), np.float32)
    votes[: len(ends), 2], votes[len(ends) :, 2] = 10, -100
    arrays: dict[str, NDArray[Any]] = {
        "hot": np.eye(size, dtype=np.float32),
        "kernel": kernel,
        "ones": np.ones(len(patterns), np.float32),
        "votes": votes,
        "classes": np.array([5, -1000, 0, -1000, -1000], np.float32),
    }
    library = _library()
    graph = library.parser.parse_graph(GRAPH.format(before=before, after=after))
    graph.initializer.extend(
        library.numpy_helper.from_array(array, name) for name, array in arrays.items()
    )
    return graph


GRAPH = """
sentences (int64[b, t] units, float[b, t, f] features) => (float[b, t, 5] out) {{
    characters = Gather(hot, units)
    channels = Transpose<perm = [0, 2, 1]>(characters)
    matches_or_less = Conv<pads = [{before}, {after}]>(channels, kernel, ones)
    matches = Relu(matches_or_less)
    rows = Transpose<perm = [0, 2, 1]>(matches)
    scores = MatMul(rows, votes)
    out = Add(scores, classes)
}}
"""


def _library() -> Any:
    for module in ("onnx.parser", "onnx.numpy_helper", "onnx.helper", "onnx"):
        library = extra_module(module, "the splitter of an Argos package", "ctranslate2")
    return library


NAMES = (("source.spm", "target.spm"), ("sentencepiece.model", "sentencepiece.model"))
PADDING = ("<blank>", "<pad>")


def ids_of(tokens: Sequence[str]) -> dict[str, int]:
    """Ids by token; the first of equal ones."""
    return {token: i for i, token in reversed([*enumerate(tokens)])}


def numbered(
    pieces: Mapping[str, int], size: int, texts: Mapping[str, Any], where: Path
) -> Numbering:
    """Special ids of a vocabulary of `size` rows, by the names in `texts` (`config.json` of
    CTranslate2); the token that outputs begin with may be None, for a vector of zeros.

    pieces: id of each piece.  where: file, for messages.
    """
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
    """Tokenizer of a model whose pieces are numbered elsewhere.  Raises DataError.

    path: of the SentencePiece model.  numbering: special ids.
    """
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
        metadata = read_json(folder.absolute().parent / "metadata.json")
        named = {"source": metadata["from_code"], "target": metadata["to_code"]}
        return {side: codes.get(code, canonical(code)) for side, code in named.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
