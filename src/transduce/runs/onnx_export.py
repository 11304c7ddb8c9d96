"""ONNX directory of a run, laid out as transformers.js and optimum read it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transduce.errors import RunError
from transduce.interop.marian_export import sizes
from transduce.interop.onnx_graphs import write_encoder, write_encoder_decoder
from transduce.interop.tokenizer_json import Part, exported_id, exported_token, tokenizer_json
from transduce.nn.transformer_config import TransformerConfig
from transduce.tasks.text_encoder.predictor import EncoderPredictor
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD, UNK, HuggingFaceTokenizer, MarianTokenizer, Tokenizer
from transduce.text.imported import ImportedTokenizer
from transduce.text.subword import SubwordTokenizer
from transduce.training.weights import write_text

FAMILIES = {"post": ("marian", "bart"), "pre": ("m2m_100", "mbart")}
"""Type of a model, by the order of norms, without and with learned positions: readers of graphs
take only the names of settings from it.  Heads of another width are those of "t5"."""
MULTILINGUAL = {
    "NllbTokenizer": r"[a-z]{3}_[A-Z][a-z]{3}",
    "M2M100Tokenizer": r"__[a-z]{2,3}__",
    "MBart50Tokenizer": r"[a-z]{2}_[A-Z]{2}",
}
"""Tokens of languages, by the class of the tokenizer that has them."""
ROLES = {"pad_token": PAD, "unk_token": UNK, "bos_token": BOS, "eos_token": EOS}


def write_onnx(predictor: Any, task: str, directory: Path, positions: int) -> None:
    """Write graphs, tokenizers and settings of a predictor into a directory.

    positions: of tables without a limit of their own, and for outputs.  Raises RunError for a task
    or model without an ONNX export, SettingError if the extra `onnx` is missing.
    """
    graphs = directory / "onnx"
    graphs.mkdir(exist_ok=True)
    if isinstance(predictor, Translator):
        source, target = predictor.source, predictor.target
        write_encoder_decoder(predictor.model, source, target, positions, graphs)
        _write_translator(predictor, directory, positions)
    elif isinstance(predictor, EncoderPredictor):
        write_encoder(predictor.model, predictor.tokenizer, positions, graphs)
        _write_encoder(predictor, directory)
    else:
        raise RunError(f"ONNX export is for translation and encoders of texts, not {task}")


def _write_translator(translator: Translator, directory: Path, positions: int) -> None:
    source, target = translator.source, translator.target
    config = translator.recipe.model
    decoder = config.decoder
    assert isinstance(decoder, TransformerConfig)
    if decoder.norm_order not in FAMILIES:
        raise RunError(f"ONNX export has no model.decoder.norm_order = {decoder.norm_order!r}")
    numbers = {f"{name}_id": exported_id(target, token) for name, token in ROLES.items()}
    ids = {name: number for name, number in numbers.items() if number >= 0}
    ids["decoder_start_token_id"] = ids["bos_token_id"]
    width = decoder.d_head or config.d_model // decoder.n_heads
    kind = FAMILIES[decoder.norm_order][decoder.positions == "learned"]
    widths = sizes(config)
    settings = {
        "model_type": kind if width * decoder.n_heads == config.d_model else "t5",
        "is_encoder_decoder": True,
        "vocab_size": target.size,
        "max_position_embeddings": positions,
        **widths,
        "num_layers": widths["encoder_layers"],
        "num_decoder_layers": decoder.n_layers,
        "num_heads": decoder.n_heads,
        "d_kv": width,
        **ids,
    }
    _write_json(directory / "config.json", settings)
    never = {ids.get("pad_token_id", -1), ids["bos_token_id"]} - {ids["eos_token_id"], -1}
    opening = [exported_id(target, token) for token in getattr(target, "opening", ())]
    generation = {
        **ids,
        "forced_bos_token_id": opening[0] if opening else None,
        "bad_words_ids": [[token] for token in sorted(never)],
        "num_beams": translator.options.beam_size,
        "max_length": positions,
    }
    _write_json(directory / "generation_config.json", generation)
    end = [EOS] if source.ends_sources else []
    for name, tokenizer in (("tokenizer", source), ("target_tokenizer", target)):
        before = getattr(tokenizer, "opening", ())
        single: list[Part] = [*before, "A", *getattr(tokenizer, "closing", ()), *end]
        if name == "tokenizer" or tokenizer is not source:
            _write_tokenizer(directory / name, tokenizer, {**ROLES}, (single, single), before)


def _write_encoder(predictor: EncoderPredictor[Any], directory: Path) -> None:
    tokenizer, config = predictor.tokenizer, predictor.config
    assert isinstance(config.encoder, TransformerConfig)
    labels = dict(enumerate(getattr(predictor, "labels", ())))
    settings = {
        "model_type": "bert" if config.segments else "distilbert",
        "vocab_size": tokenizer.size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.encoder.n_layers,
        "num_attention_heads": config.encoder.n_heads,
        **({"id2label": labels, "label2id": {n: i for i, n in labels.items()}} if labels else {}),
    }
    _write_json(directory / "config.json", settings)
    roles = {**ROLES, "cls_token": BOS, "sep_token": EOS, "mask_token": tokenizer.size}
    pair: list[Part] = [BOS, "A", *[EOS] * tokenizer.marks_between, "B", EOS]
    _write_tokenizer(directory / "tokenizer", tokenizer, roles, ([BOS, "A", EOS], pair))


def _write_tokenizer(
    path: Path,
    tokenizer: Tokenizer,
    roles: dict[str, int],
    around: tuple[Sequence[Part], Sequence[Part]],
    opening: Sequence[int] = (),
) -> None:
    """Write a tokenizer, and how transformers reads it; one of letters or symbols as it is."""
    if not isinstance(tokenizer, HuggingFaceTokenizer | MarianTokenizer | SubwordTokenizer):
        return tokenizer.save(path.with_name(f"transduce_{path.name}{tokenizer.suffix}"))
    marks = tokenizer.numbering.marks.values() if isinstance(tokenizer, ImportedTokenizer) else ()
    definition = tokenizer_json(tokenizer, [*roles.values(), *marks], *around)
    _write_json(path.with_suffix(".json"), definition)
    language = exported_token(tokenizer, opening[0]) if opening else ""
    named = [kind for kind, form in MULTILINGUAL.items() if re.fullmatch(form, language)]
    settings = {"tokenizer_class": (*named, "PreTrainedTokenizerFast")[0]}
    settings |= {role: exported_token(tokenizer, token) for role, token in roles.items()}
    _write_json(path.with_name(f"{path.name}_config.json"), settings)
    return None


def _write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
