"""Speech2Text (Wang et al. 2020): gated convolutions, encoder and decoder, as fairseq's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from transduce.errors import DataError, naming
from transduce.interop.layers import Copier, MarianDefaults, StackLayout, fairseq_sinusoids
from transduce.interop.read import Config, ImportedModel, open_checkpoint, read_json
from transduce.interop.tokenizers import CONFIG, PIECES, VOCABULARY
from transduce.models.speech_config import SpeechConfig
from transduce.nn.front_ends.speech_config import SpeechFrontEndConfig
from transduce.settings.sections import to_dict
from transduce.text import MarianTokenizer, Numbering

PAD_THERE = 1
"""Id of the padding, which fairseq counts positions from."""
FRAMES = 6000
"""Maximum number of 10 ms frames of a recording, by the size of the position table."""
BUFFERS = (r"model\.(encoder|decoder)\.embed_positions\.weights",)  # sinusoids
USUAL = MarianDefaults("relu", 0.1, n_layers=12, n_heads=4, d_ff=2048)


def import_speech_to_text(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` speech_to_text."""
    config.known_architecture("Speech2TextForConditionalGeneration")
    config.require("pad_token_id", PAD_THERE, PAD_THERE)
    config.require("input_channels", 1, 1)
    checkpoint = open_checkpoint(directory)
    copier = Copier(checkpoint)
    m, size = config.integer("d_model", 256), config.integer("vocab_size", 10000)
    bins = config.integer("input_feat_per_channel", 80)
    scaled = config.flag("scale_embedding", True)
    tokenizer = _tokenizer(directory, config, size)
    front_end = _convolutions(config, copier, bins, m, math.sqrt(m) if scaled else 1.0)
    positions = FRAMES // front_end.stride, config.integer("max_target_positions", 1024)
    usual = USUAL, USUAL._replace(n_layers=6)
    encoder, decoder = (
        copier.marian_stack(
            config,
            stack,
            m,
            defaults,
            StackLayout("pre", positions=fairseq_sinusoids(n, m, PAD_THERE + 1)),
        )
        for stack, n, defaults in zip(("encoder", "decoder"), positions, usual, strict=True)
    )
    copier.tied_words("lm_head", tokenizer.numbering.rows, size, m)
    left_out = checkpoint.finish((), BUFFERS)
    model = SpeechConfig(
        d_model=m,
        front_end=front_end,
        encoder=encoder,
        decoder=decoder,
        ctc=False,
        scale_embeddings=scaled,
        output_bias=True,
    )
    recipe: dict[str, Any] = {
        "task": "speech-recognition",
        "data": {},
        "audio": {"bins": bins, "normalise": "utterance"},
        "text": {"tokenizer": {"kind": tokenizer.kind}},
        "model": to_dict(model),
        "decoding": {"beam_size": 5, "stop": "first", "length_penalty": "mean"},
    }
    return ImportedModel(recipe, copier.weights, {"tokenizer": tokenizer}, left_out=left_out)


def _tokenizer(directory: Path, config: Config, size: int) -> MarianTokenizer:
    path = directory / CONFIG
    settings = read_json(path) if path.is_file() else {}
    if settings.get("lang_codes") is not None:
        raise DataError(f"{path}: lang_codes, several target languages, is not supported")
    for name in ("do_upper_case", "do_lower_case"):
        if settings.get(name, False):
            raise DataError(f"{path}: {name} is not supported")
    for name in (PIECES, VOCABULARY):
        if not (directory / name).is_file():
            raise DataError(f"{directory} has no {name}; copy the files of the tokenizer")
    pieces = read_json(directory / VOCABULARY)
    eos = config.token("eos_token_id")
    start = config.token("decoder_start_token_id")
    if eos is None or not all(isinstance(i, int) and i >= 0 for i in pieces.values()):
        raise DataError(f"{directory}: {VOCABULARY} must map pieces to ids, and one is the end")
    with naming(directory / PIECES):
        numbering = Numbering(
            size=size,
            pad=PAD_THERE,
            unk=pieces.get("<unk>"),
            bos=eos if start is None else start,
            eos=eos,
        )
        return MarianTokenizer((directory / PIECES).read_bytes(), pieces, numbering)


def _convolutions(
    config: Config, copier: Copier, bins: int, m: int, scale: float
) -> SpeechFrontEndConfig:
    """Copy the convolutions; their outputs are multiplied by `scale`, before the gate."""
    n_layers = config.integer("num_conv_layers", 2)
    widths = config.values.get("conv_kernel_sizes") or [5] * n_layers
    if not isinstance(widths, list) or len({*widths}) != 1 or len(widths) != n_layers:
        raise DataError(f"{config.path}: conv_kernel_sizes = {widths!r} must be of one width")
    channels = config.integer("conv_channels", 1024) // 2
    front_end = SpeechFrontEndConfig(n_layers=n_layers, width=widths[0], channels=channels)
    for i in range(n_layers):
        before = channels if i else bins
        after = m if i == n_layers - 1 else channels
        ours, theirs = f"front_end.convolutions.{i}", f"model.encoder.conv.conv_layers.{i}"
        for part, shape in (("weight", (2 * after, before, widths[0])), ("bias", (2 * after,))):
            values = copier.checkpoint.take(f"{theirs}.{part}", *shape)
            if i == n_layers - 1:
                values = torch.cat([values[:after] * scale, values[after:]])
            copier.weights[f"{ours}.{part}"] = values
    return front_end
