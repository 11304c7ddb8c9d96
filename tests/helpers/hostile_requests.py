"""Malformed requests, and checks of the server afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

from helpers.served import Served

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
ODD_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    10**40,
    "",
    " ",
    "\0",
    "\ud800",
    "x" * 300,
    "\u202e\u200d\ufeff",
    [],
    [[]],
    [None],
    ["a", 5],
    {},
    {"a": {"b": []}},
    "../../etc/passwd",
]


def send_wrong_types(
    server: Served, path: str, fields: Mapping[str, Any], values: Iterable[Any]
) -> None:
    """Send each value in each field, and in the place of all; each answer is below 500."""
    values = list(values)
    for name in fields:
        for value in values:
            body = json.dumps({**fields, name: value}).encode()
            status, answer = server.send(path, body, Content_Type=JSON)
            assert status < 500, (name, value, answer)
    for value in values:
        assert server.send(path, json.dumps(value).encode(), Content_Type=JSON)[0] < 500, value


def send_random_bytes(
    server: Served, path: str, kinds: Iterable[str], before: bytes, after: bytes = b""
) -> None:
    """Send random bodies of each content type; each answer is below 500.

    before, after: around the bytes in a multipart form.
    """
    chance = random.Random(path)
    for kind in kinds:
        for _ in range(4):
            body = chance.randbytes(chance.randint(0, 300))
            if kind == MULTIPART:
                body = before + body + after
            assert server.send(path, body, Content_Type=kind)[0] < 500


def check_lives(server: Served) -> None:
    """The server answers, without ever having fallen."""
    assert server.translated("Rot.") is not None
    assert "Traceback" not in "".join(server.lines)
    assert 'status="500"' not in server.ask("/metrics")[1]


def is_idle(server: Served) -> bool:
    """True where no text waits or is being answered."""
    lines = server.ask("/metrics")[1].splitlines()
    gauges = [
        line for line in lines if line.startswith(("transduce_waiting{", "transduce_running{"))
    ]
    return all(one.endswith(" 0") for one in gauges)
