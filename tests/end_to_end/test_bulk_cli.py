"""`transduce translate --ray`: workers die, whole jobs die, and every shard is there once.

The answers to compare with are those of a bare loop over the shards.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.command_line import Done, command, environment
from helpers.ray_cluster import Cluster, cluster_of_two
from helpers.waiting import PATIENCE, wait_for
from transduce.bulk.plan import MANIFEST, TranslatorSpec, open_plan, translate_shard
from transduce.decoding.options import DecodingOptions

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "runs" / "0.1.0" / "translation"
WORDS = ["a", "the", "good", "dog", "cat", "sees", "runs", "big", "small", "house", "and", "with"]
SHARDS = 10
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs ray, of the extra `scale`"
)


def write_inputs(directory: Path, lines: int) -> Path:
    """Shards, plain and packed; no two lines of all are the same.

    The last is long: whoever wants to kill a job before its end has the time to.
    """
    directory.mkdir()
    for i in range(SHARDS):
        many = 6 * lines if i == SHARDS - 1 else lines
        texts = (f"{WORDS[j % 12]} {WORDS[j // 12 % 12]} {i} {j}" for j in range(many))
        data = "".join(f"{text}\n" for text in (*texts, "", " ")).encode()
        name, data = (f"{i}.txt", data) if i % 2 else (f"{i}.txt.gz", gzip.compress(data))
        (directory / name).write_bytes(data)
    return directory


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("bulk") / "in", 1500)


@pytest.fixture(scope="module")
def wanted(inputs: Path) -> dict[str, bytes]:
    """What a bare loop makes of the shards."""
    spec = TranslatorSpec(RUN, DecodingOptions(beam_size=4))
    run = spec.load()
    with open_plan(str(inputs), str(inputs.parent / "wanted"), spec) as plan:
        for shard in plan.todo:
            translate_shard(run, spec.options, shard)
    return {shard.name: Path(shard.target).read_bytes() for shard in plan.shards}


def ours(*roots: int) -> Iterator[tuple[int, str]]:
    """Processes below some of ours, with their command lines."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (entry / "stat").read_text().rpartition(")")[2]
                parents[int(entry.name)] = int(after_name.split()[1])
                lines[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
    for process, line in lines.items():
        parent = process
        while parent in parents:
            parent = parents[parent]
            if parent in roots:
                yield process, line
                break


def made(out: Path) -> dict[str, bytes]:
    """The shards that are there."""
    if not out.is_dir():
        return {}
    names = (path.name for path in out.iterdir())
    return {n: (out / n).read_bytes() for n in names if n[0] != "." and n != MANIFEST}


def begin(
    inputs: Path, out: Path, *more: object, cluster: Cluster | None = None
) -> subprocess.Popen[str]:
    variables = {"RAY_ADDRESS": "local"}
    if cluster:
        variables = {"RAY_ADDRESS": cluster.address, **cluster.variables}
    arguments = ("translate", RUN, inputs, "--ray", "--output", out, "--beam-size", 4, *more)
    return subprocess.Popen(
        command(*arguments, "--workers", 2, "--device", "cpu"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), **variables, "RAY_USAGE_STATS_ENABLED": "0"},
        start_new_session=True,
    )


def at_work(job: subprocess.Popen[str], out: Path, *nodes: subprocess.Popen[bytes]) -> int:
    """Wait for a worker of the nodes in the midst of a shard, after a first shard is done."""

    def worker() -> int | None:
        if not made(out) or not list(out.glob(".*.part")):
            return None
        processes = ours(*(node.pid for node in nodes))
        return next((process for process, line in processes if "Worker.translate" in line), None)

    process = wait_for(lambda: worker() or (job.poll() is not None and "ended"))
    assert isinstance(process, int), ended(job).err
    return process


def ended(job: subprocess.Popen[str]) -> Done:
    out, err = job.communicate(timeout=PATIENCE)
    return Done(job.returncode, out.encode(), err)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of_two(tmp_path_factory.mktemp("home")) as cluster:
        yield cluster


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("ray")
class TestOnTwoNodes:
    def test_a_killed_worker_loses_and_doubles_nothing(
        self, cluster: Cluster, inputs: Path, wanted: dict[str, bytes], tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        job = begin(inputs, out, cluster=cluster)

        process = at_work(job, out, *cluster.nodes)
        os.kill(process, signal.SIGKILL)
        done = ended(job)
        assert done.code == 0 and done.out == b"", done.err
        assert done.err.count(": a worker died on ") == 1, done.err
        assert made(out) == wanted
        assert not list(out.glob(".*.part"))

    def test_a_dead_machine_loses_and_doubles_nothing(
        self, cluster: Cluster, inputs: Path, wanted: dict[str, bytes], tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        job = begin(inputs, out, cluster=cluster)
        at_work(job, out, cluster.nodes[1])
        cluster.kill(cluster.nodes[1])
        done = ended(job)
        cluster.add_node()
        assert done.code == 0 and done.out == b"", done.err
        assert "shards failed" not in done.err
        assert done.err.count(" deaths of workers") == 2, done.err  # a line for each machine
        assert made(out) == wanted
        assert not list(out.glob(".*.part"))

    def test_a_cluster_that_refuses_names_the_token(
        self, cluster: Cluster, inputs: Path, tmp_path: Path
    ) -> None:
        variables = {**cluster.variables, "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}
        stranger = Cluster(cluster.address, variables, cluster.nodes)
        done = ended(begin(inputs, tmp_path / "out", cluster=stranger))
        assert done.code == 1 and "RAY_AUTH_MODE=token" in done.complaint

    def test_a_shard_that_cannot_be_read_is_named_and_the_others_are_done(
        self, cluster: Cluster, inputs: Path, wanted: dict[str, bytes], tmp_path: Path
    ) -> None:
        broken = tmp_path / "in"
        broken.mkdir()
        for name in ("1.txt", "2.txt.gz", "3.txt"):
            (broken / name).write_bytes((inputs / name).read_bytes())
        whole = (broken / "2.txt.gz").read_bytes()
        (broken / "2.txt.gz").write_bytes(whole[:-20])
        out = tmp_path / "out"
        complaint = ended(begin(broken, out, cluster=cluster)).complaint
        assert "1 of 3 shards failed, the others are complete" in complaint
        assert "2.txt.gz is a damaged gzip file" in complaint
        assert made(out) == {name: wanted[name] for name in ("1.txt", "3.txt")}


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("ray")
def test_a_job_that_is_killed_goes_on(
    inputs: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done_before: dict[str, int] = {}

    def stopped(number: signal.Signals, after: int) -> Done:
        """The job, ended by a signal when some shards more are there."""
        job = begin(inputs, out)
        wait_for(lambda: job.poll() is not None or len(made(out)) >= after)
        below = [process for process, _ in ours(job.pid)]
        job.send_signal(number)
        if number == signal.SIGKILL:  # as a machine that loses its power: workers too
            for process in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
        end = ended(job)
        wait_for(lambda: not any(is_ray(process) for process in below))
        assert 0 < len(made(out)) < SHARDS, end.err
        for name, time_of in done_before.items():
            assert (out / name).stat().st_mtime_ns == time_of
        done_before.update({name: (out / name).stat().st_mtime_ns for name in made(out)})
        return end

    interrupted = stopped(signal.SIGINT, 1)
    assert interrupted.code == 130 and "Traceback" not in interrupted.err
    assert not list(out.glob(".*.part"))
    assert stopped(signal.SIGKILL, len(made(out)) + 1).code == -signal.SIGKILL
    last = ended(begin(inputs, out))
    assert last.code == 0, last.err
    assert f"{len(done_before)} of {SHARDS} shards are already translated" in last.err
    assert "lines/s by" in last.err
    for name, time_of in done_before.items():
        assert (out / name).stat().st_mtime_ns == time_of
    assert made(out) == wanted
    assert not list(out.glob(".*.part"))
    again = ended(begin(inputs, out))
    assert again.code == 0 and f"{SHARDS} of {SHARDS} shards are already translated" in again.err


def is_ray(process: int) -> bool:
    with contextlib.suppress(OSError):
        return "ray" in Path(f"/proc/{process}/cmdline").read_text()
    return False


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--ray",), "--ray requires an output directory; add --output"),
            (("--ray", "--output", "out", "--jsonl"), "--jsonl cannot be combined with --ray"),
            (
                ("--ray", "--output", "out", "--n-best", "2"),
                "--n-best cannot be combined with --ray",
            ),
            (("--workers", "2"), "--workers requires --ray"),
        ],
    )
    def test_options_that_cannot_be(
        self, here: Callable[..., Done], tmp_path: Path, arguments: tuple[str, ...], message: str
    ) -> None:
        (tmp_path / "in.txt").write_text("a\n")
        done = here("translate", RUN, tmp_path / "in.txt", *arguments)
        assert done.code == 2 and message in done.complaint

    def test_needs_files(self, here: Callable[..., Done], tmp_path: Path) -> None:
        done = here("translate", RUN, "--ray", "--output", tmp_path / "out")
        assert "--ray requires FILE: a directory, a glob pattern or a URL" in done.complaint
        done = here("translate", RUN, tmp_path / "no", "--ray", "--output", tmp_path / "out")
        assert "no: no such file" in done.complaint
        assert not (tmp_path / "out").exists()

    def test_without_ray_it_is_named(
        self, here: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "in.txt").write_text("a\n")
        monkeypatch.setitem(sys.modules, "ray", None)
        done = here("translate", RUN, tmp_path / "in.txt", "--ray", "--output", tmp_path / "out")
        assert done.complaint.startswith("--ray needs the extra 'scale'; in a clone")
