"""The npm package in a fresh project of Node: installed, loaded, its outputs those of Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import transduce
from helpers.node import node_with
from helpers.web import COMPILING, needs_wasm
from transduce.runs.exporting import export_run

pytestmark = [needs_wasm, pytest.mark.timeout(COMPILING)]

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "runs" / "0.1.0" / "translation"
LINES = ["a good hat", "Zürich", "the red dog\nsad"]
SCRIPT = """
import { readFile } from "node:fs/promises";
import { load } from "transduce";

const model = await load(await readFile(process.argv[2]));
const translate = (line) => model.translate(line, { n_best: 2 });
const answers = await Promise.all(process.argv.slice(3).map(translate));
console.log(JSON.stringify(answers));
"""


def test_a_fresh_project_translates(tmp_path: Path) -> None:
    package = tmp_path / "package"
    script = ROOT / "packaging" / "npm" / "build.py"
    subprocess.run([sys.executable, script, package], check=True, timeout=COMPILING)
    project = tmp_path / "project"
    project.mkdir()
    node_with(project, str(package))
    model = export_run(RUN, tmp_path / "model.transduce", "float32", "npm")
    (project / "script.js").write_text(SCRIPT, encoding="utf-8")
    command = ["node", "script.js", str(model), *LINES]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    right = transduce.load(RUN, "cpu").translate_batch(LINES)
    assert [answer["text"] for answer in answers] == [translation.text for translation in right]
    assert all(len(answer["candidates"]) == 2 and "lines" not in answer for answer in answers)
