"""Whatever bytes a file holds, whoever reads it gets its content or one line of `DataError`.

Every reader is given bytes at random, and good files with some bytes changed.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers.hostile import READERS, ROOT, outcome
from transduce.cli.lines import LineBatch
from transduce.cli.records import records_of
from transduce.data.images import IdxFiles, ImageFolder, ParquetImages, read_images
from transduce.data.interactions import InteractionsConfig, read_histories
from transduce.data.lines import read_lines
from transduce.data.pairs import JsonLines, Parquet, read_pairs
from transduce.errors import TransduceError
from transduce.image.read import read_idx, read_image
from transduce.recipes import parse_recipe
from transduce.settings.sections import load_toml
from transduce.text import (
    CharactersConfig,
    SubwordConfig,
    SymbolsConfig,
    Tokenizer,
    load_tokenizer,
    train_tokenizer,
)
from transduce.text.pharaoh import parse_gold

few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def changed(draw: st.DrawFn, good: bytes, within: int = 4096) -> bytes:
    """The good bytes with a few pieces replaced, or cut off, or others altogether."""
    content = bytearray(good)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, min(len(content), within)))
        content[place : place + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(content[: draw(st.integers(0, len(content)))]) if draw(st.booleans()) else content


class TestReaders:
    @few
    @given(data=st.data())
    @pytest.mark.parametrize("name", READERS)
    def test_any_bytes(self, name: str, tmp_path: Path, data: st.DataObject) -> None:
        read, good = READERS[name]
        content = data.draw(st.one_of(st.binary(max_size=200), changed(good)))
        for path in (tmp_path / "plain", tmp_path / "packed.gz"):
            path.write_bytes(gzip.compress(content, 1) if path.suffix else content)
            outcome(lambda path=path: list(read(path)))

    @few
    @given(content=changed(gzip.compress(b"one\ntwo\n" * 50)))
    def test_broken_gzip(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "a.gz").write_bytes(content)
        outcome(lambda: list(read_lines(tmp_path / "a.gz")))

    @few
    @given(text=st.text(max_size=60))
    @example('{"source": "' + "\\ud800" + '"}')
    @example('{"source": 1e999, "x": ' + "[" * 9999)
    @example('{"source": ' + "9" * 5000 + "}")
    def test_json_records_of_the_command_line(self, text: str) -> None:
        records = records_of(LineBatch(0, text.split("\n"), len(text)), ("source",))
        assert len(records.items) == len(text.split("\n"))

    @few
    @given(line=st.text(max_size=60))
    @example("9" * 5000 + "-1")
    def test_links(self, line: str) -> None:
        outcome(lambda: parse_gold(line, "a: line 1"))

    def test_numbers_too_long_to_read(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"source": ' + "9" * 5000 + ', "target": "b"}\n')
        config = JsonLines(path=path)
        assert isinstance(outcome(lambda: list(read_pairs(config, ROOT))), TransduceError)
        path.write_text("user,item,time\nann,x," + "9" * 5000 + "\n")
        outcome(lambda: read_histories(InteractionsConfig(path=path), ROOT))


@pytest.fixture(scope="module")
def good_parquet() -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"source": "a", "target": "b", "image": b"x", "label": 1}] * 20
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


class TestParquet:
    @few
    @given(data=st.data())
    def test_any_bytes(self, good_parquet: bytes, tmp_path: Path, data: st.DataObject) -> None:
        path = tmp_path / "a.parquet"
        good = good_parquet
        path.write_bytes(data.draw(st.one_of(st.binary(max_size=50), changed(good, len(good)))))
        outcome(lambda: list(read_pairs(Parquet(path=path), ROOT)))
        outcome(lambda: list(read_images(ParquetImages(path=path), ROOT)))


class TestImages:
    IDX = struct.pack(">2xBBIII", 8, 3, 2, 2, 2) + bytes(range(8))

    @few
    @given(content=st.one_of(st.binary(max_size=60), changed(IDX)))
    @example(struct.pack(">2xBBIII", 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1))
    @example(b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"\0")
    @example(b"\0\0\x08\x02" + b"\0\0\0\0" + b"\xff\xff\xff\xff")
    @example(b"\0\0\x08\x03" + b"\0\0\0\0" + b"\xff\xff\xff\xff" * 2)
    def test_idx(self, tmp_path: Path, content: bytes) -> None:
        for path in (tmp_path / "a", tmp_path / "b.gz"):
            path.write_bytes(gzip.compress(content, 1) if path.suffix else content)
            outcome(lambda path=path: read_idx(path))
            config = IdxFiles(images=path, labels=path)
            outcome(lambda config=config: list(read_images(config, ROOT)))

    def test_an_idx_file_that_unpacks_to_more_than_the_memory(self, tmp_path: Path) -> None:
        """What its header tells is there in full, packed a thousandfold."""
        path = tmp_path / "a.gz"
        shape = 2**11 + 1, 2**10, 2**10
        with gzip.open(path, "wb", 1) as file:
            file.write(b"\0\0\x08\x03" + struct.pack(">III", *shape) + bytes(2**20))
        message = str(outcome(lambda: read_idx(path)))
        assert re.search(r"unpacks to 2049 MiB, .* TRANSDUCE_LIMIT_IDX above 2048 ", message)

    @few
    @given(data=st.data())
    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
    def test_pictures(self, kind: str, data: st.DataObject) -> None:
        image = pytest.importorskip("PIL.Image")
        file = io.BytesIO()
        image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(file, kind)
        content = data.draw(changed(file.getvalue()))
        pixels = outcome(lambda: read_image(content, 3))
        assert isinstance(pixels, TransduceError) or pixels.shape[0] == 3

    @few
    @given(data=st.data())
    def test_zip(self, tmp_path: Path, data: st.DataObject) -> None:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("cat/../../../a.png", b"x" * 500)
            archive.writestr("dog/b.png", b"y" * 500)
        good = file.getvalue()
        (tmp_path / "a.zip").write_bytes(data.draw(changed(good, len(good))))
        outcome(lambda: list(read_images(ImageFolder(path=tmp_path / "a.zip"), ROOT)))

    def test_folders_that_link_to_each_other_end(self, tmp_path: Path) -> None:
        """Each link followed once leads to all of them again: two to the power of forty ways."""
        for name in ("cat", "dog"):
            (tmp_path / "data" / name).mkdir(parents=True)
            (tmp_path / "data" / name / f"{name}.png").write_bytes(b"x")
        for one, other in (("cat", "dog"), ("dog", "cat"), ("cat", "cat"), ("dog", "dog")):
            (tmp_path / "data" / one / f"to-{other}").symlink_to(tmp_path / "data" / other)
            (tmp_path / "data" / one / f"up-{other}").symlink_to(tmp_path / "data")
        found = list(read_images(ImageFolder(path=tmp_path / "data"), ROOT))
        assert {image.image.name for image in found} == {"cat.png", "dog.png"}
        assert len(found) <= 4


TEXT = ["the cat sat on the mat", "a dog ate the cat's fish", "fish and mats, dogs and cats"] * 3
TOKENIZERS = {
    "subwords": lambda: train_tokenizer(SubwordConfig(size=300), TEXT),
    "lower unigram": lambda: train_tokenizer(
        SubwordConfig(kind="unigram", size=300, normalization="nfkc", lowercase=True), TEXT
    ),
    "characters": lambda: train_tokenizer(CharactersConfig(), TEXT),
    "symbols": lambda: train_tokenizer(SymbolsConfig(), TEXT),
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    made: Tokenizer = TOKENIZERS[request.param]()
    return made


ANY_TEXT = st.text(st.characters(), max_size=80)  # lone surrogates, NUL and all


class TestTokenizers:
    @few
    @given(text=ANY_TEXT)
    @example("\0\ud800\udfff\u2028</s><pad>▁▁<0x0A>" + "a" * 3000)
    def test_any_text(self, tokenizer: Tokenizer, text: str) -> None:
        ids = tokenizer.encode(text)
        assert all(0 <= i < tokenizer.size for i in ids)
        assert tokenizer.encode_batch([text, "", text]) == [ids, [], ids]
        tokenizer.decode(ids).encode("utf-8")
        assert len(tokenizer.tokens(ids)) == len(ids)

    @few
    @given(ids=st.lists(st.integers(-5, 2**40), max_size=30))
    def test_any_ids(self, tokenizer: Tokenizer, ids: list[int]) -> None:
        tokenizer.decode(ids).encode("utf-8")

    @few
    @given(data=st.data())
    def test_any_file(self, tokenizer: Tokenizer, tmp_path: Path, data: st.DataObject) -> None:
        path = tmp_path / "tokenizer"
        good = tokenizer.to_bytes()
        path.write_bytes(data.draw(st.one_of(st.binary(max_size=80), changed(good, len(good)))))
        outcome(lambda: load_tokenizer(path))

    @pytest.mark.parametrize("kind", ["hugging-face", "marian"])
    def test_a_numbering_beyond_all_memory(self, tmp_path: Path, kind: str) -> None:
        content = {"kind": kind, "numbering": {"size": 10**12}, "pieces": {}, "model": ""}
        if kind == "hugging-face":
            content = {"kind": kind, "numbering": {"size": 10**12}, "tokenizer": {}}
        (tmp_path / "a.json").write_text(json.dumps(content))
        assert "numbering.size" in str(outcome(lambda: load_tokenizer(tmp_path / "a.json")))


class TestRecipes:
    GOOD = (
        b'task = "translation"\n[data]\nhold_out = 0.1\ntrain = { kind = "tsv", path = "a" }\n'
        b'[text]\nsource = { kind = "bpe", size = 300 }\n[model]\nd_model = 16\n'
        b"encoder = { n_layers = 1, n_heads = 2 }\n"
    )

    @pytest.mark.system
    @few
    @given(content=st.one_of(st.binary(max_size=80), changed(GOOD)))
    @example(b"a = " + b"[" * 50_000)
    @example(b"task = 'translation'\nseed = " + b"9" * 5000)
    @example(b"a." * 20_000 + b"a = 1")
    def test_any_toml(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "recipe.toml"
        path.write_bytes(content)
        outcome(lambda: parse_recipe(load_toml(path), str(path)))

    VALUES = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=6,
    )

    @few
    @given(data=st.data())
    @pytest.mark.parametrize("task", ["translation", "classification", "language-model"])
    def test_any_values(self, task: str, data: st.DataObject) -> None:
        name = st.sampled_from(["data", "text", "model", "training", "decoding", "seed"])
        content = data.draw(st.dictionaries(name, self.VALUES))
        outcome(lambda: parse_recipe({"task": task, **content}, "recipe"))
