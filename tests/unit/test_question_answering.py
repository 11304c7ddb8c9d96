"""Extractive question answering: windows, spans, and a task that learns."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.tiny_run import stack, training, write_jsonl
from transduce.data.labelled import Answer, Question
from transduce.errors import DataError, SettingError
from transduce.models.config import EncoderOnlyConfig
from transduce.settings.sections import apply_overrides
from transduce.tasks.text_encoder.predictor import Answerer, cut_windows, span_scores
from transduce.tasks.text_encoder.question_answering import (
    encoded_windows,
    span_in,
    span_loss,
    spans_of,
)
from transduce.tasks.text_encoder.recipes import QuestionAnsweringRecipe, SpanConfig, WindowsConfig
from transduce.tasks.training import new_head, save_labels
from transduce.text import BOS, EOS, SymbolsConfig, train_tokenizer
from transduce.training.config import FineTuneConfig

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


def tiny_settings(data: Path, *overrides: str) -> dict[str, Any]:
    settings = {
        "task": "question-answering",
        "data": {"train": {"kind": "jsonl", "path": str(data)}, "hold_out": 0.1},
        "text": {"max_length": 32, "stride": 8, "max_question": 4},
        "model": {
            "d_model": 32,
            "encoder": stack(n_layers=2, d_ff=64, positions="rotary"),
        },
        "training": training(
            20, 256, 5e-3, warmup=20, label_smoothing=0.0, validate_every=10, log_every=10
        ),
    }
    settings["text"]["tokenizer"] = {"kind": "symbols"}
    return apply_overrides(settings, overrides)


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
    with pytest.raises(SettingError, match=r"text\.max_length = 32 .* leaves 15 tokens"):
        WindowsConfig(max_length=32, stride=15, max_question=14)


def test_span_scores_are_of_valid_spans_only() -> None:
    scores, longest = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32), 3
    real = np.array([True, True, False, True, True, True, True])
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
    model = EncoderOnlyConfig(d_model=16)
    return Answerer(QuestionAnsweringRecipe(text=text, span=span, model=model), tokenizer)


def scores_with(
    answerer: Answerer, encoded_passage: Any, best: dict[int, float], null: float
) -> list[Any]:
    """Scores in which token i of the passage has best[i] at both ends, and all others -10."""
    found = []
    for window in encoded_passage.windows:
        scores = np.full((len(window.row.ids), 2), -10.0, np.float32)
        scores[0] = null
        for token, score in best.items():
            if window.begin <= token < window.end:
                scores[window.first + token - window.begin] = score
        found.append(scores)
    return found


def test_the_best_span_of_all_windows_wins_and_stands_in_the_passage() -> None:
    answerer = an_answerer()
    context = " ".join(random.Random(0).choices(WORDS, k=200))
    (encoded_passage,) = answerer.read([("k1", context)])
    assert len(encoded_passage.windows) > 5
    found = answerer.answer(
        encoded_passage, scores_with(answerer, encoded_passage, {3: 1.0, 170: 2.0}, 99.0)
    )
    assert found.answer == context.split()[170] == context[found.start : found.end]
    assert found.score == pytest.approx(4.0) and 0 < found.probability <= 1


def test_no_answer_is_given_when_it_scores_higher_by_more_than_the_threshold() -> None:
    context = "amber birch cedar"
    for threshold, null, answered in ((0.0, 1.1, False), (0.0, 0.9, True), (1.0, 1.1, True)):
        answerer = an_answerer(no_answer=True, threshold=threshold)
        (encoded_passage,) = answerer.read([("k1", context)])
        found = answerer.answer(
            encoded_passage, scores_with(answerer, encoded_passage, {1: 1.0}, null)
        )
        assert found.answer == ("birch" if answered else "")
        assert (found.start, found.end) == ((6, 11) if answered else (None, None))
        assert 0 < found.probability < 1


def test_the_surest_window_decides_whether_there_is_an_answer() -> None:
    answerer = an_answerer(no_answer=True)
    (encoded_passage,) = answerer.read([("k1", " ".join(WORDS * 4))])
    scores = scores_with(answerer, encoded_passage, {0: 1.0}, 5.0)
    assert answerer.answer(encoded_passage, scores).answer == ""
    scores[0][0] = 0.5
    assert answerer.answer(encoded_passage, scores).answer == WORDS[0]


def test_blank_inputs_and_passages_of_nothing_have_the_empty_answer() -> None:
    for no_answer in (False, True):
        answerer = an_answerer(no_answer)
        inputs = [("", "amber"), ("k1", "  \n"), ("", ""), ("k1", "amber birch")]
        found = answerer.predict(inputs)
        assert [f.answer for f in found[:3]] == [""] * 3
        assert found[0].start is None and found[0].probability == 0.0
        assert json.dumps([f.fields() for f in found])


def test_span_in_a_window() -> None:
    config = WindowsConfig(max_length=16, stride=4, max_question=2)
    first, second, *_ = cut_windows([9], range(40), config)
    assert span_in(first, (2, 4), False) == (5, 7)
    assert span_in(first, (11, 12), False) is None
    assert span_in(second, (second.begin, second.begin), False) == (3, 3)
    assert span_in(first, None, True) == (0, 0) == span_in(first, (11, 12), True)


# ---- the task


def test_an_answer_that_was_not_found_is_not_no_answer(tmp_path: Path) -> None:
    given = tiny_settings(write_jsonl(tmp_path / "q.jsonl", key_questions(40, 1)))
    recipe = QuestionAnsweringRecipe.parse(given, "recipe")
    tokenizer = train_tokenizer(SymbolsConfig(), [" ".join(WORDS + KEYS)])
    (encoded_passage,) = Answerer(recipe, tokenizer).read([("k1", "amber birch")])
    for answers, span in ((("birch", 6),), (4, 4)), ((("zebra", None),), None), ((), (0, 0)):
        given = tuple(Answer(*answer) for answer in answers)
        question = Question("1", "", "amber birch", "k1", given)
        assert spans_of(question, encoded_passage, no_answer=True) == [span]


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
    recipe = QuestionAnsweringRecipe.parse(tiny_settings(path, *given), "recipe")
    tokenizer = train_tokenizer(SymbolsConfig(), [" ".join(WORDS + KEYS)])
    with caplog.at_level("INFO", logger="transduce"):
        data = encoded_windows(recipe.data, Answerer(recipe, tokenizer))
    assert len(data) == 40
    assert "skipping 1 of 42 training questions: their answers" in caplog.text
    assert "skipping 1 of 42 training questions without an answer" in caplog.text
    recipe = QuestionAnsweringRecipe.parse(
        tiny_settings(path, "span.no_answer=true", *given), "recipe"
    )
    data = encoded_windows(recipe.data, Answerer(recipe, tokenizer))
    assert len(data) == 41 and data.spans[-1].tolist() == [0, 0]


def test_data_without_a_single_answer_is_an_error(tmp_path: Path) -> None:
    rows = [{"context": "amber", "question": f"k{i}", "answers": ["x"]} for i in range(1, 4)]
    path = write_jsonl(tmp_path / "q.jsonl", rows)
    settings = tiny_settings(path, f"data.valid={{kind='jsonl', path='{path}'}}")
    with pytest.raises(DataError, match="no training question has an answer"):
        transduce.train(settings, tmp_path / "run")


def test_select_by_must_be_measured(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"training\.select_by = 'bleu'"):
        QuestionAnsweringRecipe.parse(tiny_settings(tmp_path, "training.select_by=bleu"), "recipe")


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


@pytest.mark.system
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


def test_a_span_head_is_no_head_of_labels(tmp_path: Path) -> None:
    for name in ("spans", "labels"):
        (tmp_path / name).mkdir()
    save_labels(tmp_path / "labels", ("no", "yes"))
    spans, labels = (FineTuneConfig(run=str(tmp_path / name)) for name in ("spans", "labels"))
    assert new_head((), spans) == new_head(("no", "yes"), labels) == ()
    assert new_head((), labels) == new_head(("no", "yes"), spans) == ("head.output.",)
