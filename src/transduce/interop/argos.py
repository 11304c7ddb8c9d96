"""Argos Translate and LibreTranslate: a package, made of a CTranslate2 directory.

A package has a sentence splitter, without which the programs download one at the first translation.
Ours is a graph of a few additions, built here byte by byte (ONNX is a protocol buffer).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.errors import RunError
from transduce.interop.sentencepiece_checks import check_sentencepiece
from transduce.text import Tokenizer
from transduce.text.language_names import canonical, name_of

PACKAGE_VERSION, ARGOS_VERSION = "1.0", "1.9.0"
CODES = {"zh-hans": "zh", "zh-hant": "zt", "pt-br": "pb"}
"""Argos's codes of languages where they differ."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Of the files in a package, so that equal packages are equal files."""


def check_expressible(source: Tokenizer, target: Tokenizer, targets: Sequence[str]) -> None:
    """Raises RunError, with the setting to change before training, for tokenizers without support.

    targets: languages that a multilingual run chooses from by a tag.
    """
    if len(targets) > 1:
        raise RunError(
            f"an Argos package holds one pair of languages, not {', '.join(targets)}; train a run "
            "for each"
        )
    if source is not target:
        raise RunError("an Argos package holds one vocabulary; train without text.target")
    check_sentencepiece("Argos", "source", source)


def write_package(
    path: Path,
    model: Path,
    tokenizer: Tokenizer,
    languages: tuple[str, str],
    readme: str,
) -> None:
    """Write a package, a stored zip of one folder.

    model: a directory of CTranslate2.  languages: codes of source and target.
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
        add("sentencepiece.model", tokenizer.to_bytes())
        add(f"minisbd/{source}.onnx", splitter(source))
        for file in sorted(model.iterdir()):
            add(f"model/{file.name}", file.read_bytes())


def splitter(language: str) -> bytes:
    """ONNX graph of MiniSBD's form that ends sentences by rules, for any language.

    A full stop before a blank ends one, but not after a digit or a single letter, nor before a
    lower-case letter; marks of Chinese and Japanese end one anywhere.  Inputs `units` (b, t),
    `features` (b, t, f); output (b, t, 5), whose class 2 ends a sentence.
    """
    units = {unit: i for i, unit in enumerate(("<PAD>", "<UNK>", "<EMPTY>", "<ROOT>"))}
    pad, stop, mark, wide, blank, digit, lower = 0, *range(4, 10)
    for number, characters in (
        (stop, ".…"),
        (mark, "!?"),
        (wide, "。！？"),
        (blank, " "),
        (digit, "0123456789"),
        (lower, (c for c in map(chr, range(0x250)) if c.islower())),
        (lower, (c for c in map(chr, range(0x370, 0x530)) if c.islower())),
    ):
        units |= dict.fromkeys(characters, number)
    size = lower + 1
    # Class 2 wins over class 0 above 15.
    names = ("earlier", "before", "here", "next", "after")
    tables = {name: np.zeros((size, 5), np.float32) for name in names}
    tables["here"][:, 0] = 15
    tables["here"][:, (1, 3, 4)] = -100
    tables["here"][(stop, mark, wide), 2] = 10, 20, 60
    tables["next"][:, 2] = -10
    tables["next"][(blank, pad), 2] = 10
    tables["before"][digit, 2] = -10
    tables["earlier"][(blank, pad), 2] = -10
    tables["after"][lower, 2] = -10
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
    return _model(_graph(tables), metadata)


def _graph(tables: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The sum of the tables, at each character, two before it and two after it."""
    numbers = {"zero": 0, "one": 1, "less": -1, "all": 1 << 62}
    shift = ("Concat", 1)
    nodes = (
        ("Slice", ("units", "zero", "one", "one"), "head"),
        ("Sub", ("head", "head"), "pad"),
        ("Slice", ("units", "zero", "less", "one"), "front"),
        (shift, ("pad", "front"), "units_before"),
        ("Slice", ("units_before", "zero", "less", "one"), "front_before"),
        (shift, ("pad", "front_before"), "units_earlier"),
        ("Slice", ("units", "one", "all", "one"), "tail"),
        (shift, ("tail", "pad"), "units_next"),
        ("Slice", ("units_next", "one", "all", "one"), "tail_next"),
        (shift, ("tail_next", "pad"), "units_after"),
        ("Gather", ("earlier", "units_earlier"), "score_earlier"),
        ("Gather", ("before", "units_before"), "score_before"),
        ("Gather", ("here", "units"), "score_here"),
        ("Gather", ("next", "units_next"), "score_next"),
        ("Gather", ("after", "units_after"), "score_after"),
        ("Add", ("score_earlier", "score_before"), "sum_before"),
        ("Add", ("sum_before", "score_here"), "sum_here"),
        ("Add", ("sum_here", "score_next"), "sum_next"),
        ("Add", ("sum_next", "score_after"), "out"),
    )
    arrays: dict[str, NDArray[Any]] = {
        **tables,
        **{name: np.array([number], np.int64) for name, number in numbers.items()},
    }
    return (
        b"".join(_field(1, _node(*node)) for node in nodes)
        + _field(2, b"sentences")
        + b"".join(_field(5, _tensor(name, array)) for name, array in arrays.items())
        + _field(11, _value("units", INT64, ("b", "t")))
        + _field(11, _value("features", FLOAT, ("b", "t", "f")))
        + _field(12, _value("out", FLOAT, ("b", "t", 5)))
    )


FLOAT, INT64, INTEGER = 1, 7, 2
"""Types of tensors, and of an attribute, in ONNX."""
IR_VERSION, OPERATORS = 8, 17


def _model(graph: bytes, metadata: Mapping[str, str]) -> bytes:
    return (
        _field(1, IR_VERSION)
        + _field(2, b"transduce")
        + _field(7, graph)
        + _field(8, _field(1, b"") + _field(2, OPERATORS))
        + b"".join(
            _field(14, _field(1, key.encode()) + _field(2, value.encode()))
            for key, value in metadata.items()
        )
    )


def _node(operator: str | tuple[str, int], inputs: Iterable[str], output: str) -> bytes:
    """A node, with an axis where the operator is given with one."""
    name, axis = operator if isinstance(operator, tuple) else (operator, None)
    attribute = b""
    if axis is not None:
        attribute = _field(5, _field(1, b"axis") + _field(3, axis) + _field(20, INTEGER))
    named = b"".join(_field(1, one.encode()) for one in inputs)
    return named + _field(2, output.encode()) + _field(4, name.encode()) + attribute


def _tensor(name: str, array: NDArray[Any]) -> bytes:
    kind = FLOAT if array.dtype == np.float32 else INT64
    dimensions = b"".join(_field(1, size) for size in array.shape)
    data = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return dimensions + _field(2, kind) + _field(8, name.encode()) + _field(9, data)


def _value(name: str, kind: int, shape: Iterable[str | int]) -> bytes:
    dimensions = b"".join(
        _field(1, _field(1, size) if isinstance(size, int) else _field(2, size.encode()))
        for size in shape
    )
    tensor = _field(1, kind) + _field(2, dimensions)
    return _field(1, name.encode()) + _field(2, _field(1, tensor))


def _field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: a number, or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """A number of at least 0, seven bits a byte, least first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
