"""Encoders of texts in the native engine: answers of PyTorch, alone and in batches."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import transduce
from helpers.hugging_face import byte_level, save, sentences, word_piece
from helpers.native import INSTRUCTIONS, needs_native, odd_stack
from helpers.random_predictors import LINES, drawn
from helpers.stacks import KINDS as STACKS
from transduce import RunError
from transduce.runs.importing import import_run
from transduce.settings.sections import to_toml
from transduce.tasks.labels import FILE
from transduce.tasks.text_encoder import recipes
from transduce.tasks.text_encoder.mask_filler import MaskFiller
from transduce.tasks.text_encoder.predictor import Answerer, TextClassifier, TextEmbedder
from transduce.text import CharactersConfig, train_tokenizer
from transduce.training.weights import weights_of, write_weights

pytestmark = needs_native

TOLERANCE = 1e-5
TEXTS = [("the cat",), ("a",), ("",), ("the dogs ran, and ran and sang",), ("ten",)]
QUESTIONS = [("cat", "the cat sat on the mat, and the dogs ran in the tree"), ("a", "ten cats")]
MASKED = [("the c<mask>t s<mask>t",), ("a <mask>",), ("no mask",)]
KINDS: dict[str, tuple[Any, Any, list[tuple[str, ...]]]] = {
    "classification": (recipes.ClassificationRecipe, TextClassifier, TEXTS),
    "embedding": (recipes.EmbeddingRecipe, TextEmbedder, TEXTS),
    "question-answering": (recipes.QuestionAnsweringRecipe, Answerer, QUESTIONS),
    "masked-language-model": (recipes.MaskedLanguageModelRecipe, MaskFiller, MASKED),
}


def write_run(directory: Path, task: str, **model: Any) -> Path:
    recipe_of, predictor, _ = KINDS[task]
    text = {"max_length": 32} | ({"stride": 4, "max_question": 8} if "question" in task else {})
    settings = {"task": task, "text": text, "model": {"d_model": 20, **model}}
    recipe = recipe_of.parse(settings, "recipe")
    tokenizer = train_tokenizer(CharactersConfig(), LINES)
    labels = [("bad", "fair", "good")] if task == "classification" else []
    made = drawn(predictor(recipe, tokenizer, *labels))
    directory.mkdir()
    tokenizer.save(directory / "tokenizer.json")
    (directory / "recipe.toml").write_text(to_toml(recipe), encoding="utf-8")
    write_weights(directory / "weights.safetensors", weights_of(made.model))
    if labels:
        (directory / FILE).write_text('["bad", "fair", "good"]', encoding="utf-8")
    return directory


def numbers(prediction: Any) -> list[Any]:
    """Texts and numbers of an answer, in order."""
    flat: list[Any] = []

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            part = list(part.values())
        if isinstance(part, list | tuple):
            for inner in part:
                walk(inner)
        else:
            flat.append(part)

    walk(asdict(prediction))
    return flat


def check_agreement(run: Path, inputs: list[tuple[str, ...]], **options: Any) -> Any:
    """The engine's answers are PyTorch's, and the same to the bit for each input alone."""
    native = transduce.load(run, engine="native", **options)
    assert native.engine == "native"
    answers = native.predictor.predict(inputs)
    reference = transduce.load(run, "cpu", engine="pytorch").predictor.predict(inputs)
    for answer, expected in zip(answers, reference, strict=True):
        pairs = list(zip(numbers(answer), numbers(expected), strict=True))
        for one, other in pairs:
            near = isinstance(one, float) and abs(one - other) < TOLERANCE * max(1, abs(other))
            assert one == other or near, pairs
    assert [native.predictor.predict([texts])[0] for texts in inputs] == list(answers)
    return native


@pytest.mark.parametrize("kind", STACKS, ids="-".join)
def test_every_kind_of_stack(kind: Any, tmp_path: Path) -> None:
    task = list(KINDS)[STACKS.index(kind) % len(KINDS)]
    stack = asdict(odd_stack(*kind))
    run = write_run(tmp_path / "run", task, encoder=stack, segments=kind[1] == "pre")
    check_agreement(run, KINDS[task][2], threads=2)


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("pooling", ["first", "mean", "max"])
def test_every_task_and_pooling(task: str, pooling: str, tmp_path: Path) -> None:
    pooler = {"first": {"pooler": True}, "max": {"pooler": True, "pooler_activation": "relu"}}
    settings: dict[str, Any] = {"pooling": pooling, "segments": True, **pooler.get(pooling, {})}
    run = write_run(tmp_path / "run", task, **settings)
    native = check_agreement(run, KINDS[task][2])
    assert native.info()["native_engine"].startswith("yes")
    assert transduce.load(run, "cpu", engine="pytorch").info()["native_engine"].startswith("yes")


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_every_instruction_set(
    instructions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_ENGINE_INSTRUCTIONS", instructions)
    run = write_run(tmp_path / "run", "classification", pooler=True)
    check_agreement(run, [(text,) for text in sentences(40)])


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_reduced_precisions_are_near_and_the_same_in_every_batch(
    precision: Any, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", "embedding")
    texts = [(text,) for text in sentences(30, letters="abcdehimnrst ")]
    exact = transduce.load(run, "cpu", engine="pytorch").predictor.predict(texts)
    native = transduce.load(run, engine="native", precision=precision).predictor
    answers = native.predict(texts)
    for answer, expected in zip(answers, exact, strict=True):
        if expected.embedding:
            cosine = np.dot(answer.embedding, expected.embedding)
            assert cosine > (0.999 if precision == "bf16" else 0.99)
    assert [native.predict([text])[0] for text in texts] == list(answers)


def bert(name: str, directory: Path) -> None:
    small = {"vocab_size": 90, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    shape = transformers.BertConfig(**small, intermediate_size=40, max_position_embeddings=64)
    save(getattr(transformers, f"Bert{name}")(shape), directory)
    word_piece(directory, 90)


def distilbert(name: str, directory: Path) -> None:
    shape = {"dim": 24, "n_heads": 3, "n_layers": 2, "hidden_dim": 31}
    settings = transformers.DistilBertConfig(vocab_size=80, max_position_embeddings=64, **shape)
    save(getattr(transformers, f"DistilBert{name}")(settings), directory)
    word_piece(directory, 80)


def roberta(name: str, directory: Path) -> None:
    small = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2}
    settings = transformers.RobertaConfig(
        vocab_size=300, type_vocab_size=1, max_position_embeddings=66, intermediate_size=40, **small
    )
    save(getattr(transformers, f"Roberta{name}")(settings), directory)
    byte_level(directory, 300, ("<s>", "<pad>", "</s>", "<unk>", "<mask>"))


@pytest.mark.parametrize("make", [bert, distilbert, roberta])
@pytest.mark.parametrize(
    "name", ["Model", "ForSequenceClassification", "ForQuestionAnswering", "ForMaskedLM"]
)
def test_imports(make: Any, name: str, tmp_path: Path) -> None:
    make(name, tmp_path / "model")
    run = import_run(tmp_path / "model", tmp_path / "run")
    texts = sentences(12, seed=3)
    inputs: list[tuple[str, ...]] = [(text,) for text in texts]
    if name == "ForQuestionAnswering":
        inputs = list(zip(texts[:6], texts[6:], strict=True))
    if name == "ForMaskedLM":
        inputs = [(f"{text} <mask> {text}",) for text in texts]
    check_agreement(run, inputs)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it raises
import transduce
for path, *texts in (("{0}", "the cat"), ("{1}", "the cat"), ("{2}", "cat", "the cat sat"),
                     ("{3}", "the c<mask>t")):
    run = transduce.load(path)
    print([answer.text for answer in run.predict([texts[0] if len(texts) == 1 else texts])])
assert not any(name.startswith("torch") and sys.modules[name] for name in sys.modules)
"""


@pytest.mark.system
def test_no_torch_in_the_process(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / task, task) for task in KINDS]
    code = WITHOUT_TORCH.format(*map(str, runs))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = [("the cat",), ("the cat",), ("cat", "the cat sat"), ("the c<mask>t",)]
    expected = [
        [transduce.load(run, "cpu", engine="pytorch").predictor.predict([texts])[0].text]
        for run, texts in zip(runs, answers, strict=True)
    ]
    lines = done.stdout.splitlines()
    assert (
        len(lines) == len(KINDS)
        and lines[0] == str(expected[0])
        and lines[2:] == [str(line) for line in expected[2:]]
    )


def test_what_the_engine_lacks_is_refused_or_computed_by_torch(tmp_path: Path) -> None:
    stack = {"kind": "convolution", "n_layers": 1}
    run = write_run(tmp_path / "run", "classification", encoder=stack)
    with pytest.raises(RunError, match=r"no model\.encoder\.kind = 'convolution'"):
        transduce.load(run, engine="native")
    loaded = transduce.load(run, "cpu", engine="auto")
    assert loaded.engine == "pytorch"
    assert "model.encoder.kind" in loaded.info()["native_engine"]


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "masked-language-model", segments=True)
    network = transduce.load(run, "cpu", engine="pytorch").model
    with torch.no_grad():
        network.get_parameter("head.norm.weight")[0] = float("nan")
    write_weights(run / "weights.safetensors", weights_of(network))
    with pytest.raises(RunError, match=r"head\.norm\.weight is not finite"):
        transduce.load(run, engine="native")
