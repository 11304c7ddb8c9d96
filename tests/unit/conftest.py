"""A translator that reverses words, trained once for all its readers."""

from pathlib import Path

import pytest

from helpers.reversing_run import LEARNT
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv


@pytest.fixture(scope="session")
def reversals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs to train from, tab-separated."""
    return write_tsv(tmp_path_factory.mktemp("data") / "a.tsv", reversal_pairs(300))


@pytest.fixture(scope="session")
def run_path(reversals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory."""
    return train_tiny(reversals, tmp_path_factory.mktemp("runs") / "tiny", *LEARNT)[0]
