"""Tokenizers in files: what is saved is what is loaded, and damage is one line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import sentencepiece

from helpers.subwords import SUBWORDS, TRAINED, one_line
from transduce.errors import RunError
from transduce.text import (
    BOS,
    EOS,
    PAD,
    UNK,
    CharactersConfig,
    SubwordConfig,
    SubwordTokenizer,
    SymbolsConfig,
    Tokenizer,
    load_tokenizer,
    train_tokenizer,
)


@pytest.fixture(params=SUBWORDS)
def subword(request: pytest.FixtureRequest) -> SubwordTokenizer:
    return TRAINED[request.param]


def tokenizers() -> list[Tokenizer]:
    odd = ["HH AH\x85x L\n", 'a "b" \u2028 \\ é 中 \ud800']
    rules = {"normalization": "nfkc", "lowercase": True}
    configs = [
        *(SubwordConfig(kind=kind, size=300, **rules) for kind in SUBWORDS),
        CharactersConfig(**rules),
        CharactersConfig(),
        SymbolsConfig(),
    ]
    lines = [*odd, *("tran for mer at ten tion ly ing",) * 20]
    return [*TRAINED.values(), *(train_tokenizer(config, lines) for config in configs)]


@pytest.mark.filterwarnings("error")
def test_save_and_load_change_nothing(tmp_path: Path) -> None:
    text = "HH AH L Ｔran ﬁ É \u2028 zzz 中"
    for tokenizer in tokenizers():
        path = tmp_path / f"source{tokenizer.suffix}"
        tokenizer.save(path)
        tokenizer.save(path)
        loaded = load_tokenizer(path)
        assert type(loaded) is type(tokenizer)
        assert loaded.size == tokenizer.size
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.normalize(text) == tokenizer.normalize(text)
        assert loaded.normalizer == tokenizer.normalizer
        assert loaded.to_bytes() == tokenizer.to_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"source.model", "source.json"}


def test_plain_sentencepiece_reads_the_file(subword: SubwordTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "source.model"
    subword.save(path)
    plain = sentencepiece.SentencePieceProcessor(model_file=str(path))
    text = "formerly  attention 🙂 日本"
    assert plain.get_piece_size() == subword.size
    assert plain.encode(text, out_type=int) == subword.encode(text)
    assert plain.decode(subword.encode(text)) == text
    ids = (plain.pad_id(), plain.unk_id(), plain.bos_id(), plain.eos_id())
    assert ids == (PAD, UNK, BOS, EOS)


def test_listed_file_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "target.json"
    train_tokenizer(SymbolsConfig(lowercase=True), ["ü Ü 中"]).save(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert '  "ü",' in lines and '  "中"' in lines
    assert json.loads("\n".join(lines)) == {
        "kind": "symbols",
        "normalization": "none",
        "lowercase": True,
        "symbols": ["ü", "中"],
    }


def test_saving_where_no_file_can_be(tmp_path: Path, subword: SubwordTokenizer) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "directory.model").mkdir()
    for name in ("missing/a.model", "file/a.model", "directory.model"):
        with pytest.raises(RunError) as error:
            subword.save(tmp_path / name)
        assert str(tmp_path / name) in one_line(error)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "directory.model"}


def test_failing_to_save_keeps_the_old_file(
    tmp_path: Path, subword: SubwordTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.model"
    path.write_bytes(b"old")

    def disk_full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(RunError, match="No space left"):
        subword.save(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def refuse(path: Path) -> str:
    with pytest.raises(RunError) as error:
        load_tokenizer(path)
    message = one_line(error)
    assert str(path) in message and len(message) < 400 + len(str(path))
    return message


def test_a_damaged_model_is_refused(
    subword: SubwordTokenizer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "source.model"
    data = subword.to_bytes()
    generator = random.Random(0)
    for _ in range(60):
        path.write_bytes(data[: generator.randrange(len(data))])
        refuse(path)
        place = generator.randrange(len(data) - 100)
        changed = bytes([data[place] ^ (1 << generator.randrange(8))])
        path.write_bytes(data[:place] + changed + data[place + 1 :])
        refuse(path)
    path.write_bytes(data + b"\n")
    refuse(path)
    assert capfd.readouterr() == ("", "")


def test_another_programs_model_is_refused(tmp_path: Path, subword: SubwordTokenizer) -> None:
    path = tmp_path / "foreign.model"
    path.write_bytes(subword.to_bytes().rpartition(b"\x92\xc7\x0e")[0])
    assert "not a tokenizer that transduce saved" in refuse(path)
    path.write_bytes(SubwordTokenizer.to_bytes(subword).replace(b'"kind": "', b'"kind": "x'))
    refuse(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ("{", "damaged JSON"),
        ('{"kind": "characters", "symbols": ["a"', "damaged JSON"),
        ("{}", "kind is missing"),
        ('{"kind": "words", "symbols": []}', "kind"),
        ('{"kind": "symbols", "symbols": ["a", 3]}', "symbols"),
        ('{"kind": "symbols", "symbols": "abc"}', "symbols"),
        ('{"kind": "symbols", "symbols": ["a", "a"]}', "'a' appears twice"),
        ('{"kind": "symbols", "symbols": ["a b"]}', "'a b' is not allowed"),
        ('{"kind": "characters", "symbols": ["ab"]}', "'ab' is not allowed"),
        ('{"kind": "characters", "symbols": [""]}', "'' is not allowed"),
        ('{"kind": "characters", "symbols": [], "extra": 1}', "extra is not a setting"),
        ('{"kind": "characters", "symbols": ["\\ud800"]}', "is not allowed"),
        ('{"a":' * 100_000, "damaged JSON"),
    ],
    ids=range(15),
)
def test_a_damaged_list_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "target.json"
    path.write_text(content, encoding="utf-8")
    assert says in refuse(path)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    refuse(tmp_path / "missing.model")
    refuse(tmp_path)
    path = tmp_path / "target.json"
    path.write_bytes(b'{"kind": "characters", "symbols": ["\xff"]}')
    refuse(path)
