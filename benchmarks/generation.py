"""Speed of a language model, against other engines with the same weights in the same run.

    python benchmarks/generation.py --size base --batch 1 --beam 1
    python benchmarks/generation.py --size tiny --batch 32 --beam 4 --json
    python benchmarks/generation.py --size small --batch 1 --sample

The weights are random, in the shape of GPT-2: learned positions, pre-norm, GELU, an output matrix
that is the embedding's.  Prompts have the lengths of news, and every continuation --tokens tokens.
Peers take turns, and each ratio is of two neighbours in time; the table gives medians.  Ours
go from text to text.  bf16 is compared with the float32 of CTranslate2.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and "OMP_NUM_THREADS" not in os.environ:  # read when torch is loaded
    os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import copy
import importlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from decoding import Measured, batches, installed, measure, ratio, reference_of, same
from decoding_peers import NAMES, POSITIONS, TOGETHER, Rows, enlarge, numbers
from torch import nn
from workload import BOS, EOS, PAD, SIZES, UNK, VOCABULARY, Size, machine, median

from transduce.decoding.options import DecodingOptions
from transduce.engine.model import NativeModel
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig, build_decoder_only
from transduce.nn.kernels.linear import Precision
from transduce.nn.kernels.weight_layout import pack_for_few_rows
from transduce.nn.transformer import TransformerConfig
from transduce.tasks.language_model.generator import Generator
from transduce.tasks.language_model.native import NativeContinuations


@dataclass(frozen=True)
class Continue:
    """A beam size, or sampling; tokens of every continuation."""

    beam: int
    sample: bool
    length: int


Peer = Callable[[Rows, Continue], list[list[int]]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = command_line().parse_args(arguments)
    torch.set_num_threads(1)
    peers = make_peers(options, options.peers.split(","))
    asked = Continue(options.beam, options.sample, options.tokens)
    measured = measure(peers, batches(options), lambda batch: asked, options.rounds)
    if options.json:
        print(json.dumps(summary(measured)))
    else:
        print(f"{machine()}; 1 thread\n\n{table(options, measured)}")
    return 0


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = parser.add_argument
    add("--size", default="base", choices=SIZES, help="of the random model")
    add("--batch", type=int, default=1, help="prompts continued together")
    add("--beam", type=int, default=1, help="beam size; 1 is greedy search")
    add("--sample", action="store_true", help="draw from the whole distribution instead")
    add("--length", type=int, help="tokens of every prompt; by default as in news, mean 28")
    add("--tokens", type=int, default=64, help="tokens of every continuation")
    add("--rounds", type=int, default=6, help="batches that each engine continues")
    add("--seed", type=int, default=1, help="of weights and prompts")
    add("--peers", default=",".join(MAKERS), help=f"engines, of {', '.join(MAKERS)}")
    add("--json", action="store_true", help="one object instead of a table")
    return parser


MAKERS: dict[str, Callable[[Any, Any], Peer]] = {
    "native float32": lambda model, config: native(model, config, "float32"),
    "native bf16": lambda model, config: native(model, config, "bf16"),
    "native int8": lambda model, config: native(model, config, "int8"),
    "pytorch float32": lambda model, config: pytorch(model),
    "ctranslate2 float32": lambda model, config: ctranslate2(model, config, "float32"),
    "ctranslate2 int8": lambda model, config: ctranslate2(model, config, "int8"),
    "transformers float32": lambda model, config: transformers(model, config),
}


def make_peers(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Peer]:
    """The installed peers, all with the same weights."""
    model, config = gpt2_shaped(SIZES[options.size], options.seed)
    return installed(names, lambda name: MAKERS[name](model, config))


def gpt2_shaped(size: Size, seed: int) -> tuple[DecoderOnly, DecoderOnlyConfig]:
    """Random weights in the shape of GPT-2, to which special tokens are unlikely."""
    torch.manual_seed(seed)
    stack = TransformerConfig(
        n_layers=size.layers,
        n_heads=size.heads,
        d_ff=size.inner,
        activation="gelu-tanh",
        norm_order="pre",
        positions="learned",
        max_positions=POSITIONS,
    )
    config = DecoderOnlyConfig(d_model=size.width, decoder=stack, scale_embeddings=False)
    model = build_decoder_only(config, VOCABULARY).eval()
    enlarge(model)
    with torch.no_grad():
        model.front_end.embedding.weight[[PAD, UNK, BOS, EOS]] = 0  # also those of the head
    return model, config


def pytorch(model: DecoderOnly) -> Peer:
    """Our generator with the PyTorch engine."""
    model = copy.deepcopy(model)
    pack_for_few_rows(model)  # as `transduce.load` does
    return generated(our_generator(model))


def native(model: DecoderOnly, config: DecoderOnlyConfig, precision: Precision) -> Peer:
    """Our generator with the native engine."""
    generator = our_generator(model)
    generator.native = NativeContinuations(NativeModel(model, config, precision), POSITIONS)
    return generated(generator)


def our_generator(model: DecoderOnly) -> Generator:
    """A generator whose words are numbers."""
    return Generator(model, numbers(), DecodingOptions(), POSITIONS)


def generated(generator: Generator) -> Peer:
    """Text to text."""

    def go_on(rows: Rows, asked: Continue) -> list[list[int]]:
        options = DecodingOptions(
            method="sample" if asked.sample else "beam",
            beam_size=asked.beam,
            length_penalty="none",
            min_length=asked.length,
            max_tokens=asked.length,
            batch_tokens=TOGETHER,
        )
        found = generator.generate([" ".join(map(str, row)) for row in rows], options)
        return [[int(word) for word in one.tokens] for one in found]

    return go_on


def transformers_model(model: DecoderOnly, config: DecoderOnlyConfig) -> Any:
    """GPT2LMHeadModel of transformers with our weights."""
    library = importlib.import_module("transformers")
    stack = config.decoder
    theirs = library.GPT2LMHeadModel(
        library.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=POSITIONS,
            n_embd=config.d_model,
            n_layer=stack.n_layers,
            n_head=stack.n_heads,
            n_inner=stack.d_ff,
            bos_token_id=BOS,
            eos_token_id=EOS,
            pad_token_id=PAD,
        )
    ).eval()
    copied = {
        "transformer.wte.weight": model.front_end.embedding.weight,
        "transformer.wpe.weight": model.decoder.positions.table.weight,
        "transformer.ln_f": model.decoder.norm,
    }
    for i, layer in enumerate(model.decoder.layers):
        copied |= {
            f"transformer.h.{i}.attn.c_attn": layer.self_attention.query_key_value,
            f"transformer.h.{i}.attn.c_proj": layer.self_attention.output,
            f"transformer.h.{i}.ln_1": layer.self_attention_residual.norm,
            f"transformer.h.{i}.mlp.c_fc": layer.feed_forward.inner,
            f"transformer.h.{i}.mlp.c_proj": layer.feed_forward.outer,
            f"transformer.h.{i}.ln_2": layer.feed_forward_residual.norm,
        }
    with torch.no_grad():
        for name, part in copied.items():
            if isinstance(part, torch.Tensor):
                theirs.get_parameter(name).copy_(part)
                continue
            weight = part.weight.T if isinstance(part, nn.Linear) else part.weight
            theirs.get_parameter(f"{name}.weight").copy_(weight)
            theirs.get_parameter(f"{name}.bias").copy_(part.bias)
    return theirs


def transformers(model: DecoderOnly, config: DecoderOnlyConfig) -> Peer:
    """`generate` of transformers, with fused attention."""
    theirs = transformers_model(model, config)

    @torch.inference_mode()
    def go_on(rows: Rows, asked: Continue) -> list[list[int]]:
        longest = max(map(len, rows)) + 1
        ids = torch.full((len(rows), longest), PAD)
        for i, row in enumerate(rows):
            ids[i, longest - len(row) - 1 :] = torch.tensor([BOS, *row])
        found = theirs.generate(
            input_ids=ids,
            attention_mask=(ids != PAD).long(),
            num_beams=asked.beam,
            do_sample=asked.sample,
            top_k=0 if asked.sample else None,
            min_new_tokens=asked.length,
            max_new_tokens=asked.length,
            length_penalty=0.0 if asked.beam > 1 else None,
        )
        outputs: list[list[int]] = found[:, longest:].tolist()
        return outputs

    return go_on


def ctranslate2(model: DecoderOnly, config: DecoderOnlyConfig, precision: str) -> Peer:
    """CTranslate2's Generator, with a model converted from transformers."""
    library = importlib.import_module("ctranslate2")
    loader = importlib.import_module("ctranslate2.converters.transformers").GPT2Loader()
    spec = loader.get_model_spec(transformers_model(model, config))
    ids = {name: i for i, name in enumerate(NAMES)}
    spec.register_vocabulary(NAMES)
    spec.config.bos_token = NAMES[BOS]
    spec.config.eos_token = NAMES[EOS]
    spec.config.unk_token = NAMES[UNK]
    spec.validate()
    with tempfile.TemporaryDirectory() as directory:
        spec.save(directory)
        generator = library.Generator(
            directory, compute_type=precision, inter_threads=1, intra_threads=1
        )

    def go_on(rows: Rows, asked: Continue) -> list[list[int]]:
        found = generator.generate_batch(
            [["<s>", *(NAMES[i] for i in row)] for row in rows],
            beam_size=asked.beam,
            sampling_topk=0 if asked.sample else 1,
            min_length=asked.length,
            max_length=asked.length,
            length_penalty=0,
            max_batch_size=0,
            include_prompt_in_result=False,
        )
        return [[ids[name] for name in one.sequences[0]] for one in found]

    return go_on


def summary(measured: dict[str, Measured]) -> dict[str, Any]:
    """Each engine of ours against the others."""
    found = {}
    for name, record in measured.items():
        entry: dict[str, float] = {"tokens_per_cpu_second": round(median(record.per_cpu_second), 1)}
        reference = reference_of(name.split()[1])
        for other in (f"ctranslate2 {reference}", "pytorch float32", "transformers float32"):
            if other in measured and other != name:
                times = ratio(record.per_cpu_second, measured[other].per_cpu_second)
                entry[f"ratio to {other}"] = round(times, 3)
        if "pytorch float32" in measured:
            entry["same_outputs"] = round(same(record, measured["pytorch float32"]), 4)
        found[name] = entry
    return found


def table(options: argparse.Namespace, measured: dict[str, Measured]) -> str:
    """Markdown."""
    way = "sampling" if options.sample else f"beam {options.beam}"
    lines = [
        f"{options.size}, batch {options.batch}, {way}, {options.tokens} tokens after prompts of "
        f"{options.length or 'news'} length, {options.rounds} rounds",
        "",
        "| engine | tokens/CPU-s | of CTranslate2 | of PyTorch | of transformers | "
        "as PyTorch float32 |",
        "|-|-:|-:|-:|-:|-:|",
    ]
    for name, entry in summary(measured).items():
        reference = f"ctranslate2 {reference_of(name.split()[1])}"
        others = (reference, "pytorch float32", "transformers float32")
        cells = [name, f"{entry['tokens_per_cpu_second']:,.0f}"]
        cells += [f"{found:.2f}" if (found := entry.get(f"ratio to {o}")) else "" for o in others]
        cells.append(f"{entry['same_outputs']:.0%}" if "same_outputs" in entry else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
