"""Large requests of every shape do not hold up the event loop of the server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from helpers.event_loop import BLOCKED
from helpers.hostile_requests import FORM, JSON, MULTIPART
from helpers.served import Served, served
from helpers.served_runs import dialogue_run, embedding_run, label_run
from transduce.serve.settings import FILE_BYTES, ServeSettings

MOST = ServeSettings().max_body_bytes - 1000
CHARACTERS = ServeSettings().max_chars - 100
PAIR = {"source": "de", "target": "en"}
DEEPL = {"source_lang": "DE", "target_lang": "EN"}
CHAT = {"model": "de-en"}
PART = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n'
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'


class Large(NamedTuple):
    """A large request: its path, body and media type, and headers."""

    path: str
    body: Callable[[], bytes]
    media: str = JSON
    headers: Mapping[str, str] = MappingProxyType({})


def as_json(**fields: object) -> Callable[[], bytes]:
    return lambda: json.dumps(fields).encode()


def messages(*rows: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in rows]


LARGE = {
    "escaped form": Large("/translate", lambda: b"q=" + b"%E4" * (MOST // 3), FORM),
    "form of blanks": Large("/translate", lambda: b"q=" + b"+" * MOST, FORM),
    "key of a form": Large("/api/translate", lambda: b"api_key=" + b"%C3%A4" * (MOST // 6), FORM),
    "semicolons": Large("/translate", lambda: b"&".join([b"q=;"] * 1999) + b";" * 10**6, FORM),
    "query string": Large("/translate?q=" + "%E4" * 80_000, lambda: b"", FORM),
    "names": Large("/translate", lambda: json.dumps({f"n{i}": i for i in range(90_000)}).encode()),
    "numbers": Large("/translate", lambda: b'{"q": [' + b"1," * (MOST // 2) + b"1]}"),
    "lists": Large("/translate", lambda: b'{"q": [' + b"[]," * (MOST // 3) + b"1]}"),
    "objects": Large("/translate", lambda: b'{"q": [' + b'{"a":1},' * (MOST // 8) + b"1]}"),
    "long number": Large("/translate", lambda: b'{"q": ' + b"1" * MOST + b"}"),
    "long fraction": Large("/translate", lambda: b'{"q": 0.' + b"1" * MOST + b"}"),
    "halves of characters": Large(
        "/translate",
        lambda: b'{"q": ["' + rb"\ud800" * (MOST // 12) + b'", ' + b"1," * (MOST // 4) + b"1]}",
    ),
    "UTF-16": Large(
        "/translate", lambda: ('{"q": "' + "ä" * (MOST // 2 - 10) + '"}').encode("utf-16")
    ),
    "texts": Large("/translate", as_json(q=["ab"] * 200_000, **PAIR)),
    "lines": Large("/translate", as_json(q="a\n" * (CHARACTERS // 2), **PAIR)),
    "lines with placeholders": Large(
        "/api/translate", as_json(q="{0}\n" * (CHARACTERS // 4), **PAIR)
    ),
    "alternatives": Large(
        "/translate", as_json(q="Rot. " * (CHARACTERS // 5), alternatives=8, **PAIR)
    ),
    "alternatives of lines": Large(
        "/translate", as_json(q="Rot {0}.\nBaum.\n" * (CHARACTERS // 15), alternatives=8, **PAIR)
    ),
    "alternatives of a list": Large(
        "/translate", as_json(q=["Rot. Baum."] * 1000, alternatives=8, **PAIR)
    ),
    "long word": Large("/translate", as_json(q="a" * CHARACTERS, alternatives=8, **PAIR)),
    "tags": Large(
        "/v2/translate",
        as_json(text="<a>b</a>" * (CHARACTERS // 50), tag_handling="xml", ignore_tags="a", **DEEPL),
    ),
    "open tags": Large(
        "/v2/translate",
        as_json(text="<a " * (CHARACTERS // 3), tag_handling="xml", ignore_tags="a", **DEEPL),
    ),
    "names of tags": Large(
        "/v2/translate", as_json(text="a", tag_handling="xml", ignore_tags="a," * 500_000, **DEEPL)
    ),
    "entries": Large(
        "/v2/glossaries",
        lambda: json.dumps(
            {"name": "a", "entries": "".join(f"a{i}\tb\n" for i in range(90_000)), **DEEPL}
        ).encode(),
    ),
    "entries in CSV": Large(
        "/v2/glossaries",
        lambda: json.dumps(
            {
                "name": "a",
                "entries_format": "csv",
                "entries": "".join(f"a{i},b\n" for i in range(90_000)),
                **DEEPL,
            }
        ).encode(),
    ),
    "quotes in CSV": Large(
        "/v2/glossaries", as_json(name="a", entries_format="csv", entries='"' * 10**6, **DEEPL)
    ),
    "separators": Large(
        "/v1/chat/completions",
        as_json(
            **CHAT,
            messages=messages(("system", "=b" * 300_000), ("user", "=a=\n" * (CHARACTERS // 4))),
        ),
    ),
    "many messages": Large(
        "/v1/chat/completions", as_json(**CHAT, messages=messages(("user", "a")) * 30_000)
    ),
    "turns": Large(
        "/v1/chat/completions", as_json(model="talk", messages=messages(("user", "a")) * 9000)
    ),
    "name of a model": Large(
        "/v1/chat/completions", as_json(model="-" * 10**6, messages=messages(("user", "a")))
    ),
    "name with dashes": Large("/v1/embeddings", as_json(model="de-" * 300_000, input="a")),
    "name in a path": Large("/v1/models/" + "-" * 200_000, lambda: b"", ""),
    "code": Large("/translate", as_json(q="a", source="a-" * 500_000, target="en")),
    "code with a zone": Large("/api/translate", as_json(q="a", source="de", target="x" * 10**6)),
    "choice": Large("/v2/translate", as_json(text="a", tag_handling="x" * 10**6, **DEEPL)),
    "stop": Large(
        "/v1/chat/completions",
        as_json(model="talk", messages=messages(("user", "a")), stop=["x" * 1000] * 1000),
    ),
    "embeddings": Large("/v1/embeddings", as_json(model="vectors", input=["ab"] * 1000)),
    "long text to embed": Large("/v1/embeddings", as_json(model="vectors", input="a b " * 4900)),
    "labels": Large("/api/predict", as_json(model="labels", inputs=[["a"]] * 1000)),
    "inputs": Large("/api/predict", as_json(model="labels", inputs=[["a"]] * 90_000)),
    "no such path": Large("/nowhere", lambda: b"a" * 20_000_000),
    "terms of the page": Large(
        "/page/translate",
        as_json(
            q="a " * (CHARACTERS // 2),
            glossary=[[f"{'a' * 5000}{i}", "b"] for i in range(199)],
            **PAIR,
        ),
    ),
    "forms of a term": Large(
        "/page/translate",
        as_json(q="a " * 90, glossary=[["a|" * 5000 + str(i), "b"] for i in range(99)], **PAIR),
    ),
    "sentences with terms": Large(
        "/page/translate", as_json(q="Rot. " * (CHARACTERS // 5), glossary=[["Rot", "ab"]], **PAIR)
    ),
    "one long sentence": Large("/page/translate", as_json(q="a & " * (CHARACTERS // 4), **PAIR)),
    "pairs": Large("/page/words", as_json(pairs=[["a", "b"]] * 100_000, **PAIR)),
    "words": Large("/page/words", as_json(pairs=[["a b c d"] * 2] * 900, **PAIR)),
    "empty parts": Large("/translate", lambda: PART * (MOST // len(PART)), MULTIPART),
    "breaks behind the parts": Large(
        "/translate", lambda: PART + b"a\r\n--b--" + b"\r\n" * (MOST // 3), MULTIPART
    ),
    "breaks in a part": Large("/translate", lambda: PART + b"\r\n--" * (MOST // 4), MULTIPART),
    "returns in a part": Large("/translate", lambda: PART + b"\r" * MOST, MULTIPART),
    "halves of boundaries": Large("/translate", lambda: PART + b"\r\n-" * (MOST // 3), MULTIPART),
    "long head of a part": Large(
        "/translate", lambda: PART[:-4] + b"; a=b" * (MOST // 5) + b"\r\n\r\na\r\n--b--", MULTIPART
    ),
    "heads of a part": Large(
        "/translate", lambda: PART[:-2] + b"A: b\r\n" * (MOST // 7) + b"\r\na\r\n--b--", MULTIPART
    ),
    "breaks in front of the parts": Large("/translate", lambda: b"\r\n" * (MOST // 2), MULTIPART),
    "fields of a form": Large("/translate", lambda: (PART + b"a\r\n") * 1990 + b"--b--", MULTIPART),
    "returns in a file": Large(
        "/translate_file", lambda: FILE + b"\r" * (FILE_BYTES - 900), MULTIPART
    ),
    "returns in a recording": Large(
        "/v1/audio/transcriptions",
        lambda: FILE + b"\r\n-" * ((ServeSettings().max_audio_bytes - 900) // 3),
        MULTIPART,
    ),
    "texts of detection": Large("/detect", as_json(q=["ab äö " * 3] * 1000)),
    "cookies": Large("/translate", as_json(q="a", **PAIR), JSON, {"Cookie": "a=b; " * 40_000}),
    "boundary": Large("/translate", lambda: b"--" + b"b" * 2000, MULTIPART + "b" * 200_000),
    "parameters of the type": Large("/translate", lambda: PART, MULTIPART + "; a=b" * 40_000),
    "quoted parameters": Large("/translate", lambda: PART, MULTIPART + '; a="' + '\\"' * 90_000),
    "authorisation": Large(
        "/translate", as_json(q="a", **PAIR), JSON, {"Authorization": "a " * 90_000}
    ),
    "origin": Large("/v2/glossaries", as_json(a=1), JSON, {"Origin": "http://" + ":" * 90_000}),
}

UNKNOWN = ("name of a model", "name in a path", "name with dashes", "no such path")


@pytest.fixture(scope="module")
def several(de_en: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("large")
    runs = [dialogue_run(place / "talk"), embedding_run(place / "vectors")]
    glossaries = place / "glossaries.json"
    with served(
        de_en, *runs, label_run(place / "labels"), "--metrics", "--glossaries", glossaries
    ) as result:
        yield result


def send(server: Served, large: Large) -> tuple[int, Any]:
    headers = {"Content_Type": large.media, **large.headers}
    return server.send(large.path, large.body() or None, "POST" if large.media else None, **headers)


@pytest.mark.parametrize("name", LARGE)
def test_large_requests_never_hold_the_event_loop_up(several: Served, name: str) -> None:
    lines = len(several.lines)
    status, answer = send(several, LARGE[name])
    assert status < 500, answer
    assert status != 404 or name in UNKNOWN, answer
    several.translated("Rot.")
    blocked = [line for line in several.lines[lines:] if BLOCKED in line]
    assert not blocked, blocked
