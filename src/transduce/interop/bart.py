"""BART and its descendants: mBART, M2M100 and NLLB, of one layout and several kinds of parts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import DataError
from transduce.interop.generation import decoding, read_generation
from transduce.interop.layers import Copier, MarianDefaults, StackLayout, fairseq_sinusoids
from transduce.interop.read import Config, ImportedModel, open_checkpoint
from transduce.interop.tokenizers import (
    MULTILINGUAL,
    STARTED,
    read_m2m100_tokenizer,
    read_tokenizer,
    tokenizer_settings,
)
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.transformer_config import NormOrder
from transduce.settings.sections import to_dict
from transduce.text.imported import ImportedTokenizer
from transduce.text.language_names import known_code


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
KINDS = {
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
BUFFERS = (r"model\.(encoder|decoder)\.embed_positions\.weights",)
"""Tensors without learned values: sinusoids."""


def import_bart(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` bart, mbart or m2m_100 (NLLB, too)."""
    kind = KINDS[config.values["model_type"]]
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
    left_out = checkpoint.finish((r"model\.shared\.weight",), BUFFERS)
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
