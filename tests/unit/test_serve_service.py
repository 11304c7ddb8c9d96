"""The service over real runs, without HTTP: other tasks, tags of targets, loading, keys."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from starlette.applications import Starlette

import transduce
from helpers.served import small_run
from helpers.waiting import wait_for
from transduce import RunError, SettingError
from transduce.localise.document import Record
from transduce.runs.importing import import_run
from transduce.serve import service as service_module
from transduce.serve.calls import Call, RequestError
from transduce.serve.runs import RunSpec, read_specs
from transduce.serve.server import build_application
from transduce.serve.service import Service
from transduce.serve.settings import ServeSettings
from transduce.serve.translator import Translated, left_of_records, left_of_texts

KEPT = Path(__file__).parents[1] / "runs" / "0.1.0"
TRANSLATION, CLASSIFICATION = KEPT / "translation", KEPT / "classification"

T = TypeVar("T")


def load(path: Path) -> transduce.Run:
    return transduce.load(path, device="cpu")


def over(service: Service, scenario: Callable[[Service], Awaitable[T]]) -> T:
    """The result of a scenario over a service that has loaded its runs."""

    async def play() -> T:
        service.start()
        try:
            await asyncio.to_thread(wait_for, lambda: service.ready or service.failure)
            return await scenario(service)
        finally:
            service.close()

    return asyncio.run(play())


def test_a_classifier() -> None:
    (spec,) = read_specs([CLASSIFICATION])
    service = Service([spec], load, ServeSettings())
    texts = ["a b c", "c b a", ""]
    expected = [answer.fields() for answer in load(CLASSIFICATION).predict(texts)]

    async def scenario(service: Service) -> None:
        (model,) = service.models()
        assert (model.name, model.task) == ("classification", "classification")
        assert model.inputs == ("text",) and model.ready and not model.decodes
        answers = await service.predict("classification", texts, Call(60))
        assert [answer.fields() for answer in answers] == expected
        parts = service.stream_prediction("classification", texts[0], Call(60))
        assert [part async for part in parts] == [answers[0].text]
        for call, message in [
            (service.predict("none", ["a"], Call(60)), "no model 'none'; use classification$"),
            (service.predict("classification", [["a", "b"]], Call(60)), "takes 1: text"),
            (service.predict("classification", ["a"], Call(60), {"beam_size": 2}), "not decode"),
            (service.translate(["a"], "de", "en", Call(60)), "not available"),
        ]:
            with pytest.raises(RequestError, match=message):
                await call

    over(service, scenario)


def test_a_run_with_several_targets_gets_their_tags() -> None:
    pairs = (("de", "fr"), ("de", "en"))
    spec = RunSpec("many", TRANSLATION, "translation", pairs, "target")
    run = load(TRANSLATION)

    async def scenario(service: Service) -> None:
        for target in ("fr", "en"):
            result = await service.translate(["abc.\nde"], "de", target, Call(60))
            expected = [run.translate(f"<{target}> {text}").text for text in ("abc.", "de")]
            assert result[0].text.split("\n") == expected
            parts = [part async for part in service.stream("abc.\nde", "de", target, Call(60))]
            assert "".join(part.text for part in parts) == result[0].text

    over(Service([spec], load, ServeSettings()), scenario)


def test_alternatives_do_not_change_the_translation() -> None:
    spec = RunSpec("de-en", TRANSLATION, "translation", (("de", "en"),))

    async def scenario(service: Service) -> None:
        (alone,) = await service.translate(["abc"], "de", "en", Call(60))
        (result,) = await service.translate(["abc"], "de", "en", Call(60), alternatives=3)
        assert result.text == alone.text and alone.alternatives == ()
        assert 0 < len(result.alternatives) <= 3 and result.text not in result.alternatives

    over(Service([spec], load, ServeSettings()), scenario)


def test_texts_of_other_pairs_are_passed_through_if_asked() -> None:
    """As Weblate's probe when its settings are saved: English to German, whatever is served."""
    spec = RunSpec("fr-en", TRANSLATION, "translation", (("fr", "en"),))

    async def scenario(service: Service) -> None:
        source, target = service.language("EN"), service.language("de")
        (one,) = await service.translate(["test"], source, target, Call(60))
        assert one.text == "test" and one.left[0].reason == "no run translates en to de"
        assert 'untranslated_total{reason="other"} 1' in service.metrics.text()
        with pytest.raises(RequestError, match="is not supported"):
            service.language("<b>")

    over(Service([spec], load, ServeSettings(pass_through=True)), scenario)
    refusing = Service([spec], load, ServeSettings())
    for call in (lambda: refusing.language("de"), lambda: refusing.path("en", "fr")):
        with pytest.raises(RequestError):
            call()


def test_requests_before_the_run_is_there_are_sent_away() -> None:
    service = Service(read_specs([CLASSIFICATION]), load, ServeSettings())
    assert not service.ready
    with pytest.raises(RequestError, match="loading") as caught:
        asyncio.run(service.predict("classification", ["a"], Call(60)))
    assert caught.value.status == 503


def test_requests_over_http_wait_for_the_runs() -> None:
    """But for those that need none, such as the one for readiness."""
    begun, go = threading.Event(), threading.Event()

    def slowly(path: Path) -> transduce.Run:
        begun.set()
        assert go.wait(60)
        return load(path)

    service = Service(read_specs([CLASSIFICATION]), slowly, ServeSettings())

    async def asked(app: Starlette, path: str, body: dict[str, Any] | None = None) -> int:
        sent: list[Any] = []
        parts = [{"type": "http.request", "body": json.dumps(body).encode()}]

        async def receive() -> Any:
            return parts.pop() if parts else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "server": ("a", 1),
            "method": "GET" if body is None else "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "client": ("b", 2),
            "headers": [(b"content-type", b"application/json")],
        }
        await app(scope, receive, send)
        status: int = sent[0]["status"]
        return status

    async def play() -> None:
        app = build_application(service)
        service.start()
        try:
            await asyncio.to_thread(begun.wait, 60)
            early = asyncio.create_task(asked(app, "/api/predict", {"inputs": ["a b"]}))
            assert await asked(app, "/health/ready") == 503
            assert not early.done()
            go.set()
            assert await early == 200
            for path in ("/health", "/health/ready"):
                assert await asked(app, path) == 200
            service.stores.status.update(workers=2, ready=1)
            assert service.health() == {"status": "degraded", "workers": 2, "ready": 1}
            service.stores.status["ready"] = 2
            assert service.health() == {"status": "ok", "workers": 2, "ready": 2}
        finally:
            go.set()
            service.close()

    asyncio.run(play())


def test_a_run_that_reads_files_is_refused() -> None:
    class Pictures:
        path = Path("pictures")

        class predictor:
            options = None
            inputs = ("image",)

    service = Service(read_specs([CLASSIFICATION]), lambda path: Pictures(), ServeSettings())  # type: ignore[arg-type,return-value]

    async def scenario(service: Service) -> Any:
        return service.failure

    failure = over(service, scenario)
    assert isinstance(failure, RunError) and "reads image files" in str(failure)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of a model of Firefox and two runs: English, Portuguese, German, French."""
    golden = Path(__file__).parents[1] / "golden" / "marian"
    (tmp_path / "enpt").mkdir()
    shutil.copy(golden / "attention.bin", tmp_path / "enpt" / "model.enpt.bin")
    shutil.copy(golden / "vocab.spm", tmp_path / "enpt")
    for source, target in (("pt", "de"), ("de", "fr")):
        copied = shutil.copytree(TRANSLATION, tmp_path / f"{source}-{target}")
        with (copied / "recipe.toml").open("a") as recipe:
            recipe.write(f'\n[languages]\nsource = "{source}"\ntarget = "{target}"\n')
    return tmp_path


PAIRS = [("en", "pt"), ("pt", "de"), ("de", "fr")]


def loaded(service: Service) -> list[str]:
    return sorted(name for name, queue in service._queues.items() if queue.run is not None)


@pytest.mark.system
def test_runs_of_a_folder_are_loaded_when_needed_and_leave_for_others(
    models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    specs = read_specs([models])
    texts = ["abc", "de ab"]
    alone = import_run(models / "enpt", tmp_path_factory.mktemp("alone") / "run")
    runs = {spec.pairs[0]: load(alone if spec.origin else spec.path) for spec in specs}
    expected = {pair: [run.translate(text).text for text in texts] for pair, run in runs.items()}
    imported = next(spec.path for spec in specs if spec.origin)
    monkeypatch.setattr(service_module, "run_bytes", lambda path: 1_000_000)
    service = Service(specs, load, ServeSettings(memory=2))

    async def translated(source: str, target: str) -> None:
        answers = await service.translate(texts, source, target, Call(60))
        assert [answer.text for answer in answers] == expected[source, target]

    async def scenario(service: Service) -> None:
        assert service.ready and loaded(service) == []
        assert set(service.languages.codes) == {"en", "pt", "de", "fr"} and loaded(service) == []
        assert all(model.ready for model in service.models()) and not imported.exists()
        await translated("en", "pt")
        assert loaded(service) == ["en-pt"] and imported.is_dir()
        await translated("pt", "de")
        await translated("en", "pt")
        await translated("de", "fr")
        assert loaded(service) == ["de-fr", "en-pt"]  # the least recently used has left
        await asyncio.gather(*(translated(*pair) for pair in PAIRS * 10))
        assert len(loaded(service)) <= 2
        assert service.count_tokens("de-fr", ["abc"]) == service.count_tokens("pt-de", ["abc"]) > 0

    over(service, scenario)


@pytest.mark.system
def test_without_a_bound_runs_of_a_folder_stay(models: Path) -> None:
    async def scenario(service: Service) -> None:
        for source, target in PAIRS[:2]:
            await service.translate(["abc"], source, target, Call(60))
        assert loaded(service) == ["en-pt", "pt-de"]

    over(Service(read_specs([models]), load, ServeSettings()), scenario)


def test_a_run_of_a_folder_that_cannot_be_loaded_leaves_the_others(models: Path) -> None:
    weights = models / "pt-de" / "weights.safetensors"
    service = Service(read_specs([models]), load, ServeSettings())
    content = weights.read_bytes()
    weights.write_bytes(content[:100])

    async def scenario(service: Service) -> None:
        for _ in range(2):
            with pytest.raises(RequestError, match="pt-de cannot be loaded") as caught:
                await service.translate(["abc"], "pt", "de", Call(60))
            assert caught.value.status == 500  # clients stop to ask after 503
        assert await service.translate(["abc"], "de", "fr", Call(60))
        weights.write_bytes(content)
        assert await service.translate(["abc"], "pt", "de", Call(60))
        assert service.ready and service.failure is None

    over(service, scenario)


@pytest.mark.system
def test_a_model_that_cannot_be_imported_leaves_the_others(models: Path) -> None:
    pieces = models / "enpt" / "vocab.spm"
    content = pieces.read_bytes()
    pieces.write_bytes(b"junk")

    async def scenario(service: Service) -> None:
        with pytest.raises(RequestError, match="en-pt cannot be loaded") as caught:
            await service.translate(["abc"], "en", "pt", Call(60))
        assert caught.value.status == 500
        assert await service.translate(["abc"], "de", "fr", Call(60))
        pieces.write_bytes(content)
        assert await service.translate(["abc"], "en", "pt", Call(60))

    over(Service(read_specs([models]), load, ServeSettings()), scenario)


def test_errors_of_loading_are_kept() -> None:
    def fail(path: Path) -> transduce.Run:
        raise SettingError("no such device")

    service = Service(read_specs([CLASSIFICATION]), fail, ServeSettings())

    async def scenario(service: Service) -> Any:
        return service.failure

    assert isinstance(over(service, scenario), SettingError)


def test_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    service = Service([], load, ServeSettings(api_keys=tmp_path / "keys"))
    service.check_key("secret")
    for key, status in ((None, 401), ("", 401), ("wrong", 403), (5, 403), ("\ud800", 403)):
        with pytest.raises(RequestError) as caught:
            service.check_key(key)
        assert caught.value.status == status
    Service([], load, ServeSettings()).check_key(None)


def test_suggestions_are_added_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "suggested.jsonl"
    service = Service([], load, ServeSettings(suggestions=file))
    service.suggest("a\nb", "ü", "de", "en")
    service.suggest("c", "d", "de", "en")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 2
    with pytest.raises(RequestError, match="disabled"):
        Service([], load, ServeSettings()).suggest("a", "b", "de", "en")


PIVOTED = [
    RunSpec("de-en", TRANSLATION, "translation", (("de", "en"),)),
    RunSpec("en-fr", TRANSLATION, "translation", (("en", "fr"),)),
]


def test_a_glossary_is_for_a_direct_pair_alone() -> None:
    asked: list[str] = []

    def glossary(sentence: str) -> tuple[()]:
        asked.append(sentence)
        return ()

    async def scenario(service: Service) -> None:
        await service.translate(["abc"], "de", "fr", Call(60), glossary=glossary)
        await service.translate(["<p>abc</p>"], "de", "fr", Call(60), html=True, glossary=glossary)
        async for _ in service.stream("abc", "de", "fr", Call(60), glossary=glossary):
            pass
        assert asked == []
        await service.translate(["abc"], "de", "en", Call(60), glossary=glossary)
        assert asked == ["abc"]

    over(Service(PIVOTED, load, ServeSettings(pivot=("en",))), scenario)


@pytest.mark.system  # imports in a process
def test_every_dialect_names_the_pivot(models: Path) -> None:
    shutil.copytree(CLASSIFICATION, models / "letters")
    settings = ServeSettings(pivot=("pt", "de"))
    shown = {
        "/translate": {"q": "abc", "source": "{}", "target": "{}"},
        "/v2/translate": {"text": ["abc"], "source_lang": "{}", "target_lang": "{}"},
        "/v1/translations": {"input": "abc", "source_language": "{}", "target_language": "{}"},
        "/v1/chat/completions": {"model": "{}-{}", "messages": [{"role": "user", "content": "a"}]},
        "/api/translate": {"q": "abc", "source": "{}", "target": "{}"},
        "/page/translate": {"q": "abc", "source": "{}", "target": "{}"},
    }

    async def scenario(service: Service) -> None:
        transport = httpx.ASGITransport(build_application(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            codes = {language["code"] for language in (await client.get("/languages")).json()}
            assert codes == {"en", "pt", "de", "fr"} and loaded(service) == []
            for path, fields in shown.items():
                for source, target, via in (("en", "de", "pt"), ("en", "pt", "")):
                    text = json.dumps(fields).replace("{}", source, 1).replace("{}", target, 1)
                    headers = {"Content-Type": "application/json"}
                    answer = await client.post(path, content=text, headers=headers)
                    assert answer.status_code == 200, answer.text
                    assert ('"via"' in answer.text and via in answer.text) or not via, path
                    assert via or re.search(r'"via":\s*\[\]|^(?!.*"via")', answer.text, re.S), path
            body = {"model": "letters", "inputs": ["a b c"]}
            answer = await client.post("/api/predict", json=body)
            assert answer.status_code == 200 and answer.json()["predictions"], answer.text

    over(Service(read_specs([models]), load, settings), scenario)


def test_untranslated_sentences_of_a_stream_are_counted() -> None:
    """As those of whole texts: one with characters of both private planes is not translated."""
    text = "abc.\n\U000f0000 and \U00100000\nde"

    async def scenario(service: Service) -> None:
        counted = []
        parts = [part async for part in service.stream(text, "de", "en", Call(60))]
        assert [part.record for part in parts].count(None) < len(parts)
        counted.append(untranslated_total(service))
        await service.translate([text], "de", "en", Call(60))
        counted.append(untranslated_total(service))
        assert counted == [1.0, 2.0]

    over(Service(PIVOTED[:1], load, ServeSettings()), scenario)


def untranslated_total(service: Service) -> float:
    lines = service.metrics.text().splitlines()
    return sum(float(line.split()[-1]) for line in lines if "untranslated_total{" in line)


def test_memory_is_reserved_until_a_request_lets_go() -> None:
    service = Service([], load, ServeSettings())
    most = service_module.MOST_RESERVED
    first = service.reserve(str(most - 10), most)
    with pytest.raises(RequestError) as caught:
        service.reserve("11", most)
    assert caught.value.status == 429
    second = service.reserve("10", most)
    with pytest.raises(RequestError):
        service.reserve("", 1)  # of an unknown length: the greatest
    assert (first.n_bytes, second.n_bytes) == (most - 10, 10)
    del first
    gc.collect()
    assert service.reserve("no number", 7).n_bytes == 7
    assert service.reserve(str(most), 5).n_bytes == 5


def test_an_index_is_that_of_the_text() -> None:
    def record(state: Any, source: str) -> Record:
        return Record("line 1", source, source, state, "why")

    good, failed = record("translated", "a"), record("needs-translation", "b")
    left = left_of_texts([Translated("A"), Translated("b", left=(failed,)), Translated("C")])
    assert [one["index"] for one in left] == [1]
    left = left_of_records([good, failed, good, good, failed])
    assert [one["index"] for one in left] == [1, 4]


def asked(run: Path, settings: ServeSettings, *requests: dict[str, Any]) -> list[httpx.Response]:
    """Answers to requests, one after the other, of a server of a run from German to English."""

    async def scenario(service: Service) -> list[httpx.Response]:
        transport = httpx.ASGITransport(build_application(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return [await client.request(**request) for request in requests]

    spec = RunSpec("de-en", run, "translation", (("de", "en"),))
    return over(Service([spec], load, settings), scenario)


def test_parts_of_a_sentence_that_are_unknown_are_named(tmp_path: Path) -> None:
    pair = {"source": "de", "target": "en"}
    texts = ["Rot 犬 gehen ☃ 犬.", "Rot %s 犬 gehen.", "Rot gehen.", "Rot 犬.\nGehen ☃."]
    requests = [
        {"method": "POST", "url": path, "json": {"q": text, **pair}}
        for path in ("/translate", "/api/translate", "/page/translate")
        for text in texts
    ]
    answers = asked(small_run(tmp_path, "de", "en"), ServeSettings(), *requests)
    last = [answer.text.rstrip().splitlines()[-1].removeprefix("data: ") for answer in answers]
    unknown = [json.loads(line).get("unknown") for line in last]
    assert unknown == [["犬", "☃"], ["犬"], None, ["犬", "☃"]] * 3


def test_metrics_and_recordings_refused_name_the_option() -> None:
    large = {"file": ("a.wav", bytes(2_100_000))}
    metrics, speech = asked(
        TRANSLATION,
        ServeSettings(max_recording=1),
        {"method": "GET", "url": "/metrics"},
        {"method": "POST", "url": "/page/speech", "files": large},
    )
    message = "no metrics; start the server with --metrics"
    assert metrics.status_code == 404
    assert metrics.json() == {"error": {"message": message, "kind": "not_found"}}
    assert speech.status_code == 413
    message = speech.json()["error"]["message"]
    assert "may have 1 MB: send it as MP3, Opus or FLAC" in message and "--max-rec" in message
