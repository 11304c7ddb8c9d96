"""A cluster of Ray's on this machine, as docs/scaling.md starts it: a process for each node."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers.command_line import environment
from helpers.waiting import wait_for

RAY = str(Path(sys.executable).with_name("ray"))
NODE = ("--num-cpus", "1", "--object-store-memory", str(80 * 2**20), "--block")


@dataclass
class Cluster:
    """Address of the first node, variables of its token, and its nodes, the first one first."""

    address: str
    variables: dict[str, str]
    nodes: list[subprocess.Popen[bytes]]

    def add_node(self) -> subprocess.Popen[bytes]:
        """A further node, of one core."""
        self.nodes.append(_started("--address", self.address, *NODE, env=self.variables))
        wait_for(lambda: self.count() == len(self.nodes))
        return self.nodes[-1]

    def count(self) -> int:
        """Nodes that live, by the cluster's own word."""
        status = subprocess.run(
            [RAY, "status", "--address", self.address],
            env={**environment(), **self.variables},
            capture_output=True,
            text=True,
        )
        active = status.stdout.partition("Active:")[2].partition("Pending:")[0]
        return active.count("node_")

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """The death of a machine: SIGKILL to all processes of a node."""
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()
        self.nodes.remove(node)


def _started(*arguments: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [RAY, "start", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**environment(), **env},
        start_new_session=True,
    )


@contextlib.contextmanager
def cluster_of_two(home: Path) -> Iterator[Cluster]:
    """Two nodes of one core, which ask for the token that `home` holds."""
    variables = {"HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**environment(), **variables}
    subprocess.run([RAY, "get-auth-token", "--generate"], env=env, check=True, capture_output=True)
    head = ("--head", "--port", str(port), "--include-dashboard", "false")
    cluster = Cluster(f"127.0.0.1:{port}", variables, [])
    try:
        cluster.nodes.append(_started(*head, *NODE, env=variables))
        wait_for(lambda: cluster.count() == 1)
        cluster.add_node()
        yield cluster
    finally:
        for node in cluster.nodes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()
