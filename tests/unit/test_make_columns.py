"""Columns of tables for `transduce make`, chosen by names of languages and by contents."""

import random
from pathlib import Path

import pytest

from transduce.errors import DataError, TransduceError
from transduce.making import data
from transduce.making.collect import Collector
from transduce.making.columns import SOURCE_NAMES, columns_of, kind_of_column
from transduce.making.data import prepare, read_prepared_split
from transduce.text.encodings import likely_encoding
from transduce.text.languages import canonical, language_of

CHANCE = random.Random(3)
WORDS = ["house", "tree", "water", "friend", "morning", "book", "door", "window", "garden"]
SIDES = [
    (" ".join(row), " ".join(word[::-1] for word in row) + f" {number % 7}")
    for number in range(200)
    for row in [CHANCE.choices(WORDS, k=CHANCE.randint(2, 9))]
]
Row = tuple[str, ...]


def beside(*columns: list[str], order: str = "cst") -> list[Row]:
    """Rows of columns "c" beside the sides "s" and "t"."""
    rest = list(zip(*columns, strict=True))
    parts = [{"c": rest[n], "s": (s,), "t": (t,)} for n, (s, t) in enumerate(SIDES)]
    return [tuple(cell for letter in order for cell in row[letter]) for row in parts]


@pytest.mark.parametrize(
    "column",
    [
        [str(n) for n in range(200)],
        [f"msg.{n * 7919:06x}" for n in range(200)],
        [f"2024-01-{1 + n % 28:02}" for n in range(200)],
        [f"{CHANCE.random():.4f}" for _ in range(200)],
        [("news", "talk", "web")[n % 3] for n in range(200)],
        ["" for _ in range(200)],
        [f"https://example.org/{n}" for n in range(200)],
        [f"saveButton{n}" for n in range(200)],
        [("checked with a friend, see there", "")[n % 3 > 0] for n in range(200)],
    ],
    ids=["number", "key", "date", "score", "category", "blank", "address", "camel", "comment"],
)
@pytest.mark.parametrize("order", ["cst", "sct", "stc"])
@pytest.mark.parametrize("header", [None, "French", "source"])
def test_the_sides_are_found_beside_any_column(
    column: list[str], order: str, header: str | None
) -> None:
    rows = beside(column, order=order)
    target = "target" if header == "source" else "English"
    names = {"c": "whatever", "s": header or "", "t": target}
    every = [tuple(names[letter] for letter in order), *rows] if header else rows
    columns = columns_of([list(row) for row in every], "t")
    assert columns[:2] == (order.index("s"), order.index("t"))
    assert columns.header == (header is not None)
    assert columns.languages == (("fr", "en") if header == "French" else ("", ""))
    assert f"column {order.index('s') + 1}" in columns.named and "not read" in columns.named


@pytest.mark.parametrize(
    "rows",
    [
        [(f"{n}", s) for n, (s, _) in enumerate(SIDES)],
        [(f"msg.{n:05x}", s) for n, (s, _) in enumerate(SIDES)],
        [("Key", "French"), *((f"msg.{n:05x}", s) for n, (s, _) in enumerate(SIDES))],
        [(f"0.{n:03}", f"{n / 7:.2f}") for n in range(200)],
        [(s, f"0.{n:03}", f"{n / 7:.2f}") for n, (s, _) in enumerate(SIDES)],
        [(s,) for s, _ in SIDES],
    ],
    ids=["numbers", "keys", "named keys", "scores", "text and scores", "one column"],
)
def test_tables_without_two_sides_are_refused_with_their_kinds(rows: list[Row]) -> None:
    with pytest.raises(DataError, match=r"no two columns of texts.*column 1.*: .*name them"):
        columns_of([list(row) for row in rows], "t")


def test_numbers_that_are_spelt_out_are_a_side() -> None:
    digits = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    rows = [[str(n), " ".join(digits[int(c)] for c in str(n))] for n in range(300)]
    assert columns_of(rows, "t")[:2] == (0, 1)


def test_pinyin_with_tones_is_no_key() -> None:
    rows = [
        ["".join(chr(0x4E00 + CHANCE.randrange(900)) for _ in range(n)), "hao3zi4"[:4] * n]
        for n in CHANCE.choices(range(1, 6), k=200)
    ]
    assert columns_of(rows, "t")[:2] == (0, 1)


def test_a_header_of_reviews_is_no_text() -> None:
    rows = [
        ["review", "sentiment"],
        *([s, ("bad", "good")[n % 2]] for n, (s, _) in enumerate(SIDES)),
    ]
    assert columns_of(rows, "t")[:4] == (0, 1, (), 1)


def test_the_target_language_chooses_its_column() -> None:
    rows = [["de", "en", "fr"], *([s, t, t.upper()] for s, t in SIDES)]
    assert columns_of(rows, "t", "fr")[:2] == (0, 2)
    assert columns_of(rows, "t", "de")[:2] == (1, 0)
    rows[0] = ["中文", "印地语\u3000", "\u200fالعربية\u200f"]
    assert columns_of(rows, "t", chosen=("hi", "zh"))[:2] == (1, 0)
    assert columns_of(rows, "t", "ar")[:2] == (0, 2)


SENTENCES = {
    "zh": "今天天气很好 我们去学校看书 老师和学生都喜欢电影 他明天不来吃饭 北京的冬天很冷",
    "ar": "ذهب الولد إلى المدرسة في الصباح وقرأ رسالة جديدة من صديق كبير مع كتاب جميل",
    "en": "the boy went to school this morning and read a new letter from his friend",
    "hi": "लड़का आज सुबह स्कूल गया और उसने दोस्त का नया पत्र पढ़ा घर बड़ा और सुंदर है",
}


def translated(code: str) -> list[list[str]]:
    """Rows of sentences in a language and in English."""
    chance, words, english = random.Random(5), *(SENTENCES[c].split() for c in (code, "en"))
    counts = [1 + n % 6 for n in range(200)]
    return [
        [" ".join(chance.choices(words, k=count)), " ".join(chance.choices(english, k=count))]
        for count in counts
    ]


@pytest.mark.parametrize(
    ("code", "heads"),
    [
        ("zh", ["原文", "译文"]),
        ("zh", ["语句", "对应"]),
        ("ar", ["المصدر", "الترجمة"]),
        ("ar", ["جملة", "مقابل"]),
        ("hi", ["स्रोत", "अनुवाद"]),
        ("hi", ["हिंदी", "अंग्रेजी"]),
    ],
)
def test_headers_of_any_script_are_no_pair(code: str, heads: list[str]) -> None:
    rows = translated(code)
    assert columns_of([heads, *rows], "t")[:4] == (0, 1, (), 1)
    assert not columns_of(rows, "t").header
    swapped = columns_of([[*reversed(row)] for row in [heads, *rows]], "t")
    names = heads[0] in SOURCE_NAMES
    assert swapped.header and swapped[:2] == ((1, 0) if names else (0, 1))


@pytest.mark.parametrize("code", ["zh", "ar", "hi"])
@pytest.mark.parametrize("order", ["pair", "swapped"])
def test_the_target_language_is_detected_without_a_header(
    tmp_path: Path, code: str, order: str
) -> None:
    pytest.importorskip("py3langid")
    rows = translated(code)
    if order == "swapped":
        rows = [[*reversed(row)] for row in rows]
    (tmp_path / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    for language, side in (("en", order == "pair"), (code, order != "pair")):
        collector = Collector([tmp_path / "a.tsv"], language)
        assert list(collector.pairs()) == [(row[not side], row[side]) for row in rows]
        assert set(collector.languages) == {"en", canonical(code)}


def test_the_target_language_is_detected_among_many() -> None:
    pytest.importorskip("py3langid")
    others = zip(translated("zh"), translated("ar"), strict=True)
    rows = [[*row, zh[0], ar[0]] for row, (zh, ar) in zip(translated("hi"), others, strict=True)]
    for language, target in (("en", 1), ("zh-Hans", 2), ("ar", 3)):
        columns = columns_of(rows, "t", language)
        assert columns[:2] == (0, target) and columns.languages == ("hi", language)
    named = [["source", "target"], *([b, a] for a, b, *_ in rows)]
    assert columns_of(named, "t", "en")[:2] == (0, 1)  # names decide in any case


@pytest.mark.parametrize(
    ("heading", "code"),
    [
        *[("French", "fr"), ("Français", "fr"), ("FRANZÖSISCH", "fr"), ("fra", "fr")],
        *[("text_fr", "fr"), ("fr-CA", "fr"), ("deu_Latn", "de"), ("英语", "en"), ("日本語", "ja")],
        *[
            ("English (US)", "en"),
            ("translation.de", "de"),
            ("tiếng việt", "vi"),
            ("zh", "zh-Hans"),
        ],
        *[("हिंदी", "hi"), ("हिन्दी", "hi"), ("अंग्रेज़ी", "en"), ("अंग्रेजी", "en"), ("العربية", "ar")],
        *[("अरबी", "ar"), ("الصينية", "zh-Hans"), ("印地文", "hi"), ("الفرنسية", "fr")],
        *[("comment", None), ("Key", None), ("date", None), ("a text about French food", None)],
    ],
)
def test_languages_are_known_by_many_names(heading: str, code: str | None) -> None:
    assert language_of(heading) == code


def test_kinds_of_columns() -> None:
    assert kind_of_column(["1", "2", "30", "4.5"]) == "number"
    assert kind_of_column(["12:30", "2024-05-01T10:00:00Z", "1/2/2024"]) == "date"
    assert kind_of_column(["a_b", "c.d", "saveAll"]) == "key"
    assert kind_of_column([str(1 + n % 5) for n in range(200)]) == "label"


@pytest.mark.parametrize(
    ("name", "separator", "quote"),
    [
        *[("a.txt", "\t", ""), ("a.tsv", "\t", '"'), ("a.csv", ";", '"'), ("a.csv", "\t", "")],
        *[("a.csv", ",", '"'), ("a.tsv", ",", '"'), ("plain", "\t", "")],
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_content_decides_the_form_of_a_table(
    tmp_path: Path, name: str, separator: str, quote: str, encoding: str
) -> None:
    rows = [separator.join(f"{quote}{cell}{quote}" for cell in row) for row in SIDES]
    (tmp_path / name).write_text("\n".join(rows) + "\n", encoding=encoding)
    assert list(Collector([tmp_path / name]).pairs()) == SIDES


@pytest.mark.parametrize("charset", ["cp1252", "latin-1"])
def test_another_charset_is_named(tmp_path: Path, charset: str) -> None:
    rows = [f"{s} déjà très été\t{t} où" for s, t in SIDES]
    (tmp_path / "a.tsv").write_bytes(("fine\tfine\n" + "\n".join(rows)).encode(charset))
    with pytest.raises(DataError, match=r"line 2: 200 of the first 201 lines.*windows-1252"):
        list(Collector([tmp_path / "a.tsv"]).pairs())


@pytest.mark.parametrize(
    ("text", "encoding", "name"),
    [
        ("Привет, мир", "cp1251", "windows-1251"),
        ("Привет, мир", "koi8-r", "koi8-r"),
        ("zażółć gęślą jaźń", "cp1250", "windows-1250"),
        ("שלום עולם", "cp1255", None),  # Greek letters have the same bytes
        ("你好，我们是朋友。", "gb18030", "gb18030"),
        ("こんにちは世界", "shift_jis", "shift_jis"),
    ],
)
def test_encodings_are_guessed(text: str, encoding: str, name: str | None) -> None:
    assert likely_encoding(text.encode(encoding)) == name


def test_names_of_files_tell_languages(tmp_path: Path) -> None:
    for at, name in enumerate(("train.en.txt", "train.de.txt")):
        (tmp_path / name).write_text("".join(f"{row[at]}\n" for row in SIDES))
    collector = Collector([tmp_path / "train.en.txt", tmp_path / "train.de.txt"])
    assert list(collector.pairs()) == SIDES and collector.languages == ("en", "de")


def test_nested_and_numbered_fields_of_json_lines(tmp_path: Path) -> None:
    lines = [
        f'{{"id": {n}, "translation": {{"en": "{s}", "de": "{t}"}}}}'
        for n, (s, t) in enumerate(SIDES)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    collector = Collector([tmp_path / "a.jsonl"])
    assert list(collector.pairs()) == SIDES and collector.languages == ("en", "de")


def test_a_note_is_refused_with_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello there\n")
    with pytest.raises(TransduceError, match=r"\.txt with tabs"):
        list(Collector([tmp_path / "note.txt"]).pairs())


def test_sheets_are_read(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("No", "Français", "English"), *((n, s, t) for n, (s, t) in enumerate(SIDES))]:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    collector = Collector([tmp_path / "a.xlsx"])
    assert list(collector.pairs()) == SIDES and collector.languages == ("fr", "en")


def test_swapped_pairs_are_turned_round_and_counted(tmp_path: Path) -> None:
    words = CHANCE.sample([a + b + c for a in "bdklm" for b in "aeiou" for c in "nrst"], 60)
    rows = [" ".join(CHANCE.choices(words, k=CHANCE.randint(3, 9))) for _ in range(600)]
    pairs = [(row, " ".join(f"{w[0]}øx{w[1:]}y" for w in row.split())) for row in rows]
    swapped = [pair if at < 300 else pair[::-1] for at, pair in enumerate(pairs)]
    prepared = prepare(swapped, tmp_path, 9)
    assert prepared.swapped == 300
    written = {pair for path in prepared.paths.values() for pair in read_prepared_split(path)}
    assert written <= {*pairs} and len(written) > 500
    assert prepare(pairs, tmp_path, 9).swapped == 0


def test_digits_that_are_the_text_are_not_alike(tmp_path: Path) -> None:
    digits = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    pairs = [(str(n), " ".join(digits[int(c)] for c in str(n))) for n in range(400)]
    counts = prepare(pairs, tmp_path, 9).counts
    assert counts["valid"] and counts["test"] and counts["train"] > 250
    signs = [(f"{n}+{n % 7}*{n % 11}", str(n + n % 7 * (n % 11)) + " in all") for n in range(400)]
    assert prepare(signs, tmp_path, 9).counts["test"]


def test_too_few_pairs_are_refused_with_the_kinds_left_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"left out: duplicate 99.*give 50 at least"):
        prepare([("one line", "a line")] * 100, tmp_path, 9)


def test_examination_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "LEAST_READ", 150)
    pairs = [(f"{s} {n}", f"{t} {n}") for n in range(3) for s, t in SIDES]
    prepared = prepare(pairs, tmp_path, 1e-6)
    assert prepared.read == 150 and prepared.counts["train"] > 50
