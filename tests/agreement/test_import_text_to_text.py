"""Imported BART, mBART, M2M100, NLLB, T5, mT5 and ByT5 compute what `transformers` does."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import transduce
from helpers.hugging_face import (
    change_json,
    largest_difference,
    ours,
    padded,
    random_batch,
    sentences,
)
from helpers.margins import steady
from helpers.native import needs_native
from helpers.text_to_text import FAMILIES, LONGEST, OF_T5, language_pair, made, taught
from transduce.engine.model import NativeModel
from transduce.errors import DataError
from transduce.loading import Run
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.text import BOS, EOS
from transduce.text.imported import ImportedTokenizer
from transduce.text.languages import known_code

TOLERANCE = 1e-5
LENGTHS = (11, 4, 1, 8)
SHAPES: list[dict[str, Any]] = [
    {},
    {"activation_function": "swish", "scale_embedding": False, "d_model": 24},
    {"encoder_layers": 3, "decoder_layers": 1, "activation_function": "gelu"},
    {"encoder_attention_heads": 4, "decoder_attention_heads": 8, "decoder_ffn_dim": 19},
    {"tie_word_embeddings": False, "scale_embedding": True},
]


SHAPES_OF_T5: list[dict[str, Any]] = [
    {},
    {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_layers": 1},
    {"feed_forward_proj": "gated-silu", "d_model": 24, "d_kv": 8},
    {
        "num_heads": 4,
        "d_ff": 19,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 40,
        "num_decoder_layers": 1,
    },
    {"feed_forward_proj": "gelu", "layer_norm_epsilon": 1e-3, "relative_attention_max_distance": 9},
]
CASES = [
    (family, shape)
    for family in FAMILIES
    for shape in (SHAPES_OF_T5 if family in OF_T5 else SHAPES)
]


def imported(directory: Path, run: Path, **changes: Any) -> tuple[Run, ImportedTokenizer]:
    loaded = transduce.load(import_run(directory, run), "cpu")
    tokenizer = loaded.translator.source
    assert isinstance(tokenizer, ImportedTokenizer)
    return loaded, tokenizer


@pytest.mark.parametrize(("family", "shape"), CASES, ids=str)
def test_logits(family: str, shape: dict[str, Any], tmp_path: Path) -> None:
    reference, _ = made(family, tmp_path / "saved", **shape)
    run, tokenizer = imported(tmp_path / "saved", tmp_path / "run")
    numbering = tokenizer.numbering
    pad, start = reference.config.pad_token_id, reference.config.decoder_start_token_id
    ids, real = random_batch(numbering, LENGTHS, pad)
    inputs, inputs_real = random_batch(numbering, (19, 6, 9, 2), pad, seed=1)
    inputs[:, 0] = start
    with torch.no_grad():
        expected = reference(ids, real.long(), inputs, inputs_real.long()).logits
        begun = ours(inputs, numbering)
        begun[:, 0] = BOS
        network: Any = run.model
        source, target = padded(ours(ids, numbering), real), padded(begun, inputs_real)
        result = network(source, target)
        state, steps = network.start(source), []
        for column in range(begun.shape[1]):  # with the cache
            one = padded(begun[:, column : column + 1], torch.ones(4, 1, dtype=torch.bool))
            steps.append(network.step(one, state))
    rows = list(numbering.rows)
    compared = [i for i in range(len(rows)) if i != BOS]
    in_our_order = expected[..., rows][..., compared]
    assert largest_difference(result[..., compared], in_our_order, inputs_real) < TOLERANCE
    by_steps = torch.cat(steps, 1)[..., compared]
    assert largest_difference(by_steps, in_our_order, inputs_real) < TOLERANCE


@needs_native
@pytest.mark.parametrize("shape", SHAPES_OF_T5, ids=str)
def test_native_logits_of_t5(shape: dict[str, Any], tmp_path: Path) -> None:
    made("t5", tmp_path / "saved", **shape)
    run, _ = imported(tmp_path / "saved", tmp_path / "run")
    network: Any = run.model
    native = NativeModel(network, run.translator.recipe.model)
    chance = torch.Generator().manual_seed(0)
    source = Padded.from_rows([[4 + i % 20 for i in range(n)] for n in (300, 5, 1)])
    target = torch.randint(4, 24, (3, 70), generator=chance)
    with torch.inference_mode():
        pairs = zip(*(by_steps(model, source, target) for model in (network, native)), strict=True)
        for expected, result in pairs:
            assert float((result - expected).abs().max()) < TOLERANCE


def by_steps(model: Any, source: Padded, target: torch.Tensor) -> list[torch.Tensor]:
    """Logits (r, t, v) of steps of 60, 9 and 1 tokens."""
    state = model.start(source)
    return [model.step(Padded.unpadded(part), state) for part in target.split((60, 9, 1), 1)]


def reference_outputs(
    model: Any, tokenizer: Any, texts: list[str], **options: Any
) -> list[tuple[list[int], float | None]]:
    """Ids that transformers finds for each text, without start, languages and end, and scores."""
    pair = language_pair(tokenizer)
    if pair is not None:
        tokenizer.src_lang = pair[0]
    begins = isinstance(tokenizer, transformers.MBartTokenizer)  # outputs, with the language
    if begins:
        options["bad_words_ids"] = [[model.config.decoder_start_token_id]]
    elif pair is not None:
        token = f"__{pair[1]}__" if len(pair[1]) == 2 else pair[1]
        options["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(token)
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        outputs = model.generate(
            **batch, **options, return_dict_in_generate=True, output_scores=True
        )
    eos = model.config.eos_token_id
    forced = (options, model.generation_config.to_dict())
    opened = any(settings.get("forced_bos_token_id") is not None for settings in forced)
    rows = [row[1 + opened :] for row in outputs.sequences.tolist()]
    ids = [row[: (*row, eos).index(eos)] for row in rows]
    scores = getattr(outputs, "sequences_scores", None)
    scores = [None] * len(ids) if scores is None else scores.tolist()
    return list(zip(ids, scores, strict=True))


def our_outputs(run: Run, tokenizer: Any, texts: list[str], **options: Any) -> list[Any]:
    """The same of ours, in their ids."""
    pair = language_pair(tokenizer)
    translator = run.between(*(pair or ())).translator
    assert isinstance(translator.target, ImportedTokenizer)
    rows = translator.target.numbering.rows
    chosen = dataclasses.replace(run.recipe.decoding, **options)  # type: ignore[attr-defined]
    outputs = translator.translate(texts, chosen)
    parts = [t.candidates[0].parts[0] for t in outputs]
    return [([rows[i] for i in ids], t.score) for ids, t in zip(parts, outputs, strict=True)]


MOST = LONGEST - 3
"""Tokens of outputs that end by themselves."""


def outputs_end(model: Any, tokenizer: Any) -> bool:
    """True if most outputs end by themselves, after different lengths."""
    outputs = reference_outputs(model, tokenizer, sentences(30, 5), early_stopping="never")
    lengths = [len(ids) for ids, _ in outputs if len(ids) < MOST]
    return len(lengths) > 15 and len(set(lengths)) > 2


@pytest.fixture(scope="module")
def speakers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any, Path]]:
    """Of each family a model whose outputs end, its tokenizer and directory."""
    directory = tmp_path_factory.mktemp("speakers")
    return {
        name: (*taught(name, directory / name, outputs_end), directory / name) for name in FAMILIES
    }


@functools.cache
def clear_outputs(
    model: Any, tokenizer: Any, seed: int, **options: Any
) -> dict[str, tuple[list[int], float | None]]:
    """Outputs of the reference by text, without those that a near tie decides."""
    texts = sentences(30, seed)
    outputs = reference_outputs(model, tokenizer, texts, **options)
    unchanged = steady(
        model, lambda: [ids for ids, _ in reference_outputs(model, tokenizer, texts, **options)]
    )
    return {texts[i]: outputs[i] for i in unchanged}


BY_ENGINES = [
    *((family, "pytorch") for family in FAMILIES),
    *(pytest.param(family, "native", marks=needs_native) for family in FAMILIES),
]


@pytest.mark.parametrize("early", [True, False, "never"])
@pytest.mark.parametrize(("family", "engine"), BY_ENGINES)
def test_same_outputs_of_the_beam(
    family: str, early: Any, engine: Any, speakers: Any, tmp_path: Path
) -> None:
    model, tokenizer, directory = speakers[family]
    import_run(directory, tmp_path / "run")
    run = transduce.load(tmp_path / "run", "cpu", engine=engine)
    # Without a forced end, outputs of the greatest length have one more token there in its place.
    forced = model.generation_config.forced_eos_token_id is not None
    theirs = {
        text: output
        for text, output in clear_outputs(model, tokenizer, 5, early_stopping=early).items()
        if forced or len(output[0]) < MOST
    }
    stop = {True: "first", False: "present", "never": "exact"}[early]
    mine = our_outputs(run, tokenizer, list(theirs), stop=stop)
    assert [ids for ids, _ in mine] == [ids for ids, _ in theirs.values()]
    scores = [score for _, score in theirs.values()]
    assert [score for _, score in mine] == pytest.approx(scores, rel=TOLERANCE)
    assert len(theirs) > 10 and len({len(ids) for ids, _ in theirs.values()}) > 2


@pytest.mark.parametrize(("family", "engine"), BY_ENGINES)
def test_same_greedy_outputs(family: str, engine: Any, speakers: Any, tmp_path: Path) -> None:
    model, tokenizer, directory = speakers[family]
    import_run(directory, tmp_path / "run")
    run = transduce.load(tmp_path / "run", "cpu", engine=engine)
    theirs = clear_outputs(model, tokenizer, 6, num_beams=1, early_stopping=None)
    mine = our_outputs(run, tokenizer, list(theirs), beam_size=1, stop="first")
    assert [ids[:MOST] for ids, _ in mine] == [ids[:MOST] for ids, _ in theirs.values()]
    assert len(theirs) > 20


@pytest.mark.parametrize("family", FAMILIES)
def test_tokenizers_agree(family: str, tmp_path: Path) -> None:
    _, theirs = made(family, tmp_path / "saved")
    run, tokenizer = imported(tmp_path / "saved", tmp_path / "run")
    pair = language_pair(theirs)
    rows = tokenizer.numbering.rows
    if pair is not None:
        theirs.src_lang, theirs.tgt_lang = pair
        codes = [known_code(name, tokenizer.numbering.languages) for name in pair]
        assert None not in codes
        tokenizer = tokenizer.opened(str(codes[0]))
    target = run.translator.target
    assert isinstance(target, ImportedTokenizer)
    for line in [*sentences(20, 7), "  a  b ", "Ä 中 ☃", ">>a<< b", "a\tb", "Hello, World!"]:
        expected = theirs(line)["input_ids"]
        ids = tokenizer.as_source(tokenizer.encode(line))
        assert [rows[i] for i in ids] == expected, line
        if theirs.unk_token_id not in expected:
            plain = theirs(line, add_special_tokens=False)["input_ids"]
            decoded = theirs.decode(plain, skip_special_tokens=True)
            assert tokenizer.decode(tokenizer.encode(line)).strip() == decoded.strip()
    assert tokenizer.encode("") == []


def test_a_language_last_in_every_piece(tmp_path: Path) -> None:
    made("cc25", tmp_path / "cc25")
    one, _ = imported(tmp_path / "cc25", tmp_path / "one")
    made("nllb-legacy", tmp_path / "nllb")
    several, _ = imported(tmp_path / "nllb", tmp_path / "several")
    for run, tag in (one, ""), (several, "<fr> <de> "):
        source = run.translator.source
        assert isinstance(source, ImportedTokenizer)
        code = "fr" if tag else "en"
        plain = " ".join(sentences(30, 7))
        whole, pieces = source.encode(plain), run.translator.source_pieces(tag + plain)
        assert len(pieces) > 1 and all(p[-2:] == [EOS, source.language(code)] for p in pieces)
        assert [i for p in pieces for i in p[:-2]] == whole[:-2]
        assert source.decode(whole) == source.decode(whole[:-2])
        assert len(source.spans(plain) or ()) == len(whole)
        assert source.as_source(whole) == whole and not source.ends_sources


def test_weights_in_several_files(tmp_path: Path) -> None:
    model, _ = made("nllb", tmp_path / "saved")
    whole, _ = imported(tmp_path / "saved", tmp_path / "whole")
    (tmp_path / "saved" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "saved", max_shard_size="20KB")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 2
    parts, _ = imported(tmp_path / "saved", tmp_path / "parts")
    expected: Any = whole.model.state_dict()
    assert all(torch.equal(t, expected[name]) for name, t in parts.model.state_dict().items())


@pytest.mark.parametrize(
    ("family", "file", "changes", "message"),
    [
        ("cc25", "config.json", {"decoder_start_token_id": 2}, "either decoder_start_token_id"),
        ("bart", "config.json", {"pad_token_id": None}, "pad_token_id to 1"),
        ("t5", "config.json", {"feed_forward_proj": "gated-tanh"}, "feed_forward_proj"),
        ("t5", "config.json", {"num_heads": 2}, "has shape"),
        ("m2m100", "config.json", {"activation_function": "tanh"}, "activation_function"),
    ],
)
def test_other_settings_are_refused(
    family: str, file: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    made(family, tmp_path / "saved")
    change_json(tmp_path / "saved" / file, **changes)
    with pytest.raises(DataError, match=message):
        import_run(tmp_path / "saved", tmp_path / "run")


@pytest.mark.parametrize("family", ["bart", "t5", "nllb"])
def test_a_tied_table_is_read_under_any_of_its_names(family: str, tmp_path: Path) -> None:
    made(family, tmp_path / "saved")
    weights = tmp_path / "saved" / "model.safetensors"
    expected, _ = imported(tmp_path / "saved", tmp_path / "run")
    table = expected.model.state_dict()["front_end.embedding.weight"]
    tensors = load_file(weights)
    base = "" if family in OF_T5 else "model."
    names = [f"{base}shared", f"{base}encoder.embed_tokens", f"{base}decoder.embed_tokens"]
    (present,) = {f"{name}.weight" for name in [*names, "lm_head"]} & tensors.keys()
    for number, name in enumerate([*names, "lm_head"]):
        renamed = {f"{name}.weight" if key == present else key: t for key, t in tensors.items()}
        save_file(renamed, weights, {"format": "pt"})
        again, _ = imported(tmp_path / "saved", tmp_path / f"run{number}")
        assert torch.equal(again.model.state_dict()["front_end.embedding.weight"], table)
        assert again.model.state_dict().keys() == expected.model.state_dict().keys()
