"""Processes of the command line, forked from one that has imported PyTorch already.

A command in a process of its own spends two seconds on imports.  Here one process imports, and each
command is a fork of it with its own standard streams, directory and environment.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

IMPORTED = (
    *("torch", "torch._dynamo", "torch.optim", "sacrebleu", "sentencepiece"),
    *("transduce.loading", "transduce.runs.training"),
)
AT_START = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error::ResourceWarning"}
"""Variables that PyTorch and Python read as they start: a fork cannot change them."""
PROGRAM = "import sys; from helpers.command_server import serve; serve(int(sys.argv[1]))"


def serve(handle: int) -> None:
    """Fork for each message on a socket, which brings the handles that `_run` needs."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for `_run` here
    with socket.socket(fileno=handle) as asked:
        while True:
            message, handles, _, _ = socket.recv_fds(asked, 1, 5)
            if not message:
                return
            if not os.fork():
                break
            for one in handles:
                os.close(one)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _run(*handles)


def _run(request: int, stdin: int, stdout: int, stderr: int, status: int) -> None:
    """Run `python -m transduce` in another fork; write its number and exit code to `status`."""
    command = os.fork()
    if command:
        os.write(status, f"{command}\n".encode())
        for handle in (request, stdin, stdout, stderr):
            os.close(handle)
        _, ended = os.waitpid(command, 0)
        os.write(status, str(os.waitstatus_to_exitcode(ended)).encode())
        os._exit(0)
    with os.fdopen(request, "rb") as file:
        file.seek(0)
        expected = json.loads(file.read())
    for number, handle in enumerate((stdin, stdout, stderr)):
        os.dup2(handle, number)
        os.close(handle)
    os.close(status)
    os.chdir(expected["cwd"])
    os.environ.clear()
    os.environ.update(expected["environment"])
    sys.argv = ["transduce", *expected["arguments"]]
    from transduce.__main__ import main

    sys.exit(main())


@functools.cache
def _server() -> socket.socket:
    """The socket of a process that forks, started at the first call, ended with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    places = [str(Path(__file__).parents[1]), *sys.path]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(theirs.fileno())],
        env={**os.environ, **AT_START, "PYTHONPATH": os.pathsep.join(places)},
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    theirs.close()

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def forked_command(
    arguments: list[str], stdin: bytes, cwd: Path | None, environment: dict[str, str]
) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a command; if interrupted, it is killed."""
    job = {"arguments": arguments, "cwd": str(cwd or Path.cwd()), "environment": environment}
    fed, given = os.pipe()
    outputs = [os.pipe() for _ in range(3)]
    with tempfile.TemporaryFile() as request:
        request.write(json.dumps(job).encode())
        request.flush()
        theirs = [fed, *(write for _, write in outputs)]
        socket.send_fds(_server(), [b"1"], [request.fileno(), *theirs])
        for handle in theirs:
            os.close(handle)
    result = [b"", b""]

    def collect(which: int) -> None:
        with os.fdopen(outputs[which][0], "rb") as file:
            result[which] = file.read()

    readers = [threading.Thread(target=collect, args=(which,), daemon=True) for which in range(2)]
    with os.fdopen(outputs[2][0], "rb") as status:
        command = int(status.readline())
        try:
            for reader in readers:
                reader.start()
            with contextlib.suppress(BrokenPipeError), os.fdopen(given, "wb") as file:
                file.write(stdin)
            for reader in readers:
                reader.join()
            return int(status.read()), *result
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.kill(command, signal.SIGKILL)
            status.read()
            raise
