"""CTranslate2's directories, imported, translate as CTranslate2 does with them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from agreement.test_import_marian import marian
from agreement.test_import_whisper import whisper
from helpers.hugging_face import change_json, sentence_pieces, sentences, write_json
from helpers.native import needs_native
from helpers.web import COMPILING, assert_same_as_engine, needs_node, needs_wasm
from transduce import DataError, TransduceError
from transduce.data.batches import _without_end
from transduce.decoding.options import DecodingOptions
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.tasks.translation.scoring import target_log_probs
from transduce.text import BOS, EOS, PAD

LINES = sentences(12, 3, "abcdefgh")
LEAST, LONGEST = 4, 24
END = 4.0
"""Bias of the end, so that outputs have one."""


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")


def random_directory(library: Any, directory: Path, precision: str, **shape: Any) -> list[str]:
    """A directory of OpenNMT's kind with random weights; its vocabulary."""
    specs, generator = library.specs, torch.Generator().manual_seed(len(shape))
    directory.mkdir()
    content, pieces = sentence_pieces(sentences(300, 1, "abcdefgh"), 60)
    (directory / "sentencepiece.model").write_bytes(content)
    vocabulary = ["<unk>", "<blank>", "<s>", "</s>", *pieces[3:]]
    m, n_heads, separate = shape.pop("m", 16), shape.pop("n_heads", 2), shape.pop("separate", False)
    table = torch.randn(90, m, generator=generator) if shape.pop("learned", False) else None
    bias, source_end = shape.pop("bias", True), shape.pop("source_end", False)
    zero, scaled = shape.pop("zero", False), shape.pop("scaled", True)
    spec = specs.TransformerSpec.from_config((2, 1), n_heads, **shape)

    def draw(*sizes: int) -> Any:
        return torch.randn(*sizes, generator=generator).numpy()

    def linear(of: Any, n_in: int, n_out: int) -> None:
        of.weight = draw(n_out, n_in) * 0.7
        if bias:
            of.bias = draw(n_out) * 0.3

    def norm(of: Any) -> None:
        of.gamma, of.beta = draw(m) * 0.3 + 1, draw(m) * 0.3

    embedding = draw(len(vocabulary), m)
    for stack, embeddings in (
        (spec.encoder, spec.encoder.embeddings[0]),
        (spec.decoder, spec.decoder.embeddings),
    ):
        embeddings.weight = draw(len(vocabulary), m) if separate else embedding
        stack.scale_embeddings = scaled
        if table is not None:
            stack.position_encodings.encodings = table.numpy()
        for name in ("layer_norm", "layernorm_embedding"):
            if hasattr(stack, name):
                norm(getattr(stack, name))
        for layer in stack.layer:
            parts = [(layer.self_attention, (3 * m, m))]
            if stack is spec.decoder:
                parts.append((layer.attention, (m, 2 * m, m)))
            for attention, sizes in parts:
                norm(attention.layer_norm)
                for of, n_out in zip(attention.linear, sizes, strict=True):
                    linear(of, m, n_out)
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, m, 20)
            linear(layer.ffn.linear_1, 20, m)
    linear(spec.decoder.projection, m, len(vocabulary))
    if not separate:
        spec.decoder.projection.weight = embedding
    spec.decoder.projection.bias = draw(len(vocabulary)) * 0.3
    spec.decoder.projection.bias[3] += END
    spec.decoder.start_from_zero_embedding = zero
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.add_source_eos = source_end
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(str(directory))
    return vocabulary


def assert_same(library: Any, directory: Path, run: Path, end: tuple[str, ...] = ()) -> None:
    """Greedy outputs have the same tokens, those of a beam the same log-probability."""
    there = library.Translator(str(directory), compute_type="float32", intra_threads=1)
    for engine in ("pytorch", "native"):
        translator = transduce.load(run, engine=engine).translator
        pieces = [[*translator.source.tokens(translator.source.encode(x)), *end] for x in LINES]
        greedy, beam = (
            translator.translate(
                LINES,
                DecodingOptions(
                    beam_size=n, min_length=LEAST, max_length_ratio=0.0, max_length_extra=LONGEST
                ),
            )
            for n in (1, 3)
        )
        never = [["<blank>"]] if end else [["<blank>"], ["<s>"]]
        theirs = there.translate_batch(
            pieces,
            beam_size=1,
            min_decoding_length=LEAST,
            max_decoding_length=LONGEST,
            suppress_sequences=never,
        )
        assert [list(t.tokens) for t in greedy] == [result.hypotheses[0] for result in theirs]
        assert any(t.tokens for t in greedy)
        ended = [i for i, t in enumerate(beam) if len(t.tokens) < LONGEST]
        written = [[*beam[i].tokens] for i in ended]
        scores = there.score_batch([pieces[i] for i in ended], written)
        for i, score in zip(ended, scores, strict=True):
            assert sum(score.log_probs) == pytest.approx(beam[i].log_prob, abs=1e-3)


SHAPES: list[dict[str, Any]] = [
    {},
    {"pre_norm": False, "source_end": True, "m": 24, "n_heads": 3},
    {"layernorm_embedding": True, "learned": True, "separate": True, "bias": False},
    {"pre_norm": False, "zero": True, "scaled": False},
]


@pytest.mark.parametrize("precision", [None, "float16", "int8", "int16"])
@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_random_models(
    library: Any, shape: dict[str, Any], precision: str | None, tmp_path: Path
) -> None:
    activation = library.specs.common_spec.Activation
    kinds = {None: "RELU", "float16": "GELU", "int8": "SWISH", "int16": "GELUTanh"}
    random_directory(
        library,
        tmp_path / "model",
        precision or "float32",
        **shape,
        activation=activation[kinds[precision]],
    )
    import_run(tmp_path / "model", tmp_path / "run")
    end = ("</s>",) if shape.get("zero") else ()
    assert_same(library, tmp_path / "model", tmp_path / "run", end)


def test_a_marian_gives_the_run_that_its_transformers_directory_gives(
    library: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    marian(tmp_path / "hf")
    converter = library.converters.TransformersConverter(
        str(tmp_path / "hf"), copy_files=["source.spm", "target.spm"]
    )
    converter.convert(str(tmp_path / "ct2"))
    for name in ("hf", "ct2"):
        import_run(tmp_path / name, tmp_path / f"run-{name}")
    first, second = (
        transduce.load(tmp_path / f"run-{name}", engine="pytorch").translator.model.state_dict()
        for name in ("hf", "ct2")
    )
    assert {*first} == {*second}
    beginnings = ("front_end.embedding.weight", "head.weight", "head.bias")
    for name, tensor in first.items():
        tensor, other = tensor.clone(), second[name].clone()
        if name.endswith(beginnings):  # drawn at random here; zeros in a trained Marian
            tensor[[PAD, BOS]], other[[PAD, BOS]] = 0, 0
        assert torch.equal(tensor, other), name


def test_a_whisper_gives_the_run_that_its_transformers_directory_gives(
    library: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    whisper(tmp_path / "hf")
    library.converters.TransformersConverter(
        str(tmp_path / "hf"), copy_files=["tokenizer.json"]
    ).convert(str(tmp_path / "ct2"))
    change_json(tmp_path / "ct2" / "config.json", layer_norm_epsilon=1e-5)
    for name in ("hf", "ct2"):
        import_run(tmp_path / name, tmp_path / f"run-{name}")
    first, second = (
        transduce.load(tmp_path / f"run-{name}", engine="pytorch").predictor.model.state_dict()
        for name in ("hf", "ct2")
    )
    assert {*first} == {*second}
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_sources_without_an_end_are_trained_and_scored_so(library: Any, tmp_path: Path) -> None:
    random_directory(library, tmp_path / "model", "float32")
    import_run(tmp_path / "model", tmp_path / "run")
    translator = transduce.load(tmp_path / "run", engine="pytorch").translator
    ids = translator.source.encode(LINES[0])
    assert translator.source.as_source(ids) == ids and translator.source.as_source([]) == [EOS]
    (answer,) = translator.translate(
        LINES[:1], DecodingOptions(beam_size=1, max_length_ratio=0.0, max_length_extra=LONGEST)
    )
    target = translator.target.encode(answer.text)
    assert sum(target_log_probs(translator.model, [(ids, target)])[0]) == pytest.approx(
        next(iter(translator.score([(LINES[0], answer.text)]))), abs=1e-5
    )
    rows = [ids, ids[:3], []]
    closed = Padded.from_rows([[*row, EOS] for row in rows], PAD)
    plain = _without_end(closed)
    assert torch.equal(plain.values, Padded.from_rows([ids, ids[:3], [EOS]], PAD).values)
    assert torch.equal(plain.real, Padded.from_rows([ids, ids[:3], [EOS]], PAD).real)


def test_an_argos_package_has_its_languages(library: Any, tmp_path: Path) -> None:
    package = tmp_path / "translate-pb_zt"
    package.mkdir()
    random_directory(library, package / "model", "int8")
    shutil.move(package / "model" / "sentencepiece.model", package)
    write_json(package / "metadata.json", {"from_code": "pb", "to_code": "zt"})
    import_run(package, tmp_path / "run")
    languages = transduce.load(tmp_path / "run").translator.recipe.languages
    assert (languages.source, languages.target) == ("pt-BR", "zh-Hant")


@needs_node
@needs_wasm
@needs_native
@pytest.mark.system
@pytest.mark.timeout(COMPILING)
@pytest.mark.parametrize("source_end", [False, True])
def test_a_page_translates_as_the_engine(library: Any, source_end: bool, tmp_path: Path) -> None:
    random_directory(library, tmp_path / "model", "float32", source_end=source_end)
    run = import_run(tmp_path / "model", tmp_path / "run")
    assert_same_as_engine(run, tmp_path, [*LINES, " ".join(LINES * 20), "Ä ½", "", "a\n\nb"])


def older(content: bytes) -> bytes:
    """The same arrays as in version 5, with flags for `config.json`."""
    flag = b"with_source_eos\0"
    count = struct.unpack_from("<I", content, 26)[0]
    entry = struct.pack("<H", len(flag)) + flag + struct.pack("<BBIB", 0, 1, 1, 1)
    head = struct.pack("<I", 5) + content[4:26] + struct.pack("<I", count + 1)
    return head + entry + content[30:]


def test_older_files_have_lists_of_lines_and_no_settings(library: Any, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    vocabulary = random_directory(library, directory, "int16", source_end=True)
    import_run(directory, tmp_path / "run")
    (directory / "shared_vocabulary.json").unlink()
    (directory / "config.json").unlink()
    (directory / "shared_vocabulary.txt").write_text("\n".join(vocabulary) + "\n")
    (directory / "model.bin").write_bytes(older((directory / "model.bin").read_bytes()))
    import_run(directory, tmp_path / "older")
    texts = [
        [t.text for t in transduce.load(tmp_path / name).translator.translate(LINES)]
        for name in ("run", "older")
    ]
    assert texts[0] == texts[1]


def with_number(content: bytes, name: bytes, size: int, number: int) -> bytes:
    """The file with another number of `size` bytes, which has no dimensions."""
    start = content.index(name) + len(name) + 7
    return content[:start] + number.to_bytes(size, "little") + content[start + size :]


def test_damaged_files_are_refused_in_one_line(library: Any, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    random_directory(library, directory, "int8")
    path = directory / "model.bin"
    content = path.read_bytes()
    huge = struct.pack("<I", 0xFFFFFFFF)
    cases = {
        b"": "cannot be read",
        content[:3]: "not a complete model.bin",
        content[: len(content) // 2]: "not a complete model.bin",
        content[:-4]: "not a complete model.bin",
        b"\x63\0\0\0" + content[4:]: "version 99",
        content[:26] + huge + content[30:]: "not a complete model.bin",
        content[:4] + b"\xff\xff" + content[6:]: "not a complete model.bin",
        content.replace(b"TransformerSpec", b"TransformerSpek"): "'TransformerSpek'",
        with_number(content, b"encoder/num_heads", 2, 3): "n_heads = 3",
        with_number(content, b"decoder/alibi", 1, 1): "decoder/alibi = 1",
        content.replace(
            b"er_1/ffn/layer_norm/beta", b"er_1/ffn/layer_norm/bets"
        ): "lack the tensor",
    }
    for spoilt, complaint in cases.items():
        assert spoilt != content, complaint
        path.write_bytes(spoilt)
        with pytest.raises(TransduceError, match=complaint) as caught:
            import_run(directory, tmp_path / "run")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "run").exists()
    path.write_bytes(content)
    (directory / "sentencepiece.model").unlink()
    with pytest.raises(DataError, match=r"no sentencepiece\.model, or source\.spm"):
        import_run(directory, tmp_path / "run")
