"""Extractive question answering: data, offsets, windows, spans, metrics, and a task that learns."""

import gzip
import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from transduce.config import apply_overrides, parse
from transduce.data.questions import (
    Answer,
    Question,
    QuestionLines,
    QuestionsConfig,
    SquadFile,
    find_answer,
    read_questions,
)
from transduce.errors import DataError, SettingError
from transduce.metrics.answers import answer_f1, exact_match
from transduce.metrics.measure import measure
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.tasks.answerer import Answerer, SpanConfig, WindowsConfig, cut_windows, span_scores
from transduce.tasks.question_answering import (
    QuestionsData,
    TrainedAnswerer,
    encoded_windows,
    parse_question_answering,
    questions_of,
    span_in,
    span_loss,
)
from transduce.text import (
    BOS,
    EOS,
    CharactersConfig,
    SubwordConfig,
    SymbolsConfig,
    Tokenizer,
    train_tokenizer,
)
from transduce.text.offsets import token_spans, tokens_with_spans

WORDS = ["amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heath", "inlet", "jetty"]
KEYS = ["k1", "k2", "k3", "k4"]


def key_questions(
    n: int, seed: int, longest: int = 8, unanswered: float = 0.0
) -> list[dict[str, Any]]:
    """Passages of random words; the answer is the word after the key that is asked for.

    In half of the passages another key stands, too; where there is no answer, others or none.
    """
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for i in range(n):
        asked, *others = chance.sample(KEYS, 3)
        impossible = chance.random() < unanswered
        keys = [others[0] if impossible else asked, others[1]]
        keys = keys[: chance.randint(0 if impossible else 1, 2)]
        words = chance.choices(WORDS, k=chance.randint(6, longest))
        for place, key in zip(chance.sample(range(len(words)), 2), keys, strict=False):
            words[place] = f"{key} {words[place]}"
        context = " ".join(words)
        at = context.find(f"{asked} ") + len(asked) + 1
        answers = [] if impossible else [{"text": context[at:].split()[0], "answer_start": at}]
        rows.append({"id": str(i), "context": context, "question": asked, "answers": answers})
    return rows


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def tiny_settings(data: Path, *overrides: str) -> dict[str, Any]:
    settings = {
        "task": "question-answering",
        "data": {"train": {"kind": "jsonl", "path": str(data)}, "hold_out": 0.1},
        "text": {"max_length": 32, "stride": 8, "max_question": 4},
        "model": {
            "d_model": 32,
            "encoder": {
                "n_layers": 2,
                "n_heads": 2,
                "d_ff": 64,
                "dropout": 0.0,
                "positions": "rotary",
            },
        },
        "training": {
            "steps": 20,
            "batch_tokens": 256,
            "label_smoothing": 0.0,
            "validate_every": 10,
            "log_every": 10,
            "schedule": {"kind": "constant", "peak": 5e-3, "warmup_steps": 20},
            "device": "cpu",
        },
    }
    settings["text"]["tokenizer"] = {"kind": "symbols"}
    return apply_overrides(settings, overrides)


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
    found = list(read_questions(QuestionLines(path=path), Path()))
    starts = [8, 8, None, None]
    assert [q.answers for q in found[:4]] == [(Answer("Bob", start),) for start in starts]
    assert [q.span() for q in found] == [(8, 11)] * 4 + [None] * 2
    assert [q.references for q in found] == [["Bob"]] * 4 + [[""]] * 2


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
    found = list(read_questions(config, tmp_path))
    owls = Question("a", "Birds", "Owls hoot.", "Who?", (Answer("Owls", 0),))
    assert found == [owls, Question("b", "Birds", "Owls hoot.", "Why?", ())] * 2


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ('{"contxt": "a", "question": "b", "answers": []}', "no field 'context'; did you mean"),
        ('{"context": "a", "question": "b"}', "no field 'answers'"),
        ('{"context": "a", "question": 3, "answers": []}', "'question' is not text but int"),
        ('{"context": "a", "question": "b", "answers": "c"}', "'answers' is not a list but str"),
        ('{"context": "a", "question": "b", "answers": [{"answer_start": 1}]}', "no field 'text'"),
        (
            '{"context": "a", "question": "b", "answers": {"text": ["a"], "answer_start": [1, 2]}}',
            "as many",
        ),
        (
            '{"context": "a", "question": "b", "answers": [{"text": "a", "answer_start": "1"}]}',
            "not a whole number",
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


# ---- characters of tokens

ODD = (
    "  Über\u00a0 die  Brücke:\t\tCafe\u0301 (1903), 3,000 €! 😀 hi😀there\n"
    "北京是中国的首都。 ﬁn don't "
)


def make_tokenizer(kind: str) -> Tokenizer:
    lines = [
        ODD.replace("\n", " "),
        "der Fluß ist 3, 5 und (19 tief",
        "hi there don't 1903, 19",
    ] * 3
    match kind:
        case "characters":
            return train_tokenizer(CharactersConfig(normalization="nfkc", lowercase=True), lines)
        case "few characters":
            return train_tokenizer(CharactersConfig(min_count=8), lines)
        case "symbols":
            return train_tokenizer(SymbolsConfig(), lines)
        case "bpe":
            return train_tokenizer(SubwordConfig(size=400, lowercase=True), lines)
    return train_tokenizer(SubwordConfig(kind="unigram", size=360, character_coverage=0.98), lines)


KINDS = ["characters", "few characters", "symbols", "bpe", "unigram"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_knows_its_characters(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    ids = tokenizer.encode(ODD)
    spans = token_spans(tokenizer, ODD, ids)
    assert len(spans) == len(ids)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    covered = set()
    for (start, end), shown in zip(spans, tokenizer.tokens(ids), strict=True):
        piece = ODD[start:end]
        assert piece == piece.strip()
        covered.update(range(start, end))
        known = "".join(shown.replace("▁", " ").split())
        if piece and known and not known.startswith("<"):
            normal = "".join(tokenizer.normalize(piece).split())
            assert known in normal and len(normal) <= len(known) + (piece in ("ﬁ", "e\u0301"))
    wanted = {i for i, character in enumerate(ODD) if not character.isspace()}
    assert wanted <= covered | {ODD.index("\u0301")}
    assert not any(ODD[i].isspace() for i in covered) or kind != "characters"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "symbols"])
def test_words_can_be_told_from_what_stands_beside_them(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    _, spans = tokens_with_spans(tokenizer, ODD, tokenizer.encode(ODD))
    starts, ends = {start for start, _ in spans}, {end for _, end in spans}
    words = ["Über", "Brücke", "Cafe\u0301", "1903", "000", "😀", "don", "hi", "there"]
    for word in [*words, *["北京", "首都"] * ("characters" in kind)]:
        place = ODD.index(word)
        assert place in starts and place + len(word) in ends, word


def test_tokens_across_the_edge_of_a_word_are_taken_apart() -> None:
    lines = ["in (1903, and (1903, then 1903, 3,000"] * 50
    tokenizer = train_tokenizer(SubwordConfig(size=300), lines)
    text = "in (1903, 3,000"
    ids = tokenizer.encode(text)
    assert any(len(set("(,") & set(token)) and len(token) > 2 for token in tokenizer.tokens(ids))
    apart, spans = tokens_with_spans(tokenizer, text, ids)
    assert "".join(text[a:b] for a, b in spans) == "in(1903,3,000"
    assert all(text[a:b].isalnum() or b - a <= 1 for a, b in spans)
    shown = tokenizer.tokens(apart)
    assert shown[:2] == ["▁in", "▁("] and shown[-1].isdigit() and "," in shown
    assert not any(token.startswith("▁") for token in shown[2 : shown.index(",") + 1])


class WordPieces(Tokenizer):
    """A tokenizer in the manner of BERT: lower case, no accents, "##", unknown words whole."""

    suffix = ".json"
    vocabulary = ("<pad>", "<unk>", "<s>", "</s>", "cafe", "##s", "play", "##ing", ",", "in", "#")

    def __init__(self) -> None:
        super().__init__(transduce.text.Normalizer(lowercase=True))

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    def normalize(self, text: str) -> str:
        return text.lower()

    def encode(self, text: str) -> list[int]:
        pieces = {"cafés": ["cafe", "##s"], "playing": ["play", "##ing"]}
        words = text.lower().replace(",", " , ").replace("#", " # ").split()
        parts = [piece for word in words for piece in pieces.get(word, [word])]
        return [self.vocabulary.index(p) if p in self.vocabulary else 1 for p in parts]

    def decode(self, ids: Any) -> str:
        return " ".join(self.tokens(ids)).replace(" ##", "")

    def tokens(self, ids: Any) -> list[str]:
        return [self.vocabulary[i] for i in ids]

    def to_bytes(self) -> bytes:
        return b""


def test_unknown_characters_are_told_apart_where_there_is_a_token_for_each() -> None:
    tokenizer = train_tokenizer(SubwordConfig(size=270), ["ab ab ba"] * 9)
    text = "a €😀 b中国ab"
    _, spans = tokens_with_spans(tokenizer, text, tokenizer.encode(text))
    pieces = [text[a:b] for a, b in spans if a < b]
    assert "".join(dict.fromkeys(pieces)) in ("a€😀b中国ab", "a€😀b中国")
    assert pieces.count("€") == 3 and pieces.count("😀") == 4 and pieces.count("国") == 3


def test_wordpieces_and_unknown_words() -> None:
    text = "Playing, ℵinfinite in Cafés#"
    ids, spans = tokens_with_spans(WordPieces(), text, WordPieces().encode(text))
    pieces = ["Play", "ing", ",", "ℵinfinite", "in", "Café", "s", "#"]
    assert [text[a:b] for a, b in spans] == pieces
    assert ids == [6, 7, 8, 1, 9, 4, 5, 10]


# ---- windows and spans


def test_windows_cover_a_passage_and_overlap() -> None:
    config = WindowsConfig(max_length=32, stride=6, max_question=8)
    for n in (0, 1, 20, 23, 24, 100, 321):
        windows = list(cut_windows([7, 8, 9], range(100, 100 + n), config))
        for window in windows:
            ids = list(window.row.ids)
            assert len(ids) <= 32
            assert ids[:5] == [BOS, 7, 8, 9, EOS] and ids[-1] == EOS
            assert ids[window.first : -1] == list(range(100 + window.begin, 100 + window.end))
            assert list(window.row.segments) == [0] * 5 + [1] * (len(ids) - 5)
        assert windows[0].begin == 0 and windows[-1].end == n
        for one, after in itertools.pairwise(windows):
            assert one.end - after.begin == 6 and after.end > one.end
    assert len(next(cut_windows(range(50, 90), [1], config)).row.ids) == 8 + 4


def test_windows_with_two_marks_behind_the_question() -> None:
    config = WindowsConfig(max_length=32, stride=20, max_question=8)
    windows = list(cut_windows(range(50, 58), range(100, 130), config, marks_between=2))
    for window in windows:
        ids = list(window.row.ids)
        assert ids[:11] == [BOS, *range(50, 58), EOS, EOS] and ids[-1] == EOS
        assert ids[window.first : -1] == list(range(100 + window.begin, 100 + window.end))
        assert len(ids) <= 32
    assert windows[-1].end == 30, "though stride leaves no more room than one mark would"


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(SettingError, match=r"text\.max_length = 32 leaves 15 tokens"):
        WindowsConfig(max_length=32, stride=15, max_question=14)


def test_span_scores_are_of_valid_spans_only() -> None:
    torch.manual_seed(1)
    scores, longest = torch.randn(7, 2), 3
    real = torch.tensor([True, True, False, True, True, True, True])
    found = span_scores(scores, real, longest)
    for start in range(7):
        for extra in range(longest):
            end = start + extra
            valid = end < 7 and bool(real[start]) and bool(real[end])
            wanted = float(scores[start, 0] + scores[end, 1]) if valid else -np.inf
            assert float(found[start, extra]) == pytest.approx(wanted)
    assert span_scores(scores[:2], real[:2], 30).shape == (2, 2)


def test_span_loss_is_cross_entropy_among_the_allowed() -> None:
    torch.manual_seed(2)
    scores = torch.randn(2, 6, 2, requires_grad=True)
    allowed = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 0, 1, 1, 0, 0]], dtype=torch.bool)
    spans = torch.tensor([[2, 4], [0, 0]])
    wanted = 0.0
    for row in range(2):
        for side in range(2):
            kept = scores[row, allowed[row], side]
            place = (allowed[row].cumsum(0) - 1)[spans[row, side]]
            wanted -= kept.log_softmax(0)[place].item()
    sums = span_loss(scores, allowed, spans)
    assert sums.total.item() == pytest.approx(wanted) == sums.nll.item()
    assert sums.tokens == 4
    smoothed = span_loss(scores, allowed, spans, 0.1)
    assert torch.isfinite(smoothed.total) and smoothed.total != sums.total
    smoothed.total.backward()
    assert scores.grad is not None and bool((scores.grad[0, 0] == 0).all())


def an_answerer(no_answer: bool = False, threshold: float = 0.0) -> Answerer:
    tokenizer = train_tokenizer(SymbolsConfig(), [" ".join(WORDS + KEYS)])
    text = WindowsConfig(max_length=32, stride=8, max_question=4)
    span = SpanConfig(max_length=3, no_answer=no_answer, threshold=threshold)
    config = EncoderOnlyConfig(d_model=16)
    return Answerer(config, text, span, tokenizer)


def scores_with(answerer: Answerer, reading: Any, best: dict[int, float], null: float) -> list[Any]:
    """Scores in which token i of the passage has best[i] at both ends, and all others -10."""
    found = []
    for window in reading.windows:
        scores = torch.full((len(window.row.ids), 2), -10.0)
        scores[0] = null
        for token, score in best.items():
            if window.begin <= token < window.end:
                scores[window.first + token - window.begin] = score
        found.append(scores)
    return found


def test_the_best_span_of_all_windows_wins_and_stands_in_the_passage() -> None:
    answerer = an_answerer()
    context = " ".join(random.Random(0).choices(WORDS, k=200))
    (reading,) = answerer.read([("k1", context)])
    assert len(reading.windows) > 5
    found = answerer.answer(reading, scores_with(answerer, reading, {3: 1.0, 170: 2.0}, 99.0))
    assert found.answer == context.split()[170] == context[found.start : found.end]
    assert found.score == pytest.approx(4.0) and 0 < found.probability <= 1


def test_no_answer_is_given_when_it_scores_higher_by_more_than_the_threshold() -> None:
    context = "amber birch cedar"
    for threshold, null, answered in ((0.0, 1.1, False), (0.0, 0.9, True), (1.0, 1.1, True)):
        answerer = an_answerer(no_answer=True, threshold=threshold)
        (reading,) = answerer.read([("k1", context)])
        found = answerer.answer(reading, scores_with(answerer, reading, {1: 1.0}, null))
        assert found.answer == ("birch" if answered else "")
        assert (found.start, found.end) == ((6, 11) if answered else (None, None))
        assert 0 < found.probability < 1


def test_the_surest_window_decides_whether_there_is_an_answer() -> None:
    answerer = an_answerer(no_answer=True)
    (reading,) = answerer.read([("k1", " ".join(WORDS * 4))])
    scores = scores_with(answerer, reading, {0: 1.0}, 5.0)
    assert answerer.answer(reading, scores).answer == ""
    scores[0][0] = 0.5
    assert answerer.answer(reading, scores).answer == WORDS[0]


def test_blank_inputs_and_passages_of_nothing_have_the_empty_answer() -> None:
    for no_answer in (False, True):
        answerer = an_answerer(no_answer)
        inputs = [("", "amber"), ("k1", "  \n"), ("", ""), ("k1", "amber birch")]
        found = answerer.predict(inputs)
        assert [f.answer for f in found[:3]] == [""] * 3
        assert found[0].start is None and found[0].probability == 0.0
        assert json.dumps([f.fields() for f in found])


def test_answers_do_not_depend_on_the_batch() -> None:
    answerer = an_answerer()
    inputs = [(row["question"], row["context"]) for row in key_questions(12, 3, longest=40)]
    alone = [answerer.predict([one])[0] for one in inputs]
    together = answerer.predict(inputs)
    assert [p.answer for p in alone] == [p.answer for p in together]
    for one, other in zip(alone, together, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)


def test_span_in_a_window() -> None:
    config = WindowsConfig(max_length=16, stride=4, max_question=2)
    first, second, *_ = cut_windows([9], range(40), config)
    assert span_in(first, (2, 4), False) == (5, 7)
    assert span_in(first, (11, 12), False) is None
    assert span_in(second, (second.begin, second.begin), False) == (3, 3)
    assert span_in(first, None, True) == (0, 0) == span_in(first, (11, 12), True)


# ---- metrics


def test_squad_figures_by_hand() -> None:
    answers = ["The cat!", "a big dog", "", "wrong", "in 1999"]
    references = [["cat"], ["dog", "big brown dog"], [""], [""], ["1999", "in the year 1999"]]
    # F1: 1; best of 2/3 (1 common of 2 and 1) and 4/5 (2 of 2 and 3); 1; 0; 4/5 and 2/3
    found = measure(["exact_match", "f1"], answers, references)
    assert found["exact_match"] == pytest.approx(100 * 2 / 5)
    assert found["f1"] == pytest.approx(100 * (1 + 0.8 + 1 + 0 + 0.8) / 5)
    assert found["f1_signature"] == "convention:squad"


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


# ---- the task


def test_what_cannot_be_learnt_from_is_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = key_questions(40, 1)
    rows += [
        {"context": "amber birch", "question": "k1", "answers": ["zebra"]},
        {"context": "amber birch", "question": "k1", "answers": [], "is_impossible": True},
    ]
    path = write_jsonl(tmp_path / "q.jsonl", rows)
    other = write_jsonl(tmp_path / "v.jsonl", rows[:3])
    given = [f"data.{split}={{kind='jsonl', path='{other}'}}" for split in ("valid", "test")]
    recipe = parse_question_answering(tiny_settings(path, *given), "recipe")
    tokenizer = train_tokenizer(SymbolsConfig(), [" ".join(WORDS + KEYS)])
    with caplog.at_level("INFO", logger="transduce"):
        data = encoded_windows(recipe, TrainedAnswerer(recipe, tokenizer))
    assert len(data) == 40
    assert "1 of 42 training questions are left out: no answer stands" in caplog.text
    assert "1 of 42 training questions have no answer and are left out" in caplog.text
    recipe = parse_question_answering(tiny_settings(path, "span.no_answer=true", *given), "recipe")
    data = encoded_windows(recipe, TrainedAnswerer(recipe, tokenizer))
    assert len(data) == 41 and data.spans[-1].tolist() == [0, 0]


def test_data_without_a_single_answer_is_an_error(tmp_path: Path) -> None:
    rows = [{"context": "amber", "question": f"k{i}", "answers": ["x"]} for i in range(1, 4)]
    path = write_jsonl(tmp_path / "q.jsonl", rows)
    settings = tiny_settings(path, f"data.valid={{kind='jsonl', path='{path}'}}")
    with pytest.raises(DataError, match="no training question has its answer"):
        transduce.train(settings, tmp_path / "run")


def test_select_by_must_be_measured(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"training\.select_by is 'bleu'"):
        parse_question_answering(tiny_settings(tmp_path, "training.select_by=bleu"), "recipe")


def test_a_run_is_resumed_exactly(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "q.jsonl", key_questions(120, 5))
    dropout = ("model.encoder.dropout=0.2", "model.segments=true")
    whole, _ = transduce.train(tiny_settings(path, *dropout), tmp_path / "whole")
    transduce.train(tiny_settings(path, *dropout, "training.steps=10"), tmp_path / "half")
    half, outcome = transduce.train(tiny_settings(path, *dropout), tmp_path / "half", resume=True)
    assert outcome.step == 20
    assert (half / "weights.safetensors").read_bytes() == (
        whole / "weights.safetensors"
    ).read_bytes()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> transduce.Run:
    """A model that has learnt to find the word after the key."""
    directory = tmp_path_factory.mktemp("keys")
    path = write_jsonl(directory / "q.jsonl", key_questions(2500, 1, 10, unanswered=0.3))
    overrides = [
        "training.steps=350",
        "training.batch_tokens=512",
        "training.validate_every=50",
        "training.log_every=100",
        "training.select_by=exact_match",
        "text={max_length=16, stride=4, max_question=2}",
        "evaluation.validation_questions=100",
        "span.no_answer=true",
        "model.segments=true",
        "data.hold_out=0.05",
    ]
    run, _ = transduce.train(tiny_settings(path, *overrides), directory / "run")
    return transduce.load(run, "cpu")


def test_it_learns_to_find_the_word_after_the_key(trained: transduce.Run) -> None:
    scores = trained.evaluate("test").scores
    assert scores["exact_match"] > 90, scores
    assert scores["f1"] >= scores["exact_match"]


def test_it_says_when_there_is_no_answer(trained: transduce.Run) -> None:
    rows = key_questions(200, 77, 10, unanswered=0.5)
    found = list(trained.predict([(row["question"], row["context"]) for row in rows]))
    right = [(not p.text) == (not row["answers"]) for p, row in zip(found, rows, strict=True)]
    assert sum(right) > 180
    assert any(not p.text for p in found) and any(p.text for p in found)


def test_sliding_windows_find_an_answer_in_a_long_passage(trained: transduce.Run) -> None:
    chance = random.Random(8)
    right = 0
    for i in range(20):
        words = chance.choices(WORDS, k=160)  # ten times the window
        place = chance.randrange(160)
        words[place] = f"k{i % 4 + 1} {words[place]}"
        context = "  ".join(words)
        (found,) = trained.predict([(f"k{i % 4 + 1}", context)])
        fields = found.fields()
        if fields["answer"]:
            assert context[fields["start"] : fields["end"]] == fields["answer"]
        at = context.index(words[place]) + 3
        right += fields["start"] == at
    assert right >= 17


def test_a_masked_language_model_is_what_it_can_start_from(tmp_path: Path) -> None:
    questions = write_jsonl(tmp_path / "q.jsonl", key_questions(60, 4))
    texts = "\n".join(" ".join(random.Random(i).choices(WORDS + KEYS, k=9)) for i in range(60))
    (tmp_path / "text.txt").write_text(texts, encoding="utf-8")
    settings = tiny_settings(questions, "model.segments=true")
    base = {
        **settings,
        "task": "masked-language-model",
        "data": {"train": {"kind": "text", "path": str(tmp_path / "text.txt")}},
        "text": {"tokenizer": {"kind": "symbols"}, "max_length": 32},
        "training": {**settings["training"], "steps": 2},
    }
    base["data"]["train"]["documents"] = "line"
    transduce.train(base, tmp_path / "base")
    del settings["model"], settings["text"]["tokenizer"]
    settings["fine_tune"] = {"run": str(tmp_path / "base")}
    settings["training"] |= {"steps": 1, "schedule": {"kind": "constant", "peak": 1e-9}}
    run, _ = transduce.train(settings, tmp_path / "run")
    name = "tokenizer.json"
    assert (run / name).read_bytes() == (tmp_path / "base" / name).read_bytes()
    models = [transduce.load(path, "cpu") for path in (tmp_path / "base", run)]
    assert models[1].recipe.model == models[0].recipe.model
    weights = [model.model.front_end.embedding.weight for model in models]
    assert torch.allclose(weights[0], weights[1], atol=1e-6)
