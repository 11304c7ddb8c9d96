"""Confidence in outputs, and the estimate of their quality that is calibrated from it."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import transduce
from helpers.command_line import transduce as command
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce import DataError, Run, RunError
from transduce.tasks.translation.quality_estimation import (
    Confidence,
    QualityEstimator,
    confidences,
    correlation,
    fit_quality,
    isotonic,
    load_quality,
    save_quality,
)

WORDS = ["abc", "edcba", "aa", "", "bbbd", "dcab" * 5, "eeea", "ab"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    data = write_tsv(directory / "a.tsv", reversal_pairs(600, longest=8))
    settings = ("training.steps=60", "data.filters.max_length=12", "training.schedule.peak=0.01")
    return train_tiny(data, directory / "run", *settings)[0]


@pytest.fixture(scope="module")
def run(path: Path) -> Run:
    return transduce.load(path, device="cpu")


class TestConfidence:
    def test_adds_up_to_what_the_search_reports(self, run: Run) -> None:
        for beam_size in (1, 4):
            options = replace(run.recipe.decoding, beam_size=beam_size)
            translations = run.translate_batch(WORDS, options)
            sure = confidences(run.translator, WORDS, translations)
            assert [c is None for c in sure] == [word == "" for word in WORDS]
            for translation, c in zip(translations, sure, strict=True):
                if c is not None:
                    assert len(c.token_log_probs) == len(translation.tokens)
                    total = sum(c.token_log_probs) + sum(c.end_log_probs)
                    assert total == pytest.approx(translation.log_prob, abs=1e-3)
        assert len(sure[5].end_log_probs) == 2  # type: ignore[union-attr]

    def test_company_does_not_matter(self, run: Run) -> None:
        translations = run.translate_batch(WORDS)
        together = QualityEstimator(run.translator, None).fields(WORDS, translations)
        for word, one, fields in zip(WORDS, translations, together, strict=True):
            (alone,) = QualityEstimator(run.translator, None).fields([word], [one])
            assert set(alone) == set(fields)
            for name in fields:
                assert alone[name] == pytest.approx(fields[name], abs=1e-4)

    def test_mean_by_hand(self) -> None:
        c = Confidence((math.log(0.5), math.log(0.25)), (math.log(0.125),), 2)
        assert c.mean == pytest.approx(0.25)
        assert c.fields()["token_log_probs"] == [round(math.log(p), 6) for p in (0.5, 0.25)]


def made_up(n: int, seed: int = 1) -> tuple[list[Confidence], np.ndarray]:
    """Outputs whose score is, up to noise, what their probability says."""
    chance = random.Random(seed)
    sure, scores = [], []
    for _ in range(n):
        level = chance.random()
        tokens = [math.log(max(1e-3, min(1, chance.gauss(level, 0.1)))) for _ in range(5)]
        sure.append(Confidence(tuple(tokens), (-0.1,), 5))
        scores.append(100 * level**2 + chance.gauss(0, 3))
    return sure, np.array(scores)


class TestQuality:
    def test_isotonic_regression_is_the_best_rising_fit(self) -> None:
        chance = random.Random(3)
        for n in (1, 2, 5, 30):
            x = np.array([chance.random() for _ in range(n)])
            y = np.array([chance.choice([0.0, 1.0, 2.5]) for _ in range(n)])
            knots = isotonic(x, y)
            assert (np.diff(knots[0]) > 0).all() and (np.diff(knots[1]) > 0).all()
            ordered = y[np.argsort(x)]
            best = [
                max(min(ordered[i : j + 1].mean() for j in range(k, n)) for i in range(k + 1))
                for k in range(n)
            ]
            assert sorted(set(np.round(best, 9))) == pytest.approx(np.round(knots[1], 9))

    def test_estimates_are_calibrated_on_what_was_not_seen(self) -> None:
        quality = fit_quality(*made_up(500))
        sure, scores = made_up(500, seed=2)
        estimates = np.array(quality.estimate(sure))
        result = correlation(estimates, scores)
        assert result.pearson > 0.9 and result.spearman > 0.9
        for low, high in ((0, 25), (25, 50), (50, 110)):
            there = (estimates >= low) & (estimates < high)
            assert estimates[there].mean() == pytest.approx(scores[there].mean(), abs=5)
        assert quality.estimate([None, sure[0]]) == [0.0, estimates[0]]
        assert quality.estimate([]) == []

    def test_correlations(self) -> None:
        up = np.array([1.0, 2.0, 3.0, 4.0])
        assert correlation([1, 10, 100, 1000], up).spearman == pytest.approx(1)
        assert correlation([1, 10, 100, 1000], up).pearson < 0.9
        assert correlation([4, 3, 2, 1], up) == pytest.approx((-1, -1))
        assert correlation([5, 5, 5, 5], up) == (0, 0)
        # scipy.stats.spearmanr([1, 2, 2, 3], [1, 3, 2, 4]) is 0.9487
        ties = correlation([1, 2, 2, 3], np.array([1.0, 3.0, 2.0, 4.0]))
        assert ties.spearman == pytest.approx(0.9487, abs=1e-4)

    def test_too_few(self) -> None:
        with pytest.raises(DataError, match="pairs with an output, not 5"):
            fit_quality(*made_up(5))

    def test_file(self, path: Path, tmp_path: Path) -> None:
        weights = (path / "weights.safetensors").read_bytes()
        (tmp_path / "weights.safetensors").write_bytes(weights)
        assert load_quality(tmp_path) is None
        quality = fit_quality(*made_up(50))
        save_quality(quality, tmp_path, {"fitted_on": 50})
        again = load_quality(tmp_path)
        sure, _ = made_up(9, seed=5)
        assert again is not None and again.estimate(sure) == quality.estimate(sure)
        (tmp_path / "weights.safetensors").write_bytes(weights + b"x")
        with pytest.raises(RunError, match="is for other weights"):
            load_quality(tmp_path)
        for text in ("{", "[]", json.dumps({"features": []})):
            (tmp_path / "quality.json").write_text(text)
            with pytest.raises(RunError, match="is damaged"):
                load_quality(tmp_path)


@pytest.mark.system
def test_from_the_command_line(path: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text('{"source": "abc", "id": 7}\n{"source": "dea"}\n')
    done = command("translate", path, tmp_path / "in", "--confidence")
    assert "--jsonl" in done.complaint
    arguments = ("translate", path, tmp_path / "in", "--jsonl", "--confidence")
    first = json.loads(command(*arguments).lines[0])
    assert set(first) == {
        *("id", "source", "translation", "score", "tokens"),
        *("confidence", "token_log_probs"),
    }
    done = command("calibrate", path, "--json")
    facts = json.loads(done.lines[0])
    assert set(facts["test"]) >= {"pearson", "spearman", "mean_log_prob"}
    second = json.loads(command(*arguments).lines[0])
    assert 0 <= second["quality"] <= 100 and {**first, "quality": second["quality"]} == second
