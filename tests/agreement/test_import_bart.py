"""Imported BART, mBART, M2M100 and NLLB compute what `transformers` does with the same weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from helpers.hugging_face import largest_difference, ours, padded, random_batch, sentences
from helpers.native import needs_native
from helpers.text_to_text import FAMILIES, LONGEST, language_pair, made, taught
from transduce.runs.importing import import_run
from transduce.runs.run import Run
from transduce.text import BOS
from transduce.text.imported import ImportedTokenizer
from transduce.text.language_names import known_code

TOLERANCE = 1e-5
LENGTHS = (11, 4, 1, 8)
SHAPES: list[dict[str, Any]] = [
    {},
    {"activation_function": "swish", "scale_embedding": False, "d_model": 24},
    {"encoder_layers": 3, "decoder_layers": 1, "activation_function": "gelu"},
    {"encoder_attention_heads": 4, "decoder_attention_heads": 8, "decoder_ffn_dim": 19},
    {"tie_word_embeddings": False, "scale_embedding": True},
]


def imported(directory: Path, run: Path, **changes: Any) -> tuple[Run, ImportedTokenizer]:
    loaded = transduce.load(import_run(directory, run), "cpu")
    tokenizer = loaded.translator.source
    assert isinstance(tokenizer, ImportedTokenizer)
    return loaded, tokenizer


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits(family: str, shape: dict[str, Any], tmp_path: Path) -> None:
    reference, _ = made(family, tmp_path / "saved", **shape)
    run, tokenizer = imported(tmp_path / "saved", tmp_path / "run")
    numbering = tokenizer.numbering
    ids, real = random_batch(numbering, LENGTHS, 1)
    inputs, inputs_real = random_batch(numbering, (9, 6, 9, 2), 1, seed=1)
    inputs[:, 0] = 2
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


def reference_outputs(
    model: Any, tokenizer: Any, texts: list[str], **options: Any
) -> list[tuple[list[int], float | None]]:
    """Ids that transformers finds for each text, without start, languages and end, and scores."""
    pair = language_pair(tokenizer)
    if pair is not None:
        tokenizer.src_lang = pair[0]
        token = f"__{pair[1]}__" if len(pair[1]) == 2 else pair[1]
        options["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(token)
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        made_by = model.generate(
            **batch, **options, return_dict_in_generate=True, output_scores=True
        )
    rows = [row[2:] for row in made_by.sequences.tolist()]
    ids = [row[: (*row, 2).index(2)] for row in rows]
    scores = getattr(made_by, "sequences_scores", None)
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


@pytest.fixture(scope="module")
def speakers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any, Path]]:
    """Of each family a model whose outputs end, its tokenizer and directory."""
    directory = tmp_path_factory.mktemp("speakers")
    return {name: (*taught(name, directory / name), directory / name) for name in FAMILIES}


@pytest.mark.parametrize("engine", ["pytorch", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("early", [True, False, "never"])
@pytest.mark.parametrize("family", FAMILIES)
def test_same_outputs_of_the_beam(
    family: str, early: Any, engine: Any, speakers: Any, tmp_path: Path
) -> None:
    model, tokenizer, directory = speakers[family]
    import_run(directory, tmp_path / "run")
    run = transduce.load(tmp_path / "run", "cpu", engine=engine)
    texts = sentences(30, 5)
    theirs = reference_outputs(model, tokenizer, texts, early_stopping=early)
    stop = {True: "first", False: "present", "never": "exact"}[early]
    mine = our_outputs(run, tokenizer, texts, stop=stop)
    # Without a forced end, outputs of the greatest length have one more token there in its place.
    forced = model.generation_config.forced_eos_token_id is not None
    ended = [i for i, (ids, _) in enumerate(theirs) if forced or len(ids) < LONGEST - 3]
    assert [mine[i][0] for i in ended] == [theirs[i][0] for i in ended]
    expected = [theirs[i][1] for i in ended]
    assert [mine[i][1] for i in ended] == pytest.approx(expected, rel=TOLERANCE)
    assert len(ended) > 10 and len({len(ids) for ids, _ in theirs}) > 2


@pytest.mark.parametrize("engine", ["pytorch", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("family", FAMILIES)
def test_same_greedy_outputs(family: str, engine: Any, speakers: Any, tmp_path: Path) -> None:
    model, tokenizer, directory = speakers[family]
    import_run(directory, tmp_path / "run")
    run = transduce.load(tmp_path / "run", "cpu", engine=engine)
    texts = sentences(30, 6)
    theirs = reference_outputs(model, tokenizer, texts, num_beams=1, early_stopping=None)
    mine = our_outputs(run, tokenizer, texts, beam_size=1, stop="first")
    most = LONGEST - 3  # see above
    assert [ids for ids, _ in mine] == [ids[:most] for ids, _ in theirs]


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
        expected = theirs(line)["input_ids"][:-1]
        assert [rows[i] for i in tokenizer.encode(line)] == expected, line
        if theirs.unk_token_id not in expected:
            plain = theirs(line, add_special_tokens=False)["input_ids"]
            decoded = theirs.decode(plain, skip_special_tokens=True)
            assert tokenizer.decode(tokenizer.encode(line)).strip() == decoded.strip()
    assert tokenizer.encode("") == []
