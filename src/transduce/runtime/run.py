"""Loading of a run for its calls: without PyTorch where that is possible."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transduce.data.workers import available_cores
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import TextStream
from transduce.errors import NEEDS_TORCH, RunError, TransduceError, lacks_torch, needing_torch
from transduce.nn.kernels.precision import Precision
from transduce.runs.calls import RunCalls
from transduce.runtime.translator import NativeTranslator, load_translator

if TYPE_CHECKING:
    from transduce.runs.engine import EngineName
    from transduce.runs.run import Run
    from transduce.tasks.task import Predictor
    from transduce.tasks.translation.translator import Translator

GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Devices of a machine with a GPU, which `--engine auto` prefers to the CPU."""


class NativeRun(RunCalls):
    """A translation run in the native engine.

    Everything but translation is done by the `Run` with PyTorch, which is loaded when first needed.
    """

    engine = "native"
    others = ()

    def __init__(self, path: Path, precision: Precision, threads: int | None) -> None:
        """threads: of the engine and of PyTorch; by default `default_threads`.

        Raises RunError for a run that is damaged or needs PyTorch, SettingError if the engine
        is unavailable.
        """
        self.path, self.precision = path, precision
        self._threads = threads
        self._translator = load_translator(
            path, precision, lambda: threads or default_threads(), self._complete_translator
        )
        self.predictor = cast("Predictor", self._translator)

    def __repr__(self) -> str:
        return f"<transduce run {self.path} in the native engine>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.complete(name), name)

    @property
    def translator(self) -> NativeTranslator:
        """The translator of texts."""
        return self._translator

    def stream(
        self,
        text: str,
        options: DecodingOptions | None = None,
        number: int = 0,
        cancelled: Callable[[], bool] | None = None,
    ) -> TextStream:
        """As `Run.stream`; always with PyTorch."""
        return self._translator.stream(text, options, number, cancelled)

    def complete(self, what: str) -> Run:
        """The run with PyTorch, and the same engine.  what: feature that needs it, for messages.

        Raises SettingError without PyTorch.
        """
        with needing_torch(what):
            return self._complete

    @functools.cached_property
    def _complete(self) -> Run:
        return load_complete(self.path, "cpu", self.precision, "native", self._threads)

    def _complete_translator(self, what: str) -> Translator:
        return self.complete(what).translator


def load_complete(
    path: Path, device: str, precision: Precision, engine: EngineName, threads: int | None
) -> Run:
    """Load a run with PyTorch.  threads: of the CPU; by default PyTorch's choice.

    Raises the errors of `transduce.load`.
    """
    import torch

    from transduce.runs.run import load

    if threads is not None:
        torch.set_num_threads(threads)
    return load(path, device, precision, engine)


def load_light(
    path: Path, device: str, precision: Precision, engine: EngineName, threads: int | None
) -> Run:
    """Load a run for translation without PyTorch, or with PyTorch where that is impossible.

    Arguments and errors are as for `load_complete`.  A run without PyTorch has the interface of
    `Run`.
    """
    possible = engine == "native" or (engine == "auto" and (device == "cpu" or not _has_gpu()))
    if not possible or device not in ("auto", "cpu"):
        return load_complete(path, device, precision, engine, threads)
    try:
        return cast("Run", NativeRun(path, precision, threads))
    except TransduceError as reason:
        try:
            return load_complete(path, device, precision, engine, threads)
        except ImportError as error:
            if not lacks_torch(error):
                raise
            raise RunError(f"{reason}; without the native engine, this run {NEEDS_TORCH}") from None


def _has_gpu() -> bool:
    """True if PyTorch is installed and may find a GPU."""
    return any(map(os.path.exists, GPUS)) and importlib.util.find_spec("torch") is not None


def default_threads() -> int:
    """The number of the variable OMP_NUM_THREADS, by default of the cores of this process."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return available_cores()
