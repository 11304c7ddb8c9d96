"""Guided alignment: the right head is taught, by the right links, and by nothing else."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import transduce
from helpers.tiny_run import (
    Pair,
    reversal_pairs,
    tiny_recipe,
    tiny_settings,
    tiny_task,
    train_tiny,
    write_tsv,
)
from transduce import DataError, SettingError
from transduce.data.batches import DataState
from transduce.data.encoded import EncodedPairs, LinkRows
from transduce.metrics.alignment import alignment_scores, alignment_statistics
from transduce.tasks.translation.alignment import (
    AlignmentGuide,
    AlignmentOptions,
    align_pairs,
    alignment_loss,
    attention_of,
    training_links,
)
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.training import encoded_pairs, vocabularies
from transduce.text.alignment import format_links
from transduce.training.config import GuidedAlignmentConfig

TAUGHT = ("training.alignment.weight=1.0", "training.alignment.head=1")


def mirrored(pairs: Sequence[Pair]) -> list[frozenset[tuple[int, int]]]:
    """The true links of reversed letters."""
    return [frozenset((len(s) - 1 - i, i) for i in range(len(s))) for s, _ in pairs]


def links_of(data: Path, directory: Path, *overrides: str) -> tuple[LinkRows, EncodedPairs]:
    recipe = tiny_recipe(data, *overrides)
    directory.mkdir(exist_ok=True)
    source, target = vocabularies(recipe, directory)
    train = encoded_pairs(recipe, source, target, directory / ".cache")["train"]
    assert isinstance(train, EncodedPairs)
    return training_links(recipe, source, target, train, directory / ".cache"), train


class TestLinks:
    def test_of_a_batch(self) -> None:
        rows = LinkRows.of([{(0, 0), (1, 0)}, set(), {(2, 1)}])
        found = rows.batch(np.array([2, 0, 1, 7]))
        assert list(zip(*(part.tolist() for part in found), strict=True)) == [
            (0, 1, 2, 1.0),
            (1, 0, 0, 0.5),
            (1, 0, 1, 0.5),
        ]
        nothing = LinkRows.of([set()]).batch(np.array([0]))
        assert [len(part) for part in nothing] == [0] * 4

    def test_loss_by_hand(self) -> None:
        """Half of log ½ and of log ¼, and all of log ⅛; the rest does not count."""
        weights = torch.full((2, 2, 3), 0.001)
        weights[0, 0, 0], weights[0, 0, 1], weights[1, 1, 2] = 0.5, 0.25, 0.125
        links = LinkRows.of([{(0, 0), (1, 0)}, {(2, 1)}]).batch(np.array([0, 1]))
        wanted = 0.5 * math.log(2) + 0.5 * math.log(4) + math.log(8)
        assert alignment_loss(weights, links).item() == pytest.approx(wanted)

    def test_from_a_file_whose_pairs_are_partly_left_out(self, tmp_path: Path) -> None:
        """Held out, too long, blank and repeated pairs have lines in the file, and no row."""
        pairs = reversal_pairs(80)
        pairs = [*pairs[:20], ("abcdeabcde", "a"), ("", "a"), pairs[3], *pairs[20:]]
        data = write_tsv(tmp_path / "a.tsv", pairs)
        lines = [format_links(links) for links in mirrored(pairs)]
        lines[20] = lines[21] = ""
        (tmp_path / "links").write_text("".join(f"{line}\n" for line in lines))
        settings = (
            f"data.root={tmp_path}",
            "training.alignment.links=links",
            "data.filters.max_length=6",
        )
        with pytest.raises(
            DataError, match=r"line 1: the link .* is out of range for texts of 1 and"
        ):
            links_of(data, tmp_path / "run", *settings)  # letters are no words
        words = [(" ".join(s), t) for s, t in pairs]
        data = write_tsv(tmp_path / "a.tsv", words)
        found, train = links_of(data, tmp_path / "run2", *settings, 'text.source={kind="symbols"}')
        assert len(train) == len(found.offsets) - 1 < len(pairs) - 3
        for i in range(len(train)):
            n = len(train.source(i))
            batch = found.batch(np.array([i]))
            assert batch.sources.tolist() == [n - 1 - t for t in batch.targets.tolist()]
            assert len(batch.sources) == n

    def test_a_file_of_another_length(self, tmp_path: Path) -> None:
        data = write_tsv(tmp_path / "a.tsv", reversal_pairs(40))
        (tmp_path / "links").write_text("0-0\n")
        settings = (f"data.root={tmp_path}", "training.alignment.links=links")
        with pytest.raises(DataError, match="must have one line for each pair"):
            links_of(data, tmp_path / "run", *settings)

    def test_learnt_ones_are_made_once(self, tmp_path: Path) -> None:
        data = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
        first, _ = links_of(data, tmp_path / "run", *TAUGHT)
        (kept,) = (tmp_path / "run" / ".cache").glob("links-*.safetensors")
        again, _ = links_of(data, tmp_path / "run", *TAUGHT)
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)
        kept.write_bytes(b"damaged")
        again, _ = links_of(data, tmp_path / "run", *TAUGHT)
        np.testing.assert_array_equal(first.sources, again.sources)


class TestTraining:
    def test_only_the_loss_of_the_head_is_added(self, tmp_path: Path) -> None:
        data = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
        next_to_none = "model.encoder.dropout=1e-9"  # or no two losses would be the same
        for extra in ((), ("training.r_drop=1.0", next_to_none)):
            task = tiny_task(data, tmp_path / "task", *TAUGHT, *extra)
            links = LinkRows.of(mirrored([("abc", "")]) * len(task.predictor.model.state_dict()))
            config = GuidedAlignmentConfig(weight=2.0, head=1)
            batch, _ = next(task.batches.iterate(DataState()))
            plain = task.loss(batch)
            task.guide = AlignmentGuide(task.model, config, links)
            guided = task.loss(batch)
            assert guided.tokens == plain.tokens
            assert guided.nll.item() == pytest.approx(plain.nll.item(), rel=1e-5)
            assert guided.total.item() > plain.total.item() + 1
            guided.total.backward()  # type: ignore[no-untyped-call]
            assert task.guide.attention.weights is None, "nobody looks after the loss"

    @pytest.mark.system
    def test_teaches_the_head_to_align(self, tmp_path: Path) -> None:
        pairs = [(" ".join(s), t) for s, t in reversal_pairs(400)]
        truth = mirrored([("".join(s.split()), t) for s, t in pairs])
        data = write_tsv(tmp_path / "a.tsv", pairs)
        lines = "".join(f"{format_links(links)}\n" for links in truth)
        (tmp_path / "links").write_text(lines)
        settings = (
            *("training.steps=200", "training.validate_every=100", "training.schedule.peak=0.01"),
            'text.source={kind="symbols"}',
            f"data.root={tmp_path}",
        )
        rates = []
        for name, extra in (
            ("plain", ()),
            ("taught", (*TAUGHT, "training.alignment.links=links")),
        ):
            path, _ = train_tiny(data, tmp_path / name, *settings, *extra)
            translator = transduce.load(path, device="cpu").translator
            found = [one.links for one in align_pairs(translator, pairs)]
            gold = [(links, links) for links in truth]
            rates.append(alignment_scores(alignment_statistics(found, gold).sum(0))["aer"])
        assert rates[1] < 30 and rates[1] < rates[0] / 2, rates
        attention, head = attention_of(translator, AlignmentOptions())
        assert head == 1 and attention is attention_of(translator, AlignmentOptions(layer=0))[0]
        for layer in (0, -1):
            assert attention_of(translator, AlignmentOptions(layer=layer))[1] == 1
        assert attention_of(translator, AlignmentOptions(mean=True))[1] is None


class TestSettings:
    @pytest.mark.parametrize(
        ("override", "message"),
        [
            (
                "training.alignment.layer=1",
                "alignment.layer = 1 is out of range: the decoder has layers 0 to 0",
            ),
            (
                "training.alignment.head=2",
                "alignment.head = 2 is out of range: the decoder has heads 0",
            ),
            ("training.alignment.weight=0", "alignment.weight"),
            ("training.compile=true", "needs the attention weights"),
            ("training.recompute=true", "needs the attention weights; turn off training.recompute"),
            ("text.source_sampling=0.1", "text.source_sampling"),
        ],
    )
    def test_refusals(self, tmp_path: Path, override: str, message: str) -> None:
        with pytest.raises(SettingError, match=message):
            tiny_recipe(tmp_path / "a.tsv", "training.alignment.weight=1.0", override)

    def test_a_decoder_that_does_not_look(self, tmp_path: Path) -> None:
        settings = tiny_settings(tmp_path / "a.tsv", *TAUGHT[:1])
        settings["model"]["decoder"] = {"kind": "recurrent", "context": {"kind": "fixed"}}
        with pytest.raises(SettingError, match="needs cross-attention"):
            TranslationRecipe.parse(settings, "recipe")
