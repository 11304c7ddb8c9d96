"""Engine of a run: PyTorch or the native engine, and the device for it.  Imports no torch."""

from __future__ import annotations

import importlib.util
import logging
import os
from typing import Literal, get_args

from transduce.engine.instructions import chosen_instructions
from transduce.errors import SettingError
from transduce.nn.kernels.precision import Precision
from transduce.runs.call_inputs import check_name

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


def device_for(engine: EngineName, precision: Precision, device: str) -> str:
    """The device of an engine and a precision.

    Raises SettingError for an unknown name, and for another device than the given.
    """
    check_name("engine", engine, get_args(EngineName))
    check_name("precision", precision, get_args(Precision))
    if engine != "native" and precision != "int8":
        return device
    if device not in ("auto", "cpu"):
        what = "engine 'native'" if engine == "native" else "precision 'int8'"
        raise SettingError(f"{what} runs on a CPU only, not on {device!r}; remove one of them")
    return "cpu"
