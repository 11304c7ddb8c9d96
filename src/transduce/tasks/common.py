"""Shared code of tasks: roots, devices, tokenizers, starting from another run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from transduce.data.resumable import preparation_lock
from transduce.errors import RunError, SettingError
from transduce.nn.initialise import SkipInit
from transduce.nn.kernels.weight_layout import lay_out_for_few_rows
from transduce.tasks.run_files import cache_of as cache_of
from transduce.tasks.sections import RootedData, SplitsConfig, TrainingData
from transduce.tasks.splits import check_trainable
from transduce.tasks.validation import checksum_of
from transduce.tasks.vocabularies import saved_tokenizer
from transduce.text import Tokenizer
from transduce.training import sharding
from transduce.training.config import TrainingConfig
from transduce.training.plain_weights import stored_weights
from transduce.training.weights import as_tensor, check_weights, weights_of
from transduce.training.weights_header import read_header

_log = logging.getLogger("transduce")


class HasModel(Protocol):
    """Object with a network as `model`."""

    @property
    def model(self) -> nn.Module: ...  # noqa: D102


P = TypeVar("P", bound=HasModel)

FEW = 1 << 16
"""Elements of a tensor that are checked together, so that they need little memory."""

TOKENIZER_VERSION = 2
"""Incremented when the same text and settings yield another tokenizer."""


def prepare_training(data: RootedData, training: TrainingConfig, seed: int) -> float:
    """Set up threads, device and random numbers for training, after early checks.

    Returns the start of its time budget, by `time.monotonic`.
    """
    started = time.monotonic()
    if isinstance(data, TrainingData):
        check_trainable(data)
    sharding.is_enabled(training)  # raises for incompatible settings
    _warn_of_missing_test(data)
    if training.threads:
        torch.set_num_threads(training.threads)
    find_device(training.device)
    torch.manual_seed(seed)
    return started


def _warn_of_missing_test(data: RootedData) -> None:
    test = data.test if isinstance(data, SplitsConfig) else None
    for value in vars(test).values() if test is not None else ():
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, Path) and not (location := Path(data.root) / path).exists():
                _log.warning("data.test: %s: no such file; `transduce evaluate` needs it", location)


def find_device(name: str) -> torch.device:
    """Device of that name, ready for use.  Raises SettingError if there is none."""
    if name == "auto":
        return ready(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise SettingError(f"device {name!r} is not available: {reason}") from None
    if device.type == "meta":
        raise SettingError("device 'meta' stores no data; use cpu or cuda")
    return ready(device)


def ready(device: torch.device) -> torch.device:
    """The device, with PyTorch's settings of this process for a GPU.

    cuDNN makes a plan of attention for each new shape, in tens of milliseconds, and almost every
    batch has a new shape; flash or memory-efficient attention need none.  Convolutions and
    recurrent cells would round float32 to the 10 bits of TF32.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cudnn.allow_tf32 = False
    return device


def with_weights(build: Callable[[], P], run: Path, device: str) -> P:
    """Predictor on its device, with the weights of a trained run.

    build: constructs it, with any weights.  No memory is allocated before the weights file is known
    to match the model, so an untrusted recipe cannot exhaust the memory.

    Raises RunError for weights that are missing, damaged, of another model or not finite.
    """
    file = run / "weights.safetensors"
    shapes = read_header(file).shapes
    with torch.device("meta"), SkipInit():
        tensors = {name: torch.empty(shape) for name, shape in shapes.items()}
        try:
            model = build().model
        except (RuntimeError, OverflowError, TypeError) as error:  # sizes beyond 64 bits
            reason = str(error).splitlines()[0]
            raise RunError(f"{run}: the model of the recipe cannot be built: {reason}") from None
        check_weights(weights_of(model), tensors, str(file))
    with SkipInit():
        predictor = build()
    if (where := find_device(device)).type == "cpu":
        lay_out_for_few_rows(predictor.model)
    predictor.model.to(where)
    stored = stored_weights(file)
    for name, weight in weights_of(predictor.model).items():
        tensor = as_tensor(stored[name])
        parts = torch.split(tensor.flatten(), FEW)
        if tensor.is_floating_point() and not all(part.isfinite().all() for part in parts):
            raise RunError(
                f"{file}: {name!r} contains NaN or infinite values; use weights from before "
                "training diverged"
            )
        if weight.is_contiguous():
            weight.copy_(tensor)
        else:  # column by column, for which PyTorch has a copy of blocks
            weight.t().copy_(tensor.t())
        stored[name].release()
    predictor.model.eval()
    return predictor


def loader(build: Callable[..., P], *files: Callable[[Path], Any]) -> Callable[..., P]:
    """Function from a recipe, a run directory and a device to its trained model.

    build: makes it, with any weights, of the recipe and the parts that `files` read.  The function
    raises RunError if a file is missing or damaged.
    """

    def load(recipe: Any, run: Path, device: str) -> P:
        parts = [read(run) for read in files]
        return with_weights(lambda: build(recipe, *parts), run, device)

    return load


def describe_batch(what: str, numbers: Sequence[int] | NDArray[np.int64]) -> str:
    """Short description of a batch for messages: the kind of its items, and the first numbers."""
    shown = ", ".join(str(number) for number in numbers[:8])
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"the batch of {what} {shown}{more}"


def cached_tokenizer(cache: Path, facts: Any, make: Callable[[], Tokenizer]) -> Tokenizer:
    """Tokenizer from the cache, or else newly made, saved there.

    facts: key of the cache, as JSON values: all inputs and settings that determine the result.
    Waits for another process that is making it.  Raises RunError if `cache` cannot be written.
    """
    name = f"tokenizer-{checksum_of(TOKENIZER_VERSION, version('sentencepiece'), facts)}"
    tokenizer = _whole_tokenizer(cache, name)
    if tokenizer is not None:
        return tokenizer
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with preparation_lock(cache / name) as waited:
            tokenizer = _whole_tokenizer(cache, name) if waited else None
            if tokenizer is None:
                tokenizer = make()
                tokenizer.save(cache / f"{name}{tokenizer.suffix}")
    except OSError as error:
        raise RunError(f"{cache} cannot be written: {error.strerror or error}") from None
    return tokenizer


def _whole_tokenizer(cache: Path, name: str) -> Tokenizer | None:
    try:
        return saved_tokenizer(cache, name)
    except RunError:  # damaged: made anew
        return None
