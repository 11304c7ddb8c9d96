"""Requests to text-embeddings-inference against `transduce serve`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.served import Served, library, served
from helpers.served_runs import embedding_run, label_run

TEXTS = ["abc", "xyz", "abc xyz"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tei")
    embedding_run(place / "vectors")
    label_run(place / "labels")
    return place


@pytest.fixture(scope="module")
def both(runs: Path) -> Iterator[Served]:
    with served(runs / "vectors", runs / "labels", "--max-texts", 20) as result:
        yield result


@pytest.fixture(scope="module")
def vectors(runs: Path) -> list[list[float]]:
    return [list(answer.embedding) for answer in library(runs / "vectors").predict(TEXTS)]  # type: ignore[attr-defined]


def test_embed(both: Served, vectors: list[list[float]]) -> None:
    for normalize in (True, False):
        status, result = both.ask("/embed", {"inputs": TEXTS, "normalize": normalize})
        assert status == 200 and result == [pytest.approx(vector, abs=1e-6) for vector in vectors]
    status, result = both.ask("/embed", {"inputs": TEXTS[0], "truncate": True})
    assert status == 200 and result == [pytest.approx(vectors[0], abs=1e-6)]


def test_the_hub_client(both: Served, vectors: list[list[float]]) -> None:
    hub = pytest.importorskip("huggingface_hub")
    client = hub.InferenceClient(f"{both.url}/embed")
    (result,) = client.feature_extraction(TEXTS[1])
    assert result.tolist() == pytest.approx(vectors[1], abs=1e-6)


def test_rerank(both: Served, vectors: list[list[float]]) -> None:
    status, result = both.ask("/rerank", {"query": "abc", "texts": TEXTS[::-1]})
    assert status == 200 and [set(one) for one in result] == [{"index", "score"}] * 3
    assert result[0] == {"index": 2, "score": pytest.approx(1, abs=1e-6)}
    assert result == sorted(result, key=lambda one: -one["score"])
    cosine = sum(a * b for a, b in zip(vectors[0], vectors[1], strict=True))
    assert {one["index"]: one["score"] for one in result}[1] == pytest.approx(cosine, abs=1e-6)
    _, result = both.ask("/rerank", {"query": "abc", "texts": ["abc"], "return_text": True})
    assert result[0]["text"] == "abc"


def test_predict(both: Served, runs: Path) -> None:
    texts = ["the red dog", "an oak"]
    expected = list(library(runs / "labels").predict(texts))
    status, result = both.ask("/predict", {"inputs": [[text] for text in texts]})
    assert status == 200 and len(result) == 2
    for one, prediction in zip(result, expected, strict=True):
        assert one[0]["label"] == prediction.text
        assert {each["label"]: each["score"] for each in one} == pytest.approx(
            prediction.probabilities  # type: ignore[attr-defined]
        )
        assert one == sorted(one, key=lambda each: -each["score"])
    for one_input in (texts[0], texts[:1]):
        alone = both.ask("/predict", {"inputs": one_input})[1]
        assert [each["label"] for each in alone] == [each["label"] for each in result[0]]


def test_info(both: Served) -> None:
    status, result = both.ask("/info")
    assert status == 200 and result["model_id"] == "vectors, labels"
    assert set(result["model_type"]) == {"embedding", "classifier"}
    assert result["max_client_batch_size"] == 20


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/embed", {"inputs": []}, 422, "missing inputs"),
        ("/embed", {"inputs": [" "]}, 422, "input 1 is blank"),
        ("/embed", {"inputs": [["a"]]}, 422, "not a list of strings"),
        ("/embed", {"inputs": ["a"] * 21}, 413, "exceeds text limit"),
        ("/embed", {"inputs": "a", "normalize": 1}, 422, "normalize is not true or false"),
        ("/rerank", {"query": "a", "texts": []}, 422, "missing texts"),
        ("/rerank", {"query": "a", "texts": ["a", " "]}, 422, "texts[1] is blank"),
        ("/rerank", {"query": " ", "texts": ["a"]}, 422, "the query is blank"),
        ("/predict", {"inputs": 5}, 422, "input 1 is not a text"),
        ("/predict", {"inputs": [["a", "b"]]}, 422, "this model takes 1"),
        ("/predict", {"inputs": ["a", "b"]}, 422, "this model takes 1"),
        ("/predict", {"inputs": [[]]}, 422, "input 1 is not a text"),
        ("/predict", {"inputs": [["a"], "b", 5]}, 422, "input 3 is not a text"),
    ],
)
def test_mistakes(both: Served, path: str, body: object, status: int, message: str) -> None:
    result, answer = both.ask(path, body)
    assert (result, set(answer)) == (status, {"error", "error_type"})
    assert message in answer["error"] and answer["error_type"] == "Validation"


def test_without_such_a_run(server: Served) -> None:
    status, answer = server.ask("/embed", {"inputs": "a"})
    assert status == 424 and answer["error_type"] == "Backend"
