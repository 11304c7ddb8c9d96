"""Import of Marian: directories of Hugging Face, and Marian's own models, `.npz` or Bergamot's
`.bin`."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.errors import DataError
from transduce.interop.argos import read_own_pieces
from transduce.interop.layers import Copier, MarianDefaults
from transduce.interop.marian_files import (
    EPSILON,
    MARIAN_FILE_ACTIVATIONS,
    SETTINGS,
    MarianModel,
    layer_name,
    marian_parts,
    read_model,
    read_settings,
    read_shortlist,
    tensor_name,
)
from transduce.interop.model_names import marian_languages
from transduce.interop.read import (
    IMPOSSIBLE,
    Checkpoint,
    Config,
    ImportedModel,
    Lists,
    decoding,
    open_checkpoint,
    read_generation,
    renormalises,
    reordered,
    reordered_bias,
    text_kinds,
)
from transduce.interop.tokenizers import read_marian_tokenizers
from transduce.models.config import EncoderDecoderConfig
from transduce.nn.stack_configs import SsruDecoderConfig, TransformerConfig
from transduce.settings.sections import to_dict
from transduce.text import EOS, PAD, MarianTokenizer, Numbering

BUFFERS = (r"model\.(encoder|decoder)\.embed_positions\.weight",)  # sinusoids
MARIAN_USUAL = MarianDefaults("gelu", 0.1, n_layers=12, n_heads=16, d_ff=4096)


def import_marian(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` marian."""
    _check(config)
    checkpoint = open_checkpoint(directory)
    shared = config.flag("share_encoder_decoder_embeddings", True)
    source_size = config.integer("vocab_size")
    target_size = source_size if shared else config.integer("decoder_vocab_size", source_size)
    source, target = read_marian_tokenizers(
        directory, (source_size, target_size), *_special_tokens(config)
    )
    copier = Copier(checkpoint)
    m = config.integer("d_model", 1024)
    tie = copier.embeddings(source.numbering, target.numbering, m, common=shared)
    encoder = copier.marian_stack(config, "encoder", m, MARIAN_USUAL)
    decoder = copier.marian_stack(config, "decoder", m, MARIAN_USUAL)
    copier.output_bias(target.numbering.rows, target_size, "final_logits_bias", rank=2)
    generation = read_generation(directory, config)
    if renormalises(generation, target.numbering.pad):
        # Never an output, and excluded from the softmax.
        copier.weights["head.bias"][PAD] = IMPOSSIBLE
    # Where the sides have tables of their own, the common one is a relic.
    left_out = checkpoint.finish((r"model\.shared\.weight",), BUFFERS)
    model = EncoderDecoderConfig(
        d_model=m,
        tie=tie,
        encoder=encoder,
        decoder=decoder,
        scale_embeddings=config.flag("scale_embedding", False),
        output_bias=True,
    )
    max_length = config.integer("max_position_embeddings", 1024) - 1
    recipe = {
        "task": "translation",
        "data": {"filters": {"max_length": max(max_length, 1)}},
        "text": text_kinds(source, target, shared),
        "model": to_dict(model),
        "decoding": decoding(generation, config),
    }
    tokenizers = {"source_tokenizer": source, "target_tokenizer": target}
    return ImportedModel(recipe, copier.weights, tokenizers, left_out=left_out)


def _check(config: Config) -> None:
    config.known_architecture("MarianMTModel")
    config.require("normalize_before", False, False)
    config.require("add_final_layer_norm", False, False)
    config.require("normalize_embedding", False, False)


def _special_tokens(config: Config) -> tuple[int, int, int]:
    pad, eos = config.token("pad_token_id"), config.token("eos_token_id")
    if pad is None or eos is None:
        raise DataError(f"{config.path} must set pad_token_id and eos_token_id")
    start = config.token("decoder_start_token_id")
    return pad, pad if start is None else start, eos


logger = logging.getLogger("transduce")

Stack = TransformerConfig | SsruDecoderConfig

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-preprocess": ("", "d"),  # its "n" normalises queries, but not keys and values
    "transformer-postprocess": ("dan", "an"),
    "transformer-postprocess-top": ("", "d"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-rnn-projection": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-pool": (False,),
    "transformer-tied-layers": ([],),
    "transformer-attention-mask": ("default",),
    "transformer-disable-position-embeddings": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-train-positions": (False,),
    "factors-dim-emb": (0,),
    "lemma-dim-emb": (0,),
    "output-omit-bias": (False,),
    "right-left": (False,),
    "ulr": (False,),
}
"""Settings that change outputs, with their supported values; each may be missing."""
MARIAN_MAX_LENGTH = 1024
"""Tokens of a text in further training."""
BEAM = 12
"""Marian's default."""
FIREFOX_SEARCH = {"beam-size": 1, "normalize": 1.0, "max-length-factor": 2.0}
MULTIPLIER, MULTIPLIERS = "_QuantMultA", "marian_multipliers"
"""Ending of the factors of int8 activations there; their key in the header of the weights."""


def import_marian_model(directory: Path, file: Path) -> ImportedModel:
    """Import a model file with its SentencePiece vocabularies, and the options of a search in a
    YAML file."""
    model = read_model(file)
    config, search = Config(model.settings, file), _search(directory, file)
    for name, able in NEUTRAL.items():
        if name in config.values and config.values[name] not in able:
            raise DataError(f"{file}: {name} = {config.values[name]!r} is not supported")
    arrays = {name: torch.from_numpy(array) for name, array in model.arrays.items()}
    tensors = _Tensors.of(file, arrays, SETTINGS)
    m = config.integer("dim-emb")
    tables = [tensors.table(f"{side}_Wemb", m) for side in ("encoder", "decoder")]
    source, target = _marian_tokenizers(directory, search, [len(table) for table in tables])
    weights = {"front_end.embedding.weight": reordered(tables[0], source.numbering.rows)}
    output = tensors.output(len(tables[1]), m)
    shared = "encoder_Wemb" not in tensors and "decoder_Wemb" not in tensors and source is target
    tie = "none" if output is not None else "three-way" if shared else "two-way"
    if tie != "three-way":
        table = reordered(tables[1], target.numbering.rows)
        weights["target_front_end.embedding.weight"] = table
    if output is not None:
        weights["head.weight"] = reordered(output, target.numbering.rows)
    bias = tensors.take("decoder_ff_logit_out_b", len(tables[1]))
    weights["head.bias"] = reordered_bias(bias, target.numbering.rows)
    recurrent = config.values.get("transformer-decoder-autoreg") == "rnn"
    if recurrent:
        config.require("dec-cell", "ssru", "gru")
    stacks = {"encoder": _stack(config, "enc", TransformerConfig)}
    stacks["decoder"] = _stack(config, "dec", SsruDecoderConfig if recurrent else TransformerConfig)
    copier = _Copier(tensors, without_bias=("rnn_",), is_transposed=True)
    copier.scales = model.divisors
    copier.tables(weights)
    for side, stack in stacks.items():
        parts = marian_parts(side, recurrent)
        for i in range(stack.n_layers):
            copier.layer(f"{side}.layers.{i}", layer_name(side, i), parts, m, stack.d_ff)
    tensors.finish(buffers=(r".*QuantMultA",))  # factors of int8 activations
    recipe = {
        "task": "translation",
        "data": {"filters": {"max_length": MARIAN_MAX_LENGTH}},
        "text": text_kinds(source, target, source is target),
        "model": to_dict(
            EncoderDecoderConfig(d_model=m, tie=tie, output_bias=True, **stacks)  # type: ignore[arg-type]
        ),
        "decoding": _decoding(search),
    }
    tokenizers = {"source_tokenizer": source, "target_tokenizer": target}
    if source is target:
        tokenizers = {"tokenizer": source}
    shortlist = _shortlist(directory, search, source.numbering, target.numbering)
    recipe["decoding"]["shortlist"] = shortlist is not None
    if languages := marian_languages(directory, file):
        recipe["languages"] = dict(zip(("source", "target"), languages, strict=True))
    return ImportedModel(
        recipe,
        weights | copier.weights,
        tokenizers,
        divisors=copier.divisors,
        header=_header(model),
        shortlist=shortlist,
    )


def _header(model: MarianModel) -> dict[str, str]:
    """Text with the factors of int8 activations, each with its own divisor if it has one."""
    multipliers = {
        name: (array.item(), model.divisors.get(name))
        for name, array in model.arrays.items()
        if MULTIPLIER in name
    }
    return {MULTIPLIERS: json.dumps(multipliers)} if multipliers else {}


TABLES = {
    "front_end.embedding.weight": ("encoder_Wemb", "Wemb"),
    "target_front_end.embedding.weight": ("decoder_Wemb", "Wemb"),
    "head.weight": ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"),
}
"""Names there of the tables of words, the first that there is."""


def _shortlist(
    directory: Path, search: Mapping[str, Any], source: Numbering, target: Numbering
) -> Lists | None:
    """The shortlist that the search's options name, or a file lex.*."""
    named = search.get("shortlist") or [""]
    path = directory / str(named[0] if isinstance(named, list) else named)
    if not path.is_file():
        files = sorted(directory.glob("lex*.bin"))
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise DataError(f"{directory} has several shortlists ({names}); leave one")
        if not files:
            return None
        path = files[0]
    first, ends, ids = read_shortlist(path, source.size, target.size)
    here = np.full(target.size, -1)
    for token, there in enumerate(target.rows):
        if there >= 0:
            here[there] = token
    counts = np.diff(ends.astype(np.int64))
    likely = np.full((len(source.rows), max(int(counts.max()), 1)), -1)
    for token, there in enumerate(source.rows):
        if there >= 0:
            row = here[ids[int(ends[there]) : int(ends[there + 1])]]
            likely[token, : len(row)] = row
    frequent = np.sort(here[:first])
    return Lists(likely, frequent[frequent > EOS])


class _Tensors(Checkpoint):
    """Tensors of a file under Marian's names; vectors are matrices of a row there."""

    def take(self, name: str, *shape: int) -> Tensor:
        """As in `Checkpoint`."""
        return super().take(name, *shape) if shape[1:] else super().take(name, 1, *shape)[0]

    def table(self, name: str, m: int) -> Tensor:
        """An embedding, or the common one."""
        name = name if name in self else "Wemb"
        return self.take(name, self.shape(name, 2)[0], m)

    def output(self, size: int, m: int) -> Tensor | None:
        """The output matrix, None if it is an embedding."""
        name = "decoder_ff_logit_out_W"
        if f"{name}t" in self:
            return self.take(f"{name}t", size, m)
        return self.take(name, m, size).T if name in self else None


class _Copier(Copier):
    scales: Mapping[str, float] = {}

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.divisors: dict[str, Tensor] = {}

    def tables(self, weights: Mapping[str, Tensor]) -> None:
        """Divisors of tables of words that were in int8."""
        for name, sides in TABLES.items():
            divisor = next((self.scales[side] for side in sides if side in self.scales), None)
            if name in weights and divisor is not None:
                self.divisors[name] = torch.full((len(weights[name]),), divisor)

    def side_by_side(self, ours: str, theirs: Sequence[str], n_in: int, n_out: int) -> None:
        """As in `Copier`, with divisors of int8 matrices.

        ours: name of the layer here.  theirs: names in the file.  n_in: width of the input.  n_out:
        width of the output of each.
        """
        super().side_by_side(ours, theirs, n_in, n_out)
        scales = [self.scales.get(self.tensor_name(name, "weight")) for name in theirs]
        if None not in scales:
            self.divisors[f"{ours}.weight"] = torch.tensor(scales).repeat_interleave(n_out)

    def tensor_name(self, name: str, kind: str) -> str:
        """Marian's."""
        return tensor_name(name, kind)


def _stack(config: Config, side: str, kind: type[Stack]) -> Stack:
    d_ff = config.integer("transformer-dim-ffn")
    if side == "dec":
        d_ff = config.values.get("transformer-decoder-dim-ffn") or d_ff
    theirs = {name: activation for activation, name in MARIAN_FILE_ACTIVATIONS.items()}
    return kind(
        n_layers=config.integer(f"{side}-depth"),
        n_heads=config.integer("transformer-heads"),
        d_ff=d_ff,
        activation=config.one_of("transformer-ffn-activation", theirs, "swish"),
        positions="sinusoidal-marian",
        norm_epsilon=EPSILON,
        dropout=0.0,  # the files name none, and students are distilled without
    )


def _search(directory: Path, file: Path) -> dict[str, Any]:
    """Options of a search: those of the YAML files of the directory, the decoder's last; without
    them for a `.bin` those of Firefox."""
    options: dict[str, Any] = dict(FIREFOX_SEARCH) if file.suffix == ".bin" else {}
    for file in sorted(
        directory.glob("*.yml"), key=lambda file: ("decoder" in file.name, file.name)
    ):
        options |= read_settings(file.read_text("utf-8", "replace"))
    return options


def _decoding(search: dict[str, Any]) -> dict[str, Any]:
    beam, penalty = search.get("beam-size", BEAM), search.get("normalize", 0)
    if penalty not in (0, 1) or search.get("word-penalty", 0) != 0:
        message = "ignoring normalize = %r and word-penalty = %r: scores are divided by the length"
        logger.warning(message, penalty, search.get("word-penalty", 0))
    factor = search.get("max-length-factor", 3)
    return {
        "beam_size": beam if isinstance(beam, int) else BEAM,
        "length_penalty": "mean" if penalty else "none",
        "max_length_ratio": float(factor) if isinstance(factor, int | float) else 3.0,
        "free_end": True,
    }


def _marian_tokenizers(
    directory: Path, search: dict[str, Any], sizes: list[int]
) -> tuple[MarianTokenizer, MarianTokenizer]:
    """The vocabularies, by the search's options, or by their names; one for both sides if alone."""
    there = {file.name: file for file in sorted(directory.glob("*.spm"))}
    named = [Path(str(name)).name for name in search.get("vocabs", [])]
    files = [there[name] for name in named if name in there]
    if not files and len(there) < 3:
        files = sorted(there.values(), key=lambda file: file.name.startswith(("trg", "target")))
    if not files:
        raise DataError(f"{directory} has several vocabularies; name two in a YAML file: vocabs")
    source = read_own_pieces(files[0], sizes[0])
    return source, source if files[0] == files[-1] else read_own_pieces(files[-1], sizes[-1])
