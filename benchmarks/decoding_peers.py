"""One model in our engines, CTranslate2 and transformers: the same weights, the same inputs.

Each peer takes rows of source ids, without an end of sentence, and gives the ids of the best
hypothesis of each.  The time includes conversions that a user needs; batches and padding are left
to the library.
"""

from __future__ import annotations

import copy
import importlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from marian import marian
from torch import nn
from workload import BOS, EOS, PAD, UNK, VOCABULARY, Size

from transduce.decoding.backend import SearchBackend
from transduce.decoding.options import DecodingOptions
from transduce.decoding.step_search import EncoderDecoderSearch, padded_ids
from transduce.engine.model import NativeModel
from transduce.interop.ctranslate2 import write_ctranslate2
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.kernels import lay_out_for_few_rows
from transduce.nn.precision import Precision
from transduce.nn.stack_configs import TransformerConfig
from transduce.tasks.translation.recipe import DataConfig, TranslationRecipe
from transduce.tasks.translation.text_translator import TranslatorConfig
from transduce.tasks.translation.translator import Translator
from transduce.text.tokenizer import Normalizer, SymbolTokenizer

Rows = Sequence[Sequence[int]]
POSITIONS = 1024
TOGETHER = 10**9
"""Tokens of a batch: whatever is given at once is decoded at once."""


def names(size: int = VOCABULARY) -> list[str]:
    """Tokens by their ids: numbers, behind the special ones."""
    return ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(4, size))]


@dataclass(frozen=True)
class Question:
    """Options of decoding.

    length: tokens of every output; by default the model ends outputs, within the bounds of
    `options`.
    """

    beam: int
    length: int | None
    options: DecodingOptions

    @property
    def ours(self) -> DecodingOptions:
        """As our options."""
        if self.length is None:
            return self.options
        return DecodingOptions(
            beam_size=self.beam,
            length_penalty="none",
            min_length=self.length,
            max_length_ratio=0.0,
            max_length_extra=self.length,
            free_end=True,
            batch_tokens=TOGETHER,
        )


Peer = Callable[[Rows, Question], list[list[int]]]


def marian_shaped(
    size: Size, seed: int, vocabulary: int = VOCABULARY
) -> tuple[EncoderDecoder, EncoderDecoderConfig]:
    """Random weights in the shape of a Marian model.

    Padding, unknown and beginning of sentence are ruled out by the bias on the logits.
    """
    torch.manual_seed(seed)
    stack = TransformerConfig(
        n_layers=size.layers,
        n_heads=size.heads,
        d_ff=size.inner,
        norm_order="post",
        positions="sinusoidal-halves",
    )
    config = EncoderDecoderConfig(
        d_model=size.width, encoder=stack, decoder=stack, output_bias=True
    )
    model = build_encoder_decoder(config, vocabulary, vocabulary, joint=True).eval()
    enlarge(model)
    assert model.head.bias is not None
    with torch.no_grad():
        model.head.bias[[PAD, UNK, BOS]] = -1e9
    return model, config


@torch.no_grad()
def enlarge(model: nn.Module) -> None:
    """Draw linear layers anew, larger than first weights, as trained ones are."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.normal_(0, 1.2 * module.in_features**-0.5)
            module.bias.normal_(0, 0.02)


def pytorch(model: EncoderDecoder) -> Peer:
    """Our translator with the PyTorch engine."""
    model = copy.deepcopy(model)
    weights = model.state_dict()
    lay_out_for_few_rows(model)  # as `transduce.load` does
    model.load_state_dict(weights)
    return translated(model, EncoderDecoderSearch(model, padded_ids))


def native(model: EncoderDecoder, config: EncoderDecoderConfig, precision: Precision) -> Peer:
    """Our translator with the native engine."""
    search = EncoderDecoderSearch(model, padded_ids)
    return translated(model, search.native(NativeModel(model, config, precision)))


def numbers(size: int = VOCABULARY) -> SymbolTokenizer:
    """A tokenizer whose words are numbers, the ids of their tokens."""
    return SymbolTokenizer(names(size)[4:], Normalizer())


def translated(model: EncoderDecoder, search: SearchBackend) -> Peer:
    """A translator whose words are numbers, text to text."""
    words = numbers(len(model.head.weight))
    translator = Translator(
        options=DecodingOptions(),
        backend=search,
        source=words,
        target=words,
        config=TranslatorConfig(10**6),
        recipe=TranslationRecipe(data=DataConfig()),
        network=lambda: model,
    )

    def translate(rows: Rows, question: Question) -> list[list[int]]:
        texts = [" ".join(map(str, row)) for row in rows]
        translations = translator.translate(texts, question.ours)
        return [[int(word) for word in translation.tokens] for translation in translations]

    return translate


def ctranslate2(
    model: EncoderDecoder,
    config: EncoderDecoderConfig,
    precision: str,
    threads: int,
    device: str = "cpu",
) -> Peer:
    """CTranslate2, its model converted from ours."""
    library = importlib.import_module("ctranslate2")
    words = names(len(model.head.weight))
    ids = {name: i for i, name in enumerate(words)}
    with tempfile.TemporaryDirectory() as directory:
        write_ctranslate2(model, config, Path(directory), words, words, POSITIONS, source_end=False)
        translator = library.Translator(
            directory, device=device, compute_type=precision, inter_threads=1, intra_threads=threads
        )

    def translate(rows: Rows, question: Question) -> list[list[int]]:
        tokens = [[*(words[i] for i in row), "</s>"] for row in rows]
        translations = translator.translate_batch(
            tokens,
            beam_size=question.beam,
            max_decoding_length=question.length,
            min_decoding_length=question.length,
            length_penalty=0,
            max_batch_size=0,
        )
        return [[ids[name] for name in one.hypotheses[0]] for one in translations]

    return translate


def transformers(
    model: EncoderDecoder,
    config: EncoderDecoderConfig,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Peer:
    """MarianMTModel of transformers and its `generate`, with fused attention."""
    assert isinstance(config.decoder, TransformerConfig)
    assert config.decoder.norm_order == "post"
    theirs = marian(config, VOCABULARY, VOCABULARY, joint=True, positions=POSITIONS).eval()
    copy_marian(theirs, model)
    theirs.to(device, dtype)

    @torch.inference_mode()
    def translate(rows: Rows, question: Question) -> list[list[int]]:
        longest = max(map(len, rows)) + 1
        ids = torch.full((len(rows), longest), PAD)
        for i, row in enumerate(rows):
            ids[i, : len(row) + 1] = torch.tensor([*row, EOS])
        ids = ids.to(device)
        continuations = theirs.generate(
            input_ids=ids,
            attention_mask=(ids != PAD).long(),
            num_beams=question.beam,
            do_sample=False,
            min_new_tokens=question.length,
            max_new_tokens=question.length,
            max_length=None,
            length_penalty=0.0,
            early_stopping=False,
        )
        outputs: list[list[int]] = continuations[:, 1:].tolist()
        return outputs

    return translate


@torch.no_grad()
def copy_marian(theirs: Any, ours: EncoderDecoder) -> None:
    """Our weights into theirs."""
    theirs.model.shared.weight.copy_(ours.head.weight)
    theirs.final_logits_bias.copy_(ours.head.bias)
    for name, stack in (("encoder", ours.encoder), ("decoder", ours.decoder)):
        for i, layer in enumerate(getattr(theirs.model, name).layers):
            own: Any = stack.layers[i]  # type: ignore[attr-defined]
            parts = {
                "self_attn.q_proj self_attn.k_proj self_attn.v_proj": (
                    own.self_attention.query_key_value
                ),
                "self_attn.out_proj": own.self_attention.output,
                "self_attn_layer_norm": own.self_attention_residual.norm,
                "fc1": own.feed_forward.inner,
                "fc2": own.feed_forward.outer,
                "final_layer_norm": own.feed_forward_residual.norm,
            }
            if name == "decoder":
                parts |= {
                    "encoder_attn.q_proj": own.cross_attention.query,
                    "encoder_attn.k_proj encoder_attn.v_proj": own.cross_attention.key_value,
                    "encoder_attn.out_proj": own.cross_attention.output,
                    "encoder_attn_layer_norm": own.cross_attention_residual.norm,
                }
            for targets, source in parts.items():
                for values in ("weight", "bias"):
                    pieces = [layer.get_parameter(f"{x}.{values}") for x in targets.split()]
                    chunks = getattr(source, values).chunk(len(pieces))
                    for piece, chunk in zip(pieces, chunks, strict=True):
                        piece.copy_(chunk)
