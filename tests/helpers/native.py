"""The native engine in tests: instruction sets of this processor, or a reason to skip."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

import transduce
from transduce import Run
from transduce.engine.build import COMPILERS, available
from transduce.nn.stack_configs import Activation, NormOrder, PositionKind, TransformerConfig

HAS_COMPILER = any(map(shutil.which, COMPILERS))
INSTRUCTIONS = [one.name for one in available()]
needs_native = pytest.mark.skipif(
    not (HAS_COMPILER and INSTRUCTIONS), reason=f"needs a C++ compiler: {', '.join(COMPILERS)}"
)

EACH_ENGINE: list[Any] = ["pytorch", pytest.param("native", marks=needs_native)]
"""Parameters of a fixture: both engines that follow every option."""


def on_engine(engine: Any, run: Run) -> Run:
    """The run, decoding with that engine."""
    return transduce.load(run.path, engine=engine)


def odd_stack(
    positions: PositionKind, order: NormOrder, activation: Activation
) -> TransformerConfig:
    """A stack of widths that are no multiple of a vector."""
    return TransformerConfig(
        n_layers=2,
        n_heads=3,
        d_head=10,
        d_ff=21,
        positions=positions,
        norm_order=order,
        norm="rms" if activation == "geglu" else "layer",
        activation=activation,
        embedding_norm=activation == "gelu",
        norm_epsilon=1e-3 if order == "pre" else 1e-5,
        max_positions=32,
        dropout=0.0,
    )
