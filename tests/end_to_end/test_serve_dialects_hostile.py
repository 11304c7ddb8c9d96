"""Requests that nobody should send to the dialects: each gets an answer below 500."""

from __future__ import annotations

import html
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
from helpers.served_runs import dialogue_run, embedding_run, label_run
from helpers.waiting import wait_for

VALUES = [*ODD_VALUES, 0.5, "<a><b></a>&amp;&#xd800;", [["a", "b"]]]
CHAT = {
    "model": "talk",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": False,
    "stream_options": {"include_usage": True},
    "max_tokens": 3,
    "max_completion_tokens": 3,
    "n": 1,
    "seed": 1,
    "temperature": 0.5,
    "top_p": 0.5,
    "stop": ["x"],
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/embeddings": {
        "model": "vectors",
        "input": ["a"],
        "encoding_format": "float",
        "dimensions": 16,
    },
    "/v1/translations": {"input": ["Rot."], "source_language": "de", "target_language": "en"},
    "/v1/audio/transcriptions": {"model": "talk", "file": "a", "response_format": "json"},
    "/v2/translate": {
        "text": ["Rot."],
        "source_lang": "DE",
        "target_lang": "EN",
        "tag_handling": "xml",
        "ignore_tags": ["a"],
        "split_sentences": "1",
        "formality": "default",
        "glossary_id": "",
        "context": "a",
        "show_billed_characters": True,
        "auth_key": "",
    },
    "/v2/languages": {"type": "target"},
    "/v2/usage": {"auth_key": ""},
    "/v2/glossaries": {
        "name": "a",
        "source_lang": "de",
        "target_lang": "en",
        "entries": "a\tb",
        "entries_format": "tsv",
    },
    "/v2/document": {"file": "a", "target_lang": "EN", "source_lang": "DE", "filename": "a.txt"},
    "/v2/document/x": {"document_key": "a"},
    "/v2/document/x/result": {"document_key": "a"},
}


@pytest.fixture(scope="module")
def several(de_en: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("hostile")
    runs = [dialogue_run(place / "talk"), embedding_run(place / "vectors")]
    with served(de_en, *runs, label_run(place / "labels"), "--metrics") as result:
        yield result


@pytest.fixture(autouse=True)
def _lives(several: Served) -> Iterator[None]:
    """Afterwards the server answers, without ever having fallen."""
    yield
    check_lives(several)
    assert "internal error" not in "".join(several.lines)


@pytest.mark.parametrize("path", BODIES)
def test_wrong_types_in_every_field(several: Served, path: str) -> None:
    send_wrong_types(several, path, BODIES[path], VALUES)


@pytest.mark.parametrize("field", ["role", "content"])
def test_wrong_types_in_messages(several: Served, field: str) -> None:
    for stream in (False, True):
        for value in [*VALUES, [{"type": "text", "text": 5}], [{"type": "image_url"}], ["a"]]:
            message = {"role": "user", "content": "hi", field: value}
            body = json.dumps({**CHAT, "messages": [message], "stream": stream}).encode()
            status, answer = several.send("/v1/chat/completions", body, Content_Type=JSON)
            assert status < 500, (value, answer)


@pytest.mark.parametrize("path", BODIES)
def test_random_bytes_as_a_body(several: Served, path: str) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    send_random_bytes(several, path, (JSON, FORM, MULTIPART), head, b"\r\n--b--\r\n")


def test_documents_that_are_none(several: Served) -> None:
    chance = random.Random(0)
    for name in ("a.txt", "a.srt", "a.vtt", "a.html", "file", "a\0.txt", "../" * 90 + "a.txt"):
        content = chance.randbytes(300) + b"<b>" * 200
        head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        fields = b'\r\n--b\r\nContent-Disposition: form-data; name="target_lang"\r\n\r\nEN\r\n--b--'
        body = head.encode() + content + fields
        status, answer = several.send("/v2/document", body, Content_Type=MULTIPART)
        assert status in (200, 400), answer
        if status != 200:
            continue
        key = {"document_key": answer["document_key"]}
        where = f"/v2/document/{answer['document_id']}"
        while (result := several.ask(where, key)[1])["status"] in ("queued", "translating"):
            pass
        assert result.get("error_message") != "internal error"
        assert several.ask(f"{where}/result", key)[0] in (200, 400)


def test_a_stream_whose_client_has_gone(several: Served) -> None:
    text = "\n".join(some_sentences(500))[:20_000]
    asked = {"model": "de-en", "messages": [{"role": "user", "content": text}], "stream": True}
    body = json.dumps(asked).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", several.port), 60) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert connection.recv(200).startswith(b"HTTP/1.1 200")
    wait_for(lambda: is_idle(several))


def test_many_tags(several: Served) -> None:
    for text in ("<a>" * 3000, "<a>" * 1500 + "</a>" * 1500, "<" * 5000, "</a>" * 3000):
        for tags in ("xml", "html"):
            body = {"text": text, "source_lang": "DE", "target_lang": "EN", "ignore_tags": "a"}
            status, answer = several.ask("/v2/translate", {**body, "tag_handling": tags})
            assert status == 200
            result = answer["translations"][0]["text"]
            assert (html.unescape(result) if tags == "html" else result) == text
