"""Read tokenizer settings and added tokens as `transformers` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.interop.read import read_json
from transduce.text.added_tokens import AddedToken

NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""Names of special tokens, in the order of addition for tokens outside the vocabulary."""
CONFIG = "tokenizer_config.json"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class TokenizerSettings:
    """Settings, special tokens and added tokens of a directory."""

    path: Path
    """Main settings file, for messages."""
    values: Mapping[str, Any]
    """The settings of `tokenizer_config.json`."""
    added: Mapping[int, AddedToken]
    """Added tokens by their ids in the files."""
    named: Mapping[str, AddedToken | None]
    """Special tokens by name; None for a disabled one."""
    further: tuple[AddedToken, ...]
    """Special tokens without a name."""

    def flag(self, name: str, default: bool | None) -> bool | None:
        """A boolean setting; null only if that is the default."""
        value = self.values.get(name, default)
        if not isinstance(value, bool) and (value is not None or default is not None):
            raise DataError(f"{self.path}: {name} must be true or false, not {value!r}")
        return value

    def special(self, defaults: Mapping[str, str]) -> dict[str, AddedToken]:
        """Special tokens by name; defaults: contents of tokens not mentioned in the files."""
        usual = {name: AddedToken(content=text, special=True) for name, text in defaults.items()}
        found = {**usual, **self.named}
        order = (*NAMED, *(name for name in found if name not in NAMED))
        return {name: token for name in order if (token := found.get(name)) is not None}

    def all_added(self, defaults: Mapping[str, str]) -> list[tuple[int | None, AddedToken]]:
        """Every added token once, in the order of numbering, with its id if the files give one."""
        tokens: dict[str, tuple[int | None, AddedToken]] = {
            token.content: (token_id, token) for token_id, token in sorted(self.added.items())
        }
        for token in (*self.special(defaults).values(), *self.further):
            tokens.setdefault(token.content, (None, token))
        return [found for content, found in tokens.items() if content]


def read_settings(directory: Path) -> TokenizerSettings:
    """Read the settings of a directory.  Raises DataError for invalid ones.

    Current files list all added tokens in `tokenizer_config.json`, and no other file counts.  Older
    ones have them in `added_tokens.json`, `special_tokens_map.json` and `tokenizer.json`; later
    files win.
    """
    path = directory / CONFIG
    values = read_json(path) if path.is_file() else {}
    said = dict(values)
    spare = said.pop("additional_special_tokens", None)
    further = said.pop("extra_special_tokens", None)
    if not further:
        further = spare
    elif isinstance(further, dict):
        said |= further  # each with a name of its own
        further = None
    if "added_tokens_decoder" in values:
        added = _decoder(values["added_tokens_decoder"], path)
    else:
        older = directory / "special_tokens_map.json"
        mapped = read_json(older) if older.is_file() else {}
        spare = mapped.pop("additional_special_tokens", spare)
        extra = mapped.pop("extra_special_tokens", None)
        said |= mapped | (extra if isinstance(extra, dict) else {})
        if isinstance(extra, list):
            further = [*(further or []), *extra]
        named = (token for name, token in _named(said, {}, path).items() if name in NAMED)
        special = [*named, *_tokens(further, path)]
        added = _older_added(directory, {token.content for token in special if token})
    if further is None:
        further = spare
    contents = {token.content: token for token in added.values()}
    return TokenizerSettings(
        path, values, added, _named(said, contents, path), tuple(_tokens(further, path))
    )


def _decoder(decoder: Any, path: Path) -> dict[int, AddedToken]:
    """Added tokens in the format of `tokenizer_config.json`, with ids as strings."""
    try:
        return {_number(int(i)): _token(value, path) for i, value in decoder.items()}
    except (AttributeError, ValueError):
        raise DataError(f"{path}: added_tokens_decoder must map ids to tokens") from None


def _older_added(directory: Path, special: Iterable[str]) -> dict[int, AddedToken]:
    """Added tokens of the older files.  special: contents of special tokens."""
    added: dict[int, AddedToken] = {}
    path = directory / "added_tokens.json"
    try:
        for content, i in (read_json(path) if path.is_file() else {}).items():
            is_special = content in special
            flags = {"normalized": not is_special, "special": is_special}
            added[_number(i)] = AddedToken(content=content, **flags)
        path = directory / "tokenizer.json"
        listed = read_json(path).get("added_tokens") if path.is_file() else None
        for value in listed or ():
            added[_number(value["id"])] = _token(value, path)
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path}: every added token needs an id") from None
    return added


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value


def _named(
    said: Mapping[str, Any], contents: Mapping[str, AddedToken], path: Path
) -> dict[str, AddedToken | None]:
    """Special tokens by name.  contents: added tokens, with their own flags."""
    found: dict[str, AddedToken | None] = {}
    for name, value in said.items():
        if value is None and name in NAMED:
            found[name] = None
        elif isinstance(value, str | dict) and (name in NAMED or name.endswith("_token")):
            token = _token(value, path, special=True)
            found[name] = contents.get(token.content, token)
    return found


def _tokens(values: Any, path: Path) -> list[AddedToken]:
    if values is not None and not isinstance(values, list):
        raise DataError(f"{path}: additional_special_tokens must be a list, not {values!r}")
    return [_token(value, path, special=True) for value in values or ()]


def _token(value: Any, path: Path, special: bool | None = None) -> AddedToken:
    """A token, from a string or an object with content and flags."""
    value = {"content": value} if isinstance(value, str) else value
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise DataError(f"{path}: token {value!r} has no content")
    flags = {name: value[name] for name in _FLAGS if value.get(name) is not None}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise DataError(
            f"{path}: the flags of the token {value['content']!r} must be true or false"
        )
    if special is not None:
        flags["special"] = special
    flags.setdefault("normalized", not flags.get("special", False))
    return AddedToken(content=value["content"], **flags)
