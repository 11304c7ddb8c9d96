"""Names of weights in files of format 1, and current names."""

from __future__ import annotations

from collections.abc import Collection


def names_today(stored: Collection[str]) -> dict[str, str]:
    """Name in a file -> current name, for the weights of a model or an adapter."""
    tops = {name.partition(".")[0] for name in stored}
    encodes = bool(tops & {"source", "encoder"}) or any("cross_attention" in n for n in stored)
    return _renamed(
        stored, {"source": "front_end", "target": "target_front_end" if encodes else "front_end"}
    )


def names_in_format_1(names: Collection[str]) -> dict[str, str]:
    """Current name -> name in a file of format 1, for the weights of a model."""
    tops = {name.partition(".")[0] for name in names}
    if not tops & {"decoder", "target_front_end"}:
        return {name: name for name in names}
    front_end = "source" if tops & {"encoder", "target_front_end"} else "target"
    return _renamed(names, {"front_end": front_end, "target_front_end": "target"})


def pattern_today(pattern: str, tops: Collection[str]) -> str:
    """Name pattern, perhaps of format 1, for a model with modules `tops`."""
    top, dot, rest = pattern.partition(".")
    for new in {"source": ("front_end",), "target": ("target_front_end", "front_end")}.get(top, ()):
        if new in tops:
            return f"{new}{dot}{rest}"
    return pattern


def _renamed(names: Collection[str], tops: dict[str, str]) -> dict[str, str]:
    renamed = {}
    for name in names:
        top, dot, rest = name.partition(".")
        renamed[name] = f"{tops.get(top, top)}{dot}{rest}"
    return renamed
