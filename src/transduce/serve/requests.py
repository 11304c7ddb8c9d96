"""Fields of a request from query string, form and JSON, in any mix, as checked values; its key."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from transduce.serve.calls import ClientGoneError, RequestError, invalid

if TYPE_CHECKING:
    from transduce.serve.service import Service


MAX_FIELDS = 2000
MAX_VALUES, BYTES_PER_VALUE = 100_000, 12
"""Values of a body in JSON, or in a longer one the fewest bytes of a value on average."""
INLINE_BYTES = 2**15
"""Bytes that are parsed in the event loop."""
MAX_FILES = 4
NAME = re.compile(r"[\w.\[\]-]{1,40}", re.ASCII)
MOST_NAMED = 20
"""Fields that an answer names."""
SCHEMES = ("bearer", "deepl-auth-key")
"""Of keys in the header Authorization."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape in JSON of a half of a character, perhaps without the other."""


def request_texts(field: object) -> list[str] | None:
    """A text or a list of texts, as a list; None for anything else."""
    texts = [field] if isinstance(field, str) else field
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return None
    return texts


class Upload(NamedTuple):
    """An uploaded file: its name, as the client has it, and its content."""

    name: str
    content: bytes


class Fields(Mapping[str, Any]):
    """Values by name, with checked access.  Fields that nobody reads are named by `ignored`.

    key: of the request, wherever it stood; empty where none is needed.  The methods raise
    RequestError 400, worded as LibreTranslate's.
    """

    def __init__(self, values: Mapping[str, Any], key: str = "") -> None:
        self._values = values
        self._read: set[str] = set()
        self.key = key

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, name: str, default: str | None = None) -> str:
        """A text that is not empty.  default: of a missing text; without it, an error."""
        value = self.get(name)
        if value is None or value in ("", []):
            if default is None:
                raise missing(name)
            return default
        if not isinstance(value, str):
            raise invalid(f"Invalid request: {name} parameter is not a string")
        return value

    def texts(self, name: str) -> list[str]:
        """A text or a list of texts, as a list; a text must not be empty."""
        value = self.get(name)
        if isinstance(value, list) and value:
            texts = request_texts(value)
            if texts is None:
                raise invalid(f"Invalid request: {name} parameter is not a list of strings")
            return texts
        return [self.text(name)]

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 0 to `most`, also given as a text.

        name: of the field.  default: value without the field.
        """
        value = self.get(name, default)
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
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid(f"{name} is not true or false")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object of JSON; empty for a field that is missing."""
        value = self.get(name)
        if not (value is None or isinstance(value, dict)):
            raise invalid(f"{name} is not an object")
        return value or {}

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """A text among choices; the first for a field that is missing."""
        text = self.text(name, choices[0])
        if text not in choices:
            raise invalid(f"{name} {text!r} is none of {', '.join(filter(None, choices))}")
        return text

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """Pairs of texts; none for a field that is missing."""
        rows = self.get(name) or []
        if not isinstance(rows, list):
            raise invalid(f"{name} is not a list of pairs of texts")
        pairs = []
        for number, row in enumerate(rows, 1):
            texts = request_texts(row)
            if texts is None or len(texts) != 2:
                raise invalid(f"{name}: entry {number} is not a pair of texts")
            pairs.append((texts[0], texts[1]))
        return pairs

    def file(self, name: str) -> Upload:
        """An uploaded file."""
        value = self.get(name)
        if value in (None, ""):
            raise missing(name)
        if not isinstance(value, Upload):
            raise invalid(f"{name} is not a file; send it in a multipart form")
        return value

    def disregard(self, *names: str) -> None:
        """Count fields as not followed, although they were read."""
        self._read.difference_update(names)

    def ignored(self) -> list[str]:
        """Names of fields with a value that was not followed; odd names are left out."""
        return [
            name
            for name, value in self._values.items()
            if name not in self._read and value not in (None, "", []) and NAME.fullmatch(name)
        ][:MOST_NAMED]


def missing(name: str) -> RequestError:
    """The error for a field that is needed."""
    return invalid(f"Invalid request: missing {name} parameter", "missing_parameter")


async def read_fields(request: Request, service: Service, key_field: str, max_bytes: int) -> Fields:
    """All fields of a request with a good key; the body takes precedence over the query string.

    The key stands in the header, else in the field `key_field`; in header and query string it is
    checked before the body is read.  max_bytes: of the body; 0 for `ServeSettings.max_body_bytes`.

    Raises RequestError: as `Service.check_key`; 400 for a body that cannot be parsed, 408 for a
    body that takes longer than a request may, 413 for a body beyond `max_bytes`, 429 as
    `Service.reserve`.
    """
    fields = await _parsed(_form, request.scope["query_string"])
    key = key_of(request)
    if key is None and key_field:
        key = fields.get(key_field)
    if key is not None or not key_field:
        service.check_key(key)
    limit = max_bytes or service.settings.max_body_bytes
    if max_bytes:
        request.state.reserved = service.reserve(request.headers.get("content-length", ""), limit)
    try:
        async with asyncio.timeout(service.settings.timeout):
            fields |= await _body(request, limit)
    except TimeoutError:
        raise RequestError(408, "the request takes too long to arrive", "timeout") from None
    if key is None and key_field:
        key = fields.get(key_field)
        service.check_key(key)
    if key_field:
        fields.pop(key_field, None)
    return Fields(fields, str(key) if service.settings.api_keys else "")


def key_of(request: Request) -> Any:
    """The key in the header of a request, with any of `SCHEMES` in any case; None without."""
    scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
    return key.strip() or None if scheme.lower() in SCHEMES else None


async def _body(request: Request, max_bytes: int) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _multipart(request, max_bytes)
    body = b"".join([part async for part in _limited(request, max_bytes)])
    if kind.endswith("json"):
        return await _parsed(_json_object, body)
    is_form = kind == "application/x-www-form-urlencoded"
    return await _parsed(_form, body) if is_form else {}


async def _parsed(parse: Callable[[bytes], dict[str, Any]], body: bytes) -> dict[str, Any]:
    """Fields of a body; of a long one in a thread, for other requests are answered meanwhile."""
    return parse(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(parse, body)


def _by_name(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The value of each name; several as a list."""
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: some if len(some) > 1 else some[0] for name, some in values.items()}


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
    pairs = [
        (name, await _upload(value) if isinstance(value, UploadFile) else value)
        for name, value in form.multi_items()
    ]
    for file in parser._files_to_close_on_error:  # also those without an end, of half a body
        file.close()
    return _by_name(pairs)


async def _upload(file: UploadFile) -> Upload:
    return Upload(file.filename or "file", await file.read())


def _json_object(body: bytes) -> dict[str, Any]:
    """A JSON object whose texts can be encoded: half a character is U+FFFD, as in UTF-8."""
    if body.count(b",") > max(MAX_VALUES, len(body) // BYTES_PER_VALUE):
        raise invalid(f"Invalid request: more than {MAX_VALUES} values")
    try:
        text = body.decode(json.detect_encoding(body))
        values = json.loads(text)
        if SURROGATE.search(text):
            halves = json.dumps(values, ensure_ascii=False).encode("utf-16", "surrogatepass")
            values = json.loads(halves.decode("utf-16", "replace"))
    except (ValueError, RecursionError):
        raise invalid("Invalid JSON format") from None
    if not isinstance(values, dict):
        raise invalid("Invalid JSON format")
    return values


def _form(body: bytes) -> dict[str, Any]:
    text = body.decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise invalid(f"Invalid request: more than {MAX_FIELDS} fields") from None
    return _by_name(pairs)
