"""Checkpoints in the layout of OpenNMT-py, and what its layers compute, written out."""

from __future__ import annotations

import argparse
import collections
import io
import os
import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import transduce
from helpers.hugging_face import sentence_pieces, sentences
from helpers.native import needs_native
from transduce import DataError
from transduce.interop.opennmt import import_opennmt
from transduce.runs.importing import import_run
from transduce.sequence import Padded

WORDS = ["<unk>", "<blank>", "<s>", "</s>", *"abcdefghijkl"]
M, INNER, DEPTH = 16, 20, 2
SHAPES: dict[str, dict[str, Any]] = {
    "sinusoids, shared": {"position_encoding": True, "share_embeddings": True},
    "biases, gelu": {
        "position_encoding": True,
        "add_qkvbias": True,
        "pos_ffn_activation_fn": "gelu",
    },
    "sinusoids in halves": {
        "position_encoding": True,
        "position_encoding_type": "SinusoidalConcat",
        "heads": 4,
    },
    "rotary pairs": {"max_relative_positions": -1, "add_qkvbias": True, "share_decoder": True},
    "rotary halves, rms, gates": {
        "max_relative_positions": -1,
        "rotary_interleave": False,
        "layer_norm": "rms",
        "norm_eps": 1e-5,
        "pos_ffn_activation_fn": "silu",
    },
    "no positions": {},
}
TARGETS = [[2, 5, 6, 7, 9], [2, 9, 8, 4]]
SOURCES = ["a b c d e", "f g"]


def random_checkpoint(words: Sequence[str] = WORDS, **options: Any) -> dict[str, Any]:
    """Parts of a file of `torch.save`, as OpenNMT-py 3 writes them."""
    generator = torch.Generator().manual_seed(len(options))
    gated, rms = options.get("pos_ffn_activation_fn") == "silu", options.get("layer_norm") == "rms"
    biased, feed_biased = options.get("add_qkvbias", False), not gated
    tensors: dict[str, Tensor] = {}

    def linear(name: str, n_in: int, n_out: int, bias: bool) -> None:
        tensors[f"{name}.weight"] = torch.randn(n_out, n_in, generator=generator) * 0.4
        if bias:
            tensors[f"{name}.bias"] = torch.randn(n_out, generator=generator) * 0.4

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = torch.randn(M, generator=generator) * 0.3 + 1
        if not rms:
            tensors[f"{name}.bias"] = torch.randn(M, generator=generator) * 0.3

    for side, layers in (("encoder", "transformer"), ("decoder", "transformer_layers")):
        table = f"{side}.embeddings.make_embedding.emb_luts.0"
        linear(table, M, len(words), False)
        if options.get("position_encoding"):
            tensors[f"{side}.embeddings.make_embedding.pe.pe"] = torch.zeros(5000, 1, M)
        for layer in (f"{side}.{layers}.{i}" for i in range(DEPTH)):
            kinds = ["self_attn"] if side == "encoder" else ["self_attn", "context_attn"]
            for kind in kinds:
                for part in ("linear_query", "linear_keys", "linear_values", "final_linear"):
                    linear(f"{layer}.{kind}.{part}", M, M, biased)
            linear(f"{layer}.feed_forward.w_1", M, INNER, feed_biased)
            linear(f"{layer}.feed_forward.w_2", INNER, M, feed_biased)
            if gated:
                linear(f"{layer}.feed_forward.w_3", M, INNER, False)
            norms = ["layer_norm"] if side == "encoder" else ["layer_norm_1", "layer_norm_2"]
            for name in (*norms, "feed_forward.layer_norm"):
                norm(f"{layer}.{name}")
        norm(f"{side}.layer_norm")
    linear("generator", M, len(words), True)
    target = "decoder.embeddings.make_embedding.emb_luts.0.weight"
    output = {part: tensors.pop(f"generator.{part}") for part in ("weight", "bias")}
    if options.get("share_embeddings"):
        tensors[target] = tensors["encoder.embeddings.make_embedding.emb_luts.0.weight"]
    if options.pop("share_decoder", False) or options.get("share_embeddings"):
        output["weight"] = tensors[target]
    usual = {
        "heads": 2,
        "dropout": [0.1],
        "attention_dropout": [0.1],
        "encoder_type": "transformer",
    }
    return {
        "model": tensors,
        "generator": output,
        "vocab": {"src": words, "tgt": words, "data_task": "seq2seq", "decoder_start_token": "<s>"},
        "opt": argparse.Namespace(**{**usual, **options}),
        "optim": {"training_step": 1},
    }


class Theirs:
    """The computation of a checkpoint."""

    def __init__(self, checkpoint: dict[str, Any]) -> None:
        self.tensors = checkpoint["model"] | {
            f"generator.{name}": tensor for name, tensor in checkpoint["generator"].items()
        }
        self.options = vars(checkpoint["opt"])

    def logits(self, source: list[int], target: list[int]) -> Tensor:
        x = self._embedded("encoder", source)
        for layer in (f"encoder.transformer.{i}" for i in range(DEPTH)):
            normed = self._norm(f"{layer}.layer_norm", x)
            x = x + self._attention(f"{layer}.self_attn", normed, normed, False, True)
            x = x + self._feed_forward(layer, x)
        memory, x = self._norm("encoder.layer_norm", x), self._embedded("decoder", target)
        for layer in (f"decoder.transformer_layers.{i}" for i in range(DEPTH)):
            normed = self._norm(f"{layer}.layer_norm_1", x)
            x = x + self._attention(f"{layer}.self_attn", normed, normed, True, True)
            normed = self._norm(f"{layer}.layer_norm_2", x)
            x = x + self._attention(f"{layer}.context_attn", normed, memory, False, False)
            x = x + self._feed_forward(layer, x)
        return self._linear("generator", self._norm("decoder.layer_norm", x))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, epsilon = self.tensors[f"{name}.weight"], self.options.get("norm_eps", 1e-6)
        if self.options.get("layer_norm") == "rms":
            return x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight
        return F.layer_norm(x, (M,), weight, self.tensors[f"{name}.bias"], epsilon)

    def _embedded(self, side: str, ids: list[int]) -> Tensor:
        x = self.tensors[f"{side}.embeddings.make_embedding.emb_luts.0.weight"][ids]
        if not self.options.get("position_encoding"):
            return x
        at, half = torch.arange(len(ids)).float()[:, None], torch.arange(M // 2).float()
        if self.options.get("position_encoding_type") == "SinusoidalConcat":
            angles = at * 10000 ** (-half / (M // 2 - 1))
            return x * M**0.5 + torch.cat([angles.sin(), angles.cos()], 1)
        angles = at * 10000 ** (-2 * half / M)
        return x * M**0.5 + torch.stack([angles.sin(), angles.cos()], 2).flatten(1)

    def _feed_forward(self, layer: str, x: Tensor) -> Tensor:
        name, kind = f"{layer}.feed_forward", self.options.get("pos_ffn_activation_fn", "relu")
        x = self._norm(f"{name}.layer_norm", x)
        inner = getattr(F, kind)(self._linear(f"{name}.w_1", x))
        inner = inner * self._linear(f"{name}.w_3", x) if kind == "silu" else inner
        return self._linear(f"{name}.w_2", inner)

    def _attention(self, name: str, x: Tensor, seen: Tensor, causal: bool, turned: bool) -> Tensor:
        parts = (("query", x), ("keys", seen), ("values", seen))
        heads = self.options["heads"]
        query, key, value = (
            self._linear(f"{name}.linear_{part}", of).view(len(of), heads, -1).transpose(0, 1)
            for part, of in parts
        )
        if turned and self.options.get("max_relative_positions") == -1:
            query, key = self._turned(query), self._turned(key)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self._linear(f"{name}.final_linear", mixed.transpose(0, 1).flatten(1))

    def _turned(self, x: Tensor) -> Tensor:
        d = x.shape[-1]
        angles = torch.arange(x.shape[1]).float()[:, None] * 10000 ** (-torch.arange(0, d, 2) / d)
        turn = torch.polar(torch.ones_like(angles), angles)
        if self.options.get("rotary_interleave", True):
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turn
            return torch.view_as_real(pairs).flatten(2)
        both = torch.complex(x[..., : d // 2].contiguous(), x[..., d // 2 :].contiguous()) * turn
        return torch.cat([both.real, both.imag], -1)


@pytest.mark.parametrize("name", SHAPES)
def test_log_probabilities_agree(name: str, tmp_path: Path) -> None:
    checkpoint = random_checkpoint(**SHAPES[name])
    torch.save(checkpoint, tmp_path / "m.pt")
    run = transduce.load(import_run(tmp_path / "m.pt", tmp_path / "run"), "cpu")
    rows = list(run.translator.target.numbering.rows)  # type: ignore[attr-defined]
    theirs = Theirs(checkpoint)
    for text, target in zip(SOURCES, TARGETS, strict=True):
        source = [WORDS.index(word) for word in text.split()]
        ids = run.translator.source.as_source(run.translator.source.encode(text))
        assert [rows[i] for i in ids] == source  # without an end
        expected = theirs.logits(source, target).log_softmax(-1)[:, rows]
        here = torch.tensor([[rows.index(token) for token in target]])
        with torch.inference_mode():
            logits = run.translator.model(
                Padded.unpadded(torch.tensor([ids])), Padded.unpadded(here)
            )
        made = logits[0].log_softmax(-1)
        assert torch.allclose(made, expected, atol=1e-5), (made - expected).abs().max()
    tie = {"sinusoids, shared": "three-way", "rotary pairs": "two-way"}.get(name, "none")
    assert run.recipe.model.tie == tie  # type: ignore[attr-defined]


@needs_native
@pytest.mark.parametrize("name", [name for name in SHAPES if "rms" not in name])
def test_the_native_engine_translates_as_pytorch(name: str, tmp_path: Path) -> None:
    torch.save(random_checkpoint(**SHAPES[name]), tmp_path / "m.pt")
    path = import_run(
        tmp_path / "m.pt", tmp_path / "run", overrides=["decoding.max_length_extra=9"]
    )
    outputs = [transduce.load(path, "cpu", engine=engine) for engine in ("pytorch", "native")]
    pytorch, native = ([one.text for one in run.translate_batch(SOURCES)] for run in outputs)
    assert pytorch == native and all(len(text.split()) <= 9 for text in pytorch)


def test_a_sentencepiece_model_beside_it_or_above(tmp_path: Path) -> None:
    content, pieces = sentence_pieces(sentences(300, 1, "abcdefgh"), 60)
    words = [*WORDS[:4], *pieces[3:]]
    checkpoint = random_checkpoint(words, position_encoding=True)
    (tmp_path / "onmt").mkdir()
    (tmp_path / "sentencepiece.model").write_bytes(content)
    torch.save(checkpoint, tmp_path / "onmt" / "m.pt")
    run = transduce.load(import_run(tmp_path / "onmt" / "m.pt", tmp_path / "run"), "cpu")
    source, numbering = run.translator.source, run.translator.source.numbering  # type: ignore[attr-defined]
    there = [words[numbering.rows[i]] for i in source.encode("abba")]
    assert "".join(there) == "▁abba" and source.decode(source.encode("abba")) == "abba"
    other = random_checkpoint(
        words, position_encoding=True, src_subword_model="x/a", tgt_subword_model="a"
    )
    torch.save(other, tmp_path / "onmt" / "m.pt")
    (tmp_path / "sentencepiece.model").rename(tmp_path / "onmt" / "a")
    assert import_opennmt(tmp_path / "onmt" / "m.pt").recipe["text"] == {
        "source": {"kind": "marian"}
    }


class Fields(collections.OrderedDict[str, Any]):
    """An object of another package."""


class Code:
    """Runs code where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("model"), "has no 'model'"),
        (lambda c: c.pop("opt"), "has no 'opt'"),
        (lambda c: c.update(vocab={"src": [1], "tgt": [2]}), "convertv2_v3"),
        (
            lambda c: c["opt"].__setattr__("max_relative_positions", 20),
            "positions = 20 is not supp",
        ),
        (lambda c: c["opt"].__setattr__("copy_attn", True), "copy_attn = True is not supported"),
        (lambda c: c["opt"].__setattr__("heads", 3), "3 heads do not divide"),
        (lambda c: c["opt"].__setattr__("heads", "2"), "heads must be a whole number"),
        (lambda c: c["opt"].__setattr__("dropout", "much"), "dropout must be a number"),
        (lambda c: c["opt"].__setattr__("num_kv", 1), "num_kv = 1 is not supported"),
        (lambda c: c["model"].update(more=torch.ones(1)), "unexpected tensor 'more'"),
        (lambda c: c["model"].update(more=[1]), "'more' is no dense tensor"),
        (
            lambda c: c["model"].update(more=torch.ones(1).expand(1 << 40)),
            "'more' is no dense tensor",
        ),
        (lambda c: c["generator"].pop("weight"), None),
        (
            lambda c: c["vocab"].update(src=WORDS * 2),
            "has .32, 16. tokens, but embeddings of .16, 16.",
        ),
        (
            lambda c: c["vocab"].update(src=["word", *WORDS[1:]]),
            "the vocabulary has no unk_token",
        ),
    ],
)
def test_refused_in_a_line(tmp_path: Path, change: Any, message: str | None) -> None:
    checkpoint = random_checkpoint(position_encoding=True)
    change(checkpoint)
    torch.save(checkpoint, tmp_path / "m.pt")
    if message is None:  # an output matrix that is the embedding
        assert import_opennmt(tmp_path / "m.pt").recipe["model"]["tie"] == "two-way"
        return
    with pytest.raises(DataError, match=message) as refused:
        import_opennmt(tmp_path / "m.pt")
    assert "\n" not in str(refused.value)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    for name, change in (
        ("code", {"vocab": Code(tmp_path / "made")}),
        ("fields", {"vocab": Fields(src=Fields())}),
    ):
        torch.save(random_checkpoint() | change, tmp_path / f"{name}.pt")
        with pytest.raises(DataError, match="more than tensors and settings"):
            import_opennmt(tmp_path / f"{name}.pt")
    assert not (tmp_path / "made").exists()


def test_compressed_and_damaged_files(tmp_path: Path) -> None:
    file = io.BytesIO()
    torch.save(random_checkpoint(), file)
    whole = file.getvalue()
    with zipfile.ZipFile(tmp_path / "z.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("z/data.pkl", bytes(1 << 20))
    with pytest.raises(DataError, match="is compressed"):
        import_opennmt(tmp_path / "z.pt")
    draw = random.Random(1)
    pickled = whole.index(b"data.pkl")
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(pickled, pickled + 6000)] = draw.randrange(256)
        (tmp_path / "d.pt").write_bytes(damaged[: draw.choice((len(whole), draw.randrange(9000)))])
        try:
            import_opennmt(tmp_path / "d.pt")
        except DataError as error:
            assert "\n" not in str(error)
