"""Our figures are sacreBLEU's, to the last digit; our bootstrap draws what sacreBLEU's draws."""

import random
from itertools import zip_longest

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from transduce.metrics import bootstrap_interval, make_metric, paired_bootstrap

LANGUAGES = {
    "en": ['He said: "No!"', "The cat (the old one) sat on the mat.", "3.5% of it, isn't it?", ""],
    "de": ["Der Hund läuft über saftig-grünes Gras.", "Mr. Müller isst 1.000 Äpfel.", "Ja.", "Öl"],
    "zh": ["我是一个学生。", "他说：“你好！”", "ABC公司有300人。", "好"],
    "ko": ["나는 학생입니다.", "그는 “안녕”이라고 말했다.", "회사에 300명이 있다.", "네"],
}


def theirs(name, language):
    """The metric as a user of sacreBLEU would make it."""
    if name == "bleu":
        return sacrebleu.BLEU(tokenize={"zh": "zh", "ko": "char"}.get(language, "13a"))
    if name == "chrf":
        return sacrebleu.CHRF()
    return sacrebleu.TER(normalized=language == "zh", asian_support=language == "zh")


def corpus(language, n_references, seed=0):
    """Noisy hypotheses with n references each, or 1 to 3 each when n is None."""
    rng = random.Random(seed)

    def noisy(line):
        return "".join(c for c in line if rng.random() > 0.15)

    lines = [line for _ in range(10) for line in LANGUAGES[language]]
    hypotheses = [noisy(line) for line in lines]
    references = [
        [line, *(noisy(line) for _ in range((n_references or rng.randint(1, 3)) - 1))]
        for line in lines
    ]
    return hypotheses, references


def streams(references):
    """One list per reference, as sacreBLEU takes them, with None where an item has no such."""
    return [list(stream) for stream in zip_longest(*references)]


@pytest.mark.parametrize("n_references", [1, 2, 3, None])
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_corpus_score_and_signature_are_sacrebleus(name, language, n_references):
    hypotheses, references = corpus(language, n_references)
    ours, other = make_metric(name, language), theirs(name, language)
    expected = other.corpus_score(hypotheses, streams(references)).score
    score = ours.score(ours.statistics(hypotheses, references).sum(0))
    if n_references in (1, 2) or name != "ter":
        assert score == expected
    else:  # a third of a word is not a binary fraction, so the order of the additions shows
        assert score == pytest.approx(expected, rel=1e-12)
    assert 0 < score < 100
    assert ours.signature(references) == str(other.get_signature())


def test_tokenised_bleu_is_sacrebleus_on_text_tokenised_beforehand():
    hypotheses = ["ein hund läuft über das gras .", "zwei männer sitzen , einer steht dort ."]
    references = ["ein hund läuft über grünes gras .", "zwei männer sitzen , einer steht da ."]
    metric = make_metric("bleu_tokenised_lowercased", "de")
    rows = metric.statistics(
        ["Ein Hund läuft über das Gras.", "Zwei Männer sitzen, einer steht dort."],
        [["Ein Hund läuft über grünes Gras."], ["Zwei Männer sitzen, einer steht da."]],
    )
    plain = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    assert metric.score(rows.sum(0)) == plain.corpus_score(hypotheses, [references]).score > 0


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_paired_bootstrap_is_sacrebleus(name, loss, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    a, references = corpus("en", 1, seed=1)
    b, _ = corpus("en", 1, seed=2)
    rng = random.Random(3)
    b = ["".join(c for c in line if rng.random() >= loss) for line in b]
    test = PairedTest(
        [("a", a), ("b", b)], {name: theirs(name, "en")}, streams(references), "bs", 1000
    )
    _, results = test()
    baseline, system = next(value for key, value in results.items() if key != "System")
    ours = paired_bootstrap(make_metric(name, "en"), a, b, references, samples=1000, seed=12345)
    assert (ours.score_a, ours.score_b) == (baseline.score, system.score)
    # The draws are the same, and intervals but for one draw at each end; p-values are not, as
    # `paired_bootstrap` says.
    low, high = bootstrap_interval(make_metric(name, "en"), b, references, 1000, 12345)
    assert (high - low) / 2 == pytest.approx(system.ci, rel=0.03)
    assert system.p_value > 0.05 and ours.p_value > 0.05
