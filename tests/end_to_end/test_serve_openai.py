"""The `openai` client against `transduce serve`."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.node import node_with, run_node
from helpers.served import Served, library, served, some_sentences
from helpers.served_runs import ANSWERS, dialogue_run, embedding_run, label_run, language_model_run

openai = pytest.importorskip("openai")

KEY = "secret"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("openai")
    dialogue_run(place / "talk")
    embedding_run(place / "vectors")
    label_run(place / "labels")
    language_model_run(place / "rhyme")
    (place / "keys").write_text(f"{KEY}\n")
    return place


@pytest.fixture(scope="module")
def several(de_en: Path, runs: Path) -> Iterator[Served]:
    paths = [runs / name for name in ("talk", "vectors", "labels", "rhyme")]
    with served(de_en, *paths, "--api-keys", runs / "keys") as result:
        yield result


@pytest.fixture
def client(several: Served) -> Iterator[Any]:
    with openai.OpenAI(api_key=KEY, base_url=f"{several.url}/v1", max_retries=0) as result:
        yield result


def messages(*texts: str) -> list[dict[str, str]]:
    """Turns of the user and the assistant in turn, the last one the user's."""
    last = len(texts) - 1
    return [
        {"role": "user" if (last - i) % 2 == 0 else "assistant", "content": text}
        for i, text in enumerate(texts)
    ]


def test_models(client: Any) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["de-en", "talk", "vectors", "labels", "rhyme"]
    model = client.models.retrieve("de-en")
    assert (model.id, model.object, model.owned_by) == ("de-en", "model", "transduce")
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
        client.models.retrieve("gpt")


def test_a_translation(client: Any, de_en: Path) -> None:
    asked = [{"role": "system", "content": "Translate."}, *messages("a", "b", "Rot. Baum?")]
    result = client.chat.completions.create(model="de-en", messages=asked, temperature=0)
    expected = " ".join(
        translation.text for translation in library(de_en).translate(["Rot.", "Baum?"])
    )
    (choice,) = result.choices
    assert (choice.message.role, choice.message.content) == ("assistant", expected)
    assert choice.finish_reason == "stop" and result.model == "de-en"
    assert result.usage.prompt_tokens == len("Rot. Baum?")
    assert result.usage.completion_tokens == len(expected)
    again = client.chat.completions.create(model="DE-en-US", messages=asked)
    assert again.choices[0].message.content == expected


@pytest.mark.parametrize("model", ["de-en", "talk", "rhyme"])
def test_a_stream_equals_the_whole(client: Any, model: str) -> None:
    text = {"talk": "one", "rhyme": "Row, "}.get(model, "\n".join(some_sentences(3)))
    asked: dict[str, Any] = {"model": model, "messages": messages(text), "seed": 3}
    whole = client.chat.completions.create(**asked)
    *chunks, last = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(parts) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.choices == [] and last.usage == whole.usage
    assert len({chunk.id for chunk in [*chunks, last]}) == 1
    plain = list(client.chat.completions.create(**asked, stream=True))
    assert len(plain) == len(chunks) and all(chunk.usage is None for chunk in plain)


def test_a_dialogue_takes_all_turns(client: Any, runs: Path) -> None:
    def reply(*turns: str, **options: Any) -> Any:
        result = client.chat.completions.create(
            model="talk", messages=messages(*turns), temperature=0, **options
        )
        return result.choices[0]

    for asked, answer in ANSWERS.items():
        assert reply(asked).message.content == answer
    history = ("hi", "ho", "one\nmore", "two", "a b")
    given = [{"role": "system", "content": ""}, *messages(*history)]
    given[-1]["content"] = [{"type": "text", "text": "a b"}]  # type: ignore[assignment]
    result = client.chat.completions.create(model="talk", messages=given, temperature=0)
    text = "\n".join(turn.replace("\n", " ") for turn in history)
    (expected,) = library(runs / "talk").predict(
        [text],
        library(runs / "talk").predictor.options.with_settings(  # type: ignore[union-attr]
            {"method": "beam", "beam_size": 1}
        ),
    )
    assert result.choices[0].message.content == expected.text
    short = reply("one", max_tokens=2)
    assert (short.message.content, short.finish_reason) == ("tw", "length")
    assert reply("one", stop="w").message.content == "t"
    with pytest.raises(openai.BadRequestError, match="last message is not the user's"):
        client.chat.completions.create(
            model="talk", messages=[{"role": "assistant", "content": "hi"}]
        )


def test_a_language_model_goes_on(client: Any, runs: Path) -> None:
    asked = messages("one", "two", "Row, row\n")
    for options in ({"temperature": 0}, {"temperature": 0.5, "top_p": 0.9, "seed": 7}):
        result = client.chat.completions.create(
            model="rhyme", messages=asked, max_completion_tokens=12, **options
        ).choices[0]
        own = {"method": "beam", "beam_size": 1} if options == {"temperature": 0} else options
        run = library(runs / "rhyme")
        decoding = run.predictor.options.with_settings({**own, "max_tokens": 12})  # type: ignore[union-attr]
        (expected,) = run.predict(["Row, row\n"], decoding)
        assert result.message.content == expected.continuation  # type: ignore[attr-defined]
        assert result.finish_reason == "length"


def test_embeddings(client: Any, several: Served, runs: Path) -> None:
    texts = ["abc", "xyz abc"]
    expected = [list(one.embedding) for one in library(runs / "vectors").predict(texts)]  # type: ignore[attr-defined]
    result = client.embeddings.create(model="vectors", input=texts)  # as base64
    assert [one.embedding for one in result.data] == [
        pytest.approx(one, abs=1e-6) for one in expected
    ]
    assert [one.index for one in result.data] == [0, 1] and result.usage.total_tokens > 0
    (one,) = client.embeddings.create(model="vectors", input=texts[0], encoding_format="float").data
    assert one.embedding == pytest.approx(expected[0], abs=1e-6)
    body = {"model": "vectors", "input": texts[0], "encoding_format": "base64"}
    _, answer = several.ask("/v1/embeddings", body, Authorization=f"Bearer {KEY}")
    encoded = base64.b64decode(answer["data"][0]["embedding"])
    assert struct.unpack("<16f", encoded) == pytest.approx(expected[0], abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": " "}, "input 1 is blank"),
        ({"input": [[1, 2]]}, "not a list of strings"),
        ({"input": "a", "dimensions": 5}, "dimensions is not 16"),
        ({"input": "a", "model": "de-en"}, "gives no embeddings"),
        ({"input": "a", "encoding_format": "int8"}, "none of float, base64"),
    ],
)
def test_mistakes_in_embeddings(client: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        client.embeddings.create(**{"model": "vectors", **fields})


def test_separators_that_the_system_names_stay(client: Any, de_en: Path) -> None:
    """As of Weblate, which sends several strings in one message."""
    texts = some_sentences(3, seed=7)
    expected = [translation.text for translation in library(de_en).translate(texts)]
    separator = "\n==WEBLATE_PART==\n"
    asked = [
        {"role": "system", "content": f"You separate strings by {separator} and translate."},
        {"role": "user", "content": separator.join(texts)},
    ]
    answer = client.chat.completions.create(model="de-en", messages=asked)
    assert answer.choices[0].message.content.split(separator) == expected
    chunks = client.chat.completions.create(model="de-en", messages=asked, stream=True)
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(parts).split(separator) == expected


def test_values_that_leave_an_option_to_the_server(client: Any) -> None:
    asked = {"model": "rhyme", "messages": messages("abc")}
    expected = client.chat.completions.create(**asked).choices[0].message.content
    unset = {"seed": -1, "max_tokens": -1, "top_p": 0, "stop": [""]}
    assert client.chat.completions.create(**asked, **unset).choices[0].message.content == expected


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "there is no model 'gpt-4'; use de-en"),
        ({"model": "vectors"}, openai.BadRequestError, "writes no text"),
        ({"model": "labels"}, openai.BadRequestError, "writes no text"),
        ({"n": 2}, openai.BadRequestError, "n is not 1"),
        ({"max_tokens": 10**6}, openai.BadRequestError, "exceeds 1024"),
        ({"temperature": "hot"}, openai.BadRequestError, "temperature"),
        ({"messages": []}, openai.BadRequestError, "missing messages"),
        ({"stream": True, "model": "gpt-4"}, openai.NotFoundError, "no model"),
        ({"messages": messages("a" * 30_000)}, openai.BadRequestError, "exceeds text limit"),
    ],
)
def test_mistakes_in_chats(
    client: Any, fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        client.chat.completions.create(**{"model": "talk", "messages": messages("hi"), **fields})
    assert caught.value.type == "invalid_request_error"  # type: ignore[attr-defined]
    assert (caught.value.code == "model_not_found") == (error is openai.NotFoundError)  # type: ignore[attr-defined]


def test_a_wrong_key(several: Served) -> None:
    address = f"{several.url}/v1"
    with (
        openai.OpenAI(api_key="x", base_url=address, max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        client.models.list()
    assert caught.value.code == "invalid_api_key"
    assert several.ask("/v1/nothing")[1]["error"]["message"] == "Not Found"


NODE = """
import OpenAI from "openai";
const [baseURL, apiKey, text] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const asked = { model: "de-en", messages: [{ role: "user", content: text }] };
const whole = await client.chat.completions.create(asked);
let streamed = "";
let usage = null;
for await (const chunk of await client.chat.completions.create(
  { ...asked, stream: true, stream_options: { include_usage: true } })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
const vectors = await client.embeddings.create({ model: "vectors", input: ["abc"] });
const models = [];
for await (const model of client.models.list()) models.push(model.id);
const status = await client.models.retrieve("gpt").catch((error) => error.status);
console.log(JSON.stringify({
  whole: whole.choices[0].message.content, streamed, same: usage.total_tokens ===
  whole.usage.total_tokens, vector: vectors.data[0].embedding, models, status }));
"""


@pytest.mark.slow
def test_the_client_for_node(several: Served, runs: Path, de_en: Path, tmp_path: Path) -> None:
    place = node_with(tmp_path, "openai")
    result = run_node(place, NODE, f"{several.url}/v1", KEY, "Rot gehen.")
    expected = library(de_en).translate("Rot gehen.").text
    assert result["whole"] == result["streamed"] == expected
    assert result["same"] and result["status"] == 404 and "de-en" in result["models"]
    (vector,) = library(runs / "vectors").predict(["abc"])
    assert result["vector"] == pytest.approx(vector.embedding, abs=1e-5)  # type: ignore[attr-defined]


def test_a_pivot_is_a_model_too(server: Served) -> None:
    status, models = server.ask("/v1/models")
    assert status == 200 and [model["id"] for model in models["data"]] == [
        "en-fr",
        "de-en",
        "de-fr",
    ]
    asked = {"model": "de-fr", "messages": messages("Rot gehen. Baum?")}
    status, answer = server.ask("/v1/chat/completions", asked)
    body = {"q": "Rot gehen. Baum?", "source": "de", "target": "fr"}
    expected = server.ask("/translate", body)[1]["translatedText"]
    assert status == 200 and answer["choices"][0]["message"]["content"] == expected


def test_translations_name_their_languages(several: Served) -> None:
    body = {"input": ["abc", "ba"], "source_language": "de", "target_language": "en"}
    status, answer = several.ask("/v1/translations", body, Authorization=f"Bearer {KEY}")
    assert status == 200 and answer["via"] == []
    assert [row["index"] for row in answer["data"]] == [0, 1]
    chat = {"model": "de-en", "messages": messages("abc")}
    _, alike = several.ask("/v1/chat/completions", chat, Authorization=f"Bearer {KEY}")
    assert answer["data"][0]["text"] == alike["choices"][0]["message"]["content"]
    for wrong in ({"target_language": "xx"}, {"input": [1]}, {"source_language": "en"}):
        status, _ = several.ask(
            "/v1/translations", {**body, **wrong}, Authorization=f"Bearer {KEY}"
        )
        assert status == (400 if wrong != {"source_language": "en"} else 200)
