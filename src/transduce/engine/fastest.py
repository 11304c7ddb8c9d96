"""Choice of a precision by measurement: products of each at the width of a model.  Imports no
torch."""

from __future__ import annotations

import functools
import logging
import math
import time
from array import array
from typing import get_args

from transduce.engine.library import engine_library
from transduce.errors import SettingError
from transduce.nn.precision import Precision, address_of
from transduce.settings.sections import did_you_mean

logger = logging.getLogger("transduce")

AUTO = "auto"
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
ROWS, INPUTS, OUTPUTS = 16, 1024, 2048
"""Vectors of a measured product, as of a small batch, and the size of the largest matrix."""
SECONDS = 0.1
"""Time of all products; packing the matrices takes as long at most."""
MARGIN = 1.05
"""Least ratio of the speed of a precision to that of one that rounds less."""


def listed_precisions(precision: str) -> tuple[Precision, ...]:
    """Precisions of a name, of "auto", or of a list such as "auto:float32,bf16"; those that round
    less first.  Raises SettingError for anything else."""
    if precision == AUTO:
        return PRECISIONS
    names = str(precision).removeprefix(f"{AUTO}:").split(",")
    if wrong := [name for name in names if name not in PRECISIONS]:
        known = ", ".join((*PRECISIONS, AUTO))
        raise SettingError(
            f"precision {wrong[0]!r} is not one of {known}, or a list such as auto:float32,bf16"
            f"{did_you_mean(wrong[0], (*PRECISIONS, AUTO))}"
        )
    if len(names) > 1 and not precision.startswith(AUTO):
        raise SettingError(f"precision {precision!r} names several; write auto:{precision}")
    return tuple(known for known in PRECISIONS if known in names)


@functools.cache
def fastest_precision(precisions: tuple[Precision, ...], width: int) -> Precision:
    """The precision with the fastest products at a width, in the order of `listed_precisions`; the
    first without the native engine.  Logs the choice."""
    chosen = precisions[0]
    try:
        seconds = seconds_of_products(precisions, width)
    except SettingError as error:
        logger.info("precision %s, without the native engine: %s", chosen, error)
        return chosen
    for precision in precisions:
        if seconds[precision] * MARGIN < seconds[chosen]:
            chosen = precision
    ratios = [f"{name} {seconds[precisions[0]] / seconds[name]:.2f}" for name in precisions]
    logger.info("precision %s: speed of products here, %s", chosen, ", ".join(ratios))
    return chosen


def seconds_of_products(precisions: tuple[Precision, ...], width: int) -> dict[Precision, float]:
    """Shortest time of a product of a layer in each precision, which take turns.  Raises
    SettingError without the native engine."""
    library = engine_library()
    inputs, outputs = min(width, INPUTS), min(4 * width, OUTPUTS)
    few = array("f", (math.sin(i) for i in range(997)))
    weight, x = few * (inputs * outputs // len(few) + 1), few * (ROWS * inputs // len(few) + 1)
    y = array("f", bytes(4 * ROWS * outputs))
    matrices = {
        name: library.linear_new(PRECISIONS.index(name), address_of(weight), None, outputs, inputs)
        for name in precisions
    }
    shortest = dict.fromkeys(precisions, math.inf)
    end = time.perf_counter() + SECONDS
    try:
        while math.inf in shortest.values() or time.perf_counter() < end:
            for name, matrix in matrices.items():
                begin = time.perf_counter()
                if not (
                    matrix and library.linear_apply(matrix, address_of(x), ROWS, address_of(y), 1)
                ):
                    raise MemoryError("the native engine ran out of memory")
                shortest[name] = min(shortest[name], time.perf_counter() - begin)
    finally:
        for matrix in matrices.values():
            library.linear_delete(matrix)
    return shortest
