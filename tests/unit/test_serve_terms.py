"""Terms, glossaries and documents of the server, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from transduce.decoding.options import MOST_PHRASES
from transduce.localise.checks import Terms
from transduce.localise.document import LocalisedDocument, untranslated_record
from transduce.serve import storage
from transduce.serve.calls import Call, RequestError
from transduce.serve.dialects.deepl import document_name, with_elements, without_elements
from transduce.serve.storage import (
    BackgroundDocument,
    Documents,
    Glossaries,
    StoredGlossary,
    translated_later,
)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("der rote Baum", ("tree",)),
        ("Baumes, Baumarkt, aBaum", ()),
        ("(Baum)Baum", ("tree",)),
        ("Roter Baum rot", ("red tree", "red")),
        ("ROT", ()),
        ("这是中国人", ("Chinese",)),
        ("", ()),
    ],
)
def test_terms_in_a_sentence(text: str, result: tuple[str, ...]) -> None:
    terms = Terms(
        {
            "Baum": "tree",
            "roter Baum": "red tree",
            "rot": "red",
            "中国人": "Chinese",
            "中国": "China",
        }
    )
    assert tuple(constraint[0] for constraint in terms.constraints(text)) == result


def test_a_translation_has_a_capital_at_the_beginning_alone() -> None:
    assert Terms({"rot": "red"}).constraints("Rot.") == (("red", "Red"),)
    assert Terms({"Hund": "hound"}).constraints("Der Hund.") == (("hound",),)
    assert Terms({"Hund": "hound"}).constraints("„Hund und Hund“") == (("hound", "Hound"),)
    assert Terms({"iPhone": "iPhone"}).constraints("iPhone da") == (("iPhone",),)
    assert Terms({"中": "中"}).constraints("中中") == (("中",),)


def test_as_many_terms_as_constraints_may_be() -> None:
    words = [f"w{i}" for i in range(2 * MOST_PHRASES)]
    result = Terms({word: word.upper() for word in words}).constraints(" ".join(words))
    assert len(result) == MOST_PHRASES


def test_the_work_for_a_sentence_depends_on_no_other_terms() -> None:
    compared: list[str] = []

    class Word(str):
        def __contains__(self, term: object) -> bool:
            compared.append(str(term))
            return super().__contains__(term)  # type: ignore[operator]

    terms = Terms({f"w{i:05}": "x" for i in range(20_000)} | {"Baum": "tree"}, Word)
    assert terms.constraints("der Baum") == (("tree",),)
    assert compared == []


def glossary(size: int) -> StoredGlossary:
    return StoredGlossary("a", "de", "en", {"a": "b" * (size - 1)})


def test_limits_of_glossaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MOST_GLOSSARIES", 2)
    monkeypatch.setattr(storage, "MOST_CHARACTERS", 10)
    kept = Glossaries()
    first = glossary(5)
    kept.add(first)
    for size, status in ((6, 456), (5, None), (1, 456)):
        if status is None:
            kept.add(glossary(size))
            continue
        with pytest.raises(RequestError, match="delete one") as caught:
            kept.add(glossary(size))
        assert caught.value.status == status
    kept.delete(first.identity)
    assert len(kept.all()) == 1
    with pytest.raises(RequestError, match="no such glossary"):
        kept.get(first.identity)


def test_elements_are_hidden_and_put_back() -> None:
    text = '<a>1<a/>2<a c="d">3</a>4</a> <a>5<b>6</b></a> <b>7 <ab>8</ab>'
    hidden, elements = without_elements(text, ("a", "b"))
    assert list(elements.values()) == ['<a>1<a/>2<a c="d">3</a>4</a>', "<a>5<b>6</b></a>"]
    assert with_elements(hidden, elements) == text
    assert hidden.endswith(" <b>7 <ab>8</ab>")
    assert without_elements("<a>1</a>", ()) == ("<a>1</a>", {})


@pytest.mark.parametrize(
    ("name", "data", "result"),
    [
        ("a.TXT", b"", "a.TXT"),
        ("file", b"\xef\xbb\xbf<!DOCTYPE html>", "file.html"),
        ("file", b"WEBVTT\n", "file.vtt"),
        ("file", b"1\r\n00:00:01,000 --> 00:00:02,000\r\nA", "file.srt"),
        ("", b"1 b", "file.txt"),
        ("../../etc/passwd", b"a", "passwd.txt"),
        ("c:\\d\\e.srt", b"", "e.srt"),
    ],
)
def test_names_of_documents(name: str, data: bytes, result: str) -> None:
    assert document_name(name, data) == result


def translated(
    documents: Documents, translate: Callable[[Call], Awaitable[LocalisedDocument]]
) -> BackgroundDocument:
    document = BackgroundDocument("a.txt", 3, 3)

    async def work() -> None:
        task = translated_later(documents, document, 60, translate)
        assert document.status == "queued"
        with pytest.raises(RequestError, match="not translated yet"):
            documents.take(document.identity, document.key)
        await task

    asyncio.run(work())
    return document


async def upper(call: Call) -> LocalisedDocument:
    return LocalisedDocument(b"ABC", [untranslated_record("line 1", "a", "no")])


async def faulty(call: Call) -> LocalisedDocument:
    raise RequestError(400, "damaged")


def test_a_document_is_fetched_once() -> None:
    kept = Documents()
    document = translated(kept, upper)
    assert document.status == "done"
    with pytest.raises(RequestError, match="no such document"):
        kept.take(document.identity, "x")
    asked = kept.get(document.identity, document.key)
    assert (asked.status, asked.content, asked.left) == ("done", b"", document.left)
    fetched = kept.take(document.identity, document.key)
    assert (fetched.name, fetched.content) == ("a.txt", b"ABC")
    assert fetched.left == [{"index": 0, "reason": "line 1: no"}]
    with pytest.raises(RequestError, match="no such document"):
        kept.take(document.identity, document.key)


def test_a_document_with_an_error() -> None:
    kept = Documents()
    document = translated(kept, faulty)
    assert (document.status, document.error) == ("error", "damaged")
    with pytest.raises(RequestError, match="damaged"):
        kept.take(document.identity, document.key)


def test_documents_of_a_worker_that_died_fail_and_others_stay() -> None:
    documents = Documents()
    done = translated(documents, upper)
    done.worker = 1
    begun = BackgroundDocument("a.txt", 3, 3, worker=1)
    other = BackgroundDocument("a.txt", 3, 3, worker=2)
    for document in (begun, other):
        documents.add(document)
    documents.lose(1)
    assert [document.status for document in (done, begun, other)] == ["done", "error", "queued"]
    with pytest.raises(RequestError, match="send the document again"):
        documents.take(begun.identity, begun.key)


def test_limits_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MOST_DOCUMENTS", 2)
    kept = Documents()
    old = translated(kept, upper)
    translated(kept, upper)
    with pytest.raises(RequestError) as caught:
        translated(kept, upper)
    assert caught.value.status == 429
    old.created -= storage.SECONDS + 1
    translated(kept, upper)
    monkeypatch.setattr(storage, "MOST_BYTES", 8)
    with pytest.raises(RequestError):
        kept.get(old.identity, old.key)
