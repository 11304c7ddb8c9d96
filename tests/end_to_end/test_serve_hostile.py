"""Requests that nobody should send: each gets an answer below 500, without a traceback."""

from __future__ import annotations

import json
import random
import socket
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.hostile_requests import (
    FORM,
    JSON,
    MULTIPART,
    ODD_VALUES,
    check_lives,
    is_idle,
    send_random_bytes,
    send_wrong_types,
)
from helpers.served import Served, served, some_sentences
from helpers.waiting import wait_for

VALUES = [*ODD_VALUES, "\ud83d\ude00", "%00", "🏳️‍🌈" * 20]
BODIES: dict[str, dict[str, Any]] = {
    "/translate": {
        "q": "Rot.",
        "source": "de",
        "target": "en",
        "format": "text",
        "alternatives": 1,
        "api_key": "",
    },
    "/detect": {"q": "Rot.", "api_key": ""},
    "/languages": {"q": ""},
    "/api/translate": {"q": "Rot.", "source": "de", "target": "en", "api_key": ""},
    "/api/predict": {"model": "de-en", "inputs": ["Rot."], "options": {}, "api_key": ""},
    "/v1/chat/completions": {
        "model": "de-en",
        "messages": [{"role": "user", "content": "Rot."}],
        "stream": False,
        "stream_options": {"include_usage": True},
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 5,
        "n": 1,
        "stop": "x",
        "seed": 1,
    },
    "/page/translate": {"q": "Rot.", "source": "de", "target": "en", "glossary": []},
    "/page/words": {"pairs": [["Rot.", "rot"]], "source": "de", "target": "en", "glossary": []},
    "/page/alternatives": {
        "q": "Rot.",
        "output": "rot",
        "word": 0,
        "source": "de",
        "target": "en",
        "glossary": [],
    },
    "/page/explanation": {"q": "Rot.", "source": "de", "target": "en", "model": None},
}
OPTIONS = ["method", "prefix", "constraints", "avoid", "beam_size", "n_best", "alpha", "max_tokens"]
OPTIONS += [
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "min_length",
    "repetition_penalty",
    "shortlist",
]
RAW = [
    b"",
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of TLS
    b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /translate?q=%ff%fe&q=%zz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data\r\n"
    b"Content-Length: 3\r\n\r\nabc",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    b"Content-Length: 7\r\n\r\n--b\r\nab",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: \xff\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /" + b"a" * 400_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 60_000 + b"\r\n",
    b"GET /api/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /download_file/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: a\r\n\r\n",
]


def raw(server: Served, content: bytes, read: bool = True) -> bytes:
    """Send bytes and end the sending side; all that comes back."""
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        try:
            connection.sendall(content)
            if not read:
                return b""
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65_536), b""))
        except OSError:  # refused before the end
            return b""


def post(path: str, body: bytes, kind: str = JSON, length: int | None = None) -> bytes:
    """A request as bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body


def good(text: object = "Rot gehen.") -> bytes:
    return post("/translate", json.dumps({"q": text, "source": "de", "target": "en"}).encode())


@pytest.fixture(autouse=True)
def _lives(server: Served) -> Iterator[None]:
    """Afterwards the server answers, without ever having fallen."""
    yield
    check_lives(server)


@pytest.mark.parametrize("path", BODIES)
def test_wrong_types_in_every_field(server: Served, path: str) -> None:
    send_wrong_types(server, path, BODIES[path], VALUES)


@pytest.mark.parametrize("option", OPTIONS)
def test_wrong_decoding_options(server: Served, option: str) -> None:
    for value in VALUES:
        body = {"model": "de-en", "inputs": ["Rot."], "options": {option: value}}
        status, _ = server.send("/api/predict", json.dumps(body).encode(), Content_Type=JSON)
        assert status < 500, (option, value)


@pytest.mark.parametrize("content", RAW, ids=range(len(RAW)))
def test_bytes_that_are_no_request(server: Served, content: bytes) -> None:
    answer = raw(server, content)
    assert answer == b"" or int(answer.split()[1]) < 500


@pytest.mark.parametrize("path", [*BODIES, "/translate_file", "/suggest", "/v2/translate", "/v1/x"])
def test_random_bytes_as_a_body(server: Served, path: str) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n'
    send_random_bytes(server, path, (JSON, FORM, MULTIPART, "text/plain"), head)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(list(BODIES)), st.data())
def test_any_json(server: Served, path: str, data: Any) -> None:
    fields = {name: data.draw(json_values | st.just(value)) for name, value in BODIES[path].items()}
    body = json.dumps(fields).encode()
    assert server.send(path, body, Content_Type=JSON)[0] < 500


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40))
def test_any_text_comes_back_line_by_line(server: Served, text: str) -> None:
    result = server.translated([text])
    assert result[0].count("\n") == text.replace("\r\n", "\n").count("\n")
    assert bool(result[0].strip()) <= bool(text.strip())


def test_large_requests(server: Served) -> None:
    word = {"q": "a" * 1_000_000, "source": "de", "target": "en"}
    assert server.ask("/translate", word)[0] == 400
    assert server.ask("/translate", {**word, "q": [""] * 100_000})[0] == 400
    huge = post("/translate", b'{"q": "', length=10**12) + b"a" * 3_000_000
    assert raw(server, huge)[:12] in (b"HTTP/1.1 413", b"")
    nested = b'{"q": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert server.send("/translate", nested, Content_Type=JSON)[0] == 400
    fields = "&".join(f"{name}=1" for name in range(5000)).encode()
    assert server.send("/translate", fields, Content_Type=FORM)[0] == 400


def test_a_long_word_without_blanks(server: Served) -> None:
    assert server.translated("Rot" * 700)


def test_strange_characters(server: Served) -> None:
    for text in ("a\0b", "a\ud800b", "\u2028Rot\u2029.\x85\x0b", "a" + "\u0301" * 500, "\x1b[2J"):
        status, answer = server.send(
            "/translate", good(text).partition(b"\r\n\r\n")[2], Content_Type=JSON
        )
        assert status == 200, (text, answer)
    body = b"q=%ff%fe%00&source=de&target=en"
    assert server.send("/translate", body, Content_Type=FORM)[0] == 200


def cancelled(server: Served) -> int:
    text = server.ask("/metrics")[1]
    result = [line for line in text.splitlines() if line.startswith("transduce_cancelled_total ")]
    return int(result[0].split()[1]) if result else 0


def test_clients_that_hang_up_at_once_are_given_up(server: Served) -> None:
    before = cancelled(server)
    lines = [" ".join(sentence[:-1] for sentence in some_sentences(14, seed)) for seed in range(95)]
    for _ in range(20):
        raw(server, good("\n".join(lines)), read=False)
    wait_for(lambda: is_idle(server) and cancelled(server) >= before + 15)  # some may be done


def test_half_a_body(server: Served) -> None:
    for kind in (JSON, FORM, MULTIPART):
        raw(server, post("/translate", b'{"q": "a', kind, length=500), read=False)
        raw(server, post("/translate", b'{"q": "a', kind, length=500))
    wait_for(lambda: is_idle(server))
    assert server.ask("/health/ready")[0] == 200


def test_a_stream_whose_client_has_gone(server: Served) -> None:
    text = "\n".join(some_sentences(500))[:20_000]
    body = json.dumps({"q": text, "source": "de", "target": "en"}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall(post("/api/translate", body))
        assert connection.recv(200).startswith(b"HTTP/1.1 200")
    wait_for(lambda: is_idle(server))


BOMB = b"""<!DOCTYPE a [<!ENTITY a "Rot"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d SYSTEM "file:///etc/passwd">]>
<html><p>Baum &c; &d;</p></html>"""


def test_entities_and_archives_in_files(server: Served) -> None:
    for name, data in [
        ("a.xhtml", BOMB),
        ("a.html", b"<p>" * 100_000),
        ("a.html", b"<b>Rot " * 2000),
        ("a.html", b"\xff\xfe<\x00p"),
        ("a.docx", b"PK\x03\x04" + bytes(1000)),
        ("a.txt", bytes(100_000)),
        ("a.srt", b"1\n00:00:01,000 --> \n" * 1000),
        ("a" * 10_000 + ".txt", b"Rot."),
        ("a\0b/../c.txt", b"Rot."),
    ]:
        head = b"--b\r\nContent-Disposition: form-data; name="
        parts = head + f'"file"; filename="{name}"\r\n\r\n'.encode() + data + b"\r\n"
        for field in (b'"source"\r\n\r\nde\r\n', b'"target"\r\n\r\nen\r\n'):
            parts += head + field
        body = parts + b"--b--\r\n"
        status, answer = server.send("/translate_file", body, Content_Type=MULTIPART)
        assert status < 500 and "root:" not in str(answer), name[:20]


def test_idle_connections(server: Served) -> None:
    open_ones = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(1000)]
    try:
        assert server.translated("Rot.")
    finally:
        for one in open_ones:
            one.close()


def resident(server: Served) -> int:
    """Resident memory in kB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.slow
def test_memory_stays(de_en: Path) -> None:
    chance = random.Random(1)
    with served(de_en, "--max-waiting", 500) as server:

        def some_requests(count: int) -> None:
            for _ in range(count):
                text = "".join(chance.choices(string.printable + "äü中", k=chance.randint(1, 60)))
                kind = chance.randrange(4)
                if kind == 0:
                    raw(server, good([text] * 5), read=False)
                elif kind == 1:
                    server.ask("/translate", {"q": text, "source": "de", "target": "xx"})
                else:
                    server.ask("/translate", {"q": text, "source": "de", "target": "en"})

        some_requests(3000)  # batches of each size come to their buffers: 282 MB, then 293
        before = resident(server)
        some_requests(2000)
        assert resident(server) <= 1.02 * before + 2000


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/translate", 413)])
def test_an_early_answer_reaches_a_client_that_sends_first(
    server: Served, path: str, status: int
) -> None:
    answer = raw(server, post(path, b"a" * 20_000_000))
    assert answer.startswith(b"HTTP/1.1 %d " % status) and b"error" in answer
