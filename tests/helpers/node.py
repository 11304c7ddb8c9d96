"""Packages of Node for tests with real clients, installed into a temporary directory."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


def node_with(directory: Path, package: str) -> Path:
    """A directory where a package can be imported; skips the test where npm cannot install it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    (directory / "package.json").write_text('{"type": "module"}')
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries", "0")
    command = ["npm", "install", *quiet, package]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm cannot install {package}")
    return directory


def run_node(directory: Path, script: str, *arguments: str) -> Any:
    """The JSON that a script writes."""
    (directory / "script.js").write_text(script, encoding="utf-8")
    command = ["node", "script.js", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
