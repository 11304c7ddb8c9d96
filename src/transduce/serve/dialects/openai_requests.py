"""Requests of OpenAI's API: choice of a model, chat completions, errors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from transduce.serve.calls import Call, RequestError, invalid, unavailable
from transduce.serve.requests import Fields, missing
from transduce.serve.runs import MOST_OF_A_CODE
from transduce.serve.service import Model, Service


def error(status: int, message: str, kind: str) -> dict[str, Any]:
    """The shape of OpenAI's errors.

    status: of HTTP.  message: for the user.  kind: code of the error.
    """
    named = {429: "rate_limit_error"}.get(status, "invalid_request_error")
    named = "server_error" if status >= 500 else named
    kind = "invalid_api_key" if kind in ("no_key", "invalid_key") else kind
    return {"error": {"message": message, "type": named, "param": None, "code": kind}}


class Choice(NamedTuple):
    """A run, or a pair of languages for translation, then without a run."""

    run: Model | None
    source: str = ""
    target: str = ""


def model_names(service: Service) -> list[str]:
    """Names of all models: pairs of languages, also through a pivot, and runs without a pair."""
    languages = service.languages
    pairs = [
        f"{source}-{target}"
        for source in languages.sources
        for target in languages.targets(source)
        if target != source
    ]
    return [*pairs, *(spec.name for spec in service.specs.values() if not spec.pairs)]


async def choose_model(service: Service, name: str) -> Choice:
    """The model of a name, loaded if it has no languages.

    Raises RequestError: as `named_model`, 503 where it cannot be loaded.
    """
    choice = named_model(service, name)
    if choice.run is not None and not choice.run.inputs:
        await service.present(name, Call(service.settings.timeout))
        return named_model(service, name)
    return choice


def named_model(service: Service, name: str) -> Choice:
    """The model of a name.

    Raises RequestError: 404 for an unknown name, 503 while the server is loading.
    """
    if not service.ready:
        raise unavailable("the server is loading")
    run = next((model for model in service.models() if model.name == name), None)
    if run is not None and len(run.pairs) < 2:
        return Choice(None, *run.pairs[0]) if run.pairs else Choice(run)
    pair = name if len(name) <= 2 * MOST_OF_A_CODE else ""
    for dash in (i for i, character in enumerate(pair) if character == "-"):
        source = service.languages.resolve(name[:dash])
        target = service.languages.resolve(name[dash + 1 :])
        if source and target and service.languages.path(source, target):
            return Choice(None, source, target)
    known = ", ".join(model_names(service))
    raise RequestError(404, f"there is no model {name[:100]!r}; use {known}", "model_not_found")


GREEDY_BELOW = 0.01
"""Temperatures below mean greedy search."""
SAMPLING = ("max_tokens", "max_completion_tokens", "stop", "seed", "temperature", "top_p")
"""Fields that continuations and replies follow, and translations do not."""
ANSWERING = "assistant"
INSTRUCTING = ("system", "developer")
SEPARATOR = re.compile(r"[^\w\s].*[^\w\s]")

Message = tuple[str, str]
"""Role and text."""


@dataclass(frozen=True)
class ChatRequest:
    """A checked request for a completion.

    usage: True to count tokens at the end of a stream.  options: decoding options of continuations
    and replies; translations ignore them.
    """

    model: str
    messages: tuple[Message, ...]
    stream: bool
    usage: bool
    options: Mapping[str, Any]


def read_chat(fields: Fields) -> ChatRequest:
    """The fields of a request."""
    rows = fields.get("messages")
    if not isinstance(rows, list) or not rows:
        raise missing("messages")
    messages = tuple(_message(number, row) for number, row in enumerate(rows, 1))
    if fields.get("n") not in (None, 1):
        raise invalid("n is not 1; send a request for each completion")
    stream = fields.flag("stream", False)
    usage = fields.mapping("stream_options").get("include_usage") is True
    return ChatRequest(fields.text("model"), messages, stream, usage, _openai_options(fields))


def chat_prompt(messages: Sequence[Message], dialogue: bool) -> str:
    """The text that a run reads: the last message of the user, or for a dialogue a line per turn.

    Other roles than the assistant count as the user; adjacent messages of one side are one turn.
    Raises RequestError 400 unless the last message is the user's.
    """
    if messages[-1][0] == ANSWERING:
        raise invalid("the last message is not the user's")
    if not dialogue:
        return next((text for role, text in reversed(messages) if role == "user"), messages[-1][1])
    turns: list[list[str]] = []
    side: bool | None = None
    for role, text in messages:
        if not text.strip():
            continue
        if (role == ANSWERING) is not side:
            turns.append([])
        side = role == ANSWERING
        turns[-1] += text.split()
    return "\n".join(map(" ".join, turns))


def split_at_separators(
    text: str, messages: Sequence[Message], check: Callable[[], None]
) -> tuple[list[str], list[str]]:
    """A text between the separators in it, and the separators.

    A separator is a line between signs, such as `==PART==`, that a message of the system names.
    check: called for each line.
    """
    named = "\n".join(instructions for role, instructions in messages if role in INSTRUCTING)
    pieces, separators = [""], list[str]()
    for line in text.splitlines(keepends=True):
        check()
        core = line.strip()
        if SEPARATOR.fullmatch(core) and core in named:
            separators.append(line)
            pieces.append("")
        else:
            pieces[-1] += line
    return pieces, separators


def _message(number: int, row: object) -> Message:
    if not isinstance(row, dict) or not isinstance(row.get("role"), str):
        raise invalid(f"message {number} is not an object with a role")
    content = row.get("content")
    if content is None:
        return row["role"], ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise invalid(f"the content of message {number} is not a text, or a list of texts")
        texts.append(text)
    return row["role"], "\n".join(texts)


def _openai_options(fields: Fields) -> dict[str, Any]:
    """Decoding options; a temperature of 0 is greedy search.

    Values by which clients leave an option to the server count as missing: -1, `top_p` of 0, empty
    texts of `stop`.
    """
    most, stop = fields.get("max_completion_tokens"), fields.get("stop")
    stops = [stop] if isinstance(stop, str) else stop
    options = {
        "max_tokens": fields.get("max_tokens") if most is None else most,
        "seed": fields.get("seed"),
        "top_p": fields.get("top_p") or None,
        "temperature": fields.get("temperature"),
        "stop_strings": [text for text in stops if text != ""]
        if isinstance(stops, list)
        else stops,
    }
    options = {name: option for name, option in options.items() if option not in (None, -1, [])}
    heat = options.get("temperature")
    if isinstance(heat, int | float) and not isinstance(heat, bool) and 0 <= heat < GREEDY_BELOW:
        del options["temperature"]
        options |= {"method": "beam", "beam_size": 1, "n_best": 1}
    return options
