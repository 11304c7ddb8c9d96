"""Export to Marian: a directory of Hugging Face, and the files of Marian and Bergamot.

Sinusoids have another order there (all sines first).  A model does not depend on the order of its
dimensions, so every weight is written with the dimensions in that order, which is exact.

Marian starts an output with a zero vector, not with an embedding of BOS.  So that embedding is
subtracted from all embeddings of the decoder, and the first layer adds it again: this is exact, as
a softmax does not see what all logits share.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.interop.argos import Rows, check_settings, pieces_file, sentencepiece_rows
from transduce.interop.layers import MARIAN
from transduce.interop.marian_files import (
    EPSILON,
    MARIAN_FILE_ACTIVATIONS,
    bin_file,
    layer_name,
    marian_parts,
    npz_file,
    shortlist_file,
    tensor_name,
)
from transduce.interop.read import IMPOSSIBLE, Lists
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.stack_configs import SsruDecoderConfig, TransformerConfig
from transduce.support.version import __version__
from transduce.text import (
    BOS,
    EOS,
    PAD,
    SPECIAL_TOKENS,
    MarianTokenizer,
    SubwordTokenizer,
    Tokenizer,
)
from transduce.text.imported import ImportedTokenizer

HUB_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "silu"}
"""Names in transformers."""
POSITIONS = ("sinusoidal", "sinusoidal-halves")
HUB_EPSILON = 1e-5
TOKENS = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
}
SEARCH = {**TOKENS, "bad_words_ids": [[PAD], [BOS]], "forced_eos_token_id": EOS}
"""Settings of a search that all models share."""


class Expressible(NamedTuple):
    """Values that a form of Marian can have."""

    positions: tuple[str, ...] = POSITIONS
    epsilon: float = HUB_EPSILON
    activations: tuple[str, ...] = tuple(HUB_ACTIVATIONS)
    decoders: tuple[str, ...] = ("transformer",)


IN_TRANSFORMERS = Expressible()


def check_expressible(
    config: EncoderDecoderConfig,
    source: Tokenizer,
    target: Tokenizer,
    able: Expressible = IN_TRANSFORMERS,
) -> None:
    """Raises RunError, with all settings to change before training, if Marian cannot express it.

    config: of the model.  source, target: tokenizers.  able: values that the form of Marian can
    have.
    """
    rows = itertools.chain(_settings(config, able), sentencepiece_rows(source, target))
    check_settings("Marian", rows, isinstance(source, ImportedTokenizer))


def _settings(config: EncoderDecoderConfig, able: Expressible) -> Rows:
    """Name, value and possible values of each setting that Marian restricts."""
    yield "model.tie", config.tie, ("three-way", "two-way")
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        yield f"model.{side}.kind", stack.kind, able.decoders[: 1 + (side == "decoder")]
        if not isinstance(stack, TransformerConfig | SsruDecoderConfig):
            continue
        yield f"model.{side}.positions", stack.positions, able.positions
        yield f"model.{side}.activation", stack.activation, able.activations
        yield f"model.{side}.norm_epsilon", stack.norm_epsilon, (able.epsilon,)
        if isinstance(stack, SsruDecoderConfig):
            continue
        yield f"model.{side}.norm_order", stack.norm_order, ("post",)
        yield f"model.{side}.norm", stack.norm, ("layer",)
        yield f"model.{side}.embedding_norm", stack.embedding_norm, (False,)
        width = (stack.d_head or 0) * stack.n_heads
        d_head = None if width == config.d_model else stack.d_head
        yield f"model.{side}.d_head", d_head, (None,)
    for name, known in (("positions", able.positions), ("activation", able.activations)):
        same = getattr(config.encoder, name, None)
        if same in known and getattr(config.decoder, name, None) in known:
            yield f"model.decoder.{name}", getattr(config.decoder, name), (same,)


class MarianDirectory(NamedTuple):
    """Content of a directory: tensors of model.safetensors, and the other files by name."""

    tensors: dict[str, Tensor]
    files: dict[str, bytes]


def marian_directory(
    model: EncoderDecoder,
    config: EncoderDecoderConfig,
    source: Tokenizer,
    target: Tokenizer,
    search: Mapping[str, Any],
    positions: int,
) -> MarianDirectory:
    """A model and its tokenizers as transformers reads them, for sequences of so many positions.
    search: settings of `generation_config.json`.

    config: of the model.  source, target: tokenizers.
    """
    check_expressible(config, source, target)
    shared = config.tie == "three-way"
    files = {
        "config.json": _json(_config(config, source, target, shared, positions)),
        "generation_config.json": _json({**SEARCH, **search, "max_length": positions}),
        **_tokenizers(source, target, positions),
    }
    return MarianDirectory(_hub_tensors(model.state_dict(), config, shared), files)


def sizes(config: EncoderDecoderConfig) -> dict[str, int]:
    """Sizes of a model, by their names in transformers."""
    encoder, decoder = config.encoder, config.decoder
    assert isinstance(encoder, TransformerConfig) and isinstance(decoder, TransformerConfig)
    named = {
        f"{side}_{name}": value
        for side, stack in (("encoder", encoder), ("decoder", decoder))
        for name, value in (
            ("layers", stack.n_layers),
            ("attention_heads", stack.n_heads),
            ("ffn_dim", stack.d_ff),
        )
    }
    return {"d_model": config.d_model, **named}


def _config(
    config: EncoderDecoderConfig,
    source: Tokenizer,
    target: Tokenizer,
    shared: bool,
    positions: int,
) -> dict[str, Any]:
    encoder = config.encoder
    assert isinstance(encoder, TransformerConfig)
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        **sizes(config),
        "activation_function": HUB_ACTIVATIONS[encoder.activation],
        "dropout": encoder.dropout,
        "attention_dropout": encoder.attention_dropout,
        "activation_dropout": encoder.feed_forward_dropout,
        "scale_embedding": config.scale_embeddings,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": True,
        "max_position_embeddings": positions,
        **TOKENS,
    }


def _tokenizers(source: Tokenizer, target: Tokenizer, positions: int) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    sides = {"source": ("vocab.json", source), "target": ("target_vocab.json", target)}
    for side, (name, tokenizer) in sides.items():
        files[f"{side}.spm"] = pieces_file(tokenizer)
        vocabulary = {piece: i for i, piece in enumerate(tokenizer.tokens(range(tokenizer.size)))}
        vocabulary |= {piece: i for i, piece in enumerate(SPECIAL_TOKENS)}
        if side == "source" or source is not target:
            files[name] = _json(vocabulary)
    pad, unknown, _, end = SPECIAL_TOKENS
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "pad_token": pad,
        "unk_token": unknown,
        "eos_token": end,
        "model_max_length": positions - 1,
        "separate_vocabs": source is not target,
    }
    return {**files, "tokenizer_config.json": _json(settings)}


def _hub_tensors(
    weights: Mapping[str, Tensor], config: EncoderDecoderConfig, shared: bool
) -> dict[str, Tensor]:
    """Weights under their names in transformers, dimensions reordered for its sinusoids."""
    encoder, decoder = config.encoder, config.decoder
    assert isinstance(encoder, TransformerConfig) and isinstance(decoder, TransformerConfig)
    dimensions = torch.arange(config.d_model)
    if encoder.positions == "sinusoidal":
        dimensions = torch.cat([dimensions[::2], dimensions[1::2]])
    tensors: dict[str, Tensor] = {}
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        for i, (part, names) in itertools.product(range(stack.n_layers), MARIAN[side].items()):
            layer = f"{side}.layers.{i}"
            weight, bias = (weights[f"{layer}.{part}.{kind}"] for kind in ("weight", "bias"))
            if part.endswith(("output", "outer", "norm")):
                weight, bias = weight[dimensions], bias[dimensions]
            else:
                weight = weight[:, dimensions]
            n = len(names)
            for name, w, b in zip(names, weight.chunk(n), bias.chunk(n), strict=True):
                tensors[f"model.{layer}.{name}.weight"] = w
                tensors[f"model.{layer}.{name}.bias"] = b
    target = weights["target_front_end.embedding.weight"][:, dimensions]
    if shared:
        tensors["model.shared.weight"] = target
    else:
        source = weights["front_end.embedding.weight"][:, dimensions]
        tensors["model.encoder.embed_tokens.weight"] = source
        tensors["model.decoder.embed_tokens.weight"] = target
    bias = weights.get("head.bias", torch.zeros(len(target)))
    tensors["final_logits_bias"] = bias[None].float()
    return tensors


def _json(content: Any) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


WIDTH = 64
"""A matrix of Bergamot's int8 engine has a multiple of so many inputs."""
COLUMNS = 8
"""A list of outputs has a multiple of so many tokens."""


IN_MARIAN = Expressible(
    ("sinusoidal-marian",), EPSILON, tuple(MARIAN_FILE_ACTIVATIONS), ("transformer", "ssru")
)


TABLE = "front_end.embedding.weight"


class Quantised(NamedTuple):
    """Matrices that came in int8: their divisors (rows,) by our names, and the factors of their
    inputs, each with its own divisor if it has one, by the names in Marian."""

    divisors: Mapping[str, Tensor] = {}
    multipliers: Mapping[str, tuple[float, float | None]] = {}


NOT_QUANTISED = Quantised()


Stacks = tuple[TransformerConfig, TransformerConfig | SsruDecoderConfig]


def marian_stacks(config: EncoderDecoderConfig) -> Stacks:
    """Encoder and decoder that are of Marian."""
    encoder, decoder = config.encoder, config.decoder
    assert isinstance(encoder, TransformerConfig)
    assert isinstance(decoder, TransformerConfig | SsruDecoderConfig)
    return encoder, decoder


def check_bergamot(config: EncoderDecoderConfig, source: Tokenizer, target: Tokenizer) -> None:
    """Raises RunError, with all settings to change before training, if Marian cannot express it.

    config: of the model.  source, target: tokenizers.
    """
    rows = _bergamot_settings(config, source, target)
    check_settings("Marian", rows, isinstance(source, ImportedTokenizer))


def _bergamot_settings(config: EncoderDecoderConfig, source: Tokenizer, target: Tokenizer) -> Rows:
    yield from _settings(config, IN_MARIAN)
    if own_order(source) is None or own_order(target) is None:
        yield from sentencepiece_rows(source, target)
    encoder, decoder = config.encoder, config.decoder
    if not isinstance(encoder, TransformerConfig) or not isinstance(
        decoder, TransformerConfig | SsruDecoderConfig
    ):
        return
    yield "model.scale_embeddings", config.scale_embeddings, (True,)
    yield "model.decoder.n_heads", decoder.n_heads, (encoder.n_heads,)
    yield "model.decoder.d_ff", decoder.d_ff, (encoder.d_ff,)
    for name, width in (("d_model", config.d_model), ("encoder.d_ff", encoder.d_ff)):
        whole = -(-width // WIDTH) * WIDTH
        yield f"model.{name}", width, (whole,)


def own_order(tokenizer: Tokenizer) -> list[int] | None:
    """Our id of each id of a SentencePiece model, of our own or of an imported tokenizer that takes
    over its ids; None for others."""
    if isinstance(tokenizer, SubwordTokenizer):
        return list(range(tokenizer.size))
    if not isinstance(tokenizer, MarianTokenizer) or not tokenizer.numbers_itself:
        return None
    here = {there: token for token, there in enumerate(tokenizer.numbering.rows)}
    return [here[there] for there in range(tokenizer.numbering.size)]


def bergamot_files(
    model: EncoderDecoder,
    config: EncoderDecoderConfig,
    source: Tokenizer,
    target: Tokenizer,
    search: Mapping[str, Any],
    shortlist: Lists | None,
    quantised: Quantised = NOT_QUANTISED,
) -> dict[str, bytes]:
    """Content of the directory, by file names.  search: Marian's options.  shortlist: None for all
    tokens.  quantised: matrices that came in int8.  Raises RunError for what Marian cannot
    express.

    model: the network.  config: of the model.  source, target: tokenizers.
    """
    check_bergamot(config, source, target)
    sources, targets = own_order(source), own_order(target)
    assert sources is not None and targets is not None
    arrays = {
        name: tensor.contiguous().numpy()
        for name, tensor in _tensors(model.state_dict(), config, sources, targets)
    }
    settings = _yaml(_model_settings(config, len(sources), len(targets)))
    factors = {
        name: np.array([[factor]], np.float32)
        for name, (factor, _) in quantised.multipliers.items()
    }
    divisors = dict(_marian_divisors(quantised.divisors, config))
    divisors |= {name: by for name, (_, by) in quantised.multipliers.items() if by is not None}
    vocabularies = ["vocab.spm"] * 2 if source is target else ["source.spm", "target.spm"]
    for_marian = {"models": ["model.npz"], "vocabs": vocabularies, **search}
    for_bergamot = {
        "models": ["model.intgemm8.bin"],
        "vocabs": vocabularies,
        **search,
        "shortlist": ["lex.bin", False],
        "gemm-precision": "int8shiftAlphaAll" if factors else "int8shiftAll",
        "skip-cost": True,
    }
    if shortlist is None:
        lists, first = _every_token(len(sources), len(targets), sources.index(EOS)), EOS + 1
    else:
        lists, first = _marian_lists(shortlist, sources, targets)
    return {
        "model.npz": npz_file(arrays, settings),
        "model.intgemm8.bin": bin_file({**arrays, **factors}, settings, divisors),
        "lex.bin": shortlist_file(lists, first),
        "marian.yml": _yaml({"relative-paths": True, **for_marian}).encode(),
        "bergamot.yml": _yaml({"relative-paths": True, **for_bergamot}).encode(),
        vocabularies[0]: pieces_file(source),
        vocabularies[1]: pieces_file(target),
    }


def _every_token(source: int, target: int, end: int) -> Sequence[Sequence[int]]:
    """Lists that allow all tokens, without those of no text that would break the multiple."""
    needless = [token for token in range(target) if token != end][: target % COLUMNS]
    lists: list[Sequence[int]] = [()] * source
    lists[end] = [token for token in range(target) if token not in needless]
    return lists


def _marian_lists(
    shortlist: Lists, source: Sequence[int], target: Sequence[int]
) -> tuple[Sequence[Sequence[int]], int]:
    """Target tokens of each source token, and how many first ones all sources have; orders of ids
    as in `own_order`."""
    there = {here: token for token, here in enumerate(target)}
    lists = [[there[i] for i in shortlist.likely[here] if i in there] for here in source]
    common = {there[i] for i in (*range(EOS + 1), *shortlist.frequent) if i in there}
    first = next(n for n in range(len(target) + 1) if n not in common)
    lists[source.index(EOS)] += sorted(common - {*range(first)})  # every source ends with it
    return lists, first


def _marian_divisors(
    divisors: Mapping[str, Tensor], config: EncoderDecoderConfig
) -> Iterator[tuple[str, float]]:
    """Divisors of int8 matrices under their names in Marian."""
    table = divisors.get("target_front_end.embedding.weight", divisors.get(TABLE))
    if table is not None:
        yield from ((name, float(table[0])) for name in ("Wemb", "decoder_Wemb"))
        yield "encoder_Wemb", float(divisors.get(TABLE, table)[0])
    encoder, decoder = marian_stacks(config)
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        parts = marian_parts(side, side == "decoder" and isinstance(decoder, SsruDecoderConfig))
        for i, (part, names) in itertools.product(range(stack.n_layers), parts.items()):
            by = divisors.get(f"{side}.layers.{i}.{part}.weight")
            if by is not None:
                for name, rows in zip(names, by.chunk(len(names)), strict=True):
                    yield tensor_name(f"{layer_name(side, i)}{name}", "weight"), float(rows[0])


def _tensors(
    weights: Mapping[str, Tensor],
    config: EncoderDecoderConfig,
    source: Sequence[int],
    target: Sequence[int],
) -> Iterator[tuple[str, Tensor]]:
    """Weights under their names in Marian.  source, target: orders of ids as in `own_order`."""
    table = weights["target_front_end.embedding.weight"]
    bias = weights.get("head.bias", torch.zeros(len(table))).clone()
    bias[[PAD, BOS]] = IMPOSSIBLE  # no search here ever chooses them
    encoder, decoder = marian_stacks(config)
    recurrent = isinstance(decoder, SsruDecoderConfig)  # it starts with zeros itself
    start = table[BOS] * (not recurrent)
    if config.tie == "three-way":
        yield "Wemb", (table - start)[target]
    else:
        yield "encoder_Wemb", weights[TABLE][source]
        yield "decoder_Wemb", (table - start)[target]
    yield "decoder_ff_logit_out_b", bias[target][None]
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        shared = side == "decoder" or config.tie == "three-way"
        lacking = start * config.d_model**0.5 if shared and not recurrent else None
        for i in range(stack.n_layers):
            for part, names in marian_parts(side, recurrent).items():
                theirs = [f"{layer_name(side, i)}{name}" for name in names]
                yield from _part(weights, f"{side}.layers.{i}.{part}", theirs, lacking)
                if part.endswith("norm"):  # after the first residual sum
                    lacking = None


def _part(
    weights: Mapping[str, Tensor], ours: str, theirs: Sequence[str], lacking: Tensor | None
) -> Iterator[tuple[str, Tensor]]:
    """A part, which makes up for what its sublayer's input lacks: attention that of what it reads,
    its output that of the residual sum."""
    weight, bias = weights[f"{ours}.weight"], weights.get(f"{ours}.bias")
    if lacking is not None and not ours.endswith("norm"):
        assert bias is not None
        bias = bias + (lacking if ours.endswith("output") else weight @ lacking)
    tensors = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    for kind, tensor in tensors.items():
        for name, rows in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            yield tensor_name(name, kind), rows.T if rows.dim() == 2 else rows[None]


def _model_settings(config: EncoderDecoderConfig, source: int, target: int) -> dict[str, Any]:
    encoder, decoder = marian_stacks(config)
    recurrent = isinstance(decoder, SsruDecoderConfig)
    three_way = config.tie == "three-way"
    return {
        "type": "transformer",
        "version": f"transduce {__version__}",
        "dim-vocabs": [source, target],
        "dim-emb": config.d_model,
        "enc-depth": encoder.n_layers,
        "dec-depth": decoder.n_layers,
        "tied-embeddings": not three_way,
        "tied-embeddings-all": three_way,
        "tied-embeddings-src": False,
        "transformer-heads": encoder.n_heads,
        "transformer-dim-ffn": encoder.d_ff,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": MARIAN_FILE_ACTIVATIONS[encoder.activation],
        "transformer-decoder-autoreg": "rnn" if recurrent else "self-attention",
        "dec-cell": "ssru" if recurrent else "gru",
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-no-projection": False,
    }


def _yaml(settings: Mapping[str, Any]) -> str:
    """Settings as YAML: a line for each, and for each member of a list."""
    lines = []
    for name, setting in settings.items():
        if isinstance(setting, list) and setting:
            lines += [f"{name}:", *(f"  - {_scalar(member)}" for member in setting)]
        else:
            lines.append(f"{name}: {_scalar(setting)}")
    return "\n".join(lines) + "\n"


def _scalar(setting: Any) -> str:
    if isinstance(setting, bool):
        return str(setting).lower()
    return str(setting) if setting != "" else '""'
