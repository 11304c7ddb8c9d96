"""The loader of run directories: `load`.

Translations, encoders of texts and imported Whispers are loaded into the native engine without
PyTorch, other recognisers into the engine alone, all else with PyTorch.
"""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

from transduce.errors import NEEDS_TORCH, RunError, TransduceError, lacks_torch
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.kernels.precision import Precision
from transduce.recipes import read_recipe
from transduce.runs.engine import EngineName, device_for, has_torch, warn_of_bf16, without_torch
from transduce.runs.run import Run
from transduce.settings.sections import to_dict
from transduce.tasks.recipe import Recipe
from transduce.tasks.recipe_settings import check_model_size
from transduce.tasks.table import TASKS

logger = logging.getLogger("transduce")


def load(
    path: str | os.PathLike[str],
    device: str = "auto",
    precision: Precision = "float32",
    engine: EngineName = "auto",
    threads: int | None = None,
) -> Run:
    """Load a run directory for use.  Raises RunError when it is missing, damaged or too new.

    precision: of matrix products, "bf16", or "int8" on a CPU: faster, smaller, with slightly
    different answers.  On a CPU both are computed by the native engine, which then decodes where it
    can.  engine: "native" computes translations, continuations, replies, transcripts and encoders
    of texts and images in C++, on a CPU, compiled on first use; "auto" natively where that is
    possible, else with PyTorch.  Translations, encoders of texts and imported Whispers in the
    native engine load PyTorch only for a call that needs it, such as `explain`, and for `model`.
    threads: of the CPU, by default PyTorch's choice.  Raises SettingError if impossible.
    """
    if not isinstance(path, str | os.PathLike):
        raise RunError(f"{path!r} is not the path of a run directory")
    loaded = _load(Path(path), device, precision, engine, threads)
    if loaded.engine == "native" and precision == "float32" and has_torch():
        loaded.is_given_engine = engine == "native"
        loaded.reload = functools.cache(lambda: _load(loaded.path, "cpu", engine="pytorch"))
    return loaded


def _load(
    run: Path,
    device: str,
    precision: Precision = "float32",
    engine: EngineName = "auto",
    threads: int | None = None,
) -> Run:
    reason: TransduceError | None = None
    try:
        recipe = read_recipe(run)
        device = device_for(engine, precision, device)
        load_native = TASKS[recipe.task].load_native
        if load_native is not None and without_torch(engine, device):
            try:
                predictor = load_native(recipe, run, precision, threads)
                warn_of_bf16(precision)
                return Run(run, recipe, predictor, precision, "native")
            except TransduceError as error:
                if engine == "native" and not isinstance(recipe.model, EncoderDecoderConfig):
                    raise  # nothing else takes such a model to the engine
                reason = error
        return _load_with_torch(run, recipe, device, precision, engine, threads)
    except ImportError as error:
        if not lacks_torch(error):
            raise
        what = f"{reason}; without the native engine, this run" if reason else str(run)
        raise RunError(f"{what} {NEEDS_TORCH}") from None


def _load_with_torch(
    run: Path,
    recipe: Recipe,
    device: str,
    precision: Precision,
    engine: EngineName,
    threads: int | None,
) -> Run:
    """The run with the engine of a name, or for "auto" with the native engine where possible.

    On a CPU, bf16 and int8 are the native engine's: it decodes where it can, and all that PyTorch
    still computes multiplies matrices with it.
    """
    check_model_size(to_dict(recipe.model), run)
    import torch

    from transduce.engine.build import NO_COMPILER, log_once
    from transduce.engine.linear import to_native
    from transduce.nn.kernels.bf16 import to_bf16
    from transduce.runs.network_engine import check_reduced, native_refusal, natively, on_cpu

    if threads is not None:
        torch.set_num_threads(threads)
    is_chosen = engine == "native"
    predictor = decoding = TASKS[recipe.task].load(recipe, run, device)
    reduced = precision != "float32" and on_cpu(predictor)
    if reduced:
        check_reduced(precision)
    if reduced and engine != "native":
        engine = "pytorch" if native_refusal(predictor, recipe.model) else "native"
    refusal = native_refusal(predictor, recipe.model) if engine == "auto" else None
    if refusal == NO_COMPILER:
        log_once(refusal)
    used: EngineName = "pytorch"
    if engine != "pytorch" and refusal is None:
        try:
            decoding, used = natively(predictor, recipe, run, precision), "native"
        except TransduceError as error:
            if is_chosen:
                raise
            logger.warning("decoding with PyTorch: %s", error)
    if used == "pytorch" and precision == "bf16" and not reduced:
        to_bf16(predictor.model)
    if reduced:  # now that the engine has read the matrices
        to_native(predictor.model, precision)
    return Run(run, recipe, decoding, precision, used)
