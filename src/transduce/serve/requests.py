"""Fields of a request from query string, form and JSON, in any mix, as checked values."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from transduce.serve.errors import ClientGoneError, RequestError, invalid

MAX_FIELDS = 2000
MAX_FILES = 4


def well_formed(text: str) -> str:
    """A text that can be encoded: lone surrogates become the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def texts_of(given: object) -> list[str] | None:
    """A text or a list of texts, as a list; None for anything else."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        return None
    return [well_formed(one) for one in texts]


class Upload(NamedTuple):
    """An uploaded file: its name, as the client has it, and its content."""

    name: str
    data: bytes


class Fields(Mapping[str, Any]):
    """Values by name, with checked access.  Unknown fields are ignored.

    The methods raise RequestError 400, worded as LibreTranslate's.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, name: str, default: str | None = None) -> str:
        """A text that is not empty.  default: for one that is missing; without it, an error."""
        value = self._values.get(name)
        if value is None or value in ("", []):
            if default is None:
                raise missing(name)
            return default
        if not isinstance(value, str):
            raise invalid(f"Invalid request: {name} parameter is not a string")
        return well_formed(value)

    def texts(self, name: str) -> list[str]:
        """A text or a list of texts, as a list; a text must not be empty."""
        value = self._values.get(name)
        if isinstance(value, list) and value:
            texts = texts_of(value)
            if texts is None:
                raise invalid(f"Invalid request: {name} parameter is not a list of strings")
            return texts
        return [self.text(name)]

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 0 to `most`, also given as a text."""
        value = self._values.get(name, default)
        try:
            number = int(value) if isinstance(value, str | int) and value is not True else None
        except ValueError:
            number = None
        if number is None or number < 0:
            raise invalid(f"Invalid request: {name} parameter is not a number")
        if number > most:
            raise invalid(f"Invalid request: {name} parameter ({number}) exceeds limit ({most})")
        return number

    def flag(self, name: str, default: bool) -> bool:
        """True or false, from JSON."""
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid(f"{name} is not true or false")
        return value

    def file(self, name: str) -> Upload:
        """An uploaded file."""
        value = self._values.get(name)
        if not isinstance(value, Upload):
            raise missing(name)
        return value


def missing(name: str) -> RequestError:
    """The error for a field that is needed."""
    return invalid(f"Invalid request: missing {name} parameter", "missing_parameter")


async def read_fields(request: Request, max_bytes: int) -> Fields:
    """All fields of a request; the body takes precedence over the query string.

    Raises RequestError: 400 for a body that cannot be parsed, 413 for one beyond `max_bytes`.
    """
    values: dict[str, Any] = {}
    for name in request.query_params:
        values[name] = _one_or_all(request.query_params.getlist(name))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return Fields(values | await _multipart(request, max_bytes))
    body = b"".join([part async for part in _limited(request, max_bytes)])
    if kind.endswith("json"):
        values |= _json_object(body)
    elif kind == "application/x-www-form-urlencoded":
        values |= _form(body)
    return Fields(values)


def _one_or_all(given: list[Any]) -> Any:
    return given if len(given) > 1 else given[0]


async def _limited(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """Parts of the body.  Raises RequestError 413 beyond the limit, 499 for half a body."""
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > max_bytes:
                raise RequestError(
                    413, f"Invalid request: request exceeds {max_bytes} bytes", "too_large"
                )
            yield part
    except ClientDisconnect:
        raise ClientGoneError from None


async def _multipart(request: Request, max_bytes: int) -> dict[str, Any]:
    parser = MultiPartParser(
        request.headers,
        _limited(request, max_bytes),  # type: ignore[arg-type]
        max_files=MAX_FILES,
        max_fields=MAX_FIELDS,
        max_part_size=max_bytes,
    )
    parser.spool_max_size = max_bytes  # nothing goes to disk
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        message = getattr(error, "message", "cannot be parsed")
        raise invalid(f"Invalid request: multipart body: {message}") from None
    values: dict[str, list[str | Upload]] = {}
    for name, value in form.multi_items():
        given = await _upload(value) if isinstance(value, UploadFile) else value
        values.setdefault(name, []).append(given)
    for file in parser._files_to_close_on_error:  # also those without an end, of half a body
        file.close()
    return {name: _one_or_all(given) for name, given in values.items()}


async def _upload(file: UploadFile) -> Upload:
    return Upload(well_formed(file.filename or "file"), await file.read())


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise invalid("Invalid JSON format") from None
    if not isinstance(found, dict):
        raise invalid("Invalid JSON format")
    return found


def _form(body: bytes) -> dict[str, Any]:
    text = body.decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise invalid(f"Invalid request: more than {MAX_FIELDS} fields") from None
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: _one_or_all(given) for name, given in values.items()}
