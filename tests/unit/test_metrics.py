"""Metrics by hand-computed examples, and their refusals."""

import functools
import math
import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.systems import corrupted, sentences, single
from transduce.errors import DataError, SettingError
from transduce.metrics import (
    METRICS,
    edit_distance,
    group_by_source,
    make_metric,
    measure,
    paired_bootstrap,
    word_error_rate,
)
from transduce.metrics.error_rates import accuracy, edit_rate, item_error_rate
from transduce.metrics.labels import _longest_common_run
from transduce.metrics.measure import metrics_named
from transduce.metrics.translation import base_language, bleu_tokenizer, moses_tokeniser

# --- edit distance

symbols = st.lists(st.sampled_from("abcd"), max_size=9)


def recursive_distance(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """The definition, word for word."""

    @functools.cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        replaced = distance(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(replaced, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(a), len(b))


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("kitten", "sitting", 3),
        ("intention", "execution", 5),
        ("aa", "a", 1),
        ("aba", "ababa", 2),
        ("abc", "abc", 0),
    ],
)
def test_edit_distance_by_hand(a, b, distance):
    assert edit_distance(a, b) == distance


def test_edit_distance_compares_words_whole():
    assert edit_distance(["a", "bc", "d"], ["a", "bd", "d"]) == 1


@given(symbols, symbols)
def test_edit_distance_is_what_its_definition_says(a, b):
    assert edit_distance(a, b) == recursive_distance(tuple(a), tuple(b))


@given(symbols, symbols, symbols)
def test_edit_distance_is_a_distance(a, b, c):
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


# --- symbols


def test_wer_per_and_accuracy_by_hand_with_several_references():
    hypotheses = ["T AH M EY T OW", "K AE T", "D AO", ""]
    references = [
        ["T AH M AA T OW", "T AH M EY T OW"],  # equals the second: right, 0 of 6
        ["K AA T"],  # one substitution of 3
        ["D AO G Z", "D AO G"],  # closest is the second: one deletion of 3
        ["AH"],  # one deletion of 1
    ]
    scores = measure(["wer", "per", "accuracy"], hypotheses, references)
    assert scores == {
        "wer": 75.0,
        "per": pytest.approx(100 * (0 + 1 + 1 + 1) / (6 + 3 + 3 + 1)),
        "accuracy": 25.0,
    }


def test_per_sums_before_dividing_and_may_exceed_100():
    per = edit_rate("per")
    rows = per.statistics(["A B C", "X Y"], [["A B C"], ["Z"]])
    assert rows.tolist() == [[0, 3], [2, 1]]
    assert per.score(rows.sum(0)) == 50.0  # the mean of the items' rates would be 100
    assert per.score(rows[1]) == 200.0


def test_per_does_not_depend_on_the_order_of_references():
    item = ["A B", "A B C D"]  # both one edit from A B C
    per = edit_rate("per")
    assert per.statistics(["A B C"], [item]).tolist() == [[1, 4]]
    assert per.statistics(["A B C"], [item[::-1]]).tolist() == [[1, 4]]


@pytest.mark.parametrize(("hypothesis", "rate"), [("", 0.0), ("A", 100.0)])
def test_per_of_nothing_but_empty_references(hypothesis, rate):
    assert measure(["per"], [hypothesis], [[""]]) == {"per": rate}


def test_white_space_around_symbols_is_no_error():
    scores = measure(["wer", "per", "accuracy"], [" A  B\n"], [["A B"]])
    assert scores == {"wer": 0.0, "per": 0.0, "accuracy": 100.0}


def test_the_two_word_error_rates_differ():
    hypotheses, references = ["the cat sat", "on a mat"], [["the cat sat"], ["on the mat"]]
    assert word_error_rate(hypotheses, references) == pytest.approx(100 / 6)
    assert measure(["wer"], hypotheses, references) == {"wer": 50.0}


@given(st.lists(st.tuples(st.text("AB ", max_size=4), st.text("AB ", max_size=4)), min_size=1))
def test_wer_is_what_accuracy_leaves(pairs):
    hypotheses, references = [pair[0] for pair in pairs], [[pair[1]] for pair in pairs]
    right = accuracy().score(accuracy().statistics(hypotheses, references).sum(0))
    wrong = item_error_rate().score(item_error_rate().statistics(hypotheses, references).sum(0))
    assert right + wrong == pytest.approx(100)


def test_group_by_source_keeps_order_and_drops_repeats():
    pairs = [("read", "R EH D"), ("cat", "K AE T"), ("read", "R IY D"), ("cat", "K AE T")]
    assert group_by_source(pairs) == (["read", "cat"], [["R EH D", "R IY D"], ["K AE T"]])


def test_a_pronouncing_dictionary_is_measured_within_seconds():
    rng = random.Random(0)
    references = [[" ".join(rng.choices("ABCDEFGH", k=8))] for _ in range(12_000)]
    hypotheses = [" ".join(rng.choices("ABCDEFGH", k=8)) for _ in references]
    start = time.perf_counter()
    measure(["per"], hypotheses, references)
    assert time.perf_counter() - start < 10


# --- translation


def test_tokenised_lowercased_bleu_by_hand():
    #   hypothesis: der hund läuft schnell .      (5 tokens)
    #   reference:  der hund läuft sehr schnell . (6 tokens)
    # common n-grams: 5 of 5, 3 of 4 (hund-läuft, der-hund, schnell-.), 1 of 3, 0 of 2
    zero = measure(
        ["bleu_tokenised_lowercased"],
        ["Der Hund läuft schnell."],
        [["der Hund läuft sehr schnell."]],
        "de",
    )
    assert zero["bleu_tokenised_lowercased"] == 0.0  # not smoothed
    # with a second item, `EINE KATZE SCHLÄFT HIER .`, right but for its case:
    # 5+5 of 5+5, 3+4 of 4+4, 1+3 of 3+3, 0+2 of 2+2; lengths 10 and 11
    both = measure(
        ["bleu_tokenised_lowercased"],
        ["Der Hund läuft schnell.", "EINE KATZE SCHLÄFT HIER."],
        [["der Hund läuft sehr schnell."], ["Eine Katze schläft hier."]],
        "de",
    )
    product = (10 / 10) * (7 / 8) * (4 / 6) * (2 / 4)
    expected = 100 * math.exp(1 - 11 / 10) * product**0.25
    assert both["bleu_tokenised_lowercased"] == pytest.approx(expected)
    signature = both["bleu_tokenised_lowercased_signature"]
    assert "tok:moses-de|" in signature and "case:lc" in signature and "smooth:none" in signature


def test_moses_tokeniser_normalises_lowercases_and_leaves_hyphens():
    tokenise = moses_tokeniser("de")
    assert tokenise("Saftig-grünes Gras & der Bart.") == "saftig-grünes gras & der bart ."
    assert tokenise("Ein „Hund“ …") == tokenise('ein "hund" ...')
    assert tokenise("") == ""


def test_detokenised_bleu_counts_case_where_the_old_one_does_not():
    hypotheses, references = ["the old dog sleeps here."], [["The old dog sleeps here."]]
    scores = measure(["bleu", "bleu_tokenised_lowercased"], hypotheses, references, "en")
    assert scores["bleu"] < 100
    assert scores["bleu_tokenised_lowercased"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("", "13a"),
        ("de", "13a"),
        ("zh", "zh"),
        ("zh-CN", "zh"),
        ("zho_Hans", "zh"),
        ("ZH", "zh"),
        ("ko", "char"),
        ("kor_Hang", "char"),
    ],
)
def test_the_target_language_chooses_the_tokenizer_and_the_signature_says_so(language, tokenizer):
    assert bleu_tokenizer(language) == tokenizer
    scores = measure(["bleu"], ["我 是 学生 。"], [["我是学生。"]], language)
    assert f"|tok:{tokenizer}|" in scores["bleu_signature"]


@pytest.mark.parametrize(
    ("installed", "tokenizer"), [({"MeCab", "ipadic"}, "ja-mecab"), ({"MeCab"}, "char")]
)
def test_japanese_is_split_by_mecab_only_where_it_is_installed(monkeypatch, installed, tokenizer):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name in installed or None)
    assert bleu_tokenizer("ja") == tokenizer


def test_base_language():
    assert [base_language(c) for c in ("pt_BR", " de ", "", "deu")] == ["pt", "de", "", "de"]


def test_long_items_take_little_time():
    """As many as a text of a user may have, in each metric that compares all with all."""
    a, b = (" ".join(random.Random(seed).choices("abcdefgh", k=20_000)) for seed in (1, 2))
    began = time.process_time()
    scores = measure(["cer", "per", "rouge-l", "character-error-rate"], [a], [[b]])
    scores |= {"run": measure(["f1"], [a[:20_000]], [[b[:20_000]]], "zh")["f1"]}
    assert all(0 < score < 100 for score in scores.values() if isinstance(score, float))
    assert time.process_time() - began < 20  # minutes in Python


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_rouge_l_and_the_longest_run_are_what_their_definitions_say(a, b):
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
    text, reference = " ".join(a), " ".join(b)
    score = measure(["rouge-l"], [text], [[reference]])["rouge-l"]
    expected = scorer.score(reference, text)["rougeL"].fmeasure
    assert score == pytest.approx(100 * expected)
    runs = [k for k in range(10) for i in range(len(a)) if has_run(b, a[i : i + k], k)]
    assert _longest_common_run(a, b) == max(runs, default=0)


def has_run(units, run, length):
    places = range(len(units) - length + 1)
    return len(run) == length and any(units[i : i + length] == run for i in places)


def test_what_an_item_is_too_long_for_is_left_out(caplog: pytest.LogCaptureFixture):
    long = "a " * 501
    scores = measure(["bleu", "ter"], ["a b c d", long], [["a b c d"], ["a"]])
    assert set(scores) == {"bleu", "bleu_signature"}
    assert "ter of item 2 would take too much time: it has 501 words" in caplog.text
    assert "ter" in measure(["ter"], ["a b"], [[long[: 2 * 499]]])
    chinese = "学" * 501  # a word each
    assert set(measure(["ter"], ["学"], [[chinese]], "zh")) == set()


def test_chinese_needs_no_spaces_to_be_nearly_right():
    hypothesis, reference = "我是一个好学生。", "我是一个学生。"
    scores = measure(["bleu", "ter"], [hypothesis], [[reference]], "zh")
    assert scores["bleu"] > 40
    assert scores["ter"] < 50  # as one word it would be 100
    assert "asian:yes" in scores["ter_signature"]


def test_measure_gives_percent_and_signatures():
    lines = sentences(20)
    scores = measure(METRICS, lines, single(lines), "en")
    for name in METRICS:
        best = 100 if make_metric(name).higher_is_better else 0
        assert scores[name] == pytest.approx(best), name
    assert {name for name in scores if name.endswith("_signature")} == {
        "rouge-1_signature",
        "rouge-2_signature",
        "rouge-l_signature",
        "bleu_signature",
        "bleu_tokenised_lowercased_signature",
        "chrf_signature",
        "ter_signature",
        "word-error-rate_signature",
        "character-error-rate_signature",
        "exact_match_signature",
        "f1_signature",
    }
    assert scores["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")


def test_signature_says_how_many_references():
    bleu = make_metric("bleu", "de")
    assert bleu.signature([["a", "b"], ["c", "d"]]).startswith("nrefs:2|")
    assert bleu.signature([["a", "b"], ["c"]]).startswith("nrefs:var|")
    assert bleu.signature([["a"]]).startswith("nrefs:1|")


# --- labels


def test_macro_f1_by_hand():
    references = ["a", "a", "a", "a", "b", "b", "c", "d"]
    hypotheses = ["a", "a", "a", "b", "b", "a", "e", "d"]
    # precision and recall: a 3/4, 3/4; b 1/2, 1/2; c 0/0, 0/1; d 1, 1; e 0/1, 0/0
    expected = 100 * (3 / 4 + 1 / 2 + 0 + 1 + 0) / 5
    scores = measure(["accuracy", "macro-f1"], hypotheses, single(references))
    assert scores == {"accuracy": 62.5, "macro-f1": pytest.approx(expected)}


def test_macro_f1_takes_the_reference_that_was_answered():
    assert measure(["macro-f1"], [" b  c\n", "a"], [["a", "b c"], ["a"]]) == {"macro-f1": 100.0}


def test_macro_f1_weighs_rare_labels_alike():
    references = ["often"] * 98 + ["seldom"] * 2
    scores = measure(["accuracy", "macro-f1"], ["often"] * 100, single(references))
    assert scores["accuracy"] == 98.0
    assert scores["macro-f1"] == pytest.approx(100 * (2 * 98 / 198) / 2)


def test_systems_with_labels_of_their_own_are_compared():
    references = single(["a", "b"] * 50)
    result = paired_bootstrap(make_metric("macro-f1"), ["a", "x"] * 50, ["a", "b"] * 50, references)
    assert (result.score_a, result.score_b) == (pytest.approx(100 / 3), 100.0)
    assert result.p_value < 0.05


# --- what every metric promises


@pytest.mark.parametrize("name", METRICS)
def test_statistics_add_up(name):
    references = single(sentences(30))
    hypotheses = corrupted(sentences(30), 0.3)
    metric = make_metric(name, "en")
    rows = metric.statistics(hypotheses, references)
    assert metric.name == name
    assert rows.shape[0] == 30 and rows.dtype == np.float64
    parts = [metric.statistics(hypotheses[i : i + 7], references[i : i + 7]) for i in (0, 7, 14)]
    parts.append(metric.statistics(hypotheses[21:], references[21:]))
    if name != "macro-f1":  # its columns are the labels that occur
        assert np.array_equal(np.concatenate(parts), rows)
    assert measure([name], hypotheses, references, "en")[name] == metric.score(rows.sum(0))


@pytest.mark.parametrize("name", METRICS)
def test_empty_hypotheses_are_measured_not_dropped(name):
    references = single(sentences(4))
    score = measure([name], ["", "", "", ""], references)[name]
    assert score == (0 if make_metric(name).higher_is_better else 100)


@pytest.mark.parametrize("name", METRICS)
def test_refusals(name):
    def refusal(hypotheses, references):
        with pytest.raises(DataError) as caught:
            measure([name], hypotheses, references)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "nothing to measure" in refusal([], [])
    message = refusal(["a", "b", "c"], [["a"]])
    assert "3 hypotheses" in message and "1 items" in message
    assert "item 2 has no reference" in refusal(["a", "b"], [["a"], []])
    assert "item 1" in refusal(["a"], ["a"])


def test_unknown_metric_names_the_nearest():
    with pytest.raises(SettingError, match="'blue' is not a metric; did you mean 'bleu'"):
        measure(["blue"], ["a"], [["a"]])
    with pytest.raises(SettingError, match="accuracy"):
        make_metric("xyz")


def test_the_page_explains_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    for name in METRICS:
        assert f"`{name}`" in page


# --- ROUGE


class TestRouge:
    @pytest.fixture(autouse=True)
    def package(self) -> None:
        pytest.importorskip("rouge_score", reason="needs the extra `rouge`")

    def test_by_hand(self) -> None:
        """Stems cat, sat, mat and a, cat, mat: two of three are common, and no pair; the second
        reference is the closer one."""
        scores = measure(metrics_named("rouge"), ["Cats sat, mats"], [["dogs", "a cat mat"]])
        assert scores["rouge-1"] == pytest.approx(100 * 2 * 2 / 6)
        assert scores["rouge-2"] == 0.0
        assert scores["rouge-l"] == pytest.approx(100 * 2 * 2 / 6)
        assert "nrefs:2|case:lower|tok:words|stem:porter" in scores["rouge-1_signature"]

    def test_chinese_by_characters(self) -> None:
        """Units 中, 文, abc on both sides, in another order."""
        scores = measure(metrics_named("rouge"), ["中文ABC。"], [["文中 abc"]], "zh-CN")
        assert scores["rouge-1"] == pytest.approx(100)
        assert scores["rouge-2"] == 0.0
        assert scores["rouge-l"] == pytest.approx(100 * 2 / 3)
        assert "tok:words-and-cjk-characters|stem:none" in scores["rouge-l_signature"]

    def test_a_mean_over_items_and_words_with_umlauts(self) -> None:
        scores = measure(["rouge-1"], ["Äpfel", "x"], [["äpfel"], ["y"]], "de")
        assert scores["rouge-1"] == pytest.approx(50)

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
        with pytest.raises(SettingError, match="'rouge-1' needs the extra 'rouge'"):
            measure(["rouge-1"], ["a"], [["a"]])


def test_metrics_named():
    assert metrics_named("bleu") == ["bleu"]
    assert metrics_named("rouge") == ["rouge-1", "rouge-2", "rouge-l"]
    with pytest.raises(SettingError, match="'rogue' is not a metric"):
        metrics_named("rogue")


def test_character_error_rate_counts_every_character():
    # kitten, sitting: 3 edits of 7; a capital and a dot: 2 of 3
    assert measure(["cer"], ["kitten"], [["sitting"]])["cer"] == pytest.approx(100 * 3 / 7)
    assert measure(["cer"], ["ab"], [["Ab."]])["cer"] == pytest.approx(100 * 2 / 3)


@pytest.mark.parametrize("name", ["bleu", "bleu_tokenised_lowercased"])
def test_bleu_of_short_references_is_explained(name, caplog):
    short = ["edaf", "a b c"] * 5
    assert measure([name], short, single(short))[name] == 0
    assert [record.message for record in caplog.records] == [
        f"no reference has 4 words, so {name} is 0 even for perfect outputs; measure accuracy, cer "
        "or chrf"
    ]
    caplog.clear()
    assert measure([name], [*short, "a b c d"], single([*short, "a b c d"]))[name] > 99
    assert measure(["bleu"], ["我是学生"], [["我是学生"]], "zh")["bleu"] > 99
    assert measure(["chrf", "ter", "accuracy"], short, single(short))["accuracy"] == 100
    assert caplog.records == []


def test_the_turkish_capital_with_a_dot_is_an_i() -> None:
    rates = measure(["word-error-rate"], ["istanbul'da"], [["İstanbul'da"]])
    assert rates["word-error-rate"] == 0
    assert measure(["word-error-rate"], ["ılık I"], [["Ilık ı"]], "tur")["word-error-rate"] == 0
    assert measure(["word-error-rate"], ["ılık"], [["Ilık"]], "en")["word-error-rate"] == 100


@pytest.mark.parametrize("metric", ["bleu_tokenised_lowercased", "exact_match", "f1", "rouge-1"])
def test_metrics_without_case_agree_on_turkish_capitals(metric: str) -> None:
    hypothesis, reference = "istanbul izmir bitlis iğdır", "İstanbul İzmir Bitlis İğdır"
    assert measure([metric], [hypothesis], [[reference]], "tr")[metric] == pytest.approx(100)
    if metric in ("bleu_tokenised_lowercased", "rouge-1"):
        dotless = measure([metric], ["ılık ısı ışık ıslak"], [["Ilık Isı Işık Islak"]], "tr")
        assert dotless[metric] == pytest.approx(100)


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("fra", "fr"),
        ("fre", "fr"),
        ("deu_Latn", "de"),
        ("tur", "tr"),
        ("zho_Hans", "zh"),
        ("pt-BR", "pt"),
    ],
)
def test_tags_of_three_letters_have_their_tokeniser(tag: str, code: str) -> None:
    name = "bleu_tokenised_lowercased"
    scores = measure([name], ["l'eau est bonne ici"], [["l'eau est bonne ici"]], tag)
    assert f"moses-{code}" in str(scores[f"{name}_signature"])
