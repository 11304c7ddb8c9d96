"""CSV, and texts that were escaped for another program."""

from __future__ import annotations

import csv
import io
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.labelled import LabelledConfig, read_labelled
from transduce.data.pairs import PairsConfig, about_how_many, read_pairs
from transduce.data.tables import csv_cells, csv_rows, tsv_rows
from transduce.data.text_files import unescaped
from transduce.errors import DataError, SettingError
from transduce.settings.sections import parse


def text_file(directory: Path, text: str, name: str = "data.csv") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


CELLS = st.text(st.characters(exclude_characters="\r\0", codec="utf-8"), max_size=9)


class TestCsv:
    def test_by_name_and_by_number(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, '\ufeffen,de\r\n"a, b","say ""c"""\r\n\r\nd,e\r\n')
        expected = [("a, b", 'say "c"'), ("d", "e")]
        assert list(csv_rows(path, ("en", "de"))) == expected
        assert list(csv_rows(path, (0, "de"))) == expected
        assert list(csv_rows(path, (1,), header=False)) == [("de",), ('say "c"',), ("e",)]

    @pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
    @given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
    def test_what_a_spreadsheet_writes_comes_back(
        self, delimiter: str, rows: list[tuple[str, str]]
    ) -> None:
        file = io.StringIO()
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)
        lines = file.getvalue().removesuffix("\n").split("\n")
        assert [tuple(cells) for _, cells in csv_cells(lines, "a", delimiter)] == rows

    def test_lines_are_taken_when_they_are_needed(self) -> None:
        taken = []

        def lines() -> Any:
            for line in ('"a', 'b",c', "d,e"):
                taken.append(line)
                yield line

        rows = csv_cells(lines(), "a")
        assert next(rows) == (1, ["a\nb", "c"])
        assert len(taken) == 2
        assert next(rows) == (3, ["d", "e"])

    @pytest.mark.parametrize(
        ("text", "columns", "message"),
        [
            ("en,de\na,b\n", ("en", "dee"), r"line 1 has no column 'dee'; did you mean 'de'\?"),
            ("en,de\na,b\n", (0, 2), r"line 1 has 2 of 3 columns, cut by ','"),
            ("en,de\n\na\n", (0, 1), r"line 3 has 1 columns, but line 1 has 2; check the delim"),
            ('en,de\n"a\nb",c\nd, e, f\n', (0, 1), "line 4 has 3 columns"),
            ('en,de\na,b\n"a"b,c\n', (0, 1), "line 3 is not valid CSV: .*double any"),
            (
                'en,de\na,"b\nc,d\n',
                (0, 1),
                "line 2 is not valid CSV: unexpected end of data; .*double any",
            ),
            ("", (0, 1), "is empty"),
        ],
    )
    def test_mistakes_name_line_and_remedy(
        self, tmp_path: Path, text: str, columns: tuple[int | str, ...], message: str
    ) -> None:
        with pytest.raises(DataError, match=message) as caught:
            list(csv_rows(text_file(tmp_path, text), columns))
        assert "\n" not in str(caught.value)

    def test_a_mark_without_its_pair_does_not_fill_the_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRANSDUCE_LIMIT_LINE", "1")
        path = text_file(tmp_path, 'a,b\nc,"d\n' + "e,f\n" * 2**19)
        with pytest.raises(
            DataError, match="line 2 is not valid CSV: field larger than field limit"
        ):
            list(csv_rows(path, (0, 1)))

    def test_csv_read_as_tsv_names_the_kind(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, "en,de\na,b\n")
        for columns in ((0, 1), ("en", "de")):
            with pytest.raises(DataError, match='read a CSV file with kind = "csv"'):
                list(tsv_rows(path, columns))

    def test_a_quoted_line_end_in_tsv_names_the_kind(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, '"one\nmore"\t"two"\n')
        with pytest.raises(DataError, match=r'line 1 has 1 of 2 columns.* kind = "csv" with delim'):
            list(tsv_rows(path, (0, 1)))

    def test_pairs(self, tmp_path: Path) -> None:
        text_file(tmp_path, 'source;lang;target\n"a;b";de;c\n')
        settings = {"kind": "csv", "path": "data.csv", "delimiter": ";", "tag_columns": ["lang"]}
        config = parse(PairsConfig, settings)
        assert list(read_pairs(config, tmp_path)) == [("<de> a;b", "c")]
        assert about_how_many(config, tmp_path)

    def test_labelled_texts(self, tmp_path: Path) -> None:
        text_file(tmp_path, '"so ""nice""",good\nnever,bad\n')
        settings = {"kind": "csv", "path": "data.csv", "header": False, "text": 0, "label": 1}
        result = list(read_labelled(parse(LabelledConfig, settings), tmp_path))
        assert [(*one.texts, one.label) for one in result] == [
            ('so "nice"', "good"),
            ("never", "bad"),
        ]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"delimiter": ""}, "not a valid delimiter"),
            ({"delimiter": ", "}, "not a valid delimiter"),
            ({"delimiter": '"'}, "not a valid delimiter"),
            ({"header": False}, "column 'source' has no number; header = false"),
        ],
    )
    def test_settings_that_cannot_be(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(SettingError, match=message):
            parse(PairsConfig, {"kind": "csv", "path": "a.csv", **changes})


class TestQuotesInTsv:
    QUOTED = "".join(f'"bad film {i}"\t"neg"\n' for i in range(9))

    def warnings(
        self, path: Path, caplog: pytest.LogCaptureFixture, *columns: int | str
    ) -> list[str]:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):  # as for two splits
                list(tsv_rows(path, columns))
        return [record.getMessage() for record in caplog.records]

    def test_of_a_spreadsheet_are_warned_of_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = text_file(tmp_path, "text\tlabel\n" + self.QUOTED, "quoted.tsv")
        first, second = self.warnings(path, caplog, "text", "label")
        assert "quoted.tsv: column 'text' has quoted cells (9 of the first 9)" in first
        assert first.endswith('use kind = "csv" with delimiter = "\\t"')
        assert "column 'label'" in second

    def test_doubled_marks_are_warned_of_wherever_they_stand(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = text_file(tmp_path, "a\tb\n" * 2000 + '"say ""a"""\tb\n' * 2)
        (warning,) = self.warnings(path, caplog, 0, 1)
        assert 'column 0 has quoted cells (such as "say ""a""" in line 2001' in warning

    @pytest.mark.parametrize(
        "text", ['"Come!"\tkomm\ngo\tgeh\n' * 9, 'say "a"\t"b" and "c"\n' * 9, '""\t"\n' * 2]
    )
    def test_of_a_text_are_not(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
    ) -> None:
        assert self.warnings(text_file(tmp_path, text), caplog, 0, 1) == []

    def test_the_remedy_reads_them(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, "text\tlabel\n" + self.QUOTED)
        assert next(csv_rows(path, ("text", "label"), "\t")) == ("bad film 0", "neg")


class TestEntities:
    MOSES = "we aren &apos;t &quot; there &quot; &amp; here &#124;\thi\n"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("&quot;a&apos;s &amp; b&quot; &#124; &#91;x&#93; &lt;", '"a\'s & b" | [x] <'),
            ("a&#x27;b &eacute; &nbsp;", "a'b é \xa0"),
            ("a&#10;b &#0;", "a b \ufffd"),
            ("AT&T ?a=1&para=2 &copy; & &unknown; R&D;", "AT&T ?a=1&para=2 © & &unknown; R&D;"),
            ("&amp;quot;", "&quot;"),
        ],
    )
    def test_their_characters(self, text: str, expected: str) -> None:
        assert unescaped(text) == expected

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        assert "\n" not in unescaped(text.replace("\n", " "))
        assert unescaped(text.replace(";", ",")) == text.replace(";", ",")

    @pytest.mark.parametrize("kind", ["pairs", "labelled"])
    def test_a_warning_names_the_setting_which_reads_them(
        self, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = text_file(tmp_path, self.MOSES * 5, "moses.tsv")
        read: Any = read_pairs if kind == "pairs" else read_labelled
        section: Any = PairsConfig if kind == "pairs" else LabelledConfig
        settings = {"kind": "tsv", "path": str(path)}
        for _ in range(2):
            raw = list(read(parse(section, settings), tmp_path))
        (record,) = caplog.records
        message = record.getMessage()
        assert "moses.tsv: 5 of the first 5 rows contain entities such as &apos;" in message
        assert "unescape = true" in message
        caplog.clear()
        (first, *_) = read(parse(section, settings | {"unescape": True}), tmp_path)
        assert "&quot;" in str(raw[0])
        text = first[0] if kind == "pairs" else first.texts[0]
        assert text == 'we aren \'t " there " & here |'
        assert caplog.records == []

    def test_few_among_many_are_no_corpus_of_them(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = text_file(tmp_path, self.MOSES * 9 + "R&D; and so on\tb\n" * 1000)
        list(read_pairs(parse(PairsConfig, {"kind": "tsv", "path": str(path)}), tmp_path))
        assert caplog.records == []
