"""Files of a run for Marian and for the engines of Bergamot, which browsers and phones have.

Marian starts an output with a zero vector, not with an embedding of BOS.  So that embedding is
subtracted from all embeddings of the decoder, and the first layer adds it again: this is exact, as
a softmax does not see what all logits share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.errors import RunError
from transduce.interop.marian_export import Expressible, check_expressible, check_settings
from transduce.interop.marian_files import bin_file, npz_file, shortlist_file
from transduce.interop.marian_parts import ACTIVATIONS, EPSILON, layer_name, parts_of, tensor_name
from transduce.interop.read import IMPOSSIBLE
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.stack_configs import SsruDecoderConfig
from transduce.nn.transformer_config import TransformerConfig
from transduce.support.version import __version__
from transduce.text import BOS, EOS, PAD, UNK, Tokenizer

WIDTH = 64
"""A matrix of Bergamot's int8 engine has a multiple of so many inputs."""
COLUMNS = 8
"""A list of outputs has a multiple of so many tokens."""


IN_MARIAN = Expressible(
    ("sinusoidal-marian",), EPSILON, tuple(ACTIVATIONS), ("transformer", "ssru")
)


Stacks = tuple[TransformerConfig, TransformerConfig | SsruDecoderConfig]


def stacks_of(config: EncoderDecoderConfig) -> Stacks:
    """Encoder and decoder that are of Marian."""
    encoder, decoder = config.encoder, config.decoder
    assert isinstance(encoder, TransformerConfig)
    assert isinstance(decoder, TransformerConfig | SsruDecoderConfig)
    return encoder, decoder


def _check(config: EncoderDecoderConfig, source: Tokenizer, target: Tokenizer) -> None:
    """Raises RunError, with the setting to change before training, if Marian cannot express it."""
    check_expressible(config, source, target, IN_MARIAN)
    encoder, decoder = stacks_of(config)
    check_settings(
        iter(
            (
                ("model.scale_embeddings", config.scale_embeddings, (True,)),
                ("model.decoder.n_heads", decoder.n_heads, (encoder.n_heads,)),
                ("model.decoder.d_ff", decoder.d_ff, (encoder.d_ff,)),
            )
        )
    )
    for name, width in (("d_model", config.d_model), ("encoder.d_ff", encoder.d_ff)):
        if width % WIDTH:
            raise RunError(
                f"Bergamot has no model.{name} = {width}; train with a multiple of {WIDTH}"
            )


def bergamot_files(
    model: EncoderDecoder,
    config: EncoderDecoderConfig,
    source: Tokenizer,
    target: Tokenizer,
    search: Mapping[str, Any],
    lists: Sequence[Sequence[int]] | None,
) -> dict[str, bytes]:
    """Content of the directory, by file names.  search: Marian's options.  lists: target tokens of
    each source token; None for all.  Raises RunError for what Marian cannot express."""
    _check(config, source, target)
    arrays = {
        name: tensor.contiguous().numpy() for name, tensor in _tensors(model.state_dict(), config)
    }
    settings = _yaml(_model_settings(config, source.size, target.size))
    vocabularies = ["vocab.spm"] * 2 if source is target else ["source.spm", "target.spm"]
    for_marian = {"models": ["model.npz"], "vocabs": vocabularies, **search}
    for_bergamot = {
        "models": ["model.intgemm8.bin"],
        "vocabs": vocabularies,
        **search,
        "shortlist": ["lex.bin", False],
        "gemm-precision": "int8shiftAll",
        "skip-cost": True,
    }
    if lists is None:
        lists = _every_token(source.size, target.size)
    return {
        "model.npz": npz_file(arrays, settings),
        "model.intgemm8.bin": bin_file(arrays, settings),
        "lex.bin": shortlist_file(lists, EOS + 1),
        "marian.yml": _yaml({"relative-paths": True, **for_marian}).encode(),
        "bergamot.yml": _yaml({"relative-paths": True, **for_bergamot}).encode(),
        vocabularies[0]: source.to_bytes(),
        vocabularies[1]: target.to_bytes(),
    }


def _every_token(source: int, target: int) -> list[Sequence[int]]:
    """Lists that allow all tokens, without those of no text that would break the multiple."""
    needless = [PAD, UNK, BOS, *range(EOS + 1, target)][: target % COLUMNS]
    lists: list[Sequence[int]] = [()] * source
    lists[EOS] = [token for token in range(target) if token not in needless]
    return lists


def _tensors(
    weights: Mapping[str, Tensor], config: EncoderDecoderConfig
) -> Iterator[tuple[str, Tensor]]:
    """Weights under their names in Marian."""
    table = weights["target_front_end.embedding.weight"]
    bias = weights.get("head.bias", torch.zeros(len(table))).clone()
    bias[[PAD, BOS]] = IMPOSSIBLE  # no search here ever chooses them
    encoder, decoder = stacks_of(config)
    recurrent = isinstance(decoder, SsruDecoderConfig)  # it starts with zeros itself
    start = table[BOS] * (not recurrent)
    if config.tie == "three-way":
        yield "Wemb", table - start
    else:
        yield "encoder_Wemb", weights["front_end.embedding.weight"]
        yield "decoder_Wemb", table - start
    yield "decoder_ff_logit_out_b", bias[None]
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        shared = side == "decoder" or config.tie == "three-way"
        lacking = start * config.d_model**0.5 if shared and not recurrent else None
        for i in range(stack.n_layers):
            for part, names in parts_of(side, recurrent).items():
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
    encoder, decoder = stacks_of(config)
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
        "transformer-ffn-activation": ACTIVATIONS[encoder.activation],
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
