"""Workers of a bulk translation that die, by a stand-in for Ray without processes."""

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bulk.plan import BulkPlan, Shard, TranslatorSpec
from transduce.bulk.workers import DEATHS, Report, _connected, _Pool
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, RunError
from transduce.training.log import ProgressCounter

Outcome = Callable[[str, Shard | None], Report]


class Died(Exception):
    """The death of an actor."""


class StandIn:
    """Ray as far as the pool uses it: an actor for each machine, calls that end in their order."""

    def __init__(self, machines: list[str], outcome: Outcome) -> None:
        self.exceptions = types.SimpleNamespace(RayTaskError=KeyError, RayError=Died)
        self._machines = machines
        self._free = iter(machines)
        self._outcome = outcome

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": len(self._machines)}

    def remote(self, _: type) -> Any:
        return types.SimpleNamespace(
            options=lambda **_: types.SimpleNamespace(remote=lambda _: self._actor())
        )

    def _actor(self) -> Any:
        machine = next(self._free)
        ready = types.SimpleNamespace(remote=lambda: (object(), machine, None))
        return types.SimpleNamespace(
            ready=types.SimpleNamespace(options=lambda **_: ready),
            translate=types.SimpleNamespace(remote=lambda shard: (object(), machine, shard)),
        )

    def wait(self, calls: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        return calls[:1], calls[1:]

    def get(self, call: tuple[object, str, Shard | None]) -> Report:
        return self._outcome(*call[1:])


def pool(machines: list[str], outcome: Outcome, shards: int = 3) -> _Pool:
    todo = tuple(Shard(str(i), f"in/{i}", f"out/{i}") for i in range(shards))
    spec = TranslatorSpec(Path("run"), DecodingOptions())
    return _Pool(StandIn(machines, outcome), BulkPlan(spec, (), todo, todo), len(machines))


def test_a_shard_fails_after_deaths_on_two_machines_and_the_others_are_done() -> None:
    deaths: list[str] = []

    def outcome(machine: str, shard: Shard | None) -> Report:
        if shard is not None and shard.name == "1":
            deaths.append(machine)
            raise Died("killed")
        return Report(lines=1, machine=machine)

    with (
        pytest.raises(DataError, match=rf"1 of 3 .* in/1: its worker died {DEATHS} times on "),
        ProgressCounter("shards", 3) as shown,
    ):
        pool(["a", "b"], outcome).work(shown)
    assert len(deaths) == DEATHS and {*deaths} == {"a", "b"}


def test_a_machine_that_dies_costs_no_shard() -> None:
    killed: list[str] = []

    def outcome(machine: str, shard: Shard | None) -> Report:
        if machine == "b" and shard is not None:
            killed.append(shard.name)
        if machine == "b" and killed:  # from its first shard on, out of reach
            raise Died("no route")
        return Report(lines=1, machine=machine)

    with ProgressCounter("shards", 3) as shown:
        totals = pool(["a", "b"], outcome).work(shown)
    assert (totals.shards, totals.failures, len(killed)) == (3, 0, 1)


def test_a_model_that_kills_each_worker_is_named() -> None:
    def outcome(machine: str, shard: Shard | None) -> Report:
        raise Died("out of memory")

    with (
        pytest.raises(
            RunError, match=r"the model cannot be loaded: .* died 4 times; out of memory"
        ),
        ProgressCounter("shards", 3) as shown,
    ):
        pool(["a", "b"], outcome).work(shown)


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("local", "run it again when this machine is less busy"), ("first:6379", "needs RAY_AUTH_")],
)
def test_a_start_that_fails_names_a_remedy(
    address: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    ray = types.SimpleNamespace(init=init, shutdown=lambda: None)
    with pytest.raises(RunError, match=remedy) as caught, _connected(ray):
        pass
    assert "timed out during startup" in str(caught.value)
