"""`transduce import`: what comes out is a run, and what cannot be imported is said in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers

import transduce
from helpers.command_line import Done
from helpers.hugging_face import byte_level, change_json, save, word_piece, write_json
from helpers.tiny_run import training

Here = Callable[..., Done]
SMALL = {
    "vocab_size": 90,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
}


def bert(directory: Path, kind: str = "BertForSequenceClassification", **changes: Any) -> Path:
    model = getattr(transformers, kind)(transformers.BertConfig(**{**SMALL, **changes}))
    return word_piece(save(model, directory), 90)


def gpt2(directory: Path) -> Path:
    shape = {"n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 32}
    made_of = transformers.GPT2Config(vocab_size=270, bos_token_id=0, eos_token_id=0, **shape)
    save(transformers.GPT2LMHeadModel(made_of), directory)
    return byte_level(directory, 270, ["<|endoftext|>"])


def vit(directory: Path) -> Path:
    made_of = transformers.ViTConfig(
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=1,
        intermediate_size=24,
        image_size=16,
        patch_size=4,
    )
    save(transformers.ViTForImageClassification(made_of), directory)
    pixels = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    write_json(directory / "preprocessor_config.json", pixels)
    return directory


def rewrite(directory: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change the tensors of a model file."""
    file = directory / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    change(tensors)
    safetensors.torch.save_file(tensors, file, {"format": "pt"})


# what comes out


def test_an_import_answers_like_any_run(here: Here, tmp_path: Path) -> None:
    source = bert(tmp_path / "bert", id2label={0: "bad", 1: "good"})
    made = here("import", source, tmp_path / "runs" / "bert")
    assert made.code == 0, made.err
    run = tmp_path / "runs" / "bert"
    assert made.lines == [str(run)]
    (tmp_path / "texts").write_text("abc def\n\nxyz\n")
    answers = here("predict", run, tmp_path / "texts")
    assert [line in ("bad", "good") for line in answers.lines] == [True, False, True]
    facts = json.loads(here("info", run, "--json").out)
    assert facts["task"] == "classification"
    assert facts["recipe"]["text"]["tokenizer"] == {"kind": "hugging-face"}
    card = (run / "README.md").read_text()
    assert "imported from the Hugging Face directory `bert`" in card
    for file in ("README.md", "recipe.toml"):
        assert str(tmp_path) not in (run / file).read_text()


def test_a_classifier_of_pairs(here: Here, tmp_path: Path) -> None:
    source, run = bert(tmp_path / "bert", id2label={0: "no", 1: "yes"}), tmp_path / "run"
    assert here("import", source, run, "--set", "data.pairs=true").code == 0
    (tmp_path / "pairs").write_text("abc def\txyz\n\n")
    answers = here("predict", run, tmp_path / "pairs").lines
    assert answers[0] in ("no", "yes") and answers[1:] == [""]
    (tmp_path / "texts").write_text("abc def\n")
    assert (
        "expected tab-separated text and second"
        in here("predict", run, tmp_path / "texts").complaint
    )
    complaint = here("import", source, tmp_path / "a", "--set", "data.pair=true").complaint
    assert "did you mean 'pairs'" in complaint


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("BertModel", "embedding"),
        ("BertForQuestionAnswering", "question-answering"),
        ("BertForPreTraining", "masked-language-model"),
    ],
)
def test_the_head_decides_the_task(kind: str, task: str, here: Here, tmp_path: Path) -> None:
    made = here("import", bert(tmp_path / "bert", kind), tmp_path / "run")
    assert made.code == 0, made.err
    assert transduce.load(tmp_path / "run", "cpu").info()["task"] == task
    left_out = "pooler.dense" in (tmp_path / "run" / "README.md").read_text()
    assert left_out == (kind != "BertForQuestionAnswering")


def test_a_language_model_and_a_classifier_of_images(here: Here, tmp_path: Path) -> None:
    for make, task in ((gpt2, "language-model"), (vit, "image-classification")):
        run = tmp_path / task
        made = here("import", make(tmp_path / make.__name__), run)
        assert made.code == 0, made.err
        assert transduce.load(run, "cpu").info()["task"] == task
        complaint = here("evaluate", run).complaint
        assert "the run has no data" in complaint and "give --source and --reference" in complaint
    enlarged = here("import", tmp_path / "vit", tmp_path / "x", "--set", "image.size=40").complaint
    assert enlarged.startswith(f"{tmp_path / 'vit'}: 'encoder.positions.table.weight' has shape")
    recipe = transduce.load(tmp_path / "image-classification", "cpu").recipe
    assert recipe.image.mean == (0.1, 0.2, 0.3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("lora", [False, True])
def test_dialogues_start_from_an_imported_language_model(
    lora: bool, here: Here, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    assert here("import", gpt2(tmp_path / "gpt2"), base).code == 0
    (tmp_path / "said.jsonl").write_text('{"turns": ["how are you", "fine"]}\n' * 40)
    message = {"path": str(tmp_path / "said.jsonl")}
    recipe = {
        "task": "dialogue",
        "data": {"train": message, "valid": message},
        "fine_tune": {"run": str(base), **({"lora": {"rank": 2}} if lora else {})},
        "training": training(40, 64, 1e-2, label_smoothing=0.0),
    }
    run, outcome = transduce.train(recipe, tmp_path / "run")
    before, after = (
        safetensors.torch.load_file(place / "weights.safetensors")["front_end.embedding.weight"]
        for place in (base, run)
    )
    assert len(after) == len(before) + 2  # the marks of two roles
    assert outcome.scores["loss"] < (4.0 if lora else 0.5)
    (tmp_path / "asked").write_text("how are you\n")
    (reply,) = here("predict", run, tmp_path / "asked", "--beam-size", 1).lines
    assert lora or reply == "fine"


def test_one_file_or_several(here: Here, tmp_path: Path) -> None:
    whole = bert(tmp_path / "whole")
    model = transformers.BertForSequenceClassification.from_pretrained(whole)
    model.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    word_piece(tmp_path / "shards", 90)
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    for name in ("whole", "shards"):
        assert here("import", tmp_path / name, tmp_path / f"{name}_run").code == 0
    weights = [tmp_path / f"{name}_run" / "weights.safetensors" for name in ("whole", "shards")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    next((tmp_path / "shards").glob("*.safetensors")).unlink()
    message = here("import", tmp_path / "shards", tmp_path / "other").complaint
    assert "is not a complete safetensors file" in message


def test_half_precision_and_the_names_of_old(here: Here, tmp_path: Path) -> None:
    source = bert(tmp_path / "bert")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            old = old.replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name).half()
        tensors["bert.embeddings.position_ids"] = torch.arange(128)[None]

    rewrite(source, change)
    made = here("import", source, tmp_path / "run")
    assert made.code == 0, made.err
    weights = safetensors.torch.load_file(tmp_path / "run" / "weights.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


# a run that is there


def test_a_run_is_not_spoiled(here: Here, tmp_path: Path) -> None:
    source = bert(tmp_path / "bert")
    run = tmp_path / "run"
    assert here("import", source, run).code == 0
    (run / "notes.txt").write_text("mine")
    assert "--overwrite" in here("import", source, run).complaint
    other = bert(tmp_path / "other", id2label={0: "a", 1: "b", 2: "c"})
    broken = bert(tmp_path / "broken")
    rewrite(broken, lambda tensors: tensors.pop("classifier.bias"))
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    assert "classifier.bias" in here("import", broken, run, "--overwrite").complaint
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    assert here("import", other, run, "--overwrite").code == 0
    assert transduce.load(run, "cpu").info()["labels"] == ["a", "b", "c"]
    assert (run / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "broken", "other", "run"]


def test_into_the_directory_where_one_is(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = bert(tmp_path / "bert")
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    assert here("import", source, ".").code == 0
    assert here("import", source, ".", "--overwrite").code == 0
    assert (tmp_path / "run" / "README.md").read_text().count("\n# run\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "run"]


def test_a_directory_of_something_else_stays(here: Here, tmp_path: Path) -> None:
    source = bert(tmp_path / "bert")
    assert "is not a run directory" in here("import", source, source).complaint
    (tmp_path / "file").write_text("")
    assert "is a file" in here("import", source, tmp_path / "file").complaint


# what cannot be imported


def lacks(name: str) -> Callable[[Path], None]:
    return lambda d: rewrite(d, lambda tensors: tensors.pop(name))


def says(**changes: Any) -> Callable[[Path], None]:
    return lambda d: change_json(d / "config.json", **changes)


def more(name: str, tensor: torch.Tensor) -> Callable[[Path], None]:
    return lambda d: rewrite(d, lambda tensors: tensors.update({name: tensor}))


def only_a_pickle(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


DENSE = "bert.encoder.layer.1.intermediate.dense.weight"
WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (only_a_pickle, "weights only in pytorch_model.bin, a pickle"),
        (lambda d: (d / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda d: (d / "model.safetensors").write_bytes(b"x" * 99), "not a complete safetensors"),
        (lambda d: (d / "config.json").unlink(), "has no config.json"),
        (lambda d: (d / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda d: (d / "vocab.txt").unlink(), "has no tokenizer"),
        (lambda d: word_piece(d, 95), "tokenizer has ids up to 94, but the model has only 90"),
        (
            lambda d: write_json(d / "model.safetensors.index.json", {"weight_map": {"a": "../a"}}),
            "outside the directory",
        ),
        (
            lambda d: (d / "vocab.txt").write_text("[UNK]\na\n"),
            "no token marks the beginning of a text",
        ),
        (
            says(model_type="gptj"),
            "bart, bert, roberta, distilbert, gpt2, m2m_100, marian, mbart, mt5",
        ),
        (says(architectures=["BertForTokenClassification"]), "BertForSequenceClassification"),
        (says(hidden_act="mish"), "hidden_act = 'mish' is not supported, only 'gelu'"),
        (says(position_embedding_type="relative_key"), "only 'absolute'"),
        (says(num_attention_heads=3), "n_heads = 3 does not divide d_model = 16"),
        (says(hidden_size="wide"), "hidden_size must be a whole number"),
        (says(num_hidden_layers=None), "has no num_hidden_layers"),
        (says(problem_type="regression"), "problem_type = 'regression'"),
        (says(id2label={"0": "one"}), "id2label must name at least two labels"),
        (says(id2label={"1": "a", "2": "b"}), "id2label must number the labels from 0"),
        (says(vocab_size=91), "(90, 16), but config.json implies (91, 16)"),
        (lacks(DENSE), "the weights lack the tensor 'encoder.layer.1.intermediate.dense.weight'"),
        (says(num_hidden_layers=1), "unexpected tensor 'bert.encoder.layer.1."),
        (more("bert.adapter.weight", torch.ones(2)), "unexpected tensor 'bert.adapter.weight'"),
        (more("classifier.bias", torch.ones(3)), "'classifier.bias' has shape (3,), but"),
        (more(WORDS, torch.ones(90, 16, dtype=torch.int8)), "quantised models are not supported"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    spoil: Callable[[Path], Any], expected: str, here: Here, tmp_path: Path
) -> None:
    source = bert(tmp_path / "bert")
    spoil(source)
    assert expected in here("import", source, tmp_path / "run").complaint
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]


def test_no_such_directory(here: Here, tmp_path: Path) -> None:
    message = here("import", tmp_path / "nowhere", tmp_path / "run").complaint
    assert message.endswith("nowhere is not a directory")
