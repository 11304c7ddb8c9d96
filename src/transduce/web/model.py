"""A model in one file for the engine in WebAssembly: facts as JSON, then its weights."""

from __future__ import annotations

import json
from ctypes import c_int32
from typing import Any

from transduce.decoding.native_search import search_numbers
from transduce.decoding.options import not_native
from transduce.engine.library import SearchOptions
from transduce.engine.pair_shape import model_shape
from transduce.engine.shape import unsupported
from transduce.errors import SettingError
from transduce.explain.live import Precision, packed_arrays, tokenizer_facts
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD

FORMAT = 1
FORBIDDEN = (BOS, PAD)
LIMITS = (
    "min_length",
    "min_length_ratio",
    "max_length_ratio",
    "max_length_extra",
)


def model_file(translator: Translator, name: str, precision: Precision) -> bytes:
    """The file of a translator.  name: of the run.

    precision: of matrices; the engine multiplies in it.  Embeddings are float32, as in the engine,
    so that int8 outputs are those of its own int8.

    Raises SettingError, with the setting, for a model, tokenizer or search that the engine lacks.
    """
    facts = model_facts(translator, name, precision)
    weights = translator.model.state_dict()
    embeddings = [name for name in weights if name.endswith((".embedding.weight", ".table.weight"))]
    arrays, content = packed_arrays(weights, precision, embeddings)
    text = json.dumps({**facts, "arrays": arrays}, ensure_ascii=False).encode()
    return len(text).to_bytes(4, "little") + text + content


def model_facts(translator: Translator, name: str, precision: Precision) -> dict[str, Any]:
    """Facts of a model that stand in the file beside its arrays.  Raises SettingError as above."""
    options, config = translator.options, translator.recipe.model
    reasons = [unsupported(config), *(f"decoding.{setting}" for setting in not_native(options))]
    if options.method == "sample":
        reasons.append("decoding.method = 'sample'")
    if options.minimum_risk != "none":
        reasons.append("decoding.minimum_risk")
    if named := ", ".join(filter(None, reasons)):
        raise SettingError(f"the engine for web pages has no {named}")
    source, target = translator.source, translator.target
    tokenizers = [source] if source is target else [source, target]
    shape = model_shape(config, source.size, target.size, precision)
    return {
        "format": FORMAT,
        "run": name,
        "precision": precision,
        "shape": list(bytes(shape)),
        "target_size": target.size,
        "tokenizers": [tokenizer_facts(tokenizer) for tokenizer in tokenizers],
        "tagged": translator.config.expected_tags is not None,
        "max_source_length": translator.config.max_source_length,
        "limits": {
            **{limit: getattr(options, limit) for limit in LIMITS},
            "max_target_length": translator.config.max_target_length,
        },
        "rules": {
            **search_numbers(options),
            "eos": EOS,
            "threads": 1,
            "n_forbidden": len(FORBIDDEN),
        },
        "rule_fields": [field[0] for field in SearchOptions._fields_ if field[1] is c_int32],
        "forbidden": FORBIDDEN,
    }


def parameters(translator: Translator) -> int:
    """Numbers of a model; tied ones count once."""
    tensors = translator.model.parameters()
    return sum({tensor.data_ptr(): tensor.numel() for tensor in tensors}.values())
