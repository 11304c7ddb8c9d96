"""Files that the recipes read, from a data set as its authors publish it.

    TRANSDUCE_DATA=DIRECTORY python recipes/prepare.py NAME FOLDER

FOLDER holds the download, cloned or unpacked; DIRECTORY/NAME is written, whole or not at all.
docs/data.md has the addresses.  Splits of our own come from a hash of the text: none
has a sentence of another, and the same download gives the same files.
"""

from __future__ import annotations

import csv
import gettext
import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Sequence[str]
BOOK = Path(__file__).parent.parent / "docs" / "book"
SPLITS = "train", "dev", "test"


def found(folder: Path, *names: str) -> Path:
    """The first file below the folder whose path ends in one of the names."""
    for name in names:
        paths = sorted(path for path in folder.rglob(Path(name).name) if path.match(name))
        if paths:
            return paths[0]
    raise SystemExit(f"{folder}: no file {' or '.join(names)} in it")


def lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a text file, compressed or not."""
    if path.suffix == ".gz":
        text = gzip.decompress(path.read_bytes()).decode(encoding)
    else:
        text = path.read_text(encoding=encoding)
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def write(path: Path, rows: Iterable[str]) -> None:
    """Write lines, compressed if the name says so, without a date inside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(row + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def table(path: Path, rows: Iterable[Row]) -> None:
    """Write rows of columns, blanks in place of tabs and line ends."""
    write(path, ("\t".join(" ".join(cell.split()) for cell in row) for row in rows))


def records(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as lines of JSON."""
    write(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def share(text: str) -> float:
    """A number from 0 to 1 for a text, always the same."""
    return int(hashlib.sha256(text.casefold().encode()).hexdigest()[:12], 16) / 16**12


def splits(rows: Iterable[Row], each: float) -> dict[str, list[Row]]:
    """Rows split by their first text, `each` of them for dev and test; no text in two splits."""
    parts: dict[str, list[Row]] = {name: [] for name in SPLITS}
    for row in dict.fromkeys(map(tuple, rows)):
        place = share(row[0])
        parts["test" if place < each else "dev" if place < 2 * each else "train"].append(row)
    seen: set[str] = set()
    for name in reversed(SPLITS):
        parts[name] = [row for row in parts[name] if not seen.intersection(row)]
        seen.update(text for row in parts[name] for text in row)
    return parts


def copies(*names: str) -> Callable[[Path, Path], None]:
    """Copy files as they are; compress a text where `name.gz` is wanted and `name` is there."""

    def prepare(folder: Path, to: Path) -> None:
        for name in names:
            path = found(folder, name, name.removesuffix(".gz"))
            to.mkdir(parents=True, exist_ok=True)
            if path.suffix == Path(name).suffix:
                shutil.copyfile(path, to / name)
            else:
                (to / name).write_bytes(gzip.compress(path.read_bytes(), mtime=0))

    return prepare


def parallel(to: Path, parts: Mapping[str, Sequence[Row]], languages: tuple[str, str]) -> None:
    """Two parallel files for each part."""
    for name, rows in parts.items():
        for column, language in enumerate(languages):
            write(to / f"{name}.{language}.gz", (row[column] for row in rows))


def pairs(to: Path, rows: Iterable[Row], languages: tuple[str, str], each: float) -> None:
    """Two parallel files for each split."""
    parallel(to, splits(rows, each), languages)


def tatoeba(file: str, language: str, each: float) -> Callable[[Path, Path], None]:
    """A file of manythings.org/anki: English, another language, attribution."""

    def prepare(folder: Path, to: Path) -> None:
        rows = (line.split("\t") for line in lines(found(folder, file)))
        pairs(to, ((row[1], row[0]) for row in rows if len(row) > 1), (language, "en"), each)

    return prepare


def digits(folder: Path, to: Path) -> None:
    """Recordings DIGIT_SPEAKER_NUMBER.wav: numbers 0 to 4 to test, from 10 on to train."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    rows = []
    to.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(to / "recordings.zip", "w") as archive:
        for path in sorted(found(folder, "recordings").glob("[0-9]_*_*.wav")):
            digit, speaker, number = path.stem.split("_")
            if 5 <= int(number) < 10:
                continue
            archive.write(path, path.name)
            row = {"id": path.stem, "audio": f"recordings.zip:{path.name}", "speaker": speaker}
            row |= {"split": "test" if int(number) < 5 else "train", "text": words[int(digit)]}
            rows.append(row)
    records(to / "manifest.jsonl", rows)


def prompts(folder: Path, to: Path) -> None:
    """Texts in core-sounds-LANGUAGE.txt, "name: text", and recordings sounds/LANGUAGE_…/name.wav.

    A prompt is held out in all languages; its text, in any of them, leaves training.
    """
    texts = {language: spoken(folder, language) for language in ("en", "es", "fr", "it", "ru")}
    names = sorted({name for each in texts.values() for name in each})
    of = {name: {one: each[name] for one, each in texts.items() if name in each} for name in names}
    held_out = {name for name in names if share(name) < 0.1}
    heard = {bare(text).casefold() for name in held_out for text in of[name].values()}
    rows = []
    to.mkdir(parents=True, exist_ok=True)
    for language in texts:
        with zipfile.ZipFile(to / f"{language}.zip", "w") as archive:
            for path in sorted(folder.rglob(f"sounds/{language}_*/**/*.wav")):
                name = path.as_posix().split(f"sounds/{language}_")[1].partition("/")[2][:-4]
                said = of.get(name, {})
                again = any(bare(text).casefold() in heard for text in said.values())
                if language not in said or (again and name not in held_out):
                    continue
                archive.write(path, f"{name}.wav")
                row = {"audio": f"{language}.zip:{name}.wav", "lang": language, "prompt": name}
                row |= {"split": "dev" if name in held_out else "train", "text": said[language]}
                row |= {"translations": {k: v for k, v in said.items() if k != language}}
                rows.append(row | {"annotated": bool(set("[(") & set(said[language]))})
    records(to / "manifest.jsonl", rows)


def spoken(folder: Path, language: str) -> dict[str, str]:
    """Texts of prompts by name, without beeps and others in brackets alone."""
    path = found(folder, f"core-sounds-{language}.txt.gz", f"core-sounds-{language}.txt")
    rows = (line.partition(": ") for line in lines(path, "utf-8-sig"))
    texts = {name: " ".join(text.split()) for name, _, text in rows if name[:1] != ";"}
    return {k: v for k, v in texts.items() if bare(re.sub(r"^[\[(<].*[>)\]]$|\bbeep\b", "", v))}


def software(language: str) -> Callable[[Path, Path], None]:
    """Compiled gettext catalogues (.mo) with translations, anywhere below the folder."""

    def messages(folder: Path) -> Iterator[Row]:
        for path in sorted(folder.rglob("*.mo")):
            with path.open("rb") as file:
                catalogue: dict[Any, str] = vars(gettext.GNUTranslations(file))["_catalog"]
            for key, translated in catalogue.items():
                if isinstance(key, tuple) and key[1] > 0:
                    continue  # a further plural form
                english = key[0] if isinstance(key, tuple) else key
                row = [" ".join(text.split("\4")[-1].split()) for text in (english, translated)]
                if all(0 < len(text) <= 300 and "<" not in text for text in row):
                    yield row

    return lambda folder, to: pairs(to, messages(folder), ("en", language), 0.008)


REMARK = re.compile(
    r"variant of|CL:|abbr\.|see |used in|[\[\]|]|[\u4e00-\u9fff]|surname|same as|also written"
    r"|erhua|idiom"
)
WORDS = re.compile(r"[A-Za-z ,.'’?!:;\-]+")
CHINESE = re.compile(r"[\u4e00-\u9fff]{2}")


def chinese_english(folder: Path, to: Path) -> None:
    """Short texts beside those of tatoeba-zh-en: captions, messages in words, words, terms.

    The folder holds tatoeba-zh-en, 3am-zh-en and software-zh-en, prepared, and CC-CEDICT.
    """

    def train(name: str) -> list[Row]:
        paths = (found(folder, f"{name}/train.{language}.gz") for language in ("zh", "en"))
        return list(zip(*map(lines, paths), strict=True))

    captions, messages = train("3am-zh-en"), train("software-zh-en")
    signs = {sign for row in (*train("tatoeba-zh-en"), *captions, *messages) for sign in row[0]}
    dictionary = lines(found(folder, "cedict_1_0_ts_utf-8_mdbg.txt.gz"))
    parts: dict[str, list[Row]] = {
        "captions": [row for row in captions if len(row[0]) <= 60],
        "software": [row for row in messages if in_words(*row)],
        "dictionary": [
            (word, gloss) for word, gloss in glosses(dictionary).items() if signs.issuperset(word)
        ],
        "terms": [row for row in terms() if signs.issuperset(row[0])],
    }
    parallel(to, parts, ("zh", "en"))


def in_words(chinese: str, english: str) -> bool:
    """True for a message of 2 to 14 English words, without placeholders."""
    return (
        2 <= len(chinese) <= 40
        and 2 <= len(english.split()) <= 14
        and WORDS.fullmatch(english) is not None
        and CHINESE.search(chinese) is not None
        and not set("%<>{}_$&\\/").intersection(chinese)
    )


def glosses(dictionary: Iterable[str]) -> dict[str, str]:
    """The first short gloss of each word of 2 to 5 signs in CC-CEDICT, without names."""
    words: dict[str, str] = {}
    for line in dictionary:
        entry = re.match(r"(?!#)\S+ (\S{2,5}) \[([^\]]*)\] /(.*)/$", line)
        if entry is None or entry[2][:1].isupper():
            continue
        for sense in entry[3].split("/"):
            gloss = " ".join(re.sub(r"\([^)]*\)", "", sense).split(";")[0].split())
            if gloss and len(gloss.split()) <= 4 and not REMARK.search(gloss):
                words.setdefault(entry[1], gloss)
                break
    return words


def terms() -> list[Row]:
    """Terms of the book, and what they mean: both sides of its glossary."""
    chinese, english = (
        re.findall(r"^- \*\*(.+?)\*\*[^:：]*[:：] ?(.+)$", file.read_text("utf-8"), re.M)
        for file in (BOOK / "glossary.zh.md", BOOK / "glossary.md")
    )
    return [row for entry in zip(chinese, english, strict=True) for row in zip(*entry, strict=True)]


def cmudict(folder: Path, to: Path) -> None:
    """g014b2b.train and .test of jg2p: word, phones; words of the test set leave training."""
    test = [line.split("\t") for line in lines(found(folder, "g014b2b.test"))]
    held_out = {bare(word) for word, *_ in test}
    train = [line.split("\t") for line in lines(found(folder, "g014b2b.train"))]
    table(
        to / "published_split/train.tsv.gz", (row for row in train if bare(row[0]) not in held_out)
    )
    table(to / "published_split/test.tsv.gz", test)


def bare(word: str) -> str:
    """A word without punctuation."""
    return "".join(filter(str.isalnum, word))


def by_language(
    pattern: str, names: Sequence[str], levels: int = 0
) -> Callable[[Path, Path], None]:
    """One table for each split out of a file for each language, named after it.

    pattern: of the files, with {} for the split's name there.  levels: folders put in front.
    """

    def prepare(folder: Path, to: Path) -> None:
        for name, there in zip(SPLITS, names, strict=True):
            paths = sorted(
                p for p in folder.rglob(pattern.format(there)) if ".covered" not in p.name
            )
            if not paths:
                raise SystemExit(f"{folder}: no file {pattern.format(there)} in it")
            ending = pattern.format(there).lstrip("*")
            table(
                to / f"{name}.tsv.gz",
                (
                    [*path.parent.parts[len(path.parent.parts) - levels :], language, *row]
                    for path in paths
                    for language in [path.name.removesuffix(ending)]
                    for row in (line.split("\t") for line in lines(path))
                ),
            )

    return prepare


def sst2(folder: Path, to: Path) -> None:
    """stsa.binary.train and .dev: label, blank, sentence; sentences of dev leave training."""
    dev = [line.split(" ", 1) for line in lines(found(folder, "stsa.binary.dev"))]
    train = [line.split(" ", 1) for line in lines(found(folder, "stsa.binary.train"))]
    held_out = {sentence for _, sentence in dev}
    table(to / "train.tsv", (row for row in train if row[1] not in held_out))
    table(to / "dev.tsv", dev)


def trec(folder: Path, to: Path) -> None:
    """TREC.train and TREC.test: "KIND:finer question" in Latin-1."""
    for name in ("train", "test"):
        rows = (line.split(" ", 1) for line in lines(found(folder, f"TREC.{name}"), "latin-1"))
        table(to / f"{name}.tsv", ([*kinds.split(":"), question] for kinds, question in rows))


def reviews(name: str) -> Callable[[Path, Path], None]:
    """A table with the columns label and review, split in three."""

    def prepare(folder: Path, to: Path) -> None:
        with found(folder, name).open(encoding="utf-8-sig", newline="") as file:
            rows = [(row["review"].strip(), row["label"]) for row in csv.DictReader(file)]
        kept = {text: label for text, label in rows if text}
        for split, part in splits(((text,) for text in kept), 0.09).items():
            table(to / f"{split}.tsv.gz", ((kept[text], text) for (text,) in part))

    return prepare


def csl(folder: Path, to: Path) -> None:
    """benchmark/cls_ctg: prompt, title, field."""
    for name in SPLITS:
        rows = (line.split("\t") for line in lines(found(folder, f"cls_ctg/{name}.tsv")))
        table(to / f"{name}.tsv.gz", ((row[2], row[1]) for row in rows))


def csl_titles(folder: Path, to: Path) -> None:
    """benchmark/ts: prompt, abstract, title; the authors' dev set trains here."""
    for name, there in (("train_from_dev", "dev"), ("test", "test")):
        rows = (line.split("\t") for line in lines(found(folder, f"ts/{there}.tsv")))
        records(to / f"{name}.jsonl.gz", ({"text": row[1], "title": row[2]} for row in rows))


def sick(folder: Path, to: Path) -> None:
    """SICK_train.txt, SICK_trial.txt and SICK_test_annotated.txt, with names of columns."""
    columns = ("entailment_judgment", "sentence_A", "sentence_B", "relatedness_score")
    for name, there in (("train", "train"), ("dev", "trial"), ("test", "test_annotated")):
        rows = csv.DictReader(
            lines(found(folder, f"SICK_{there}.txt")), delimiter="\t", quoting=csv.QUOTE_NONE
        )
        cells = ([row[column] for column in columns] for row in rows)
        table(to / f"{name}.tsv", ([label.lower(), *rest] for label, *rest in cells))


def ocnli(folder: Path, to: Path) -> None:
    """data/ocnli/train.10k.json and dev.json, a pair a line; without a majority label "-"."""
    for name, there in (("train", "train.10k"), ("dev", "dev")):
        records = map(json.loads, lines(found(folder, f"ocnli/{there}.json", f"{there}.json")))
        columns = ("label", "sentence1", "sentence2", "genre")
        rows = ([str(one[column]) for column in columns] for one in records)
        table(to / f"{name}.tsv.gz", (row for row in rows if row[0] != "-"))


def questions(files: dict[str, str]) -> Callable[[Path, Path], None]:
    """Files in the format of SQuAD, one question a line."""

    def prepare(folder: Path, to: Path) -> None:
        for name, there in files.items():
            data = json.loads(found(folder, there).read_text(encoding="utf-8"))["data"]
            records(to / name, flat(data))

    return prepare


def flat(articles: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each question with its passage."""
    for article in articles:
        for paragraph in article["paragraphs"]:
            shared = {"context": paragraph["context"]}
            shared |= {"title": article["title"]} if "title" in article else {}
            for one in paragraph["qas"]:
                kept = ("id", "question", "answers", "is_impossible")
                yield {**{key: one[key] for key in kept if key in one}, **shared}


def dialogues(folder: Path, to: Path) -> None:
    """Turns between __eou__, a dialogue a line, a file for each language."""

    def read(names: dict[str, str]) -> list[dict[str, list[str]]]:
        columns = {key: lines(found(folder, name)) for key, name in names.items()}
        return [
            dict(zip(columns, (turns(text) for text in texts), strict=True))
            for texts in zip(*columns.values(), strict=True)
        ]

    def turns(line: str) -> list[str]:
        parts = line.split("\t")[0].split("__eou__")
        return [part.strip() for part in parts if part.strip()]

    four, three = ("en", "zh", "de", "it"), ("en", "zh", "de")
    parts = {n: read({k: f"{k}_{n}_human.txt" for k in four}) for n in ("dev", "test")}
    held_out = {tuple(one["en"]) for part in parts.values() for one in part}
    train = read({k: f"1k_part_data/dialogues_text_{k.title()}.txt" for k in three})
    parts["train_part"] = [one for one in train if tuple(one["en"]) not in held_out]
    for name, part in parts.items():
        records(to / f"{name}.jsonl.gz", part)


def cifar10(folder: Path, to: Path) -> None:
    """train/CLASS/NUMBER.jpg and test/…, each in one archive."""
    to.mkdir(parents=True, exist_ok=True)
    for name in ("train", "test"):
        images = sorted(folder.rglob(f"{name}/*/*.jpg"))
        if not images:
            raise SystemExit(f"{folder}: no images {name}/CLASS/NUMBER.jpg in it")
        with zipfile.ZipFile(to / f"{name}.zip", "w") as archive:
            for path in images:
                archive.write(path, "/".join(path.parts[-3:]))


DATA_SETS: dict[str, Callable[[Path, Path], None]] = {
    "multi30k": copies(
        *(
            f"{split}.{language}.gz"
            for split in ("train", "val", "test_2016_flickr", "test_2017_flickr")
            for language in ("en", "de", "fr")
        )
    ),
    "tatoeba-zh-en": tatoeba("cmn.txt", "zh", 0.037),
    "3am-zh-en": copies(
        *(
            f"{split}.{language}.gz"
            for split in ("train", "val", "test")
            for language in ("zh", "en")
        )
    ),
    "tatoeba-de-en": tatoeba("deu.txt", "de", 0.01),
    "tatoeba-fr-en": tatoeba("fra.txt", "fr", 0.007),
    "fsdd": digits,
    "asterisk-prompts": prompts,
    "software-de-en": software("de"),
    "software-fr-en": software("fr"),
    "software-zh-en": software("zh"),
    "chinese-english": chinese_english,
    "cmudict-g2p": cmudict,
    "sigmorphon2020-g2p": by_language("*_{}.tsv", SPLITS),
    "sigmorphon2021-g2p": by_language("*_{}.tsv", SPLITS, levels=1),
    "sigmorphon2023-inflection": by_language("*.{}", ("trn", "dev", "tst")),
    "sst2": sst2,
    "trec-questions": trec,
    "chnsenticorp-hotel": reviews("ChnSentiCorp_htl_all.csv"),
    "waimai-10k": reviews("waimai_10k.csv"),
    "csl-category": csl,
    "csl-title": csl_titles,
    "scitldr-a": copies(*(f"{name}.jsonl.gz" for name in SPLITS)),
    "sick": sick,
    "ocnli": ocnli,
    "squad-dev": questions(
        {"squad1.1-dev.jsonl.gz": "dev-v1.1.json", "squad2.0-dev.jsonl.gz": "dev-v2.0.json"}
    ),
    "xquad": copies("xquad.es.json.gz", "xquad.ru.json.gz"),
    "cmrc2018-drcd": questions(
        {
            "cmrc2018_trial.jsonl.gz": "squad-style-data/cmrc2018_trial.json",
            "cmrc2018_dev.jsonl.gz": "squad-style-data/cmrc2018_dev.json",
            "drcd_dev.jsonl.gz": "DRCD_dev.json",
            "drcd_test.jsonl.gz": "DRCD_test.json",
        }
    ),
    "wikitext-2-eval": copies("valid.txt.gz", "test.txt.gz"),
    "tinyshakespeare": copies("input.txt.gz"),
    "xdailydialog": dialogues,
    "ml-latest-small": copies("ratings.csv.gz"),
    "mnist": copies(
        *(f"{s}-{k}-ubyte.gz" for s in ("train", "t10k") for k in ("images-idx3", "labels-idx1"))
    ),
    "cifar10-jpeg": cifar10,
}


def main(arguments: Sequence[str]) -> None:
    """Prepare the named data set."""
    if len(arguments) != 2 or arguments[0] not in DATA_SETS:
        raise SystemExit(f"usage: prepare.py NAME FOLDER; names: {', '.join(DATA_SETS)}")
    if not os.environ.get("TRANSDUCE_DATA"):
        raise SystemExit("TRANSDUCE_DATA is not set: the directory to write to")
    name, folder = arguments[0], Path(arguments[1])
    target = Path(os.environ["TRANSDUCE_DATA"], name)
    if target.exists():
        raise SystemExit(f"{target} is there already; remove it first")
    part = target.with_name(f"{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        DATA_SETS[name](folder, part)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
