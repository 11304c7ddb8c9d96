"""Attention weights of a model, recorded while it runs."""

from __future__ import annotations

from transduce.nn.attention import record_attention as record_attention
