"""LibreTranslate's API, field by field, against `transduce serve`."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from email.message import Message
from pathlib import Path, PurePath
from typing import Any

import pytest

from helpers.message_samples import SAMPLES, docx
from helpers.served import Served, library, served, small_run
from transduce.errors import DataError
from transduce.localise.document import document_with
from transduce.localise.formats import FORMATS, read_document
from transduce.localise.memory import with_matches
from transduce.localise.translate import aligner, localised
from transduce.tasks.translation.translator import Translator

GOOD = {"q": "Rot gehen.", "source": "de", "target": "en"}
FORM = "application/x-www-form-urlencoded"


def asked(server: Served, **fields: object) -> tuple[int, Any]:
    return server.ask("/translate", {**GOOD, **fields})


def test_unknown_letters_of_a_list_are_named_with_their_text_and_line(tmp_path: Path) -> None:
    with served(small_run(tmp_path / "run", "de", "en")) as server:
        texts = ["Rot gehen.", "Dank.\nRot жen gehen."]
        assert server.translated(texts, source="de", target="en") is not None
        warned = [line for line in server.lines if "unknown to the model" in line]
    assert len(warned) == 1 and "text 2, line 2: 1 of " in warned[0], server.lines


def test_fields_come_by_any_way(server: Served) -> None:
    (_, expected) = asked(server)
    rest = {"source": "de", "target": "en"}
    query = urllib.parse.urlencode(GOOD)
    assert server.ask(f"/translate?{query}", method="POST") == (200, expected)
    assert server.send("/translate", query.encode(), Content_Type=FORM) == (200, expected)
    q = urllib.parse.urlencode({"q": GOOD["q"]})
    assert server.ask(f"/translate?{q}", rest) == (200, expected)
    boundary = b"--b\r\nContent-Disposition: form-data; name="
    parts = b"".join(
        boundary + f'"{name}"\r\n\r\n{value}\r\n'.encode() for name, value in GOOD.items()
    )
    kind = "multipart/form-data; boundary=b"
    assert server.send("/translate", parts + b"--b--\r\n", Content_Type=kind) == (200, expected)
    # JSON only where the content type says so, as in LibreTranslate
    status, answer = server.send("/translate", json.dumps(GOOD).encode(), Content_Type="text/plain")
    assert (status, answer) == (400, {"error": "Invalid request: missing q parameter"})


def test_a_list_in_a_form(server: Served) -> None:
    data = urllib.parse.urlencode([("q", "Rot."), ("q", "Baum."), *list(GOOD.items())[1:]])
    status, answer = server.send("/translate", data.encode(), Content_Type=FORM)
    assert status == 200 and answer["translatedText"] == server.translated(["Rot.", "Baum."])


def test_lines_blanks_and_emoji_stay(server: Served, de_en: Path) -> None:
    run = library(de_en)
    first, second, third = (
        translation.text for translation in run.translate(["Rot gehen!", "Baum?", "Dank."])
    )
    text = "  Rot gehen!  Baum?\r\n\r\n\tDank.\n😀 👍\n"
    assert server.translated(text) == f"  {first}  {second}\n\n\t{third}\n😀 👍\n"
    assert server.translated(["", " ", "\n", "😀"]) == ["", " ", "\n", "😀"]


def test_alternatives(server: Served) -> None:
    status, answer = asked(server, alternatives=3)
    assert status == 200 and 1 <= len(answer["alternatives"]) <= 3
    every = [answer["translatedText"], *answer["alternatives"]]
    assert len(set(every)) == len(every)
    assert asked(server, alternatives="3") == (200, answer)
    _, many = asked(server, q=["Rot gehen.", ""], alternatives=3)
    assert many["alternatives"] == [answer["alternatives"], []]
    assert "alternatives" not in asked(server, alternatives=0)[1]


def test_alternatives_of_several_sentences_change_one(server: Served) -> None:
    _, answer = asked(server, q="Rot gehen.\nMüde Tür.", alternatives=4)
    best = answer["translatedText"].split("\n")
    assert answer["alternatives"]
    for other in answer["alternatives"]:
        lines = other.split("\n")
        assert len(lines) == 2 and sum(a != b for a, b in zip(best, lines, strict=True)) == 1


def test_html(server: Served) -> None:
    text = (
        '<p class="a">Rot <b>gehen</b>. <br/>Müde &amp; Tür?</p>\n<script>Rot.</script><!-- x -->'
    )
    result = server.translated(text, format="html")
    for part in ('<p class="a">', "<br/>", "</p>\n<script>Rot.</script><!-- x -->"):
        assert result.count(part) == 1
    assert result.count("<b>") == result.count("</b>") == 1
    assert server.translated("<b></b>", format="html") == "<b></b>"
    whole = server.translated("<p>Rot gehen.</p>", format="html")
    assert whole == f"<p>{server.translated('Rot gehen.')}</p>"
    assert server.translated("Rot &amp; Tür.").count("&amp;") == 1


def upload(server: Served, name: str, data: bytes, source: str = "de") -> tuple[int, Any]:
    head = "--b\r\nContent-Disposition: form-data; name="
    body = f'{head}"file"; filename="{name}"\r\n\r\n'.encode() + data
    body += f'\r\n{head}"source"\r\n\r\n{source}\r\n{head}"target"\r\n\r\nen\r\n'.encode()
    kind = "multipart/form-data; boundary=b"
    return server.send("/translate_file", body + b"--b--\r\n", Content_Type=kind)


SUBTITLES = b"1\r\n00:00:01,000 --> 00:00:02,500\r\n%s\r\n\r\n"


def test_files_come_back_in_their_format(server: Served) -> None:
    status, answer = upload(server, "menu.srt", SUBTITLES % b"Rot gehen.")
    assert status == 200
    url = answer["translatedFileUrl"]
    assert url.startswith(f"{server.url}/download_file/") and url.endswith(".menu_en.srt")
    expected = SUBTITLES % server.translated("Rot gehen.").encode()
    with urllib.request.urlopen(url) as result:
        assert result.read() == expected
        assert "menu_en.srt" in result.headers["content-disposition"]
    catalogue = b'msgid "Rot gehen."\nmsgstr "%s"\n\nmsgid "Ja"\nmsgstr "Yes"\n'
    _, answer = upload(server, "a.po", catalogue % b"")
    with urllib.request.urlopen(answer["translatedFileUrl"]) as result:
        expected = catalogue % server.translated("Rot gehen.").encode()
        assert result.read() == b"#, fuzzy\n" + expected
    status, answer = upload(server, "a.txt", "Ich bin müde.\n".encode(), "auto")
    assert status == 200 and answer["translatedFileUrl"].endswith(".a_en.txt")
    assert server.ask("/frontend/settings")[1]["supportedFilesFormat"][:2] == [".txt", ".srt"]


LANGUAGE = re.compile(rb"(?<=[\":' \t,])(en|de)(?=[\"'\\\t,\r-])")


def swapped_language(match: re.Match[bytes]) -> bytes:
    """The other language of the samples, whose targets are German."""
    return b"de" if match[1] == b"en" else b"en"


def as_localised(translator: Translator, name: str, content: bytes) -> bytes | str:
    """The document as `transduce localise` writes it, or its error."""
    read = read_document(name, content, source_language="de", target_language="en")
    document = with_matches(read).limited(["missing"])
    records = localised(
        document.segments,
        "de",
        translator.attempt,
        translator.options,
        aligner(translator),
        "en",
        lambda order: translator.inspect(order.words),
    )
    made = document_with(document, records)
    try:
        made.check("")
    except DataError as error:
        return str(error)
    return made.content


def test_files_of_every_format_are_as_localise_writes_them(server: Served, de_en: Path) -> None:
    assert server.ask("/frontend/settings")[1]["supportedFilesFormat"] == list(FORMATS)
    translator, translated = library(de_en).translator, set()
    others = {name: LANGUAGE.sub(swapped_language, text) for name, (text, _) in SAMPLES.items()}
    files = [*((name, text) for name, (text, _) in SAMPLES.items()), *others.items()]
    for name, content in files:
        expected = as_localised(translator, name, content)
        status, answer = upload(server, name, content)
        if isinstance(expected, str):
            assert (status, answer["error"]) == (400, expected), name
            continue
        assert status == 200, (name, answer)
        with urllib.request.urlopen(answer["translatedFileUrl"]) as result:
            assert result.read() == expected, name
        translated |= {PurePath(name).suffix} if expected != content else set()
    known = {PurePath(name).suffix for name in SAMPLES}
    assert translated >= known - {".tmx"}  # whose only unit has tags


def test_prose_is_translated_in_its_form(server: Served) -> None:
    page = b"# Ich bin **sehr** m\xc3\xbcde.\n\nIch sehe den Hund.\n"
    run = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    file = docx(run.format("Ich bin sehr müde.") + run.format("Ich sehe den Hund."))
    for name, content in (("a.md", page), ("a.docx", file)):
        status, answer = upload(server, name, content, "auto")
        assert status == 200, answer
        with urllib.request.urlopen(answer["translatedFileUrl"]) as result:
            document = read_document(name, result.read())
        expected = server.translated("Ich sehe den Hund.")
        assert document.segments[1].source == expected


def test_files_that_are_refused(server: Served) -> None:
    for name, data, message in [
        ("a.xyz", b"Rot.", "no format for .xyz"),
        ("a.pdf", b"%PDF", "PDF cannot be edited"),
        ("a.txt", b"\xff\xfe\xff", "utf-16"),
        ("../../etc/passwd", b"Rot.", "no format"),
        ("", b"Rot.", "file: no format"),
    ]:
        status, answer = upload(server, name, data)
        assert status == 400 and message in answer["error"]
    assert upload(server, "a.txt", b"Rot. " * 700_000)[0] == 413
    for name in ("none.txt", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00"):
        assert server.ask(f"/download_file/{name}")[0] == 404
    assert server.ask("/suggest", {"q": "a", "s": "b", "source": "de", "target": "en"})[0] == 403


def test_auto(server: Served) -> None:
    status, answer = asked(server, q=["Ich bin heute sehr müde.", "Rot."], source="auto")
    assert status == 200
    assert [one["language"] for one in answer["detectedLanguage"]] == ["de", "de"]
    assert answer["detectedLanguage"][0]["confidence"] > 50
    _, answer = asked(server, q="😀", source="auto")
    assert answer["translatedText"] == "😀"
    assert answer["detectedLanguage"]["confidence"] == 0


def test_detect(server: Served) -> None:
    status, result = server.ask("/detect", {"q": "Good morning, this is an English text."})
    assert status == 200 and result[0]["language"] == "en"
    status, result = server.ask("/detect", {"q": ["Guten Morgen, ich bin sehr müde."]})
    assert status == 200 and result[0]["language"] == "de"


def test_the_same_language_and_the_pivot(server: Served) -> None:
    assert asked(server, target="de") == (200, {"translatedText": GOOD["q"]})
    (_, english) = asked(server)
    (_, french) = asked(server, q=english["translatedText"], source="en", target="fr")
    assert asked(server, target="fr") == (200, {**french, "via": ["en"]})


def test_languages(server: Served) -> None:
    expected = [
        {"code": "en", "name": "English", "targets": ["en", "fr"]},
        {"code": "fr", "name": "French", "targets": ["fr"]},
        {"code": "de", "name": "German", "targets": ["en", "fr", "de"]},
    ]
    assert server.ask("/languages") == (200, expected)
    assert server.ask("/languages", {}) == (200, expected)


def test_settings_health_and_spec(server: Served) -> None:
    status, settings = server.ask("/frontend/settings")
    assert status == 200 and settings["charLimit"] == 20_000 and settings["apiKeys"] is False
    assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert server.ask("/health") == (200, {"status": "ok"})
    status, spec = server.ask("/spec")
    assert status == 200 and "post" in spec["paths"]["/translate"]
    assert server.ask("/spec", {})[0] == 405


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "zz"}, "zz is not supported"),
        ({"source": "fr"}, "English (en) is not available as a target language from French (fr)"),
        ({"format": "xml"}, "xml format is not supported"),
        ({"alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": None}, "Invalid request: alternatives parameter is not a number"),
        ({"q": "a" * 20_001}, "Invalid request: request (20001) exceeds text limit (20000)"),
        ({"q": [""] * 1001}, "Invalid request: request (1001) exceeds text limit (1000)"),
        ({"q": 5}, "Invalid request: q parameter is not a string"),
        ({"q": [5]}, "Invalid request: q parameter is not a list of strings"),
    ],
)
def test_errors(server: Served, fields: dict[str, object], message: str) -> None:
    assert asked(server, **fields) == (400, {"error": message})


def test_other_errors(server: Served) -> None:
    assert server.ask("/translate")[0] == 405
    assert server.ask("/nothing") == (404, {"error": "Not Found"})
    kind = "application/json"
    for body in (b"{", b"[1]", b"[" * 100_000, b'{"q": "\xff"}'):
        status, answer = server.send("/translate", body, Content_Type=kind)
        assert (status, answer) == (400, {"error": "Invalid JSON format"})


def test_every_page_may_ask(server: Served) -> None:
    headers = {"Origin": "http://other.example", "Access-Control-Request-Method": "POST"}
    request = urllib.request.Request(f"{server.url}/translate", headers=headers, method="OPTIONS")
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "POST" in answer.headers["access-control-allow-methods"]


LOST = "Rot \U000f0000 \U00100000."
"""A text that cannot be translated: its placeholders would have no marks."""


def answered(server: Served, path: str, body: object) -> tuple[Any, Message]:
    """JSON and headers of an answer."""
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read()), answer.headers


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/translate", {"q": ["Rot.", f"Rot.\n{LOST}"], "source": "de", "target": "en"}),
        ("/translate", {"q": ["Rot.", LOST], "source": "de", "target": "en", "format": "html"}),
        ("/v2/translate", {"text": ["Rot.", LOST], "source_lang": "DE", "target_lang": "EN"}),
        (
            "/v1/chat/completions",
            {"model": "de-en", "messages": [{"role": "user", "content": LOST}]},
        ),
    ],
)
def test_a_text_that_stays_is_named(server: Served, path: str, fields: dict[str, Any]) -> None:
    answer, headers = answered(server, path, {**fields, "context": "x", "a b": 1})
    (left,) = answer["untranslated"]
    assert left["index"] == (0 if "messages" in fields else 1)
    assert "the text has characters of both private planes" in left["reason"]
    assert headers["Transduce-Untranslated"] == "1"
    assert headers["Transduce-Ignored"] == "context"
    assert LOST in json.dumps(answer, ensure_ascii=False)
    good = json.loads(json.dumps(fields).replace(json.dumps(LOST)[1:-1], "Rot."))
    answer, headers = answered(server, path, good)
    assert "untranslated" not in answer
    assert "Transduce-Untranslated" not in headers and "Transduce-Ignored" not in headers


def test_a_stream_and_a_file_name_what_stays(server: Served) -> None:
    _, text = server.ask("/api/translate", {"q": f"Rot.\n{LOST}", "source": "de", "target": "en"})
    assert LOST in text and json.loads(text.split("data: ")[-1])["untranslated"][0]["index"] == 1
    status, answer = upload(server, "a.txt", f"Rot.\n{LOST}\n".encode())
    assert status == 200 and [one["index"] for one in answer["untranslated"]] == [1]
