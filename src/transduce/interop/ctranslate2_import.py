"""CTranslate2's directories read: encoder-decoders over SentencePiece, and Whisper.

    version, name of the specification, revision
    count, then for each array: name, rank, sizes, type, bytes, content
    count, then for each alias: name, name of its array

Numbers are little-endian; a string has its length, with a zero at its end, before it.
"""

import dataclasses
import math
import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.errors import DataError, printable_name
from transduce.interop import whisper
from transduce.interop.argos import (
    argos_languages,
    ids_of,
    numbered,
    read_sentencepiece,
    sentencepiece_pair,
)
from transduce.interop.layers import Copier, MarianDefaults, fairseq_sinusoids, layer_parts
from transduce.interop.model_names import MODEL
from transduce.interop.read import Checkpoint, Config, ImportedModel, text_kinds
from transduce.models.config import EncoderDecoderConfig
from transduce.nn.stack_configs import Activation, TransformerConfig
from transduce.settings.sections import to_dict
from transduce.support.files import read_json_object
from transduce.text.languages import languages_of

VERSIONS = range(2, 7)
TYPED, ALIASED = 4, 3
"""Versions since which arrays name their type, and since which there are aliases."""
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
TYPES_OF_SIZES = {1: torch.int8, 2: torch.int16, 4: torch.float32}
SCALE = "_scale"
"""Suffix of the divisors of a quantised matrix, a number for each row or one for all."""
LARGEST_RANK = 8


class _Array(NamedTuple):
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int

    def get_shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self.shape


class ModelBin:
    """Arrays by name, as `safetensors` opens a file; quantised ones come as float32.

    spec: name of the specification.  scalars: the arrays without dimensions, as numbers.
    """

    def __init__(self, path: Path) -> None:
        """Map a file.  Raises DataError unless it is complete."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read ({error})") from None
        self._at = 0
        self.scalars: dict[str, float] = {}
        try:
            self._arrays = self._read()
            singles = [name for name, array in self._arrays.items() if not array.shape]
            self.scalars |= {name: self.get_tensor(name).item() for name in singles}
        except (struct.error, UnicodeDecodeError, IndexError, KeyError):
            raise DataError(
                f"{path} is not a complete model.bin of CTranslate2; copy it again"
            ) from None
        for name in singles:
            del self._arrays[name]

    def keys(self) -> list[str]:
        """Names of the arrays with dimensions, without those of scales."""
        scales = {f"{name}{SCALE}" for name in self._arrays}
        return [name for name in self._arrays if name not in scales]

    def get_slice(self, name: str) -> _Array:
        """Shape of an array."""
        return self._arrays[name]

    def get_tensor(self, name: str) -> Tensor:
        """A copy of an array."""
        array = self._arrays[name]
        end = array.offset + math.prod(array.shape) * array.dtype.itemsize
        content = bytearray(self._content[array.offset : end])
        tensor = torch.frombuffer(content, dtype=array.dtype).view(array.shape)
        if f"{name}{SCALE}" in self._arrays:
            scales = self.get_tensor(f"{name}{SCALE}")
        elif f"{name}{SCALE}" in self.scalars:
            scales = torch.tensor([self.scalars[f"{name}{SCALE}"]])
        else:
            return tensor
        if scales.dim() != 1 or len(scales) not in (1, len(tensor)):
            raise DataError(f"{self.path}: the scales of {name!r} do not match its rows")
        return tensor.float() / scales.float().view(-1, *[1] * (tensor.dim() - 1))

    def _read(self) -> dict[str, _Array]:
        (version,) = self._numbers("I")
        if version not in VERSIONS:
            raise DataError(
                f"{self.path} has version {version}, but only {VERSIONS[0]} to {VERSIONS[-1]} are "
                "supported; it is no model.bin of CTranslate2, or of a newer one"
            )
        self.spec = printable_name(self._string())
        _, count = self._numbers("II")
        arrays = dict(self._array(version) for _ in range(count))
        if version >= ALIASED:
            for _ in range(self._numbers("I")[0]):
                alias, name = self._string(), self._string()
                arrays[alias] = arrays[name]
                if (scale := arrays.get(f"{name}{SCALE}")) is not None:
                    arrays[f"{alias}{SCALE}"] = scale
        return arrays

    def _array(self, version: int) -> tuple[str, _Array]:
        name = self._string()
        (rank,) = self._numbers("B")
        if rank > LARGEST_RANK:
            raise IndexError
        shape = self._numbers(f"{rank}I")
        kind, size = self._numbers("BI")
        dtype = TYPES[kind] if version >= TYPED else TYPES_OF_SIZES[kind]
        size *= 1 if version >= TYPED else kind
        start, self._at = self._at, self._at + size
        if math.prod(shape) * dtype.itemsize != size or not size or self._at > len(self._content):
            raise IndexError
        return name, _Array(shape, dtype, start)

    def _string(self) -> str:
        (length,) = self._numbers("H")
        (text,) = self._numbers(f"{length}s")
        return bytes(text).rstrip(b"\0").decode()

    def _numbers(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{form}", self._content, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values


KINDS: tuple[Activation, ...] = ("relu", "gelu-tanh", "silu", "gelu")
"""Activations, by their numbers."""
USUAL = MarianDefaults("relu", dropout=0.1)
HEADS = {"TransformerBase": 8, "TransformerBig": 16}
"""Heads of older files, which name the size of the model alone."""
COMMON = ("num_heads", "pre_norm", "activation", "with_target_bos")
HARMLESS = (*COMMON, "alignment_heads", "alignment_layer", "embeddings_merge", "weight_scale")
"""Last parts of the names of attributes that are read elsewhere, or change no output."""
MULTILINGUAL_WHISPER = 51865
"""Rows of Whisper's smallest vocabulary with tokens of languages."""
_LAYER = (
    "self_attention/linear_0 self_attention/linear_1 self_attention/layer_norm",
    "ffn/linear_0 ffn/linear_1 ffn/layer_norm",
    "attention/linear_0 attention/linear_1 attention/linear_2 attention/layer_norm",
)
LAYERS = {"encoder": layer_parts(*_LAYER[:2]), "decoder": layer_parts(*_LAYER)}
MOST_POSITIONS = 1024
"""Tokens of a source, which CTranslate2 cuts there, where positions are sinusoids."""
DECODING = {
    "beam_size": 2,
    "stop": "first",
    "length_penalty": "mean",
    "min_length": 1,
    "max_length_ratio": 0.0,
    "max_length_extra": 256,
}
"""CTranslate2's search by default."""


def import_ctranslate2(folder: Path) -> ImportedModel:
    """Import the directory of a model.bin.  Raises DataError with one line."""
    model = _Model(folder)
    if model.file.spec == "WhisperSpec":
        return _whisper(model)
    if model.file.spec not in ("TransformerSpec", *HEADS):
        raise DataError(
            f"{model.file.path}: {model.file.spec!r} is not supported, only 'TransformerSpec' and "
            "'WhisperSpec'"
        )
    return _translation(model)


class _Model(Copier):
    """Arrays and attributes of a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = ModelBin(folder / MODEL)
        path = folder / "config.json"
        self.config = Config(read_json_object(path) if path.is_file() else {}, path)
        self._attributes = dict(self.file.scalars)
        files = dict.fromkeys(self.file.keys(), self.file.path)
        super().__init__(Checkpoint(folder, files, {self.file.path: self.file}, MODEL))
        for pattern, name in (
            (r"(encoder|decoder)/embeddings(_0)?/weight", r"model.\1.embed_tokens.weight"),
            (r"decoder/projection/", "lm_head."),
            (r"/gamma$", ".weight"),
            (r"/beta$", ".bias"),
            (r"/(weight|bias)$", r".\1"),
        ):
            self.checkpoint.rename(pattern, name)

    def attribute(self, side: str, name: str, default: float) -> float:
        """An attribute of a side, in older files of the whole model.

        name: of the attribute.  default: value without it in the file.
        """
        return self._attributes.pop(f"{side}/{name}", self._attributes.get(name, default))

    def flag(self, name: str, older: str, default: bool) -> bool:
        """A flag of `config.json`, in older files an attribute.

        name: in `config.json`.  default: value without it in both.
        """
        return self.config.flag(name, bool(self._attributes.pop(older, default)))

    def finish(self) -> None:
        """Raises DataError for arrays and attributes that nothing here stands for."""
        for name, number in self._attributes.items():
            if number and name.rpartition("/")[2] not in HARMLESS:
                raise DataError(f"{self.file.path}: {name} = {number} is not supported")
        self.checkpoint.finish()

    def is_scaled(self, side: str, m: int) -> bool:
        """True for embeddings that are multiplied by √m."""
        older = self.attribute(side, "embeddings/multiply_by_sqrt_depth", 1)
        scale = self.attribute(side, "scale_embeddings", older)
        if isinstance(scale, int) or scale == 1:  # a flag, or else a factor
            return isinstance(scale, int) and scale != 0
        if not abs(scale / m**0.5 - 1) < 1e-3:
            raise DataError(
                f"{self.file.path}: {side}/scale_embeddings = {scale} is not supported, only 1 "
                f"and {m}^0.5"
            )
        return True

    def stack(self, side: str, m: int, usual: MarianDefaults = USUAL) -> TransformerConfig:
        """Copy an encoder or decoder; returns its configuration.

        side: "encoder" or "decoder".  m: width of the model.  usual: values of settings that the
        file lacks.
        """
        is_pre = bool(self.attribute(side, "pre_norm", 1))
        number = int(self.attribute(side, "activation", KINDS.index(usual.activation)))
        if number not in range(len(KINDS)):
            raise DataError(f"{self.file.path}: {side}/activation = {number} is not supported")
        d_ff, n_layers = self.checkpoint.shape(f"{side}/layer_0/ffn/linear_0.weight", 2)[0], 0
        while f"{side}/layer_{n_layers}/ffn/linear_0.weight" in self.checkpoint:
            theirs = f"{side}/layer_{n_layers}/"
            self.layer(f"{side}.layers.{n_layers}", theirs, LAYERS[side], m, d_ff)
            n_layers += 1
        if is_pre:
            self.norm(f"{side}.norm", f"{side}/layer_norm", m)
        embedding_norm = f"{side}/layernorm_embedding.weight" in self.checkpoint
        if embedding_norm:
            self.norm(f"{side}.embedding_norm", f"{side}/layernorm_embedding", m)
        table = fairseq_sinusoids(MOST_POSITIONS, m, 1)
        if (name := f"{side}/position_encodings/encodings") in self.checkpoint:
            table = self.checkpoint.take(name, self.checkpoint.shape(name, 2)[0], m)
        positions, most = self.positions(side, table)
        return TransformerConfig(
            n_layers=n_layers,
            n_heads=int(self.attribute(side, "num_heads", HEADS.get(self.file.spec, 8))),
            d_ff=d_ff,
            activation=KINDS[number],
            dropout=usual.dropout,
            norm_order="pre" if is_pre else "post",
            norm_epsilon=self.config.number("layer_norm_epsilon", 1e-5),
            embedding_norm=embedding_norm,
            positions=positions,
            max_positions=most or MOST_POSITIONS,
        )

    def is_biased(self, name: str) -> bool:
        """As the file has it."""
        return f"{name}.bias" in self.checkpoint


def _translation(model: _Model) -> ImportedModel:
    names = [f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    (size, m), (target_size, _) = (model.checkpoint.shape(name, 2) for name in names)
    zero = bool(model.attribute("decoder", "start_from_zero_embedding", 0))
    vocabularies = _vocabularies(model.folder)
    if len(languages_of(vocabularies[0])) > 2 and not zero:
        raise DataError(
            f"{model.folder}: models with tokens of languages, such as NLLB, are imported from "
            "the directory of transformers, not from CTranslate2's"
        )
    config = model.config
    start = config.values.get("decoder_start_token", "<s>")
    if not model.flag("with_target_bos", "with_target_bos", True):
        start = "</s>"
    source_end = model.flag("add_source_eos", "with_source_eos", False)
    texts = dict(config.values) | {"decoder_start_token": None if zero else start}
    numberings = [
        numbered(pieces, n, texts, model.folder)
        for pieces, n in zip(vocabularies, (size, target_size), strict=True)
    ]
    opening = None
    if model.flag("add_source_bos", "with_source_bos", False):
        opening = vocabularies[0].get(str(config.values.get("bos_token", "<s>")))
    numberings[0] = dataclasses.replace(
        numberings[0], source_end=source_end or zero, opening=opening
    )
    paths = _tokenizer_files(model.folder)
    source, target = map(read_sentencepiece, paths, vocabularies, numberings)
    scaled = {model.is_scaled(side, m) for side in ("encoder", "decoder")}
    if len(scaled) > 1:
        raise DataError(f"{model.file.path}: scale_embeddings differs between the sides")
    tie = model.embeddings(source.numbering, target.numbering, m)
    model.output_bias(target.numbering.rows, target_size, "lm_head.bias")
    encoder, decoder = (model.stack(side, m) for side in ("encoder", "decoder"))
    model.finish()
    made = EncoderDecoderConfig(
        d_model=m,
        tie=tie,
        encoder=encoder,
        decoder=decoder,
        scale_embeddings=scaled.pop(),
        output_bias=True,
    )
    longest = min(encoder.max_positions, decoder.max_positions, MOST_POSITIONS) - 2
    recipe = {
        "task": "translation",
        "data": {"filters": {"max_length": max(longest, 1)}},
        "text": text_kinds(source, target, vocabularies[0] is vocabularies[1]),
        "model": to_dict(made),
        "languages": argos_languages(model.folder),
        "decoding": DECODING,
    }
    tokenizers = {"source_tokenizer": source, "target_tokenizer": target}
    return ImportedModel(recipe, model.weights, tokenizers)


def _tokenizer_files(folder: Path) -> tuple[Path, Path]:
    if (paths := sentencepiece_pair(folder)) is None:
        raise DataError(
            f"{folder} has no sentencepiece.model, or source.spm and target.spm; copy the model's "
            "tokenizer there"
        )
    return paths


def _vocabularies(folder: Path) -> list[dict[str, int]]:
    """Ids by token, of the source and of the target."""
    vocabularies: list[dict[str, int]] = []
    for side in ("shared", "source", "target"):
        lines = folder / f"{side}_vocabulary.txt"
        if (path := folder / f"{side}_vocabulary.json").is_file():
            tokens = read_json_object(path, list)
        elif lines.is_file():
            tokens = lines.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")
        else:
            continue
        if not all(isinstance(token, str) for token in tokens):
            raise DataError(f"{path} must list tokens")
        vocabularies.append(ids_of(tokens))
        if side == "shared":
            return vocabularies * 2
    if len(vocabularies) != 2:
        raise DataError(f"{folder} has no shared_vocabulary.json, or one of the source and target")
    return vocabularies


def _whisper(model: _Model) -> ImportedModel:
    values, path = model.config.values, model.config.path
    size, m = model.checkpoint.shape("model.decoder.embed_tokens.weight", 2)
    bins = model.checkpoint.shape("encoder/conv1.weight", 3)[1]
    tokenizer = whisper.read_whisper_tokenizer(model.folder, size)
    for ours, theirs, n_in in (("first", "conv1", bins), ("second", "conv2", m)):
        weight, bias = f"encoder/{theirs}.weight", f"encoder/{theirs}.bias"
        model.weights[f"front_end.{ours}.weight"] = model.checkpoint.take(weight, m, n_in, 3)
        model.weights[f"front_end.{ours}.bias"] = model.checkpoint.take(bias, m)
    if (
        n := model.checkpoint.shape("encoder/position_encodings/encodings", 2)[0]
    ) != whisper.WHISPER_POSITIONS:
        raise DataError(
            f"{model.file.path}: the encoder has {n} positions, not {whisper.WHISPER_POSITIONS}"
        )
    model.attribute("decoder", "scale_embeddings", 0)
    stacks = {side: model.stack(side, m, whisper.WHISPER_USUAL) for side in ("encoder", "decoder")}
    model.tied_words("lm_head", tokenizer.numbering.rows, size, m)
    model.finish()
    generation = Config(
        {
            "suppress_tokens": values.get("suppress_ids"),
            "begin_suppress_tokens": values.get("suppress_ids_begin"),
            "alignment_heads": values.get("alignment_heads"),
            "is_multilingual": size >= MULTILINGUAL_WHISPER,
        },
        path,
    )
    return whisper.make_whisper(model.folder, model.weights, stacks, tokenizer, generation)
