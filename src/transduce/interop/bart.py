"""BART and its descendants, mBART, M2M100 and NLLB, and T5, mT5 and ByT5.

Their scores are not divided by √d, and outputs over a tied matrix are multiplied by m^-0.5: the
matrices of the queries and the last norm take that in.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import DataError
from transduce.interop.layers import (
    ACTIVATIONS,
    Copier,
    MarianDefaults,
    StackLayout,
    fairseq_sinusoids,
    layer_parts,
    share,
)
from transduce.interop.read import Config, ImportedModel, decoding, open_checkpoint, read_generation
from transduce.interop.tokenizers import (
    MULTILINGUAL,
    STARTED,
    byte_tokenizer,
    read_m2m100_tokenizer,
    read_tokenizer,
    tokenizer_settings,
)
from transduce.models.config import EncoderDecoderConfig
from transduce.nn.stack_configs import NormOrder, TransformerConfig
from transduce.settings.sections import to_dict
from transduce.text import HuggingFaceTokenizer
from transduce.text.imported import ImportedTokenizer
from transduce.text.languages import known_code


class _Kind(NamedTuple):
    """Parts of a family; tokenizer: its usual class."""

    architecture: str
    norm_order: NormOrder
    learned_positions: bool
    scaled: bool
    usual: MarianDefaults
    tokenizer: str


FIRST = "MBartTokenizer"
"""Class of the first mBART, of 25 languages; the language of a source stands last."""
_LARGE = MarianDefaults("gelu", 0.1, n_layers=12, n_heads=16, d_ff=4096)
BART_KINDS = {
    "bart": _Kind("BartForConditionalGeneration", "post", True, False, _LARGE, "BartTokenizer"),
    "mbart": _Kind("MBartForConditionalGeneration", "pre", True, False, _LARGE, FIRST),
    "m2m_100": _Kind(
        "M2M100ForConditionalGeneration",
        "pre",
        False,
        True,
        _LARGE._replace(activation="relu"),
        "M2M100Tokenizer",
    ),
}
"""By `model_type`."""
OFFSET = 2
"""Rows of a table of positions before the first."""
BART_BUFFERS = (r"model\.(encoder|decoder)\.embed_positions\.weights",)
"""Tensors without learned values: sinusoids."""


def import_bart(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` bart, mbart or m2m_100 (NLLB, too)."""
    kind = BART_KINDS[config.values["model_type"]]
    config.known_architecture(kind.architecture)
    checkpoint = open_checkpoint(directory)
    size, m = config.integer("vocab_size"), config.integer("d_model", 1024)
    generation = read_generation(directory, config)
    text = _Texts(directory, config, generation, kind, size)
    numbering = text.source.numbering
    copier = Copier(checkpoint)
    sides = ("encoder", "decoder")
    tie = copier.embeddings(numbering, numbering, m)
    copier.output_bias(numbering.rows, size, "final_logits_bias", rank=2)
    n = config.integer("max_position_embeddings", 1024)
    stacks: dict[str, Any] = {}
    for side in sides:
        if kind.learned_positions:
            name = f"model.{side}.embed_positions.weight"
            table = checkpoint.take(name, n + OFFSET, m)[OFFSET:].clone()
        else:
            table = fairseq_sinusoids(n, m, OFFSET)
        layout = StackLayout(kind.norm_order, kind.learned_positions, table)
        stacks[side] = copier.marian_stack(config, side, m, kind.usual, layout)
    left_out = checkpoint.finish((r"model\.shared\.weight",), BART_BUFFERS)
    model = EncoderDecoderConfig(
        d_model=m,
        tie=tie,
        scale_embeddings=config.flag("scale_embedding", kind.scaled),
        output_bias=True,
        **stacks,
    )
    recipe = {
        "task": "translation",
        "data": {"filters": {"max_length": max(n - 2, 1)}},
        "text": {"source": {"kind": text.source.kind}},
        "model": to_dict(model),
        "languages": text.languages,
        "decoding": decoding(generation, config, opened=text.is_opened),
    }
    return ImportedModel(recipe, copier.weights, text.tokenizers, left_out=left_out)


class _Texts:
    """Tokenizers of both sides, and languages as a recipe names them."""

    def __init__(
        self, directory: Path, config: Config, generation: Config, kind: _Kind, size: int
    ) -> None:
        pad, eos = config.token("pad_token_id"), config.token("eos_token_id")
        start = config.token("decoder_start_token_id")
        if start is None:
            start = generation.token("decoder_start_token_id")
        if pad != OFFSET - 1 or eos is None:
            raise DataError(
                f"{config.path} must set eos_token_id, and pad_token_id to {OFFSET - 1}"
            )
        settings = tokenizer_settings(directory)
        tokenizer: ImportedTokenizer
        classes = (known.get("tokenizer_class") for known in (settings, config.values))
        named = str(next(filter(None, classes), kind.tokenizer)).removesuffix("Fast")
        if named == "M2M100Tokenizer":
            tokenizer = read_m2m100_tokenizer(directory, size, pad, eos if start is None else start)
        else:
            tokenizer = read_tokenizer(directory, size, STARTED, {}, usual=kind.tokenizer)
        codes = tokenizer.numbering.languages
        if named in MULTILINGUAL and not codes:
            raise DataError(
                f"{directory}: the {named} has no tokens of languages; copy tokenizer.json as well"
            )
        named_languages = (str(settings.get(f"{side}_lang") or "") for side in ("src", "tgt"))
        near, far = (known_code(name, codes) for name in named_languages)
        first = near or known_code("en", codes) or min(codes, default="")
        if named == FIRST and start is None and far:
            start = codes[far]
        start = eos if start is None else start
        begun = next((code for code, token in codes.items() if token == start), None)
        forced = generation.token("forced_bos_token_id")
        if (begun or named == FIRST) and bool(begun) == (forced in codes.values()):
            raise DataError(
                f"{config.path}: either decoder_start_token_id, as usual with {FIRST}, or "
                "forced_bos_token_id must be the id of the target language"
            )
        numbering = dataclasses.replace(tokenizer.numbering, bos=start)
        self.languages: dict[str, Any] = {}
        source, target = numbering, dataclasses.replace(numbering, opening=forced)
        self.is_opened = forced is not None or (bool(codes) and not begun)
        if begun:
            source = dataclasses.replace(numbering, opening=codes[first])
            self.languages = {"source": first, "target": begun}
        elif codes:
            self.languages = {
                "source": sorted(codes, key=lambda code: (code != first, code)),
                "target": sorted(codes),
                "tags": "pair",
            }
            target = numbering
            if forced in codes.values():
                self.languages["target"] = next(c for c, i in codes.items() if i == forced)
        elif kind.tokenizer == "BartTokenizer":
            source = dataclasses.replace(numbering, opening=config.token("bos_token_id") or 0)
        is_legacy = named == "NllbTokenizer" and bool(settings.get("legacy_behaviour"))
        source = dataclasses.replace(source, opening_last=is_legacy or named == FIRST)
        self.source, self.target = tokenizer.renumbered(source), tokenizer.renumbered(target)

    @property
    def tokenizers(self) -> dict[str, ImportedTokenizer]:
        """By file name."""
        if self.source.numbering == self.target.numbering:
            return {"tokenizer": self.source}
        return {"source_tokenizer": self.source, "target_tokenizer": self.target}


PROJECTIONS = {
    **ACTIVATIONS,
    "gelu": "gelu",
    "gated-gelu": "geglu",
    "gated-gelu_new": "geglu",
    "gated-silu": "swiglu",
}
"""Kinds of feed-forward networks, by `feed_forward_proj`."""
GATED = ("geglu", "swiglu")
ATTENTION = "{0}.q {0}.k {0}.v {0}.o {1}.layer_norm"
"""Parts of an attention and its norm, by the names of both."""
LONGEST, LONGEST_OF_BYTES = 512, 1024
"""Tokens of a source in training, which positions do not limit."""


def import_t5(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` t5 or mt5 (ByT5 is either)."""
    name = "MT5" if config.values["model_type"] == "mt5" else "T5"
    config.known_architecture(f"{name}ForConditionalGeneration", "T5ForConditionalGeneration")
    checkpoint = open_checkpoint(directory)
    m, size = config.integer("d_model", 512), config.integer("vocab_size", 32128)
    tokenizer = _tokenizer(directory, config, size)
    copier = Copier(checkpoint, without_bias=("",), is_rms=True)
    tie = copier.embeddings(tokenizer.numbering, tokenizer.numbering, m, stack="{}")
    copier.output_bias(tokenizer.numbering.rows, size)
    n_layers = config.integer("num_layers", 6)
    depths = {"encoder": n_layers, "decoder": config.integer("num_decoder_layers", n_layers)}
    stacks: dict[str, Any] = {
        side: _bart_stack(copier, config, side, n, m) for side, n in depths.items()
    }
    scaled = name == "T5" and config.values.get("tie_word_embeddings") is not False
    if config.flag("scale_decoder_outputs", scaled):
        copier.weights["decoder.norm.weight"] *= m**-0.5
    unused = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
    left_out = checkpoint.finish((*unused, r"(shared|(en|de)coder\.embed_tokens)\.weight"))
    model = EncoderDecoderConfig(
        d_model=m, tie=tie, scale_embeddings=False, output_bias=True, **stacks
    )
    of_bytes = _class_of(directory, config) == "ByT5Tokenizer"
    recipe = {
        "task": "translation",
        "data": {"filters": {"max_length": LONGEST_OF_BYTES if of_bytes else LONGEST}},
        "text": {"source": {"kind": tokenizer.kind}},
        "model": to_dict(model),
        "decoding": decoding(read_generation(directory, config), config, opened=False),
    }
    return ImportedModel(recipe, copier.weights, {"tokenizer": tokenizer}, left_out=left_out)


def _class_of(directory: Path, config: Config) -> str:
    named = tokenizer_settings(directory).get("tokenizer_class")
    return str(named or config.values.get("tokenizer_class") or "T5Tokenizer").removesuffix("Fast")


def _tokenizer(directory: Path, config: Config, size: int) -> HuggingFaceTokenizer:
    pad, eos = config.token("pad_token_id"), config.token("eos_token_id")
    start = config.token("decoder_start_token_id")
    start = pad if start is None else start
    if pad is None or eos is None:
        raise DataError(f"{config.path} must set pad_token_id and eos_token_id")
    if _class_of(directory, config) == "ByT5Tokenizer":
        tokenizer = byte_tokenizer(size)
    else:
        tokenizer = read_tokenizer(directory, size, STARTED, {}, usual="T5Tokenizer")
    numbering = dataclasses.replace(tokenizer.numbering, pad=pad, bos=start, eos=eos)
    return tokenizer.renumbered(numbering)


def _bart_stack(
    copier: Copier, config: Config, side: str, n_layers: int, m: int
) -> TransformerConfig:
    """Copy an encoder or decoder; returns its configuration."""
    take, weights = copier.checkpoint.take, copier.weights
    n_heads, d = config.integer("num_heads", 8), config.integer("d_kv", 64)
    d_ff, wide = config.integer("d_ff", 2048), n_heads * d
    activation = config.one_of("feed_forward_proj", PROJECTIONS, "relu")

    last = 1 if side == "encoder" else 2
    network = f"layer.{last}.DenseReluDense"
    inner = f"{network}.wi_0 {network}.wi_1" if activation in GATED else f"{network}.wi"
    parts = layer_parts(
        ATTENTION.format("layer.0.SelfAttention", "layer.0"),
        f"{inner} {network}.wo layer.{last}.layer_norm",
        ATTENTION.format("layer.1.EncDecAttention", "layer.1") if side == "decoder" else "",
    )
    for i in range(n_layers):
        ours = f"{side}.layers.{i}"
        copier.layer(ours, f"{side}.block.{i}.", parts, m, d_ff, wide)
        weights[f"{ours}.self_attention.query_key_value.weight"][:wide] *= math.sqrt(d)
        if side == "decoder":
            weights[f"{ours}.cross_attention.query.weight"] *= math.sqrt(d)
    buckets = config.integer("relative_attention_num_buckets", 32)
    table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    weights[f"{side}.positions.table.weight"] = take(table, buckets, n_heads)
    copier.norm(f"{side}.norm", f"{side}.final_layer_norm", m)
    dropout = share(config, "dropout_rate", 0.1)
    return TransformerConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        d_head=d,
        d_ff=d_ff,
        activation=activation,
        norm_order="pre",
        norm="rms",
        norm_epsilon=config.number("layer_norm_epsilon", 1e-6),
        positions="relative",
        relative_buckets=buckets,
        relative_distance=config.integer("relative_attention_max_distance", 128),
        dropout=dropout,
        attention_dropout=dropout,
        feed_forward_dropout=dropout,
    )
