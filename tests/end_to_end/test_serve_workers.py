"""`transduce serve --workers`: one address, shared documents, a worker that is killed, the end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers import failing_workers
from helpers.command_line import transduce
from helpers.served import Served, served
from helpers.waiting import wait_for
from transduce.errors import RunError
from transduce.serve import workers as of_workers
from transduce.serve.settings import ServeSettings

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def workers(de_en: Path) -> Iterator[Served]:
    with served(de_en, "--workers", "3", "--metrics") as result:
        yield result


def processes(server: Served) -> list[int]:
    """Workers by process, in order of their numbers."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(server.process.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line]


def ready(server: Served) -> object:
    return server.ask("/health/ready")[1].get("ready")


def requests_counted(server: Served) -> int:
    lines = server.ask("/metrics")[1].splitlines()
    of_route = [line for line in lines if 'requests_total{endpoint="/translate",' in line]
    return sum(int(line.split()[-1]) for line in of_route)


def test_documents_files_glossaries_and_usage_are_shared(workers: Served) -> None:
    assert len(processes(workers)) == 3
    body = {"name": "a", "source_lang": "de", "target_lang": "en", "entries": "rot\tab"}
    status, glossary = workers.ask("/v2/glossaries", body)
    assert status == 201
    named = {"source_lang": "de", "target_lang": "en", "glossary_id": glossary["glossary_id"]}
    part = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    fields = [('file"; filename="a.txt', "Rot gehen.\n"), *named.items()]
    form = "".join(part.format(*field) for field in fields) + "--x--\r\n"
    for _ in range(4):  # each connection may meet another worker
        kind = "multipart/form-data; boundary=x"
        status, document = workers.send("/v2/document", form.encode(), Content_Type=kind)
        assert status == 200
        path = f"/v2/document/{document['document_id']}"
        key = {"document_key": document["document_key"]}
        wait_for(lambda path=path, key=key: workers.ask(path, key)[1]["status"] == "done")
        status, text = workers.ask(f"{path}/result", key)
        assert status == 200 and "ab" in text
        assert workers.ask(f"{path}/result", key)[0] == 404
    assert workers.ask("/v2/usage")[1]["character_count"] == 4 * len("Rot gehen.\n")
    assert workers.ask(f"/v2/glossaries/{glossary['glossary_id']}", method="DELETE")[0] == 204
    for _ in range(6):
        assert workers.ask("/v2/glossaries")[1] == {"glossaries": []}


def test_a_worker_that_is_killed_is_named_and_started_again(workers: Served) -> None:
    for _ in range(8):
        workers.translated("Rot gehen.")
    wait_for(lambda: requests_counted(workers) >= 8)
    before = processes(workers)
    counted = requests_counted(workers)
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: any("killed by SIGKILL" in line for line in workers.lines))
    for _ in range(8):  # the others answer meanwhile
        workers.translated("Rot gehen.")
    wait_for(lambda: ready(workers) == 3)
    for path in ("/health", "/health/ready"):
        assert workers.ask(path) == (200, {"status": "ok", "workers": 3, "ready": 3})
    after = processes(workers)
    assert len(after) == 3 and before[0] not in after
    wait_for(lambda: requests_counted(workers) >= counted + 8)
    (named,) = [line for line in workers.lines if "SIGKILL" in line]
    assert re.search(rf"worker \d \(process {before[0]}\) ended: .*; starting it again", named)


def test_a_signal_ends_all(de_en: Path) -> None:
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        with served(de_en, "--workers", "2") as server:
            several = processes(server)
            server.translated("Rot.")
            assert server.end(number) == code
            assert not any(Path(f"/proc/{process}").exists() for process in several)
            assert not any("Traceback" in line for line in server.lines)


def test_workers_end_with_a_server_that_is_killed(de_en: Path) -> None:
    with served(de_en, "--workers", "2") as server:
        several = processes(server)
        server.process.kill()
        wait_for(lambda: not any(Path(f"/proc/{process}").exists() for process in several))


def test_a_run_that_cannot_be_loaded_ends_the_server(de_en: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in de_en.iterdir():
        if file.is_file():
            (broken / file.name).write_bytes(file.read_bytes())
    (broken / "weights.safetensors").write_bytes(b"no weights")
    done = transduce("serve", broken, "--workers", "2", "--port", "0")
    assert done.code == 1 and "Traceback" not in done.err
    assert "weights.safetensors" in done.err.splitlines()[-1]
    assert transduce("serve", de_en, "--workers", "0").code == 2


@pytest.mark.parametrize(
    ("make", "expected", "message"),
    [
        (failing_workers.without_disk, OSError, "No space left on device"),
        (failing_workers.killed, RunError, r"ended 3 times before .*: killed by SIGKILL; .*memory"),
        (failing_workers.defective, RunError, "ended 3 times before it was ready: exit code 1"),
    ],
)
def test_workers_that_never_become_ready_end_the_start(
    make: Callable[..., object],
    expected: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_workers, "LONGEST_PAUSE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = ServeSettings(workers=2)
        with pytest.raises(expected, match=message):
            of_workers.serve_by_workers(make, settings, listener, pytest.fail)  # type: ignore[arg-type]
