"""A page that translates by itself: model, engine and tokenizers in one file."""

import base64
import gzip
import json
import zlib
from collections.abc import Mapping
from ctypes import c_int32
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from transduce.decoding.backend import search_numbers
from transduce.decoding.options import DecodingOptions, not_native
from transduce.decoding.shortlist import Shortlist
from transduce.engine.build import WASM, library_path
from transduce.engine.library import SearchOptions
from transduce.engine.model import unsupported
from transduce.engine.pair_shape import model_shape
from transduce.errors import SettingError
from transduce.explain.live import Precision, packed_arrays
from transduce.explain.page import plain_json, static
from transduce.explain.page_tokenizers import tokenizer_facts
from transduce.tasks.translation.recipe import LanguagesConfig, LanguageTokens
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD

FORMAT = 1


class Additions(NamedTuple):
    """Parts of a run beside its network: a shortlist, and divisors of matrices that came in
    int8."""

    shortlist: Shortlist | None = None
    divisors: Mapping[str, Tensor] = {}


NO_ADDITIONS = Additions()
FORBIDDEN = (BOS, PAD)
LIMITS = (
    "min_length",
    "min_length_ratio",
    "max_length_ratio",
    "max_length_extra",
)


def model_file(
    translator: Translator, name: str, precision: Precision, additions: Additions = NO_ADDITIONS
) -> bytes:
    """The file of a translator, compressed by gzip.  name: of the run.  additions: what its
    directory has besides.

    precision: of matrices; the engine multiplies in it.  Embeddings are float32, as in the engine,
    so that int8 outputs are those of its own int8.

    Raises SettingError, with the setting, for a model, tokenizer or search that the engine lacks.
    """
    facts = model_facts(translator, name, precision)
    weights = translator.model.state_dict()
    embeddings = [name for name in weights if name.endswith((".embedding.weight", ".table.weight"))]
    arrays, content = packed_arrays(weights, precision, embeddings, additions.divisors)
    if translator.options.shortlist and additions.shortlist is not None:
        content += bytes(-len(content) % 4)
        shortlist, numbers = _packed_shortlist(additions.shortlist)
        facts["shortlist"] = {**shortlist, "offset": len(content)}
        content += numbers
    text = json.dumps({**facts, "arrays": arrays}, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)  # so that numbers lie at multiples of their size
    return gzip.compress(len(text).to_bytes(4, "little") + text + content, 9, mtime=0)


def _packed_shortlist(shortlist: Shortlist) -> tuple[dict[str, Any], bytes]:
    """Facts of a shortlist, and its numbers: counts of the source ids, their likely target ids one
    after another, and the frequent ones, in four bytes, two for small vocabularies."""
    kind = "<u2" if shortlist.size <= 1 << 16 else "<u4"
    likely = np.array(shortlist.rows())
    allowed = likely >= 0
    parts = allowed.sum(1), likely[allowed], np.array(shortlist.frequent)
    facts = {"joint": shortlist.joint, "width": int(kind[2]), "lengths": [len(p) for p in parts]}
    return facts, b"".join(part.astype(kind).tobytes() for part in parts)


def model_facts(translator: Translator, name: str, precision: Precision) -> dict[str, Any]:
    """Facts of a model that stand in the file beside its arrays.  Raises SettingError as above.

    translator: with its model.  name: of the run.  precision: of matrix products.
    """
    options, config = translator.options, translator.recipe.model
    reasons = [unsupported(config), *(f"decoding.{setting}" for setting in not_native(options))]
    if options.method == "sample":
        reasons.append("decoding.method = 'sample'")
    if options.minimum_risk != "none":
        reasons.append("decoding.minimum_risk")
    named = ", ".join(filter(None, reasons))
    refusals = [f"the engine for web pages has no {named}"] if named else []
    source, target = translator.source, translator.target
    tokenizers = []
    for tokenizer in [source] if source is target else [source, target]:
        try:
            tokenizers.append(tokenizer_facts(tokenizer))
        except SettingError as error:
            refusals.append(str(error))
    if refusals:
        raise SettingError("; ".join(dict.fromkeys(refusals)))
    shape = model_shape(config, source.size, target.size, precision)
    return {
        "run": name,
        "precision": precision,
        "shape": list(bytes(shape)),
        "target_size": target.size,
        "tokenizers": tokenizers,
        "languages": _languages(translator.recipe.languages),
        "pairs": _pairs(translator.config.languages),
        "tagged": translator.config.expected_tags is not None,
        "max_source_length": translator.config.max_source_length,
        **search_facts(options, translator.config.max_target_length),
    }


def search_facts(options: DecodingOptions, max_target_length: int | None = None) -> dict[str, Any]:
    """Facts of the search of a model: options of decoding, and tokens of an output at most."""
    limits = {limit: getattr(options, limit) for limit in LIMITS}
    return {
        "format": FORMAT,
        "limits": {**limits, "max_target_length": max_target_length},
        "rules": {
            **search_numbers(options),
            "eos": EOS,
            "threads": 1,
            "n_forbidden": len(FORBIDDEN),
        },
        "rule_fields": [field[0] for field in SearchOptions._fields_ if field[1] is c_int32],
        "forbidden": FORBIDDEN,
    }


def _languages(named: LanguagesConfig) -> list[str]:
    """Codes of source and target; empty where there is none, or several."""
    return [code if isinstance(code, str) else "" for code in (named.source, named.target)]


def _pairs(tokens: LanguageTokens | None) -> list[dict[str, int]] | None:
    """Our ids of source and target languages that a text can choose, by their codes."""
    if tokens is None:
        return None
    sides = (tokens.source, tokens.sources), (tokens.target, tokens.targets)
    return [{code: tokenizer.language(code) for code in codes} for tokenizer, codes in sides]


def parameters(translator: Translator) -> int:
    """Numbers of a model; tied ones count once."""
    tensors = translator.model.parameters()
    return sum({tensor.data_ptr(): tensor.numel() for tensor in tensors}.values())


SCRIPTS = (
    ("transduce.explain", "tokenizers.js"),
    ("transduce.explain", "imported.js"),
    ("transduce.web", "translator.js"),
    ("transduce.web", "worker.js"),
)
"""Files that make the script of the page's worker, in this order."""
SHEETS = (("transduce.explain", "base.css"), ("transduce.web", "page.css"))
"""The same of its style."""


def offline_page(
    translator: Translator, name: str, precision: Precision, additions: Additions = NO_ADDITIONS
) -> str:
    """The page of a translator.  name: of the run.  additions: as in `model_file`.

    Raises SettingError for a model that the engine lacks, and without the compiled engine.
    """
    file = model_file(translator, name, precision, additions)
    relaxed, plain = (library_path(instructions).read_bytes() for instructions in WASM)
    worker = "".join(static(*script) for script in SCRIPTS)
    facts: dict[str, Any] = {
        "run": name,
        "precision": precision,
        "parameters": parameters(translator),
        "words": json.loads(static("transduce.web", "words.json")),
        "file": _text(file),
        "relaxed": packed(relaxed),
        "plain": packed(plain),
        "worker": packed(worker.encode()),
    }
    page = static("transduce.web", "page.html")
    page = page.replace("/*STYLE*/", "".join(static(*sheet) for sheet in SHEETS))
    page = page.replace("/*SCRIPT*/", static("transduce.web", "page.js"))
    before, after = page.split("/*MODEL*/")
    size = len((before + after).encode()) + len(plain_json(facts).encode())
    return before + plain_json({**facts, "bytes": size}) + after


def packed(content: bytes) -> str:
    """Content compressed by gzip, in base64."""
    compressor = zlib.compressobj(9, wbits=31, memLevel=7)  # small blocks, 0.5 % less in all
    return _text(compressor.compress(content) + compressor.flush())


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
