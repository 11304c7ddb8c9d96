"""Embedding: a vector for a text, whatever else is in the batch."""

from __future__ import annotations

import math
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import transduce
from helpers.labelled_texts import BERT, settings
from helpers.tiny_run import write_tsv
from transduce import DataError, SettingError, TransduceError
from transduce.metrics.rankings import correlation_scores
from transduce.sequence import Padded
from transduce.settings.sections import to_toml
from transduce.tasks.text_encoder.contrastive import contrastive_loss, pairs_of
from transduce.tasks.text_encoder.predictor import EmbeddingPrediction, TextEmbedder
from transduce.tasks.text_encoder.recipes import (
    ContrastiveConfig,
    EmbeddedTextConfig,
    EmbeddingEvaluation,
    EmbeddingRecipe,
)
from transduce.text import BOS, EOS, CharactersConfig, train_tokenizer
from transduce.training.weights import write_tensors

PAGE = (Path(__file__).parents[2] / "docs" / "classification.md").read_text(encoding="utf-8")


class TestEmbedding:
    def embedder(self, normalize: bool, pooling: str) -> TextEmbedder:
        torch.manual_seed(1)
        model = {"d_model": 16, "encoder": BERT, "segments": True, "pooling": pooling}
        recipe = EmbeddingRecipe.parse(
            {
                "task": "embedding",
                "model": model,
                "text": {"max_length": 64},
                "evaluation": {"normalize": normalize},
            },
            "recipe",
        )
        return TextEmbedder(recipe, train_tokenizer(CharactersConfig(), ["abcdefgh xyz"]))

    @pytest.mark.parametrize("pooling", ["mean", "first"])
    def test_vectors(self, pooling: str) -> None:
        embedder = self.embedder(False, pooling)
        texts = [("abc",), ("",), ("a",), ("abc abc xyz",)]
        found = embedder.predict(texts)
        assert [len(vector.embedding) for vector in found] == [16, 0, 16, 16]
        assert found[1].text == ""
        assert [float(x) for x in found[0].text.split()] == pytest.approx(found[0].embedding)
        for text, vector in zip(texts, found, strict=True):
            assert vector.embedding == pytest.approx(
                embedder.predict([text])[0].embedding, abs=1e-5
            )
        hidden = embedder.model.encoder(embedder.model.front_end(self.tokens(embedder, "abc")))
        by_hand = hidden.values[0].mean(0) if pooling == "mean" else hidden.values[0, 0]
        assert found[0].embedding == pytest.approx(by_hand.tolist(), abs=1e-5)

    def test_of_length_one(self) -> None:
        plain = torch.tensor(self.embedder(False, "mean").predict([("abc",)])[0].embedding)
        unit = torch.tensor(self.embedder(True, "mean").predict([("abc",)])[0].embedding)
        assert unit.norm().item() == pytest.approx(1)
        assert unit.allclose(plain / plain.norm(), atol=1e-6)

    def test_saved_and_loaded(self, tmp_path: Path) -> None:
        embedder = self.embedder(True, "mean")
        embedder.tokenizer.save(tmp_path / "tokenizer.json")
        write_tensors(tmp_path / "weights.safetensors", embedder.model.state_dict())
        (tmp_path / "recipe.toml").write_text(to_toml(embedder.recipe))
        loaded = transduce.load(tmp_path)
        (found,) = loaded.predict(["abc"])
        assert isinstance(found, EmbeddingPrediction)
        expected = embedder.predict([("abc",)])[0].embedding
        assert found.embedding == pytest.approx(expected, abs=1e-5)
        assert loaded.info()["dimensions"] == 16

    def test_measured_on_pairs_given(self) -> None:
        embedder = self.embedder(False, "mean")
        texts = [("abc", "abc"), ("abc", "xyz"), ("abc", "abx"), ("h", "abc xyz")]
        unit = {
            text: F.normalize(torch.tensor(embedder.predict([(text,)])[0].embedding), dim=0)
            for pair in texts
            for text in pair
        }
        cosines = [float(unit[a] @ unit[b]) for a, b in texts]
        examples = [((f"{a}\t{b}",), str(x)) for (a, b), x in zip(texts, cosines, strict=True)]
        found = embedder.evaluate("test", examples)
        assert found.scores["spearman"] == pytest.approx(100)
        assert found.scores["pearson"] == pytest.approx(100)
        assert found.sources[1] == "abc\txyz"
        with pytest.raises(DataError, match="line 1 is not"):
            embedder.evaluate("test", [(("abc",), "1")])
        with pytest.raises(DataError, match=r"line 1 of the references: .* 'high' is not a number"):
            embedder.evaluate("test", [(("a\tb",), "high")])

    @staticmethod
    def tokens(embedder: TextEmbedder, text: str) -> Padded:
        embedder.model.eval()
        return Padded.from_rows([[BOS, *embedder.tokenizer.encode(text), EOS]])


class TestLoss:
    def test_by_hand(self) -> None:
        """Two pairs of plane vectors; temperature ½, so that scores are twice the cosines."""
        first = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        second = torch.tensor([[3.0, 0.0], [3.0, 4.0]])
        scores = torch.tensor([[2.0, 1.2], [0.0, 1.6]])
        rows = math.log(1 + math.exp(1.2 - 2.0)), math.log(1 + math.exp(0.0 - 1.6))
        columns = math.log(1 + math.exp(0.0 - 2.0)), math.log(1 + math.exp(1.2 - 1.6))
        sums = contrastive_loss(first, second, torch.tensor([[0, 1], [2, 3]]), 0.5)
        assert sums.tokens == 2
        assert sums.total.item() == pytest.approx((sum(rows) + sum(columns)) / 2, abs=1e-6)
        assert F.cross_entropy(scores, torch.arange(2)).item() == pytest.approx(sum(rows) / 2)

    def test_equal_texts_are_no_negatives(self) -> None:
        vectors = torch.eye(3)
        apart = contrastive_loss(vectors, vectors, torch.tensor([[0, 1], [2, 3], [4, 5]]), 1.0)
        alike = contrastive_loss(vectors, vectors, torch.tensor([[0, 1], [1, 3], [4, 5]]), 1.0)
        assert apart.total.item() == pytest.approx(3 * math.log(1 + 2 / math.e), abs=1e-6)
        two_left = 2 * math.log(1 + 1 / math.e) + math.log(1 + 2 / math.e)
        assert alike.total.item() == pytest.approx(two_left, abs=1e-6)


class TestTraining:
    """Pairs of one topic, whose words never meet; a second text shares no word with the first."""

    TOPICS = ("ab", "cd", "ef", "gh")

    def pairs(self, n: int, seed: int) -> list[tuple[str, str, str]]:
        """Two texts, and 1 if they are of one topic."""
        chance = random.Random(seed)
        found = []
        for _ in range(n):
            a, b = chance.choice(self.TOPICS), chance.choice(self.TOPICS)
            found.append((a[0] * chance.randint(1, 5), b[1] * chance.randint(1, 5), f"{a == b:d}"))
        return found

    def settings(self, tmp_path: Path, *overrides: str) -> dict[str, Any]:
        train = [pair[:2] for pair in self.pairs(600, 1) if pair[2] == "1"]
        scored = {"kind": "tsv", "second": 1, "label": 2}
        valid = write_tsv(tmp_path / "valid.tsv", self.pairs(60, 2))
        test = write_tsv(tmp_path / "test.tsv", self.pairs(60, 3))
        file = write_tsv(tmp_path / "train.tsv", train)
        recipe = settings(file, "text.max_length=16", *overrides)
        recipe["data"] = {
            "train": {"kind": "tsv", "path": str(file), "second": 1},
            "valid": {**scored, "path": str(valid)},
            "test": {**scored, "path": str(test)},
        }
        recipe["training"] |= {"select_by": "spearman", "steps": 30, "validate_every": 10}
        recipe["training"].pop("label_smoothing")
        return {**recipe, "task": "embedding"}

    def test_topics_come_together(self, tmp_path: Path) -> None:
        path, _ = transduce.train(self.settings(tmp_path), tmp_path / "run")
        run = transduce.load(path)
        scores = run.evaluate("test").scores
        assert scores["pearson"] > 75
        assert run.info()["validation"]["spearman"] > 65
        (vector,) = run.predict(["aab"])
        assert torch.tensor(vector.embedding).norm().item() == pytest.approx(1)

    def test_pairs_that_belong_together(self, tmp_path: Path) -> None:
        file = write_tsv(tmp_path / "a.tsv", [("a", "b", "4.5"), ("c", "d", "3"), ("e", "f", "4")])
        train = {"kind": "tsv", "path": str(file), "second": 1, "label": 2}

        def pairs(**settings: Any) -> list[tuple[str, str]]:
            data = {"train": train, "valid": train, **settings}
            recipe = EmbeddingRecipe.parse({"task": "embedding", "data": data}, "recipe")
            return list(pairs_of(recipe.data, "train"))

        assert pairs(min_score=4) == [("a", "b"), ("e", "f")]
        assert pairs() == [("a", "b"), ("c", "d"), ("e", "f")]
        alone = {**train, "second": None, "label": 9}
        assert pairs(train=alone) == [("a", "a"), ("c", "c"), ("e", "e")]
        with pytest.raises(SettingError, match=r"data\.train: scored pairs need two texts"):
            pairs(train=alone, min_score=4)

    def test_one_text_is_dropout_alone(self, tmp_path: Path) -> None:
        recipe = self.settings(tmp_path, "model.encoder.dropout=0.3")
        recipe["data"]["train"].pop("second")
        recipe["data"].pop("valid")
        recipe["data"]["hold_out"] = 0.2
        recipe["training"] |= {"select_by": "loss", "steps": 4, "validate_every": 4}
        run = transduce.load(transduce.train(recipe, tmp_path / "run")[0])
        assert set(run.info()["validation"]) == {"loss"}
        assert "spearman" in run.evaluate("test").scores
        with pytest.raises(DataError, match="the valid pairs have no scores"):
            run.evaluate("valid")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"second": None}, "data.valid: scored pairs need two texts"),
            ({"label": 1}, "row 1: the score '[a-h]+' is not a number"),
        ],
    )
    def test_mistakes(self, tmp_path: Path, change: dict[str, Any], message: str) -> None:
        recipe = self.settings(tmp_path)
        recipe["data"]["valid"] |= change
        with pytest.raises(TransduceError, match=message) as raised:
            transduce.train(recipe, tmp_path / "run")
        assert "\n" not in str(raised.value)


def test_correlation() -> None:
    """Ranks 0, 1½, 1½, 3 against 3, 0, 2, 1."""
    found = correlation_scores(np.array([1.0, 2.0, 2.0, 9.0]), np.array([8.0, 1.0, 3.0, 2.0]))
    a, b = np.array([-1.5, 0, 0, 1.5]), np.array([1.5, -1.5, 0.5, -0.5])
    assert found["spearman"] == pytest.approx(100 * (a @ b) / np.sqrt((a @ a) * (b @ b)))
    assert correlation_scores(np.ones(3), np.arange(3.0)) == {"spearman": 0.0, "pearson": 0.0}
    with pytest.raises(DataError, match="two items or more"):
        correlation_scores(np.ones(1), np.ones(1))


SECTIONS = (ContrastiveConfig, EmbeddingEvaluation, EmbeddedTextConfig)


def test_every_setting_is_on_the_page() -> None:
    names = [f.name for kind in SECTIONS for f in fields(kind)]
    assert [name for name in names if f"`{name}`" not in PAGE] == []
