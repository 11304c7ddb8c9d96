"""The doors of the server: keys before work, foreign pages, half-closed connections, faults."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.hostile_requests import FORM, JSON
from helpers.served import Served, served
from helpers.waiting import wait_for

KEY = "secret"
GOOD = {"q": "Rot.", "source": "de", "target": "en"}


@pytest.fixture(scope="module")
def locked(de_en: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"{KEY}\n", encoding="utf-8")
    with served(de_en, "--api-keys", keys) as server:
        yield server


def cpu_seconds(server: Served) -> float:
    """Processor time of the server so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text(encoding="ascii").split()
    return (int(fields[13]) + int(fields[14])) / 100


def exchange(server: Served, content: bytes) -> bytes:
    """Send bytes and end the sending side; all that comes back."""
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize("path", ["/translate", "/v2/translate", "/api/predict", "/page/words"])
def test_a_query_of_many_names_costs_nothing(locked: Served, path: str) -> None:
    names = "&".join(map(str, range(16_000)))
    before = cpu_seconds(locked)
    assert locked.send(f"{path}?{names}", b"{}", Content_Type=JSON)[0] == 400
    assert cpu_seconds(locked) - before < 1
    few = "&".join(map(str, range(1900)))
    assert locked.send(f"{path}?{few}", b"", Content_Type=FORM)[0] in (400, 401, 403)


@pytest.mark.parametrize("path", ["/translate", "/api/translate", "/v1/models"])
def test_one_parser_of_keys(locked: Served, path: str) -> None:
    def status(authorization: str) -> int:
        body = None if path == "/v1/models" else GOOD
        return int(locked.ask(path, body, Authorization=authorization)[0])

    for good in (f"Bearer {KEY}", f"bearer {KEY}", f"BEARER  {KEY}", f"DeepL-Auth-Key {KEY}"):
        assert status(good) in (200, 422), good
    for bad in (f"XXXXXX {KEY}", KEY, "Bearer", f"Bearer{KEY}", "Bearer other", ""):
        assert status(bad) in (400, 401, 403), bad


def test_a_wrong_key_is_answered_before_the_body(locked: Served) -> None:
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nContent-Length: 9000"
    with socket.create_connection(("127.0.0.1", locked.port), 60) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


def test_heads_of_many_fields(server: Served) -> None:
    many = "".join(f"X-{number}: y\r\n" for number in range(300))
    answer = exchange(server, f"GET /languages HTTP/1.1\r\nHost: a\r\n{many}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 431") and b"error" in answer


def test_half_closed_requests_are_answered(server: Served) -> None:
    body = json.dumps({**GOOD, "q": ["Rot gehen."] * 20}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nContent-Length: "
    answer = exchange(server, f"{head}{len(body)}\r\n\r\n".encode() + body)
    while answer.startswith(b"HTTP/1.1 100"):  # signs of life
        answer = answer.partition(b"\r\n\r\n")[2]
    assert answer.startswith(b"HTTP/1.1 200")
    stream = json.dumps(GOOD).encode()
    head = head.replace("/translate", "/api/translate")
    assert b'"done": true' in exchange(server, f"{head}{len(stream)}\r\n\r\n".encode() + stream)


@pytest.fixture(scope="module")
def keeping(de_en: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    file = tmp_path_factory.mktemp("keeping") / "suggestions.jsonl"
    tool = "https://tool.example"
    with served(de_en, "--suggestions", file, "--allow-origin", tool) as server:
        server.lines.append(str(file))
        yield server


GLOSSARY = {"name": "a", "source_lang": "de", "target_lang": "en", "entries": "Rot\tred"}


def test_pages_of_foreign_origins_write_nothing(keeping: Served) -> None:
    file = Path(keeping.lines[-1])
    suggestion = b"q=Rot.&s=red&source=de&target=en"
    own = keeping.url.removesuffix("/")
    for origin, status in (("http://evil.example", 403), ("null", 403), (own, 200)):
        answer = keeping.send("/suggest", suggestion, Content_Type=FORM, Origin=origin)
        assert answer[0] == status, answer
        assert (status == 403) == ("--allow-origin" in str(answer[1]))
        made = keeping.ask("/v2/glossaries", GLOSSARY, Origin=origin)
        assert made[0] == (403 if status == 403 else 201)
        assert keeping.ask("/translate", GOOD, Origin=origin)[0] == 200
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1
    (glossary,) = keeping.ask("/v2/glossaries")[1]["glossaries"]
    path = f"/v2/glossaries/{glossary['glossary_id']}"
    assert keeping.ask(path, method="DELETE", Origin="http://evil.example")[0] == 403
    assert keeping.ask(path, method="DELETE", Origin="https://tool.example")[0] == 204
    for path in ("/v2/document", "/translate_file"):
        assert keeping.send(path, b"", Content_Type=FORM, Origin="http://evil.example")[0] == 403


def test_a_full_disk(de_en: Path) -> None:
    with served(de_en, "--suggestions", "/dev/full") as server:
        status, answer = server.ask("/suggest", {**GOOD, "s": "geheim"})
        assert status == 507 and answer == {"error": "the server has no space left"}
        wait_for(lambda: "/suggest: OSError at " in "".join(server.lines))
        log = "".join(server.lines)
        assert "service.py:" in log
        assert "Traceback" not in log and "geheim" not in log


@pytest.mark.parametrize("name", ["\ud800", "\udfff\ud800", "a\udc00"])
def test_halves_of_characters_anywhere(server: Served, name: str) -> None:
    for body in (
        {"model": "de-en", "inputs": ["Rot."], "options": {name: 1}},
        {"model": name, "inputs": [name], "options": {"prefix": name}},
    ):
        status, _ = server.ask("/api/predict", body)
        assert status in (200, 400, 404)
    assert server.send("/translate", b'{"q": "\xed\xa0\x80"}', Content_Type=JSON)[0] == 400
    assert server.translated("Rot\ud800.") == server.translated("Rot\ufffd.")


def test_a_body_that_never_comes(de_en: Path) -> None:
    with served(de_en, "--timeout", 1) as server:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
            connection.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < 30
