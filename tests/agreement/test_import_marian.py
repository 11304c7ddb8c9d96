"""Imported Marians translate as `transformers` does with the same weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import transduce
from helpers.by_ctranslate2 import assert_same_outputs, ctranslate2_model
from helpers.hugging_face import (
    change_json,
    largest_difference,
    ours,
    padded,
    random_batch,
    save,
    sentence_pieces,
    sentences,
    write_json,
)
from helpers.margins import steady
from helpers.native import needs_native
from transduce.loading import Run
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD, MarianTokenizer

TOLERANCE = 1e-5
LENGTHS = (11, 4, 1, 8)
LONGEST = 40
STEPS = 40
ROUNDS = 15
TEXTS = sentences(30, 5, "abcdefgh")
SHAPES = [
    {},
    {"activation_function": "swish", "scale_embedding": True, "d_model": 24},
    {"encoder_layers": 3, "decoder_layers": 1, "activation_function": "relu"},
    {"encoder_attention_heads": 4, "decoder_attention_heads": 8, "decoder_ffn_dim": 19},
    {"share_encoder_decoder_embeddings": False},
    {"tie_word_embeddings": False},
]


def marian(directory: Path, **changes: Any) -> Any:
    """A model with random weights, and its tokenizers."""
    directory.mkdir(parents=True, exist_ok=True)
    shared = changes.get("share_encoder_decoder_embeddings", True)
    sizes = tokenizers(directory, shared)
    small = {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "max_position_embeddings": 128,
    }
    pad = min(sizes) - 1
    made_of = transformers.MarianConfig(
        vocab_size=sizes[0],
        decoder_vocab_size=sizes[1],
        pad_token_id=pad,
        decoder_start_token_id=pad,
        **{**small, **changes},
    )
    model = transformers.MarianMTModel(made_of)
    model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
    model.generation_config.update(
        num_beams=4, max_length=LONGEST, bad_words_ids=[[pad]], early_stopping=True
    )
    save(model, directory)
    return model


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model taught a few sentences until outputs end at many lengths, and where it is.

    Weights that are random throughout go round in circles for ever, or end at once.
    """
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("talker")
    model = marian(directory, d_model=32, scale_embedding=True, dropout=0.0)
    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    lines = sentences(12, 3, "abcdefgh"), [line[:25] for line in sentences(12, 4, "efghijklm")]
    batch = tokenizer(lines[0], text_target=lines[1], return_tensors="pt", padding=True)
    labels = batch["labels"].masked_fill(batch["labels"] == model.config.pad_token_id, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(ROUNDS):
        model.train()
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(batch["input_ids"], batch["attention_mask"], labels=labels).loss.backward()
            optimizer.step()
        model.eval().save_pretrained(directory)
        if lengths_differ(model, directory):
            return model, directory
    raise AssertionError(f"not learnt in {ROUNDS * STEPS} steps")


def lengths_differ(model: Any, directory: Path) -> bool:
    """True if outputs of a beam have many lengths."""
    outputs = reference_outputs(model, directory, TEXTS, num_beams=4)
    return len({len(ids) for ids, _ in outputs}) > 6


def tokenizers(directory: Path, shared: bool) -> tuple[int, int]:
    """Marian's files, with as many ids of source and target; returns how many."""
    source, source_pieces = sentence_pieces(sentences(300, 1, "abcdefgh"), 90)
    target, target_pieces = sentence_pieces(sentences(300, 2, "efghijklm"), 90)
    (directory / "source.spm").write_bytes(source)
    (directory / "target.spm").write_bytes(target)
    special = ("<unk>", "<s>", "</s>")

    def numbered(pieces: list[str]) -> dict[str, int]:
        plain = [piece for piece in dict.fromkeys(pieces) if piece not in special]
        return {piece: i for i, piece in enumerate(["</s>", "<unk>", ">>xyz<<", *plain, "<pad>"])}

    if shared:
        vocabulary = numbered([*source_pieces, *target_pieces])
        write_json(directory / "vocab.json", vocabulary)
        settings: dict[str, Any] = {}
        sizes = len(vocabulary), len(vocabulary)
    else:
        plain = [piece for piece in source_pieces if piece in target_pieces]
        lists = [numbered(source_pieces), numbered(target_pieces)]
        n = min(map(len, lists))
        assert plain and n > 20
        cut = [
            {p: i for p, i in pieces.items() if i < n - 1} | {"<pad>": n - 1} for pieces in lists
        ]
        write_json(directory / "vocab.json", cut[0])
        write_json(directory / "target_vocab.json", cut[1])
        settings, sizes = {"separate_vocabs": True}, (n, n)
    settings |= {"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
    write_json(directory / "tokenizer_config.json", settings)
    return sizes


def imported(directory: Path, run: Path) -> tuple[Run, MarianTokenizer, MarianTokenizer]:
    made = transduce.load(import_run(directory, run), "cpu")
    source, target = made.translator.source, made.translator.target
    assert isinstance(source, MarianTokenizer) and isinstance(target, MarianTokenizer)
    return made, source, target


@pytest.mark.parametrize("shape", SHAPES)
def test_logits(shape: dict[str, Any], tmp_path: Path) -> None:
    reference = marian(tmp_path / "marian", **shape)
    run, source, target = imported(tmp_path / "marian", tmp_path / "run")
    pad = reference.config.pad_token_id
    ids, real = random_batch(source.numbering, LENGTHS, pad)
    given, given_real = random_batch(target.numbering, (9, 6, 9, 2), pad, seed=1)
    given[:, 0] = pad
    with torch.no_grad():
        expected = reference(ids, real.long(), given, given_real.long()).logits
        begun = ours(given, target.numbering)
        begun[:, 0] = BOS
        network: Any = run.model
        result = network(padded(ours(ids, source.numbering), real), padded(begun, given_real))
    rows = list(target.numbering.rows)
    kept = [i for i in range(len(rows)) if i != BOS]
    in_our_order = expected[..., rows]
    assert largest_difference(result[..., kept], in_our_order[..., kept], given_real) < TOLERANCE
    probabilities = result.log_softmax(-1), expected.log_softmax(-1)[..., rows]
    assert largest_difference(*(p[..., kept] for p in probabilities), given_real) < TOLERANCE


def reference_outputs(
    model: Any, directory: Path, texts: list[str], **options: Any
) -> list[tuple[list[int], float]]:
    """The ids that transformers finds for each text, without begin and end, and their scores."""
    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        continuations = model.generate(
            **batch, **options, return_dict_in_generate=True, output_scores=True
        )
    ids = [row[: (*row, 0).index(0)] for row in continuations.sequences[:, 1:].tolist()]
    return list(zip(ids, continuations.sequences_scores.tolist(), strict=True))


def our_outputs(run: Run, texts: list[str], **options: Any) -> list[tuple[list[int], float]]:
    """The same of ours, in their ids."""
    translator = run.translator
    assert isinstance(translator.target, MarianTokenizer)
    rows = translator.target.numbering.rows
    chosen = dataclasses.replace(run.recipe.decoding, **options)  # type: ignore[attr-defined]
    here = {piece: i for i, piece in enumerate(translator.target.tokens(range(len(rows))))}
    translations = translator.translate(texts, chosen)
    return [([rows[here[token]] for token in t.tokens], t.score) for t in translations]


@pytest.mark.parametrize(
    ("beams", "early", "stop", "penalty"),
    [
        (4, True, "first", "mean"),
        (5, True, "first", "mean"),
        (4, False, "present", "mean"),
        (5, False, "present", "mean"),
        (5, "never", "exact", "mean"),
        (4, False, "present", "none"),
        (4, True, "first", "none"),
        (2, "never", "exact", "none"),
    ],
)
def test_same_outputs_of_the_beam(
    beams: int, early: Any, stop: str, penalty: str, talker: tuple[Any, Path], tmp_path: Path
) -> None:
    """Those that end by themselves, and those that are ended at the longest allowed."""
    model, directory = talker
    run, *_ = imported(directory, tmp_path / "run")
    strength = {"mean": 1.0, "none": 0.0}[penalty]
    options = {"num_beams": beams, "early_stopping": early, "length_penalty": strength}
    theirs = reference_outputs(model, directory, TEXTS, **options)
    clear = steady(
        model, lambda: [ids for ids, _ in reference_outputs(model, directory, TEXTS, **options)]
    )
    theirs = [theirs[i] for i in clear]
    chosen = {"beam_size": beams, "stop": stop, "length_penalty": penalty}
    mine = our_outputs(run, [TEXTS[i] for i in clear], **chosen)
    assert [ids for ids, _ in mine] == [ids for ids, _ in theirs]
    assert [score for _, score in mine] == pytest.approx([b for _, b in theirs], rel=TOLERANCE)
    assert len(mine) > 20 and len({len(ids) for ids, _ in mine}) > 3


@pytest.mark.parametrize("seed", range(3))
def test_same_outputs_of_random_weights(seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    model = marian(tmp_path / "marian")
    with torch.no_grad():
        model.final_logits_bias[0, 0] += 2.0 * seed  # or else few outputs end
    model.generation_config.update(num_beams=4 + seed, early_stopping=False)
    model.save_pretrained(tmp_path / "marian")
    run, *_ = imported(tmp_path / "marian", tmp_path / "run")
    texts = sentences(30, seed, "abcdefgh")
    theirs = reference_outputs(model, tmp_path / "marian", texts)
    mine = our_outputs(run, texts)
    assert [ids for ids, _ in mine] == [ids for ids, _ in theirs]
    assert [score for _, score in mine] == pytest.approx([b for _, b in theirs], rel=TOLERANCE)


GREEDY = {"num_beams": 1, "early_stopping": None}


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning")
@pytest.mark.parametrize(
    ("message", "bias"),
    [
        ({"max_new_tokens": 7}, 0.0),
        ({"max_new_tokens": 1}, 0.0),
        ({"max_length": None}, 0.0),
        ({"min_length": 6}, 5.0),
        ({"min_new_tokens": 6, "min_length": 3}, 5.0),
        ({"repetition_penalty": 1.7}, 2.0),
        ({"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "early_stopping": False}, 2.0),
        ({"renormalize_logits": True}, 2.0),
        (GREEDY, 1.0),
        ({**GREEDY, "forced_eos_token_id": None}, 1.0),
    ],
)
def test_what_the_model_says_of_its_outputs_is_followed(
    message: dict[str, Any], bias: float, tmp_path: Path
) -> None:
    model = marian(tmp_path / "marian")
    with torch.no_grad():
        model.final_logits_bias[0, 0] += bias  # or else few outputs end
    for name, value in message.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(tmp_path / "marian")
    agree_as_loaded(tmp_path)


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning")
@pytest.mark.parametrize(
    "message", [{}, {"num_beams": 3, "max_length": 30, "early_stopping": True}]
)
def test_without_a_file_for_it_the_configuration_says_it(
    message: dict[str, Any], tmp_path: Path
) -> None:
    marian(tmp_path / "marian")
    (tmp_path / "marian" / "generation_config.json").unlink()
    change_json(tmp_path / "marian" / "config.json", **message)
    agree_as_loaded(tmp_path)


def agree_as_loaded(directory: Path) -> None:
    """What is saved in `marian` gives the same outputs here and in transformers."""
    run, *_ = imported(directory / "marian", directory / "run")
    texts = sentences(20, 3, "abcdefgh")
    model = transformers.MarianMTModel.from_pretrained(directory / "marian")
    if model.generation_config.num_beams in (None, 1):
        tokenizer = transformers.MarianTokenizer.from_pretrained(directory / "marian")
        ids = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
        expected = [row[: (*row, 0).index(0)] for row in ids[:, 1:].tolist()]
        assert [ids for ids, _ in our_outputs(run, texts)] == expected
        return
    theirs = reference_outputs(model, directory / "marian", texts)
    mine = our_outputs(run, texts)
    assert [ids for ids, _ in mine] == [ids for ids, _ in theirs]
    assert [score for _, score in mine] == pytest.approx([b for _, b in theirs], rel=TOLERANCE)


@pytest.mark.parametrize("shape", SHAPES)
def test_ctranslate2_agrees_with_imported_models_too(shape: dict[str, Any], tmp_path: Path) -> None:
    marian(tmp_path / "marian", **shape)
    run, *_ = imported(tmp_path / "marian", tmp_path / "run")
    translator = run.translator
    assert isinstance(translator, Translator)
    model = ctranslate2_model(translator, tmp_path / "model")
    assert_same_outputs(model, translator, sentences(30, 3, "abcdefgh"))


@needs_native
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_native_engine_has_the_logits_of_imported_models(
    shape: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(4)
    marian(tmp_path / "marian", **shape)
    run, *_ = imported(tmp_path / "marian", tmp_path / "run")
    native = transduce.load(tmp_path / "run", engine="native")
    source = Padded.from_rows([[5, 6, 7, EOS], [8, EOS], [9, 10, 11, 12, 4, EOS]])
    target = Padded.unpadded(torch.randint(4, 40, (3, 6)))
    with torch.inference_mode():
        expected = run.model(source, target)
        model = native.translator.steps.model
        result = model.step(target, model.start(source))
    torch.testing.assert_close(result, expected, atol=1e-4, rtol=0)


@needs_native
def test_the_native_engine_translates_with_imported_models(
    talker: tuple[Any, Path], tmp_path: Path
) -> None:
    run, *_ = imported(talker[1], tmp_path / "run")
    native = transduce.load(tmp_path / "run", engine="native")
    texts = sentences(30, 5, "abcdefgh")
    mine, theirs = our_outputs(run, texts), our_outputs(native, texts)
    assert [ids for ids, _ in theirs] == [ids for ids, _ in mine]
    assert [score for _, score in theirs] == pytest.approx([b for _, b in mine], rel=TOLERANCE)


def test_same_greedy_outputs(talker: tuple[Any, Path], tmp_path: Path) -> None:
    model, directory = talker
    run, _, _ = imported(directory, tmp_path / "run")
    texts = sentences(30, 6, "abcdefgh")
    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    ids = model.generate(**batch, num_beams=1)
    expected = tokenizer.batch_decode(ids, skip_special_tokens=True)
    options = dataclasses.replace(run.recipe.decoding, beam_size=1)  # type: ignore[attr-defined]
    assert [t.text for t in run.translate(texts, options)] == expected


def test_decoding_is_set_as_the_model_says(tmp_path: Path) -> None:
    model = marian(tmp_path / "marian")
    model.generation_config.update(num_beams=6, early_stopping="never", length_penalty=0.0)
    model.save_pretrained(tmp_path / "marian")
    run, _, _ = imported(tmp_path / "marian", tmp_path / "run")
    decoding: Any = run.recipe.decoding  # type: ignore[attr-defined]
    assert (decoding.beam_size, decoding.stop, decoding.length_penalty) == (6, "exact", "none")
    assert [decoding.max_length_for(n) for n in (3, 30)] == [LONGEST - 2] * 2


def test_tokenizers_agree(talker: tuple[Any, Path], tmp_path: Path) -> None:
    _, directory = talker
    _, source, target = imported(directory, tmp_path / "run")
    theirs = transformers.MarianTokenizer.from_pretrained(directory)
    lines = [*sentences(20, 7), ">>xyz<< abc", ">>zzz<< abc", "  a  b ", "", "Ä 中 ☃", "a<< >>b"]
    for line in lines:
        expected = theirs(line)["input_ids"][:-1]
        assert [source.numbering.rows[i] for i in source.encode(line)] == expected, line
        on_the_target_side = theirs(text_target=line)["input_ids"][:-1]
        assert [target.numbering.rows[i] for i in target.encode(line)] == on_the_target_side, line
        if theirs.unk_token_id not in on_the_target_side:
            assert target.decode(target.encode(line)) == theirs.decode(on_the_target_side)


def test_special_tokens_in_a_text_are_text(tmp_path: Path) -> None:
    """Which is where we part from transformers: there "</s>" in a text ends it."""
    marian(tmp_path / "marian")
    _, source, _ = imported(tmp_path / "marian", tmp_path / "run")
    ids = source.encode("ab </s> <pad> ab")
    assert not {PAD, BOS, EOS} & set(ids)
    assert len(ids) > 6
