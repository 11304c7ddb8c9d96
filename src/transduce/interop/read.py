"""Reader of `config.json`, of `generation_config.json`, and of tensors, each of which is used or
refused.

Only safetensors files are read.  Pickles are not, since reading them can run arbitrary code.
"""

from __future__ import annotations

import logging
import re
import reprlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.errors import DataError, printable_name
from transduce.support.files import read_json_object
from transduce.text import EOS, SPECIAL_TOKENS, Tokenizer
from transduce.text.imported import ImportedTokenizer

logger = logging.getLogger("transduce")

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
INDEX = "model.safetensors.index.json"
IMPOSSIBLE = -1e9
"""Logit bias of tokens that the original vocabulary lacks or has under another id."""
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Lists(NamedTuple):
    """A shortlist: target ids (n, k) of each source id, -1 where there are fewer, and the ids of
    all."""

    likely: NDArray[np.integer[Any]]
    frequent: NDArray[np.integer[Any]]


@dataclass(frozen=True)
class ImportedModel:
    """An imported model, ready to be written as a run directory."""

    recipe: dict[str, Any]
    """Settings of the recipe, including `task` and `model`."""
    weights: dict[str, Tensor]
    tokenizers: Mapping[str, Tokenizer] = field(default_factory=dict)
    """Tokenizers by file name, without suffix."""
    labels: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()
    """Tensors in the files that the task does not need."""
    divisors: Mapping[str, Tensor] = field(default_factory=dict)
    """Divisors (rows,) of matrices that were in int8, by name."""
    header: Mapping[str, str] = field(default_factory=dict)
    """Texts for the header of the weights."""
    shortlist: Lists | None = None


class Config:
    """Settings in `config.json`, checked when read."""

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        self.values = values
        self.path = path

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DataError(f"{self.path}: {name} must be a whole number above 0, not {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Any number."""
        value = self._value(name, default)
        if not is_number(value):
            raise DataError(f"{self.path}: {name} must be a number, not {value!r}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise DataError(f"{self.path}: {name} must be true or false, not {value!r}")
        return value

    def token(self, name: str) -> int | None:
        """The id of a token, or None."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def require(self, name: str, expected: Any, default: Any) -> None:
        """Raises DataError unless the setting is `expected`, the only supported value.

        name: of the setting.  default: value without it in the file.
        """
        if (value := self._value(name, default)) != expected:
            raise DataError(f"{self.path}: {name} = {value!r} is not supported, only {expected!r}")

    def one_of(self, name: str, table: dict[str, Any], default: str | None = None) -> Any:
        """Look up a setting's value in `table`.

        name: of the setting.  default: value without it in the file.
        """
        value = self._value(name, default)
        if not isinstance(value, str) or value not in table:
            known = ", ".join(map(repr, table))
            raise DataError(f"{self.path}: {name} = {value!r} is not supported, only {known}")
        return table[value]

    def architecture(self, default: str) -> str:
        """Class of the saved weights."""
        names = self.values.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else default

    def known_architecture(self, *known: str) -> str:
        """Class of the saved weights, by default the first.  Raises DataError for another."""
        if (architecture := self.architecture(known[0])) not in known:
            classes = " or ".join(dict.fromkeys(known))
            raise DataError(f"{self.path}: {architecture} is not supported; use {classes}")
        return architecture

    def labels(self) -> tuple[str, ...]:
        """Labels of a classifier, in the order of its scores; equal names get their numbers."""
        names = self.values.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        try:
            labels = tuple(printable_name(str(names[str(i)])) for i in range(len(names)))
        except (KeyError, TypeError):
            raise DataError(f"{self.path}: id2label must number the labels from 0") from None
        if "" in labels:
            raise DataError(f"{self.path}: label {labels.index('')} of id2label is blank; name it")
        labels = self._told_apart(labels)
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise DataError(
                f"{self.path}: id2label must name at least two labels, all different; regression "
                "models are not supported"
            )
        return labels

    def _told_apart(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Add the number to names shared by several labels, such as ImageNet's two cranes."""
        counts = Counter(labels)
        common = [name for name, count in counts.items() if count > 1]
        if common:
            message = "%s: id2label repeats %s; adding the number of the label, as in %r"
            example = f"{common[0]} ({labels.index(common[0])})"
            logger.warning(message, self.path, reprlib.repr(common)[1:-1], example)
        return tuple(f"{name} ({i})" if counts[name] > 1 else name for i, name in enumerate(labels))

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise DataError(f"{self.path} has no {name}")
        return value


def is_number(value: Any) -> bool:
    """True for a JSON value that is a float, including infinity and nan."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return isinstance(value, float)


class Checkpoint:
    """Tensors by name; each is taken once, and the rest must be known to be unneeded."""

    def __init__(
        self,
        directory: Path,
        files: dict[str, Path],
        opened: Mapping[Path, Any] | None = None,
        implied_by: str = "config.json",
    ) -> None:
        """files: the file of each tensor.  opened: files that are open, as safetensors gives them.
        implied_by: origin of the expected shapes, for messages."""
        self.directory = directory
        self._files = files
        self._name_in_file = {name: name for name in files}
        self._open: dict[Path, Any] = dict(opened or {})
        self._implied_by = implied_by
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._name_in_file

    def rename(self, pattern: str, replacement: str) -> None:
        """Rename tensors matching a pattern."""
        renamed: dict[str, str] = {}
        for name, in_file in self._name_in_file.items():
            new = re.sub(pattern, replacement, name)
            if new in renamed:
                raise DataError(
                    f"{self.directory}: the tensors {renamed[new]!r} and {in_file!r} map to the "
                    "same parameter"
                )
            renamed[new] = in_file
        self._name_in_file = renamed

    @classmethod
    def of(cls, path: Path, tensors: Mapping[str, Tensor], implied_by: str) -> Self:
        """The checkpoint of a file that has been read.

        path: of the file.  tensors: by name.  implied_by: origin of the expected shapes, for
        messages.
        """
        return cls(path, dict.fromkeys(tensors, path), {path: _Read(tensors)}, implied_by)

    def shape(self, name: str, rank: int | None = None) -> tuple[int, ...]:
        """Shape of a tensor.  rank: its number of dimensions.  Raises DataError if it is missing or
        has others."""
        sizes: tuple[int, ...] = ()
        if name in self:
            sizes = tuple(self._file(name).get_slice(self._name_in_file[name]).get_shape())
            if rank in (None, len(sizes)):
                return sizes
        raise DataError(f"{self.directory}: the weights lack the tensor {name!r} of rank {rank}")

    def take(self, name: str, *shape: int) -> Tensor:
        """Take a tensor by name, as float32.  Raises DataError if it is missing or unsuitable."""
        if name not in self._name_in_file:
            raise DataError(f"{self.directory}: the weights lack the tensor {name!r}")
        in_file = self._name_in_file[name]
        if (actual := self.shape(name)) != shape:
            raise DataError(
                f"{self.directory}: the tensor {in_file!r} has shape {actual}, but "
                f"{self._implied_by} implies {shape}"
            )
        tensor: Tensor = self._file(name).get_tensor(in_file)
        if tensor.dtype not in FLOATS:
            raise DataError(
                f"{self.directory}: the tensor {in_file!r} has dtype {tensor.dtype}, not floating "
                "point; quantised models are not supported"
            )
        self._taken.add(name)
        return tensor.to(torch.float32)

    def first_of(self, *names: str) -> str:
        """The name that is there of a tied tensor, of which a file may have any; else the first."""
        return next((name for name in names if name in self), names[0])

    def finish(self, needless: Iterable[str] = (), buffers: Iterable[str] = ()) -> tuple[str, ...]:
        """Names of the tensors left out because the task does not need them, by patterns
        `needless`.

        buffers: patterns of names without learned values.  Raises DataError for any other tensor
        that was not taken.
        """
        left_out = []
        for name, in_file in self._name_in_file.items():
            if name in self._taken or _matches(name, buffers):
                continue
            if not _matches(name, needless):
                raise DataError(
                    f"{self.directory}: unexpected tensor {in_file!r}; this model variant is not "
                    "supported"
                )
            left_out.append(in_file)
        self._open.clear()  # and with them the pages of the files
        return tuple(left_out)

    def _file(self, name: str) -> Any:
        path = self._files[self._name_in_file[name]]
        if path not in self._open:
            self._open[path] = open_safetensors(path)
        return self._open[path]


class _Read:
    """Tensors in memory, as `safetensors` opens a file."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def get_tensor(self, name: str) -> Tensor:
        """A tensor."""
        return self._tensors[name]

    def get_slice(self, name: str) -> _Shape:
        """Shape of a tensor."""
        return _Shape(self._tensors[name].shape)


class _Shape(NamedTuple):
    sizes: Sequence[int]

    def get_shape(self) -> Sequence[int]:
        """Sizes of the dimensions."""
        return self.sizes


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def text_kinds(
    source: ImportedTokenizer, target: ImportedTokenizer, shared: bool
) -> dict[str, Any]:
    """Section `text` of a recipe, of one tokenizer where the sides share a vocabulary.

    source, target: tokenizers.  shared: True if both sides share a vocabulary.
    """
    sides = {"source": source} if shared else {"source": source, "target": target}
    return {side: {"kind": tokenizer.kind} for side, tokenizer in sides.items()}


def read_config(directory: Path) -> Config:
    """Read `config.json`.  Raises DataError if it is missing."""
    if not directory.is_dir():
        raise DataError(f"{directory} is not a directory")
    path = directory / "config.json"
    if not path.is_file():
        raise DataError(f"{directory} has no config.json, so it is not a Hugging Face model")
    return Config(read_json_object(path), path)


def open_checkpoint(directory: Path) -> Checkpoint:
    """Open the tensors of a directory, in a safetensors file or several."""
    index = directory / INDEX
    whole = directory / "model.safetensors"
    if index.is_file():
        return Checkpoint(directory, _sharded(directory, read_json_object(index)))
    files = [whole] if whole.is_file() else sorted(directory.glob("*.safetensors"))
    if len(files) == 1:
        return Checkpoint(directory, dict.fromkeys(open_safetensors(files[0]).keys(), files[0]))
    if files:
        raise DataError(f"{directory} has several safetensors files, but no {INDEX}")
    for pickle in (path.name for pattern in PICKLES for path in sorted(directory.glob(pattern))):
        raise DataError(
            f"{directory} has weights only in {pickle}, a pickle, which can run arbitrary code; if "
            "you trust it, load it in transformers and use save_pretrained to write safetensors"
        )
    raise DataError(f"{directory} has no weights: model.safetensors is missing")


def open_safetensors(path: Path) -> Any:
    """Open a safetensors file.  Raises DataError if it is missing or damaged."""
    try:
        return safetensors.safe_open(path, framework="pt")
    except (OSError, safetensors.SafetensorError) as error:
        raise DataError(
            f"{path} is not a complete safetensors file ({error}); copy it again"
        ) from None


def _sharded(directory: Path, index: dict[str, Any]) -> dict[str, Path]:
    """The file of each tensor, according to the index and confirmed by the files."""
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise DataError(f"{directory / INDEX} has no weight_map")
    names = sorted({str(name) for name in shards.values()})
    if strange := [name for name in names if Path(name).name != name]:
        raise DataError(f"{directory / INDEX} names a file outside the directory, {strange[0]!r}")
    held = {name: set(open_safetensors(directory / name).keys()) for name in names}
    for tensor, name in shards.items():
        if tensor not in held[name]:
            raise DataError(
                f"{directory / name} lacks the tensor {tensor!r}, which the index lists"
            )
    return {tensor: directory / name for name in names for tensor in held[name]}


def reordered(table: Tensor, rows: Sequence[int]) -> Tensor:
    """Rows of a table in another order; zeros for -1."""
    index = torch.tensor(rows)
    chosen = table[index.clamp(min=0)]
    chosen[index < 0] = 0.0
    return chosen


def reordered_bias(bias: Tensor, rows: Sequence[int]) -> Tensor:
    """Biases of logits in another order that keeps the softmax unchanged: if several ids are one in
    the original, such as padding and beginning, EOS or else the first keeps it."""
    index = torch.tensor(rows)
    chosen = bias[index.clamp(min=0)]
    chosen[index < 0] = IMPOSSIBLE
    order = (EOS, *(token for token in range(len(SPECIAL_TOKENS)) if token != EOS))
    for i, token in enumerate(order):
        if rows[token] in [rows[before] for before in order[:i]]:
            chosen[token] = IMPOSSIBLE
    return chosen


BEGUN = 1
"""Tokens at the start of an output in transformers, counted there in lengths but not here."""
UNSAID = 20
"""Default number of tokens after it without a given length, including the end."""
_NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "force_words_ids": None,
    "constraints": None,
    "guidance_scale": 1.0,
    "penalty_alpha": 0.0,
    "dola_layers": None,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "stop_strings": None,
    "max_time": None,
    "watermarking_config": None,
}
"""Unsupported settings that change outputs, with their neutral values."""


def read_generation(directory: Path, config: Config) -> Config:
    """Read `generation_config.json` only, or config.json if it is missing."""
    path = directory / "generation_config.json"
    if path.is_file():
        return Config(read_json_object(path), path)
    return Config({"forced_eos_token_id": 0, **config.values}, config.path)


def renormalises(generation: Config, pad: int | None) -> bool:
    """True if token probabilities are normalised over everything but padding."""
    return generation.values.get("renormalize_logits") is True and _bad_words(generation) == [[pad]]


def decoding(generation: Config, config: Config, opened: bool | None = None) -> dict[str, Any]:
    """Search options equivalent to transformers', as far as possible; unsupported settings cause a
    warning.  opened: True for outputs whose first token is forced, which counts in their length;
    None for a Marian's, which end by force.  Raises DataError.

    generation: `generation_config.json`.  config: `config.json`.
    """
    beams = generation.integer("num_beams", 1)
    penalty = generation.number("length_penalty", 1.0)
    early = generation.values.get("early_stopping")
    if beams == 1 or early is True:  # greedy search ends with its first end
        stop = "first"
    else:
        stop = "exact" if early == "never" else "present"
    before = BEGUN + int(bool(opened))
    forced = generation.values.get("forced_eos_token_id") is not None
    ending = forced or (opened is not None and beams > 1)
    least = _natural(generation, "min_length") - before
    if generation.values.get("min_new_tokens") is not None:
        least = _natural(generation, "min_new_tokens") + BEGUN - before
    names = _not_followed(generation, config, beams)
    if opened is not None:
        names = [n for n in names if n not in ("forced_bos_token_id", "forced_eos_token_id")]
    for name in names:
        shown = reprlib.repr(generation.values.get(name))
        logger.warning(
            "%s: ignoring %s = %s, which decoding here does not support",
            generation.path,
            name,
            shown,
        )
    return {
        "beam_size": beams,
        "length_penalty": "none" if penalty == 0 else "mean",
        "stop": stop,
        "free_end": bool(forced) or opened is None or beams == 1,
        "min_length": max(least, 0),
        "max_length_ratio": 0.0,
        # Where no end is forced there, the last token allowed may be any, or must in a beam be the
        # end for an output to count.
        "max_length_extra": max(_longest(generation, config) - before - int(ending), 0),
        "extra_length": int(bool(opened)),
        "no_repeat_ngram": _natural(generation, "no_repeat_ngram_size"),
        "repetition_penalty": max(generation.number("repetition_penalty", 1.0), 1.0),
    }


def _longest(generation: Config, config: Config) -> int:
    """Maximum tokens of an output, including its start and its end."""
    if generation.values.get("max_new_tokens") is not None:
        return generation.integer("max_new_tokens") + BEGUN
    if generation.values.get("max_length") is not None:
        return generation.integer("max_length")
    max_length = min(UNSAID + BEGUN, config.integer("max_position_embeddings", 1024))
    message = (
        "%s has no max_length; limiting outputs to %d tokens including the end, as in "
        "transformers; raise the limit with --set decoding.max_length_extra=..."
    )
    logger.warning(message, generation.path, max_length - BEGUN)
    return max_length


def _not_followed(generation: Config, config: Config, beams: int) -> list[str]:
    """Names of settings that change outputs in transformers, but not here."""
    values = generation.values
    names = [
        name
        for name, neutral in _NEUTRAL.items()
        if values.get(name) not in (None, [], {}, neutral)
    ]
    pad, eos, start = (config.token(f"{name}_token_id") for name in ("pad", "eos", "decoder_start"))
    special_ids = {"pad": pad, "eos": eos, "decoder_start": pad if start is None else start}
    special = {f"{name}_token_id": token for name, token in special_ids.items()}
    names += [n for n, token in special.items() if values.get(n) not in (None, token, [token])]
    if any(words not in ([pad], [eos], [start]) for words in _bad_words(generation)):
        names.append("bad_words_ids")
    forced = values.get("forced_eos_token_id")
    if forced not in (None, eos, [eos]) or (forced is None and beams > 1):
        names.append("forced_eos_token_id")
    penalty = generation.number("repetition_penalty", 1.0)
    if penalty < 1 or (penalty != 1 and beams == 1):  # greedy search there: of logits
        names.append("repetition_penalty")
    if beams > 1 and generation.number("length_penalty", 1.0) not in (0.0, 1.0):
        names.append("length_penalty")
    others = ("min_length", "min_new_tokens", "no_repeat_ngram_size")
    masked = any(values.get(name) for name in others) or penalty != 1
    if beams > 1 and values.get("renormalize_logits") is True and masked:
        names.append("renormalize_logits")
    return names


def _bad_words(generation: Config) -> list[Any]:
    phrases = generation.values.get("bad_words_ids")
    return phrases if isinstance(phrases, list) else []


def _natural(generation: Config, name: str) -> int:
    return 0 if generation.values.get(name) in (None, 0) else generation.integer(name)
