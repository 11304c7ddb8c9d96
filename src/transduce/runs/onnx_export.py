"""ONNX directory of a run, laid out as transformers.js and optimum read it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.errors import RunError
from transduce.interop.onnx_graphs import write_encoder, write_encoder_decoder
from transduce.interop.tokenizer_json import Part, exported_id, exported_token, tokenizer_json
from transduce.nn.transformer_config import TransformerConfig
from transduce.support.version import __version__
from transduce.tasks.text_encoder.predictor import EncoderPredictor
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD, UNK, Tokenizer
from transduce.text.imported import ImportedTokenizer
from transduce.training.weights import write_text

FAMILIES = {
    ("post", True): ("bart", "BartForConditionalGeneration"),
    ("pre", True): ("mbart", "MBartForConditionalGeneration"),
    ("pre", False): ("m2m_100", "M2M100ForConditionalGeneration"),
    ("post", False): ("marian", "MarianMTModel"),
}
"""Type of a model and its class, by the order of norms, and learned positions."""
T5 = ("t5", "T5ForConditionalGeneration")
"""Of any width of heads.  Readers of graphs take no more from the type than names of settings."""
HEADS = {
    "classification": "BertForSequenceClassification",
    "embedding": "BertModel",
    "masked-language-model": "BertForMaskedLM",
    "question-answering": "BertForQuestionAnswering",
}
"""Class of a model, by task."""
MULTILINGUAL = {
    "NllbTokenizer": r"[a-z]{3}_[A-Z][a-z]{3}",
    "M2M100Tokenizer": r"__[a-z]{2,3}__",
    "MBart50Tokenizer": r"[a-z]{2}_[A-Z]{2}",
}
"""Tokens of languages, by the class of the tokenizer that has them."""
ROLES = {"pad_token": PAD, "unk_token": UNK, "bos_token": BOS, "eos_token": EOS}
GREEDY = """\
```python
import json, numpy, onnxruntime, tokenizers

encoder = onnxruntime.InferenceSession("onnx/encoder_model.onnx")
decoder = onnxruntime.InferenceSession("onnx/decoder_model_merged.onnx")
source, target = (tokenizers.Tokenizer.from_file(f"{{name}}.json") for name in {names})
start, end = {start}, {end}
ids = numpy.array([source.encode(text).ids])
fixed = {{"encoder_attention_mask": numpy.ones_like(ids)}}
memory = encoder.run(None, {{"input_ids": ids, "attention_mask": numpy.ones_like(ids)}})[0]
empty = lambda part: numpy.zeros((1, part.shape[1], 0, part.shape[3]), "float32")
cache = {{part.name: empty(part) for part in decoder.get_inputs()[3:]}}
output = new = start
while output[-1] != end and len(output) < {longest}:
    step = {{"input_ids": numpy.array([new]), "encoder_hidden_states": memory, **fixed, **cache}}
    logits, *present = decoder.run(None, step)
    new, cache = [int(logits[0, -1].argmax())], dict(zip(cache, present))
    output = output + new
print(target.decode(output))
```
"""
ONE_PASS = """\
```python
import numpy, onnxruntime, tokenizers

model = onnxruntime.InferenceSession("onnx/model.onnx")
encoding = tokenizers.Tokenizer.from_file("tokenizer.json").encode(text)
inputs = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}
inputs["token_type_ids"] = encoding.type_ids
names = [part.name for part in model.get_inputs()]
print(model.run(None, {name: numpy.array([inputs[name]]) for name in names}))
```
"""


def write_onnx(predictor: Any, task: str, directory: Path, positions: int) -> str:
    """Write graphs, tokenizers and settings of a predictor into a directory.

    positions: of tables without a limit of their own, and for outputs.  Returns usage, in Markdown.
    Raises RunError for a task or model without an ONNX export, SettingError where the extra `onnx`
    is missing.
    """
    if isinstance(predictor, Translator):
        return _write_translator(predictor, directory, positions)
    if isinstance(predictor, EncoderPredictor):
        return _write_encoder(predictor, task, directory, positions)
    raise RunError(f"ONNX export is for translation and encoders of texts, not {task}")


def _write_translator(translator: Translator, directory: Path, positions: int) -> str:
    source, target = translator.source, translator.target
    config, options = translator.recipe.model, translator.options
    write_encoder_decoder(translator.model, source, target, positions, _graphs(directory))
    encoder, decoder = config.encoder, config.decoder
    assert isinstance(encoder, TransformerConfig) and isinstance(decoder, TransformerConfig)
    opening = getattr(target, "opening", ())
    special = {name: exported_id(target, token) for name, token in ROLES.items()}
    ids = {f"{name}_id": token for name, token in special.items() if token >= 0}
    ids["decoder_start_token_id"] = ids["bos_token_id"]
    width = (decoder.d_head or 0) * decoder.n_heads
    family = FAMILIES[decoder.norm_order, decoder.positions == "learned"]
    kind, architecture = T5 if width not in (0, config.d_model) else family
    settings = {
        "is_encoder_decoder": True,
        "d_model": config.d_model,
        "vocab_size": target.size,
        "encoder_layers": encoder.n_layers,
        "encoder_attention_heads": encoder.n_heads,
        "encoder_ffn_dim": encoder.d_ff,
        "decoder_layers": decoder.n_layers,
        "decoder_attention_heads": decoder.n_heads,
        "decoder_ffn_dim": decoder.d_ff,
        "num_layers": encoder.n_layers,
        "num_decoder_layers": decoder.n_layers,
        "num_heads": decoder.n_heads,
        "d_kv": decoder.d_head or config.d_model // decoder.n_heads,
        "max_position_embeddings": positions,
    }
    _write_json(directory / "config.json", _typed(kind, architecture) | settings | ids)
    banned = {special["pad_token"], special["bos_token"]} - {special["eos_token"], -1}
    generation: dict[str, Any] = {
        **ids,
        "max_length": positions,
        "num_beams": options.beam_size,
        "bad_words_ids": [[token] for token in sorted(banned)],
    }
    if opening:
        generation["forced_bos_token_id"] = exported_id(target, opening[0])
    _write_json(directory / "generation_config.json", generation)
    end: list[Part] = [EOS] if source.ends_sources else []
    for name, tokenizer in (("tokenizer", source), ("target_tokenizer", target)):
        if name == "tokenizer" or not _are_alike(source, target):
            before: Sequence[int] = getattr(tokenizer, "opening", ())
            single: list[Part] = [*before, "A", *end]
            _write_tokenizer(directory, name, tokenizer, {**ROLES}, before, (single, single))
    names = ("tokenizer", "tokenizer" if _are_alike(source, target) else "target_tokenizer")
    start = [special["bos_token"], *(exported_id(target, token) for token in opening)]
    longest = min(positions, options.max_length_for(translator.config.max_source_length))
    return GREEDY.format(names=names, start=start, end=special["eos_token"], longest=longest)


def _are_alike(source: Tokenizer, target: Tokenizer) -> bool:
    """True if outputs can be decoded by the source's tokenizer."""
    if isinstance(source, ImportedTokenizer) and isinstance(target, ImportedTokenizer):
        return source.renumbered(target.numbering).to_bytes() == target.to_bytes()
    return source is target


def _write_encoder(
    predictor: EncoderPredictor[Any], task: str, directory: Path, positions: int
) -> str:
    tokenizer, config = predictor.tokenizer, predictor.config
    write_encoder(predictor.model, tokenizer, positions, _graphs(directory))
    assert isinstance(config.encoder, TransformerConfig)
    settings: dict[str, Any] = {
        "vocab_size": tokenizer.size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.encoder.n_layers,
        "num_attention_heads": config.encoder.n_heads,
        "intermediate_size": config.encoder.d_ff,
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
        "pad_token_id": max(exported_id(tokenizer, PAD), 0),
    }
    labels: Mapping[int, str] = dict(enumerate(getattr(predictor, "labels", ())))
    if labels:
        settings |= {"id2label": labels, "label2id": {label: i for i, label in labels.items()}}
    kind = "bert" if config.segments else "distilbert"
    architecture = HEADS[task] if config.segments else f"Distil{HEADS[task]}"
    _write_json(directory / "config.json", _typed(kind, architecture) | settings)
    roles = {**ROLES, "cls_token": BOS, "sep_token": EOS, "mask_token": tokenizer.size}
    pair: list[Part] = [BOS, "A", *[EOS] * tokenizer.marks_between, "B", EOS]
    _write_tokenizer(directory, "tokenizer", tokenizer, roles, (), ([BOS, "A", EOS], pair))
    return ONE_PASS


def _graphs(directory: Path) -> Path:
    graphs = directory / "onnx"
    graphs.mkdir()
    return graphs


def _typed(kind: str, architecture: str) -> dict[str, Any]:
    return {"model_type": kind, "architectures": [architecture], "transduce_version": __version__}


def _write_tokenizer(
    directory: Path,
    name: str,
    tokenizer: Tokenizer,
    roles: Mapping[str, int],
    opening: Sequence[int],
    around: tuple[Sequence[Part], Sequence[Part]],
) -> None:
    """Write a tokenizer and, of the source, `tokenizer_config.json`."""
    special = [*dict.fromkeys([*roles.values(), *opening])]
    definition = tokenizer_json(tokenizer, special, *around)
    _write_json(directory / f"{name}.json", definition)
    if name != "tokenizer":
        return
    languages: Mapping[str, int] = {}
    if isinstance(tokenizer, ImportedTokenizer):
        languages = tokenizer.numbering.languages
        first = next((tokenizer.piece_there(token) or "" for token in languages.values()), "")
    named = [kind for kind, form in MULTILINGUAL.items() if languages and re.fullmatch(form, first)]
    settings = {
        "tokenizer_class": named[0] if named else "PreTrainedTokenizerFast",
        **{role: exported_token(tokenizer, token) for role, token in roles.items()},
    }
    _write_json(directory / "tokenizer_config.json", settings)


def _write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
