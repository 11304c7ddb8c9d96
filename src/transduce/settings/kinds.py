"""Unions of sections that differ in their `kind`, and the readers of their members."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any

import pydantic
import pydantic_core
from pydantic_core import PydanticKnownError, core_schema


@dataclasses.dataclass(frozen=True)
class ByKind:
    """Choice among a union of sections by their `kind`: `Annotated[A | B, ByKind("a")]`.

    default: `kind` of settings that name none.  It lets a union replace a section while recipes
    written for that section stay valid.

    Pydantic's own discriminator makes the reader of every member, a millisecond each.
    """

    default: str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> pydantic_core.CoreSchema:
        """Pydantic's hook for annotations."""
        members = members_of(source)[0]
        return core_schema.no_info_plain_validator_function(functools.partial(self._parse, members))

    def _parse(self, members: list[Any], settings: Any) -> Any:
        if isinstance(settings, tuple(members)):
            return settings
        if not isinstance(settings, Mapping):
            raise PydanticKnownError("model_attributes_type")
        kind = settings.get("kind", self.default)
        if kind is None:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
        for member in members:
            if kind in kinds_of(member):
                return reader_of(member).validate_python({**settings, "kind": kind})
        tags = ", ".join(repr(kind) for member in members for kind in kinds_of(member))
        names = {"discriminator": "'kind'", "tag": str(kind), "expected_tags": tags}
        raise PydanticKnownError("union_tag_invalid", names)


@functools.cache
def reader_of(kind: Any) -> pydantic.TypeAdapter[Any]:
    """The validator of a type, cached: making it takes longer than a thousand uses."""
    return pydantic.TypeAdapter(kind)


def members_of(kind: Any) -> tuple[list[Any], str | None]:
    """The sections in a type, and their default kind, if any."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        sections, _ = members_of(parts[0])
        kinds = [note.default for note in parts[1:] if isinstance(note, ByKind) and note.default]
    elif origin is tuple:  # a list of sections
        return members_of(parts[0])
    elif origin in (typing.Union, types.UnionType):
        inside = [members_of(part) for part in parts]
        sections = [section for sections, _ in inside for section in sections]
        kinds = [default for _, default in inside if default is not None]
    else:
        sections, kinds = [kind] if dataclasses.is_dataclass(kind) else [], []
    return sections, kinds[0] if kinds else None


@functools.cache
def kinds_of(section: Any) -> tuple[Any, ...]:
    """Values of `kind` that select a section; none if it has no such setting."""
    owner = next((base for base in section.__mro__ if "kind" in vars(base)), section)
    kind = typing.get_type_hints(owner).get("kind")
    return typing.get_args(kind)
