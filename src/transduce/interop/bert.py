"""BERT, RoBERTa and DistilBERT, with the head that their weights were saved with, and
sentence-transformers.

RoBERTa counts positions from the padding id, has no segments, has two end marks between the texts
of a pair, and other names for its heads; DistilBERT has no segments either, and other names
throughout.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from transduce.errors import DataError
from transduce.interop.layers import ACTIVATIONS, Copier, Parts, layer_parts, share
from transduce.interop.read import (
    Checkpoint,
    Config,
    ImportedModel,
    open_checkpoint,
    reordered,
    reordered_bias,
)
from transduce.interop.tokenizers import ENCODER, read_tokenizer
from transduce.models.config import EncoderOnlyConfig
from transduce.nn.stack_configs import PoolerActivation, TransformerConfig
from transduce.settings.sections import to_dict
from transduce.support.files import read_json_object
from transduce.text import Numbering

logger = logging.getLogger("transduce")

_POOLING = {"mean": "mean", "cls": "first", "max": "max"}
_OLDER = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_SETTINGS = tuple(f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert"))


@dataclass(frozen=True)
class SentenceSettings:
    """Settings in the files, with defaults for missing files."""

    pooling: str = "mean"
    normalize: bool = True
    """Scale vectors to length 1."""
    max_length: int | None = None
    """Maximum tokens of a text; None for the limit of the model."""
    lower_case: bool = False
    """Lower-case texts before tokenization."""
    prefix: str = ""
    """Put before every text."""


def read_sentence_settings(directory: Path) -> SentenceSettings:
    """Settings of a sentence-transformers model, or the defaults for other models.  Raises
    DataError."""
    path = directory / "modules.json"
    if not path.is_file():
        return SentenceSettings()
    modules: dict[str, list[dict[str, Any]]] = {"Transformer": [], "Pooling": [], "Normalize": []}
    for module in read_json_object(path, list):
        kind = str(module.get("type", "") if isinstance(module, dict) else "").rpartition(".")[2]
        if kind not in modules:
            raise DataError(f"{path}: module {kind!r} is not supported")
        modules[kind].append(module)
    if (count := len(modules["Pooling"])) != 1:
        raise DataError(
            f"{path} lists {count} Pooling modules instead of one; remove modules.json to use mean "
            "pooling"
        )
    if any(module.get("path") not in (None, "", ".") for module in modules["Transformer"]):
        raise DataError(f"{path}: the Transformer module must be in the directory itself")
    files = [directory / name for name in _SETTINGS if (directory / name).is_file()]
    settings = read_json_object(files[0]) if files else {}
    max_length = settings.get("max_seq_length")
    return SentenceSettings(
        pooling=_pooling(directory, modules["Pooling"][0].get("path", "1_Pooling"), path),
        normalize=bool(modules["Normalize"]),
        max_length=max_length if isinstance(max_length, int) and max_length > 0 else None,
        lower_case=settings.get("do_lower_case") is True,
        prefix=_prefix(directory / "config_sentence_transformers.json"),
    )


def _pooling(directory: Path, location: Any, modules: Path) -> str:
    parts = location.split("/") if isinstance(location, str) else [""]
    if {"", ".", ".."} & set(parts) or "\\" in location or Path(location).is_absolute():
        raise DataError(
            f"{modules}: the Pooling path {location!r} is not a directory beside this file"
        )
    path = directory / location / "config.json"
    settings = read_json_object(path)
    if settings.get("include_prompt") is False:
        raise DataError(f"{path}: include_prompt = false is not supported")
    if "pooling_mode" in settings:  # one setting in newer files, in older ones one for each way
        mode = settings["pooling_mode"]
        chosen = mode if isinstance(mode, list) else [mode]
    else:
        prefix = "pooling_mode_"
        on = [name for name, value in settings.items() if name.startswith(prefix) and value is True]
        chosen = [_OLDER.get(name, name.removeprefix(prefix)) for name in on]
    if len(chosen) != 1 or chosen[0] not in tuple(_POOLING):
        raise DataError(
            f"{path}: pooling by {' and '.join(map(repr, chosen)) or 'nothing'} is not "
            f"supported; use one of {', '.join(map(repr, _POOLING))}"
        )
    return _POOLING[chosen[0]]


def _prefix(path: Path) -> str:
    """The default prompt; others are told, as one prefix stands before all texts of a run."""
    settings = read_json_object(path) if path.is_file() else {}
    prompts, name = settings.get("prompts"), settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        return ""
    prefix = prompts.get(name, "") if isinstance(name, str) else ""
    if others := sorted({text for text in prompts.values() if text not in ("", prefix)}):
        message = "%s: for texts with another prompt (%s) import it again, with --set text.prefix=…"
        logger.warning(message, path, ", ".join(map(repr, others)))
    return str(prefix)


MAX_LENGTH = 512
"""Maximum tokens per input for models with more positions."""
BERT_BUFFERS = (r"embeddings\.(position_ids|token_type_ids)",)
_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_WORDPIECE = dict(zip(_ROLES, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), strict=True))
_BYTE_LEVEL = dict(zip(_ROLES, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True))
_DISTILBERT_SETTINGS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "seq_classif_dropout",
}


_BERT = layer_parts(
    "attention.self.query attention.self.key attention.self.value attention.output.dense "
    "attention.output.LayerNorm",
    "intermediate.dense output.dense output.LayerNorm",
)
_DISTILBERT = layer_parts(
    "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm",
    "ffn.lin1 ffn.lin2 output_layer_norm",
)


@dataclass(frozen=True)
class _Family:
    prefix: str
    stack: str
    """Name before the number of a layer."""
    layer: Parts
    tokenizer: str
    """Usual class of its tokenizer."""
    special_tokens: dict[str, str]
    segments: bool
    """Segment embeddings for the texts of a pair."""
    masked_head: tuple[str, str, str]
    """Dense layer, layer norm and vocabulary of the masked-token head."""
    masked_bias: str
    label_head: tuple[str, str]
    """Dense layer and scores of the classification head."""
    pooler_activation: PoolerActivation = "tanh"
    marks_between: Literal[1, 2] = 1
    """End marks between the texts of a pair."""


_FAMILIES = {
    "bert": _Family(
        "bert",
        "encoder",
        _BERT,
        "BertTokenizer",
        _WORDPIECE,
        True,
        (
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
        ),
        "cls.predictions.bias",
        ("pooler.dense", "classifier"),
    ),
    "roberta": _Family(
        "roberta",
        "encoder",
        _BERT,
        "RobertaTokenizer",
        _BYTE_LEVEL,
        False,
        ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder"),
        "lm_head.bias",
        ("classifier.dense", "classifier.out_proj"),
        marks_between=2,
    ),
    "distilbert": _Family(
        "distilbert",
        "transformer",
        _DISTILBERT,
        "BertTokenizer",
        _WORDPIECE,
        False,
        ("vocab_transform", "vocab_layer_norm", "vocab_projector"),
        "vocab_projector.bias",
        ("pre_classifier", "classifier"),
        "relu",
    ),
}
_TASKS = {
    "Model": "embedding",
    "ForMaskedLM": "masked-language-model",
    "ForPreTraining": "masked-language-model",
    "ForSequenceClassification": "classification",
    "ForQuestionAnswering": "question-answering",
}


def import_bert(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` bert, roberta or distilbert."""
    kind = str(config.values["model_type"])
    family = _FAMILIES[kind]
    if kind == "distilbert":
        config = _as_bert(config)
    task = _task(config, kind)
    checkpoint = open_checkpoint(directory)
    checkpoint.rename(r"LayerNorm\.gamma$", "LayerNorm.weight")  # as TensorFlow had them
    checkpoint.rename(r"LayerNorm\.beta$", "LayerNorm.bias")
    checkpoint.rename(rf"^{family.prefix}\.", "")
    sentence = read_sentence_settings(directory) if task == "embedding" else SentenceSettings()
    rows = config.integer("vocab_size")
    tokenizer = read_tokenizer(
        directory,
        rows,
        ENCODER,
        family.special_tokens,
        family.marks_between,
        sentence.lower_case,
        family.tokenizer,
    )
    copier = Copier(checkpoint)
    model = _encoder(config, family, copier, tokenizer.numbering)
    max_length = min(model.encoder.max_positions, sentence.max_length or MAX_LENGTH, MAX_LENGTH)  # type: ignore[union-attr]
    recipe: dict[str, Any] = {
        "task": task,
        "text": {"tokenizer": {"kind": tokenizer.kind}, "max_length": max_length},
    }
    labels = None
    settings = to_dict(model)
    match task:
        case "embedding":
            settings["pooling"] = sentence.pooling
            recipe["evaluation"] = {"normalize": sentence.normalize}
            recipe["text"]["prefix"] = sentence.prefix
        case "masked-language-model":
            _masked_head(config, family, copier, tokenizer.numbering)
        case "classification":
            labels = _label_head(config, family, copier)
            settings |= {"pooling": "first", "pooler": True}
            settings["pooler_activation"] = family.pooler_activation
            recipe["head"] = {"dropout": _head_dropout(config)}
        case "question-answering":
            copier.linear("head.output", "qa_outputs", config.integer("hidden_size"), 2)
            part = min(64, max_length // 4)
            recipe["text"] |= {"max_question": part, "stride": part}
    needless = [r"cls\.seq_relationship\..*"]
    if task != "classification":
        needless.append(r"pooler\..*")
    if task != "masked-language-model":
        needless.append(r"cls\.predictions\..*|lm_head\..*|vocab_\w+\..*")
    left_out = checkpoint.finish(needless, BERT_BUFFERS)
    tokenizers = {"tokenizer": tokenizer}
    return ImportedModel(
        {**recipe, "model": settings}, copier.weights, tokenizers, labels, left_out
    )


def _as_bert(config: Config) -> Config:
    config.require("sinusoidal_pos_embds", False, False)
    renamed = {ours: config.values.get(theirs) for ours, theirs in _DISTILBERT_SETTINGS.items()}
    return Config({**config.values, **renamed}, config.path)


def _task(config: Config, kind: str) -> str:
    name = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}[kind]
    architecture = config.architecture(f"{name}Model")
    config.require("is_decoder", False, False)
    config.require("add_cross_attention", False, False)
    config.require("position_embedding_type", "absolute", "absolute")
    task = _TASKS.get(architecture.removeprefix(name))
    if task is None or not architecture.startswith(name):
        known = ", ".join(name + ending for ending in _TASKS)
        raise DataError(f"{config.path}: {architecture} is not supported; use {known}")
    return task


def _encoder(
    config: Config, family: _Family, copier: Copier, numbering: Numbering
) -> EncoderOnlyConfig:
    m, d_ff = config.integer("hidden_size"), config.integer("intermediate_size")
    n_layers = config.integer("num_hidden_layers")
    positions, segments = _positions_and_segments(config, family, copier.checkpoint, m)
    output = f"{family.masked_head[2]}.weight"
    table = copier.checkpoint.first_of("embeddings.word_embeddings.weight", output)
    words = copier.checkpoint.take(table, numbering.size, m)
    copier.weights["front_end.embedding.weight"] = reordered(words, numbering.rows_and_mask)
    if segments is not None:
        copier.weights["front_end.segments.weight"] = segments
    copier.weights["encoder.positions.table.weight"] = positions
    copier.norm("encoder.embedding_norm", "embeddings.LayerNorm", m)
    for i in range(n_layers):
        theirs = f"{family.stack}.layer.{i}."
        copier.layer(f"encoder.layers.{i}", theirs, family.layer, m, d_ff)
    encoder = TransformerConfig(
        n_layers=n_layers,
        n_heads=config.integer("num_attention_heads"),
        d_ff=d_ff,
        activation=config.one_of("hidden_act", ACTIVATIONS, "gelu"),
        norm_order="post",
        positions="learned",
        max_positions=len(positions),
        dropout=share(config, "hidden_dropout_prob", 0.1),
        attention_dropout=share(config, "attention_probs_dropout_prob", 0.1),
        embedding_norm=True,
        norm_epsilon=config.number("layer_norm_eps", 1e-12),
    )
    return EncoderOnlyConfig(
        d_model=m, encoder=encoder, scale_embeddings=False, segments=segments is not None
    )


def _positions_and_segments(
    config: Config, family: _Family, checkpoint: Checkpoint, m: int
) -> tuple[Tensor, Tensor | None]:
    """Tables of positions and segments; a single segment is added to every position."""
    n_positions = config.integer("max_position_embeddings", 512)
    positions = checkpoint.take("embeddings.position_embeddings.weight", n_positions, m)
    if family.prefix == "roberta":
        padding = config.token("pad_token_id")
        positions = positions[(1 if padding is None else padding) + 1 :]
    if family.prefix == "distilbert":
        return positions, None
    n_types = config.integer("type_vocab_size", 2)
    types = checkpoint.take("embeddings.token_type_embeddings.weight", n_types, m)
    if family.segments and n_types > 1:
        return positions, types[:2]  # nothing that we read has a third
    return positions + types[0], None


def _masked_head(config: Config, family: _Family, copier: Copier, numbering: Numbering) -> None:
    """Copy the masked-token head, whose matrix is the embedding."""
    m = config.integer("hidden_size")
    checkpoint = copier.checkpoint
    dense, norm, decoder = family.masked_head
    if config.one_of("hidden_act", ACTIVATIONS, "gelu") != "gelu" and family.prefix != "roberta":
        raise DataError(
            f"{config.path}: a masked-token head with hidden_act = "
            f"{config.values['hidden_act']!r} is not supported, only with 'gelu'"
        )
    if numbering.mask is None:
        raise DataError(f"{config.path.parent}: the tokenizer has no mask token")
    copier.linear("head.dense", dense, m, m)
    copier.norm("head.norm", norm, m)
    rows = list(numbering.rows_and_mask)
    if f"{decoder}.weight" in checkpoint:
        matrix = checkpoint.take(f"{decoder}.weight", numbering.size, m)
        tied = copier.weights["front_end.embedding.weight"]
        if not torch.equal(reordered(matrix, rows), tied):
            raise DataError(
                f"{config.path.parent}: {decoder}.weight differs from the word embeddings; only "
                "tied weights are supported"
            )
    # Old files have the bias by two names, new ones by one of them.
    names = [name for name in (f"{decoder}.bias", family.masked_bias) if name in checkpoint]
    names = list(dict.fromkeys(names)) or [family.masked_bias]
    for name in names:
        bias = checkpoint.take(name, numbering.size)
    copier.weights["head.vocabulary.bias"] = reordered_bias(bias, rows)


def _label_head(config: Config, family: _Family, copier: Copier) -> tuple[str, ...]:
    m = config.integer("hidden_size")
    labels = config.labels()
    if config.values.get("problem_type") not in (None, "single_label_classification"):
        raise DataError(
            f"{config.path}: problem_type = {config.values['problem_type']!r} is not supported, "
            "only one label per text"
        )
    pooler, output = family.label_head
    copier.linear("head.hidden", pooler, m, m)
    copier.linear("head.output", output, m, len(labels))
    return labels


def _head_dropout(config: Config) -> float:
    if config.values.get("classifier_dropout") is not None:
        return share(config, "classifier_dropout", 0.1)
    return share(config, "hidden_dropout_prob", 0.1)
