"""Every entrance for bytes of strangers, with something good to begin from."""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from transduce.data.documents import TextFiles, read_documents
from transduce.data.interactions import InteractionsConfig, read_histories
from transduce.data.labelled import (
    LabelledTabSeparated,
    QuestionLines,
    SquadFile,
    read_labelled,
    read_questions,
)
from transduce.data.pairs import JsonLines, ParallelFiles, Parquet, TabSeparated, read_pairs
from transduce.data.text_files import read_lines
from transduce.errors import TransduceError
from transduce.recipes import parse_recipe
from transduce.settings.sections import load_toml
from transduce.tasks.language_model.dialogue import DialoguesConfig, read_dialogues
from transduce.text import (
    CharactersConfig,
    SubwordConfig,
    SymbolsConfig,
    load_tokenizer,
    train_tokenizer,
)
from transduce.text.alignment import parse_gold
from transduce.training.weight_files import read_plain_weights, read_weights_header
from transduce.training.weights import read_tensors, write_tensors, write_weights
from transduce.vision.data import IdxFiles, ImageFolder, ImageTable, ParquetImages, read_images
from transduce.vision.images import read_idx, read_image

Reader = Callable[[Path], Iterable[Any]]
ROOT = Path()

READERS: dict[str, tuple[Reader, bytes]] = {
    "lines": (read_lines, b"a\nb\n"),
    "parallel": (lambda p: read_pairs(ParallelFiles(source=p, target=p), ROOT), b"a\nb\n"),
    "tsv": (lambda p: read_pairs(TabSeparated(path=p), ROOT), b"a\tb\nc\td\n"),
    "named tsv": (
        lambda p: read_pairs(TabSeparated(path=p, source="s", target="t"), ROOT),
        b"s\tt\nc\td\n",
    ),
    "jsonl": (
        lambda p: read_pairs(JsonLines(path=p, source="t.de", target="t.en"), ROOT),
        b'{"t": {"de": "a", "en": "b"}}\n' * 2,
    ),
    "labelled": (lambda p: read_labelled(LabelledTabSeparated(path=p), ROOT), b"a\tb\nc\td\n"),
    "questions": (
        lambda p: read_questions(QuestionLines(path=p), ROOT),
        b'{"context": "abc", "question": "b?", "answers": [{"text": "b", "answer_start": 1}]}\n',
    ),
    "squad": (
        lambda p: read_questions(SquadFile(path=p), ROOT),
        b'{"data": [{"title": "t", "paragraphs": [{"context": "abc", "qas": [{"id": "1", '
        b'"question": "b?", "answers": [{"text": "b", "answer_start": 1}]}]}]}]}',
    ),
    "dialogues": (
        lambda p: read_dialogues(DialoguesConfig(path=p), ROOT, ("user", "assistant")),
        b'{"turns": ["a", {"role": "assistant", "content": "b"}]}\n',
    ),
    "interactions": (
        lambda p: [read_histories(InteractionsConfig(path=p), ROOT)],
        b'user,item,time\nann,"x",1\nbob,y,2020-01-01T00:00:00Z\n',
    ),
    "documents": (lambda p: read_documents(TextFiles(path=p), ROOT), b"a\n\nb\n"),
    "image table": (lambda p: read_images(ImageTable(path=p), ROOT), b"a.png\tcat\n"),
}


def outcome(read: Callable[[], Any]) -> Any:
    """Result of reading; an error other than a TransduceError of one line is raised."""
    try:
        return read()
    except TransduceError as error:
        assert "\n" not in str(error)
        return error


class Entrance(NamedTuple):
    """read: reader of untrusted files.  seeds: good files.  suffix: of their names."""

    read: Reader
    seeds: tuple[bytes, ...]
    suffix: str = ""

    def enter(self, content: bytes, directory: Path) -> None:
        """Read such a file; only one line of ours may come of it."""
        path = directory / f"file{self.suffix}"
        path.write_bytes(content)
        outcome(lambda: list(self.read(path)))


def entrances(directory: Path) -> dict[str, Entrance]:
    """By name; those that need an extra only where it is there.

    directory: where files may be written.
    """
    result = {name: Entrance(read, (good,)) for name, (read, good) in READERS.items()}
    lines = ["the cat sat on the mat", "a dog ate the cat's fish"] * 5
    lower = SubwordConfig(kind="unigram", size=290, normalization="nfkc", lowercase=True)
    configs = (SubwordConfig(size=290), lower, CharactersConfig(), SymbolsConfig())
    tokenizers = tuple(train_tokenizer(config, lines).to_bytes() for config in configs)
    recipe = (
        b'task = "translation"\n[data]\nhold_out = 0.1\ntrain = { kind = "tsv", path = "a" }\n'
        b'[text]\nsource = { kind = "bpe", size = 300 }\n[model]\nd_model = 16\n'
        b"encoder = { n_layers = 1, n_heads = 2 }\n"
    )
    result |= {
        "gzip": Entrance(read_lines, (gzip.compress(b"one\ntwo\n"),), ".gz"),
        "idx": Entrance(lambda p: [read_idx(p), *_images(p)], (IDX, gzip.compress(IDX))),
        "recipe": Entrance(
            lambda p: [parse_recipe(load_toml(p), "recipe")], (recipe, b"a.b = 1e9\n[[c]]"), ".toml"
        ),
        "tokenizer": Entrance(lambda p: [load_tokenizer(p).encode("the cat")], tokenizers),
        "links": Entrance(_links, (b"0-0 1-2", b"1?3 S P")),
        "safetensors": Entrance(
            lambda p: [read_weights_header(p), read_tensors(p)], _weights(directory)
        ),
        "plain weights": Entrance(lambda p: [read_plain_weights(p)], _weights(directory)),
        "zip": Entrance(lambda p: read_images(ImageFolder(path=p), ROOT), (_archive(),), ".zip"),
    }
    with contextlib.suppress(ImportError):
        result["parquet"] = Entrance(
            lambda p: [*read_pairs(Parquet(path=p), ROOT)], (_parquet(),), ".parquet"
        )
        result["parquet images"] = Entrance(
            lambda p: read_images(ParquetImages(path=p), ROOT), (_parquet(),), ".parquet"
        )
    with contextlib.suppress(ImportError):
        result["picture"] = Entrance(lambda p: [read_image(p, 3)], _pictures())
    return result


IDX = struct.pack(">2xBBIII", 8, 3, 2, 2, 2) + bytes(range(8))


def _links(path: Path) -> Iterable[Any]:
    return [parse_gold(line, "line 1") for line in read_lines(path)]


def _images(path: Path) -> Iterable[Any]:
    return read_images(IdxFiles(images=path, labels=path), ROOT)


def _archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cat/../../../a.png", b"x" * 50)
        archive.writestr("dog/b.png", b"y" * 50)
    return file.getvalue()


def _parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    rows = [{"source": "a", "target": "b", "image": b"x", "label": 1}] * 3
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


def _pictures() -> tuple[bytes, ...]:
    import numpy as np
    from PIL import Image

    result = []
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"):
        file = io.BytesIO()
        Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(file, kind)
        result.append(file.getvalue())
    return tuple(result)


def _weights(directory: Path) -> tuple[bytes, ...]:
    tensors = {"a": torch.ones(2, 3), "b": torch.zeros(1, dtype=torch.int64)}
    write_tensors(directory / "plain", tensors, {"transduce_format": "1"})
    write_weights(directory / "summed", tensors)
    return (directory / "plain").read_bytes(), (directory / "summed").read_bytes()
