"""Labelled texts: read from files, laid out as rows of tokens, and with tokens left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from helpers.tiny_run import write_tsv
from transduce import DataError
from transduce.data.labelled import (
    LabelledJsonLines,
    LabelledParquet,
    LabelledTabSeparated,
    LabelledText,
    read_labelled,
)
from transduce.models.config import EncoderOnlyConfig
from transduce.tasks.predictors import one_line
from transduce.tasks.text_encoder.predictor import TextEmbedder
from transduce.tasks.text_encoder.recipes import EmbeddedTextConfig, EmbeddingRecipe
from transduce.tasks.text_inputs import with_special_tokens
from transduce.tasks.training import EncodedTexts, leave_out_tokens, to_padded
from transduce.text import BOS, EOS, CharactersConfig, train_tokenizer


class TestReading:
    def test_tsv_by_number_and_by_name(self, tmp_path: Path) -> None:
        write_tsv(tmp_path / "a.tsv", [("label", "said"), ("1", "good film"), ("0", "bad")])
        named = LabelledTabSeparated(path=Path("a.tsv"), text="said", label="label")
        expected = [LabelledText(("good film",), "1"), LabelledText(("bad",), "0")]
        assert list(read_labelled(named, tmp_path)) == expected
        numbered = LabelledTabSeparated(path=Path("a.tsv"), text=1, label=0)
        assert list(read_labelled(numbered, tmp_path))[1:] == expected

    def test_pairs_and_blank_lines(self, tmp_path: Path) -> None:
        write_tsv(tmp_path / "a.tsv", [("a", "b", " yes  no "), ("",), ("", "c", "no")])
        config = LabelledTabSeparated(path=Path("a.tsv"), text=0, second=1, label=2)
        result = list(read_labelled(config, tmp_path))
        assert result == [LabelledText(("a", "b"), "yes no"), LabelledText(("", "c"), "no")]

    @pytest.mark.parametrize("kind", ["jsonl", "parquet"])
    def test_labels_that_are_numbers(self, kind: str, tmp_path: Path) -> None:
        path = tmp_path / "data"
        rows = [{"q": {"text": "why"}, "label": 3}, {"q": {"text": "how"}, "label": 0}]
        if kind == "jsonl":
            path.write_text("\n\n".join(json.dumps(row) for row in rows))
            config = LabelledJsonLines(path=path, text="q.text")
        else:
            parquet = pytest.importorskip("pyarrow.parquet")
            pyarrow = pytest.importorskip("pyarrow")
            parquet.write_table(pyarrow.Table.from_pylist(rows), path)
            config = LabelledParquet(path=path, text="q.text")
        assert [tuple(x) for x in read_labelled(config, tmp_path)] == [
            (("why",), "3"),
            (("how",), "0"),
        ]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"text": "a"}', "line 1 has no column 'label'"),
            ('{"text": "a", "labels": 1}', "did you mean 'labels'"),
            ('{"text": "a", "label": null}', "row 1 has no label: 'a'"),
            ('{"text": "a", "label": 0.5}', "'label' is a float, but labels are"),
            ('{"text": 1, "label": "b"}', "'text' must be text, not int"),
            ("[]", "line 1 is not a JSON object"),
            ("{", "line 1 is not valid JSON"),
        ],
    )
    def test_what_is_wrong_is_named(self, line: str, message: str, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text(line)
        with pytest.raises(DataError, match=message) as raised:
            list(read_labelled(LabelledJsonLines(path=Path("a.jsonl")), tmp_path))
        assert "\n" not in str(raised.value)

    def test_parquet_without_the_column(self, tmp_path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"text": ["a"], "labels": [1]}), tmp_path / "a")
        with pytest.raises(DataError, match="no column 'label'; did you mean 'labels'"):
            list(read_labelled(LabelledParquet(path=Path("a")), tmp_path))
        with pytest.raises(DataError, match="cannot be read as Parquet"):
            write_tsv(tmp_path / "b", [("a", "b")])
            list(read_labelled(LabelledParquet(path=Path("b")), tmp_path))
        with pytest.raises(DataError, match="no such file"):
            list(read_labelled(LabelledParquet(path=Path("c")), tmp_path))


class TestLayout:
    def test_one_text_and_two(self) -> None:
        assert with_special_tokens([7, 8], None, 8) == ([BOS, 7, 8, EOS], [0, 0, 0, 0])
        pair = with_special_tokens([7, 8], [9], 8)
        assert pair == ([BOS, 7, 8, EOS, 9, EOS], [0, 0, 0, 0, 1, 1])
        assert with_special_tokens([], None, 8).ids == [BOS, EOS]
        as_in_roberta = with_special_tokens([7, 8], [9, 9, 9], 8, marks_between=2)
        assert as_in_roberta == ([BOS, 7, 8, EOS, EOS, 9, 9, EOS], [0, 0, 0, 0, 0, 1, 1, 1])

    @pytest.mark.parametrize(
        ("n_a", "n_b", "kept"), [(50, 2, (5, 2)), (2, 50, (2, 5)), (50, 50, (4, 3)), (4, 3, (4, 3))]
    )
    def test_the_longer_text_is_cut_first(self, n_a: int, n_b: int, kept: tuple[int, int]) -> None:
        row = with_special_tokens([7] * n_a, [8] * n_b, 10)
        assert (list(row.ids).count(7), list(row.ids).count(8)) == kept
        assert len(row.ids) == len(row.segments) == 10
        assert row.ids[-1] == EOS and row.ids[row.segments.index(1) - 1] == EOS

    def test_cuts_are_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        tokenizer = train_tokenizer(CharactersConfig(), ["ab"])
        recipe = EmbeddingRecipe(
            text=EmbeddedTextConfig(max_length=8), model=EncoderOnlyConfig(d_model=16)
        )
        maker = TextEmbedder(recipe, tokenizer)
        maker.rows([("a" * 6,), ("b",)], range(2))
        assert not caplog.records
        rows = maker.rows([("a" * 7,), ("b",), ("a" * 3, "b" * 3)], range(3))
        assert [len(row.ids) for row in rows] == [8, 3, 8]
        assert "2 of 3 inputs exceed 8 tokens" in caplog.text

    def test_padding(self) -> None:
        padded = to_padded([[2, 5, 3], [2, 3]])
        assert padded.values.tolist() == [[2, 5, 3], [2, 3, 0]]
        assert padded.real.tolist() == [[True] * 3, [True, True, False]]
        assert padded.padding == "right" and to_padded([[2, 3]]).padding == "none"
        both = to_padded([[2, 5, 3], [2, 3]], [[0, 0, 1], [0, 0]])
        assert both.values[..., 0].equal(padded.values)
        assert both.values[..., 1].tolist() == [[0, 0, 1], [0, 0, 0]]

    def test_rows_come_back_from_memory(self) -> None:
        texts = EncodedTexts()
        rows = [with_special_tokens([5] * n, [6] * m, 12) for n, m in ((1, 2), (4, 4), (2, 1))]
        texts.add(rows[:2])
        texts.add(rows[2:])
        assert texts.lengths.tolist() == [len(row.ids) for row in rows]
        result = [(row.ids.tolist(), row.segments.tolist()) for row in map(texts.row, range(3))]
        assert result == rows

    def test_an_input_is_one_line(self) -> None:
        assert one_line(["a\tb\nc", "d\r"]) == "a b c\td"


class TestLeavingOut:
    def test_what_stays_is_in_order_and_marks_always_stay(self) -> None:
        tokens = to_padded([[BOS, *range(4, 54), EOS], [BOS, 4, EOS], [BOS, EOS]])
        torch.manual_seed(0)
        result = leave_out_tokens(tokens, 0.5)
        lengths = result.lengths.tolist()
        assert 15 < lengths[0] < 40 and result.values.shape[1] == lengths[0]
        for row, length in zip(result.values.tolist(), lengths, strict=True):
            assert row[0] == BOS and row[length - 1] == EOS
            assert row[1 : length - 1] == sorted(set(row[1 : length - 1]))
        assert result.real.tolist() == [[i < n for i in range(lengths[0])] for n in lengths]
        assert result.padding == "right"

    def test_segments_go_along(self) -> None:
        tokens = to_padded([[BOS, 5, EOS, 6, EOS]], [[0, 0, 0, 1, 1]])
        everything = leave_out_tokens(tokens, 0.0)
        assert everything.values.equal(tokens.values) and everything.padding == "none"
        marks = leave_out_tokens(tokens, 0.999999).values
        assert marks[0].tolist() == [[BOS, 0], [EOS, 0], [EOS, 1]]
