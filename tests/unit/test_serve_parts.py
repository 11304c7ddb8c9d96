"""Languages, detection, runs, limits, fields and streams of the server, without a server."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.command_line import environment
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, RunError, SettingError
from transduce.localise.sentences import split_sentences
from transduce.serve.calls import ClientGoneError, RequestError, bounded, busy
from transduce.serve.metrics import Metrics
from transduce.serve.requests import Fields
from transduce.serve.runs import Languages, make_run, read_specs
from transduce.serve.settings import ServeSettings, read_api_keys
from transduce.serve.storage import FileStore, translated_name
from transduce.serve.translator import StreamJoiner
from transduce.text.languages import Detector, canonical


@pytest.mark.system
def test_the_core_imports_no_torch() -> None:
    code = (
        "import sys; import transduce.serve.server, transduce.serve.service, transduce.cli.serve;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("DE", "de"),
        ("zh", "zh-Hans"),
        ("ZH-CN", "zh-Hans"),
        ("zt", "zh-Hant"),
        ("zh_hant", "zh-Hant"),
        ("pb", "pt-BR"),
        ("PT-br", "pt-BR"),
        ("es-419", "es-419"),
    ],
)
def test_codes(code: str, shown: str) -> None:
    assert canonical(code) == shown


def test_languages_and_ways() -> None:
    pairs = [("de", "en"), ("en", "fr"), ("en", "de"), ("pt-BR", "en")]
    direct, pivoted = Languages(pairs), Languages(pairs, ["EN"])
    assert direct.codes == ("en", "fr", "de", "pt-BR")
    assert direct.sources == ("en", "de", "pt-BR")
    assert direct.targets("de") == ["en", "de"]
    assert pivoted.targets("de") == ["en", "fr", "de"]
    assert pivoted.targets("fr") == ["fr"]
    assert pivoted.path("de", "fr") == [("de", "en"), ("en", "fr")]
    assert direct.path("de", "fr") is None and direct.path("de", "de") == []
    assert pivoted.resolve("EN-us") == "en" and pivoted.resolve("pt") == "pt-BR"
    assert pivoted.resolve("zz") is None


def test_a_pivot_of_no_run_is_refused_and_one_without_effect_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(SettingError, match="--pivot xx: no run has this language; they"):
        Languages([("de", "en")], ["xx"])
    with pytest.raises(SettingError, match="they have no language"):
        Languages([], ["en"])
    Languages([("de", "en"), ("en", "fr")], ["en"])
    assert not caplog.records
    Languages([("de", "en")], ["en", "de"])
    assert [record.getMessage() for record in caplog.records] == [
        "--pivot en has no effect: no run translates from it",
        "--pivot de has no effect: no run translates into it",
    ]


def test_a_folder_of_nothing_is_told_what_to_hold(tmp_path: Path) -> None:
    for name in ("empty", "files"):
        (tmp_path / name).mkdir()
    (tmp_path / "files/a.txt").touch()
    for name in ("empty", "files"):
        with pytest.raises(SettingError, match="give a run directory, or a folder of runs and of"):
            read_specs([tmp_path / name])


@pytest.mark.parametrize(
    "recipe",
    [b"task = [", b"\xff\xfe", b"languages = 3", b"[languages]\nsource = 3", b"evaluation = 'a'"],
)
def test_a_broken_run_of_a_folder_is_left_out(
    tmp_path: Path, recipe: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write_run(tmp_path / "good", PAIR.format("de", '"en"'))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "recipe.toml").write_bytes(recipe)
    with caplog.at_level("WARNING", "transduce"):
        assert [spec.name for spec in read_specs([tmp_path])] == ["de-en"]
    assert f"leaving out a run: {tmp_path / 'bad' / 'recipe.toml'}" in caplog.text
    with pytest.raises(SettingError, match=r"recipe\.toml"):
        read_specs([tmp_path / "bad"])


def test_a_run_has_the_name_of_its_canonical_pair(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", PAIR.format("zh", '"zh-Latn-pinyin"'))
    (spec,) = read_specs([run])
    assert spec.name == "-".join(spec.pairs[0]) == "zh-Hans-zh-Latn-pinyin"
    (spec,) = read_specs([], [f"zh-pt_BR={write_run(tmp_path / 'b', BARE)}"])
    assert spec.name == "zh-Hans-pt-BR"


def write_run(path: Path, recipe: str) -> Path:
    path.mkdir(parents=True)
    (path / "recipe.toml").write_text(recipe, encoding="utf-8")
    return path


BARE = 'task = "translation"\n'
PAIR = 'task = "translation"\n[languages]\nsource = "{}"\ntarget = {}\n'


def test_runs_are_named_by_their_pair_or_directory(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", PAIR.format("de", '"en"'))
    many = write_run(tmp_path / "many", PAIR.format("en", '["fr", "zh"]'))
    label = write_run(tmp_path / "label", 'task = "classification"\n')
    bare = write_run(tmp_path / "bare", 'task = "translation"\n')
    specs = read_specs([one, many, label], [f"pt-BR-zh-Hant={bare}"])
    assert [spec.name for spec in specs] == ["de-en", "many", "label", "pt-BR-zh-Hant"]
    assert specs[1].pairs == (("en", "fr"), ("en", "zh-Hans"))
    assert specs[1].tag("en", "fr") == "<fr> "
    assert specs[1].tag("en", "zh-Hans") == "<zh> "
    assert specs[2].pairs == () and specs[2].task == "classification"
    assert specs[3].pairs == (("pt-BR", "zh-Hant"),)


def test_mistakes_with_runs(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", PAIR.format("de", '"en"'))
    label = write_run(tmp_path / "label", 'task = "classification"\n')
    with pytest.raises(SettingError, match="both translate de to en"):
        read_specs([one], [f"de-en={one}"])
    with pytest.raises(SettingError, match="would both be served as 'label'"):
        read_specs([label, label])
    with pytest.raises(SettingError, match="nothing to serve"):
        read_specs([])
    with pytest.raises(SettingError, match="write it like de-en=RUN"):
        read_specs([], [f"deen={one}"])
    with pytest.raises(SettingError, match="task 'classification'"):
        read_specs([], [f"de-en={label}"])
    with pytest.raises(RunError, match="not a directory"):
        read_specs([tmp_path / "none"])


def loaded(*codes: str) -> Detector:
    detector = Detector(codes)
    detector.load()
    return detector


def test_detection_among_the_served_languages() -> None:
    detector = loaded("en", "de", "fr", "zh-Hans", "zh-Hant")
    for text, code in [
        ("Guten Morgen, wie geht es dir?", "de"),
        ("Good morning, how are you?", "en"),
        ("Bonjour, comment ça va ?", "fr"),
        ("我们都很喜欢这个国家", "zh-Hans"),
        ("我們都很喜歡這個國家", "zh-Hant"),
    ]:
        best, *_ = result = detector.detect(text)
        assert best.language == code and best.confidence > 50
        assert [one.confidence for one in result] == sorted(
            (one.confidence for one in result), reverse=True
        )
    assert detector.detect("12345 😀") == [("en", 0.0)]


def test_a_text_in_another_language_is_not_taken_for_a_served_one() -> None:
    detector = loaded("en", "de")
    best, *_ = detector.detect("Bonjour, comment ça va ? Je suis très content.")
    assert best.confidence < 5


def test_one_language_needs_no_model() -> None:
    detector = Detector(["de"])
    assert detector.ready
    assert detector.detect("Good morning") == [("de", 0.0)]
    assert detector.detect("😀") == [("de", 0.0)]
    assert Detector([]).detect("a") == []


def test_languages_unknown_to_the_detector() -> None:
    assert loaded("xx", "yy").detect("Hallo")[0].language == "xx"
    assert loaded("xx", "de").detect("Hallo")[0].language == "de"


def test_bounds_of_options() -> None:
    own = DecodingOptions(beam_size=20)
    assert bounded(own, {}) is own
    assert bounded(own, {"beam_size": 18, "prefix": "a"}) == DecodingOptions(
        beam_size=18, prefix="a"
    )
    for given_options, message in [
        ({"beam_size": 10_000}, "beam_size = 10000 exceeds 16"),
        ({"beam_size": "x"}, "beam_size"),
        ({"beam": 3}, "beam"),
        ({"max_tokens": 5000}, "max_tokens = 5000 exceeds"),
        ({"avoid": ["a"] * 65}, "avoid has 65 entries"),
        ({"batch_tokens": 1}, "cannot be chosen"),
    ]:
        with pytest.raises(RequestError, match=message) as caught:
            bounded(own, given_options)
        assert caught.value.status == 400
    with pytest.raises(RequestError, match="does not decode"):
        bounded(None, {"beam_size": 1})


def test_fields() -> None:
    fields = Fields({"a": "x", "l": ["p", "q"], "n": "7", "t": True, "e": "", "m": [1]})
    assert fields.text("a") == "x" and fields.texts("l") == ["p", "q"]
    assert fields.number("n", 0, 9) == 7 and fields.number("none", 3, 9) == 3
    assert fields.text("none", "d") == "d" and fields.text("e", "d") == "d"
    for call, message in [
        (lambda: fields.text("none"), "missing none parameter"),
        (lambda: fields.text("l"), "l parameter is not a string"),
        (lambda: fields.texts("m"), "not a list of strings"),
        (lambda: fields.texts("e"), "missing e"),
        (lambda: fields.number("n", 0, 5), r"\(7\) exceeds limit \(5\)"),
        (lambda: fields.number("t", 0, 5), "not a number"),
        (lambda: fields.number("a", 0, 5), "not a number"),
        (lambda: fields.file("none"), "missing none"),
        (lambda: fields.file("a"), "a is not a file; send it in a multipart form"),
    ]:
        with pytest.raises(RequestError, match=message):
            call()


def test_fields_that_nobody_follows_are_named() -> None:
    fields = Fields({"q": "a", "style": "x", "n": 1, "blank": "", "a\r\nb": 1, "unread": [2]})
    assert fields.text("q") and fields.number("n", 0, 9) and fields.get("absent") is None
    assert fields.ignored() == ["style", "unread"]
    fields.disregard("n")
    assert fields.ignored() == ["style", "n", "unread"]


@given(st.text(alphabet="aÄ.!? \n\r\t中。😀", max_size=40), st.data())
def test_streamed_parts_join_as_a_whole(text: str, data: Any) -> None:
    sentences = split_sentences(text, "de")
    outputs = [data.draw(st.text(alphabet="bc中 ", max_size=4)) for _ in sentences.texts]
    joiner = StreamJoiner(sentences)
    written = ""
    for index, output in enumerate(outputs):
        cut = data.draw(st.integers(0, len(output)))
        for part in (output[:cut], output[cut:], None):
            written += joiner.add(index, part)
    assert written + joiner.rest() == sentences.joined(outputs)


def test_metrics_in_the_text_format() -> None:
    metrics = Metrics()
    metrics.count("requests_total", endpoint='a"b', status="200")
    metrics.set("waiting", 3, run="de-en")
    for seconds in (0.02, 0.02, 100.0):
        metrics.observe("request_seconds", seconds)
    lines = metrics.text().splitlines()
    assert 'transduce_requests_total{endpoint="a\\"b",status="200"} 1' in lines
    assert 'transduce_waiting{run="de-en"} 3' in lines
    assert 'transduce_request_seconds_bucket{le="0.01"} 0' in lines
    assert 'transduce_request_seconds_bucket{le="0.025"} 2' in lines
    assert 'transduce_request_seconds_bucket{le="+Inf"} 3' in lines
    assert "transduce_request_seconds_sum 100.040000" in lines


def test_metrics_of_workers_are_added_and_gauges_of_dead_ones_are_not() -> None:
    workers = [Metrics(), Metrics()]
    for number, metrics in enumerate(workers, 1):
        metrics.count("requests_total", number)
        metrics.set("waiting", number, run="de-en")
        metrics.observe("request_seconds", 0.02)
    total = Metrics()
    total.add(pickle.loads(pickle.dumps(workers[0].state())))
    total.add(workers[1].state(), gauges=False)
    lines = total.text().splitlines()
    assert "transduce_requests_total 3" in lines and 'transduce_waiting{run="de-en"} 1' in lines
    assert "transduce_request_seconds_count 2" in lines
    assert "transduce_requests_total 1" in workers[0].text().splitlines()


def test_refusals_come_from_another_process_as_they_are() -> None:
    refusal = pickle.loads(pickle.dumps(busy("too many")))
    assert (refusal.status, refusal.kind, refusal.headers["Retry-After"]) == (
        429,
        "rate_limit",
        "1",
    )
    assert str(refusal) == "Slowdown: too many"
    assert pickle.loads(pickle.dumps(ClientGoneError())).status == 499


def test_files_stay_for_a_while() -> None:
    store = FileStore(most_bytes=10)
    first = store.add("a.txt", b"123456")
    assert store.get(first) == b"123456" and store.get("a.txt") is None
    second = store.add("b.txt", b"1234567")
    assert store.get(first) is None and store.get(second) == b"1234567"
    assert FileStore(seconds=0.0).get(FileStore(seconds=0.0).add("a", b"")) is None
    late = FileStore(seconds=-1.0)
    assert late.get(late.add("a", b"1")) is None


def test_names_of_translated_files() -> None:
    assert translated_name("a/b\\menu.de.txt", "en") == "menu.de_en.txt"
    assert translated_name("../../x.srt", "zh-Hans") == "x_zh-Hans.srt"
    assert translated_name("a\nb.txt", "en") == "ab_en.txt"


@pytest.mark.parametrize(
    "settings", [{"max_chars": 0}, {"max_alternatives": 16}, {"timeout": 0.0}, {"url_prefix": "mt"}]
)
def test_settings_have_bounds(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(SettingError, match=f"--{name.replace('_', '-')}"):
        ServeSettings(**settings)


def test_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\n\n one \ntwo\n", encoding="utf-8")
    assert read_api_keys(file) == {"one", "two"}
    file.write_text("# none\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no keys"):
        read_api_keys(file)
    with pytest.raises(DataError, match="no such file"):
        read_api_keys(tmp_path / "none")


@pytest.mark.system
def test_a_folder_stands_for_its_runs_and_models(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "marian"
    models = tmp_path / "models"
    shutil.copytree(Path(__file__).parents[1] / "runs" / "0.1.0" / "translation", models / "own")
    (models / "enpt").mkdir()
    shutil.copy(golden / "attention.bin", models / "enpt" / "model.enpt.bin")
    shutil.copy(golden / "vocab.spm", models / "enpt")
    (models / "notes").mkdir()
    specs = read_specs([models])
    run = models / ".transduce" / "enpt"
    assert [spec.path for spec in specs] == [run, models / "own"]
    assert (specs[0].name, specs[0].pairs) == ("en-pt", (("en", "pt"),))
    assert specs[0].origin == models / "enpt" and not run.exists()  # until it is needed
    for _ in range(2):
        make_run(models / "enpt", run)
        made = (run / "weights.safetensors").stat().st_mtime_ns
    assert [path.name for path in run.parent.iterdir()] == ["enpt"]
    again = read_specs([models])
    assert again[0] == dataclasses.replace(specs[0], origin=None)
    assert (run / "weights.safetensors").stat().st_mtime_ns == made
    shutil.rmtree(models / "own")
    shutil.rmtree(models / "enpt")
    with pytest.raises(SettingError, match="no folder in it is a run or a model"):
        read_specs([models])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "model.enfr.bin is not a whole model of Marian"),
        (struct.pack("<QQ4Q", 1, 1, 5, 0x404, 2, 1000), "model.enfr.bin is not a whole model"),
        (struct.pack("<QQ4Q", 1, 1 << 60, 5, 0x404, 2, 1), "model.enfr.bin is not a whole model"),
        (None, "several models"),
    ],
)
def test_a_broken_model_of_a_folder_is_named_at_the_start(
    content: bytes | None, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    golden = Path(__file__).parents[1] / "golden" / "marian"
    for pair in ("enfr", "enpt"):
        (tmp_path / pair).mkdir()
        shutil.copy(golden / "attention.bin", tmp_path / pair / f"model.{pair}.bin")
        shutil.copy(golden / "vocab.spm", tmp_path / pair)
    name = "model.enfr.bin" if content is not None else "model.other.bin"
    (tmp_path / "enfr" / name).write_bytes(content or b"")
    with caplog.at_level("WARNING", logger="transduce"):
        (spec,) = read_specs([tmp_path])
    assert spec.name == "en-pt" and message in caplog.text and str(tmp_path / "enfr") in caplog.text


def test_a_model_without_room_for_its_run_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_run(tmp_path / "good", PAIR.format("de", '"en"'))
    golden = Path(__file__).parents[1] / "golden" / "marian"
    (tmp_path / "model").mkdir()
    shutil.copy(golden / "attention.bin", tmp_path / "model" / "model.bin")
    shutil.copy(golden / "vocab.spm", tmp_path / "model")
    (tmp_path / ".transduce").touch()
    with caplog.at_level("WARNING", "transduce"):
        assert [spec.name for spec in read_specs([tmp_path])] == ["de-en"]
    assert "leaving out a run: " in caplog.text and str(tmp_path / ".transduce") in caplog.text


@pytest.mark.system
def test_a_model_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "marian"
    (tmp_path / "enpt").mkdir()
    shutil.copy(golden / "attention.bin", tmp_path / "enpt" / "model.enpt.bin")
    (tmp_path / "enpt" / "vocab.spm").write_bytes(b"junk")
    (spec,) = read_specs([tmp_path])
    with pytest.raises(DataError, match=r"vocab\.spm"):
        make_run(tmp_path / "enpt", spec.path)
    assert not spec.path.exists()
