"""Glossaries of DeepL's API: create, list, show, delete."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.serve.dialects.deepl_requests import DeepLRequests
from transduce.serve.dialects.dialect import Endpoint
from transduce.serve.errors import invalid
from transduce.serve.glossaries import Glossary, as_tsv, read_entries
from transduce.serve.languages import base_of

MOST_OF_A_NAME = 1000
"""Characters."""


class DeepLGlossaries:
    """Handlers of /v2/glossaries."""

    def __init__(self, requests: DeepLRequests) -> None:
        self._requests = requests
        self._glossaries = requests.glossaries

    async def pairs(self, request: Request) -> Response:
        """GET /v2/glossary-language-pairs."""
        await self._requests.fields(request)
        pairs = {(base_of(s), base_of(t)) for s, t in self._requests.service.languages.pairs}
        shown = [{"source_lang": source, "target_lang": target} for source, target in sorted(pairs)]
        return JSONResponse({"supported_languages": shown})

    async def create(self, request: Request) -> Response:
        """POST /v2/glossaries."""
        fields, _ = await self._requests.fields(request)
        service = self._requests.service
        name = fields.text("name")
        if len(name) > MOST_OF_A_NAME:
            raise invalid(f"name exceeds {MOST_OF_A_NAME} characters")
        source = service.language(fields.text("source_lang"))
        target = service.language(fields.text("target_lang"))
        if (source, target) not in service.languages.pairs:
            raise invalid(f"no run translates {source} to {target} directly")
        form = fields.text("entries_format", "tsv")
        if form not in ("tsv", "csv"):
            raise invalid(f"entries_format {form!r} is neither tsv nor csv")
        entries = read_entries(fields.text("entries"), form == "csv")
        glossary = Glossary(name, source, target, entries)
        self._glossaries.add(glossary)
        return JSONResponse(_shown(glossary), 201)

    async def all(self, request: Request) -> Response:
        """GET /v2/glossaries."""
        await self._requests.fields(request)
        return JSONResponse({"glossaries": [_shown(one) for one in self._glossaries]})

    async def show(self, request: Request) -> Response:
        """GET /v2/glossaries/ID."""
        return JSONResponse(_shown(await self._named(request)))

    async def entries(self, request: Request) -> Response:
        """GET /v2/glossaries/ID/entries."""
        glossary = await self._named(request)
        kind = "text/tab-separated-values; charset=utf-8"
        return Response(as_tsv(glossary.entries), media_type=kind)

    async def delete(self, request: Request) -> Response:
        """DELETE /v2/glossaries/ID."""
        self._glossaries.delete((await self._named(request)).identity)
        return Response(status_code=204)

    async def _named(self, request: Request) -> Glossary:
        await self._requests.fields(request)
        return self._glossaries.get(request.path_params["id"])

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        asked = {
            "name*": "name",
            "source_lang*": "language code",
            "target_lang*": "language code",
            "entries*": "lines of source and target",
            "entries_format": "tsv or csv",
        }
        one = "/v2/glossaries/{id}"
        return [
            Endpoint("/v2/glossary-language-pairs", self.pairs, summary="Pairs for glossaries"),
            Endpoint(
                "/v2/glossaries", self.create, ("POST",), "Create a glossary", asked, writes=True
            ),
            Endpoint("/v2/glossaries", self.all, summary="Glossaries"),
            Endpoint(one, self.show, summary="A glossary"),
            Endpoint(one, self.delete, ("DELETE",), "Delete a glossary", writes=True),
            Endpoint(f"{one}/entries", self.entries, summary="Entries of a glossary"),
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
