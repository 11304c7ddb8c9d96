"""Subword regularisation: other segmentations of the same texts, that can be drawn again."""

import itertools
import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import transduce
from helpers.tiny_run import tiny_recipe, tiny_settings, tiny_task, train_tiny, write_tsv
from transduce.data.batches import DataState, PairBatch, pair_batches
from transduce.data.encoded import EncodedPairs, encode_pairs
from transduce.data.pairs import FilterConfig
from transduce.data.ragged_rows import Side
from transduce.data.sampling import SampledBatches, sampled_pairs
from transduce.errors import SettingError
from transduce.settings.sections import load_toml
from transduce.tasks.text_encoder.classification import resegmented_texts
from transduce.tasks.text_encoder.recipes import ClassificationRecipe
from transduce.tasks.text_inputs import with_special_tokens
from transduce.text import CharactersConfig, SubwordConfig, SubwordTokenizer, train_tokenizer
from transduce.text.subword import SegmentationSampler, sampler_for
from transduce.text.tokenizer import BOS, EOS

SYLLABLES = ("na", "tion", "al", "sta", "slow", "ly", "re", "gu", "la", "ri", "new", "est", "wi")


def strength(tokenizer: SubwordTokenizer) -> float:
    """An alpha that cuts many words anew."""
    return 0.3 if tokenizer.kind == "bpe" else 0.05


def lines(n: int, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    words = ["".join(p) for p in itertools.product(SYLLABLES, SYLLABLES, ("", "al", "ly"))]
    return [" ".join(generator.choices(words, k=generator.randint(1, 15))) for _ in range(n)]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> SubwordTokenizer:
    return SubwordTokenizer.train(SubwordConfig(kind=request.param, size=500), lines(300))


@pytest.fixture(scope="module")
def data(tokenizer: SubwordTokenizer, tmp_path_factory: pytest.TempPathFactory) -> EncodedPairs:
    side = Side(tokenizer.encode_batch, tokenizer.size)
    pairs = zip(lines(300, 1), lines(300, 2), strict=True)
    directory = tmp_path_factory.mktemp("data") / "pairs"
    return encode_pairs(pairs, side, side, FilterConfig(), directory, "a")


class TestTokenizer:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        texts=st.lists(st.text(max_size=30), max_size=5),
        alpha=st.sampled_from([0.05, 0.3, 1.0]),
        seed=st.integers(-(2**70), 2**70),
    )
    def test_texts_stay_and_seeds_decide(
        self, tokenizer: SubwordTokenizer, texts: list[str], alpha: float, seed: int
    ) -> None:
        drawn = tokenizer.sample_batch(texts, alpha, seed)
        assert [tokenizer.decode(ids) for ids in drawn] == [tokenizer.normalize(t) for t in texts]
        assert tokenizer.sample_batch(texts, alpha, seed) == drawn

    def test_many_segmentations(self, tokenizer: SubwordTokenizer) -> None:
        alpha, text = strength(tokenizer), max(lines(50, 9), key=len)
        drawn = [tokenizer.sample_batch([text], alpha, seed)[0] for seed in range(50)]
        assert len({tuple(ids) for ids in drawn}) > 20

    def test_another_thread_and_other_draws_change_nothing(
        self, tokenizer: SubwordTokenizer
    ) -> None:
        texts, alpha, found = lines(20), strength(tokenizer), []
        wanted = tokenizer.sample_batch(texts, alpha, 7)
        sentencepiece.set_random_generator_seed(99)
        tokenizer.sample_batch(texts, 0.5, 3)
        thread = threading.Thread(
            target=lambda: found.append(tokenizer.sample_batch(texts, alpha, 7))
        )
        thread.start()
        thread.join()
        assert found == [wanted]
        assert tokenizer.sample_batch(texts, alpha, 8) != wanted

    @pytest.mark.system
    def test_another_process_draws_the_same(
        self, tokenizer: SubwordTokenizer, tmp_path: Path
    ) -> None:
        tokenizer.save(tmp_path / "tokenizer.model")
        program = (
            "import sys; from pathlib import Path; from transduce.text import load_tokenizer\n"
            "tokenizer = load_tokenizer(Path(sys.argv[1]))\n"
            "print(tokenizer.sample_batch(sys.argv[3:], float(sys.argv[2]), 7))"
        )
        texts, alpha = [*lines(20), "né 中 wiwi"], strength(tokenizer)
        place = str(tmp_path / "tokenizer.model")
        command = [sys.executable, "-W", "ignore", "-c", program, place, str(alpha), *texts]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert json.loads(said) == tokenizer.sample_batch(texts, alpha, 7)

    def test_chances_are_those_of_sentencepiece(self, tokenizer: SubwordTokenizer) -> None:
        """Its own draws, which no seed brings back in another process, come as often."""
        alpha, n = strength(tokenizer), 4000
        own = Counter(map(tuple, tokenizer.sample_batch(["slowtional"] * n, alpha, 1)))
        theirs = Counter(
            map(
                tuple,
                tokenizer._processor.encode(
                    ["slowtional"] * n,
                    out_type=int,
                    enable_sampling=True,
                    alpha=alpha,
                    nbest_size=-1,
                ),
            )
        )
        assert len(own) > 1
        apart = sum(abs(own[ids] - theirs[ids]) for ids in {*own, *theirs}) / (2 * n)
        assert apart < 0.12  # total variation; of two samples alike of so many ways about 0.05

    def test_no_segmentation_is_beyond_plain_merging(self, tokenizer: SubwordTokenizer) -> None:
        if tokenizer.kind == "bpe":
            texts = lines(50, 4)
            assert tokenizer.sample_batch(texts, 0.0, 1) == tokenizer.encode_batch(texts)

    def test_plain_encoding_stays_plain(self, tokenizer: SubwordTokenizer) -> None:
        plain = tokenizer.encode_batch(lines(20))
        tokenizer.sample_batch(lines(20), 0.5, 1)
        assert tokenizer.encode_batch(lines(20)) == plain

    def test_less_merging_more_tokens(self) -> None:
        bpe = SubwordTokenizer.train(SubwordConfig(size=330), lines(300))
        sizes = [
            sum(map(len, bpe.sample_batch(lines(100), alpha, 1))) for alpha in (0.01, 0.1, 0.5, 1.0)
        ]
        assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
        assert sizes[-1] == sum(len(bpe.normalize(text)) + 1 for text in lines(100))  # characters


class TestPairs:
    def both(
        self,
        data: EncodedPairs,
        tokenizer: SubwordTokenizer,
        tokens: int,
        alpha: float | None = None,
    ) -> SampledBatches[PairBatch]:
        sampler = SegmentationSampler(tokenizer, alpha or strength(tokenizer))
        found = sampled_pairs(pair_batches(data, tokens, 5), sampler, sampler, 256)
        assert isinstance(found, SampledBatches)
        return found

    def epoch(self, batches: SampledBatches[PairBatch], number: int) -> Iterator[PairBatch]:
        for batch, after in batches.iterate(DataState(number, 0)):
            yield batch
            if after.epoch != number:
                return

    @pytest.mark.parametrize("tokens", [1, 60, 500])
    @pytest.mark.parametrize("alpha", [0.1, 1.0])
    def test_same_texts_within_the_budget(
        self, data: EncodedPairs, tokenizer: SubwordTokenizer, tokens: int, alpha: float
    ) -> None:
        seen = []
        for batch in self.epoch(self.both(data, tokenizer, tokens, alpha), 0):
            seen += batch.rows.tolist()
            for side, ids in ((batch.source, data.source), (batch.target, data.target)):
                assert side.values.numel() <= tokens or len(batch.rows) == 1
                for values, real, row in zip(side.values, side.real, batch.rows, strict=True):
                    assert tokenizer.decode(values.tolist()) == tokenizer.decode(ids(row).tolist())
                    length = int(real.sum())
                    assert real.tolist() == [True] * length + [False] * (len(real) - length)
                    assert values[length - 1] == EOS
            assert (batch.target.values[:, 0] == BOS).all()
            assert batch.target_tokens == int(batch.target.real[:, 1:].sum())
        assert sorted(seen) == list(range(len(data)))

    def test_new_in_each_epoch_and_plain_in_order(
        self, data: EncodedPairs, tokenizer: SubwordTokenizer
    ) -> None:
        batches = self.both(data, tokenizer, 500)

        def of_row(number: int, epoch: int) -> tuple[list[int], list[int]]:
            for batch in self.epoch(batches, epoch):
                for i, row in enumerate(batch.rows):
                    if row == number:
                        source = batch.source.values[i][batch.source.real[i]]
                        return source.tolist(), batch.target.values[i].tolist()
            raise AssertionError(number)

        longest = int(data.source_lengths.argmax())
        found = [of_row(longest, epoch) for epoch in range(4)]
        assert len({tuple(source) for source, _ in found}) == 4
        plain = {
            row for b in batches.plain.in_order() for row in map(tuple, b.source.values.tolist())
        }
        assert any(row[: len(data.source(longest))] == tuple(data.source(longest)) for row in plain)

    def test_every_batch_of_every_epoch_has_a_seed_of_its_own(self) -> None:
        states = [DataState(epoch, place) for epoch in range(5) for place in range(7)]

        def seeds(seed: int) -> list[int]:
            plain: Any = SimpleNamespace(
                seed=seed, one_shape=None, iterate=lambda _: ((0, state) for state in states)
            )
            return [drawn for drawn, _ in SampledBatches(plain, lambda _, drawn: drawn).iterate()]

        assert len({*seeds(1), *seeds(2)}) == 2 * len(states)
        assert seeds(1) == seeds(1)

    def test_few_keep_the_plain_segmentation(
        self, data: EncodedPairs, tokenizer: SubwordTokenizer
    ) -> None:
        """Batches are planned for what sampling makes of the lengths."""
        sampler = SegmentationSampler(tokenizer, strength(tokenizer))
        room = sampler.room(data.source_lengths, [data.source(i).tolist() for i in range(300)])
        drawn = sampler.draw([data.source(i).tolist() for i in range(300)], seed=4)
        assert np.mean(np.array([len(ids) for ids in drawn]) > room) < 0.1
        assert (room >= data.source_lengths).all()

    @pytest.mark.parametrize("cut", [0, 3, 11])
    def test_resuming_anywhere_gives_the_same_batches(
        self, data: EncodedPairs, tokenizer: SubwordTokenizer, cut: int
    ) -> None:
        whole = list(itertools.islice(self.both(data, tokenizer, 1000).iterate(), cut + 12))
        afresh = self.both(data, tokenizer, 1000).iterate(whole[cut][1])
        for (batch, state), (wanted, after) in zip(afresh, whole[cut + 1 :], strict=False):
            assert state == after
            assert torch.equal(batch.source.values, wanted.source.values)
            assert torch.equal(batch.target.values, wanted.target.values)

    def test_one_side_alone(self, data: EncodedPairs, tokenizer: SubwordTokenizer) -> None:
        sampler = SegmentationSampler(tokenizer, 0.5)
        found = sampled_pairs(pair_batches(data, 500, 5), sampler, None, 256)
        assert isinstance(found, SampledBatches)
        for batch in self.epoch(found, 0):
            for values, row in zip(batch.target.values.tolist(), batch.rows, strict=True):
                wanted = [BOS, *data.target(row), EOS]
                assert values[: len(wanted)] == wanted

    def test_no_row_beyond_max_length(
        self, data: EncodedPairs, tokenizer: SubwordTokenizer
    ) -> None:
        sampler = SegmentationSampler(tokenizer, 1.0)
        longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
        found = sampled_pairs(pair_batches(data, 500, 5), sampler, sampler, longest)
        assert isinstance(found, SampledBatches)
        for batch in self.epoch(found, 0):
            assert batch.source.values.shape[1] <= longest + 1
            assert batch.target.values.shape[1] <= longest + 2

    def test_without_samplers_nothing_changes(self, data: EncodedPairs) -> None:
        plain = pair_batches(data, 500, 5)
        assert sampled_pairs(plain, None, None, 256) is plain


def test_texts_between_marks(tokenizer: SubwordTokenizer) -> None:
    inputs = [
        (max(lines(20, 6), key=len), None),
        ("slowly", "newstation widest"),
        ("", lines(1, 8)[0]),
    ]
    rows = [
        with_special_tokens(tokenizer.encode(a), None if b is None else tokenizer.encode(b), 200)
        for a, b in inputs
    ]
    sampler = SegmentationSampler(tokenizer, strength(tokenizer))
    found = resegmented_texts(rows, sampler, 200, 200, seed=1)
    assert found == resegmented_texts(rows, sampler, 200, 200, seed=1) != rows
    for row, (a, b) in zip(found, inputs, strict=True):
        ids, segments = list(row.ids), list(row.segments)
        middle = segments.index(1) if b is not None else len(ids)
        assert ids[0] == BOS and ids[middle - 1] == ids[-1] == EOS
        assert tokenizer.decode(ids[:middle]) == a
        assert tokenizer.decode(ids[middle:]) == (b or "")
    assert resegmented_texts(rows, sampler, 200, 1, seed=1) == rows, "none fits its share"
    assert all(len(row.ids) <= 8 for row in resegmented_texts(rows, sampler, 8, 200, seed=1))


class TestSettings:
    @pytest.mark.parametrize(
        ("override", "said"),
        [
            ("text.source_sampling=0.1", "text.source_sampling = 0.1 needs .* 'characters'"),
            ("text.target_sampling=0.1", "text.target_sampling = 0.1 needs .* 'symbols'"),
            ("text.source_sampling=1.5", "text.source_sampling .* less than or equal to 1"),
        ],
    )
    def test_what_cannot_be_sampled_is_said(self, tmp_path: Path, override: str, said: str) -> None:
        with pytest.raises(SettingError, match=said) as caught:
            tiny_recipe(tmp_path / "a.tsv", override)
        assert "\n" not in str(caught.value)

    def test_classification_too(self) -> None:
        text = {"tokenizer": {"kind": "characters"}, "sampling": 0.1}
        with pytest.raises(SettingError, match=r"text\.sampling = 0.1 needs .* 'characters'"):
            ClassificationRecipe.parse({"task": "classification", "text": text}, "recipe")

    def test_a_tokenizer_of_another_run(self) -> None:
        characters = train_tokenizer(CharactersConfig(), ["abc"])
        assert sampler_for("text.sampling", 0.0, characters) is None
        with pytest.raises(SettingError, match="the other run has another kind"):
            sampler_for("text.sampling", 0.1, characters)


PLAIN = (
    "text.source={kind='bpe', size=300}",
    "text.target={kind='unigram', size=300}",
    "training.batch_tokens=300",
    "evaluation.validation_pairs=0",
)
SAMPLED = (*PLAIN, "text.source_sampling=0.2", "text.target_sampling=0.2")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = zip(lines(120, 3), lines(120, 4), strict=True)
    return write_tsv(tmp_path_factory.mktemp("pairs") / "a.tsv", list(texts))


def test_validation_reads_plain_segmentations(pairs: Path, tmp_path: Path) -> None:
    sampled, plain = (tiny_task(pairs, tmp_path, *chosen) for chosen in (SAMPLED, PLAIN))
    plain.model.load_state_dict(sampled.model.state_dict())
    sampled.model.eval()
    plain.model.eval()
    assert sampled.validate() == plain.validate()
    (first, _), (other, _) = (next(task.batches.iterate(DataState())) for task in (sampled, plain))
    assert first.target_tokens != other.target_tokens


def test_fine_tuning_may_sample(pairs: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    train_tiny(pairs, base, *PLAIN, "training.steps=1")
    recipe = tiny_settings(pairs, f"fine_tune.run={json.dumps(str(base))}", "training.steps=1")
    del recipe["model"]
    recipe["text"] = {"source_sampling": 0.2}
    run, _ = transduce.train(recipe, tmp_path / "tuned")
    for name in ("source_tokenizer.model", "target_tokenizer.model"):
        assert (run / name).read_bytes() == (base / name).read_bytes()
    text = load_toml(run / "recipe.toml")["text"]
    assert text["source_sampling"] == 0.2
    assert text["source"]["size"] == 300
