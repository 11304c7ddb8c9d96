"""Arguments of calls from Python: texts, options and engines, checked, and mistakes answered as
on the command line."""

import importlib.util
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from transduce.decoding.options import DecodingOptions
from transduce.engine.build import chosen_instructions
from transduce.engine.fastest import fastest_precision, listed_precisions
from transduce.errors import DataError, InputError, SettingError
from transduce.nn.precision import Precision
from transduce.settings.sections import did_you_mean

FILES = ("audio", "image")
"""Inputs of tasks that are files."""


def check_name(setting: str, name: object, known: Sequence[str]) -> None:
    """Raises SettingError, with the nearest name, for an unknown value of a setting."""
    if name not in known:
        hint = did_you_mean(str(name), known)
        raise SettingError(f"{setting} {name!r} is not one of {', '.join(known)}{hint}")


def check_text(text: object, what: str = "the text") -> None:
    """Raises DataError for anything but a string."""
    if not isinstance(text, str):
        raise DataError(f"{what} {_kind(text)}, not a text")


def check_texts(texts: object) -> None:
    """Raises DataError for anything but an iterable of texts, as far as is seen without reading."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise DataError(f"the input {_kind(texts)}, not an iterable of texts")
    if hasattr(texts, "columns") or hasattr(texts, "column_names"):
        raise DataError(
            f"the input {_kind(texts)}; give a column of the table, such as table['text']"
        )
    if isinstance(texts, Mapping):
        raise DataError(f"the input {_kind(texts)}; give its texts, such as list(texts.values())")


def input_parts(texts: object, names: Sequence[str], number: int) -> tuple[str, ...]:
    """The parts of an input, such as question and context.

    names: `Predictor.inputs`.  number: of the input, from 0.  Raises InputError for another number
    of parts, and for parts that are not texts.
    """
    alone = isinstance(texts, str | bytes | os.PathLike) or not isinstance(texts, Iterable)
    parts = [texts] if alone else list(texts)  # type: ignore[call-overload]
    if len(parts) != len(names):
        count = "1 part" if len(parts) == 1 else f"{len(parts)} parts"
        raise InputError(number, f"needs {' and '.join(names)}, but has {count}")
    for i, part in enumerate(parts):
        if isinstance(part, os.PathLike) and names[i] in FILES:
            parts[i] = os.fspath(part)
        elif not isinstance(part, str):
            raise InputError(number, f"{names[i]} {_kind(part)}, not a text")
    return tuple(parts)


def text_pairs(pairs: Iterable[object]) -> Iterator[tuple[str, str]]:
    """Pairs of texts, lazily.  Raises InputError for anything else."""
    for number, pair in enumerate(pairs):
        yield input_parts(pair, ("source", "target"), number)  # type: ignore[misc]


def answered(
    examples: Iterable[Any], names: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Examples as the parts of an input and its answer.  Raises InputError for anything else."""
    check_texts(examples)
    for number, example in enumerate(examples):
        if isinstance(example, str) or not isinstance(example, Sequence) or len(example) != 2:
            raise InputError(number, f"an example is an input and its answer, not {example!r}")
        texts, answer = example
        yield input_parts(texts, names, number), input_parts(answer, ("answer",), number)[0]


def decoding_options(
    defaults: DecodingOptions | None,
    options: DecodingOptions | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> DecodingOptions | None:
    """Options of a call; None for the recipe's.

    defaults: the recipe's; None for a task without decoding.  options: all of them, or changes to
    the recipe's.  settings: changes to either.  Raises SettingError for invalid options.
    """
    if isinstance(options, Mapping):
        settings = {**options, **settings}
        options = None
    if options is not None and not isinstance(options, DecodingOptions):
        raise SettingError(f"options {_kind(options)}; give settings by name, such as beam_size=2")
    if not settings:
        return options
    changed = options or defaults
    if changed is None:
        raise SettingError(f"this task does not decode; remove {', '.join(settings)}")
    return changed.with_settings(settings)


def _kind(argument: object) -> str:
    return "is None" if argument is None else f"is of type {type(argument).__name__}"


logger = logging.getLogger("transduce")

EngineName = Literal["auto", "native", "pytorch"]
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Devices of a machine with a GPU, which `--engine auto` prefers to the CPU."""


def warn_of_bf16(precision: Precision) -> None:
    """Log a warning where the native engine is slower in bf16 than in float32."""
    if precision == "bf16" and "avx512_bf16" not in chosen_instructions().features:
        logger.warning("this processor has no instructions for bfloat16; float32 is faster")


def has_torch() -> bool:
    """True if PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def without_torch(engine: EngineName, device: str) -> bool:
    """True if a run is to be loaded without PyTorch where that is possible."""
    if engine == "pytorch" or device not in ("auto", "cpu"):
        return False
    return (
        engine == "native"
        or device == "cpu"
        or not (any(map(os.path.exists, GPUS)) and has_torch())
    )


def measured_precision(precision: str, model: object) -> Precision:
    """The fastest of the precisions that a name lists, in products of a model's width."""
    listed = listed_precisions(precision)
    width = getattr(model, "d_model", None)
    if len(listed) == 1 or not isinstance(width, int):
        return listed[0]
    return fastest_precision(listed, width)


def device_for(engine: EngineName, precision: str, device: str) -> str:
    """The device of an engine and a precision, which may be measured: "auto".

    Raises SettingError for an unknown name, and for another device than the given.
    """
    check_name("engine", engine, get_args(EngineName))
    listed = listed_precisions(precision)
    if engine != "native" and len(listed) == 1 and listed != ("int8",):
        return device
    if device not in ("auto", "cpu"):
        what = "engine 'native'" if engine == "native" else f"precision {precision!r}"
        raise SettingError(f"{what} runs on a CPU only, not on {device!r}; remove one of them")
    return "cpu"
