"""Glossaries of DeepL's API: create, list, show, delete."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.errors import DataError
from transduce.localise.terms import read_entries
from transduce.serve.dialects.deepl_requests import DeepLRequests
from transduce.serve.dialects.dialect import POST, Endpoint
from transduce.serve.errors import invalid
from transduce.serve.glossaries import Glossary, as_tsv
from transduce.serve.languages import base_of
from transduce.serve.requests import Fields

MOST_OF_A_NAME = 1000
"""Characters."""


class DeepLGlossaries:
    """Handlers of /v2/glossaries."""

    def __init__(self, requests: DeepLRequests) -> None:
        self._requests = requests
        self._glossaries = requests.glossaries

    async def pairs(self, request: Request, fields: Fields) -> Response:
        """Pairs for glossaries."""
        pairs = {(base_of(s), base_of(t)) for s, t in self._requests.service.languages.pairs}
        shown = [{"source_lang": source, "target_lang": target} for source, target in sorted(pairs)]
        return JSONResponse({"supported_languages": shown})

    async def create(self, request: Request, fields: Fields) -> Response:
        """Create a glossary."""
        service = self._requests.service
        name = fields.text("name")
        if len(name) > MOST_OF_A_NAME:
            raise invalid(f"name exceeds {MOST_OF_A_NAME} characters")
        source = service.language(fields.text("source_lang"))
        target = service.language(fields.text("target_lang"))
        if (source, target) not in service.languages.pairs:
            raise invalid(f"no run translates {source} to {target} directly")
        form = fields.choice("entries_format", ("tsv", "csv"))
        try:
            entries = read_entries(fields.text("entries"), form == "csv")
        except DataError as error:
            raise invalid(str(error)) from None
        glossary = Glossary(name, source, target, entries)
        self._glossaries.add(glossary)
        return JSONResponse(_shown(glossary), 201)

    async def all(self, request: Request, fields: Fields) -> Response:
        """Glossaries."""
        return JSONResponse({"glossaries": [_shown(glossary) for glossary in self._glossaries]})

    async def show(self, request: Request, fields: Fields) -> Response:
        """A glossary."""
        return JSONResponse(_shown(self._glossaries.get(request.path_params["id"])))

    async def entries(self, request: Request, fields: Fields) -> Response:
        """Entries of a glossary."""
        glossary = self._glossaries.get(request.path_params["id"])
        kind = "text/tab-separated-values; charset=utf-8"
        return Response(as_tsv(glossary.entries), media_type=kind)

    async def delete(self, request: Request, fields: Fields) -> Response:
        """Delete a glossary."""
        self._glossaries.delete(request.path_params["id"])
        return Response(status_code=204)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        create = {
            "name*": "name",
            "source_lang*": "language code",
            "target_lang*": "language code",
            "entries*": "lines of source and target",
            "entries_format": "tsv or csv",
        }
        glossaries, glossary = "/v2/glossaries", "/v2/glossaries/{id}"
        return [
            Endpoint("/v2/glossary-language-pairs", self.pairs),
            Endpoint(glossaries, self.create, POST, create, writes=True),
            Endpoint(glossaries, self.all),
            Endpoint(glossary, self.show),
            Endpoint(glossary, self.delete, ("DELETE",), writes=True),
            Endpoint(f"{glossary}/entries", self.entries),
        ]


def _shown(glossary: Glossary) -> dict[str, Any]:
    created = glossary.created.isoformat(timespec="milliseconds")
    return {
        "glossary_id": glossary.identity,
        "name": glossary.name,
        "ready": True,
        "source_lang": base_of(glossary.source),
        "target_lang": base_of(glossary.target),
        "creation_time": created.replace("+00:00", "Z"),
        "entry_count": len(glossary.entries),
    }
