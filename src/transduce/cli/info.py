"""`transduce info`: settings, sizes and scores of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transduce.cli.options import Flag, Machine
from transduce.cli.output import print_json, print_lines


def info(run: Path, /, *, json: Flag = False) -> None:
    """Show the model size, settings, scores and checkpoints of a run.

    Parameters
    ----------
    run
        Run directory.
    json
        Print a JSON object.
    """
    facts = Machine(device="cpu", engine="pytorch").load(run).info()
    native = facts["native_engine"].startswith("yes")
    facts["engine"] = "native" if native else "pytorch"  # which --engine auto takes on a CPU
    if json:
        print_json(facts)
    else:
        print_lines(*_readable(facts))


def _readable(facts: dict[str, Any]) -> Iterator[str]:
    """Lines of names and values, then the recipe as TOML."""
    import tomli_w

    for name, value in facts.items():
        if name != "recipe":
            yield f"{name.replace('_', ' '):<20}{_shown(value)}"
    yield ""
    yield from tomli_w.dumps(facts["recipe"]).splitlines()


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {score:.4g}" for name, score in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
