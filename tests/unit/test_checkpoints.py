"""Checkpoints: damage, a full disk, what resume needs, the last weights."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from helpers.tiny_run import records, steps_of
from helpers.tiny_training import Sums, equal, run, weights
from transduce.errors import RunError
from transduce.training import checkpoints as checkpoints_module
from transduce.training.checkpoints import (
    best_scores_of,
    checkpoint_path,
    read_progress,
    served_weights,
)
from transduce.training.weights import read_tensors, write_tensors, write_weights

Damage = Callable[[bytes], bytes | None]


def flip(content: bytes) -> bytes:
    """One bit of it, in the middle, the other way round."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]


FILES = (
    "model.safetensors",
    "optimizer.safetensors",
    "ema.safetensors",
    "random.safetensors",
    "progress.json",
    "SHA256SUMS",
)
DAMAGES: tuple[Damage, ...] = (
    flip,
    lambda content: content[:-2],
    lambda content: content[: len(content) // 2],
    lambda content: b"",
    lambda content: None,
    flip,
)
"""One for each file: every file is damaged, and in every way."""


class TestDamage:
    @pytest.mark.parametrize(("name", "damage"), [*zip(FILES, DAMAGES, strict=True)])
    def test_newest_is_named_and_the_one_before_is_used(
        self, name: str, damage: Damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(tmp_path / "whole", ema=0.5)
        run(tmp_path / "run", ema=0.5, steps=6)
        file = checkpoint_path(tmp_path / "run", 6) / name
        content = damage(file.read_bytes())
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        capsys.readouterr()
        run(tmp_path / "run", ema=0.5, resume=True)
        message = capsys.readouterr().err.splitlines()
        warnings = [line for line in message if "step-00000006" in line]
        assert len(warnings) == 1 and "falling back to the previous checkpoint" in warnings[0]
        assert "resuming after step 4" in message
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))
        steps = [r["step"] for r in records(tmp_path / "run", "train")]
        assert steps == list(range(1, 11))

    def test_files_of_two_checkpoints(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(tmp_path, steps=6)
        name = "optimizer.safetensors"
        older, newer = checkpoint_path(tmp_path, 4) / name, checkpoint_path(tmp_path, 6) / name
        newer.write_bytes(older.read_bytes())
        run(tmp_path, resume=True)
        assert f"{newer} is damaged" in capsys.readouterr().err

    def test_checksums_are_those_of_sha256sum(self, tmp_path: Path) -> None:
        import hashlib

        run(tmp_path, steps=2)
        path = checkpoint_path(tmp_path, 2)
        listed = dict(
            reversed(line.split("  ")) for line in (path / "SHA256SUMS").read_text().splitlines()
        )
        assert listed.keys() == {f.name for f in path.iterdir()} - {"SHA256SUMS"}
        for name, digest in listed.items():
            assert hashlib.sha256((path / name).read_bytes()).hexdigest() == digest

    def test_served_weights_are_checked(self, tmp_path: Path) -> None:
        run(tmp_path, steps=2)
        path = checkpoint_path(tmp_path, 2)
        file = path / "model.safetensors"
        assert equal(served_weights(path), read_tensors(file))
        file.write_bytes(flip(file.read_bytes()))
        with pytest.raises(RunError, match=r"model.safetensors is damaged"):
            served_weights(path)

    def test_damaged_checkpoints_do_not_count_as_kept(self, tmp_path: Path) -> None:
        """With other steps between validations, the damaged one is not written again."""
        run(tmp_path, steps=6)
        file = checkpoint_path(tmp_path, 6) / "model.safetensors"
        file.write_bytes(flip(file.read_bytes()))
        run(tmp_path, steps=5, validate_every=5, resume=True)
        assert steps_of(tmp_path) == [4, 5]


class TestFinalWeights:
    def test_one_flipped_bit_is_noticed(self, tmp_path: Path) -> None:
        path = tmp_path / "weights.safetensors"
        write_weights(path, {"a": torch.randn(100), "b": torch.zeros(())})
        good = path.read_bytes()
        for place in range(len(good) - 404, len(good), 5):
            for bit in range(8):
                path.write_bytes(good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :])
                with pytest.raises(RunError, match="checksum mismatch"):
                    read_tensors(path)

    def test_equal_weights_are_equal_files(self, tmp_path: Path) -> None:
        texts = {letter: letter for letter in "abcdefgh"}
        for name in ("one", "two"):
            write_weights(tmp_path / name, {"é": torch.ones(3), "a": torch.zeros(2)}, texts)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
        tensors = read_tensors(tmp_path / "one")
        assert torch.equal(tensors["é"], torch.ones(3)) and torch.equal(
            tensors["a"], torch.zeros(2)
        )

    @pytest.mark.parametrize("damage", [flip, None])
    def test_the_best_is_taken_from_its_checkpoint(
        self, damage: Damage | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        scores = {"loss": [3.0, 2.0, 4.0, 5.0, 6.0]}
        run(tmp_path, Sums(scores), steps=6, keep_last=5)
        good = weights(tmp_path)
        file = tmp_path / "weights.safetensors"
        file.write_bytes(damage(file.read_bytes())) if damage else file.unlink()
        outcome = run(tmp_path, Sums({"loss": [5.0, 6.0]}), keep_last=5, resume=True)
        assert outcome.best_step == 4 and equal(weights(tmp_path), good)
        assert f"restored from {checkpoint_path(tmp_path, 4)}" in capsys.readouterr().err

    def test_the_best_is_lost(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(tmp_path, Sums({"loss": [1.0, 2.0, 4.0]}), steps=6, keep_last=1)
        (tmp_path / "weights.safetensors").unlink()
        outcome = run(tmp_path, Sums({"loss": [5.0, 6.0]}), keep_last=1, resume=True)
        assert (outcome.best_step, outcome.scores) == (8, {"loss": 5.0})
        assert "the next validation will replace it" in capsys.readouterr().err

    def test_killed_between_checkpoint_and_weights(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(tmp_path / "whole", steps=6)
        run(tmp_path / "run", steps=4)
        before = (tmp_path / "run" / "weights.safetensors").read_bytes()
        run(tmp_path / "run", steps=6, resume=True)
        (tmp_path / "run" / "weights.safetensors").write_bytes(before)
        run(tmp_path / "run", steps=6, resume=True)
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))


class TestFullDisk:
    @pytest.mark.parametrize("name", FILES)
    def test_a_checkpoint_that_does_not_fit(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whichever file finds no room, all that was there before stays whole."""
        run(tmp_path / "whole", ema=0.5)
        with monkeypatch.context() as patch:
            refuse(patch, f".step-00000006/{name}")
            with pytest.raises(RunError, match="No space left on device") as caught:
                run(tmp_path / "run", ema=0.5)
        message = str(caught.value)
        assert "the last checkpoint is of step 4" in message and "\n" not in message
        assert steps_of(tmp_path / "run") == [2, 4]
        assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
        best = read_tensors(checkpoint_path(tmp_path / "run", 4) / "ema.safetensors")
        assert equal(weights(tmp_path / "run"), best)
        run(tmp_path / "run", ema=0.5, resume=True)
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))

    def test_weights_that_do_not_fit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run(tmp_path / "whole")
        run(tmp_path / "run", steps=4)
        before = weights(tmp_path / "run")
        with monkeypatch.context() as patch:
            refuse(patch, "weights.safetensors")
            with pytest.raises(RunError, match=r"weights.safetensors cannot be written: No space"):
                run(tmp_path / "run", resume=True)
        assert equal(weights(tmp_path / "run"), before)
        run(tmp_path / "run", resume=True)
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
    def test_a_log_that_does_not_fit(self, tmp_path: Path) -> None:
        (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(RunError, match=r"metrics.jsonl cannot be written: No space"):
            run(tmp_path)


def refuse(patch: pytest.MonkeyPatch, ending: str) -> None:
    """Let no file whose path ends so be put on the disk."""
    flush = checkpoints_module.write_text.__globals__["flush"]

    def full(path: Path) -> None:
        if str(path).removesuffix(".tmp").endswith(ending):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        flush(path)

    patch.setattr("transduce.training.weights.flush", full)


def test_a_damaged_log_loses_the_damaged_line_alone(tmp_path: Path) -> None:
    run(tmp_path, steps=6)
    log = tmp_path / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[1] = b"\xf3" + lines[1][1:]
    lines[3] = b"[" * 200_000 + b"\n"
    log.write_bytes(b"".join(lines))
    run(tmp_path, resume=True)
    assert log.read_bytes().startswith(lines[0] + lines[2] + lines[4])


def test_what_a_checkpoint_says_is_read_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_LIMIT_RUN_FILE", "1")
    run(tmp_path, steps=6)
    scores = best_scores_of(tmp_path)
    path = checkpoint_path(tmp_path, 6) / "progress.json"
    for text in ("[" * 200_000, path.read_text() + " " * 2**20):
        path.write_text(text)
        assert best_scores_of(tmp_path).keys() == scores.keys()  # those of the one before
        with pytest.raises(RunError, match=r"progress\.json cannot be read"):
            read_progress(path.parent)


class TestPruning:
    def test_keep_last(self, tmp_path: Path) -> None:
        run(tmp_path, keep_last=1)
        assert steps_of(tmp_path) == [10]
        run(tmp_path / "more", keep_last=3)
        assert steps_of(tmp_path / "more") == [6, 8, 10]

    def test_what_was_half_deleted_is_no_checkpoint(self, tmp_path: Path) -> None:
        run(tmp_path / "whole", average_last=3)
        run(tmp_path / "run", average_last=3, steps=8)
        # As when killed while the oldest was being deleted, and while a new one was written.
        (checkpoint_path(tmp_path / "run", 4)).rename(
            tmp_path / "run" / "checkpoints" / ".step-00000004.old"
        )
        (tmp_path / "run" / "checkpoints" / ".step-00000010").mkdir()
        assert steps_of(tmp_path / "run") == [6, 8]
        run(tmp_path / "run", average_last=3, resume=True)
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))
        assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


def test_an_untouched_file_of_tensors_is_read_without_checksum(tmp_path: Path) -> None:
    """As those of earlier versions, and of checkpoints, which have their own."""
    write_tensors(tmp_path / "a", {"x": torch.ones(2)})
    assert torch.equal(read_tensors(tmp_path / "a")["x"], torch.ones(2))
