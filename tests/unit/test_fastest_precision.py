"""`--precision auto`: the fastest of the precisions listed, measured at a model's width."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import transduce
from helpers.native import needs_native
from transduce import SettingError
from transduce.engine import fastest
from transduce.engine.fastest import (
    PRECISIONS,
    fastest_precision,
    listed_precisions,
    seconds_of_products,
)
from transduce.nn.precision import Precision
from transduce.runs.arguments import device_for

KEPT = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"


@pytest.fixture(autouse=True)
def _not_measured_before() -> Iterator[None]:
    fastest_precision.cache_clear()
    yield
    fastest_precision.cache_clear()


def measured(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    monkeypatch.setattr(fastest, "seconds_of_products", lambda precisions, width: seconds)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("int8", ("int8",)),
        ("auto", PRECISIONS),
        ("auto:int8,float32", ("float32", "int8")),
        ("auto:bf16", ("bf16",)),
    ],
)
def test_a_name_lists_precisions(name: str, listed: tuple[Precision, ...]) -> None:
    assert listed_precisions(name) == listed


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("int4", "precision 'int4' is not one of float32, bf16, int8, auto"),
        ("auto:", "precision '' is not one of"),
        ("auto:float32,fp16", "precision 'fp16' is not one of"),
        ("float32,int8", "names several; write auto:float32,int8"),
    ],
)
def test_other_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        transduce.load(KEPT, "cpu", name)


@pytest.mark.parametrize(
    ("seconds", "listed", "chosen"),
    [
        ({"float32": 4, "bf16": 6, "int8": 1}, "auto", "int8"),
        ({"float32": 4, "bf16": 1, "int8": 2}, "auto", "bf16"),
        ({"float32": 4, "bf16": 6}, "auto:float32,bf16", "float32"),
        ({"float32": 4, "bf16": 3.9, "int8": 3.9}, "auto", "float32"),
        ({"bf16": 6, "int8": 1}, "auto:bf16,int8", "int8"),
    ],
)
def test_the_fastest_is_taken_and_logged_once(
    seconds: dict[str, float],
    listed: str,
    chosen: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    measured(monkeypatch, **seconds)
    caplog.set_level(logging.INFO, "transduce")
    assert fastest_precision(listed_precisions(listed), 512) == chosen
    assert fastest_precision(listed_precisions(listed), 512) == chosen
    assert [line.split(":")[0] for line in caplog.messages] == [f"precision {chosen}"]


def test_without_the_engine_the_first_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> None:
        raise SettingError("no compiler")

    monkeypatch.setattr(fastest, "engine_library", refused)
    caplog.set_level(logging.INFO, "transduce")
    assert fastest_precision(PRECISIONS, 512) == "float32"
    assert caplog.messages == ["precision float32, without the native engine: no compiler"]


@needs_native
@pytest.mark.parametrize("width", [8, 10**6])
def test_measuring_is_short(width: int) -> None:
    seconds_of_products(("float32",), 8)  # loads the library
    begin = time.process_time()
    seconds = seconds_of_products(PRECISIONS, width)
    assert time.process_time() - begin < 0.6  # of an idle processor 0.2
    assert set(seconds) == set(PRECISIONS)
    assert all(0 < each < 1 for each in seconds.values())


@needs_native
@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [({"float32": 2, "int8": 1}, "int8"), ({"float32": 1, "int8": 2}, "float32")],
)
def test_a_run_is_loaded_in_it(
    seconds: dict[str, float], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, **seconds)
    for engine in ("native", "pytorch"):
        run = transduce.load(KEPT, "cpu", "auto:float32,int8", engine)  # type: ignore[arg-type]
        assert run.precision == chosen


def test_measured_precisions_run_on_a_cpu() -> None:
    assert device_for("auto", "auto", "auto") == "cpu"
    assert device_for("auto", "auto:bf16", "cuda") == "cuda"
    with pytest.raises(SettingError, match="precision 'auto' runs on a CPU only, not on 'cuda'"):
        device_for("auto", "auto", "cuda")
