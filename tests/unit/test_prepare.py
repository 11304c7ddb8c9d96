"""`transduce prepare`: vocabularies and encoded data on disk, and training that starts there."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch.overrides import TorchFunctionMode

import transduce
from helpers.tiny_run import records, reversal_pairs, tiny_settings, write_tsv
from transduce.data import encoded, sources
from transduce.errors import DataError, RunError
from transduce.nn.initialise import DRAWING
from transduce.runs.training import prepare


def test_training_begins_with_prepared_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(200))
    settings = tiny_settings(data, "training.steps=4", "training.validate_every=4")
    run = prepare(settings, tmp_path / "run", ("training.device=cuda",))
    assert not (run / "weights.safetensors").exists()
    assert 'device = "cuda"' in (run / "recipe.toml").read_text()
    assert prepare(settings, run, ("training.device=cuda",)) == run  # again: nothing to do

    def encode_pairs(*_: object) -> None:
        raise AssertionError("data are encoded again")

    monkeypatch.setattr(encoded, "encode_pairs", encode_pairs)
    _, outcome = transduce.train(settings, run, resume=True)
    assert outcome.step == 4
    monkeypatch.undo()
    alone, _ = transduce.train(settings, tmp_path / "alone")
    losses = [[record["loss"] for record in records(path, "train")] for path in (run, alone)]
    assert losses[0] == losses[1]
    with pytest.raises(RunError, match="no checkpoints to resume from"):
        (run / "checkpoints").rename(tmp_path / "gone")
        prepare(settings, run)


def test_a_first_try_that_fails_leaves_no_directory(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path / "missing.tsv")
    for work in (prepare, transduce.train):
        with pytest.raises(DataError, match="no such file"):
            work(settings, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        (tmp_path / "mine").mkdir(exist_ok=True)  # by hand: it stays
        with pytest.raises(DataError, match="no such file"):
            work(settings, tmp_path / "mine")
        assert (tmp_path / "mine").is_dir()


def test_shards_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = reversal_pairs(200)
    (tmp_path / "shards").mkdir()
    shards = [write_tsv(tmp_path / "shards" / f"{i}.tsv", pairs[i::4]) for i in range(4)]
    listings: list[str] = []
    list_files = sources._files_at

    def counted(address: str, root: Path) -> list[Path]:
        listings.append(address)
        return list_files(address, root)

    monkeypatch.setattr(sources, "_files_at", counted)
    settings = tiny_settings(shards[0].parent, "training.steps=1")
    address = str(shards[0].parent)
    prepare(settings, tmp_path / "run")
    assert listings == [address]
    transduce.train(settings, tmp_path / "run", resume=True)  # sees the files of its own time
    assert listings == [address, address]


class _Calls(TorchFunctionMode):
    """Collects names of PyTorch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        self.names.add(getattr(function, "__name__", ""))
        return function(*arguments, **(named or {}))


def test_preparation_draws_no_weights(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(100))
    settings = tiny_settings(data, "training.steps=1")
    with _Calls() as preparing:
        prepare(settings, tmp_path / "run")
    with _Calls() as training:
        transduce.train(settings, tmp_path / "trained")
    assert training.names & DRAWING
    assert not preparing.names & DRAWING
