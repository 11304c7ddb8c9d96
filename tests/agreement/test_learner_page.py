"""A model that a page trained, in Python: the same weights, tokenizers and translations."""

from __future__ import annotations

import gzip
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.node import run_node
from helpers.web import COMPILING, needs_learner, needs_node, needs_wasm, worker_script
from transduce.errors import DataError
from transduce.loading import load
from transduce.making.columns import columns_of
from transduce.runs.importing import import_run
from transduce.web.page import model_file

pytestmark = [
    *(pytest.mark.system, needs_node, needs_wasm, needs_learner),
    pytest.mark.timeout(COMPILING),
]

STUDY = """
const { readFileSync, writeFileSync } = require("fs");
(async () => {
  const { text, pair, steps, asked } = JSON.parse(readFileSync("request.json", "utf8"));
  const study = await TableStudy.open({ text, pair, seed: 1, minutes: 1000, name: "learnt" });
  while (study.learner.steps < steps) {
    study.learner.pass(study.batch(), { backward: true, seed: 1 });
    study.learner.step(study.learner.steps / steps);
  }
  for (const precision of ["float32", "int8"])
    writeFileSync(`${precision}.bin`, study.file(precision));
  writeFileSync("learnt.zip", await study.save("zip", "an account"));
  writeFileSync("learnt.html", await study.save("html", "an account <b>"));
  const answers = [];
  for (const line of asked) answers.push((await study.answer(line)).text);
  const { account, tokenizers, candidate } = study;
  const report = await study.examine();
  process.stdout.write(JSON.stringify({ account, tokenizers, candidate, answers, report }));
})();
"""


def studied(directory: Path, text: str, asked: list[str], steps: int, **given: Any) -> Any:
    """A training in Node; its files are in the directory."""
    request = {"text": text, "asked": asked, "steps": steps, **given}
    (directory / "request.json").write_text(json.dumps(request), encoding="utf-8")
    return run_node(directory, worker_script() + STUDY)


def content_of(file: bytes) -> tuple[dict[str, Any], bytes]:
    """Facts and arrays of a model file."""
    length = int.from_bytes(file[:4], "little")
    return json.loads(file[4 : 4 + length]), file[4 + length :]


def spelling(count: int = 300) -> str:
    """Words, and their letters in upper case between blanks."""
    letters = random.Random(1)
    rows = {"".join(letters.choices("abcdefgh", k=letters.randint(2, 6))) for _ in range(count)}
    return "\n".join(f"{word}\t{' '.join(word.upper())}" for word in sorted(rows))


def sentences(count: int = 200) -> str:
    """Sentences whose words are turned into others, with a header."""
    draw = random.Random(2)
    words = {"the": "le", "old": "vieux", "cat": "chat", "sees": "voit", "a": "un", "dog": "chien"}
    rows = {tuple(draw.choices([*words], k=draw.randint(4, 8))) for _ in range(count)}
    lines = [f"{' '.join(row)}.\t{' '.join(words[w] for w in row)} !" for row in sorted(rows)]
    return "\n".join(["source\ttarget", *lines])


@pytest.mark.parametrize(
    ("text", "asked"),
    [(spelling(), ["abc", "hgfedc", "zz"]), (sentences(), ["the old cat.", "a dog sees é"])],
    ids=["characters and symbols", "pieces"],
)
def test_a_saved_run_is_the_same_model_in_python(
    tmp_path: Path, text: str, asked: list[str]
) -> None:
    learnt = studied(tmp_path, text, asked, steps=4)
    run = import_run(tmp_path / "learnt.zip", tmp_path / "run")
    for precision in ("float32", "int8"):
        expected = model_file(load(run, "cpu").translator, "learnt", precision)
        facts, arrays = content_of(gzip.decompress(expected))
        facts_of_page, arrays_of_page = content_of((tmp_path / f"{precision}.bin").read_bytes())
        assert facts_of_page == facts
        assert arrays_of_page == arrays
    predictor = transduce.load(run, "cpu")
    assert [predictor(line).text for line in asked] == learnt["answers"]
    assert "an account" in (run / "README.md").read_text(encoding="utf-8")
    page = (tmp_path / "learnt.html").read_text(encoding="utf-8")
    assert "/*MODEL*/" not in page and "an account \\u003cb>" in page


TABLES = {
    "two columns": [[f"wort{i % 7}x", f"word {i}"] for i in range(30)],
    "a header": [["source", "target"], *([f"a{i} b", f"c{i} d e"] for i in range(30))],
    "target first": [["target", "source"], *([f"a{i} b", f"c{i} d e"] for i in range(30))],
    "an id before": [
        ["id", "word", "sound"],
        *([str(i), "ab" * (i % 5 + 1), "X Y " * (i % 5 + 1)] for i in range(30)),
    ],
    "dates and scores": [
        [f"2024-01-{i + 1:02}", f"{i}.5", "abc " * (i % 6 + 1), "de " * (i % 6 + 1)]
        for i in range(28)
    ],
    "labels": [[f"a text number {i} " + "x " * (i % 3), ["good", "bad"][i % 2]] for i in range(60)],
    "numbers in words": [
        [str(i), ["one", "two", "three"][i % 3] + " hundred" * (i // 10)] for i in range(30)
    ],
    "languages": [["de", "en"], *([f"Satz {i}", f"Sentence {i}"] for i in range(30))],
}


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_those_of_make(tmp_path: Path, name: str) -> None:
    rows = [[cell.strip() for cell in row] for row in TABLES[name]]
    code = """
    const { readFileSync } = require("fs");
    const { pair, header } = columnsOf(rowsOf(readFileSync("table.tsv", "utf8")), page.columns);
    process.stdout.write(JSON.stringify({ pair, header }));
    """
    text = "\n".join("\t".join(row) for row in rows)
    (tmp_path / "table.tsv").write_text(text, encoding="utf-8")
    columns = columns_of(rows, "table")
    found = run_node(tmp_path, worker_script() + code)
    assert found == {"pair": [columns.source, columns.target], "header": columns.header}


def read_table(directory: Path, text: str | bytes, pair: list[int] | None = None) -> Any:
    """The account of a table, or the words of its refusal."""
    code = """
    const { readFileSync } = require("fs");
    const request = { bytes: readFileSync("table"), ...JSON.parse(readFileSync("more", "utf8")) };
    let answer;
    try {
      const { text, ...account } = HANDLERS.read(request);
      answer = account;
    } catch (error) {
      if (!error.parts) throw error;
      answer = [error.message, ...error.parts];
    }
    process.stdout.write(JSON.stringify(answer));
    """
    (directory / "table").write_bytes(text if isinstance(text, bytes) else text.encode())
    (directory / "more").write_text(json.dumps({"pair": pair} if pair else {}))
    return run_node(directory, worker_script() + code)


def test_bad_tables_are_refused_in_a_word(tmp_path: Path) -> None:
    assert read_table(tmp_path, "") == ["empty"]
    assert read_table(tmp_path, " \n\n\t\n") == ["empty"]
    assert read_table(tmp_path, "one\ntwo\nthree") == ["oneColumn"]
    request = {"text": "a\tb", "asked": [], "steps": 1}
    (tmp_path / "request.json").write_text(json.dumps(request))
    with pytest.raises(AssertionError, match="few"):
        run_node(tmp_path, worker_script() + STUDY)


def test_odd_rows_are_counted_and_named(tmp_path: Path) -> None:
    rows = [f"word{i}\tWORD {i}" for i in range(60)]
    rows[3:3] = ["blank\t", "x" * 1_000_000 + "\ty", "word0\tWORD 0"]
    account = read_table(tmp_path, "\n".join(rows))
    assert account["count"] == 60
    left_out = {each["reason"]: (each["count"], each["rows"]) for each in account["leftOut"]}
    assert left_out == {"blank": (1, [4]), "long": (1, [5]), "repeated": (1, [6])}


def test_a_large_table_is_read_in_seconds(tmp_path: Path) -> None:
    rows = [f"w{i:x}\t{' '.join(f'{i:x}'.upper())}" for i in range(200_000)]
    account = read_table(tmp_path, "\n".join(rows))
    assert account["count"] == 200_000
    assert (account["kind"], account["symbols"]) == ("spelling", True)
    code = """
    const text = require("fs").readFileSync("table", "utf8");
    TableStudy.open({ text, seed: 1, minutes: 1, name: "large" }).then((study) => {
      const { loss, count } = study.learner.pass(study.batch(), { backward: true });
      const [learnt, heldOut] = [study.items.length, study.heldOut.length];
      process.stdout.write(JSON.stringify({ loss: loss / count, learnt, heldOut }));
    });
    """
    opened = run_node(tmp_path, worker_script() + code)
    assert 1 < opened["loss"] < 5
    assert opened["learnt"] + opened["heldOut"] == 200_000 and 300 < opened["heldOut"] < 700


def test_markup_and_other_directions_are_texts(tmp_path: Path) -> None:
    rows = [f"<b>{i}</b> & co\tكتاب {i}" for i in range(60)]
    account = read_table(tmp_path, "\n".join(rows))
    assert account["examples"][0] == ["<b>0</b> & co", "كتاب 0"]


def test_rows_the_other_way_round_are_turned(tmp_path: Path) -> None:
    rows = [f"слово {i}\tword {i}" for i in range(60)]
    rows[7] = "word seven\tслово семь"
    account = read_table(tmp_path, "\n".join(rows))
    assert (account["turned"], account["count"]) == (1, 60)


def test_files_of_other_encodings_and_forms(tmp_path: Path) -> None:
    rows = [f'"naïve; {i}";"né {i}"' for i in range(60)]
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        account = read_table(tmp_path, "\r\n".join(rows).encode(encoding))
        assert account["examples"][0] == ["naïve; 0", "né 0"], encoding


def test_an_archive_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(DataError, match=r"other\.zip holds no run"):
        import_run(tmp_path / "other.zip", tmp_path / "run")
    (tmp_path / "cut.zip").write_bytes((tmp_path / "other.zip").read_bytes()[:40])
    with pytest.raises(DataError, match=r"cut\.zip is damaged"):
        import_run(tmp_path / "cut.zip", tmp_path / "run")
    assert not (tmp_path / "run").exists()
