"""Precisions of inference."""

from __future__ import annotations

from typing import Literal

Precision = Literal["float32", "bf16", "int8"]
