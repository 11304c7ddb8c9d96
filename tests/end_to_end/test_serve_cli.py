"""`transduce serve`: start, keys, prediction, streaming, operations, end."""

from __future__ import annotations

import concurrent.futures
import json
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, transduce
from helpers.served import Served, library, served, some_sentences
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from helpers.waiting import wait_for
from transduce import train


def test_predictions_of_any_run(server: Served, de_en: Path) -> None:
    status, models = server.ask("/api/models")
    assert status == 200 and [model["name"] for model in models["models"]] == ["de-en", "en-fr"]
    assert models["models"][0]["task"] == "translation"
    body = {"model": "de-en", "inputs": ["Rot gehen.", {"source": "Baum?"}, ["Dank!"]]}
    status, answer = server.ask("/api/predict", body)
    expected = [
        translation.text
        for translation in library(de_en).translate(["Rot gehen.", "Baum?", "Dank!"])
    ]
    assert status == 200
    assert [one["translation"] for one in answer["predictions"]] == expected
    body["options"] = {"beam_size": 1, "prefix": "ab"}
    status, answer = server.ask("/api/predict", body)
    assert status == 200 and answer["predictions"][0]["translation"].startswith("ab")


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"model": "xx"}, 404, "there is no model 'xx'; use de-en"),
        ({"model": None}, 400, "missing model"),
        ({"inputs": []}, 400, "missing inputs"),
        ({"inputs": [5]}, 400, "input 1 is not a text"),
        ({"inputs": [["a", "b"]]}, 400, "takes 1: source"),
        ({"options": 5}, 400, "options is not an object"),
        ({"options": {"beam_size": 10_000}}, 400, "exceeds 16"),
    ],
)
def test_mistakes_in_predictions(
    server: Served, fields: dict[str, object], status: int, message: str
) -> None:
    result, answer = server.ask("/api/predict", {"model": "de-en", "inputs": ["a"], **fields})
    assert result == status and message in answer["error"]["message"]


def test_one_input_with_an_error_leaves_the_others(server: Served) -> None:
    options = {"prefix": "§"}  # a character that the vocabulary lacks
    body = {"model": "de-en", "inputs": ["Rot.", "Baum."], "options": options}
    status, answer = server.ask("/api/predict", body)
    assert status == 200 and all("prefix" in one["error"] for one in answer["predictions"])


def events(body: str) -> list[dict[str, object]]:
    return [json.loads(event.removeprefix("data: ")) for event in body.strip().split("\n\n")]


def test_a_streamed_translation_equals_the_whole(server: Served) -> None:
    for source, target in (("de", "en"), ("de", "fr"), ("de", "de")):
        text = "Rot gehen. Baum?\n\n  Müde Tür!\n"
        body = {"q": text, "source": source, "target": target}
        status, result = server.ask("/api/translate", body)
        assert status == 200
        *parts, last = events(result)
        through = {"via": ["en"]} if target == "fr" else {}
        assert last == {"done": True, **through}
        whole = server.ask("/translate", body)[1]["translatedText"]
        assert "".join(str(part["text"]) for part in parts) == whole
    status, result = server.ask("/api/translate", {"q": "a", "source": "zz", "target": "en"})
    assert status == 400 and result["error"]["message"] == "zz is not supported"


def test_answers_do_not_depend_on_who_else_asks(server: Served, de_en: Path) -> None:
    texts = some_sentences(96, seed=3)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        result = list(pool.map(server.translated, texts))
    assert result == [translation.text for translation in library(de_en).translate(texts)]


def test_metrics_and_health(server: Served) -> None:
    server.translated("Rot.")
    status, text = server.ask("/metrics")
    assert status == 200 and 'transduce_requests_total{endpoint="/translate",status="200"}' in text
    assert 'transduce_tokens_total{side="target"}' in text and "Rot" not in text
    assert server.ask("/health/live")[0] == server.ask("/health/ready")[0] == 200


def test_the_description_has_every_route(server: Served) -> None:
    from transduce.serve.server import build_application
    from transduce.serve.service import Service
    from transduce.serve.settings import ServeSettings

    service = Service([], lambda path: library(path), ServeSettings(metrics=True))
    routes = {
        (route.path, method.lower())  # type: ignore[attr-defined]
        for route in build_application(service).routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    paths = server.ask("/spec")[1]["paths"]
    described = {(path, method) for path, item in paths.items() for method in item}
    assert {one for one in routes if one[1] != "head"} - {("/spec", "get")} == described
    for item in paths.values():
        for operation in item.values():
            assert operation["summary"]


def test_keys_prefix_and_a_run_without_languages(de_en: Path, tmp_path: Path, run: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n", encoding="utf-8")
    arguments = ["--pair", f"xx-yy={run}", "--api-keys", keys, "--url-prefix", "/mt"]
    suggested = tmp_path / "suggested.jsonl"
    arguments += ["--suggestions", suggested, "--no-files"]
    with served(de_en, *arguments) as server:
        good = {"q": "abc", "source": "xx", "target": "yy"}
        assert server.url.endswith("/mt")
        status, answer = server.ask("/translate", good)
        assert status == 400 and "API key" in answer["error"]
        assert server.ask("/translate", {**good, "api_key": "wrong"}) == (
            403,
            {"error": "Invalid API key"},
        )
        status, answer = server.ask("/translate", {**good, "api_key": "secret"})
        assert (status, answer["translatedText"]) == (200, library(run).translate("abc").text)
        body = {"model": "de-en", "inputs": ["Rot."]}
        assert server.ask("/api/predict", body)[0] == 401
        assert server.ask("/api/predict", body, Authorization="Bearer secret")[0] == 200
        assert server.ask("/languages")[0] == 200
        assert server.ask("/frontend/settings")[1]["keyRequired"] is True
        assert server.ask("/metrics")[0] == 404
        suggestion = {"q": "abc", "s": "ABC", "source": "xx", "target": "yy", "api_key": "secret"}
        assert server.ask("/suggest", suggestion) == (200, {"success": True})
        assert json.loads(suggested.read_text(encoding="utf-8")) == {
            "source": "abc",
            "target": "ABC",
            "source_language": "xx",
            "target_language": "yy",
        }
        assert server.ask("/translate_file", {"api_key": "secret"})[0] == 403
        assert server.end() == 0


def test_sigterm_lets_requests_finish(de_en: Path) -> None:
    with served(de_en, "--metrics") as server:
        text = "\n".join(some_sentences(600, seed=5))[:20_000]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(server.translated, text) for _ in range(3)]
            wait_for(lambda: 'running{run="de-en"} 0' not in server.ask("/metrics")[1])
            assert server.end() == 0
            assert [len(answer.result().split("\n")) for answer in answers] == [
                text.count("\n") + 1
            ] * 3
        assert "Traceback" not in "".join(server.lines)


def test_the_log_names_the_runs(run: Path) -> None:
    with served(run) as server:
        first, second, *_ = server.lines
        assert first == f"{run}: translation as 'copy'\n"
        assert second.startswith(f"warning: {run} names no languages")
        assert server.ask("/languages") == (200, [])
        assert server.ask("/detect", {"q": "abc"}) == (200, [])
        status, answer = server.ask("/translate", {"q": "abc", "source": "auto", "target": "en"})
        assert (status, answer) == (400, {"error": "en is not supported"})
        status, answer = server.ask("/api/predict", {"inputs": ["abc"]})
        assert answer["predictions"][0]["translation"] == library(run).translate("abc").text


def test_a_deadline_is_answered(de_en: Path) -> None:
    with served(de_en, "--timeout", 0.01) as server:
        text = "\n".join(some_sentences(300))
        status, answer = server.ask("/translate", {"q": text, "source": "de", "target": "en"})
        assert status == 503 and "takes too long" in answer["error"]


def test_ctrl_c_is_an_interruption(de_en: Path) -> None:
    with served(de_en) as server:
        assert server.end(signal.SIGINT) == 130
        assert "Traceback" not in "".join(server.lines)


def test_a_second_signal_ends_at_once(de_en: Path) -> None:
    """While a request, half of whose body has arrived, is waited for."""
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"
    with served(de_en) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not server.is_ready())
        assert server.process.poll() is None
        assert server.end() == -signal.SIGTERM


def test_mistakes_at_the_start(
    here: Callable[..., Done], de_en: Path, server: Served, tmp_path: Path
) -> None:
    assert "nothing to serve" in here("serve").complaint
    assert "not a directory" in here("serve", tmp_path / "none").complaint
    assert "both translate de to en" in here("serve", de_en, "--pair", f"de-en={de_en}").complaint
    assert "begin it with /" in here("serve", de_en, "--url-prefix", "mt").complaint
    taken = here("serve", de_en, "--port", server.port).complaint
    assert f"cannot listen on 127.0.0.1:{server.port}" in taken


def test_a_damaged_run_ends_the_server(de_en: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(de_en, tmp_path / "damaged")
    (damaged / "weights.safetensors").write_bytes(b"no weights")
    done = transduce("serve", damaged, "--port", 0)
    assert done.code == 1 and "Traceback" not in done.err
    assert str(damaged) in done.err.splitlines()[-1]
    assert "serving at" not in done.err


def test_an_impossible_engine_is_refused_before_an_address_is_given(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))
    rnn = {"preset": "rnn-dot", "d_model": 16, "tie": "two-way"}
    settings = {**tiny_settings(data, "training.steps=1"), "model": rnn}
    run, _ = train(settings, tmp_path / "rnn")
    done = transduce("serve", run, "--pair", f"de-en={run}", "--engine", "native", "--port", 0)
    assert done.code == 2
    assert "native engine" in done.err.splitlines()[-1]
    assert "serving at" not in done.err
