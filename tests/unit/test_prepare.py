"""recipes/prepare.py: small downloads in the authors' formats become what the recipes read."""

import gzip
import json
import re
import struct
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
MADE_BY_COMMANDS = {"medium", "shapes", "stories"}  # by a command in the head of their recipes


def prepare(name: str, folder: Path, to: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "recipes" / "prepare.py"), name, str(folder)],
        env={"TRANSDUCE_DATA": str(to)},
        capture_output=True,
        text=True,
        check=False,
    )


def prepared(name: str, files: dict[str, str | bytes], place: Path) -> Path:
    for path, content in files.items():
        file = place / "download" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    done = prepare(name, place / "download", place)
    assert done.returncode == 0, done.stderr
    return place / name


def read(path: Path) -> list[str]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return text.decode().splitlines()


@pytest.mark.system
def test_tatoeba_is_split_without_a_sentence_in_two(tmp_path: Path) -> None:
    rows = [f"Sentence {n}.\t句子{n // 2}。\tCC-BY 2.0 #{n}" for n in range(2000)]
    made = prepared("tatoeba-zh-en", {"cmn.txt": "\n".join(rows) + "\n"}, tmp_path)
    parts = {
        split: list(zip(*(read(made / f"{split}.{k}.gz") for k in ("zh", "en")), strict=True))
        for split in ("train", "dev", "test")
    }
    assert len(parts["train"]) > 1600
    assert min(len(parts["dev"]), len(parts["test"])) > 30
    texts = {split: {text for row in rows for text in row} for split, rows in parts.items()}
    assert not texts["train"] & texts["dev"]
    assert not texts["train"] & texts["test"]
    assert not texts["dev"] & texts["test"]
    zh, en = parts["train"][0]
    assert zh.startswith("句子")
    assert en.startswith("Sentence")


def catalogue(pairs: dict[str, str]) -> bytes:
    """A compiled gettext catalogue."""
    pairs = {"": "Content-Type: text/plain; charset=UTF-8\n", **pairs}
    texts = [[text.encode() for text in pair] for pair in sorted(pairs.items())]
    n, at = len(texts), 28 + 16 * len(texts)
    tables: list[bytes] = []
    data = b""
    for column in (0, 1):
        for row in texts:
            tables.append(struct.pack("<II", len(row[column]), at + len(data)))
            data += row[column] + b"\0"
    head = struct.pack("<IIIIIII", 0x950412DE, 0, n, 28, 28 + 8 * n, 0, 28)
    return head + b"".join(tables) + data


@pytest.mark.system
def test_software_messages_are_read_from_catalogues(tmp_path: Path) -> None:
    messages = {"Open": "Öffnen", "menu\4Close": "Schließen", "<b>x</b>": "<b>y</b>"}
    made = prepared("software-de-en", {"a.mo": catalogue(messages)}, tmp_path)
    result = {
        pair
        for split in ("train", "dev", "test")
        for pair in zip(*(read(made / f"{split}.{k}.gz") for k in ("en", "de")), strict=True)
    }
    assert result == {("Open", "Öffnen"), ("Close", "Schließen")}


@pytest.mark.system
def test_one_table_out_of_a_file_for_each_language(tmp_path: Path) -> None:
    names = {f"low/ita_{n}.tsv": "ciao\tt͡ʃ a o\n" for n in ("train", "dev", "test")}
    made = prepared("sigmorphon2021-g2p", names | {"low/ita_test.txt": "ciao\n"}, tmp_path / "a")
    assert read(made / "test.tsv.gz") == ["low\tita\tciao\tt͡ʃ a o"]
    made = prepared("sigmorphon2020-g2p", names, tmp_path / "b")
    assert read(made / "train.tsv.gz") == ["ita\tciao\tt͡ʃ a o"]
    forms = {f"heb_unvoc.{n}": "bo\tV;PST\tba\n" for n in ("trn", "dev", "tst", "covered.dev")}
    made = prepared("sigmorphon2023-inflection", forms, tmp_path / "c")
    assert read(made / "dev.tsv.gz") == ["heb_unvoc\tbo\tV;PST\tba"]


@pytest.mark.system
def test_held_out_words_and_sentences_leave_training(tmp_path: Path) -> None:
    words = {"g014b2b.train": "A\tAH\nIT'S\tIH T S\n", "g014b2b.test": "ITS\tIH T S\n"}
    made = prepared("cmudict-g2p", words, tmp_path) / "published_split"
    assert read(made / "train.tsv.gz") == ["A\tAH"]
    assert read(made / "test.tsv.gz") == ["ITS\tIH T S"]
    message = {"stsa.binary.train": "1 good .\n0 bad .\n", "stsa.binary.dev": "0 bad .\n"}
    made = prepared("sst2", message, tmp_path)
    assert read(made / "train.tsv") == ["1\tgood ."]
    assert read(made / "dev.tsv") == ["0\tbad ."]


@pytest.mark.system
def test_labels(tmp_path: Path) -> None:
    asked = {f"TREC.{n}": "DESC:manner How ? é\n".encode("latin-1") for n in ("train", "test")}
    made = prepared("trec-questions", asked, tmp_path)
    assert read(made / "test.tsv") == ["DESC\tmanner\tHow ? é"]
    titles = {f"cls_ctg/{n}.tsv": "to category\t题目\t工学\n" for n in ("train", "dev", "test")}
    made = prepared("csl-category", titles, tmp_path)
    assert read(made / "dev.tsv.gz") == ["工学\t题目"]
    table = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    table += 'A "b\tc .\td\t3.5\tNEUTRAL\n'
    files = {f"SICK_{n}.txt": table for n in ("train", "trial", "test_annotated")}
    assert read(prepared("sick", files, tmp_path) / "dev.tsv") == ["neutral\tc .\td\t3.5"]
    asked = [{"label": k, "sentence1": "a", "sentence2": "b", "genre": "gov"} for k in ("-", "x")]
    files = {
        f"data/ocnli/{n}.json": "\n".join(map(json.dumps, asked)) for n in ("train.10k", "dev")
    }
    assert read(prepared("ocnli", files, tmp_path) / "train.tsv.gz") == ["x\ta\tb\tgov"]
    table = "label,review\n" + "".join(f'{n % 2},"review {n}, said"\n' for n in range(300))
    made = prepared("waimai-10k", {"waimai_10k.csv": "\ufeff" + table}, tmp_path)
    rows = {n: read(made / f"{n}.tsv.gz") for n in ("train", "dev", "test")}
    assert sum(map(len, rows.values())) == 300
    assert min(map(len, rows.values())) > 5
    assert re.fullmatch(r"[01]\treview \d+, said", rows["train"][0])


@pytest.mark.system
def test_summaries(tmp_path: Path) -> None:
    titles = {f"benchmark/ts/{n}.tsv": f"to title\t{n}。\t题\n" for n in ("dev", "test")}
    (line,) = read(prepared("csl-title", titles, tmp_path) / "train_from_dev.jsonl.gz")
    assert json.loads(line) == {"text": "dev。", "title": "题"}
    made = prepared("scitldr-a", {f"{n}.jsonl": "{}\n" for n in ("train", "dev", "test")}, tmp_path)
    assert read(made / "dev.jsonl.gz") == ["{}"]


@pytest.mark.system
def test_questions(tmp_path: Path) -> None:
    one = {"id": "1", "question": "Who?", "answers": [{"text": "I", "answer_start": 0}]}
    article = {"title": "T", "paragraphs": [{"context": "I did.", "qas": [one]}]}
    files = {f"dev-v{n}.json": json.dumps({"data": [article]}) for n in ("1.1", "2.0")}
    made = prepared("squad-dev", files, tmp_path)
    (line,) = read(made / "squad1.1-dev.jsonl.gz")
    assert json.loads(line) == {**one, "context": "I did.", "title": "T"}


@pytest.mark.system
def test_dialogues(tmp_path: Path) -> None:
    files = {
        f"data/{k}_{n}_human.txt": f"{k} {n}__eou__b .__eou__\t1\t2 1\t0 0\n"
        for k in ("en", "zh", "de", "it")
        for n in ("dev", "test")
    }
    files |= {
        f"data/1k_part_data/dialogues_text_{k.title()}.txt": f"{k} dev __eou__ b .\nc __eou__ d\n"
        for k in ("en", "zh", "de")
    }
    made = prepared("xdailydialog", files, tmp_path)
    assert json.loads(*read(made / "test.jsonl.gz"))["zh"] == ["zh test", "b ."]
    (train,) = read(made / "train_part.jsonl.gz")
    assert json.loads(train) == {"en": ["c", "d"], "zh": ["c", "d"], "de": ["c", "d"]}


@pytest.mark.system
def test_copies_and_archives(tmp_path: Path) -> None:
    made = prepared("ml-latest-small", {"ml-latest-small/ratings.csv": "userId\n"}, tmp_path)
    assert read(made / "ratings.csv.gz") == ["userId"]
    images = {f"{n}/cat/0001.jpg": b"jpg" for n in ("train", "test")}
    made = prepared("cifar10-jpeg", images, tmp_path)
    assert zipfile.ZipFile(made / "test.zip").namelist() == ["test/cat/0001.jpg"]


@pytest.mark.system
def test_digits(tmp_path: Path) -> None:
    files = {f"recordings/7_x_{n}.wav": b"RIFF" for n in (0, 4, 5, 9, 10)}
    made = prepared("fsdd", files, tmp_path)
    rows = [json.loads(line) for line in (made / "manifest.jsonl").read_text().splitlines()]
    assert {(row["id"], row["split"], row["text"]) for row in rows} == {
        ("7_x_0", "test", "seven"),
        ("7_x_4", "test", "seven"),
        ("7_x_10", "train", "seven"),
    }
    assert len(zipfile.ZipFile(made / "recordings.zip").namelist()) == 3


@pytest.mark.system
def test_prompts_are_held_out_in_all_languages_with_their_texts(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for language in ("en", "es", "fr", "it", "ru"):
        texts = [f"digits/{n}: Say {n % 30}, {language}!" for n in range(60)]
        texts += ["beep: beep", "tone: [a tone]", "more: Press 1 (twice)."]
        files[f"core-sounds-{language}.txt"] = "\ufeff; heard\n\n" + "\n".join(texts)
        files |= {f"sounds/{language}_x/{text.split(': ')[0]}.wav": b"RIFF" for text in texts}
    files["core-sounds-fr.txt.gz"] = gzip.compress(str(files.pop("core-sounds-fr.txt")).encode())
    made = prepared("asterisk-prompts", files, tmp_path)
    rows = [json.loads(line) for line in read(made / "manifest.jsonl")]
    parts = {s: [row for row in rows if row["split"] == s] for s in ("train", "dev")}
    assert len(parts["dev"]) >= 10 and len(parts["train"]) >= 100
    for column in ("prompt", "text"):
        assert not {r[column] for r in parts["dev"]} & {r[column] for r in parts["train"]}
    assert {row["prompt"] for row in rows if "Say" not in row["text"]} == {"more"}
    assert {row["prompt"] for row in rows if row["annotated"]} == {"more"}
    for row in rows:
        archive, member = row["audio"].split(":")
        assert archive == row["lang"] + ".zip" and member == row["prompt"] + ".wav"
        assert zipfile.ZipFile(made / archive).read(member) == b"RIFF"
        assert len(row["translations"]) == 4 and row["lang"] not in row["translations"]


@pytest.mark.system
def test_mistakes_are_one_line_and_leave_nothing(tmp_path: Path) -> None:
    done = prepare("sst2", tmp_path, tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path}: no file stsa.binary.dev in it\n"
    assert list(tmp_path.iterdir()) == []
    assert "usage" in prepare("nothing", tmp_path, tmp_path).stderr
    (tmp_path / "sst2").mkdir()
    assert "remove it first" in prepare("sst2", tmp_path, tmp_path).stderr


@pytest.mark.parametrize(
    "recipe", sorted((ROOT / "recipes").glob("*/*.toml")), ids=lambda path: path.stem
)
def test_the_data_of_every_recipe_have_a_row_and_a_command(recipe: Path) -> None:
    root = tomllib.loads(recipe.read_text(encoding="utf-8"))["data"].get("root", "")
    name = root.removeprefix("$TRANSDUCE_DATA/").split("/")[0]
    if not root.startswith("$TRANSDUCE_DATA/") or name in MADE_BY_COMMANDS:
        assert re.search(r"^# .*(made by|SHARED/|commands)", recipe.read_text(), re.MULTILINE)
        return
    row = next((line for line in ROWS.splitlines() if f"`{name}" in line), "")
    assert row, f"docs/data.md has no row for {name}"
    known = (ROOT / "recipes" / "prepare.py").read_text(encoding="utf-8")
    assert f'    "{name}": ' in known
