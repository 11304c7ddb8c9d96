"""Commands run by several ranks, as torchrun would start them, each forked from one process with
slow imports preloaded."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.command_line import environment

SERVER = """
import json, os, sys
from transduce.cli import main as cli
import sacrebleu, torch._dynamo, torch.distributed, torch.optim
import transduce.loading, transduce.runs.training

def run(job):
    os.environ.update(job.get("environment", {}))
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    code = 70
    try:
        exec(job.get("before", ""), {})
        code = cli.main(job["arguments"]) if job["arguments"] else 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

for line in sys.stdin:
    job = json.loads(line)
    if "wait" in job:
        print(os.waitstatus_to_exitcode(os.waitpid(job["wait"], 0)[1]), flush=True)
    else:
        child = os.fork()
        if not child:
            run(job)
        print(child, flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """Exit code and output of one rank."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """Lines with the reason of its end."""
        assert "Traceback" not in self.err, self.err
        lines = self.err.splitlines()
        return [line.removeprefix("transduce: ") for line in lines if line.startswith("transduce:")]


class ForkServer:
    """A process with slow imports preloaded, which forks another for each command."""

    def __init__(self) -> None:
        command, pipe = [sys.executable, "-W", "ignore", "-c", SERVER], subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment()
        )

    def send(self, job: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def ask(self, job: dict[str, object]) -> int:
        self.send(job)
        return self.answer()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class RankServer(ForkServer):
    """Starts ranks."""

    def __init__(self, place: Path) -> None:
        """place: an empty directory for the ranks' output."""
        super().__init__()
        self._place = place
        self._started = 0

    def run(
        self, *arguments: object, world: int = 2, before: Sequence[str] = ("",) * 4
    ) -> list[Ended]:
        """Run a command by all ranks to its end; without one, only the code in `before`.

        before: for each rank, Python that it executes first.
        """
        port = free_port()
        numbers, files = [], []
        for rank in range(world):
            self._started += 1
            names = {end: str(self._place / f"{self._started}.{end}") for end in ("out", "err")}
            together = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(world),
                "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            job = {
                "arguments": [str(argument) for argument in arguments],
                "environment": together if world > 1 else {},
                "before": before[rank],
            }
            numbers.append(self.ask({**job, **names}))
            files.append(names)
        codes = [self.ask({"wait": number}) for number in numbers]
        return [
            Ended(code, Path(names["out"]).read_text(), Path(names["err"]).read_text())
            for code, names in zip(codes, files, strict=True)
        ]


def free_port() -> int:
    """A free port."""
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return int(result.getsockname()[1])


def children_of(number: int) -> list[int]:
    """The processes that a process has started."""
    result = Path(f"/proc/{number}/task/{number}/children")
    with contextlib.suppress(OSError):
        return [int(child) for child in result.read_text().split()]
    return []


def torchrun(*options: str) -> list[str]:
    """The command that starts ranks, as far as the arguments of `transduce`."""
    module = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]
    return [*module, *options, "-m", "--", "transduce"]


def torchrun_environment() -> dict[str, str]:
    """Without the variables of the tests' own process."""
    own = environment()
    kept = {name: own[name] for name in own if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**kept, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
