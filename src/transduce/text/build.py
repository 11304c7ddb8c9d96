"""Make tokenizers by training on text, or by loading a file."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from transduce.errors import RunError, SettingError, naming
from transduce.settings.paths import absolute_path
from transduce.settings.sections import ByKind, section
from transduce.support.files import from_json
from transduce.text.hugging_face import HuggingFaceTokenizer
from transduce.text.imported import ImportedConfig, MarianTokenizer
from transduce.text.subword import SubwordConfig, SubwordTokenizer
from transduce.text.tokenizer import (
    CharactersConfig,
    CharacterTokenizer,
    SymbolsConfig,
    SymbolTokenizer,
    Tokenizer,
    read_listed,
)


@section
class FileConfig:
    """The tokenizer of another run, such as a translation model's target for its language model."""

    kind: Literal["file"] = "file"
    path: Annotated[str, BeforeValidator(absolute_path)]
    """Its file, such as `runs/NAME/target_tokenizer.model`; may contain `~` and `$VARIABLE`."""


AnyTokenizer = SubwordConfig | CharactersConfig | SymbolsConfig | FileConfig | ImportedConfig
TokenizerConfig = Annotated[AnyTokenizer, ByKind("bpe")]
"""Settings of a tokenizer, selected by `kind`; by default subwords with BPE."""

LOADERS: dict[str, Callable[[dict[str, Any]], Tokenizer]] = {
    "hugging-face": HuggingFaceTokenizer.from_content,
    "marian": MarianTokenizer.from_content,
}
"""By `kind` in a JSON file: its content -> tokenizer.  Another row adds a tokenizer, which recipes
name as a file."""


def train_tokenizer(config: AnyTokenizer, lines: Iterable[str]) -> Tokenizer:
    """Train a tokenizer on lines of text, read once; the same lines give the same tokenizer.

    Raises DataError if there is no text, SettingError if the settings do not suit it, RunError if
    `path` is not a tokenizer file.
    """
    bare = (line.rstrip("\r\n") for line in lines)
    match config:
        case SubwordConfig():
            return SubwordTokenizer.train(config, bare)
        case CharactersConfig():
            return CharacterTokenizer.train(config, bare)
        case SymbolsConfig():
            return SymbolTokenizer.train(config, bare)
        case FileConfig():
            return load_tokenizer(Path(config.path))
        case ImportedConfig():
            raise SettingError(
                f"a tokenizer of kind {config.kind!r} cannot be trained; use `transduce import` "
                "and name the resulting run in fine_tune.run"
            )


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer written by `save`.  Raises RunError if it is missing, damaged or something
    else."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    with naming(path, RunError):
        if not data.startswith(b"{"):
            return SubwordTokenizer.from_bytes(data)
        content = _object(data)
        if (load := LOADERS.get(str(content.get("kind")))) is not None:
            return load(content)
        file = read_listed(data)
        match file.kind:
            case "characters":
                return CharacterTokenizer.from_file(file)
            case "symbols":
                return SymbolTokenizer.from_file(file)


def _object(data: bytes) -> dict[str, Any]:
    """A JSON object, or an empty object for other content, which later checks refuse."""
    try:
        content = from_json(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
