"""Masked language modelling: what is hidden, rows and pairs of lines, exact resume, filling in."""

import dataclasses
import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.tiny_run import stack, training
from transduce.data.batches import DataState
from transduce.data.documents import EncodedLines, lengths_of
from transduce.data.masking import MaskingConfig, begin_words
from transduce.data.token_masking import Masking
from transduce.errors import DataError, SettingError
from transduce.sequence import Padded
from transduce.settings.sections import apply_overrides
from transduce.tasks.text_encoder.mask_filler import MaskFiller
from transduce.tasks.text_encoder.masked_language_model import MaskedLanguageModelTraining, rows_of
from transduce.tasks.text_encoder.recipes import MaskedLanguageModelRecipe
from transduce.text import (
    BOS,
    EOS,
    PAD,
    SPECIAL_TOKENS,
    UNK,
    train_tokenizer,
)

SHOWN = [*SPECIAL_TOKENS, "▁the", "▁cat", "s", "▁sat", "ting", "▁", "(", "<0xE4>", "中", "国"]
MASK = len(SHOWN)


def a_batch(rows: int, length: int, seed: int = 0) -> Padded:
    """Rows of random tokens between BOS and EOS, some of them unknown."""
    chance = np.random.default_rng(seed)
    lists = []
    for i in range(rows):
        ids = chance.integers(4, MASK, length - (i % 3)).tolist()
        ids[i % len(ids)] = UNK
        lists.append([BOS, *ids, EOS])
    return Padded.from_rows(lists)


# ---- masking


def test_shares_of_masking() -> None:
    torch.manual_seed(0)
    tokens = a_batch(400, 100)
    masked = Masking(MaskingConfig(), SHOWN)(tokens)
    n = int((tokens.values >= 4).sum())
    share = masked.at.sum().item() / n
    assert 0.145 < share < 0.155
    before, after = tokens.values[masked.at], masked.tokens.values[masked.at]
    assert torch.equal(before, masked.targets)
    assert abs((after == MASK).float().mean().item() - 0.8) < 0.02
    changed = (after != MASK) & (after != before)
    # one in ten of the random tokens is the right one by chance
    assert abs(changed.float().mean().item() - 0.1 * 0.9) < 0.015
    assert int(after[changed].min()) >= 4 and int(after[changed].max()) < MASK
    assert torch.equal(masked.tokens.values[~masked.at], tokens.values[~masked.at])


def test_special_tokens_and_padding_are_never_hidden_nor_guessed() -> None:
    torch.manual_seed(0)
    tokens = a_batch(50, 20)
    for whole_words in (False, True):
        config = MaskingConfig(share=0.99, masked=0.5, random=0.5, whole_words=whole_words)
        masked = Masking(config, SHOWN)(tokens)
        for special in (PAD, UNK, BOS, EOS):
            at = tokens.values == special
            assert torch.equal(masked.tokens.values[at], tokens.values[at])
        assert int(masked.targets.min()) >= 4


def test_single_tokens_are_hidden_exactly_as_many_as_aimed_at() -> None:
    masking = Masking(MaskingConfig(), SHOWN)
    rows = [[BOS, *[5] * n, EOS] for n in range(1, 60)]
    found = masking(Padded.from_rows(rows)).at.sum(1).tolist()
    assert found == [masking.aim(row) for row in rows]
    assert found[0] == 1 and found[19] == 3


def test_whole_words_are_hidden_together() -> None:
    torch.manual_seed(3)
    masking = Masking(MaskingConfig(whole_words=True, masked=1.0, random=0.0), SHOWN)
    ids = [BOS, 4, 5, 6, 7, 8, 8, 11, 12, 13, 9, 6, EOS]
    words = [[1], [2, 3], [4, 5, 6, 7], [8], [9], [10, 11]]
    tokens = Padded.from_rows([ids] * 2000)
    at = masking(tokens).at
    for word in words:
        inside = at[:, word]
        assert torch.equal(inside.all(1), inside.any(1)), word
        assert inside.any()
    assert abs(at.sum(1).float().mean().item() / 11 - 0.15) < 0.1


def test_where_words_begin() -> None:
    by_space = begin_words(SHOWN)
    names = [token for token, begins in zip(SHOWN, by_space, strict=True) if begins]
    assert names[4:] == ["▁the", "▁cat", "▁sat", "▁", "(", "中", "国"]
    pieces = [*SPECIAL_TOKENS, "play", "##ing", "##", ","]
    assert begin_words(pieces)[4:] == [True, False, False, True]
    assert all(begin_words([*SPECIAL_TOKENS, "AH0", "K"]))


def test_nothing_to_hide_hides_nothing() -> None:
    tokens = Padded.from_rows([[BOS, EOS], [BOS, UNK, EOS]])
    for whole_words in (False, True):
        masked = Masking(MaskingConfig(whole_words=whole_words), SHOWN)(tokens)
        assert not masked.at.any() and len(masked.targets) == 0
        assert torch.equal(masked.tokens.values, tokens.values)


def test_segments_stay_as_they_are() -> None:
    tokens = a_batch(4, 12)
    segments = torch.arange(tokens.values.shape[1]).expand_as(tokens.values) % 2
    both = tokens.with_values(torch.stack([tokens.values, segments], -1))
    masked = Masking(MaskingConfig(), SHOWN)(both)
    assert torch.equal(masked.tokens.values[..., 1], segments)
    assert bool((masked.tokens.values[..., 0] != tokens.values).any())


def test_a_generator_leaves_torchs_own_numbers_alone() -> None:
    tokens, masking = a_batch(5, 30), Masking(MaskingConfig(), SHOWN)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one = masking(tokens, torch.Generator().manual_seed(1))
    two = masking(tokens, torch.Generator().manual_seed(1))
    assert torch.equal(one.tokens.values, two.tokens.values)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(masking(tokens).at, masking(tokens).at)


def test_shares_beyond_one_are_refused() -> None:
    with pytest.raises(SettingError, match="must not add up to more than 1"):
        MaskingConfig(masked=0.8, random=0.3)


# ---- lines of documents


def test_lines_are_packed_within_their_documents() -> None:
    texts = ["aa bb\n\ncc dd ee\nff", "", "gg", "hh ii jj kk ll mm\nnn\r\n"]
    words = {word: i for i, word in enumerate(" ".join(texts).split(), 4)}

    def encode(lines: Any) -> list[list[int]]:
        return [[words[word] for word in line.split(" ")] for line in lines]

    lines = EncodedLines(texts, encode, max_length=5)
    assert [lines.line(i).tolist() for i in range(len(lines))] == [
        [4, 5], [6, 7, 8], [9], [10], [11, 12, 13, 14, 15], [16], [17]
    ]  # fmt: skip
    assert lines.documents.tolist() == [0, 0, 0, 2, 3, 3, 3]
    rows = lines.packed(5)
    assert rows.tolist() == [[0, 2], [2, 3], [3, 4], [4, 5], [5, 7]]
    assert lengths_of(lines, rows).tolist() == [5, 1, 1, 5, 2]
    assert lines.pairs().tolist() == [0, 1, 4, 5]
    assert lines.n_documents == 3


def test_lines_from_elsewhere_are_of_other_documents_and_equally_likely() -> None:
    texts = ["a\nb", "c\nd\ne", "f"]
    lines = EncodedLines(texts, lambda batch: [[ord(line)] for line in batch], 9)
    for line in range(6):
        others = [i for i in range(6) if lines.documents[i] != lines.documents[line]]
        found = [lines.elsewhere(line, (k + 0.5) / 60) for k in range(60)]
        assert sorted(set(found)) == others
        counts = {found.count(i) for i in others}
        assert max(counts) - min(counts) <= 1
        assert lines.elsewhere(line, math.nextafter(1.0, 0.0)) == others[-1]


# ---- the task


def pattern_documents(n: int, seed: int = 0) -> list[str]:
    """Documents that count on from a letter, so that a hidden one can be told from the others.

    Some end with a word that stands in no other.
    """
    chance = random.Random(seed)
    documents = []
    for i in range(n):
        letter, lines = chance.randrange(12), []
        for _ in range(chance.randint(2, 3)):
            length = chance.randint(3, 8)
            lines.append(" ".join(chr(97 + (letter + k) % 12) for k in range(length)))
            letter += length
        documents.append("\n".join([*lines, *[f"x{i}"] * (i % 3 == 0)]))
    return documents


def write_documents(path: Path, documents: list[str]) -> Path:
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def tiny_settings(data: Path, *overrides: str) -> dict[str, Any]:
    settings = {
        "task": "masked-language-model",
        "data": {
            "train": {"kind": "text", "path": str(data), "documents": "blank-line"},
            "hold_out": 0.1,
        },
        "text": {"max_length": 32},
        "model": {
            "d_model": 32,
            "encoder": stack(n_layers=2, d_ff=64, positions="rotary"),
        },
        "training": training(
            12, 256, 5e-3, warmup=10, label_smoothing=0.0, validate_every=6, log_every=6
        ),
    }
    settings["text"]["tokenizer"] = {"kind": "symbols", "min_count": 2}
    return apply_overrides(settings, overrides)


def a_task(data: Path, *overrides: str) -> MaskedLanguageModelTraining:
    recipe = MaskedLanguageModelRecipe.parse(tiny_settings(data, *overrides), "recipe")
    torch.manual_seed(recipe.seed)
    tokenizer = train_tokenizer(recipe.text.tokenizer, data.read_text().split("\n"))
    filler = MaskFiller(recipe, tokenizer)
    masking = filler.modelling.masking
    rows = {split: rows_of(recipe, split, tokenizer, masking) for split in ("train", "valid")}
    return MaskedLanguageModelTraining(filler.modelling, rows, filler.tokenizer)


def test_a_run_is_resumed_exactly(tmp_path: Path) -> None:
    overrides = "model.encoder.dropout=0.1", "model.segments=true", "next_sentence=true"
    data = write_documents(tmp_path / "text.txt", pattern_documents(60))
    whole, _ = transduce.train(tiny_settings(data, *overrides), tmp_path / "whole")
    half = tmp_path / "half"
    transduce.train(tiny_settings(data, *overrides, "training.steps=6"), half)
    transduce.train(tiny_settings(data, *overrides), half, resume=True)
    for name in ("weights.safetensors", "recipe.toml"):
        assert (half / name).read_bytes() == (whole / name).read_bytes()


def test_masking_is_anew_in_training_and_fixed_in_validation(tmp_path: Path) -> None:
    task = a_task(write_documents(tmp_path / "text.txt", pattern_documents(60)))
    batch, _ = next(task.batches.iterate(transduce.data.batches.DataState()))
    losses = {task.loss(batch).nll.item() for _ in range(3)}
    assert len(losses) == 3
    state = torch.random.get_rng_state()
    assert task.validate() == task.validate()
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    "overrides",
    [(), ("model.segments=true", "model.encoder.positions=learned", "masking.whole_words=true")],
)
def test_packed_rows_lose_what_padded_ones_do(overrides: tuple[str, ...], tmp_path: Path) -> None:
    data = write_documents(tmp_path / "text.txt", pattern_documents(60))
    task = a_task(data, "training.label_smoothing=0.1", *overrides)
    assert not task.padding_reason()
    batches = [b for b, _ in itertools.islice(task.batches.iterate(DataState()), 3)]
    shapes, sizes = set(), []
    for batch in batches:
        results = []
        for packs in (False, True):
            torch.manual_seed(7)  # the same tokens are masked
            packed = task.pack(batch) if packs else None
            sums = task.loss(batch) if packed is None else task.packed_loss(packed)
            task.model.zero_grad()
            sums.total.backward()
            gradients = [p.grad.clone() for p in task.model.parameters() if p.grad is not None]
            results.append([sums.total.detach(), sums.nll, *gradients])
        assert packed is not None
        shapes.add(packed.tokens.values.shape)
        sizes.append(len(packed.places))
        for padded, other in zip(*results, strict=True):
            torch.testing.assert_close(other, padded, rtol=1e-4, atol=1e-4)
    assert len(shapes) == 1 and sizes == sorted(sizes)


def test_what_is_hidden_does_not_hang_on_the_batches_of_training(tmp_path: Path) -> None:
    data = write_documents(tmp_path / "text.txt", pattern_documents(60))
    small, large = (a_task(data, f"training.batch_tokens={n}") for n in (64, 4096))
    assert small.validate() == large.validate()


def test_a_batch_without_anything_to_guess_has_no_loss(tmp_path: Path) -> None:
    documents = pattern_documents(40)
    task = a_task(write_documents(tmp_path / "text.txt", documents))
    batch, _ = next(task.batches.iterate(transduce.data.batches.DataState()))
    nothing = [row._replace(ids=[BOS, *[UNK] * (len(row.ids) - 2), EOS]) for row in batch.rows]
    sums = task.loss(batch._replace(rows=nothing, target_tokens=1))
    assert sums.total.item() == 0.0 and sums.tokens == 1
    sums.total.backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in task.model.parameters())


def test_only_hidden_positions_reach_the_head(tmp_path: Path) -> None:
    task = a_task(write_documents(tmp_path / "text.txt", pattern_documents(40)))
    batch, _ = next(task.batches.iterate(transduce.data.batches.DataState()))
    seen = []
    task.model.head.dense.register_forward_hook(lambda m, x, y: seen.append(len(x[0])))
    assert task.loss(batch).tokens == seen[0] == batch.target_tokens


def test_half_of_the_second_lines_are_from_elsewhere(tmp_path: Path) -> None:
    data = write_documents(tmp_path / "text.txt", pattern_documents(80))
    task = a_task(data, "next_sentence=true", "training.batch_tokens=4096")
    rows = task._data["train"]
    batch, _ = next(task.batches.iterate(transduce.data.batches.DataState()))
    share = 0.0
    for _ in range(20):
        changed, follows = rows.with_others(batch, None)
        share += follows.float().mean().item() / 20
        for row, before, is_next in zip(changed, batch.rows, follows.tolist(), strict=True):
            assert not is_next or row == before
            end = before.ids.index(EOS)
            assert row.ids[: end + 1] == before.ids[: end + 1]
            assert list(row.segments) == [0] * (end + 1) + [1] * (len(row.ids) - end - 1)
    assert 0.45 < share < 0.55


def test_next_sentences_need_two_documents_of_two_lines(tmp_path: Path) -> None:
    lines = write_documents(tmp_path / "lines.txt", ["a b", "c d", "a d"] * 30)
    with pytest.raises(DataError, match="documents of two or more lines, but no train document"):
        transduce.train(tiny_settings(lines, "next_sentence=true"), tmp_path / "run")
    one = write_documents(tmp_path / "one.txt", ["a b\nc d\na d\n" * 9])
    given = f"data.valid={{kind='text', path='{one}'}}"
    with pytest.raises(DataError, match="needs two or more train documents"):
        transduce.train(tiny_settings(one, given, "next_sentence=true"), tmp_path / "run2")


def test_select_by_must_be_measured(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="validation measures 'loss', 'perplexity', 'accuracy'"):
        overrides = "training.select_by=next_sentence_accuracy"
        MaskedLanguageModelRecipe.parse(tiny_settings(tmp_path, overrides), "recipe")


def test_positions_must_reach(tmp_path: Path) -> None:
    learned = "model.encoder={positions='learned', max_positions=16}"
    with pytest.raises(SettingError, match=r"exceeds the 16 learned positions"):
        MaskedLanguageModelRecipe.parse(tiny_settings(tmp_path, learned), "recipe")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> transduce.Run:
    """A model that has learnt to count."""
    directory = tmp_path_factory.mktemp("pattern")
    data = write_documents(directory / "text.txt", pattern_documents(300))
    overrides = (
        "training.steps=300",
        "training.batch_tokens=512",
        "training.validate_every=100",
        "training.log_every=100",
        "training.schedule={kind='cosine', peak=8e-3, warmup_steps=20}",
    )
    run, _ = transduce.train(tiny_settings(data, *overrides), directory / "run")
    return transduce.load(run, "cpu")


def test_it_learns_a_pattern(trained: transduce.Run) -> None:
    scores = trained.evaluate("test").scores
    assert scores["accuracy"] > 90, scores
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))


def test_it_fills_in_masks(trained: transduce.Run) -> None:
    texts = ["a b <mask> d e f g h", "c d e f", "", "f <mask> h i j <mask> l a"]
    found = list(trained.predict(texts))
    assert [f.text for f in found] == ["a b c d e f g h", "c d e f", "", "f g h i j k l a"]
    fields = found[3].fields()
    assert [of_mask[0]["token"] for of_mask in fields["candidates"]] == ["g", "k"]
    for of_mask in fields["candidates"]:
        probabilities = [c["probability"] for c in of_mask]
        assert len(probabilities) == 5 and probabilities == sorted(probabilities, reverse=True)
        assert probabilities[0] > 0.5 and sum(probabilities) <= 1 + 1e-6
    assert len(fields["embedding"]) == 32 and found[2].embedding == ()


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_embeddings_are_pooled_as_the_recipe_says(trained: transduce.Run, pooling: str) -> None:
    filler = trained.predictor
    assert isinstance(filler, MaskFiller)
    model = dataclasses.replace(filler.recipe.model, pooling=pooling)
    other = MaskFiller(dataclasses.replace(filler.recipe, model=model), filler.tokenizer)
    other.model.load_state_dict(filler.model.state_dict())
    other.model.eval()
    (found,) = other.predict([("a b c",)])
    rows = torch.tensor([[BOS, *filler.tokenizer.encode("a b c"), EOS]])
    with torch.no_grad():
        values = filler.model.encode(Padded.unpadded(rows)).values[0]
    wanted = {"mean": values.mean(0), "first": values[0], "max": values.amax(0)}[pooling]
    assert found.embedding == pytest.approx(wanted.tolist(), abs=1e-5)


def test_texts_with_masks_can_be_evaluated(trained: transduce.Run) -> None:
    examples = [("a b <mask> d e", "a b c d e"), ("a b <mask> d e", "a b z d e")]
    assert trained.evaluate(examples=examples).scores["accuracy"] == 50.0


def test_what_is_too_long_is_cut_with_a_warning(
    trained: transduce.Run, caplog: pytest.LogCaptureFixture
) -> None:
    text = " ".join("abcdefghijkl" * 3) + " <mask>"
    with caplog.at_level("WARNING", logger="transduce"):
        (found,) = trained.predict([text])
    assert "input 1 has 37 tokens; only 30 are used" in caplog.text
    assert found.text == text and found.candidates == ()
