"""Run directories from strangers: nothing runs, nothing outside is opened, nothing is too large."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import transduce
from transduce import RunError, TransduceError
from transduce.runs.directory import locked
from transduce.settings.sections import load_toml, to_toml
from transduce.training.weights import read_tensors, write_tensors, write_weights

WEIGHTS = "weights.safetensors"


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "run"))


def refusal(run: Path) -> str:
    """The one line that refuses a run, soon."""
    begin = time.monotonic()
    with pytest.raises(TransduceError) as raised:
        transduce.load(run)
    assert time.monotonic() - begin < 20
    assert "\n" not in str(raised.value)
    return str(raised.value)


def change_recipe(run: Path, change: Callable[[dict], None]) -> None:
    recipe = load_toml(run / "recipe.toml")
    change(recipe)
    (run / "recipe.toml").write_text(to_toml(recipe))


class TestFiles:
    @pytest.mark.parametrize("name", ["recipe.toml", WEIGHTS, "source_tokenizer.json", ".lock"])
    def test_a_link_to_outside_is_refused(self, run: Path, tmp_path: Path, name: str) -> None:
        outside = tmp_path / "outside"
        shutil.move(run / name, outside)
        (run / name).symlink_to(outside)
        assert f"{name} is a link to a file outside" in refusal(run)
        (run / name).unlink()
        (run / name).symlink_to("../outside")
        assert f"{name} is a link to a file outside" in refusal(run)

    def test_a_link_that_would_be_written_through_is_refused(
        self, run: Path, tmp_path: Path
    ) -> None:
        precious = tmp_path / "precious"
        precious.write_text("mine")
        for name in (".lock", "recipe.toml.tmp"):
            (run / name).unlink(missing_ok=True)
            (run / name).symlink_to(precious)
            with pytest.raises(RunError, match=f"{name} links outside"):
                transduce.train(run, run, resume=True)
            with pytest.raises(RunError, match=f"{name} links outside"):
                transduce.train(run, run, overwrite=True)
            (run / name).unlink()
        assert precious.read_text() == "mine"

    @pytest.mark.parametrize("name", [".lock", "recipe.toml.tmp", "synthetic/pairs.jsonl.tmp"])
    def test_nor_where_there_is_no_run_yet(self, run: Path, tmp_path: Path, name: str) -> None:
        precious = tmp_path / "precious"
        precious.write_text("mine")
        link = tmp_path / "new" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(precious)
        with pytest.raises(RunError, match=f"{name} links outside"):
            transduce.train(run, tmp_path / "new")
        assert precious.read_text() == "mine"

    @pytest.mark.parametrize("name", ["checkpoints", "non_finite", "synthetic", "anything"])
    def test_a_directory_elsewhere_is_not_trained_into(
        self, run: Path, tmp_path: Path, name: str
    ) -> None:
        precious = tmp_path / "precious"
        if (run / name).exists():
            shutil.move(run / name, precious)
        precious.mkdir(exist_ok=True)
        (precious / "thesis.tex").write_text("mine")
        (run / name).symlink_to(precious)
        before = sorted(precious.rglob("*"))
        for ways in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(RunError, match=f"{name} links outside"):
                transduce.train(run, run, **ways)
        assert sorted(precious.rglob("*")) == before
        transduce.load(run)

    def test_what_is_locked_and_no_run_may_hold_links(self, tmp_path: Path) -> None:
        sweep = tmp_path / "sweep"
        sweep.mkdir()
        (sweep / "best").symlink_to(tmp_path)
        with locked(sweep):
            assert (sweep / ".lock").is_file()

    def test_a_link_within_is_followed(self, run: Path) -> None:
        (run / WEIGHTS).rename(run / "kept.safetensors")
        (run / WEIGHTS).symlink_to("kept.safetensors")
        assert transduce.load(run)("abc") is not None

    def test_the_run_itself_may_be_a_link(self, run: Path, tmp_path: Path) -> None:
        (tmp_path / "latest").symlink_to(run)
        assert transduce.load(tmp_path / "latest")("abc") is not None

    @pytest.mark.parametrize("name", ["recipe.toml", "source_tokenizer.json", WEIGHTS])
    def test_a_pipe_is_not_waited_for(self, run: Path, name: str) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)
        assert name in refusal(run)

    @pytest.mark.parametrize("name", ["recipe.toml", "target_tokenizer.json"])
    def test_a_file_of_no_sensible_size_is_not_read(self, run: Path, name: str) -> None:
        os.truncate(run / name, 2**40)  # with a hole: it takes no room on the disk
        message = refusal(run)
        assert f"{name} has 1048576 MiB" in message
        assert "TRANSDUCE_LIMIT_RUN_FILE" in message

    def test_the_run_that_it_began_from_is_not_opened(self, run: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "recipe.toml").write_text("not = [toml")
        change_recipe(run, lambda recipe: recipe.update(fine_tune={"run": str(other)}))
        loaded = transduce.load(run)
        assert loaded.recipe.fine_tune.run == str(other)

    def test_the_tokenizer_that_it_once_took_is_not_opened(self, run: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.json"
        os.mkfifo(other)  # whoever opened it would wait for ever
        elsewhere = {"kind": "file", "path": str(other)}
        change_recipe(run, lambda recipe: recipe["text"].update(source=elsewhere))
        assert transduce.load(run)("abc") is not None


class TestSizes:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("d_model", 2**40),
            ("d_model", 2**62),
            ("encoder.n_layers", 10**9),
            ("encoder.d_ff", 2**45),
            ("decoder.d_ff", 2**62),
            ("decoder.d_ff", 2**80),
            ("encoder.n_heads", 2**40),
        ],
    )
    def test_a_model_beyond_its_weights_takes_no_memory(
        self, run: Path, name: str, value: int
    ) -> None:
        def enlarge(recipe: dict) -> None:
            section = recipe["model"]
            *above, last = name.split(".")
            for key in above:
                section = section[key]
            section[last] = value

        change_recipe(run, enlarge)
        assert refusal(run)

    @pytest.mark.parametrize(
        ("shape", "end"), [([2**40], 2**42), ([2**62, 2**62], 16), ([2**40], 16), ([4], 2**70)]
    )
    def test_sizes_in_the_head_are_held_against_the_file(
        self, run: Path, shape: list[int], end: int
    ) -> None:
        head = {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}
        text = json.dumps(head).encode()
        (run / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
        assert WEIGHTS in refusal(run)

    @pytest.mark.parametrize("length", [2**20, 2**40, 2**63])
    def test_a_head_longer_than_the_file(self, run: Path, length: int) -> None:
        whole = (run / WEIGHTS).read_bytes()
        (run / WEIGHTS).write_bytes(struct.pack("<Q", length) + whole[8:])
        assert WEIGHTS in refusal(run)


class TestContent:
    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_what_is_no_number_is_named(self, run: Path, value: float, dtype: torch.dtype) -> None:
        weights = {name: tensor.to(dtype) for name, tensor in read_tensors(run / WEIGHTS).items()}
        name = sorted(weights)[3]
        weights[name].flatten()[-1:].fill_(value)
        write_weights(run / WEIGHTS, weights)
        assert f"{name!r} contains NaN or infinite values" in refusal(run)

    def test_weights_that_are_not_fractions(self, run: Path) -> None:
        weights = {name: t.to(torch.complex64) for name, t in read_tensors(run / WEIGHTS).items()}
        write_weights(run / WEIGHTS, weights)
        assert "unsupported type C64" in refusal(run)

    def test_a_newer_format_is_said_to_be_newer(self, run: Path) -> None:
        path = run / WEIGHTS
        write_tensors(path, read_tensors(path))
        newer = path.read_bytes().replace(b'"transduce_format":"2"', b'"transduce_format":"3"')
        path.write_bytes(newer)
        assert "has format 3, but this version of transduce" in refusal(run)
        change_recipe(run, lambda recipe: recipe.update(invented_later=1))
        assert "has format 3, but this version of transduce" in refusal(run)

    @settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    @pytest.mark.parametrize(
        "name", ["recipe.toml", WEIGHTS, "source_tokenizer.json", "target_tokenizer.json"]
    )
    def test_a_damaged_file_is_one_line_or_harmless(
        self, base: Path, tmp_path: Path, name: str, data: st.DataObject
    ) -> None:
        run = tmp_path / "run"
        if not run.exists():
            shutil.copytree(base, run)
        content = bytearray((base / name).read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, min(len(content) - 1, 4000)))
            new = data.draw(st.binary(max_size=6))
            content[place : place + data.draw(st.integers(0, 6))] = new
        (run / name).write_bytes(content)
        try:
            transduce.load(run)
        except TransduceError as error:
            assert "\n" not in str(error)
