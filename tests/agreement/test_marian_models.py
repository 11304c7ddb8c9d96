"""Marian's own models: those that Marian trained give its outputs here, and for ours its equations,
in NumPy below, give our log-probabilities."""

import dataclasses
import gzip
import hashlib
import io
import json
import shutil
import struct
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import sentencepiece
import torch
import zstandard

import transduce
from helpers.native import needs_native
from helpers.toy_translator import toy_pairs
from helpers.web import COMPILING, needs_node, needs_wasm, translated
from transduce import DecodingOptions, RunError
from transduce.errors import DataError
from transduce.interop.marian_export import bergamot_files
from transduce.interop.marian_files import bin_file, npz_file, read_model, shortlist_file
from transduce.interop.model_names import marian_languages, pair_of
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.stack_configs import SsruDecoderConfig, TransformerConfig
from transduce.runs.exporting import export_run
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.serve.runs import read_specs
from transduce.tasks.translation.shortlist import load_shortlist
from transduce.text import EOS, SubwordConfig, SubwordTokenizer
from transduce.text.imported import piece_table

GOLDEN = Path(__file__).parents[1] / "golden" / "marian"
"""Models of Marian 1.12 (`pip install pymarian`), trained for seconds, and its greedy outputs with
`--allow-unk --normalize 1`; attention.bin is made of attention.npz by its converter."""
OUTPUTS = json.loads((GOLDEN / "outputs.json").read_text(encoding="utf-8"))
GREEDY = DecodingOptions(
    beam_size=1, length_penalty="mean", free_end=True, max_length_ratio=3.0, max_length_extra=2
)
STACK = TransformerConfig(
    n_layers=2, n_heads=2, d_ff=64, dropout=0.0, positions="sinusoidal-marian", norm_epsilon=1e-6
)
BASE = EncoderDecoderConfig(d_model=64, tie="three-way", encoder=STACK, decoder=STACK)


def directory_of(tmp_path: Path, model: str) -> Path:
    directory = tmp_path / "theirs"
    directory.mkdir()
    shutil.copy(GOLDEN / "vocab.spm", directory)
    shutil.copy(GOLDEN / model, directory)
    (directory / "decoder.yml").write_text("vocabs:\n  - vocab.spm\n  - vocab.spm\nbeam-size: 3\n")
    return directory


@pytest.mark.parametrize("engine", ["pytorch", "native"])
@pytest.mark.parametrize("kind", ["attention", "ssru"])
def test_models_of_marian_translate_as_there(kind: str, engine: Any, tmp_path: Path) -> None:
    path = import_run(directory_of(tmp_path, f"{kind}.npz"), tmp_path / "run")
    run = transduce.load(path, "cpu", engine=engine)
    assert run.translator.options.beam_size == 3
    texts = [line.text for line in run.translate_batch(OUTPUTS["lines"], GREEDY)]
    assert texts == OUTPUTS[kind]


def test_an_int8_model_is_that_of_marian_rounded(tmp_path: Path) -> None:
    whole, rounded = read_model(GOLDEN / "attention.npz"), read_model(GOLDEN / "attention.bin")
    assert rounded.settings["transformer-heads"] == whole.settings["transformer-heads"] == 2
    assert whole.settings["input-types"] == [] and whole.settings["dim-vocabs"] == [120, 120]
    assert list(rounded.arrays) == list(whole.arrays)
    for name, array in whole.arrays.items():
        level = np.abs(array).max() / 127 if "_W" in name and "ln" not in name else 1e-9
        assert np.abs(rounded.arrays[name] - array).max() <= 0.51 * level + 1e-9, name
    run = import_run(directory_of(tmp_path, "attention.bin"), tmp_path / "run")
    texts = [
        line.text for line in transduce.load(run, "cpu").translate_batch(OUTPUTS["lines"], GREEDY)
    ]
    same = sum(ours == theirs for ours, theirs in zip(texts, OUTPUTS["attention"], strict=True))
    assert same >= 0.8 * len(texts)


def test_our_int8_file_has_the_matrices_of_marians_converter(tmp_path: Path) -> None:
    whole = read_model(GOLDEN / "attention.npz")
    (tmp_path / "ours.bin").write_bytes(bin_file(whole.arrays, "type: transformer\n"))
    ours = read_model(tmp_path / "ours.bin").arrays
    for name, array in read_model(GOLDEN / "attention.bin").arrays.items():
        if "Wemb" not in name:  # float32 there; Bergamot's models have it in int8
            np.testing.assert_array_equal(ours[name], array)
    assert 0 < np.abs(ours["Wemb"] - whole.arrays["Wemb"]).max() < 0.02


def test_the_shortlist_is_that_of_marians_converter() -> None:
    lists: list[list[int]] = [[] for _ in range(120)]
    lists[5], lists[7] = [9, 7], [8]
    content = shortlist_file(lists, 4)
    # of `marian-conv --shortlist`, which says in its header that 2 are kept of each, as here
    assert hashlib.sha256(content).hexdigest().startswith("cf0a195eac111336")


def tokenizer(size: int = 330, seed: int = 0) -> SubwordTokenizer:
    lines = [text for pair in toy_pairs(60, seed) for text in pair]
    return SubwordTokenizer.train(SubwordConfig(kind="unigram", size=size), lines)


def model_of(config: EncoderDecoderConfig, source: Any, target: Any) -> EncoderDecoder:
    model = build_encoder_decoder(config, source.size, target.size, source is target).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:  # fresh norms and biases would hide a wrong place
                weight.normal_(std=0.5)
    return model


SHAPES = {
    "three-way": BASE,
    "two-way": dataclasses.replace(BASE, tie="two-way", output_bias=True),
    "two vocabularies": dataclasses.replace(BASE, tie="two-way"),
    "student": dataclasses.replace(
        BASE, decoder=SsruDecoderConfig(n_layers=3, n_heads=2, d_ff=64, dropout=0.0)
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_marians_equations_give_our_log_probabilities(shape: str, tmp_path: Path) -> None:
    config, source = SHAPES[shape], tokenizer()
    target = tokenizer(352, 5) if shape == "two vocabularies" else source
    model = model_of(config, source, target)
    files = bergamot_files(model, config, source, target, {"beam-size": 1}, None)
    (tmp_path / "model.npz").write_bytes(files["model.npz"])
    sources = torch.randint(4, source.size, (1, 9))
    targets = torch.randint(4, target.size, (1, 7))
    begun = torch.cat([torch.tensor([[2]]), targets], 1)  # BOS
    with torch.inference_mode():
        logits = model(Padded.unpadded(sources), Padded.unpadded(begun))[0]
    logits = logits.clone()
    logits[:, [0, 2]] = -np.inf  # PAD and BOS are never chosen
    theirs = _Marian(tmp_path / "model.npz").logits(sources[0].numpy(), targets[0].numpy())
    right = logits.log_softmax(-1)[:, 3:]
    made = torch.from_numpy(theirs).log_softmax(-1)[:, 3:]
    assert (right - made).abs().max() < 2e-4
    assert files["vocab.spm" if source is target else "target.spm"] == target.to_bytes()


class _Marian:
    """Marian's equations over its tensors, a sentence at a time."""

    def __init__(self, file: Path) -> None:
        self.w, self.settings, _ = read_model(file)

    def logits(self, source: Any, target: Any) -> Any:
        """(t + 1, v): the first after the zero vector that an output starts with."""
        memory = self._embedded(self._table("encoder")[source])
        for i in range(1, self.settings["enc-depth"] + 1):
            memory = self._sublayers(memory, memory, f"encoder_l{i}_self", causal=False)
            memory = self._feed_forward(memory, f"encoder_l{i}_ffn")
        table = self._table("decoder")
        x = self._embedded(np.concatenate([0 * table[:1], table[target]]))
        for i in range(1, self.settings["dec-depth"] + 1):
            if f"decoder_l{i}_rnn_W" in self.w:
                x = self._recurrence(x, f"decoder_l{i}_rnn")
            else:
                x = self._sublayers(x, x, f"decoder_l{i}_self", causal=True)
            x = self._sublayers(x, memory, f"decoder_l{i}_context", causal=False)
            x = self._feed_forward(x, f"decoder_l{i}_ffn")
        return x @ table.T + self.w["decoder_ff_logit_out_b"][0]

    def _table(self, side: str) -> Any:
        return self.w["Wemb"] if "Wemb" in self.w else self.w[f"{side}_Wemb"]

    def _embedded(self, x: Any) -> Any:
        n = x.shape[1] // 2
        rates = np.exp(-np.log(10000.0) / (n - 1) * np.arange(n))
        angles = np.arange(len(x))[:, None] * rates
        waves = np.concatenate([np.sin(angles), np.cos(angles)], 1)
        return (np.sqrt(x.shape[1]) * x + waves).astype(np.float32)

    def _sublayers(self, x: Any, memory: Any, prefix: str, causal: bool) -> Any:
        def part(name: str, rows: Any) -> Any:
            projected = rows @ self.w[f"{prefix}_W{name}"] + self.w[f"{prefix}_b{name}"][0]
            return projected.reshape(len(rows), self.settings["transformer-heads"], -1)

        query, key, value = part("q", x), part("k", memory), part("v", memory)
        scores = np.einsum("thd,shd->hts", query, key) / np.sqrt(query.shape[-1])
        if causal:
            scores += np.triu(np.full(scores.shape[1:], -1e9), 1)
        weights = torch.from_numpy(scores).softmax(-1).numpy()
        mixed = np.einsum("hts,shd->thd", weights, value).reshape(x.shape)
        return self._norm(
            x + mixed @ self.w[f"{prefix}_Wo"] + self.w[f"{prefix}_bo"][0], f"{prefix}_Wo"
        )

    def _recurrence(self, x: Any, prefix: str) -> Any:
        gates = 1 / (1 + np.exp(-(x @ self.w[f"{prefix}_Wf"] + self.w[f"{prefix}_bf"][0])))
        candidates, cell, outputs = x @ self.w[f"{prefix}_W"], 0 * x[0], []
        for gate, candidate in zip(gates, candidates, strict=True):
            cell = gate * cell + (1 - gate) * candidate
            outputs.append(np.maximum(cell, 0))
        return self._norm(x + np.stack(outputs), f"{prefix}_ffn")

    def _feed_forward(self, x: Any, prefix: str) -> Any:
        inner = np.maximum(x @ self.w[f"{prefix}_W1"] + self.w[f"{prefix}_b1"][0], 0)
        return self._norm(
            x + inner @ self.w[f"{prefix}_W2"] + self.w[f"{prefix}_b2"][0], f"{prefix}_ffn"
        )

    def _norm(self, x: Any, prefix: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return scaled * self.w[f"{prefix}_ln_scale"][0] + self.w[f"{prefix}_ln_bias"][0]


def test_an_exported_model_is_imported_again(tmp_path: Path) -> None:
    source = tokenizer()
    files = bergamot_files(model_of(BASE, source, source), BASE, source, source, {}, None)
    for name in ("model.npz", "vocab.spm"):
        (tmp_path / name).write_bytes(files[name])
    again = transduce.load(import_run(tmp_path, tmp_path / "again"), "cpu").translator
    assert again.recipe.model.encoder == STACK
    text = toy_pairs(1, 7)[0][0]
    assert again.source.tokens(again.source.encode(text)) == source.tokens(source.encode(text))
    sources = torch.tensor([[*again.source.encode(text), EOS]])
    with torch.inference_mode():
        logits = again.model(Padded.unpadded(sources), Padded.unpadded(torch.tensor([[2, 9]])))
    marian = _Marian(tmp_path / "model.npz")
    rows = np.array(again.source.numbering.rows)  # type: ignore[attr-defined]
    theirs = torch.from_numpy(marian.logits(rows[sources[0]], rows[[9]]))
    made = logits[0].log_softmax(-1)[:, 6:]  # without theirs of PAD and BOS
    assert (made - theirs.log_softmax(-1)[:, rows[6:]]).abs().max() < 2e-4


def firefox_directory(tmp_path: Path) -> Path:
    """A student in Firefox's form: names with languages, a shortlist, factors of activations."""
    source = tokenizer()
    config = SHAPES["student"]
    files = bergamot_files(model_of(config, source, source), config, source, source, {}, None)
    directory = tmp_path / "theirs"
    directory.mkdir()
    (directory / "whole.npz").write_bytes(files["model.npz"])
    whole = read_model(directory / "whole.npz")
    (directory / "whole.npz").unlink()
    factors = {"encoder_l1_ffn_W1_QuantMultA": np.array([[21.5]], np.float32)}
    text = "".join(f"{name}: {entry or '[]'}\n" for name, entry in STUDENT.items())
    content = bin_file({**whole.arrays, **factors}, text)
    (directory / "model.enpt.intgemm.alphas.bin").write_bytes(content)
    (directory / "vocab.enpt.spm").write_bytes(files["vocab.spm"])
    n = source.size
    lists = [sorted({i, (i * 7) % n, 50}) for i in range(n)]
    (directory / "lex.50.50.enpt.s2t.bin").write_bytes(shortlist_file(lists, 10))
    return directory


STUDENT = {
    "dim-emb": 64,
    "enc-depth": 2,
    "dec-depth": 3,
    "transformer-heads": 2,
    "transformer-dim-ffn": 64,
    "transformer-ffn-activation": "relu",
    "transformer-decoder-autoreg": "rnn",
    "dec-cell": "ssru",
}


def test_a_model_of_firefox_comes_in_whole(tmp_path: Path) -> None:
    directory = firefox_directory(tmp_path)
    path = import_run(directory, tmp_path / "run")
    run = transduce.load(path, "cpu")
    options, translator = run.translator.options, run.translator
    assert (options.beam_size, options.length_penalty, options.shortlist) == (1, "mean", True)
    assert run.recipe.languages.source == "en" and run.recipe.languages.target == "pt"
    shortlist = load_shortlist(path, translator.source, translator.target)
    assert shortlist is not None
    rows = np.array(translator.source.numbering.rows)  # type: ignore[attr-defined]
    text = toy_pairs(1, 7)[0][0]
    ids = translator.source.encode(text)
    end = translator.source.numbering.eos  # type: ignore[attr-defined]
    size = len(rows) - 2  # without our padding and beginning
    there = {*range(10), 50}.union(*({i, (i * 7) % size} for i in [*rows[ids], end]))
    allowed = shortlist.of(ids)
    assert {*rows[allowed].tolist()} - {-1} == {*there, *rows[ids].tolist()}
    for precision in ("float32", "int8"):
        loaded = transduce.load(path, "cpu", engine="native", precision=precision)  # type: ignore[arg-type]
        tokens = loaded.translate_batch([text])[0].tokens
        assert tokens and {*tokens} <= {*loaded.translator.target.tokens(allowed)}
    with safetensors.safe_open(path / "weights.safetensors", "np") as file:
        inner = file.get_tensor("encoder.layers.0.feed_forward.inner.weight")
        attention = file.get_tensor("encoder.layers.0.self_attention.query_key_value.weight")
    assert inner.dtype == attention.dtype == np.int8
    whole = read_model(directory / "model.enpt.intgemm.alphas.bin").arrays
    network = transduce.load(path, "cpu", engine="pytorch").translator.model.state_dict()
    weight = network["encoder.layers.0.self_attention.query_key_value.weight"]
    np.testing.assert_array_equal(weight[64:128].numpy(), whole["encoder_l1_self_Wk"].T)


@needs_native
def test_an_int8_model_has_its_table_once(tmp_path: Path) -> None:
    """In int8 the engine reads the packed head in place of the file's table, to the same bits."""
    run = import_run(firefox_directory(tmp_path), tmp_path / "run")
    lines = [*ODD, *(pair[0] for pair in toy_pairs(8, 7))]
    for precision in ("int8", "float32"):
        translator = transduce.load(run, engine="native", precision=precision)  # type: ignore[arg-type]
        before = [(answer.text, answer.score) for answer in translator.translate_batch(lines)]
        backend: Any = translator.translator.backend
        tables = [b for b in backend.model._buffers if isinstance(b[0], memoryview)]
        ((table, _),) = [pair for pair in tables if pair[1] is not None]
        table[:] = bytes(len(table))  # a copy of this process alone
        after = [(answer.text, answer.score) for answer in translator.translate_batch(lines)]
        assert (after == before) == (precision == "int8"), precision


def test_compressed_files_of_firefox_come_in_as_the_plain_ones(tmp_path: Path) -> None:
    directory = firefox_directory(tmp_path)
    plain = import_run(directory, tmp_path / "plain")
    model, vocabulary, shortlist = (next(directory.glob(f"{n}*")) for n in ("mod", "voc", "lex"))
    for file, suffix, pack in (
        (model, ".gz", gzip.compress),
        (vocabulary, ".zst", zstandard.ZstdCompressor().compress),
        (shortlist, ".gz", gzip.compress),
    ):
        (directory / f"{file.name}{suffix}").write_bytes(pack(file.read_bytes()))
        file.unlink()
    packed = import_run(directory, tmp_path / "packed")
    for name in ("weights.safetensors", "shortlist.safetensors", "tokenizer.json", "recipe.toml"):
        assert (packed / name).read_bytes() == (plain / name).read_bytes(), name
    shutil.move(directory, tmp_path / "models" / "enpt")
    (spec,) = read_specs([tmp_path / "models"])
    assert spec.pairs == (("en", "pt"),) and spec.origin == tmp_path / "models" / "enpt"
    cut = tmp_path / "models" / "enpt" / f"{model.name}.gz"
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"bin\.gz"):
        import_run(cut.parent, tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


def test_a_model_of_firefox_goes_out_as_it_came(tmp_path: Path) -> None:
    directory = firefox_directory(tmp_path)
    export_run(import_run(directory, tmp_path / "run"), tmp_path / "back", form="bergamot")
    back = tmp_path / "back"
    assert (back / "vocab.spm").read_bytes() == (directory / "vocab.enpt.spm").read_bytes()
    lists = (directory / "lex.50.50.enpt.s2t.bin").read_bytes()
    assert (back / "lex.bin").read_bytes() == lists
    before = read_model(directory / "model.enpt.intgemm.alphas.bin")
    after = read_model(back / "model.intgemm8.bin")
    assert {*after.arrays} == {*before.arrays}
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(after.arrays[name], array, name)
    assert before.divisors.items() <= after.divisors.items()


def test_what_an_imported_model_cannot_become_is_told_at_once(tmp_path: Path) -> None:
    run = import_run(firefox_directory(tmp_path), tmp_path / "run")
    with pytest.raises(RunError) as caught:
        export_run(run, tmp_path / "out", form="marian")
    message = str(caught.value)
    for setting in ("encoder.positions", "encoder.norm_epsilon", "decoder.positions"):
        assert f"model.{setting} = " in message
    assert "train" not in message and "can become" in message and "bergamot" in message


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("enpt", ("en", "pt")),
        ("en-pt", ("en", "pt")),
        ("enzh", ("en", "zh-Hans")),
        ("zh-hant-en", ("zh-Hant", "en")),
        ("model", None),
        ("vocab", None),
        ("intgemm", None),
        ("alphas", None),
        ("s2t", None),
    ],
)
def test_languages_are_read_in_names(name: str, pair: tuple[str, str] | None) -> None:
    assert pair_of(name) == pair


def test_languages_come_from_lists_and_options(tmp_path: Path) -> None:
    directory = firefox_directory(tmp_path)
    model = directory / "model.enpt.intgemm.alphas.bin"
    listed = {"ende": {"model": {"name": "x.bin"}}, "enfr": {"model": {"name": model.name}}}
    (directory / "registry.json").write_text(json.dumps(listed))
    assert marian_languages(directory, model) == ("en", "fr")
    run = import_run(directory, tmp_path / "run", languages=("en", "gl"))
    assert transduce.load(run, "cpu").recipe.languages.target == "gl"


def test_a_shortlist_of_another_model_is_refused(tmp_path: Path) -> None:
    directory = firefox_directory(tmp_path)
    path, n = directory / "lex.50.50.enpt.s2t.bin", tokenizer().size
    for content, message in (
        (shortlist_file([[1]] * 20, 4), "is of other vocabularies than"),
        (shortlist_file([[n]] * n, 4), "is of other vocabularies"),
        (path.read_bytes()[:-8], "is not a complete binary shortlist"),
        (path.read_bytes()[:-1] + b"\7", "or damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            import_run(directory, tmp_path / "run")


def test_the_shortlist_of_a_run_without_any_allows_all(tmp_path: Path) -> None:
    source = tokenizer()
    files = bergamot_files(model_of(BASE, source, source), BASE, source, source, {}, None)
    magic, _, first, _, offsets, n = struct.unpack_from("<6Q", files["lex.bin"])
    ids = np.frombuffer(files["lex.bin"], "<u4", n, 48 + 8 * offsets)
    assert (magic, first, offsets) == (0xF11A48D5013417F5, EOS + 1, source.size + 1)
    assert n % 8 == 0 and set(range(8, source.size)) | {EOS} <= set(ids.tolist())


REFUSED = {
    "positions": ({"positions": "sinusoidal"}, "model.encoder.positions = 'sinusoidal-marian'"),
    "norm": ({"norm_order": "pre"}, "model.encoder.norm_order = 'post'"),
    "epsilon": ({"norm_epsilon": 1e-5}, "model.encoder.norm_epsilon = 1e-06"),
    "activation": ({"activation": "swiglu"}, "model.encoder.activation = 'relu'"),
    "width": ({"d_ff": 72}, "model.encoder.d_ff = 128"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_models_are_refused_with_what_to_set(name: str) -> None:
    changes, remedy = REFUSED[name]
    stack = dataclasses.replace(STACK, **changes)  # type: ignore[arg-type]
    config, source = dataclasses.replace(BASE, encoder=stack, decoder=stack), tokenizer()
    model = build_encoder_decoder(config, source.size, source.size, True)
    with pytest.raises(RunError, match=r"has no .*; train with") as caught:
        bergamot_files(model, config, source, source, {}, None)
    assert remedy in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"transformer-preprocess": "n"}, "transformer-preprocess = 'n' is not supported"),
        ({"transformer-train-position-embeddings": "true"}, "train-position-embeddings = True"),
        (
            {"transformer-dim-ffn": "25"},
            r"has shape .16, 32., but special:model.yml implies .16, 25.",
        ),
        ({"dec-depth": "0"}, "dec-depth must be a whole number above 0"),
        ({"enc-depth": "1"}, "unexpected tensor 'encoder_l2_"),
    ],
)
def test_other_models_of_marian_are_refused(
    changed: dict[str, str], message: str, tmp_path: Path
) -> None:
    directory = directory_of(tmp_path, "attention.npz")
    model = read_model(directory / "attention.npz")
    settings = {
        name: entry for name, entry in model.settings.items() if entry not in ([], "")
    } | changed
    text = "".join(f"{name}: {str(entry).lower()}\n" for name, entry in settings.items())
    (directory / "attention.npz").write_bytes(npz_file(model.arrays, text))
    with pytest.raises(DataError, match=message):
        import_run(directory, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("end", [0, 7, 40, 600, 5000, 34047])
def test_a_broken_file_is_refused(end: int, tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "attention.bin")
    content = (directory / "attention.bin").read_bytes()
    (directory / "attention.bin").write_bytes(
        content[:end] if end < 34047 else b"\1" + b"\xff" * 99
    )
    with pytest.raises(DataError, match="is not a whole model of Marian"):
        import_run(directory, tmp_path / "run")


ODD = [
    "Ｆｕｌｌ ｗｉｄｔｈ  ﬁne",
    " leading and trailing ",
    "½ ① ㎏ e\u0301 각",
    "<b> </s> ▁ 😀",
    ">>fra<< so",
]


@needs_node
@needs_wasm
@pytest.mark.system
@pytest.mark.timeout(COMPILING)
def test_a_page_translates_as_the_engine(tmp_path: Path) -> None:
    run = import_run(firefox_directory(tmp_path), tmp_path / "run")
    export_run(run, tmp_path / "m.transduce", form="npm")
    file = (tmp_path / "m.transduce").read_bytes()
    lines = [*ODD, *(pair[0] for pair in toy_pairs(8, 7))]
    natively = transduce.load(run, "cpu", engine="native", precision="int8").translate_batch(lines)
    for line, here, there in zip(lines, translated(tmp_path, file, lines), natively, strict=True):
        assert here["text"] == there.text, line
        assert here["tokens"] == list(there.tokens), line
    table = piece_table((tmp_path / "theirs" / "vocab.enpt.spm").read_bytes())
    assert (table.dummy_prefix, table.single_blanks) == (True, False)


def test_rules_of_normalisation_are_read(tmp_path: Path) -> None:
    """Those of SentencePiece's own nmt_nfkc."""
    model = io.BytesIO()
    lines = [text for pair in toy_pairs(60) for text in pair]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=120, hard_vocab_limit=False
    )
    table = piece_table(model.getvalue())
    assert table.single_blanks and table.dummy_prefix
    for text in ("Ａ", "①", "ﬁ", "㎏", "e\u0301", "\u3000", "½"):
        normal = unicodedata.normalize("NFKC", text)
        assert table.replacements[text] == normal
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    size = processor.get_piece_size()
    assert {
        processor.id_to_piece(i): processor.get_score(i) for i in range(3, size)
    } == pytest.approx(table.scores)
