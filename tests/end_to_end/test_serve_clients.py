"""Real clients of LibreTranslate, and recorded requests of others, against `transduce serve`."""

from __future__ import annotations

import urllib.error
import urllib.parse

import pytest

from helpers.served import Served

libretranslatepy = pytest.importorskip("libretranslatepy")
deep_translator = pytest.importorskip("deep_translator")


def test_libretranslatepy(server: Served, truth: dict[str, str]) -> None:
    client = libretranslatepy.LibreTranslateAPI(server.url)
    for text, translation in list(truth.items())[:5]:
        assert client.translate(text, "de", "en") == translation
    assert client.detect("Hallo, ich bin heute sehr müde.")[0]["language"] == "de"
    assert [language["code"] for language in client.languages()] == ["en", "fr", "de"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        client.translate("a", "xx", "en")
    with caught.value as error:
        assert error.code == 400


def deep(server: Served) -> deep_translator.LibreTranslator:
    """It has a list of languages of its own, and sends texts in the URL."""
    return deep_translator.LibreTranslator("de", "en", api_key="x", custom_url=server.url + "/")


def test_deep_translator(server: Served, truth: dict[str, str]) -> None:
    client = deep(server)
    texts = list(truth)[:4]
    assert client.translate(texts[0]) == truth[texts[0]]
    assert client.translate_batch(texts) == [truth[text] for text in texts]


def test_deep_translator_sends_long_texts_in_the_url(server: Served, truth: dict[str, str]) -> None:
    texts = list(truth) * 30
    asked = "\n".join(texts)[:9000].rpartition("\n")[0]
    assert len(urllib.parse.quote(asked)) > 9000
    translations = deep(server).translate(asked)
    assert translations.split("\n") == [truth[text] for text in asked.split("\n")]


def test_weblate_sends_a_list_as_json(server: Served, truth: dict[str, str]) -> None:
    texts = list(truth)[:20]
    body = {"q": texts, "source": "de", "target": "en", "api_key": "", "format": "text"}
    status, answer = server.ask("/translate", body)
    assert status == 200 and answer["translatedText"] == [truth[text] for text in texts]
    assert set(answer) <= {"translatedText", "unfinished"}
    status, languages = server.ask("/languages")
    assert {"code": "de", "name": "German", "targets": ["en", "fr", "de"]} in languages


def test_weblate_finds_each_placeholder_once(server: Served) -> None:
    texts = ["Rot [X6X] gehen.", "[X0X] müde [X1X]!", "Baum.\n\n  Rot [X7X]. Tür?", "[X3X]"]
    texts += ["%1$s Dank", 'Hallo <x id="6"></x> Baum']
    result = server.translated(texts)
    for text, translation in zip(texts, result, strict=True):
        for mark in ("[X6X]", "[X0X]", "[X1X]", "[X7X]", "[X3X]", "%1$s", '<x id="6"></x>'):
            assert translation.count(mark) == text.count(mark), (text, translation)
        assert translation.count("\n") == text.count("\n")
    assert result[2].startswith(server.translated("Baum.") + "\n\n  ") and result[3] == "[X3X]"


def test_livecaptions_asks_for_auto(server: Served, truth: dict[str, str]) -> None:
    text = next(text for text in truth if "ü" in text)
    body = {"q": text, "source": "auto", "target": "en", "api_key": None}
    status, answer = server.ask("/translate", body)
    assert status == 200 and set(answer) == {"translatedText", "detectedLanguage"}
    assert set(answer["detectedLanguage"]) == {"confidence", "language"}


def test_subtitleedit_asks_in_its_own_codes(server: Served, truth: dict[str, str]) -> None:
    """It sends up to 220 characters, several lines, and a key that is empty."""
    lines = list(truth)[:8]
    text = "\n".join(lines)[:220].rpartition("\n")[0]
    body = {"q": text, "source": "de", "target": "en", "format": "text", "api_key": ""}
    status, answer = server.ask("/translate", body)
    assert status == 200
    assert answer["translatedText"].split("\n") == [truth[line] for line in text.split("\n")]


def test_a_form_as_curl_sends_it(server: Served, truth: dict[str, str]) -> None:
    text = next(iter(truth))
    form = urllib.parse.urlencode({"q": text, "source": "DE", "target": "en"}).encode()
    kind = "application/x-www-form-urlencoded; charset=utf-8"
    status, answer = server.send("/translate", form, Content_Type=kind)
    assert (status, answer) == (200, {"translatedText": truth[text]})
