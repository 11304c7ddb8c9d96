"""A tiny model learns a real task from nothing, to reverse a string of letters, in seconds."""

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import transduce
from helpers.tiny_run import Pair, records, reversal_pairs, train_tiny, write_tsv
from transduce.tasks.translation.recipe import read_pairs_of

LARGER = (
    "model.d_model=64",
    *(
        f"model.{stack}.{setting}"
        for stack in ("encoder", "decoder")
        for setting in ("d_ff=128", "n_heads=4")
    ),
    "training.batch_tokens=512",
    "training.log_every=50",
    "training.validate_every=10000",
    "training.label_smoothing=0.0",
    "training.schedule={kind='cosine', peak=4e-3, warmup_steps=50}",
    "evaluation.validation_pairs=0",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pairs = reversal_pairs(3000, longest=7)
    return write_tsv(tmp_path_factory.mktemp("data") / "a.tsv", pairs)


def unigram_entropy(pairs: Iterable[Pair]) -> float:
    """Nats per token, the end included, of a model that knows only how frequent tokens are."""
    counts: Counter[str] = Counter()
    for _, target in pairs:
        counts.update([*target.split(), "</s>"])
    total = sum(counts.values())
    return -sum(count / total * math.log(count / total) for count in counts.values())


@pytest.mark.system
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi"])
def test_learns_something_in_a_moment(data: Path, tmp_path: Path, positions: str) -> None:
    kinds = [f"model.{stack}.positions={positions}" for stack in ("encoder", "decoder")]
    path, outcome = train_tiny(data, tmp_path / "run", *LARGER, *kinds, "training.steps=150")
    known = unigram_entropy(read_pairs_of(transduce.load(path).recipe.data, "train"))
    assert outcome.scores["loss"] < known / 2
    first, *_, last = records(path, "train")
    assert last["loss"] < first["loss"]


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.slow
def test_learns_to_reverse_unseen_strings(data: Path, tmp_path: Path, norm_order: str) -> None:
    orders = [f"model.{stack}.norm_order={norm_order}" for stack in ("encoder", "decoder")]
    path, _ = train_tiny(data, tmp_path / "run", *LARGER, *orders, "training.steps=1000")
    run = transduce.load(path)
    observed = {source for source, _ in read_pairs_of(run.recipe.data, "train")}
    result = run.evaluate("test")
    assert len(result.sources) > 200 and not observed & set(result.sources)
    assert result.scores["accuracy"] > 95, result.scores
