"""Whatever bytes a file holds, whoever reads it gets its content or one line of `DataError`.

Every entrance is given bytes at random, and good files with some bytes changed.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers.hostile import READERS, ROOT, entrances, outcome
from transduce.cli.inputs import LineBatch, records_of
from transduce.data.interactions import InteractionsConfig, read_histories
from transduce.data.pairs import JsonLines, read_pairs
from transduce.errors import TransduceError
from transduce.recipes import parse_recipe
from transduce.text import (
    CharactersConfig,
    SubwordConfig,
    SymbolsConfig,
    Tokenizer,
    load_tokenizer,
    train_tokenizer,
)
from transduce.text.alignment import parse_gold
from transduce.vision.data import ImageFolder, read_images
from transduce.vision.images import read_idx

few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def changed(draw: st.DrawFn, good: bytes) -> bytes:
    """The good bytes with a few pieces replaced, or cut off, or others altogether."""
    content = bytearray(good)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(content)))
        content[place : place + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(content[: draw(st.integers(0, len(content)))]) if draw(st.booleans()) else content


with tempfile.TemporaryDirectory() as directory:
    ENTRANCES = entrances(Path(directory))
SEEDS = [(name, i) for name, entrance in ENTRANCES.items() for i in range(len(entrance.seeds))]


@few
@given(data=st.data())
@pytest.mark.parametrize(("name", "number"), SEEDS)
def test_any_bytes(name: str, number: int, tmp_path: Path, data: st.DataObject) -> None:
    good = ENTRANCES[name].seeds[number]
    content = data.draw(st.one_of(st.binary(max_size=200), changed(good)))
    ENTRANCES[name].enter(content, tmp_path)
    if name in READERS:
        ENTRANCES[name]._replace(suffix=".gz").enter(gzip.compress(content, 1), tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("idx", struct.pack(">2xBBIII", 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)),
        ("idx", b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"\0"),
        ("idx", b"\0\0\x08\x02" + b"\0\0\0\0" + b"\xff\xff\xff\xff"),
        ("idx", b"\0\0\x08\x03" + b"\0\0\0\0" + b"\xff\xff\xff\xff" * 2),
        ("recipe", b"a = " + b"[" * 50_000),
        ("recipe", b"task = 'translation'\nseed = " + b"9" * 5000),
        pytest.param("recipe", b"a." * 20_000 + b"a = 1", marks=pytest.mark.system),
    ],
    ids=range(7),
)
def test_extremes(name: str, content: bytes, tmp_path: Path) -> None:
    ENTRANCES[name].enter(content, tmp_path)


class TestReaders:
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


class TestImages:
    def test_an_idx_file_that_unpacks_to_more_than_the_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "a.gz"
        shape = 2**11 + 1, 2**10, 2**10
        with gzip.open(path, "wb", 1) as file:
            file.write(b"\0\0\x08\x03" + struct.pack(">III", *shape) + bytes(2**20))
        message = str(outcome(lambda: read_idx(path)))
        assert re.search(r"unpacks to 2049 MiB, .* TRANSDUCE_LIMIT_IDX above 2048 ", message)

    def test_folders_that_link_to_each_other_end(self, tmp_path: Path) -> None:
        """Each link followed once leads to all of them again: two to the power of forty ways."""
        for name in ("cat", "dog"):
            (tmp_path / "data" / name).mkdir(parents=True)
            (tmp_path / "data" / name / f"{name}.png").write_bytes(b"x")
        for one, other in (("cat", "dog"), ("dog", "cat"), ("cat", "cat"), ("dog", "dog")):
            (tmp_path / "data" / one / f"to-{other}").symlink_to(tmp_path / "data" / other)
            (tmp_path / "data" / one / f"up-{other}").symlink_to(tmp_path / "data")
        result = list(read_images(ImageFolder(path=tmp_path / "data"), ROOT))
        assert {image.image.name for image in result} == {"cat.png", "dog.png"}
        assert len(result) <= 4


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

    @pytest.mark.parametrize("kind", ["hugging-face", "marian"])
    def test_a_numbering_beyond_all_memory(self, tmp_path: Path, kind: str) -> None:
        content = {"kind": kind, "numbering": {"size": 10**12}, "pieces": {}, "model": ""}
        if kind == "hugging-face":
            content = {"kind": kind, "numbering": {"size": 10**12}, "tokenizer": {}}
        (tmp_path / "a.json").write_text(json.dumps(content))
        assert "numbering.size" in str(outcome(lambda: load_tokenizer(tmp_path / "a.json")))


class TestRecipes:
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
