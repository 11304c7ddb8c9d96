"""Machines join a training and leave it, each with a torchrun of its own, and it goes on."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.rank_runs import write_recipe
from helpers.ranks import children_of, free_port, torchrun, torchrun_environment
from helpers.waiting import wait_for

# Two processes of a loaded machine may hear nothing of each other for some seconds, and a machine
# that is taken for dead is left out, with a worker that still trains.
QUICKLY = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=15"


class Machine:
    """One torchrun with one worker, which does not mind whether there is another."""

    def __init__(self, place: Path, name: str, port: int) -> None:
        options = ("--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=9", "--rdzv-id=elastic")
        meeting = ("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}")
        train = ("train", str(place / "recipe.toml"), f"--run={place / 'run'}", "--resume")
        with (place / f"said-{name}").open("w") as said:
            self.agent = subprocess.Popen(
                [*torchrun(*options, *meeting, f"--rdzv-conf={QUICKLY}"), *train],
                stdout=said,
                stderr=said,
                env=torchrun_environment(),
            )

    def vanish(self) -> None:
        """As when the power fails."""
        for process in (*children_of(self.agent.pid), self.agent.pid):
            os.kill(process, signal.SIGKILL)
        self.agent.wait()


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    started: list[Machine] = []
    yield started
    for machine in started:
        if machine.agent.poll() is None:
            machine.vanish()


@pytest.mark.slow
def test_a_machine_joins_and_leaves(tmp_path: Path, machines: list[Machine]) -> None:
    write_recipe(tmp_path, "training.steps=1_000_000", "training.validate_every=50")
    run, port = tmp_path / "run", free_port()

    def steps() -> list[int]:
        """Those in the log; what is being written just now is not there yet."""
        log = run / "metrics.jsonl"
        whole = log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []
        records = [json.loads(line) for line in whole]
        return [record["step"] for record in records if record["kind"] == "train"]

    def said() -> str:
        return "".join(file.read_text() for file in tmp_path.glob("said-*"))

    def wait_for_words(words: str) -> None:
        """Until they are said, and then for a checkpoint more."""
        wait_for(lambda: words in said(), said)
        begin = len(steps())
        wait_for(lambda: len(steps()) > begin + 100, said)

    machines.append(Machine(tmp_path, "first", port))  # the other meets it at its port
    wait_for(lambda: len(steps()) > 100, said)
    machines.append(Machine(tmp_path, "second", port))
    wait_for_words("number of processes: 1 before, 2 now")
    machines.pop().vanish()
    wait_for_words("number of processes: 2 before, 1 now")
    for machine in machines:
        machine.vanish()
    assert steps() == list(range(1, len(steps()) + 1))
