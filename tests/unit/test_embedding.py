"""Embedding: a vector for a text, whatever else is in the batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import transduce
from helpers.labelled_texts import BERT
from transduce import DataError, SettingError
from transduce.config import to_toml
from transduce.sequence import Padded
from transduce.tasks.text_encoder.embedding import (
    EmbeddingPrediction,
    TextEmbedder,
    parse_embedding,
)
from transduce.text import BOS, EOS, CharactersConfig, train_tokenizer
from transduce.training.weights import write_tensors


class TestEmbedding:
    def embedder(self, normalize: bool, pooling: str) -> TextEmbedder:
        torch.manual_seed(1)
        model = {"d_model": 16, "encoder": BERT, "segments": True, "pooling": pooling}
        recipe = parse_embedding(
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
        assert found.fields() == embedder.predict([("abc",)])[0].fields()
        assert loaded.info()["dimensions"] == 16

    def test_what_it_does_not_do(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match='task = "classification"') as raised:
            transduce.train({"task": "embedding"}, tmp_path / "run")
        assert "\n" not in str(raised.value)
        with pytest.raises(DataError, match="no references"):
            self.embedder(True, "mean").evaluate("test")

    @staticmethod
    def tokens(embedder: TextEmbedder, text: str) -> Padded:
        embedder.model.eval()
        return Padded.from_rows([[BOS, *embedder.tokenizer.encode(text), EOS]])
