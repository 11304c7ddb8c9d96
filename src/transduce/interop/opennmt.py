"""Checkpoints of OpenNMT-py: tensors, settings and vocabularies in a file of `torch.save`.

They are read without unpickling anything but tensors, plain values and the settings' Namespace.
"""

import argparse
import dataclasses
import logging
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.errors import DataError, first_line
from transduce.interop.argos import (
    NAMES,
    argos_languages,
    ids_of,
    numbered,
    read_sentencepiece,
    sentencepiece_pair,
)
from transduce.interop.layers import Copier, layer_parts
from transduce.interop.read import Checkpoint, Config, ImportedModel, text_kinds
from transduce.interop.tokenizers import word_tokenizer
from transduce.models.config import EncoderDecoderConfig
from transduce.nn.stack_configs import Activation, PositionKind, TransformerConfig
from transduce.settings.sections import to_dict
from transduce.text.imported import ImportedTokenizer

logger = logging.getLogger("transduce")

OPENNMT_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "swiglu",
    "gated-gelu": "geglu",
}
OPENNMT_SINUSOIDS: dict[str, PositionKind] = {
    "SinusoidalInterleaved": "sinusoidal",
    "SinusoidalConcat": "sinusoidal-marian",
}
ROTARY = -1
"""`max_relative_positions` of rotary positions."""
OPENNMT_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "model_type": ("text",),
    "model_task": ("seq2seq",),
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "max_relative_positions": (0, ROTARY),
    "relative_positions_buckets": (0,),
    "rotary_theta": (10000,),
    "rotary_dim": (0,),
    "copy_attn": (False,),
    "n_src_feats": (0,),
    "num_experts": (0,),
    "parallel_residual": (False,),
    "sliding_window": (0,),
    "lora_layers": ([],),
    "lora_embedding": (False,),
    "quant_layers": ([],),
}
"""Settings that change outputs, with their supported values; each may be missing."""
OPENNMT_BUFFERS = (r"(encoder|decoder)\.embeddings\.make_embedding\.pe\.pe",)
OPENNMT_LAYERS = {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"}
OPENNMT_ATTENTION = "{0}.linear_query {0}.linear_keys {0}.linear_values {0}.final_linear {1}"
"""Parts of an attention and its norm, by their names."""
OLDER = (
    "its vocabularies are objects of OpenNMT-py 2 or torchtext, not lists; convert it with "
    "tools/convertv2_v3.py of OpenNMT-py 3"
)
OPENNMT_DECODING = {"beam_size": 5, "length_penalty": "mean", "max_length_ratio": 0.0}
"""OpenNMT-py's search by default."""
LONGEST = 250
"""Tokens of an output, by default."""


def import_opennmt(path: Path) -> ImportedModel:
    """Import a checkpoint, with the SentencePiece model in its folder or the one above; without
    one, texts are words of the vocabulary between spaces.  Raises DataError with one line."""
    content = _read(path)
    config = Config(content["opt"], path)
    for name, supported in OPENNMT_NEUTRAL.items():
        if (setting := config.values.get(name)) not in (None, *supported):
            raise DataError(f"{path}: {name} = {setting!r} is not supported")
    if config.values.get("num_kv") not in (None, 0, config.values.get("heads")):
        raise DataError(f"{path}: num_kv = {config.values['num_kv']!r} is not supported")
    if config.values.get("pos_ffn_activation_fn") == "gated-gelu":
        logger.warning("%s: computing gated-gelu by its tanh, with a difference of some 1e-4", path)
    copier = _OpennmtModel(content["model"], config)
    names = [f"model.{side}.embed_tokens.weight" for side in OPENNMT_LAYERS]
    (size, m), (target_size, _) = (copier.checkpoint.shape(name, 2) for name in names)
    start = content["vocab"].get("decoder_start_token", "<s>")
    source, target = _opennmt_tokenizers(content["vocab"], (size, target_size), config, start)
    tie = copier.embeddings(source.numbering, target.numbering, m)
    copier.output_bias(target.numbering.rows, target_size, "lm_head.bias")
    shared = source.to_bytes() == target.renumbered(source.numbering).to_bytes()
    stacks: dict[str, Any] = {side: copier.stack(side, m) for side in OPENNMT_LAYERS}
    copier.checkpoint.finish(buffers=OPENNMT_BUFFERS)
    model = EncoderDecoderConfig(
        d_model=m,
        tie=tie,
        scale_embeddings=config.flag("position_encoding", False),
        output_bias=True,
        **stacks,
    )
    recipe = {
        "task": "translation",
        "data": {"filters": {"max_length": LONGEST}},
        "text": text_kinds(source, target, shared),
        "model": to_dict(model),
        "languages": argos_languages(path.parent),
        "decoding": {**OPENNMT_DECODING, "max_length_extra": LONGEST},
    }
    tokenizers = {"source_tokenizer": source, "target_tokenizer": target}
    return ImportedModel(recipe, copier.weights, tokenizers)


def _read(path: Path) -> dict[str, Any]:
    """Parts of a checkpoint: `model` with the generator's tensors, `opt` and `vocab`."""
    try:
        with zipfile.ZipFile(path) as members:
            if any(member.compress_type for member in members.infolist()):
                raise DataError(f"{path} is compressed; save it with torch.save")
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, "cpu", weights_only=True, mmap=True)
        model, options, vocab = content["model"], content["opt"], content["vocab"]
        generator = {
            f"lm_head.{name.removeprefix('0.')}": tensor
            for name, tensor in (content.get("generator") or {}).items()
        }
        tensors = {**model, **generator}
        values = dict(vars(options) if isinstance(options, argparse.Namespace) else options)
        lists = [vocab["src"], vocab["tgt"]]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except pickle.UnpicklingError as error:
        older = any(name in str(error) for name in ("torchtext", "onmt"))
        reason = OLDER if older else "it holds more than tensors and settings; it is not read"
        raise DataError(f"{path}: {reason}") from None
    except KeyError as error:
        raise DataError(f"{path} has no {error}; it is no whole checkpoint of OpenNMT-py") from None
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError, EOFError) as error:
        raise DataError(f"{path} is no checkpoint of OpenNMT-py ({first_line(error)})") from None
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is no whole file of torch.save ({error})") from None
    if not all(isinstance(token, str) for tokens in lists for token in tokens):
        raise DataError(f"{path}: {OLDER}")
    for name, tensor in tensors.items():
        dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided
        if not dense or not tensor.is_contiguous():  # strides can make much of little
            raise DataError(f"{path}: {name!r} is no dense tensor")
    return {"model": tensors, "opt": values, "vocab": vocab}


class _OpennmtModel(Copier):
    """Tensors and settings of a checkpoint."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Config) -> None:
        is_rms = config.values.get("layer_norm", "standard") != "standard"
        super().__init__(Checkpoint.of(config.path, tensors, "its opt"), is_rms=is_rms)
        self.config = config
        table = r"(encoder|decoder)\.embeddings\.make_embedding\.emb_luts\.0\.weight"
        self.checkpoint.rename(table, r"model.\1.embed_tokens.weight")
        self.checkpoint.rename(r"(.*layer_norm(?:_\d)?)\.a_2", r"\1.weight")
        self.checkpoint.rename(r"(.*layer_norm(?:_\d)?)\.b_2", r"\1.bias")
        self.rotary = config.values.get("max_relative_positions") == ROTARY
        self.n_heads = config.integer("heads", 8)

    def stack(self, side: str, m: int) -> TransformerConfig:
        """Copy an encoder or decoder; returns its configuration."""
        config, theirs = self.config, OPENNMT_LAYERS[side]
        if m % self.n_heads:
            raise DataError(f"{config.path}: {self.n_heads} heads do not divide a width of {m}")
        activation = config.one_of("pos_ffn_activation_fn", OPENNMT_ACTIVATIONS, "relu")
        inner = "w_1 feed_forward.w_3" if activation in ("swiglu", "geglu") else "w_1"
        feed_forward = f"feed_forward.{inner} feed_forward.w_2 feed_forward.layer_norm"
        if side == "encoder":
            parts = layer_parts(OPENNMT_ATTENTION.format("self_attn", "layer_norm"), feed_forward)
        else:
            attention = OPENNMT_ATTENTION.format("self_attn", "layer_norm_1")
            cross = OPENNMT_ATTENTION.format("context_attn", "layer_norm_2")
            parts = layer_parts(attention, feed_forward, cross)
        d_ff, n_layers = self.checkpoint.shape(f"{theirs}.0.feed_forward.w_1.weight", 2)[0], 0
        while f"{theirs}.{n_layers}.feed_forward.w_1.weight" in self.checkpoint:
            ours = f"{side}.layers.{n_layers}"
            self.layer(ours, f"{theirs}.{n_layers}.", parts, m, d_ff)
            if self.rotary and config.flag("rotary_interleave", True):
                for kind in ("weight", "bias"):
                    rows = self.weights[f"{ours}.self_attention.query_key_value.{kind}"]
                    self._part_pairs(rows[: 2 * m])
            n_layers += 1
        self.norm(f"{side}.norm", f"{side}.layer_norm", m)
        return TransformerConfig(
            n_layers=n_layers,
            n_heads=self.n_heads,
            d_ff=d_ff,
            activation=activation,
            norm_order="pre",
            norm=config.one_of("layer_norm", {"standard": "layer", "rms": "rms"}, "standard"),
            norm_epsilon=config.number("norm_eps", 1e-6),
            positions=self._positions(),
            dropout=self._dropout("dropout"),
            attention_dropout=self._dropout("attention_dropout"),
        )

    def is_biased(self, name: str) -> bool:
        """As the file has it."""
        return f"{name}.bias" in self.checkpoint

    def _part_pairs(self, rows: Tensor) -> None:
        """Move the first of each pair of a head's dimensions, which are rotated together, into the
        first half, the second into the second half."""
        pairs = rows.view(2 * self.n_heads, -1, 2, *rows.shape[1:])
        rows.copy_(pairs.transpose(1, 2).reshape(rows.shape))

    def _positions(self) -> PositionKind:
        if self.config.flag("position_encoding", False):
            if self.rotary:
                raise DataError(f"{self.config.path}: two kinds of positions are not supported")
            kind: PositionKind = self.config.one_of(
                "position_encoding_type", OPENNMT_SINUSOIDS, "SinusoidalInterleaved"
            )
            return kind
        return "rotary" if self.rotary else "none"

    def _dropout(self, name: str) -> float:
        rate = self.config.values.get(name, 0.1)
        rate = rate[0] if isinstance(rate, list) and rate else rate
        return Config({name: rate}, self.config.path).number(name, 0.1)


def _opennmt_tokenizers(
    vocab: Mapping[str, Any], sizes: tuple[int, int], config: Config, start: str
) -> tuple[ImportedTokenizer, ImportedTokenizer]:
    path, texts = config.path, {"decoder_start_token": start}
    tokens = [vocab[side] for side in ("src", "tgt")]
    if (counts := tuple(map(len, tokens))) != sizes:
        raise DataError(f"{path} has {counts} tokens, but embeddings of {sizes}")
    vocabularies = [*map(ids_of, tokens)]
    numberings = [
        numbered(pieces, size, texts, path)
        for pieces, size in zip(vocabularies, sizes, strict=True)
    ]
    numberings[0] = dataclasses.replace(numberings[0], source_end=False)
    models = (config.values.get(f"{side}_subword_model") for side in ("src", "tgt"))
    source, target = (Path(str(model or "-")).name for model in models)
    if (paths := sentencepiece_pair(path.parent, ((source, target), *NAMES))) is not None:
        made = map(read_sentencepiece, paths, vocabularies, numberings)
        return next(made), next(made)
    if config.values.get("src_subword_type", "none") != "none":
        message = "%s: no SentencePiece model beside it; write texts as tokens between spaces"
        logger.warning(message, path)
    words = map(word_tokenizer, vocabularies, numberings)
    return next(words), next(words)
