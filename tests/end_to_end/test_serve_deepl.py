"""The `deepl` client against `transduce serve`."""

from __future__ import annotations

import io
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.node import node_with, run_node
from helpers.served import Served, served

deepl = pytest.importorskip("deepl")

KEY = "secret"
AUTHORIZED = {"Authorization": f"DeepL-Auth-Key {KEY}"}


@pytest.fixture(scope="module")
def keyed(de_en: Path, en_fr: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\nother\n")
    with served(de_en, en_fr, "--pivot", "en", "--api-keys", keys) as result:
        yield result


@pytest.fixture
def client(keyed: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)
    result = deepl.DeepLClient(KEY, server_url=keyed.url)
    yield result
    result.close()


def test_texts(client: Any, truth: dict[str, str]) -> None:
    texts = list(truth)[:5]
    result = client.translate_text(texts, source_lang="DE", target_lang="EN-US")
    assert [one.text for one in result] == [truth[text] for text in texts]
    assert {one.detected_source_lang for one in result} == {"DE"}
    assert [one.billed_characters for one in result] == list(map(len, texts))
    one = client.translate_text(texts[0], target_lang="EN-GB", formality="prefer_more")
    assert one.text and one.billed_characters == len(texts[0])
    german, english = "Ich bin heute sehr müde.", "I am very tired today."
    mixed = client.translate_text([german, english, "1"], target_lang="FR")
    assert [one.detected_source_lang for one in mixed[:2]] == ["DE", "EN"]
    both = client.translate_text([german, english], target_lang="EN-US")
    assert both[1].text == english


def test_a_form(keyed: Served, truth: dict[str, str]) -> None:
    texts = list(truth)[:2]
    form = [("text", text) for text in texts] + [("target_lang", "en"), ("source_lang", "de")]
    kind = "application/x-www-form-urlencoded"
    status, answer = keyed.send(
        "/v2/translate",
        urllib.parse.urlencode([*form, ("split_sentences", "0")]).encode(),
        Content_Type=kind,
        **AUTHORIZED,
    )
    assert status == 200
    assert [one["text"] for one in answer["translations"]] == [truth[text] for text in texts]


def test_languages_and_usage(client: Any, keyed: Served) -> None:
    assert [(language.code, language.name) for language in client.get_source_languages()] == [
        ("EN", "English"),
        ("DE", "German"),
    ]
    targets = client.get_target_languages()
    assert [target.code for target in targets] == ["EN-GB", "EN-US", "FR"]
    assert not targets[0].supports_formality
    status, result = keyed.ask("/v2/languages?type=target", **AUTHORIZED)
    assert status == 200 and [one["language"] for one in result] == ["EN-GB", "EN-US", "FR"]
    before = client.get_usage().character.count
    client.translate_text("Rot.", source_lang="DE", target_lang="FR")
    assert client.get_usage().character.count == before + 4
    assert not client.get_usage().any_limit_reached
    other = {"Authorization": "DeepL-Auth-Key other"}
    assert keyed.ask("/v2/usage", **other)[1]["character_count"] == 0


@pytest.mark.parametrize(
    "text",
    [
        'Rot <x id="6"></x> gehen.',
        "Rot <b>Baum</b> gehen.",
        "Rot <x:b y='1'>Baum</x:b> <x:i/> gehen.",
        "Hallo &amp; Dank.",
        "Rot [X6X] gehen. Baum %(name)s!",
        '<p>Rot <a href="x">Baum</a>.</p>\n<p>Müde!</p>',
    ],
)
@pytest.mark.parametrize("kind", ["xml", "html", None])
def test_tags_and_placeholders_come_out_once(client: Any, text: str, kind: str | None) -> None:
    result = client.translate_text(text, source_lang="DE", target_lang="EN-US", tag_handling=kind)
    entity = "" if kind == "html" else "|&amp;"  # of HTML, a character like others
    marks = re.compile(rf"</?\w[^>]*>|\[X6X\]|%\(name\)s{entity}")
    assert sorted(marks.findall(result.text)) == sorted(marks.findall(text))


@pytest.mark.parametrize("kind", ["xml", "html"])
def test_ignored_elements(client: Any, kind: str) -> None:
    text = "Rot <keep a='1'>hallo <keep>Baum</keep> Tür</keep> gehen. <stay>Dank</stay>!"
    for tags in (["keep", "stay"], "keep,stay"):
        result = client.translate_text(
            text, source_lang="DE", target_lang="EN-US", tag_handling=kind, ignore_tags=tags
        )
        assert result.text.count("<keep a='1'>hallo <keep>Baum</keep> Tür</keep>") == 1
        assert result.text.count("<stay>Dank</stay>") == 1 and "<code" not in result.text


def test_glossaries(client: Any, keyed: Served) -> None:
    entries = {"Baum": "hallo", "rot gehen": "müde Tür"}
    made = client.create_glossary("terms", "DE", "EN-US", entries)
    assert (made.name, made.ready, made.entry_count) == ("terms", True, 2)
    assert (made.source_lang, made.target_lang) == ("DE", "EN")
    assert client.get_glossary(made.glossary_id).glossary_id == made.glossary_id
    assert client.get_glossary_entries(made) == entries
    assert made.glossary_id in [glossary.glossary_id for glossary in client.list_glossaries()]
    pairs = [
        (language.source_lang, language.target_lang) for language in client.get_glossary_languages()
    ]
    assert pairs == [("de", "en"), ("en", "fr")]
    asked = ["Fa Baum.\nRot gehen!", "Baumes rot."]
    plain = client.translate_text(asked, source_lang="DE", target_lang="EN-US")
    result = client.translate_text(asked, source_lang="DE", target_lang="EN-US", glossary=made)
    first, second = result[0].text.split("\n")
    assert "hallo" in first.lower() and "müde tür" not in first.lower()
    assert "müde tür" in second.lower()
    assert result[1].text == plain[1].text  # no whole word of a term
    tagged = client.translate_text(
        "Fa <b>Baum</b>.", source_lang="DE", target_lang="EN-US", glossary=made, tag_handling="xml"
    )
    assert tagged.text.count("<b>") == 1
    with pytest.raises(deepl.DeepLException, match="the glossary is for de to en"):
        client.translate_text("a", source_lang="EN", target_lang="FR", glossary=made.glossary_id)
    client.delete_glossary(made)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary(made.glossary_id)
    assert (
        client.create_glossary_from_csv("csv", "DE", "EN", 'Baum,"a, b",de,en\n').entry_count == 1
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"entries": "a"}, "entry 1 of the glossary is not a source and a target"),
        ({"entries": "a\t \n"}, "lacks a source or a target"),
        ({"entries": "a\tb\na\tc"}, "has the source of an earlier one"),
        ({"entries": "\n\n"}, "has no entries"),
        ({"entries": "a\t" + "b" * 1001}, "exceeds 1000 characters"),
        ({"entries_format": "xls"}, "none of tsv, csv"),
        ({"target_lang": "fr"}, "no run translates de to fr directly"),
        ({"target_lang": "xx"}, "xx is not supported"),
        ({"name": 5}, "name parameter is not a string"),
    ],
)
def test_mistakes_in_glossaries(keyed: Served, fields: dict[str, object], message: str) -> None:
    good = {"name": "a", "source_lang": "de", "target_lang": "en", "entries": "a\tb"}
    status, answer = keyed.ask("/v2/glossaries", {**good, **fields}, **AUTHORIZED)
    assert status == 400 and message in answer["message"]


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"text": []}, 400, "missing text"),
        ({"text": [5]}, 400, "not a list of strings"),
        ({"target_lang": None}, 400, "missing target_lang"),
        ({"target_lang": "XX"}, 400, "XX is not supported"),
        ({"source_lang": "FR"}, 400, "not available as a target"),
        ({"text": "a" * 30_000}, 413, "exceeds text limit"),
        ({"tag_handling": "md"}, 400, "none of html, xml"),
        ({"formality": "more"}, 400, "formality cannot be demanded"),
        ({"split_sentences": 7}, 400, "split_sentences"),
        ({"glossary_id": "x"}, 404, "no such glossary"),
        ({"tag_handling": "xml", "ignore_tags": "a b"}, 400, "not the name of an element"),
    ],
)
def test_mistakes(keyed: Served, fields: dict[str, object], status: int, message: str) -> None:
    good = {"text": ["Rot."], "source_lang": "DE", "target_lang": "EN"}
    result, answer = keyed.ask("/v2/translate", {**good, **fields}, **AUTHORIZED)
    assert (result, set(answer)) == (status, {"message"}) and message in answer["message"]


def test_keys(keyed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)
    client = deepl.DeepLClient("wrong", server_url=keyed.url)
    for ask in (client.get_usage, client.get_source_languages, client.list_glossaries):
        with pytest.raises(deepl.AuthorizationException):
            ask()
    client.close()
    good = {"text": ["Rot."], "source_lang": "DE", "target_lang": "EN"}
    assert keyed.ask("/v2/translate", {**good, "auth_key": KEY})[0] == 200
    assert keyed.ask("/v2/translate", good)[0] == 403
    assert keyed.ask("/v2/nothing")[1] == {"message": "Not Found"}


def done(client: Any, handle: Any) -> Any:
    """The status of a document once it is translated, without the client's pauses."""
    while (status := client.translate_document_get_status(handle)).ok and not status.done:
        pass
    return status


def test_documents(
    client: Any, tmp_path: Path, truth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = list(truth)[:3]
    subtitles = "".join(
        f"{i}\n00:00:0{i},000 --> 00:00:0{i},900\n{text}\n\n" for i, text in enumerate(texts, 1)
    )
    handle = client.translate_document_upload(
        io.BytesIO(subtitles.encode()), source_lang="DE", target_lang="EN-US"
    )
    status = done(client, handle)
    assert status.done and status.billed_characters == len(subtitles)
    expected = subtitles
    for text in texts:
        expected = expected.replace(text, truth[text])
    out = io.BytesIO()
    client.translate_document_download(handle, out, chunk_size=1000)
    assert out.getvalue().decode() == expected
    with pytest.raises(deepl.DeepLException):  # fetched once
        client.translate_document_get_status(handle)
    monkeypatch.setattr(deepl.translator.time, "sleep", lambda seconds: None)
    (tmp_path / "a.txt").write_text("\n".join(texts), encoding="utf-8")
    client.translate_document_from_filepath(
        tmp_path / "a.txt", tmp_path / "b.txt", source_lang="DE", target_lang="EN-US"
    )
    written = (tmp_path / "b.txt").read_text(encoding="utf-8")
    assert written.split("\n") == [truth[text] for text in texts]


def test_mistakes_in_documents(client: Any, keyed: Served) -> None:
    with pytest.raises(deepl.DeepLException, match=r"no format for \.doc"):
        client.translate_document_upload(b"a", filename="a.doc", target_lang="EN-US")
    handle = client.translate_document_upload(
        b"\xff\xfe\xfa", filename="a.txt", source_lang="DE", target_lang="EN-US"
    )
    status = done(client, handle)
    assert not status.ok and "a.txt" in status.error_message
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_document_get_status(deepl.DocumentHandle(handle.document_id, "x"))
    with pytest.raises(deepl.DeepLException, match="Bad request"):
        client.translate_document_download(handle)
    body = {"document_key": "x"}
    assert keyed.ask("/v2/document/..%2f..%2fetc%2fpasswd", body, **AUTHORIZED)[0] == 404


NODE = """
import * as deepl from "deepl-node";
const [serverUrl, key, text] = process.argv.slice(2);
const client = new deepl.DeepLClient(key, { serverUrl, maxRetries: 0 });
const one = await client.translateText(text, "de", "en-US");
const targets = await client.getTargetLanguages();
const usage = await client.getUsage();
const entries = new deepl.GlossaryEntries({ entries: { Baum: "hallo" } });
const glossary = await client.createGlossary("terms", "de", "en", entries);
const with_terms = await client.translateText("Fa Baum.", "de", "en-US", { glossary });
await client.deleteGlossary(glossary);
const file = Buffer.from(text);
const handle = await client.uploadDocument(file, "de", "en-US", { filename: "a.txt" });
let status = await client.getDocumentStatus(handle);
while (!status.done()) status = await client.getDocumentStatus(handle);
console.log(JSON.stringify({ text: one.text, language: one.detectedSourceLang,
  targets: targets.map((l) => l.code), count: usage.character.count,
  with_terms: with_terms.text, status: status.status }));
"""


@pytest.mark.slow
def test_the_client_for_node(keyed: Served, truth: dict[str, str], tmp_path: Path) -> None:
    place = node_with(tmp_path, "deepl-node")
    text = next(iter(truth))
    result = run_node(place, NODE, keyed.url, KEY, text)
    assert result["text"] == truth[text] and result["language"] == "de"
    assert result["targets"] == ["en-GB", "en-US", "fr"] and result["count"] > 0
    assert "hallo" in result["with_terms"].lower() and result["status"] == "done"
