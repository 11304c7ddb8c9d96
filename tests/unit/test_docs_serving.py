"""docs/serving.md and deploy/ name options, routes and settings that `transduce serve` has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from transduce.cli.options import Machine
from transduce.cli.serve import serve
from transduce.localise.formats import FORMATS
from transduce.serve.metrics import Metrics
from transduce.serve.server import build_application
from transduce.serve.service import Service
from transduce.serve.settings import ServeSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
DEPLOY = sorted(path for path in (ROOT / "deploy").iterdir() if path.name != "skypilot.yaml")
"""Files of servers."""
OTHERS = {"--run", "--jsonl", "--now"}
"""Options of other commands."""


def options() -> set[str]:
    names = {*inspect.signature(serve).parameters, *Machine.__dataclass_fields__}
    names |= set(ServeSettings.__dataclass_fields__)
    return {f"--{name.replace('_', '-')}" for name in names}


@pytest.mark.parametrize(
    "file", [ROOT / "docs" / "serving.md", *DEPLOY], ids=lambda file: file.name
)
def test_options_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if file.name == "Dockerfile":  # those of pip and useradd are others
        text = text[text.index("ENTRYPOINT") :]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named - options() - OTHERS == set()


def test_every_option_of_the_server_is_described() -> None:
    names = {"pair", *ServeSettings.__dataclass_fields__}
    assert {name for name in names if f"--{name.replace('_', '-')}" not in PAGE} == set()


def test_routes_are_described() -> None:
    service = Service([], lambda path: None, ServeSettings(metrics=True))  # type: ignore[arg-type]
    routes = {route.path for route in build_application(service).routes}  # type: ignore[attr-defined]
    missing = {path for path in routes if path.partition("{")[0].rstrip("/") not in PAGE}
    own = {path for path in routes if path.startswith("/page/")}  # those of the page itself
    assert missing - own <= {"/download_file/{name}"}


def test_defaults_and_formats() -> None:
    settings = ServeSettings()
    for number in (settings.max_chars, settings.max_texts, settings.max_waiting):
        assert f"{number:,}" in PAGE
    assert f"{settings.timeout:g} seconds" in PAGE
    formats = (ROOT / "docs" / "localise.md").read_text(encoding="utf-8")
    assert [suffix for suffix in FORMATS if f"`{suffix}`" not in formats] == []
    assert Metrics().text()
