"""Questions and their answers: how files write them, how they are split and measured."""

import gzip
import json
from pathlib import Path

import pytest

from helpers.tiny_run import write_jsonl
from transduce.data.documents import TextFiles
from transduce.data.labelled import (
    Answer,
    Question,
    QuestionLines,
    QuestionsConfig,
    SquadFile,
    find_answer,
    read_questions,
)
from transduce.errors import DataError, SettingError
from transduce.metrics.labels import answer_f1, exact_match
from transduce.metrics.measure import measure
from transduce.settings.sections import parse
from transduce.tasks.language_model.dialogue import DialoguesConfig
from transduce.tasks.text_encoder.recipes import QuestionsData, questions_of


# ---- data
def test_every_way_to_write_answers(tmp_path: Path) -> None:
    context = "Ann met Bob."
    rows = [
        {"context": context, "question": "?", "answers": [{"text": "Bob", "answer_start": 8}]},
        {"context": context, "question": "?", "answers": {"text": ["Bob"], "answer_start": [8]}},
        {"context": context, "question": "?", "answers": ["Bob"]},
        {"context": context, "question": "?", "answers": [{"text": "Bob"}]},
        {"context": context, "question": "?", "answers": ["Bob"], "is_impossible": True},
        {"context": context, "question": "?", "answers": {"text": [], "answer_start": []}},
    ]
    path = write_jsonl(tmp_path / "q.jsonl", rows)
    result = list(read_questions(QuestionLines(path=path), Path()))
    starts = [8, 8, None, None]
    assert [q.answers for q in result[:4]] == [(Answer("Bob", start),) for start in starts]
    assert [q.span() for q in result] == [(8, 11)] * 4 + [None] * 2
    assert [q.references for q in result] == [["Bob"]] * 4 + [[""]] * 2


def test_squads_own_format_and_several_files(tmp_path: Path) -> None:
    content = {
        "version": "v2.0",
        "data": [
            {
                "title": "Birds",
                "paragraphs": [
                    {
                        "context": "Owls hoot.",
                        "qas": [
                            {
                                "id": "a",
                                "question": "Who?",
                                "answers": [{"text": "Owls", "answer_start": 0}],
                            },
                            {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
                        ],
                    }
                ],
            }
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    config = parse(QuestionsConfig, {"kind": "squad", "path": ["a.json", "b.json.gz"]})
    result = list(read_questions(config, tmp_path))
    owls = Question("a", "Birds", "Owls hoot.", "Who?", (Answer("Owls", 0),))
    assert result == [owls, Question("b", "Birds", "Owls hoot.", "Why?", ())] * 2


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ('{"contxt": "a", "question": "b", "answers": []}', "no field 'context'; did you mean"),
        ('{"context": "a", "question": "b"}', "no field 'answers'"),
        ("{}", "no field 'context' (it has none)"),
        ('{"context": "a", "question": 3, "answers": []}', "'question' must be text, not int"),
        ('{"context": "a", "question": "b", "answers": "c"}', "'answers' must be a list, not str"),
        ('{"context": "a", "question": "b", "answers": [{"answer_start": 1}]}', "no field 'text'"),
        ('{"context": "a", "question": "b", "answers": [1903]}', "field 'text'"),
        ('{"context": "a", "question": "b", "answers": [null]}', "field 'text'"),
        ('{"context": "a", "question": "b", "answers": {"text": 5}}', "must be a list, not int"),
        (
            '{"context": "a", "question": "b", "answers": {"text": ["a"], "answer_start": [1, 2]}}',
            "the same length",
        ),
        (
            '{"context": "a", "question": "b", "answers": [{"text": "a", "answer_start": "1"}]}',
            "a whole number, not",
        ),
        ("[]", "not a JSON object"),
        ("{", "not valid JSON"),
    ],
)
def test_mistakes_name_the_line(tmp_path: Path, row: str, complaint: str) -> None:
    path = tmp_path / "q.jsonl"
    good = '{"context": "a", "question": "b", "answers": ["a"]}'
    path.write_text(f"{good}\n\n{row}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"q\.jsonl: line 3") as raised:
        list(read_questions(QuestionLines(path=path), Path()))
    assert complaint in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("config", [QuestionLines, SquadFile, DialoguesConfig, TextFiles])
def test_a_list_of_no_files(config: type) -> None:
    with pytest.raises(SettingError, match="path: name at least one file"):
        parse(config, {"path": []})


def test_a_squad_file_of_another_shape_is_named(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text('{"data": [{"title": "x", "paragraphs": [{}]}]}')
    with pytest.raises(DataError, match=r"data\[0\]\.paragraphs\[0\] has no field 'context'"):
        list(read_questions(SquadFile(path=tmp_path / "q.json"), Path()))


def test_find_answer_takes_the_nearest_place() -> None:
    assert find_answer("a b a b a", "a", 4) == 4
    assert find_answer("a b a b a", "a", 5) == 4
    assert find_answer("a b a b a", "a", 7) == 8
    assert find_answer("a b a b a", "b", 100) == 6
    assert find_answer("a b a b a", "b") == 2
    assert find_answer("aaa", "aa", -1) == 0
    assert find_answer("abc", "d", 1) is None
    assert find_answer("abc", "", 1) is None


def test_the_answer_to_learn_is_the_one_most_agree_on() -> None:
    answers = (Answer("in Rome", 0), Answer("Rome", 3), Answer("Rome", 3))
    question = Question("", "", "in Rome", "where?", answers)
    assert question.span() == (3, 7)
    assert question.references == ["in Rome", "Rome"]
    lost = Question("", "", "in Rome", "where?", (Answer("Paris", 3), Answer("Rome", 0)))
    assert lost.span() == (3, 7)


def test_questions_of_an_article_stay_together(tmp_path: Path) -> None:
    rows = [
        {"title": f"t{i % 30}", "context": f"c {i}", "question": f"{i}", "answers": ["c"]}
        for i in range(300)
    ]
    path = write_jsonl(tmp_path / "q.jsonl", rows)
    train = QuestionLines(path=path)
    by_title = QuestionsData(train=train, hold_out=0.25)
    splits = ("train", "valid", "test")
    titles = [{q.title for q in questions_of(by_title, split)} for split in splits]
    assert sum(map(len, titles)) == 30 and all(titles)
    by_context = QuestionsData(train=train, hold_out=0.25, split_by="context")
    contexts = [[q.context for q in questions_of(by_context, split)] for split in splits]
    assert sum(map(len, contexts)) == 300
    assert len({q.title for q in questions_of(by_context, "train")}) == 30


# ---- metrics
def test_squad_figures_by_hand() -> None:
    answers = ["The cat!", "a big dog", "", "wrong", "in 1999"]
    references = [["cat"], ["dog", "big brown dog"], [""], [""], ["1999", "in the year 1999"]]
    # F1: 1; best of 2/3 (1 common of 2 and 1) and 4/5 (2 of 2 and 3); 1; 0; 4/5 and 2/3
    scores = measure(["exact_match", "f1"], answers, references)
    assert scores["exact_match"] == pytest.approx(100 * 2 / 5)
    assert scores["f1"] == pytest.approx(100 * (1 + 0.8 + 1 + 0 + 0.8) / 5)
    assert scores["f1_signature"] == "convention:squad"


def test_chinese_figures_by_hand() -> None:
    answers = ["光荣和ω-force", "北京市。", "2008年8月", "不知道"]
    references = [["光荣和ω-Force"], ["北京"], ["于2008年", "8月8日"], ["上海"]]
    em = exact_match("zh").statistics(answers, references)[:, 0]
    f1 = answer_f1("zh-CN").statistics(answers, references)[:, 0]
    assert em.tolist() == [1, 0, 0, 0]
    # 3 characters and 1 word all in common; 2 of 3 and 2; "2008 年" of 4 and 3; none
    assert f1.tolist() == pytest.approx([1, 2 * 2 / 5, 2 * 2 / 7, 0])


def test_statistics_add_up() -> None:
    answers, references = ["a b c", "d", "e f"], [["b c"], ["x"], ["e f g"]]
    for metric in (exact_match("en"), answer_f1("en"), answer_f1("zh")):
        rows = metric.statistics(answers, references)
        parts = metric.statistics(answers[:1], references[:1]).sum(0)
        parts += metric.statistics(answers[1:], references[1:]).sum(0)
        assert metric.score(rows.sum(0)) == pytest.approx(metric.score(parts))
